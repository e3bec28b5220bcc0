"""The verb `list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, SHOW, Common, options
from vllm_patcher.cli.running import guarded
from vllm_patcher.cli.shell import EXIT_OK

if TYPE_CHECKING:
    from vllm_patcher.request import Request


@click.command("list")
@click.option("--for", "release", metavar="VERSION", help="Say which of them VERSION needs.")
@options(CATALOG, SHOW)
def command(release: str | None, **common: Any) -> int:
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

    return output.ending(guarded(call, output, one))
