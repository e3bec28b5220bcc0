"""What verbs do alike: call the library for each install, print what it says, make hints fit.

Always true here: nothing is decided about a patch; an error of one install does not keep the
next from its turn, and the worst exit code counts.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.options import FILE
from vllm_patcher.cli.shell import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, Output
from vllm_patcher.errors import UnknownPatch, VllmPatchError, of_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.shell_completion import CompletionItem

    from vllm_patcher.cli.hints import Call
    from vllm_patcher.cli.options import Complete
    from vllm_patcher.install import Install
    from vllm_patcher.request import Request
    from vllm_patcher.results import Report

    _Known = Callable[[Common], dict[str, str]]

_F = TypeVar("_F", bound="Callable[..., Any]")


def of_catalog(options: Common) -> dict[str, str]:
    """The titles of the catalog's patches, by their ids."""
    from vllm_patcher import catalog

    folders = options.catalog_folders()
    loaded = catalog.load_all(folders, builtin=not options.no_builtin, locked=False)
    return {patch.id: patch.title for patch in loaded.patches}


def of_install(options: Common) -> dict[str, str]:
    """The titles of the patches that are in, by their ids."""
    from vllm_patcher import operations

    reports = map(operations.changes, options.requests())
    return {patch.id: patch.title for report in reports for patch in report.patches}


def ids(*known: _Known, files: bool = False) -> Complete:
    """Make what completes the ids that are known, and ``files`` if they may be meant too."""

    def complete(
        context: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        common = Common._fields
        given = {name: value for name, value in context.params.items() if value and name in common}
        titles: dict[str, str] = {}
        for some in known:
            with suppress(VllmPatchError, OSError, click.UsageError):
                titles |= some(Common(**given))
        meant = [name for name in titles if name.startswith(incomplete)]
        items = [CompletionItem(name, help=titles[name]) for name in meant]
        return [*items, *FILE(context, param, incomplete)] if files else items

    return complete


def patch_arguments(*known: _Known, files: bool = False) -> Callable[[_F], _F]:
    """Declare the PATCH arguments of a verb; what completes them is as :func:`ids` makes it."""
    complete = ids(*known, files=files)
    return click.argument("patches", nargs=-1, metavar="[PATCH]...", shell_complete=complete)


def located(output: Output, request: Request) -> Install | None:
    """Find the vLLM that is meant, for a verb that can do without; None if there is none.

    That an option leads to none is said.
    """
    from vllm_patcher import operations

    try:
        return operations.locate(request)
    except VllmPatchError as error:
        if request.python is not None or request.site_packages is not None:
            output.warning("; ".join([error.what, *error.facts]))
        return None


def given(*flags: tuple[str, bool]) -> tuple[str, ...]:
    """The options that are set, as they are typed."""
    return tuple(flag for flag, is_set in flags if is_set)


def each(
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
        hint = on_install(call, request).hint
        with told_to_the_end(wrote=result.wrote):
            if output.json:
                from vllm_patcher import document

                output.document(document.of_report(call.verb, result, hint=hint, diff=rendered))
                return EXIT_FAILED if failed else EXIT_OK
            _print_notes(output, result)
            if call.options.github:
                from vllm_patcher import workflow

                output.commands(
                    workflow.github(result, failed=failed, hint=hint, about=output.about)
                )
                return EXIT_FAILED if failed else EXIT_OK
            if text:
                _print_states(call, output, result, failed=failed, hint=hint)
            if rendered is not None and not call.options.markdown:
                output.raw(rendered)
            for failure in result.failures if failed else ():
                output.error(failure, hint)
        return EXIT_FAILED if failed else EXIT_OK

    return output.ending(guarded(call, output, one), changed=changed)


@contextmanager
def told_to_the_end(*, wrote: bool) -> Iterator[None]:
    """Keep Ctrl-C from ending a run as "interrupted" whose change is made and stays."""
    if not wrote:
        yield
        return
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_notes(output: Output, result: Report) -> None:
    for note in result.notes:
        output.note(note)


def _print_states(
    call: Call, output: Output, result: Report, *, failed: bool, hint: Callable[[str], str]
) -> None:
    from vllm_patcher import report

    if call.options.markdown:
        from vllm_patcher import workflow

        output.lines(workflow.markdown(result, failed=failed, hint=hint))
    else:
        output.lines(report.text(result, **_look(output)))
    if result.verb != "status":
        for warning in report.warnings(result):
            output.warning(warning)


def _look(output: Output) -> dict[str, Any]:
    return {
        "style": output.style_for(sys.stdout),
        "verbose": output.verbose,
        "columns": output.columns(),
    }


def guarded(call: Call, output: Output, one: Callable[[Request], int]) -> int:
    """Call for each request; an error of one install does not keep the next from its turn."""
    patches = call.patches if call.verb != "show" else ()
    try:
        requests = call.options.requests(patches)
    except VllmPatchError as error:
        return _print_error(call, output, error)
    worst = EXIT_OK
    for request in requests:
        output.about = f"{request.python}: " if len(requests) > 1 else ""
        try:
            code = one(request)
        except VllmPatchError as error:
            code = _print_error(on_install(call, request), output, error)
        except OSError as error:
            code = _print_error(call, output, of_system(error))
        worst = max(worst, code)
    return worst


def on_install(call: Call, request: Request) -> Call:
    """The command line as far as it is about one install, with what the configuration says."""
    obeyed: list[str] = []
    if request.policy:
        if not call.options.catalog_folders():
            for folder in request.catalogs:
                obeyed += ["--catalog", folder]
        if not request.builtin and not call.options.no_builtin:
            obeyed.append("--no-builtin")
    return call.replaced(python=request.python, obeyed=tuple(obeyed))


def _print_error(call: Call, output: Output, error: VllmPatchError) -> int:
    from vllm_patcher.results import Refused

    if output.json:
        from vllm_patcher import document

        output.document(document.of_report(call.verb, None, error, hint=call.hint))
    elif call.options.github:
        from vllm_patcher import workflow

        if isinstance(error, Refused):
            _print_notes(output, error.report)
        output.commands(workflow.github_error(error, hint=call.hint, about=output.about))
    elif call.options.markdown and call.verb != "fit":
        from vllm_patcher import workflow

        output.lines(workflow.markdown_error(error, hint=call.hint, about=output.about))
        output.error(error, call.hint)
    else:
        from vllm_patcher import report

        if isinstance(error, Refused):
            _print_notes(output, error.report)
            output.lines(report.text(error.report, **_look(output), refused=True))
        output.error(error, call.hint)
    return EXIT_USAGE if isinstance(error, UnknownPatch) else EXIT_REFUSED


def _rendered(report: Report, *, backwards: bool) -> bytes:
    from vllm_patcher import unified
    from vllm_patcher.plan import Edit

    edits = sorted(
        report.edits, key=lambda edit: edit.path
    )  # by path; the order of writing is another matter
    if backwards:
        edits = [Edit(path=e.path, before=e.after, after=e.before) for e in edits]
    return unified.render(edits, prefix="vllm")
