"""What helps with a patch that can't be brought in, as one line.

Always true here: nothing is found out; the advice follows from the state and the reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import versions
from vllm_patcher.errors import pasted
from vllm_patcher.explain import BESIDE, CLASH, LINE_ENDING, NO_CONTEXT, NOT_COMPILING
from vllm_patcher.judge import FOREIGN
from vllm_patcher.states import BLOCKED, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_patcher.states import Reason

MORE_CONTEXT = "make the diff with more context: git diff -U10"
IN_THE_WAY = "remove what is in the way, or reinstall this vLLM"
OTHER_HAND = "take the other change back, or reinstall this vLLM"

_BY_MISFIT = {
    FOREIGN: OTHER_HAND,
    BESIDE: "make the diff anew from the files with the other patch in them",
    "ambiguous": MORE_CONTEXT,
    NO_CONTEXT: MORE_CONTEXT,
    LINE_ENDING: "give the diff the line endings that the file has",
    "exists": "take the file away that is in its place, or the part of the diff that makes it",
    NOT_COMPILING: "mend the lines that the diff adds",
}


def advice(
    name: str,
    state: str,
    reasons: Iterable[Reason],
    *,
    version: str,
    adhoc: bool,
    modified: bool,
) -> str:
    """Say what to do about a patch in a state.

    ``adhoc`` says that no catalog has it, ``modified`` that RECORD does not prove a file of it.
    """
    reasons = list(reasons)
    if any(reason.misfit == CLASH for reason in reasons):
        return pasted("vllm-patch", "revert", name)
    beside = next((reason.beside for reason in reasons if reason.beside), ())
    if beside and not adhoc:
        return pasted("vllm-patch", "revert", *beside)
    if state == BLOCKED:
        return "vllm-patch status"
    if state == UNSUPPORTED and versions.parse(version) is None:
        return "if you know which release these files are, add --assume-version RELEASE"
    if adhoc:
        for reason in reasons:
            if reason.misfit in _BY_MISFIT:
                return _BY_MISFIT[reason.misfit]
    if modified and (not adhoc or any(reason.misfit == "nowhere" for reason in reasons)):
        return OTHER_HAND
    if adhoc:
        return f"make the diff anew from the files of this vLLM ({version or 'no version'})"
    return pasted("vllm-patch", "show", name)
