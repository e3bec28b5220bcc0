"""The verb `diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, INSTALL, SHOW, Verb, options
from vllm_patcher.cli.running import each, of_install, patch_arguments

if TYPE_CHECKING:
    from vllm_patcher.request import Request
    from vllm_patcher.results import Report


@click.command("diff", cls=Verb)
@patch_arguments(of_install)
@options(INSTALL, CATALOG, SHOW)
def command(patches: tuple[str, ...], **common: Any) -> int:
    """Print what applied patches changed, as one unified diff.

    PATCH is an id; without any, the diff is of all that are in.
    """
    call = Call(verb="diff", options=Common(**common), patches=patches)
    return each(call, _changes, diff="backwards", text=False)


def _changes(request: Request) -> Report:
    """What the patches have changed; a note says why there is nothing of one."""
    from vllm_patcher import operations
    from vllm_patcher.states import APPLIED, PARTIAL

    found = operations.changes(request)
    notes = [
        f"{patch.id} is {patch.state}: "
        + ("; ".join(reason.text for reason in patch.reasons) or "nothing of it is in")
        for patch in found.patches
        if patch.state not in (APPLIED, PARTIAL)
    ]
    return found.replaced(notes=(*found.notes, *notes))
