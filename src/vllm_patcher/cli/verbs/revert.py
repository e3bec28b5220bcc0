"""The verb `revert`."""

from __future__ import annotations

from typing import Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, DIFFS, INSTALL, RAY_WRITES, SHOW, Verb, options
from vllm_patcher.cli.running import each, given, of_install, patch_arguments


@click.command("revert", cls=Verb)
@patch_arguments(of_install, files=True)
@click.option("--with-dependents", is_flag=True, help="Take out what requires them, too.")
@options(DIFFS, INSTALL, CATALOG, RAY_WRITES, SHOW)
def command(patches: tuple[str, ...], *, with_dependents: bool, **common: Any) -> int:
    """Take patches out: all proven to be in, or those named.

    What cannot be proven to have been put in stays.

    \b
    vllm-patch revert
    vllm-patch revert lora-waiting-leak
    """  # noqa: D301 - \b is click's mark
    from vllm_patcher import operations

    flags = given(("--with-dependents", with_dependents))
    call = Call(verb="revert", options=Common(**common), patches=patches, flags=flags)
    if call.options.ray:
        from vllm_patcher.cli.on_nodes import on_nodes

        return on_nodes(call, {"with_dependents": with_dependents}, "change")
    return each(call, lambda r: operations.revert(r, with_dependents=with_dependents))
