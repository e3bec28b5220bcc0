"""What a patch can be asked about and found to be: the words that every verb answers in.

Always true here: these are values; nothing is decided in this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_patcher.known import Known

APPLIED = "applied"
UPSTREAM = "upstream"
PRESENT = "present"
NOT_NEEDED = "not-needed"
NOT_APPLIED = "not-applied"
PARTIAL = "partial"
OUTDATED = "outdated"
CONFLICT = "conflict"
BLOCKED = "blocked"
UNSUPPORTED = "unsupported"

#: In these states a patch satisfies what requires it.
SATISFYING = frozenset({APPLIED, UPSTREAM, PRESENT, NOT_NEEDED})
#: In these states `verify` fails; `unsupported` besides, if named or strict.
FAILING = frozenset({NOT_APPLIED, PARTIAL, OUTDATED, CONFLICT, BLOCKED})


class Asked(Value):
    """One patch that is asked about.

    ``candidates`` are its texts that may be right here. ``by`` says what decides among them:
    ``version`` (there is one, the version has decided), ``content`` (the first that fits), or
    ``digest`` (the first whose files are all listed). With no candidate ``gate`` is the state.
    ``clash`` says that a diff of the user's has the id too, and which of them is meant is open.
    """

    id: str
    candidates: tuple[Known, ...] = ()
    by: str = "version"
    gate: str = ""
    why: str = ""
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    named: bool = False
    clash: bool = False


class Reason(Value):
    """Why a patch is in its state: in words, and where, if it is about a place in a file.

    ``line`` counts from 1, 0 is no line; ``expected`` and ``found`` are lines of the file.
    ``misfit`` is the kind of what does not fit: as :class:`.hunks.Misfit` has it, or not compiling.
    ``beside`` are the patches that are in and that it does not fit beside.
    """

    what: str
    path: str = ""
    line: int = 0
    expected: bytes | None = None
    found: bytes | None = None
    misfit: str = ""
    beside: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The place, as ``vllm/PATH:LINE``; "" if there is none."""
        line = f":{self.line}" if self.line else ""
        return f"vllm/{self.path}{line}" if self.path else ""

    @property
    def text(self) -> str:
        """Say it on one line, with the place."""
        return f"{self.where}: {self.what}" if self.path else self.what


class Finding(Value):
    """One patch: the state it was found in, the text meant, and why.

    ``offsets`` gives, for each path, how many lines each hunk moved. ``planned`` says that the
    plan the finding belongs to brings the patch in.
    """

    id: str
    state: str
    named: bool = False
    patch: Known | None = None
    reasons: tuple[Reason, ...] = ()
    offsets: Mapping[str, tuple[int, ...]] = {}
    planned: bool = False

    def once_applied(self) -> Finding:
        """What it is when the plan to apply has been carried out."""
        if not self.planned:
            return self
        return self.replaced(state=APPLIED, reasons=(), planned=False)

    def once_reverted(self) -> Finding:
        """What it is when the plan to revert has been carried out."""
        return self.replaced(state=NOT_APPLIED) if self.state in (APPLIED, PARTIAL) else self
