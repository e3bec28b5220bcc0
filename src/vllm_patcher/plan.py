"""From what was found and what is asked to the edits, or to the reasons against them.

Always true here: nothing is read and nothing is written; a plan is made whole, in memory, and
every patch gets a state and every refusal is kept, not only the first. The same plan serves
``apply`` and ``verify``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .explain import describe, does_not_compile, upstream
from .identify import Found, Pristine, identify
from .stack import Known, Problem, Stack, Tree, take
from .states import (
    APPLIED,
    BLOCKED,
    CONFLICT,
    NOT_APPLIED,
    OUTDATED,
    PARTIAL,
    PRESENT,
    SATISFYING,
    TO_DO,
    UNSUPPORTED,
    UPSTREAM,
    Asked,
    Finding,
    Reason,
)

class Edit(NamedTuple):
    """One file to be changed; None is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class Plan(NamedTuple):
    """What is to be done, or why not.

    ``goal`` are the patches that are in afterwards, in series order; ``out`` those that come out
    for good. ``refusals`` are reasons that belong to no single finding.
    """

    findings: tuple[Finding, ...]
    found: Found
    target: Tree
    edits: tuple[Edit, ...]
    goal: tuple[Known, ...]
    out: tuple[Known, ...]
    refusals: tuple[Reason, ...] = ()


class Situation(NamedTuple):
    """All a plan is made from.

    ``series`` gives the order of ids. ``known`` holds every text, ``receipt`` those the receipt
    lists; ``wanted`` gives their ``in`` or ``out``.
    """

    current: Tree
    found: Found
    known: tuple[Known, ...]
    receipt: tuple[Known, ...]
    wanted: Mapping[str, str]
    series: tuple[str, ...]
    pristine: Pristine


def situation(
    *,
    current: Tree,
    known: Sequence[Known],
    receipt: Sequence[Known],
    wanted: Mapping[str, str],
    series: Sequence[str],
    pristine: Pristine,
) -> Situation:
    """Identify what is there and gather it with the rest a plan needs."""
    return Situation(
        current=current,
        found=identify(current, known, receipt, pristine),
        known=tuple(known),
        receipt=tuple(receipt),
        wanted=wanted,
        series=tuple(series),
        pristine=pristine,
    )


def plan_apply(here: Situation, asked: Sequence[Asked], *, exact: bool = False) -> Plan:
    """Plan to have all that is found and all that is asked."""
    building = _Building(here)
    by_id = {item.id: item for item in asked}
    for name in here.series:
        if name in by_id:
            building.want(by_id[name])
        else:
            building.keep(name)
    for item in asked:
        if item.id not in here.series:
            building.want(item)
    return building.finish(exact=exact)


def plan_revert(here: Situation, ids: Collection[str] | None, *, with_dependents: bool) -> Plan:
    """Plan to have all that is found but some; ``ids`` None means: nothing at all."""
    there = [*here.found.patches, *here.found.partial]
    if ids is None:
        out = {patch.id for patch in there} | {patch.id for patch in here.receipt}
    else:
        out = set(ids)
    dependents = {
        patch.id: sorted(patch.requires & out)
        for patch in there
        if patch.id not in out and patch.requires & out
    }
    if with_dependents:
        out |= set(dependents)
        dependents = {}
    building = _Building(here)
    for name in here.series:
        if name in out:
            building.drop(name, dependents=[who for who, on in dependents.items() if name in on])
        else:
            building.keep(name)
    return building.finish(exact=False)


