"""What a verb answers, as values.

Always true here: a report is complete in itself; how it is shown is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vllm_patcher.errors import VllmPatchError
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.install import Install
    from vllm_patcher.plan import Edit
    from vllm_patcher.probes import Probe
    from vllm_patcher.states import Reason

PRISTINE = "pristine"
PATCHED = "patched"
MODIFIED = "modified"
MISSING = "missing"
UNRECORDED = "unrecorded"


class PatchNotIn(VllmPatchError):
    """`verify`: a patch is not in."""

    code = "patch-not-in"


class StaleBytecode(VllmPatchError):
    """`verify`: Python would run old bytecode in place of a patched source."""

    code = "stale-bytecode"


class ShadowedSource(VllmPatchError):
    """`verify`: Python would never read a patched source."""

    code = "shadowed-source"


class ModifiedFile(VllmPatchError):
    """`verify --strict`: a file is not what was released plus known patches."""

    code = "modified-file"


class ProbeFailed(VllmPatchError):
    """`verify --probe`: a probe found the fault, or could not run."""

    code = "probe-failed"


class FileStatus(Value):
    """One file of the package that the patches reported on touch, as it was found.

    ``state`` is ``pristine``, ``patched``, ``modified``, ``missing`` or ``unrecorded``;
    ``before`` and ``after`` are SHA-256 digests (hex, None: no file) as found and in the plan;
    ``patches`` are the ids that were found in it.
    """

    path: str
    state: str
    before: str | None
    after: str | None
    patches: tuple[str, ...]


class Outcome(Value):
    """One patch: its state when the verb ended, the state it was found in, and why.

    ``adhoc`` says that no catalog names it. ``fails`` says that `verify` answers no because of
    it. ``files`` maps each path to the lines its hunks moved; ``probe`` is what its probe said.
    """

    id: str
    title: str
    state: str
    was: str
    named: bool
    adhoc: bool
    fails: bool
    reasons: tuple[Reason, ...]
    files: Mapping[str, tuple[int, ...]]
    probe: Probe | None = None


class Report(Value):
    """The answer of one verb about one install.

    ``edits`` are the changes made or, where nothing was written, those that would be.
    ``hiding`` are .pyc files that run in place of a patched source, ``shadowing`` files that
    Python takes before one. ``passed_over`` counts patches for other versions, ``if_named`` are
    those for this one that come only to who names them. ``wrote`` says
    whether anything on disk was changed. ``failures`` are all reasons for which `verify` answers
    no; ``strict`` says that it was asked to be strict.
    """

    verb: str
    install: Install
    version: str
    patches: tuple[Outcome, ...]
    files: tuple[FileStatus, ...]
    edits: tuple[Edit, ...]
    hiding: tuple[str, ...] = ()
    shadowing: tuple[str, ...] = ()
    passed_over: int = 0
    if_named: tuple[str, ...] = ()
    wrote: bool = False
    strict: bool = False
    failures: tuple[VllmPatchError, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything reported on is as it should be."""
        return not self.failures


class Refused(VllmPatchError):
    """A run that was refused whole: ``errors`` are all the reasons, nothing was changed.

    ``report`` holds what was found.
    """

    def __init__(
        self,
        what: str,
        *,
        errors: Iterable[VllmPatchError],
        report: Report,
        hint: str | None = None,
    ) -> None:
        self.errors = tuple(errors)
        self.report = report
        facts = [line for error in self.errors for line in (error.what, *error.facts)]
        super().__init__(what, facts=facts, hint=hint)

    def __str__(self) -> str:
        """Say all the reasons too: a launcher that prints the error should see them."""
        return "; ".join([self.what, *self.facts])
