"""From the bytes on disk and the known patches to the base and the set that was found.

Always true here: a patch counts as found because taking it out leads to bytes whose digest is
the released one, and putting it back gives the bytes on disk. Only where there is no such proof,
and only for patches of the receipt, is putting back alone enough. What upstream or somebody else
has put in therefore never counts as found.

Files are looked at in units: a file by itself, or the files that a rename ties together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.unit import OpenUnit, believe, mend, peel, search
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vllm_patcher.known import Known
    from vllm_patcher.stack import Tree
    from vllm_patcher.unit import Pristine, Unit


class Found(Value):
    """What an install consists of.

    ``base`` has every found patch taken out; ``proven`` are the paths where that is the released
    file. ``patches`` are in whole, in the order they were known in. ``partial`` maps patches of
    which only some files are there to those paths. ``units`` are the paths that go together.
    """

    units: tuple[Unit, ...]
    base: Tree
    proven: frozenset[str]
    patches: tuple[Known, ...]
    partial: Mapping[Known, frozenset[str]]

    def on(self, path: str) -> tuple[Known, ...]:
        """Return the patches that are on one path, whole or in part."""
        whole = tuple(patch for patch in self.patches if path in patch.paths)
        return whole + tuple(patch for patch, paths in self.partial.items() if path in paths)


def identify(
    current: Tree, known: Sequence[Known], receipt: Sequence[Known], pristine: Pristine
) -> Found:
    """Find the base of a tree and the known patches that are on it.

    ``known`` is in series order and holds those of ``receipt``, which are in the order they were
    put on. ``current`` holds every path of every known patch.
    """
    while True:
        units = [OpenUnit(paths, current, pristine) for paths in _units(current, known)]
        _explain(units, known, receipt)
        found = _Sum(units, known)
        doubtful = [patch for patch in found.doubtful() if patch not in receipt]
        if not doubtful:
            return found.result(current)
        # In one file it is proven, in another nobody can tell: then nobody can say that it is
        # ours, and it must not be taken out of the first file either.
        known = [patch for patch in known if patch not in doubtful]


def _units(current: Tree, known: Sequence[Known]) -> list[Unit]:
    """Group paths that renames tie together."""
    group: dict[str, set[str]] = {path: {path} for path in current}
    for patch in known:
        for part in patch.parts:
            if part.source is not None and group[part.source] is not group[part.path]:
                joined = group[part.source] | group[part.path]
                for path in joined:
                    group[path] = joined
    return list(dict.fromkeys(frozenset(paths) for paths in group.values()))


def _explain(units: Sequence[OpenUnit], known: Sequence[Known], receipt: Sequence[Known]) -> None:
    """Try what proves most first: the receipt, whole patches, parts, and what only goes back."""
    tried: set[tuple[frozenset[OpenUnit], frozenset[Known]]] = set()
    for unit in _unproven(units):
        peel(unit, receipt)
    for group in _connected(_unproven(units), known):
        _search(group, _those_whole(group, units, known), tried)
    for unit in _unproven(units):
        # One file that another hand has changed must not hide the patches in all the others.
        _search([unit], _those_whole([unit], units, known), tried)
    # Where few patches can be meant, what is found there says which of many are meant elsewhere.
    for unit in sorted(_unproven(units), key=lambda unit: len(_touching(unit, known))):
        _search([unit], _those_elsewhere_first(unit, units, known), tried)
    for unit in _unproven(units):
        # So many patches that no search gets to the end of them.
        peel(unit, known)
    for unit in _unproven(units):
        mend(unit, receipt)
    for unit in _unproven(units):
        believe(unit, receipt)


def _search(
    units: Sequence[OpenUnit],
    candidates: Sequence[Known],
    tried: set[tuple[frozenset[OpenUnit], frozenset[Known]]],
) -> None:
    """Search, but not for the same a second time."""
    key = (frozenset(units), frozenset(candidates))
    if key not in tried:
        tried.add(key)
        search(units, candidates)


def _unproven(units: Iterable[OpenUnit]) -> list[OpenUnit]:
    return [unit for unit in units if not unit.proven]


def _connected(units: Sequence[OpenUnit], known: Sequence[Known]) -> list[list[OpenUnit]]:
    """Group units that some patch touches together."""
    groups: list[list[OpenUnit]] = [[unit] for unit in units]
    for patch in known:
        touched = [group for group in groups if any(unit.touched_by(patch) for unit in group)]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched]
            groups.append([unit for group in touched for unit in group])
    return groups


def _those_whole(
    group: Sequence[OpenUnit], units: Sequence[OpenUnit], known: Sequence[Known]
) -> list[Known]:
    """Choose the patches that would be in whole if they are in a group, with the other units."""
    others = [unit for unit in units if unit not in group]
    return [
        patch
        for patch in known
        if any(unit.touched_by(patch) for unit in group)
        and all(
            patch in unit.taken or (unit.proven and unit.is_neutral_to([*unit.taken[::-1], patch]))
            for unit in others
            if unit.touched_by(patch)
        )
    ]


def _touching(unit: OpenUnit, known: Sequence[Known]) -> list[Known]:
    return [patch for patch in known if unit.touched_by(patch)]


def _those_elsewhere_first(
    unit: OpenUnit, units: Sequence[OpenUnit], known: Sequence[Known]
) -> list[Known]:
    elsewhere = {patch for other in units for patch in other.taken}
    return sorted(_touching(unit, known), key=lambda patch: patch not in elsewhere)


class _Sum:
    """What the units say together about each patch: the units it is on, and where it lacks."""

    def __init__(self, units: Sequence[OpenUnit], known: Sequence[Known]) -> None:
        self._units = units
        self._on = {
            patch: on for patch in known if (on := [unit for unit in units if patch in unit.taken])
        }
        self._off: dict[Known, list[OpenUnit]] = {patch: [] for patch in self._on}
        for unit in units:
            for patch in self._lacking(unit):
                self._off[patch].append(unit)

    def _lacking(self, unit: OpenUnit) -> list[Known]:
        here = [patch for patch in self._on if unit.touched_by(patch)]
        if unit.torn:
            return list(unit.torn)
        off = [patch for patch in here if patch not in unit.taken]
        # A later patch may have taken back here what an earlier one did.
        if not off or unit.is_neutral_to(here):
            return []
        return [patch for patch in off if not unit.is_neutral_to([*reversed(unit.taken), patch])]

    def doubtful(self) -> list[Known]:
        """Return patches that are on one unit and may or may not be on one that nothing proves."""
        return [
            patch
            for patch, units in self._off.items()
            if any(not unit.proven and not unit.surely_lacks(patch) for unit in units)
        ]

    def result(self, current: Tree) -> Found:
        base = dict(current)
        for unit in self._units:
            base.update(unit.base)
        return Found(
            units=tuple(unit.paths for unit in self._units),
            base=base,
            proven=frozenset(path for unit in self._units if unit.proven for path in unit.paths),
            patches=tuple(patch for patch in self._on if not self._off[patch]),
            partial={
                patch: frozenset(
                    path
                    for unit in self._on[patch]
                    for path in unit.torn.get(patch, [p for p in unit.paths if p in patch.paths])
                )
                for patch in self._on
                if self._off[patch]
            },
        )
