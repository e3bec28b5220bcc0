"""The verbs: each turns options into one call of the library and its answer into lines.

Always true here: nothing is decided about a patch; the exit code is the verb's return value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.errors import NotInstalled, UnknownPatch, VllmPatchError

from .hints import Call
from .options import CATALOG, CHOICE, DIFFS, INSTALL, SHOW, Common, options
from .shell import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, Output

if TYPE_CHECKING:
    from vllm_patcher.results import Report
    from vllm_patcher.survey import Request

_PATCHES = click.argument("patches", nargs=-1, metavar="[PATCH]...")


@click.command("apply")
@_PATCHES
@click.option("--dry-run", is_flag=True, help="Show the diff it would make; write nothing.")
@click.option(
    "--exact",
    is_flag=True,
    help="Refuse a hunk that moved (but on a listed file) and a file that RECORD does not prove.",
)
@options(DIFFS, CHOICE, INSTALL, CATALOG, SHOW)
def apply(patches: tuple[str, ...], *, dry_run: bool, exact: bool, **common: Any) -> int:
    r"""Bring patches in: all default ones of the catalog, or those named.

    PATCH is an id of the catalog, a .patch or .diff file, or - for standard input (with --id).
    All of them go in or none does.

    \b
    vllm-patch apply
    vllm-patch apply lora-finish-request
    vllm-patch apply fix.patch
    """
    from vllm_patcher import operations

    flags = _flags(("--dry-run", dry_run), ("--exact", exact))
    call = Call(verb="apply", options=Common(**common), patches=patches, flags=flags)
    if dry_run:
        return _each(call, lambda r: operations.preview(r, exact=exact), diff="forwards")
    return _each(call, lambda r: operations.apply(r, exact=exact))


@click.command("verify")
@_PATCHES
@click.option("--strict", is_flag=True, help="A modified file or an unsupported patch fails too.")
@click.option("--probe", is_flag=True, help="Also run the probes: is the fault really gone?")
@options(DIFFS, CHOICE, INSTALL, CATALOG, SHOW)
def verify(patches: tuple[str, ...], *, strict: bool, probe: bool, **common: Any) -> int:
    r"""Prove that patches are in: the default ones or those named, and all applied before.

    Exit code 0 means yes, 1 no. Writes nothing.

    \b
    vllm-patch verify
    vllm-patch verify --probe lora-finish-request
    """
    from vllm_patcher import operations

    flags = _flags(("--strict", strict), ("--probe", probe))
    call = Call(verb="verify", options=Common(**common), patches=patches, flags=flags)
    return _each(call, lambda r: operations.verify(r, strict=strict, probe=probe))


@click.command("revert")
@_PATCHES
@click.option("--with-dependents", is_flag=True, help="Take out what requires them, too.")
@options(DIFFS, INSTALL, CATALOG, SHOW)
def revert(patches: tuple[str, ...], *, with_dependents: bool, **common: Any) -> int:
    r"""Take patches out again: all that are proven to be in, or those named.

    What cannot be proven to have been put in stays.

    \b
    vllm-patch revert
    vllm-patch revert lora-waiting-leak
    """
    from vllm_patcher import operations

    flags = _flags(("--with-dependents", with_dependents))
    call = Call(verb="revert", options=Common(**common), patches=patches, flags=flags)
    return _each(call, lambda r: operations.revert(r, with_dependents=with_dependents))


@click.command("status")
@options(INSTALL, CATALOG, SHOW)
def status(**common: Any) -> int:
    """Tell the state of every patch on this install."""
    from vllm_patcher import operations

    return _each(Call(verb="status", options=Common(**common)), operations.status)


@click.command("diff")
@_PATCHES
@options(INSTALL, CATALOG, SHOW)
def diff(patches: tuple[str, ...], **common: Any) -> int:
    """Print what the applied patches changed, as one unified diff.

    PATCH is an id; without any, the diff is of all that are in.
    """
    from vllm_patcher import operations

    call = Call(verb="diff", options=Common(**common), patches=patches)
    return _each(call, operations.changes, diff="backwards", text=False)


@click.command("where")
@options(INSTALL, SHOW)
def where(**common: Any) -> int:
    """Tell which vLLM is meant, which version it is, and how it was found."""
    from vllm_patcher import document, operations, report

    call = Call(verb="where", options=Common(**common))
    output = call.options.output()

    def one(request: Request) -> int:
        install = operations.locate(request)
        version = request.assume_version or install.version
        if output.json:
            output.document(document.of_install(install, version))
        else:
            output.lines(report.install_text(install, version))
        return EXIT_OK

    return output.ending(_guarded(call, output, one))


@click.command("list")
@click.option("--for", "release", metavar="VERSION", help="Say which of them VERSION needs.")
@options(CATALOG, SHOW)
def list_(release: str | None, **common: Any) -> int:
    """List the catalog: id, affected versions, kind and title. Needs no vLLM."""
    from vllm_patcher import catalog, listing

    call = Call(verb="list", options=Common(**common))
    output = call.options.output()

    def one(request: Request) -> int:
        patches = catalog.load_all(request.catalogs, builtin=request.builtin, locked=False).patches
        rows = listing.rows(patches, release)
        if output.json:
            output.document(listing.document(rows, release))
        else:
            output.lines(listing.text(rows, release))
        return EXIT_OK

    return output.ending(_guarded(call, output, one))


@click.command("show")
@click.argument("name", metavar="ID")
@click.option("--diff", "only_diff", is_flag=True, help="Print only the diff.")
@click.option("--for", "release", metavar="VERSION", help="Only the diff for VERSION.")
@options(INSTALL, CATALOG, SHOW)
def show(name: str, *, only_diff: bool, release: str | None, **common: Any) -> int:
    """Show one patch whole, with its diff: of the catalog, or as it was applied."""
    from vllm_patcher import catalog, listing

    call = Call(
        verb="show",
        options=Common(**common),
        patches=(name,),
        flags=(*_flags(("--diff", only_diff)), *(("--for", release) if release else ())),
    )
    output = call.options.output()

    def one(request: Request) -> int:
        patches = catalog.load_all(request.catalogs, builtin=request.builtin, locked=False).patches
        found = next((patch for patch in patches if patch.id == name), None)
        if found is not None:
            entry = listing.entry(found, release)
        else:
            entry = listing.Entry(patch=None, diffs=(("", _applied_text(request, name)),))
        if output.json:
            output.document(listing.entry_document(name, entry))
        elif only_diff:
            output.raw(listing.only_diff(name, entry))
        else:
            output.lines(listing.entry_text(entry))
            for specifier, text in entry.diffs:
                output.lines([listing.diff_headline(specifier)])
                output.raw(text)
        return EXIT_OK

    return output.ending(_guarded(call, output, one))


def _flags(*given: tuple[str, bool]) -> tuple[str, ...]:
    return tuple(flag for flag, is_set in given if is_set)


def _applied_text(request: Request, name: str) -> bytes:
    """The text of a patch that no catalog has, as it was applied."""
    from vllm_patcher import operations

    try:
        text = operations.applied_text(request, name)
    except NotInstalled as error:
        fact = f"{error.what}, so nothing tells what was applied"
        raise UnknownPatch(
            f"no patch {name!r} in the catalog", facts=[fact, *error.facts], hint="vllm-patch list"
        ) from error
    if text is None:
        raise UnknownPatch(
            f"no patch {name!r}: it is in no catalog and was not applied", hint="vllm-patch list"
        )
    return text


def _each(
    call: Call, work: Callable[[Request], Report], *, text: bool = True, diff: str = ""
) -> int:
    """Run a verb on each install and print its report; the worst exit code counts.

    ``diff`` says which way the diff of its edits is printed: forwards, backwards, or not at all.
    """
    output = call.options.output()
    changed = False

    def one(request: Request) -> int:
        nonlocal changed
        result = work(request)
        changed = changed or result.wrote
        rendered = _rendered(result, backwards=diff == "backwards") if diff else None
        failed = call.verb == "verify" and not result.ok
        hint = call._replace(python=request.python).hint
        if output.json:
            from vllm_patcher import document

            output.document(document.of_report(call.verb, result, hint=hint, diff=rendered))
        else:
            _print_notes(output, result)
            if text:
                _print_text(output, result)
            if rendered is not None:
                output.raw(rendered)
            for failure in result.failures if failed else ():
                output.error(failure, hint)
        return EXIT_FAILED if failed else EXIT_OK

    return output.ending(_guarded(call, output, one), changed=changed)


def _print_notes(output: Output, result: Report) -> None:
    for note in result.notes:
        output.note(note)


def _print_text(output: Output, result: Report) -> None:
    from vllm_patcher import report

    style = output.style_for(sys.stdout)
    output.lines(report.text(result, style=style, verbose=output.verbose))
    if result.verb != "status":
        for warning in report.warnings(result):
            output.warning(warning)


def _guarded(call: Call, output: Output, one: Callable[[Request], int]) -> int:
    """Call for each request; an error of one install does not keep the next from its turn."""
    patches = call.patches if call.verb != "show" else ()
    try:
        requests = call.options.requests(patches)
    except VllmPatchError as error:
        return _print_error(call, output, error)
    worst = EXIT_OK
    for request in requests:
        try:
            code = one(request)
        except VllmPatchError as error:
            code = _print_error(call._replace(python=request.python), output, error)
        except OSError as error:
            code = _print_error(call, output, _from_system(error))
        worst = max(worst, code)
    return worst


def _print_error(call: Call, output: Output, error: VllmPatchError) -> int:
    from vllm_patcher.results import Refused

    if output.json:
        from vllm_patcher import document

        output.document(document.of_report(call.verb, None, error, hint=call.hint))
    else:
        from vllm_patcher import report

        if isinstance(error, Refused):
            _print_notes(output, error.report)
            style = output.style_for(sys.stdout)
            lines = report.text(error.report, style=style, verbose=output.verbose, refused=True)
            output.lines(lines)
        output.error(error, call.hint)
    return EXIT_USAGE if isinstance(error, UnknownPatch) else EXIT_REFUSED


def _from_system(error: OSError) -> VllmPatchError:
    """What the operating system refused, as an error of ours."""
    why = error.strerror or str(error)
    where = error.filename if isinstance(error.filename, str) else ""
    return VllmPatchError(f"{where}: {why}" if where else why)


def _rendered(report: Report, *, backwards: bool) -> bytes:
    from vllm_patcher import unified
    from vllm_patcher.plan import Edit

    edits = sorted(
        report.edits, key=lambda edit: edit.path
    )  # by path; the order of writing is another matter
    if backwards:
        edits = [Edit(path=e.path, before=e.after, after=e.before) for e in edits]
    return unified.render(edits, prefix="vllm")


BY_NAME = {
    command.name: command for command in (apply, verify, revert, status, list_, show, diff, where)
}
