"""The verb `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, INSTALL, SHOW, Verb, options
from vllm_patcher.cli.running import given, guarded, ids, located, of_catalog, of_install
from vllm_patcher.cli.shell import EXIT_OK
from vllm_patcher.errors import NotInstalled, UnknownPatch, like

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_patcher.cli.shell import Output
    from vllm_patcher.request import Request


@click.command("show", cls=Verb)
@click.argument("name", metavar="ID", shell_complete=ids(of_catalog, of_install))
@click.option("--diff", "only_diff", is_flag=True, help="Print only the diff.")
@click.option("--for", "release", metavar="VERSION", help="Only the diff for VERSION.")
@options(INSTALL, CATALOG, SHOW)
def command(name: str, *, only_diff: bool, release: str | None, **common: Any) -> int:
    """Show one patch whole, with its diff. It is of the catalog, or as it was applied."""
    from vllm_patcher import catalog, listing, versions

    call = Call(
        verb="show",
        options=Common(**common),
        patches=(name,),
        flags=(*given(("--diff", only_diff)), *(("--for", release) if release else ())),
    )
    output = call.options.output()

    def one(request: Request) -> int:
        if release is not None:
            versions.check_asked(release)
        patches = catalog.load_all(request.catalogs, builtin=request.builtin, locked=False).patches
        found = next((patch for patch in patches if patch.id == name), None)
        if found is not None:
            version = release
            if only_diff and release is None and len(found.variants) > 1:
                version = _version(output, request)
                if version is not None and not catalog.candidates(found, version):
                    version = None
                if version is not None:
                    output.note(f"the diff for vLLM {version}")
            entry = listing.entry(found, version)
        else:
            entry = listing.Entry(
                patch=None,
                diffs=(("", _applied_text(request, name, [patch.id for patch in patches])),),
            )
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

    return output.ending(guarded(call, output, one))


def _version(output: Output, request: Request) -> str | None:
    """The version of the vLLM that is meant; None if there is none, or it says none."""
    if request.assume_version is not None:
        return request.assume_version
    install = located(output, request)
    return (install.version or None) if install is not None else None


def _applied_text(request: Request, name: str, ids: Iterable[str]) -> bytes:
    """The text of a patch that no catalog has, as it was applied; ``ids`` are what they have."""
    from vllm_patcher import operations

    try:
        text = operations.applied_text(request, name)
    except NotInstalled as error:
        fact = f"{error.what}, so nothing tells what was applied"
        raise UnknownPatch(
            f"no patch {name!r} in the catalog",
            facts=[*_meant(name, ids), fact, *error.facts],
            hint="vllm-patch list",
        ) from error
    if text is None:
        applied = (patch.id for patch in operations.changes(request).patches)
        raise UnknownPatch(
            f"no patch {name!r}: it is in no catalog and was not applied",
            facts=_meant(name, [*ids, *applied]),
            hint="vllm-patch list",
        )
    return text


def _meant(name: str, known: Iterable[str]) -> list[str]:
    return [f"did you mean {other}?" for other in like(name, known)]
