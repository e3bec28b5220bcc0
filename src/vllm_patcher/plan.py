"""From what was found and what is asked to the edits, or to the reasons against them.

Always true here: nothing is read and nothing is written; a plan is made whole, in memory, and
every patch gets a state and every refusal is kept, not only the first. The same plan serves
``apply`` and ``verify``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import objections
from .laying import Laying
from .situation import Situation, situation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .identify import Found, Unit
    from .stack import Known, Tree
    from .states import Asked, Finding, Reason

__all__ = ["Edit", "Plan", "Situation", "plan_apply", "plan_revert", "situation"]


class Edit(NamedTuple):
    """One file to be changed; None is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class Plan(NamedTuple):
    """What is to be done, or why not.

    ``goal`` are the patches that are in afterwards, in series order; ``out`` those that come out
    for good, each id once. ``refusals`` are reasons that belong to no single finding.
    """

    findings: tuple[Finding, ...]
    found: Found
    target: Tree
    edits: tuple[Edit, ...]
    goal: tuple[Known, ...]
    out: tuple[Known, ...]
    refusals: tuple[Reason, ...] = ()


def plan_apply(here: Situation, asked: Sequence[Asked], *, exact: bool = False) -> Plan:
    """Plan to have all that is found and all that is asked.

    ``exact`` objects to hunks that moved, unless the file's digest is listed, and to files that
    RECORD does not prove.
    """
    laying = Laying(here, asked)
    by_id = {item.id: item for item in asked}
    for name in dict.fromkeys([*here.series, *by_id]):
        if name in by_id:
            laying.want(by_id[name])
        else:
            laying.keep(name)
    return _finish(here, laying, exact=exact)


def plan_revert(here: Situation, ids: Collection[str] | None, *, with_dependents: bool) -> Plan:
    """Plan to have all that is found but some; ``ids`` None means: nothing at all.

    What requires one of those stays in its way, unless ``with_dependents``: then it goes too.
    """
    there = (*here.found.patches, *here.found.partial)
    out = {patch.id for patch in (*there, *here.receipt)} if ids is None else set(ids)
    dependents = {
        patch.id: patch.requires & out
        for patch in there
        if patch.id not in out and patch.requires & out
    }
    if with_dependents:
        out |= set(dependents)
        dependents = {}
    laying = Laying(here)
    for name in dict.fromkeys([*here.series, *sorted(out)]):
        if name in out:
            laying.drop(name, dependents=[who for who, on in dependents.items() if name in on])
        else:
            laying.keep(name)
    return _finish(here, laying, exact=False)


def _finish(here: Situation, laying: Laying, *, exact: bool) -> Plan:
    """Make the plan of what was laid, with all that stands against it."""
    changing = _changing(here, laying)
    target = dict(here.current)
    for unit in changing:
        target.update({path: laying.stack.files[path] for path in unit})
    edits = tuple(
        Edit(path=path, before=here.current[path], after=target[path])
        # Removals last: a run that is killed must not lose a file that it renames.
        for path in sorted(target, key=lambda path: (target[path] is None, path))
        if target[path] != here.current[path]
    )
    refusals = [*_objections(here, laying, changing, target)]
    if exact:
        refusals += objections.not_exact(here.found, laying.stack, laying.goal)
    return Plan(
        findings=tuple(laying.findings),
        found=here.found,
        target=target,
        edits=edits,
        goal=tuple(laying.goal),
        out=_one_of_each(patch for patch in laying.out if patch not in laying.goal),
        refusals=tuple(refusals),
    )


def _one_of_each(patches: Iterable[Known]) -> tuple[Known, ...]:
    by_id: dict[str, Known] = {}
    for patch in patches:
        by_id.setdefault(patch.id, patch)
    return tuple(by_id.values())


def _changing(here: Situation, laying: Laying) -> list[Unit]:
    """Find the units whose set of patches changes; all others are left to the byte."""
    return [
        unit
        for unit in here.found.units
        if any(set(here.found.on(path)) != set(laying.on(path)) for path in unit)
    ]


def _objections(
    here: Situation, laying: Laying, changing: Sequence[Unit], target: Tree
) -> Iterable[Reason]:
    there = (*here.found.patches, *here.found.partial)
    first = [
        *objections.no_longer_fitting(
            laying.unfit,
            changing=changing,
            coming=[patch for patch in laying.goal if patch not in there],
            going=[p for p in there if p not in laying.goal and p not in laying.left],
        ),
        *objections.not_compiling(here, target),
    ]
    yield from first
    if changing and not first:
        on = {path: laying.on(path) for unit in changing for path in unit}
        receipt = _receipt_after(here, laying)
        yield from objections.not_taken_apart(here, target, on=on, receipt=receipt)


def _receipt_after(here: Situation, laying: Laying) -> list[Known]:
    going = {patch.id for patch in (*laying.goal, *laying.out)}
    rest = [patch for patch in here.receipt if patch.id not in going]
    place = {name: number for number, name in enumerate(here.series)}
    return sorted([*laying.goal, *rest], key=lambda patch: place[patch.id])
