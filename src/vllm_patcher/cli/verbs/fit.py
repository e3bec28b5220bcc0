"""The verb `fit`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, DIFFS, Common, options
from vllm_patcher.cli.running import PATCHES, guarded
from vllm_patcher.cli.shell import EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_patcher.fit import Looked
    from vllm_patcher.request import Request

SHOW = (
    click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json", "markdown"]),
        default="text",
        help="How to print the verdicts.",
    ),
    click.option("--json", "json_", is_flag=True, help="The same as --format json."),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Colour the text.  [NO_COLOR, FORCE_COLOR]",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only."),
)


@click.command("fit")
@PATCHES
@click.option("--releases", "among", default="", metavar="SPEC", help="Only these, as '>=0.9'.")
@click.option("--index-url", metavar="URL", help="The package index.  [PIP_INDEX_URL, ...]")
@options(DIFFS, CATALOG, SHOW)
def command(patches: tuple[str, ...], *, among: str, index_url: str | None, **common: Any) -> int:
    """Say which releases of vLLM a patch fits. Needs no vLLM, but a network.

    Only the files that the patch touches are read, out of the released wheels. Nothing that was
    read once is fetched again.
    """
    call = Call(verb="fit", options=Common(**common), patches=patches)
    output = call.options.output()
    if not patches:
        raise click.UsageError("name a PATCH: an id of the catalog, a diff file, or -")

    def one(request: Request) -> int:
        from vllm_patcher import catalog, fit, fitting, versions
        from vllm_patcher.releases.cache import Cache
        from vllm_patcher.releases.index import Index

        if among:
            versions.check(among)
        loaded = catalog.load_all(request.catalogs, builtin=request.builtin)
        index = Index(Cache.of_user(), url=index_url)
        found = fit.fits(
            request.patches,
            catalog=loaded,
            index=index,
            among=among,
            skip_outside=request.skip_outside,
            progress=_bar if sys.stderr.isatty() and not output.quiet else _silent,
        )
        for note in index.notes:
            output.note(note)
        if output.json:
            output.document(fitting.document(found))
        elif call.options.format_ == "markdown":
            output.lines(fitting.markdown(found))
        else:
            output.lines(fitting.text(found, style=output.style_for(sys.stdout)))
        return EXIT_OK

    return output.ending(guarded(call, output, one))


def _silent(looked: Iterable[Looked], _length: int) -> Iterable[Looked]:
    return looked


def _bar(looked: Iterable[Looked], length: int) -> Iterable[Looked]:
    with click.progressbar(looked, length=length, label="releases", file=sys.stderr) as bar:
        yield from bar