class _Building:
    """A plan while it is being made: patches go on the base in series order."""

    def __init__(self, here: Situation) -> None:
        self._here = here
        self._found = here.found
        self._stack = Stack(here.found.base)
        self._whole = {patch.id: patch for patch in here.found.patches}
        self._part = {patch.id: patch for patch in here.found.partial}
        self._goal: list[Known] = []
        self._kept_parts: list[Known] = []
        self._unfit: list[tuple[Known, list[Problem]]] = []
        self._findings: list[Finding] = []
        self._states: dict[str, str] = {}

    def keep(self, name: str) -> None:
        """Nobody asked: what is in stays, with the text it was applied with."""
        if name in self._whole:
            self._put_back(self._whole[name])
            self._states[name] = APPLIED
        elif name in self._part:
            patch = self._part[name]
            wanted = self._here.wanted.get(name)
            if wanted == "in":
                self._put_back(patch)
            elif wanted is None:
                self._kept_parts.append(patch)
                self._stack.put(patch, only=self._found.partial[patch])

    def _put_back(self, patch: Known) -> None:
        problems = self._stack.put(patch)
        self._goal.append(patch)
        if problems:
            self._unfit.append((patch, problems))

    def want(self, asked: Asked) -> None:
        """Judge one patch that is asked for, and put it on if it can be."""
        finding = self._judge(asked)
        self._states[finding.id] = finding.state
        self._findings.append(finding)

    def _judge(self, asked: Asked) -> Finding:
        there = self._whole.get(asked.id) or self._part.get(asked.id)
        patch = self._choose(asked, there)
        if patch is None:
            state = asked.gate or UNSUPPORTED
            if there is not None:
                self.keep(asked.id)
                state = APPLIED if asked.id in self._whole else PARTIAL
            return _finding(asked, state, there, [Reason(what=asked.why)] if asked.why else [])
        if there is not None and there is self._whole.get(asked.id) and there.same(patch):
            self._put_back(patch)
            return _finding(asked, APPLIED, patch, offsets=self._offsets(patch))
        blocked = self._blocked(asked)
        if blocked:
            if there is not None:
                self.keep(asked.id)
            return _finding(asked, BLOCKED, patch, blocked)
        problems = self._stack.put(patch)
        if not problems:
            self._goal.append(patch)
            state, reasons = self._lacking(there, patch)
            return _finding(asked, state, patch, reasons, offsets=self._offsets(patch))
        if there is not None:
            self.keep(asked.id)
        return self._judge_misfit(asked, patch, problems)

    def _choose(self, asked: Asked, there: Known | None) -> Known | None:
        if asked.by == "version":
            return asked.candidates[0] if asked.candidates else None
        for patch in asked.candidates:
            if there is not None and there.same(patch):
                return patch
        for patch in asked.candidates:
            if self._all_listed(patch):
                return patch
        if asked.by == "content":
            for patch in asked.candidates:
                if not _try(self._stack, patch):
                    return patch
            for patch in asked.candidates:
                if _contained(self._found.base, patch):
                    return patch
        return None

    def _all_listed(self, patch: Known) -> bool:
        base = self._found.base
        return bool(patch.listed) and all(
            self._stack.listed(patch, path) if base[path] is not None else path in patch.listed
            for path in patch.paths
        )

    def _blocked(self, asked: Asked) -> list[Reason]:
        reasons = [
            Reason(what=f"requires {name}, which is {self._states.get(name, 'unknown here')}")
            for name in asked.requires
            if self._states.get(name) not in SATISFYING | TO_DO
        ]
        in_already = [*self._whole, *(patch.id for patch in self._goal)]
        reasons += [
            Reason(what=f"conflicts with {name}, which is in")
            for name in dict.fromkeys(in_already)
            if name in asked.conflicts
        ]
        return reasons

    def _lacking(self, there: Known | None, patch: Known) -> tuple[str, list[Reason]]:
        if there is None:
            return NOT_APPLIED, []
        if not there.same(patch):
            return OUTDATED, [Reason(what="another revision of it is in")]
        paths = self._found.partial[there]
        parts = [part for part in there.parts if part.path in paths]
        hunks = sum(len(part.diff.hunks) for part in there.parts)
        have = sum(len(part.diff.hunks) for part in parts)
        counts = f"{len(paths)} of {len(there.paths)} files, {have} of {hunks} hunks"
        return PARTIAL, [Reason(what=f"{counts} are in")]

    def _judge_misfit(self, asked: Asked, patch: Known, problems: list[Problem]) -> Finding:
        base = self._found.base
        if Stack(base).put(patch) and _contained(base, patch):
            if self._found.proven.issuperset(patch.paths):
                return _finding(asked, UPSTREAM, patch, [upstream(patch)])
            if patch not in self._here.receipt:
                what = "it is there, but nothing proves that it was put in by vllm-patch"
                return _finding(asked, PRESENT, patch, [Reason(what=what)])
        elif _contained(self._stack.files, patch):
            what = "another patch that is in does the same"
            return _finding(asked, APPLIED, patch, [Reason(what=what)])
        reasons = [self._why(patch, problem) for problem in problems]
        return _finding(asked, CONFLICT, patch, reasons)

    def _why(self, patch: Known, problem: Problem) -> Reason:
        if _contained(self._found.base, patch, only=frozenset({problem.path})):
            what = "this file has the change already, others of the patch have not"
            return Reason(what=what, path=problem.path)
        return describe(problem)

    def drop(self, name: str, *, dependents: Sequence[str]) -> None:
        """Take one patch out, or say why it is not or can't be."""
        there = self._whole.get(name) or self._part.get(name)
        text = there or next((item for item in self._here.known if item.id == name), None)
        asked = Asked(id=name, named=True)
        if there is not None and dependents:
            self.keep(name)
            reasons = [Reason(what=f"{who} requires it") for who in dependents]
            self._findings.append(_finding(asked, BLOCKED, there, reasons))
        elif there is not None:
            state = APPLIED if there is self._whole.get(name) else PARTIAL
            self._findings.append(_finding(asked, state, there))
        elif text is not None:
            self._findings.append(self._judge_absent(asked, text))

    def _judge_absent(self, asked: Asked, patch: Known) -> Finding:
        found = self._found
        open_paths = [path for path in patch.paths if path not in found.proven]
        if open_paths and patch in self._here.receipt:
            problems = Stack(self._here.current).put(patch)
            if problems:
                reasons = [
                    Reason(what="the file was changed by another hand", path=path)
                    for path in open_paths
                ]
                return _finding(asked, CONFLICT, patch, reasons)
        if _contained(found.base, patch) and Stack(found.base).put(patch):
            if open_paths:
                what = "nothing proves that it was put in by vllm-patch; it stays"
                return _finding(asked, PRESENT, patch, [Reason(what=what)])
            return _finding(asked, UPSTREAM, patch, [upstream(patch)])
        return _finding(asked, NOT_APPLIED, patch)

    def _offsets(self, patch: Known) -> dict[str, tuple[int, ...]]:
        return {
            path: tuple(placement.offset for placement in placements)
            for (name, path), placements in self._stack.placements.items()
            if name == patch.id
        }

    def finish(self, *, exact: bool) -> Plan:
        target = self._target()
        changed = [path for path in target if target[path] != self._here.current[path]]
        edits = tuple(
            Edit(path=path, before=self._here.current[path], after=target[path])
            for path in sorted(changed)
        )
        goal = tuple(self._goal)
        refusals = [
            *self._no_longer_fitting(changed),
            *(self._not_exact() if exact else ()),
            *self._not_compiling(edits),
        ]
        if edits and not refusals:
            refusals += self._not_reversible(target, changed)
        in_after = {patch.id for patch in goal}
        out = [patch for patch in self._candidates_for_out() if patch.id not in in_after]
        return Plan(
            findings=tuple(self._findings),
            found=self._found,
            target=target,
            edits=edits,
            goal=goal,
            out=tuple(out),
            refusals=tuple(refusals),
        )

    def _candidates_for_out(self) -> list[Known]:
        dropped = {finding.id for finding in self._findings}
        there = [*self._found.patches, *self._found.partial, *self._here.receipt]
        return [patch for patch in dict.fromkeys(there) if patch.id in dropped]

    def _target(self) -> dict[str, bytes | None]:
        """What the files become; a unit whose set of patches stays is left to the byte."""
        target = dict(self._here.current)
        for unit in self._found.units:
            before = {patch for path in unit for patch in self._found.on(path)}
            after = {patch for patch in self._goal if not unit.isdisjoint(patch.paths)}
            after |= {
                patch
                for patch in self._kept_parts
                if not unit.isdisjoint(self._found.partial[patch])
            }
            partly = {patch for patch in before if patch in self._found.partial}
            if before != after or (partly & set(self._goal)):
                target.update({path: self._stack.files[path] for path in unit})
        return target

    def _no_longer_fitting(self, changed: Collection[str]) -> Iterable[Reason]:
        for patch, problems in self._unfit:
            if not set(patch.paths).isdisjoint(changed):
                yield Reason(what=f"{patch.id}, which is in, does not fit without what goes")
                yield from (describe(problem) for problem in problems)

    def _not_exact(self) -> Iterable[Reason]:
        for patch in self._goal:
            for path, offsets in self._offsets(patch).items():
                if path not in self._found.proven:
                    yield Reason(what="--exact: the file is not proven by RECORD", path=path)
                elif any(offsets) and not self._stack.listed(patch, path):
                    moved = max(offsets, key=abs)
                    what = f"--exact: a hunk of {patch.id} moved {moved:+} lines"
                    yield Reason(what=what, path=path)

    def _not_compiling(self, edits: Sequence[Edit]) -> Iterable[Reason]:
        for edit in edits:
            reason = does_not_compile(edit.path, self._found.base[edit.path], edit.after)
            if reason is not None:
                yield reason

    def _not_reversible(self, target: Tree, changed: Collection[str]) -> Iterable[Reason]:
        """Take the target apart again by the same code: that must give the base."""
        here = self._here
        known = list(dict.fromkeys([*here.known, *self._goal]))
        again = identify(target, known, [*self._goal, *self._kept_parts], here.pristine)
        for path in changed:
            same = again.base[path] == self._found.base[path]
            if not same or set(again.on(path)) != self._goal_on(path):
                yield Reason(what="the result could not be taken apart again", path=path)

    def _goal_on(self, path: str) -> set[Known]:
        parts = {patch for patch in self._kept_parts if path in self._found.partial[patch]}
        return {patch for patch in self._goal if path in patch.paths} | parts


def _finding(
    asked: Asked,
    state: str,
    patch: Known | None,
    reasons: Iterable[Reason] = (),
    *,
    offsets: Mapping[str, tuple[int, ...]] | None = None,
) -> Finding:
    return Finding(
        id=asked.id,
        state=state,
        named=asked.named,
        patch=patch,
        reasons=tuple(reasons),
        offsets=offsets or {},
    )


def _contained(files: Tree, patch: Known, *, only: Collection[str] | None = None) -> bool:
    return take(files, patch, trusted=False, only=only) is not None


def _try(stack: Stack, patch: Known) -> list[Problem]:
    """Why a patch would not go on; the stack stays as it is."""
    trial = Stack(stack.files)
    return trial.put(patch)
