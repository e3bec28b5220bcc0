"""The files of one unit, and the ways to explain what is in them by known patches.

Always true here: a case counts as proven only if what is left is released to the byte and the
patches taken out, put back, give the bytes on disk again; but for a renamed file that is there
under both names with the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vllm_patcher.stack import Stack, Tree, take

if TYPE_CHECKING:
    from vllm_patcher.known import Known

#: Patches tried in one search before it is given up.
_SEARCH_LIMIT = 1000

Unit = frozenset[str]
#: Does a path hold what was released? Bytes, or None where there is no file.
Pristine = Callable[[str, bytes | None], bool]


class OpenUnit:
    """One unit while it is being explained: ``taken`` lists patches, the last put on first.

    ``torn`` are those of them that rename a file which is there under both names, and the paths
    that are as the patch makes them.
    """

    def __init__(self, paths: Unit, current: Tree, pristine: Pristine) -> None:
        self.paths = paths
        self.current: Tree = {path: current[path] for path in sorted(paths)}
        self.base = self.current
        self.taken: tuple[Known, ...] = ()
        self.torn: Mapping[Known, Unit] = {}
        self._pristine = pristine
        self.proven = self.is_pristine(self.current)

    def is_pristine(self, files: Tree) -> bool:
        """Say whether a tree holds what was released at all paths of this unit."""
        return all(self._pristine(path, files[path]) for path in self.paths)

    def touched_by(self, patch: Known) -> bool:
        """Say whether a patch has parts here."""
        return patch.touches(self.paths)

    def settle(self, base: Tree, taken: Sequence[Known], *, proven: bool) -> None:
        """Explain the unit; both may hold what belongs to others."""
        self.base = {path: base[path] for path in self.current}
        self.taken = tuple(patch for patch in taken if self.touched_by(patch))
        self.proven = proven

    def surely_lacks(self, patch: Known) -> bool:
        """Say whether the patch goes on the base of this unit and could not come out of it."""
        out = take(self.base, patch, trusted=False, only=self.paths)
        return out is None and not Stack(self.base).put(patch, only=self.paths)

    def is_neutral_to(self, patches: Iterable[Known]) -> bool:
        """Say whether patches that have parts here give what is here anyhow."""
        stack = Stack(self.base)
        fits = not any(stack.put(patch, only=self.paths) for patch in patches)
        return fits and stack.files == self.current


def peel(unit: OpenUnit, order: Sequence[Known]) -> None:
    """Take patches out, the last of an order first, and stop as soon as that proves it."""
    own = [patch for patch in order if unit.touched_by(patch)]
    files = unit.current
    taken: list[Known] = []
    for position in range(len(own) - 1, -1, -1):
        patch = own[position]
        less = take(files, patch, trusted=True, beneath=own[:position], only=unit.paths)
        # A patch that changes nothing here comes out of anything.
        if less is None or less == files or _has_revision_of(patch, taken):
            continue
        files = less
        taken.append(patch)
        if unit.is_pristine(files) and _goes_back(files, taken, unit.current):
            unit.settle(files, taken, proven=True)
            return


def mend(unit: OpenUnit, receipt: Sequence[Known]) -> None:
    """A run was killed while the receipt's patches renamed a file: it is there twice."""
    files = unit.current
    taken: list[Known] = []
    torn: dict[Known, Unit] = {}
    between: dict[str, bytes | None] = {}
    for patch in [patch for patch in reversed(receipt) if unit.touched_by(patch)]:
        twice = {
            part.source: None
            for part in patch.parts
            if part.source in unit.paths and files[part.source] is not None
        }
        less = take({**files, **twice}, patch, trusted=True, only=unit.paths)
        if less is None or less == files:
            continue
        if twice:
            between.update({path: less[path] for path in twice})
            torn[patch] = unit.paths.intersection(patch.paths).difference(twice)
        files = less
        taken.append(patch)
    # What is still there under the old name is the file as that patch found it, or, if it was not
    # the first to change it, as it was released.
    left = all(unit.current[path] in (data, files[path]) for path, data in between.items())
    if torn and left and unit.is_pristine(files):
        unit.settle(files, taken, proven=True)
        unit.torn = torn


def believe(unit: OpenUnit, receipt: Sequence[Known]) -> None:
    """Nothing is proven: the receipt's patches count that come out and go back in."""
    own = [patch for patch in receipt if unit.touched_by(patch)]
    files = unit.current
    taken: list[Known] = []
    for position in range(len(own) - 1, -1, -1):
        patch = own[position]
        less = take(files, patch, trusted=False, beneath=own[:position], only=unit.paths)
        if less is None or less == files:
            continue
        if _goes_back(less, [*taken, patch], unit.current):
            files = less
            taken.append(patch)
    unit.settle(files, taken, proven=False)


def _goes_back(base: Tree, taken: Sequence[Known], current: Tree) -> bool:
    stack = Stack(base)
    paths = frozenset(base)
    return not any(stack.put(patch, only=paths) for patch in reversed(taken)) and all(
        stack.files[path] == current[path] for path in current
    )


def search(units: Sequence[OpenUnit], candidates: Sequence[Known]) -> None:
    """Look for patches whose removal proves all the units: fewest first, in any order, bounded."""
    start = {path: data for unit in units for path, data in unit.current.items()}
    frontier: list[tuple[Tree, tuple[Known, ...]]] = [(start, ())]
    seen = {_key(start)}
    tried = 0
    while frontier:
        following: list[tuple[Tree, tuple[Known, ...]]] = []
        for files, taken in frontier:
            for patch in candidates:
                if _has_revision_of(patch, taken) or not _may_be_in(files, patch, start):
                    continue
                tried += 1
                if tried > _SEARCH_LIMIT:
                    return
                less = take(files, patch, trusted=True, only=start)
                if less is None or _key(less) in seen:
                    continue
                seen.add(_key(less))
                step = (*taken, patch)
                if all(unit.is_pristine(less) for unit in units) and _goes_back(less, step, start):
                    for unit in units:
                        unit.settle(less, step, proven=True)
                    return
                following.append((less, step))
        frontier = following


def _may_be_in(files: Tree, patch: Known, only: Collection[str]) -> bool:
    """Rule out cheaply what `take` would refuse: text of the last part that is not there."""
    last = {part.path: part.diff for part in patch.parts if part.path in only}
    for path, diff in last.items():
        data = files[path]
        if data is None:
            if diff.change != "delete":
                return False
        elif not all(b"".join(hunk.new) in data for hunk in diff.hunks):
            return False
    return True


def _has_revision_of(patch: Known, taken: Iterable[Known]) -> bool:
    """Two revisions of one id are never on one file: the second replaces the first."""
    return any(patch.id == other.id for other in taken)


def _key(files: Tree) -> tuple[bytes | None, ...]:
    return tuple(files.values())
