"""The verb `diff`."""

from __future__ import annotations

from typing import Any

import click

from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, INSTALL, SHOW, Common, Verb, options
from vllm_patcher.cli.running import PATCHES, each


@click.command("diff", cls=Verb)
@PATCHES
@options(INSTALL, CATALOG, SHOW)
def command(patches: tuple[str, ...], **common: Any) -> int:
    """Print what the applied patches changed, as one unified diff.

    PATCH is an id; without any, the diff is of all that are in.
    """
    from vllm_patcher import operations

    call = Call(verb="diff", options=Common(**common), patches=patches)
    return each(call, operations.changes, diff="backwards", text=False)
