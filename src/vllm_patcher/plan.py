"""From what was found and what is asked to the edits, or to the reasons against them.

Always true here: nothing is read and nothing is written; a plan is made whole, in memory, and
every patch gets a state and every refusal is kept, not only the first. The same plan serves
``apply`` and ``verify``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import checks
from vllm_patcher.identify import identify
from vllm_patcher.judge import fits
from vllm_patcher.series import Series
from vllm_patcher.states import PRESENT, UPSTREAM
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from vllm_patcher.identify import Found
    from vllm_patcher.known import Known
    from vllm_patcher.situation import Situation
    from vllm_patcher.stack import Tree
    from vllm_patcher.states import Asked, Finding, Reason
    from vllm_patcher.unit import Unit


class Edit(Value):
    """One file to be changed; None is no file.

    ``like`` is the file whose mode and owner a new one takes, if it is a renamed one.
    """

    path: str
    before: bytes | None
    after: bytes | None
    like: str = ""


class Plan(Value):
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

    @property
    def there_anyhow(self) -> tuple[Known, ...]:
        """Patches whose change is there though nothing says that it was put in."""
        return tuple(
            finding.patch
            for finding in self.findings
            if finding.state in (UPSTREAM, PRESENT) and finding.patch is not None
        )


def plan_apply(here: Situation, asked: Sequence[Asked], *, exact: bool = False) -> Plan:
    """Plan to have all that is found and all that is asked.

    ``exact`` objects to hunks that moved, unless the file's digest is listed, and to files that
    RECORD does not prove.
    """
    laid = _leaving_what_is_in(here, asked)
    plan = _finish(here, laid)
    refusals = [*_refusals(here, laid, plan.target, asked)]
    if exact:
        refusals += checks.not_exact(here.found, laid.stack, _meant(plan, laid))
    return plan.replaced(refusals=tuple(refusals))


def _meant(plan: Plan, laid: Series) -> list[Known]:
    """The patches that were asked about, and that are in afterwards or there anyhow."""
    return [
        finding.patch
        for finding in plan.findings
        if finding.patch is not None and (finding.patch in laid.goal or finding.state == PRESENT)
    ]


def propose_apply(here: Situation, asked: Sequence[Asked]) -> Plan:
    """Make the same plan for who wants to know what is there; nothing is held against it."""
    return _finish(here, _leaving_what_is_in(here, asked))


def judge_apply(here: Situation, asked: Sequence[Asked]) -> dict[str, Finding]:
    """Judge what is asked as a plan to apply it would, by id; no target is made and checked."""
    return {finding.id: finding for finding in _leaving_what_is_in(here, asked).findings}


def _leaving_what_is_in(here: Situation, asked: Sequence[Asked]) -> Series:
    """Lay what is found and asked, but for what is new and would cost others their place."""
    laid = first = _laid(here, asked, {})
    displacing: dict[str, tuple[str, ...]] = {}
    there = {patch.id for patch in (*here.found.patches, *here.found.partial)}
    for patch in first.goal:
        lost = _lost(here, laid)
        if not lost:
            break
        if patch.id in there or not any(patch.touches(other.paths) for other in lost):
            continue
        without = _laid(here, asked, {**displacing, patch.id: ()})
        saved = [other.id for other in lost if other not in _lost(here, without)]
        if saved:
            displacing[patch.id] = tuple(saved)
            laid = _laid(here, asked, displacing)
    return laid


def _laid(
    here: Situation, asked: Sequence[Asked], displacing: Mapping[str, tuple[str, ...]]
) -> Series:
    laid = Series(here, asked, displacing)
    by_id = {item.id: item for item in asked}
    for name in here.series:
        if name in by_id:
            laid.want(by_id[name])
        else:
            laid.keep(name)
    return laid


def _lost(here: Situation, laid: Series) -> list[Known]:
    return [patch for patch, _ in laid.unfit if patch in here.found.patches]


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
    for patch, on in _bereft(here, out):
        dependents[patch.id] = dependents.get(patch.id, frozenset()) | on
    if with_dependents:
        out |= set(dependents)
        dependents = {}
    laid = _without(here, out, dependents)
    plan = _finish(here, laid)
    return plan.replaced(refusals=tuple(_refusals(here, laid, plan.target, ())))


def _without(
    here: Situation, out: Collection[str], dependents: Mapping[str, Collection[str]]
) -> Series:
    """Lay all that is found but some; ``dependents`` give for patches the ids they require."""
    laid = Series(here)
    for name in dict.fromkeys([*here.series, *sorted(out)]):
        if name in out:
            laid.drop(name, dependents=[who for who, on in dependents.items() if name in on])
        else:
            laid.keep(name)
    return laid


def _bereft(here: Situation, out: Collection[str]) -> Iterable[tuple[Known, frozenset[str]]]:
    """The patches that lose what stands in for one they require, and those that it goes with."""
    whole = {patch.id for patch in here.found.patches}
    needs = [
        (patch, text)
        for patch in here.found.patches
        if patch.id not in out
        for text in here.known
        if text.id in patch.requires - whole
    ]
    files = _without(here, out, {}).stack.files if needs else {}
    for patch, text in needs:
        if not fits(here.current, text) and fits(files, text):
            gone = (other for other in here.found.patches if other.id in out)
            yield patch, frozenset(other.id for other in gone if other.touches(text.paths))


def _finish(here: Situation, laid: Series) -> Plan:
    """Make the plan of what was laid; what stands against it is asked for besides."""
    target = dict(here.current)
    for unit in _changing(here, laid):
        target.update({path: laid.stack.files[path] for path in unit})
    renamed = _renamed(here)
    edits = tuple(
        Edit(path=path, before=here.current[path], after=target[path], like=renamed.get(path, ""))
        # Removals last: a run that is killed must not lose a file that it renames.
        for path in sorted(target, key=lambda path: (target[path] is None, path))
        if target[path] != here.current[path]
    )
    return Plan(
        findings=tuple(laid.findings),
        found=here.found,
        target=target,
        edits=edits,
        goal=tuple(laid.goal),
        out=_one_of_each(patch for patch in laid.out if patch not in laid.goal),
    )


def _renamed(here: Situation) -> dict[str, str]:
    """For each path that some patch renames from or to: the other one, if it is there now."""
    pairs = [
        (part.source, part.path)
        for patch in here.known
        for part in patch.parts
        if part.source is not None
    ]
    both_ways = [*pairs, *((new, old) for old, new in pairs)]
    return {to: other for other, to in both_ways if here.current[other] is not None}


def _one_of_each(patches: Iterable[Known]) -> tuple[Known, ...]:
    by_id: dict[str, Known] = {}
    for patch in patches:
        by_id.setdefault(patch.id, patch)
    return tuple(by_id.values())


def _changing(here: Situation, laid: Series) -> list[Unit]:
    """Find the units whose set of patches changes; all others are left to the byte."""
    return [
        unit
        for unit in here.found.units
        if any(set(here.found.on(path)) != set(laid.on(path)) for path in unit)
    ]


def _refusals(
    here: Situation, laid: Series, target: Tree, asked: Sequence[Asked]
) -> Iterable[Reason]:
    """What stands against a plan; ``asked`` are to be found afterwards as it says."""
    changing = _changing(here, laid)
    there = (*here.found.patches, *here.found.partial)
    first = [
        *checks.no_longer_fitting(
            laid.unfit,
            changing=changing,
            coming=[patch for patch in laid.goal if patch not in there],
            going=[p for p in there if p not in laid.goal and p not in laid.left],
        ),
        *checks.not_compiling(here, target),
    ]
    yield from first
    if changing and not first:
        after = _afterwards(here, laid, target)
        on = {path: laid.on(path) for unit in changing for path in unit}
        lost = [*checks.not_taken_apart(here, after, on=on)]
        again = judge_apply(after, asked) if asked and not lost else {}
        yield from lost or checks.not_lasting(laid.findings, again)


def _afterwards(here: Situation, laid: Series, target: Tree) -> Situation:
    """What the next run will find once the plan has been carried out."""
    receipt = _receipt_after(here, laid) if here.keeps_receipt else []
    return here.replaced(
        current=target,
        found=identify(target, here.known, receipt, here.pristine),
        receipt=tuple(receipt),
        wanted={patch.id: "in" for patch in receipt},
        series=tuple(dict.fromkeys([*here.of_catalog, *(p.id for p in receipt), *here.series])),
    )


def _receipt_after(here: Situation, laid: Series) -> list[Known]:
    going = {patch.id for patch in (*laid.goal, *laid.out)}
    rest = [patch for patch in here.receipt if patch.id not in going]
    place = {name: number for number, name in enumerate(here.series)}
    return sorted([*laid.goal, *rest], key=lambda patch: place[patch.id])
