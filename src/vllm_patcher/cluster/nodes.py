"""One node and what it has answered, however the answer came.

Always true here: nothing is asked; what is read of an answer is the JSON of a verb's report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm_patcher.errors import NotPutBack, NoVllm, UnknownPatch, WriteFailed
from vllm_patcher.results import PatchNotIn
from vllm_patcher.states import FAILING
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

#: What became of a node: it answered, or why there is no answer of it.
ANSWERED = "answered"
DIED = "died"
TIMED_OUT = "timed-out"
JOINED = "joined"
INTERRUPTED = "interrupted"
FAILED = "failed"
NOT_ASKED = "not-asked"
SILENT = "silent"

#: Of these nobody knows how far they came.
_BEGUN = frozenset({DIED, TIMED_OUT, INTERRUPTED, FAILED})
AS_ASKED, IS_NOT, WRONG_CALL, CANT_TELL = 0, 1, 2, 3


class Node(Value):
    """One node: its ``id``, ``address`` and ``host`` as far as they are known, and its answer.

    ``report`` is the JSON of a verb, None if there is none; ``why`` says more of a ``fate`` that
    is not `answered`. ``copy`` is equal where nodes see one copy on a shared file system.
    ``rehearsed`` says that it was asked what could be done, and nothing was. ``texts`` are the
    diffs that its receipt has under names that no catalog has. ``slot`` counts the installs of
    one host from 0.
    """

    id: str
    address: str = ""
    host: str = ""
    fate: str = ANSWERED
    report: Mapping[str, Any] | None = None
    why: str = ""
    copy: Hashable = None
    rehearsed: bool = False
    texts: Mapping[str, bytes] = {}
    slot: int = 0

    @property
    def name(self) -> str:
        """How people call it."""
        return " ".join(filter(None, dict.fromkeys([self.address, self.host]))) or self.id

    @property
    def order(self) -> list[tuple[int, str]]:
        """What sorts gpu-2 before gpu-10: a number that has fewer digits is less."""
        parts = re.split(r"(\d+)", self.name)
        return [(len(part) if place % 2 else 0, part) for place, part in enumerate(parts)]

    @property
    def errors(self) -> Sequence[Mapping[str, Any]]:
        """The errors of its answer."""
        found: Sequence[Mapping[str, Any]] = self.report["errors"] if self.report else ()
        return found

    @property
    def lacks_vllm(self) -> bool:
        """Whether it answered that it has no vLLM at all."""
        return any(error["code"] == NoVllm.code for error in self.errors)

    @property
    def knows_no_patch(self) -> bool:
        """Whether it answered that it does not know what is meant."""
        return any(error["code"] == UnknownPatch.code for error in self.errors)

    @property
    def may_not_write(self) -> bool:
        """Whether it answered that it may not write, and nothing else."""
        return bool(self.errors) and all(e["code"] == WriteFailed.code for e in self.errors)

    @property
    def code(self) -> int:
        """The exit code that its answer is worth."""
        if self.report is None:
            return CANT_TELL
        if self.report["ok"]:
            return AS_ASKED
        if self.knows_no_patch:
            return WRONG_CALL
        # Only `verify` says no and describes what it has seen; all else was refused.
        return IS_NOT if self.report["verb"] == "verify" and self.version else CANT_TELL

    @property
    def digests(self) -> Mapping[str, str | None]:
        """The SHA-256 digests of the files that patches are about, as they are now."""
        report = self.report or {}
        # What comes after is, where nothing was done, what `apply` would make.
        was_done = report.get("verb") != "verify" and not self.rehearsed
        key = "sha256_after" if was_done else "sha256_before"
        return {file["path"]: file[key] for file in report.get("files", ())}

    @property
    def patches(self) -> Sequence[Mapping[str, Any]]:
        """The patches that were reported on."""
        found: Sequence[Mapping[str, Any]] = (self.report or {}).get("patches", ())
        return found

    @property
    def states(self) -> Mapping[str, str]:
        """Their states."""
        return {patch["id"]: patch["state"] for patch in self.patches}

    @property
    def wrote(self) -> bool:
        """Whether something was changed there."""
        return bool((self.report or {}).get("wrote"))

    @property
    def edited(self) -> bool:
        """Whether a source was changed there, and not only records and bytecode."""
        return self.wrote and bool((self.report or {}).get("edits"))

    @property
    def may_have_written(self) -> bool:
        """Whether it was told to write, and has not said what came of it, or could not mend it."""
        half = any(error["code"] == NotPutBack.code for error in self.errors)
        return half or (self.report is None and not self.rehearsed and self.fate in _BEGUN)

    @property
    def version(self) -> str:
        """The distribution and version that are on disk, whatever it was to be taken for."""
        install = (self.report or {}).get("install")
        if not install:
            return ""
        return f"{install['name'] or 'vllm'} {install['installed_version']}".strip()

    @property
    def said(self) -> str:
        """Say in a few words what it has answered, or why it has not."""
        if self.report is None:
            return f"{self.fate}: {self.why}" if self.why else self.fate
        states = list(self.states.values())
        counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        if self.report["ok"]:
            return counted or "nothing to do"
        # States alone would hide what is wrong where each of them is right.
        telling = [error for error in self.errors if error["code"] != PatchNotIn.code]
        tells = self.report["verb"] == "verify" and FAILING.intersection(states)
        return counted if tells or not telling else str(telling[0]["what"])

    @property
    def key(self) -> Hashable:
        """What nodes agree in that are told of together."""
        if self.report is None:
            return self.fate, self.why, self.rehearsed
        faults = [(patch["id"], (patch["probe"] or {}).get("fault")) for patch in self.patches]
        return (
            self.slot,
            self.version,
            tuple(sorted(self.states.items())),
            tuple(sorted(self.digests.items())),
            tuple((error["code"], error["what"], *error["facts"]) for error in self.errors),
            tuple(faults),
        )
