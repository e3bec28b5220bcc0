"""The verb `apply`."""

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
    RAY_WRITES,
    SHOW_CI,
    Verb,
    options,
)
from vllm_patcher.cli.running import each, given, of_catalog, patch_arguments


@click.command("apply", cls=Verb)
@patch_arguments(of_catalog, files=True)
@click.option("--dry-run", is_flag=True, help="Show the diff it would make; write nothing.")
@click.option(
    "--exact",
    is_flag=True,
    help="Refuse a hunk that moved (but on a listed file) and a file that RECORD does not prove.",
)
@click.option(
    "--allow-editable",
    is_flag=True,
    help="Patch an editable install too: a source tree, most often under git.",
)
@options(DIFFS, CHOICE, POLICY, INSTALL, CATALOG, RAY_WRITES, SHOW_CI)
def command(patches: tuple[str, ...], *, dry_run: bool, exact: bool, **common: Any) -> int:
    """Bring patches in: all default ones, or those named.

    PATCH is an id of the catalog, a .patch or .diff file, or - for standard input (with --id).
    All of them go in or none does.

    \b
    vllm-patch apply
    vllm-patch apply lora-finish-request
    vllm-patch apply fix.patch
    vllm-patch apply fix.patch --ray
    """  # noqa: D301 - \b is click's mark
    from vllm_patcher import operations

    flags = given(("--dry-run", dry_run), ("--exact", exact))
    call = Call(verb="apply", options=Common(**common), patches=patches, flags=flags)
    if call.options.ray:
        from vllm_patcher.cli.on_nodes import on_nodes

        return on_nodes(call, {"exact": exact}, "rehearse" if dry_run else "change")
    if dry_run:
        return each(call, lambda r: operations.preview(r, exact=exact), diff="forwards")
    return each(call, lambda r: operations.apply(r, exact=exact))
