"""Assess an install: from what was found and planned to the report on it, with all that is wrong.

Always true here: nothing is read but what the report tells of a file besides its bytes, and
nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vllm_patcher import digests, versions
from vllm_patcher.advice import IN_THE_WAY, advice
from vllm_patcher.bytecode import Bytecode
from vllm_patcher.errors import UnsupportedVersion, VllmPatchError, pasted
from vllm_patcher.probes import ABSENT, SHOWN
from vllm_patcher.results import (
    MISSING,
    MODIFIED,
    PATCHED,
    PRISTINE,
    UNRECORDED,
    FileStatus,
    ModifiedFile,
    Outcome,
    PatchNotIn,
    ProbeFailed,
    Report,
    ShadowedSource,
    StaleBytecode,
)
from vllm_patcher.states import BLOCKED, CONFLICT, FAILING, NOT_NEEDED, UNSUPPORTED

if TYPE_CHECKING:
    from vllm_patcher.plan import Plan
    from vllm_patcher.states import Finding
    from vllm_patcher.survey import Survey


def report_on(
    verb: str,
    here: Survey,
    plan: Plan,
    *,
    findings: Sequence[Finding] | None = None,
    wrote: bool = False,
    strict: bool = False,
    notes: Sequence[str] = (),
) -> Report:
    """Make the report of a plan; ``findings`` are what the plan's have become, if they have.

    Patches for other versions are left out and counted, unless they are named or the verb is
    `status`.
    """
    findings = plan.findings if findings is None else findings
    before = {finding.id: finding.state for finding in plan.findings}
    shown = [
        item for item in findings if item.named or item.state != NOT_NEEDED or verb == "status"
    ]
    files = _files(here, plan, shown)
    linked = shared(here, plan, [file.path for file in files])
    there = (*(plan.goal if wrote else plan.found.patches), *plan.there_anyhow)
    patched = dict.fromkeys(path for patch in there for path in patch.paths)
    bytecode = Bytecode(here.install.package, here.install.python)
    report = Report(
        verb=verb,
        install=here.install,
        version=here.version,
        patches=tuple(
            _outcome(here, item, before.get(item.id, item.state), strict=strict) for item in shown
        ),
        files=files,
        edits=plan.edits,
        hiding=bytecode.hiding(patched),
        # A source that a patch took away is not hidden by what the patch put in its place.
        shadowing=tuple(
            name
            for path in patched
            if plan.target[path] is not None
            for name in bytecode.shadowing(path)
        ),
        passed_over=len(findings) - len(shown),
        if_named=() if verb in ("status", "diff", "revert") else _if_named(here, findings),
        wrote=wrote,
        strict=strict,
        notes=tuple(dict.fromkeys([*here.install.notes, *here.notes, *notes, *linked])),
    )
    return judged(report)


def judged(report: Report) -> Report:
    """Work out anew for which reasons `verify` answers no."""
    return report.replaced(failures=tuple(_failures(report)))


def _failures(report: Report) -> Iterator[VllmPatchError]:
    missing = [item for item in report.patches if item.fails]
    if missing:
        some = counted([item.id for item in missing], len(report.patches))
        yield PatchNotIn(
            f"{some} {'is' if len(missing) == 1 else 'are'} not applied",
            hint=_hint_for_missing(report, missing),
        )
    unknown = [item for item in report.patches if item.state == UNSUPPORTED and not item.fails]
    if unknown and versions.parse(report.version) is None:
        what = f"nobody can tell whether this vLLM needs {_names(unknown)}"
        yield UnsupportedVersion(what, hint=_advice(report, unknown[0]))
    if report.hiding:
        what = "Python would run old bytecode in place of a patched source"
        yield StaleBytecode(what, facts=report.hiding, hint="vllm-patch apply")
    if report.shadowing:
        what = "Python would never read a patched source: another file is taken before it"
        yield ShadowedSource(what, facts=report.shadowing, hint=IN_THE_WAY)
    for item in report.patches:
        if item.probe is not None and item.probe.answer != ABSENT and not item.fails:
            found = "finds the fault" if item.probe.answer == SHOWN else "can't tell"
            yield ProbeFailed(f"the probe of {item.id} {found}", patch=item.id)
    modified = [file for file in report.files if file.state in (MODIFIED, MISSING)]
    if report.strict and modified:
        yield ModifiedFile(
            "a file is not what was released plus known patches",
            facts=[f"{report.install.package}/{file.path}: {file.state}" for file in modified],
        )


def counted(ids: Sequence[str], total: int) -> str:
    """Name some of several patches: the id where there is only one, else ``1 of 2 patches``."""
    return ids[0] if total == 1 else f"{len(ids)} of {total} patches"


def _hint_for_missing(report: Report, missing: Sequence[Outcome]) -> str | None:
    """What helps with the first that `apply` can't bring in; else `apply`."""
    for item in missing:
        if item.state in (CONFLICT, BLOCKED, UNSUPPORTED):
            return _advice(report, item)
    if any(item.named for item in report.patches) and not any(item.named for item in missing):
        # Those that were named are in; what was applied before is not any more.
        return pasted("vllm-patch", "apply", *(item.id for item in missing))
    return "vllm-patch apply"


