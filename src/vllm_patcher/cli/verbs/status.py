"""The verb `status`."""

from __future__ import annotations

from typing import Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, INSTALL, Verb, options, show
from vllm_patcher.cli.running import each


@click.command("status", cls=Verb)
@options(INSTALL, CATALOG, show("text", "json", "markdown"))
def command(**common: Any) -> int:
    """Tell the state of every patch on this install."""
    from vllm_patcher import operations

    return each(Call(verb="status", options=Common(**common)), operations.status)
