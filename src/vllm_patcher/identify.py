"""From the bytes on disk and the known patches to the base and the set that was found.

Always true here: a patch counts as found because taking it out leads to bytes whose digest is
the released one, and putting it back gives the bytes on disk. Only where there is no such proof,
and only for patches of the receipt, is putting back alone enough. What upstream or somebody else
has put in therefore never counts as found.

Files are looked at in units: a file by itself, or the files that a rename ties together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from .stack import Known, Stack, Tree, take

#: Trees looked at in one search before it is given up: the files are then `modified`.
_SEARCH_LIMIT = 500

Unit = frozenset[str]
#: Does a path hold what was released? Bytes, or None where there is no file.
Pristine = Callable[[str, bytes | None], bool]


class Found(NamedTuple):
    """What an install consists of.

    ``base`` has every found patch taken out; ``proven`` are the paths where that is the released
    file. ``patches`` are in whole, in the order they lie on the base. ``partial`` maps patches of
    which only some files are there to those paths. ``units`` are the paths that go together.
    """

    units: tuple[Unit, ...]
    base: Tree
    proven: frozenset[str]
    patches: tuple[Known, ...]
    partial: Mapping[Known, frozenset[str]]

    def on(self, path: str) -> tuple[Known, ...]:
        """The patches that are on one path, whole or in part."""
        parts = [patch for patch, paths in self.partial.items() if path in paths]
        return tuple(patch for patch in self.patches if path in patch.paths) + tuple(parts)


def identify(
    current: Tree, known: Sequence[Known], receipt: Sequence[Known], pristine: Pristine
) -> Found:
    """Find the base of a tree and the known patches that are on it.

    ``known`` is in series order and holds those of ``receipt``, which are in the order they were
    put on. ``current`` holds every path of every known patch.
    """
    while True:
        units = [_Unit(paths, current, pristine) for paths in _units(current, known)]
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


class _Unit:
    """One unit while it is being explained: ``taken`` lists patches, the last put on first."""

    def __init__(self, paths: Unit, current: Tree, pristine: Pristine) -> None:
        self.paths = paths
        self.current: Tree = {path: current[path] for path in sorted(paths)}
        self.base = self.current
        self.taken: tuple[Known, ...] = ()
        self._pristine = pristine
        self.proven = self.is_pristine(self.current)

    def is_pristine(self, files: Tree) -> bool:
        return all(self._pristine(path, files[path]) for path in self.paths)

    def touched_by(self, patch: Known) -> bool:
        return not self.paths.isdisjoint(patch.paths)

    def settle(self, base: Tree, taken: Sequence[Known], *, proven: bool) -> None:
        self.base = {path: base[path] for path in self.current}
        self.taken = tuple(patch for patch in taken if self.touched_by(patch))
        self.proven = proven

    def without(
        self, files: Tree, patch: Known, *, trusted: bool, beneath: Iterable[Known]
    ) -> Tree | None:
        return take(files, patch, trusted=trusted, beneath=beneath, only=self.paths)


def _explain(units: Sequence[_Unit], known: Sequence[Known], receipt: Sequence[Known]) -> None:
    for unit in _unproven(units):
        _peel(unit, receipt, trusted=True)
    for group in _connected(_unproven(units), known):
        _search_whole(group, known)
    for unit in _unproven(units):
        _search([unit], [patch for patch in known if unit.touched_by(patch)])
    for unit in _unproven(units):
        _peel(unit, receipt, trusted=False)


def _unproven(units: Iterable[_Unit]) -> list[_Unit]:
    return [unit for unit in units if not unit.proven]


def _peel(unit: _Unit, receipt: Sequence[Known], *, trusted: bool) -> None:
    """Take the receipt's patches out, the last one first, and stop as soon as that proves it.

    With ``trusted`` only a proof counts. Without, what comes out and goes back in counts.
    """
    own = [patch for patch in receipt if unit.touched_by(patch)]
    files = unit.current
    taken: list[Known] = []
    for position in range(len(own) - 1, -1, -1):
        less = unit.without(files, own[position], trusted=trusted, beneath=own[:position])
        if less is None:
            continue
        if trusted:
            files = less
            taken.append(own[position])
            if unit.is_pristine(files) and _goes_back(files, taken, unit.current):
                unit.settle(files, taken, proven=True)
                return
        elif _goes_back(less, [*taken, own[position]], unit.current):
            files = less
            taken.append(own[position])
    if not trusted:
        unit.settle(files, taken, proven=False)


def _goes_back(base: Tree, taken: Sequence[Known], current: Tree) -> bool:
    stack = Stack(base)
    for patch in reversed(taken):
        if stack.put(patch, only=frozenset(base)):
            return False
    return all(stack.files[path] == current[path] for path in current)


def _connected(units: Sequence[_Unit], known: Sequence[Known]) -> list[list[_Unit]]:
    """Group units that some patch touches together."""
    groups: list[list[_Unit]] = [[unit] for unit in units]
    for patch in known:
        touched = [group for group in groups if any(unit.touched_by(patch) for unit in group)]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched]
            groups.append([unit for group in touched for unit in group])
    return groups


def _search_whole(group: Sequence[_Unit], known: Sequence[Known]) -> None:
    """Explain units together by patches that are in whole."""
    paths = frozenset(path for unit in group for path in unit.paths)
    _search(group, [patch for patch in known if paths.issuperset(patch.paths)])


def _search(units: Sequence[_Unit], candidates: Sequence[Known]) -> None:
    """Look for patches whose removal proves all the units: fewest first, in any order, bounded."""
    start = {path: data for unit in units for path, data in unit.current.items()}
    frontier: list[tuple[Tree, tuple[Known, ...]]] = [(start, ())]
    seen = {_key(start)}
    while frontier:
        following: list[tuple[Tree, tuple[Known, ...]]] = []
        for files, taken in frontier:
            for patch in candidates:
                if patch in taken:
                    continue
                less = take(files, patch, trusted=True, only=start)
                if less is None or _key(less) in seen:
                    continue
                seen.add(_key(less))
                step = (*taken, patch)
                if all(unit.is_pristine(less) for unit in units) and _goes_back(less, step, start):
                    for unit in units:
                        unit.settle(less, step, proven=True)
                    return
                if len(seen) > _SEARCH_LIMIT:
                    return
                following.append((less, step))
        frontier = following


def _key(files: Tree) -> tuple[bytes | None, ...]:
    return tuple(files.values())


class _Sum:
    """What the units say together about each patch."""

    def __init__(self, units: Sequence[_Unit], known: Sequence[Known]) -> None:
        self._units = units
        self._on: dict[Known, list[_Unit]] = {}
        self._off: dict[Known, list[_Unit]] = {}
        for patch in known:
            touched = [unit for unit in units if unit.touched_by(patch)]
            on = [unit for unit in touched if patch in unit.taken]
            if on:
                self._on[patch] = on
                self._off[patch] = [
                    unit for unit in touched if unit not in on and not _neutral(unit, patch)
                ]

    def doubtful(self) -> list[Known]:
        """Patches that are on one unit and may or may not be on one that nothing proves."""
        return [
            patch for patch, units in self._off.items() if any(not unit.proven for unit in units)
        ]

    def result(self, current: Tree) -> Found:
        base: dict[str, bytes | None] = dict(current)
        for unit in self._units:
            base.update(unit.base)
        whole = [patch for patch in self._on if not self._off[patch]]
        return Found(
            units=tuple(unit.paths for unit in self._units),
            base=base,
            proven=frozenset(path for unit in self._units if unit.proven for path in unit.paths),
            patches=tuple(_in_order(whole, self._units)),
            partial={
                patch: frozenset(path for unit in self._on[patch] for path in unit.paths)
                & frozenset(patch.paths)
                for patch in self._on
                if self._off[patch]
            },
        )


def _neutral(unit: _Unit, patch: Known) -> bool:
    """Does the patch change nothing in this unit, though it has parts there?"""
    stack = Stack(unit.base)
    return not stack.put(patch, only=unit.paths) and stack.files == unit.base


def _in_order(patches: Sequence[Known], units: Sequence[_Unit]) -> list[Known]:
    """Keep the series order where the units do not say otherwise."""
    order = list(patches)
    for unit in units:
        on = [patch for patch in reversed(unit.taken) if patch in order]
        places = sorted(order.index(patch) for patch in on)
        for place, patch in zip(places, on, strict=True):
            order[place] = patch
    return order