def _advice(report: Report, item: Outcome) -> str:
    return advice(
        item.id,
        item.state,
        item.reasons,
        version=report.version,
        adhoc=item.adhoc,
        modified=any(
            file.path in item.files and file.state in (MODIFIED, MISSING) for file in report.files
        ),
    )


def _names(items: Sequence[Outcome]) -> str:
    return items[0].id if len(items) == 1 else f"any of {len(items)} patches"


def _if_named(here: Survey, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Name the patches for this version that nobody asked about, where nobody named any."""
    if not here.everything:
        return ()
    told = {finding.id for finding in findings}
    patches = [one for one in here.catalog.patches if one.id not in told]
    others = [here.asked[one.id] for one in patches]
    return tuple(asked.id for asked in others if asked.candidates and not asked.gate)


def _outcome(here: Survey, finding: Finding, was: str, *, strict: bool) -> Outcome:
    titles = {one.id: one.title for one in here.catalog.patches if one.id not in here.adhoc}
    unsupported = finding.state == UNSUPPORTED and (strict or finding.named)
    return Outcome(
        id=finding.id,
        title=titles.get(finding.id, ""),
        state=finding.state,
        was=was,
        named=finding.named,
        adhoc=finding.id in here.adhoc,
        fails=finding.state in FAILING or unsupported,
        reasons=finding.reasons,
        files=_offsets(finding),
    )


def shared(here: Survey, plan: Plan, paths: Iterable[str]) -> Iterator[str]:
    """Name files that nothing explains and that a package manager's cache may hold as well.

    To be asked before a file is replaced: it is linked to nothing then.
    """
    for name in paths:
        path = os.path.join(here.install.package, name)
        try:
            is_linked = os.path.islink(path) or os.stat(path).st_nlink > 1
        except OSError:
            continue
        if is_linked and _state(here, plan, name) == MODIFIED:
            clean = pasted("uv", "cache", "clean", here.install.name)
            yield (
                f"{path} is not what was released, and it is linked to other places: uv's cache "
                f"may hold the same, and then a reinstall alone brings it back; `{clean}` and "
                "then a reinstall put that right"
            )


def _offsets(finding: Finding) -> dict[str, tuple[int, ...]]:
    paths = finding.patch.paths if finding.patch is not None else ()
    return {path: finding.offsets.get(path, ()) for path in paths}


def _files(here: Survey, plan: Plan, findings: Iterable[Finding]) -> tuple[FileStatus, ...]:
    patches = [finding.patch for finding in findings if finding.patch is not None]
    patches += plan.found.patches
    paths = sorted({path for patch in patches for path in patch.paths})
    return tuple(
        FileStatus(
            path=path,
            state=_state(here, plan, path),
            before=digests.of_file(here.situation.current[path]),
            after=digests.of_file(plan.target[path]),
            patches=tuple(patch.id for patch in plan.found.on(path)),
        )
        for path in paths
    )


def _state(here: Survey, plan: Plan, path: str) -> str:
    data = here.situation.current[path]
    if here.situation.pristine(path, data):
        return PRISTINE
    if path in plan.found.proven:
        return PATCHED
    if data is None and here.record is not None:
        return MISSING
    recorded = here.record is not None and here.record.digest(here.record_path(path))
    return MODIFIED if recorded else UNRECORDED
