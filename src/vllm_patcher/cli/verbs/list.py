"""The verb `list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, INSTALL, SHOW, Verb, options
from vllm_patcher.cli.running import guarded, located
from vllm_patcher.cli.shell import EXIT_OK

if TYPE_CHECKING:
    from vllm_patcher.request import Request


@click.command("list", cls=Verb)
@click.option("--for", "release", metavar="VERSION", help="Say which of them VERSION needs.")
@options(INSTALL, CATALOG, SHOW)
def command(release: str | None, **common: Any) -> int:
    """List the catalog, and which release gets which patch. Needs no vLLM.

    The release that is installed is marked, if one is found.
    """
    from vllm_patcher import catalog, chart, listing
    from vllm_patcher.errors import InvalidCatalog

    call = Call(verb="list", options=Common(**common))
    output = call.options.output()

    def one(request: Request) -> int:
        try:
            loaded = catalog.load_all(request.catalogs, builtin=request.builtin)
        except InvalidCatalog:
            # A list can do without the lock.
            loaded = catalog.load_all(request.catalogs, builtin=request.builtin, locked=False)
        rows = listing.rows(loaded.patches, release)
        bands = chart.bands(loaded.patches, loaded.lock)
        install = located(output, request)
        installed = install.version if install is not None else None
        if output.json:
            output.document(listing.document(rows, release, bands, installed))
        else:
            output.lines(listing.text(rows, release, columns=output.columns()))
            if release is None and bands:
                output.lines(["", *chart.text(bands, installed, columns=output.columns())])
        return EXIT_OK

    return output.ending(guarded(call, output, one))
