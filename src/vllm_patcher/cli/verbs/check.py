"""The verb `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, FILE, Verb, options, show
from vllm_patcher.cli.running import guarded
from vllm_patcher.cli.shell import EXIT_OK

if TYPE_CHECKING:
    from vllm_patcher.request import Request


@click.command("check", cls=Verb)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=FILE)
@options(CATALOG, show("text", "json", "github"))
def command(files: tuple[str, ...], **common: Any) -> int:
    """Check a catalog's manifest.toml and diffs. Needs no vLLM and no network.

    FILE is a manifest.toml, a folder that holds one, or a .patch or .diff file. The diffs that a
    manifest names are checked with it, and a diff with the manifest that lies above it.
    """
    call = Call(verb="check", options=Common(**common))
    output = call.options.output()

    def one(request: Request) -> int:
        from vllm_patcher import inspection
        from vllm_patcher.schema import SCHEMA

        count = inspection.check(files, catalogs=request.catalogs, builtin=request.builtin)
        if output.json:
            output.document({"schema": SCHEMA, "verb": "check", "ok": True, "errors": []})
        elif not call.options.github:
            shown = "1 catalog or diff" if count == 1 else f"{count} catalogs and diffs"
            output.lines([f"no problem in {shown}"])
        return EXIT_OK

    return output.ending(guarded(call, output, one))
