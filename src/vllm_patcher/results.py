"""What a verb answers, as values.

Always true here: a report is complete in itself; how it is shown is decided elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from . import bytecode
from .errors import VllmPatchError
from .install import Install
from .plan import Edit, Plan
from .probes import Probe
from .states import FAILING, NOT_NEEDED, UNSUPPORTED, Finding, Reason
from .survey import Survey

PRISTINE = "pristine"
PATCHED = "patched"
MODIFIED = "modified"
MISSING = "missing"
UNRECORDED = "unrecorded"


class FileStatus(NamedTuple):
    """One file of the package that the patches reported on touch.

    ``state`` is ``pristine``, ``patched``, ``modified``, ``missing`` or ``unrecorded``;
    ``before`` and ``after`` are SHA-256 digests (hex, None: no file) on disk and in the plan;
    ``patches`` are the ids that were found in it.
    """

    path: str
    state: str
    before: str | None
    after: str | None
    patches: tuple[str, ...]


class Outcome(NamedTuple):
    """One patch: its state now, the state it was found in, and why.

    ``files`` maps each path to the lines its hunks moved; ``probe`` is what its probe said.
    """

    id: str
    title: str
    state: str
    was: str
    named: bool
    reasons: tuple[Reason, ...]
    files: Mapping[str, tuple[int, ...]]
    probe: Probe | None = None


class Report(NamedTuple):
    """The answer of one verb about one install.

    ``edits`` are the changes made or, where nothing was written, those that would be.
    ``hiding`` are .pyc files that run in place of a patched source, ``shadowing`` files that
    Python takes before one. ``passed_over`` counts patches for other versions. ``wrote`` says
    whether anything on disk was changed. ``ok`` is what `verify` answers.
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
    wrote: bool = False
    ok: bool = True
    notes: tuple[str, ...] = ()


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
        super().__init__(what, hint=hint)
        self.errors = tuple(errors)
        self.report = report


def report_on(
    verb: str,
    here: Survey,
    plan: Plan,
    *,
    findings: Sequence[Finding],
    wrote: bool = False,
    strict: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """Make the report of a plan; ``findings`` are the plan's, or what they have become."""
    titles = {patch.id: patch.title for patch in here.catalog.patches}
    before = {finding.id: finding.state for finding in plan.findings}
    shown = [item for item in findings if item.named or item.state != NOT_NEEDED]
    files = _files(here, plan, shown)
    patched = [path for patch in plan.found.patches for path in patch.paths]
    hiding = _looked_up(bytecode.hiding, here, patched)
    shadowing = _looked_up(bytecode.shadowing, here, patched)
    failing = FAILING | ({UNSUPPORTED} if strict else frozenset())
    ok = not any(
        (
            hiding,
            shadowing,
            any(item.state in failing for item in findings),
            any(item.state == UNSUPPORTED and item.named for item in findings),
            strict and any(file.state in (MODIFIED, MISSING) for file in files),
        )
    )
    return Report(
        verb=verb,
        install=here.install,
        version=here.version,
        patches=tuple(
            Outcome(
                id=item.id,
                title=titles.get(item.id, ""),
                state=item.state,
                was=before[item.id],
                named=item.named,
                reasons=item.reasons,
                files=_offsets(item),
            )
            for item in shown
        ),
        files=files,
        edits=plan.edits,
        hiding=() if wrote else hiding,
        shadowing=shadowing,
        passed_over=len(findings) - len(shown),
        wrote=wrote,
        ok=ok,
        notes=(*here.install.notes, *here.notes, *notes),
    )


def _offsets(finding: Finding) -> dict[str, tuple[int, ...]]:
    paths = finding.patch.paths if finding.patch is not None else ()
    return {path: finding.offsets.get(path, ()) for path in paths}


def _looked_up(
    look: Callable[[str, str], tuple[str, ...]], here: Survey, paths: Iterable[str]
) -> tuple[str, ...]:
    package = here.install.package
    return tuple(name for path in dict.fromkeys(paths) for name in look(package, path))


def _files(here: Survey, plan: Plan, findings: Iterable[Finding]) -> tuple[FileStatus, ...]:
    patches = [finding.patch for finding in findings if finding.patch is not None]
    patches += plan.found.patches
    paths = sorted({path for patch in patches for path in patch.paths})
    return tuple(
        FileStatus(
            path=path,
            state=_state(here, plan, path),
            before=_digest(here.here.current[path]),
            after=_digest(plan.target[path]),
            patches=tuple(patch.id for patch in plan.found.on(path)),
        )
        for path in paths
    )


def _state(here: Survey, plan: Plan, path: str) -> str:
    data = here.here.current[path]
    if here.here.pristine(path, data):
        return PRISTINE
    if path in plan.found.proven:
        return PATCHED
    if data is None:
        return MISSING
    recorded = here.record is not None and here.record.digest(here.record_path(path))
    return MODIFIED if recorded else UNRECORDED


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
