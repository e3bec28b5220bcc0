"""The verb `verify`."""

from __future__ import annotations

from typing import Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import (
    CATALOG,
    CHOICE,
    DIFFS,
    INSTALL,
    POLICY,
    RAY,
    SHOW_CI,
    Verb,
    options,
)
from vllm_patcher.cli.running import each, given, of_catalog, patch_arguments


@click.command("verify", cls=Verb)
@patch_arguments(of_catalog, files=True)
@click.option("--strict", is_flag=True, help="A modified file or an unsupported patch fails too.")
@click.option("--probe", is_flag=True, help="Also run the probes: is the fault really gone?")
@options(DIFFS, CHOICE, POLICY, INSTALL, CATALOG, RAY, SHOW_CI)
def command(patches: tuple[str, ...], *, strict: bool, probe: bool, **common: Any) -> int:
    """Prove that patches are in; exit code 0 means yes, 1 no.

    Those are the default ones or those named, and all applied before. Writes nothing.

    \b
    vllm-patch verify
    vllm-patch verify --probe lora-finish-request
    vllm-patch verify --ray
    """  # noqa: D301 - \b is click's mark
    from vllm_patcher import operations

    flags = given(("--strict", strict), ("--probe", probe))
    call = Call(verb="verify", options=Common(**common), patches=patches, flags=flags)
    if call.options.ray:
        from vllm_patcher.cli.on_nodes import on_nodes

        return on_nodes(call, {"strict": strict, "probe": probe}, "ask")
    return each(call, lambda r: operations.verify(r, strict=strict, probe=probe))
