"""The verbs: each turns options into one call of the library and its answer into lines.

Always true here: nothing is decided about a patch; the exit code is the verb's return value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from vllm_patcher.errors import UnknownPatch, VllmPatchError

from .options import CATALOG, CHOICE, DIFFS, INSTALL, SHOW, Common, options
from .shell import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, Output

_PATCHES = click.argument("patches", nargs=-1, metavar="[PATCH]...")


@click.command("apply")
@_PATCHES
@click.option("--dry-run", is_flag=True, help="Show the diff it would make; write nothing.")
@click.option("--exact", is_flag=True, help="Allow no moved hunk and no unproven file.")
@options(DIFFS, CHOICE, INSTALL, CATALOG, SHOW)
def apply(patches: tuple[str, ...], dry_run: bool, exact: bool, **common: Any) -> int:
    """Bring patches in: all default ones of the catalog, or those named.

    PATCH is an id of the catalog, a .patch or .diff file, or - for standard input (with --id).

    \b
    vllm-patch apply
    vllm-patch apply lora-finish-request
    vllm-patch apply fix.patch
    """
    from vllm_patcher import operations

    if dry_run:
        return _each(
            "apply", Common(**common), patches, lambda r: operations.preview(r, exact=exact), _diff
        )
    return _each("apply", Common(**common), patches, lambda r: operations.apply(r, exact=exact))


@click.command("verify")
@_PATCHES
@click.option("--strict", is_flag=True, help="A modified file or an unsupported patch fails.")
@click.option("--probe", is_flag=True, help="Also run the probes: is the fault really gone?")
@options(DIFFS, CHOICE, INSTALL, CATALOG, SHOW)
def verify(patches: tuple[str, ...], strict: bool, probe: bool, **common: Any) -> int:
    """Prove that patches are in: the default ones or those named, and all applied before.

    Exit code 0 means yes, 1 no. Writes nothing.

    \b
    vllm-patch verify
    vllm-patch verify --probe lora-finish-request
    """
    from vllm_patcher import operations

    return _each(
        "verify",
        Common(**common),
        patches,
        lambda r: operations.verify(r, strict=strict, probe=probe),
        _verdict,
    )


@click.command("revert")
@_PATCHES
@click.option("--with-dependents", is_flag=True, help="Take out what requires them, too.")
@options(DIFFS, INSTALL, CATALOG, SHOW)
def revert(patches: tuple[str, ...], with_dependents: bool, **common: Any) -> int:
    """Take patches out again: all that are proven to be in, or those named.

    \b
    vllm-patch revert
    vllm-patch revert lora-waiting-leak
    """
    from vllm_patcher import operations

    return _each(
        "revert",
        Common(**common),
        patches,
        lambda r: operations.revert(r, with_dependents=with_dependents),
    )


@click.command("status")
@options(INSTALL, CATALOG, SHOW)
def status(**common: Any) -> int:
    """Tell the state of every patch on this install."""
    from vllm_patcher import operations

    return _each("status", Common(**common), (), operations.status)


@click.command("diff")
@_PATCHES
@options(INSTALL, CATALOG, SHOW)
def diff(patches: tuple[str, ...], **common: Any) -> int:
    """Print what the applied patches changed, as one unified diff."""
    from vllm_patcher import operations

    def show(report: Any, output: Output) -> int:
        output.raw(_rendered(report, backwards=True))
        return EXIT_OK

    return _each("diff", Common(**common), patches, operations.changes, show, lines=False)


@click.command("where")
@options(INSTALL, SHOW)
def where(**common: Any) -> int:
    """Tell which vLLM is meant, which version it is, and how it was found."""
    from vllm_patcher import operations, report

    values = Common(**common)
    output = values.output()

    def one(request: Any) -> int:
        install = operations.locate(request)
        version = request.assume_version or install.version
        if output.json:
            body = {"schema": report.SCHEMA, "verb": "where", "ok": True}
            body |= {"install": report.install_document(install, version)}
            output.document(body | {"notes": list(install.notes), "errors": []})
        else:
            output.lines(report.install_text(install, version))
        return EXIT_OK

    return _guarded("where", values, (), one)


@click.command("list")
@click.option("--for", "release", metavar="VERSION", help="Say which of them VERSION needs.")
@options(CATALOG, SHOW)
def list_(release: str | None, **common: Any) -> int:
    """List the catalog: id, affected versions, kind and title. Needs no vLLM."""
    from vllm_patcher import catalog, listing

    values = Common(**common)
    output = values.output()
    patches = catalog.load_all(values.catalog_folders(), builtin=not values.no_builtin).patches
    rows = listing.rows(patches, release)
    if output.json:
        output.document(listing.document(rows, release))
    else:
        output.lines(listing.text(rows, release))
    return EXIT_OK


@click.command("show")
@click.argument("name", metavar="ID")
@click.option("--diff", "only_diff", is_flag=True, help="Print only the diff.")
@click.option("--for", "release", metavar="VERSION", help="The variant for VERSION only.")
@options(INSTALL, CATALOG, SHOW)
def show(name: str, only_diff: bool, release: str | None, **common: Any) -> int:
    """Show one patch whole, with its diff: of the catalog, or applied before."""
    from vllm_patcher import catalog, listing, operations

    values = Common(**common)
    output = values.output()
    patches = catalog.load_all(values.catalog_folders(), builtin=not values.no_builtin).patches
    found = next((patch for patch in patches if patch.id == name), None)
    if found is None:
        text = next((operations.applied_text(r, name) for r in values.requests()), None)
        if text is None:
            raise UnknownPatch(f"no patch {name!r}", hint="vllm-patch list")
        entry = listing.Entry(patch=None, diffs=(("", text),))
    else:
        entry = listing.entry(found, release)
    if output.json:
        output.document(listing.entry_document(name, entry))
        return EXIT_OK
    if not only_diff:
        output.lines([*listing.entry_text(entry), ""] if entry.patch else [])
    for _specifier, text in entry.diffs:
        output.raw(text)
    return EXIT_OK


def _each(
    verb: str,
    values: Common,
    patches: tuple[str, ...],
    call: Callable[[Any], Any],
    finish: Callable[[Any, Output], int] | None = None,
    *,
    lines: bool = True,
) -> int:
    """Run a verb on each install and print its report; the worst exit code counts."""
    from vllm_patcher import report

    output = values.output()

    def one(request: Any) -> int:
        result = call(request)
        if output.json:
            output.document(report.document(verb, result))
            return EXIT_OK if result.ok or verb != "verify" else EXIT_FAILED
        for note in result.notes:
            output.note(note)
        if lines:
            style = output.style_for(_stdout())
            output.lines(report.text(result, style=style, verbose=output.verbose))
        return finish(result, output) if finish is not None else EXIT_OK

    return _guarded(verb, values, patches, one)


def _guarded(
    verb: str, values: Common, patches: tuple[str, ...], one: Callable[[Any], int]
) -> int:
    """Call for each request; an error of one install does not keep the next from its turn."""
    from vllm_patcher import report

    output = values.output()
    worst = EXIT_OK
    for request in values.requests(patches):
        try:
            code = one(request)
        except VllmPatchError as error:
            code = EXIT_USAGE if isinstance(error, UnknownPatch) else EXIT_REFUSED
            if output.json:
                output.document(report.document(verb, None, error))
            else:
                found = getattr(error, "report", None)
                if found is not None:
                    style = output.style_for(_stdout())
                    output.lines(report.text(found, style=style, verbose=output.verbose))
                output.error(error)
        worst = max(worst, code)
    return worst


def _verdict(report: Any, output: Output) -> int:
    if report.ok:
        return EXIT_OK
    from vllm_patcher.report import verdict

    output.error(verdict(report))
    return EXIT_FAILED


def _diff(report: Any, output: Output) -> int:
    if not output.quiet:
        output.raw(_rendered(report, backwards=False))
    return EXIT_OK


def _rendered(report: Any, *, backwards: bool) -> bytes:
    from vllm_patcher import unified
    from vllm_patcher.plan import Edit

    edits = report.edits
    if backwards:
        edits = [Edit(path=e.path, before=e.after, after=e.before) for e in edits]
    return unified.render(edits, prefix="vllm")


def _stdout() -> Any:
    import sys

    return sys.stdout


BY_NAME = {
    command.name: command for command in (apply, verify, revert, status, list_, show, diff, where)
}
