"""Patches laid on the base in series order, each judged when its turn comes.

Always true here: trees are made in memory only. What was found and nobody asked about is laid
with the text it was applied with; a patch that can't be laid gets a state that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vllm_patcher import judge
from vllm_patcher.explain import BESIDE, CLASH
from vllm_patcher.identify import identify
from vllm_patcher.stack import Problem, Stack
from vllm_patcher.states import (
    APPLIED,
    BLOCKED,
    CONFLICT,
    NOT_APPLIED,
    PARTIAL,
    SATISFYING,
    UNSUPPORTED,
    Asked,
    Finding,
    Reason,
)

if TYPE_CHECKING:
    from vllm_patcher.known import Known
    from vllm_patcher.situation import Situation
    from vllm_patcher.stack import Tree


_NOTHING: Mapping[str, tuple[str, ...]] = {}


class Series:
    """What lies on the base so far, and what was found out about each patch on the way.

    ``goal`` are the patches laid that are to be in, ``left`` those that are left as they lie and
    in which paths, ``out`` those that were not laid though they are in or in the receipt.
    ``unfit`` are patches of the first two that have no place any more, and why. ``displacing``
    gives for patches that are not to be laid the ids of those that would lose their place.
    """

    def __init__(
        self,
        here: Situation,
        asked: Sequence[Asked] = (),
        displacing: Mapping[str, tuple[str, ...]] = _NOTHING,
    ) -> None:
        self._here = here
        self._found = here.found
        self.stack = Stack(here.found.base)
        self._there: dict[str, list[Known]] = {}
        for patch in (*here.found.patches, *here.found.partial):
            self._there.setdefault(patch.id, []).append(patch)
        by_id = {item.id: item for item in asked}
        self._staying = {
            patch for patch in here.found.patches if _stays(patch, by_id.get(patch.id))
        }
        self.goal: list[Known] = []
        self.out: list[Known] = []
        self.left: dict[Known, frozenset[str]] = {}
        self.unfit: list[tuple[Known, list[Problem]]] = []
        self.findings: list[Finding] = []
        self._states: dict[str, str] = {}
        self._displacing = displacing
        self._coming: dict[str, None] = {}
        self._but_for: dict[frozenset[Known], tuple[Known, ...]] = {}

    def on(self, path: str) -> list[Known]:
        """Return the patches that are to be on one path, whole or in part."""
        goal = [patch for patch in self.goal if path in patch.paths]
        return goal + [patch for patch, paths in self.left.items() if path in paths]

    def _is_whole(self, revisions: Sequence[Known]) -> bool:
        return len(revisions) == 1 and revisions[0] in self._found.patches

    def keep(self, name: str) -> None:
        """Nobody asked: what is in stays, with the text it was applied with.

        But a run that was killed is finished: the receipt knows which way it was going.
        """
        revisions = self._there.get(name, [])
        listed = next((patch for patch in self._here.receipt if patch.id == name), None)
        going_out = self._here.wanted.get(name) == "out" and not self._mixed(name)
        if listed is not None and going_out:
            self.out += [listed, *revisions]
        elif self._is_whole(revisions):
            self._put_back(revisions[0])
            self._states[name] = APPLIED
        elif revisions and listed is not None and self._completes(listed):
            self.goal.append(listed)
            self.out += [patch for patch in revisions if patch is not listed]
        else:
            for patch in revisions:
                self._leave(patch)

    def _mixed(self, name: str) -> list[Reason]:
        """Say where another hand may have left half of a patch, so that it can't come out."""
        listed = [patch for patch in self._here.receipt if patch.id == name]
        texts = dict.fromkeys([*self._there.get(name, []), *listed])
        return [reason for patch in texts for reason in judge.mixed(self._found, patch)]

    def _completes(self, patch: Known) -> bool:
        return not self._mixed(patch.id) and not self.stack.put(patch)

    def _put_back(self, patch: Known) -> None:
        self.goal.append(patch)
        problems = self.stack.put(patch)
        if problems:
            self.unfit.append((patch, problems))

    def _leave(self, patch: Known) -> None:
        self.left[patch] = self._found.partial.get(patch, frozenset(patch.paths))
        problems = self.stack.put(patch, only=self.left[patch])
        if problems:
            self.unfit.append((patch, problems))

    def want(self, asked: Asked) -> None:
        """Judge one patch that is asked for, and put it on if it can be."""
        finding = self._judge(asked)
        self._states[finding.id] = finding.state
        self.findings.append(finding)

    def _judge(self, asked: Asked) -> Finding:
        there = self._there.get(asked.id, [])
        if asked.clash:
            self.keep(asked.id)
            what = "a diff of yours was put in under this id, and a patch of the catalog has it too"
            text = next(iter([*there, *asked.candidates]), None)
            return self._finding(asked, CONFLICT, text, [Reason(what=what, misfit=CLASH)])
        dependents = [known for known in self._here.known if asked.id in known.requires]
        patch = judge.choose(asked, there, self._found, self._goes_on, dependents)
        if patch is None:
            return self._judge_by_gate(asked, there)
        if self._is_whole(there) and there[0].same(patch):
            self._put_back(there[0])
            return self._finding(asked, APPLIED, there[0])
        blocked = self._blocked(asked)
        if blocked and not self._is_there_anyhow(patch, dependents):
            self.keep(asked.id)
            return self._finding(asked, BLOCKED, patch, blocked)
        others = [] if there else self._done_by_others(patch)
        if others:
            does = "which is in, does" if len(others) == 1 else "which are in, do"
            what = f"{', '.join(others)}, {does} the same"
            return self._finding(asked, APPLIED, patch, [Reason(what=what)])
        mixed = self._mixed(asked.id)
        if mixed:
            self.keep(asked.id)
            state, reasons = judge.stuck(self._here.current, patch, mixed)
            return self._finding(asked, state, patch, reasons)
        return self._lay(asked, patch, there, dependents)

    def _is_there_anyhow(self, patch: Known, dependents: Sequence[Known]) -> bool:
        """Say whether the files have what a patch does, whatever it requires or conflicts with."""
        fits = judge.fits(self.stack.files, patch)
        return not fits and judge.has(self._found.base, patch, dependents)

    def _lay(
        self, asked: Asked, patch: Known, there: Sequence[Known], dependents: Sequence[Known]
    ) -> Finding:
        """Put a patch on, or say why it has no place; ``there`` are the revisions that are in."""
        before = self.stack.files
        displaced = self._displacing.get(asked.id)
        if displaced is not None:
            self.keep(asked.id)
            what = f"it fits this vLLM, but not beside {', '.join(displaced)}"
            reason = Reason(what=what, misfit=BESIDE, beside=displaced)
            return self._finding(asked, CONFLICT, patch, [reason])
        problems = self.stack.put(patch)
        if problems:
            self.keep(asked.id)
            state, reasons = judge.misfit(
                self._found,
                patch,
                laid=self.stack.files,
                problems=problems,
                beneath=self.goal,
                dependents=dependents,
            )
            if state == APPLIED and not self._is_there(patch):
                self._coming[asked.id] = None
                what = "another patch that is to go in does the same"
                return self._finding(asked, NOT_APPLIED, patch, [Reason(what=what)], planned=True)
            return self._finding(asked, state, patch, reasons)
        if not there and self.stack.files == before:
            return self._finding(asked, APPLIED, patch, [Reason(what="it changes nothing here")])
        self.goal.append(patch)
        self.out += [other for other in there if other is not patch]
        state, reasons = judge.lacking(self._found, there, patch)
        return self._finding(asked, state, patch, reasons)

    def _is_there(self, patch: Known) -> bool:
        """Say whether what a patch does is on disk, and not only to come with others."""
        current, found = self._here.current, self._found.patches
        return any(judge.contains(current, patch, beneath=on, surely=True) for on in ((), found))

    def _judge_by_gate(self, asked: Asked, there: Sequence[Known]) -> Finding:
        """The version says that the patch is not to be put on; it may be in all the same."""
        self.keep(asked.id)
        reasons = [Reason(what=asked.why)] if asked.why else []
        if not there:
            return self._finding(asked, asked.gate or UNSUPPORTED, None, reasons)
        if self._is_whole(there):
            return self._finding(asked, APPLIED, there[0], reasons)
        reasons += [judge.counts(self._found, p) for p in there if p in self._found.partial]
        return self._finding(asked, PARTIAL, there[0], reasons)

    def _goes_on(self, patch: Known) -> bool:
        """Say whether a patch would go on here, without putting it there."""
        trial = Stack(self._found.base)
        for laid in self.goal:
            trial.put(laid)
        for left, paths in self.left.items():
            trial.put(left, only=paths)
        return not trial.put(patch)

    def _blocked(self, asked: Asked) -> list[Reason]:
        to_be_in = dict.fromkeys([*(patch.id for patch in self.goal), *self._coming])
        reasons = [
            Reason(what=f"requires {name}, which is {self._states.get(name, 'unknown here')}")
            for name in asked.requires
            if name not in to_be_in and self._states.get(name) not in SATISFYING
        ]
        out = {patch.id for patch in self.out}
        # One that another patch does under its own name is in as well.
        done = [name for name, state in self._states.items() if state == APPLIED]
        there = {*self._there, *done}
        reasons += [
            Reason(
                what=f"conflicts with {name}, which {'is in' if name in there else 'is to go in'}"
            )
            for name in dict.fromkeys([*self._there, *to_be_in, *done])
            if name in asked.conflicts and name not in out
        ]
        return reasons

    def _done_by_others(self, patch: Known) -> list[str]:
        """Name the patches that are in and stay in, if they do what this one does.

        Asked before it is laid: if it comes first in the series it would fit, and they would not.
        """
        on = dict.fromkeys(other for path in patch.paths for other in self._found.on(path))
        if not on or not on.keys() <= self._staying:
            return []
        current = self._here.current
        done = (
            not judge.fits(current, patch)
            and judge.contains(current, patch, surely=True)
            and judge.fits(self._base_for(patch), patch)
        )
        return [other.id for other in on] if done or patch in self._there_but_for(on) else []

    def _there_but_for(self, some: Iterable[Known]) -> tuple[Known, ...]:
        """The patches that would be found if some that are in were not known."""
        key = frozenset(some)
        if key not in self._but_for:
            known = [other for other in self._here.known if other not in key]
            again = identify(self._here.current, known, [], self._here.pristine)
            self._but_for[key] = again.patches
        return self._but_for[key]

    def _base_for(self, patch: Known) -> Tree:
        """The base with what a patch requires in it, as far as that is in."""
        stack = Stack(self._found.base)
        for other in self._found.patches:
            if other.id in patch.requires:
                stack.put(other)
        return stack.files

    def drop(self, name: str, *, dependents: Sequence[str]) -> None:
        """Take one patch out, or say why it is not or can't be."""
        asked = Asked(id=name, named=True)
        there = self._there.get(name, [])
        listed = [patch for patch in self._here.receipt if patch.id == name]
        text = next((patch for patch in (*listed, *self._here.known) if patch.id == name), None)
        reasons = self._mixed(name)
        if there and dependents:
            state, reasons = BLOCKED, [Reason(what=f"{who} requires it") for who in dependents]
        elif there and reasons:
            state = CONFLICT
        elif there:
            state = APPLIED if self._is_whole(there) else PARTIAL
        elif text is not None:
            state, reasons = judge.absent(self._found, text, torn=reasons)
            others = self._done_by_others(text) if state == NOT_APPLIED else []
            reasons = [*reasons, *(Reason(what=f"{name}, which is in, does it") for name in others)]
        else:
            state = NOT_APPLIED
        if state in (BLOCKED, CONFLICT):
            self.keep(name)
        else:
            self.out += [*listed, *there]
        self.findings.append(self._finding(asked, state, there[0] if there else text, reasons))

    def _finding(
        self,
        asked: Asked,
        state: str,
        patch: Known | None,
        reasons: Iterable[Reason] = (),
        *,
        planned: bool = False,
    ) -> Finding:
        planned = planned or (patch is not None and patch in self.goal)
        return Finding(
            id=asked.id,
            state=state,
            named=asked.named,
            patch=patch,
            reasons=tuple(reasons),
            offsets=self._offsets(patch) if planned and patch is not None else {},
            planned=planned,
        )

    def _offsets(self, patch: Known) -> dict[str, tuple[int, ...]]:
        return {
            path: tuple(placement.offset for placement in placements)
            for (name, path), placements in self.stack.placements.items()
            if name == patch.id
        }


def _stays(patch: Known, asked: Asked | None) -> bool:
    """Say whether a patch that is in keeps its text, whatever is asked under its id."""
    candidates = asked.candidates if asked is not None else ()
    return not candidates or any(patch.same(candidate) for candidate in candidates)
