"""The verbs as functions: ``apply``, ``preview``, ``verify``, ``revert``, ``status``, ``changes``.

Always true here: what comes back is a typed report and what can't be done is raised; nothing is
printed and no process is ended. ``preview``, ``verify``, ``status`` and ``changes`` hold no tree
that can write. Any number of processes may call any of these on one install at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vllm_patcher import probes
from vllm_patcher.assess import judged, report_on, shared
from vllm_patcher.errors import UnknownPatch
from vllm_patcher.install import Install, find
from vllm_patcher.plan import Plan, judge_apply, plan_apply, plan_revert, propose_apply
from vllm_patcher.refusals import refuse_to_apply, refuse_to_revert
from vllm_patcher.request import Request
from vllm_patcher.results import Outcome, Refused, Report
from vllm_patcher.states import APPLIED, NOT_NEEDED, UPSTREAM, Asked, Finding
from vllm_patcher.survey import Survey, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from vllm_patcher.transaction import Change
    from vllm_patcher.tree.writing import Tree

_DEFAULT = Request()
#: What `verify` finds in these states can't come of reading while another run writes.
_SETTLED = frozenset({APPLIED, UPSTREAM, NOT_NEEDED})
_LOOKS = 5


def locate(request: Request = _DEFAULT, *, to_patch: bool = False) -> Install:
    """Find the vLLM a request means, without importing it. Raises NotInstalled.

    An editable install is somebody's source tree. It can be looked at, and what was put in can
    be taken out; ``to_patch`` refuses it, unless the request allows it.
    """
    return find(
        python=request.python,
        site_packages=request.site_packages,
        allow_editable=request.allow_editable or not to_patch,
    )


def preview(request: Request = _DEFAULT, *, exact: bool = False) -> Report:
    """Say what ``apply`` would do, and raise what it would raise; nothing can be written.

    The report's edits are those that would be made. ``exact`` is as for ``apply``.
    """
    here = survey(locate(request, to_patch=True), request)
    plan = _plan_to_apply(here, request, exact=exact or request.exact)
    return report_on("preview", here, plan)


def apply(request: Request = _DEFAULT, *, exact: bool = False, rehearse: bool = False) -> Report:
    """Bring patches into an install; all or nothing.

    ``exact`` allows no hunk to move, unless the file's digest is listed, and no file that RECORD
    does not prove. Raises Refused, with every reason, if anything stands against it.
    ``rehearse`` writes nothing: the report has the states of now, and what is raised is all that
    can be known beforehand, a folder that can't be written too.
    """
    install = locate(request, to_patch=True)
    exact = exact or request.exact

    def planner(here: Survey) -> Plan:
        return _plan_to_apply(here, request, exact=exact)

    run = _Run(install, request, planner, rehearse=rehearse)
    return run.report("apply", Finding.once_applied)


def revert(
    request: Request = _DEFAULT, *, with_dependents: bool = False, rehearse: bool = False
) -> Report:
    """Take patches out of an install again; all or nothing.

    Without names: all that the receipt or a proof says are in. What requires a named patch stays
    in its way unless ``with_dependents``. Raises Refused, with every reason. ``rehearse`` is as
    for ``apply``.
    """

    def planner(here: Survey) -> Plan:
        return _plan_to_revert(here, with_dependents=with_dependents)

    run = _Run(locate(request), request, planner, rehearse=rehearse)
    return run.report("revert", Finding.once_reverted)


def verify(request: Request = _DEFAULT, *, strict: bool = False, probe: bool = False) -> Report:
    """Say whether the patches asked for, and all that the receipt lists, are in.

    The report's ``ok`` is the answer. ``strict`` makes a modified file and an unsupported patch
    a failure too; ``probe`` runs the patches' probes.
    """
    for _ in range(_LOOKS):
        here = survey(locate(request), request)
        report = _verified(here, request, strict=strict or request.strict)
        if all(item.state in _SETTLED for item in report.patches) or here.is_up_to_date():
            break
        # Files and receipt were read at two moments, between which another run has written.
    return _probed(report, here) if probe else report


def _verified(here: Survey, request: Request, *, strict: bool) -> Report:
    asked = _select(here, request, receipt=("in", "out"))
    plan = propose_apply(here.situation, asked)
    findings = plan.findings
    named = _select(here, request, receipt=()) if here.named else asked
    if len(named) < len(asked):
        # As `apply` would find them, which leaves all others as they are.
        alone = judge_apply(here.situation, named)
        findings = tuple(alone.get(finding.id, finding) for finding in findings)
    return report_on("verify", here, plan, findings=findings, strict=strict)


def status(request: Request = _DEFAULT) -> Report:
    """Tell the state of every patch on an install."""
    here = survey(locate(request), request)
    plan = propose_apply(here.situation, _select(here, request, receipt=("in", "out")))
    findings = {finding.id: finding for finding in plan.findings}
    for item in here.asked.values():
        if item.id not in findings:
            # As if it were named: what nobody asks for is in nobody's way.
            alone = [one for one in here.asked.values() if one.id in {item.id, *item.requires}]
            findings[item.id] = judge_apply(here.situation, alone)[item.id]
    return report_on("status", here, plan, findings=[findings[name] for name in here.asked])


def changes(request: Request = _DEFAULT) -> Report:
    """Tell what the patches that are in, or those named, have changed.

    The report's edits are those that would take them out.
    """
    here = survey(locate(request), request)
    plan = plan_revert(here.situation, here.named or None, with_dependents=True)
    return report_on("diff", here, plan)


def applied_text(request: Request, name: str) -> bytes | None:
    """The diff that the receipt has under a name, or None."""
    here = survey(locate(request), request)
    return next((entry.text for entry in here.entries if entry.id == name), None)


class _Run:
    """Plan; if there is anything to do, do it under the lock, on what is there then.

    A refusal, too, counts only under the lock: without it, files may have been read while
    another process was in the middle of its change.
    """

    def __init__(
        self,
        install: Install,
        request: Request,
        planner: Callable[[Survey], Plan],
        *,
        rehearse: bool,
    ) -> None:
        self._rehearse = rehearse
        self._install = install
        self._request = request
        self._planner = planner
        self.warnings: list[str] = []
        refusal: Refused | None = None
        try:
            self._look()
        except Refused as error:
            refusal = error
        else:
            if self.change is None:
                return
        from vllm_patcher.locking import locked

        with locked(self._install.package, warn=self.warnings.append):
            if not self.here.is_up_to_date():
                self._look()
            elif refusal is not None:
                raise refusal
            if self.change is not None and rehearse:
                self._check(self.change)
            elif self.change is not None:
                self._commit(self.change)

    def _look(self) -> None:
        self.here = survey(self._install, self._request)
        self.plan = self._planner(self.here)
        # Imported here, with what it needs: verify and the like start without it.
        from vllm_patcher.writeup import change_of

        self.change: Change | None = change_of(self.here, self.plan)

    def _check(self, change: Change) -> None:
        from vllm_patcher.transaction import check

        check(*self._trees(), change)

    def _trees(self) -> tuple[Tree, Tree | None]:
        from vllm_patcher.tree.writing import Tree

        info = self._install.dist_info
        return Tree(self._install.package), None if info is None else Tree(info)

    def _commit(self, change: Change) -> None:
        from vllm_patcher.transaction import commit

        # Before: a file that is replaced is linked to nothing afterwards.
        paths = [edit.path for edit in self.plan.edits]
        self.warnings += shared(self.here, self.plan, paths)
        commit(*self._trees(), change)

    def report(self, verb: str, outcome: Callable[[Finding], Finding]) -> Report:
        """Report on the run; ``outcome`` says what a finding has become."""
        wrote = self.change is not None and not self._rehearse
        findings = self.plan.findings
        return report_on(
            verb,
            self.here,
            self.plan,
            findings=findings if self._rehearse else [outcome(finding) for finding in findings],
            wrote=wrote,
            notes=self.warnings,
        )


def _plan_to_apply(here: Survey, request: Request, *, exact: bool) -> Plan:
    asked = _select(here, request, receipt=("in",) if here.everything else ())
    plan = plan_apply(here.situation, asked, exact=exact)
    refuse_to_apply(here, plan)
    return plan


def _plan_to_revert(here: Survey, *, with_dependents: bool) -> Plan:
    plan = plan_revert(here.situation, here.named or None, with_dependents=with_dependents)
    refuse_to_revert(here, plan)
    return plan


def _select(here: Survey, request: Request, *, receipt: Collection[str]) -> list[Asked]:
    """The patches a run is about, with all that they require.

    ``receipt`` adds those of the receipt that are wanted ``in``, ``out``, or both; and where
    nothing was named, those that are in by another hand.
    """
    by_choice = bool(request.kinds or request.cves)
    chosen = here.named or tuple(_chosen(here, request))
    names = dict.fromkeys(chosen)
    names.update(dict.fromkeys(entry.id for entry in here.entries if entry.wanted in receipt))
    if here.everything:
        listed = {entry.id for entry in here.entries}
        there = (patch.id for patch in here.situation.found.patches)
        names.update(dict.fromkeys(name for name in there if name not in listed))
    for name in list(names):
        if here.asked[name].gate != NOT_NEEDED:
            names.update(dict.fromkeys(here.asked[name].requires))
    return [
        item.replaced(named=item.id in here.named or (by_choice and item.id in chosen))
        for item in here.asked.values()
        if item.id in names
    ]


def _chosen(here: Survey, request: Request) -> Iterable[str]:
    """The catalog's patches that are applied when none is named."""
    known = {cve for patch in here.catalog.patches for cve in patch.cve}
    missing = [cve for cve in request.cves if cve not in known]
    if missing:
        raise UnknownPatch(f"no patch for {', '.join(missing)}", hint="vllm-patch list")
    for patch in here.catalog.patches:
        by_cve = not request.cves or not set(request.cves).isdisjoint(patch.cve)
        by_kind = not request.kinds or patch.kind in request.kinds
        if by_cve and by_kind and (patch.default or request.cves):
            yield patch.id


def _probed(report: Report, here: Survey) -> Report:
    """Run the probe of each patch that is reported on, in whatever state it is."""
    of_catalog = [patch for patch in here.catalog.patches if patch.id not in here.adhoc]
    scripts = {patch.id: patch.probe_path for patch in of_catalog}
    python = here.install.python or sys.executable

    def probed(outcome: Outcome) -> Outcome:
        script = scripts.get(outcome.id)
        if script is None:
            return outcome
        return outcome.replaced(probe=probes.run(python, script, here.install.package))

    return judged(report.replaced(patches=tuple(map(probed, report.patches))))
