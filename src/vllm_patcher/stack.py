"""Trees with patches put on and taken off again, in memory.

Always true here: a tree maps paths of the package to bytes, or to None where there is no file;
trees are not changed, new ones are returned. A patch goes on whole or not at all.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from vllm_patcher.digests import sha256
from vllm_patcher.hunks import (
    Applied,
    Misfit,
    Moved,
    Placement,
    apply,
    first_line,
    nothing_moved,
    split,
)
from vllm_patcher.likeness import Likeness
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.diff import Hunk
    from vllm_patcher.known import Known
    from vllm_patcher.paths import Part

Tree = Mapping[str, bytes | None]

#: Shorter ids of git are too easily equal by chance.
_SHORTEST_BLOB_ID = 7


class Problem(Value):
    """A part that has no place: its path, why, and the bytes it was tried on."""

    path: str
    misfit: Misfit
    data: bytes | None


class Stack:
    """Patches put on a base one after the other.

    Knows where each put lines, so that a patch whose headers count the lines of the base is
    looked for in the right place above the others.
    """

    def __init__(self, base: Tree) -> None:
        self.base = base
        self.files: Tree = base
        self.placements: dict[tuple[str, str], tuple[Placement, ...]] = {}
        self._log: dict[str, list[_Growth]] = {}

    def put(self, patch: Known, *, only: Collection[str] | None = None) -> list[Problem]:
        """Put a patch on, or only its parts in some paths; return why not, all at once.

        Nothing is put on when anything is returned.
        """
        files = dict(self.files)
        log = dict(self._log)
        placements: dict[tuple[str, str], tuple[Placement, ...]] = {}
        problems: list[Problem] = []
        failed: set[str] = set()
        for number in patch.numbers(only):
            part = patch.parts[number]
            source = part.source or part.path
            if failed & {part.path, source}:
                # What builds on a part that failed is no problem of its own.
                failed.add(part.path)
                continue
            result = _run(
                files,
                part,
                trusted=self.listed(patch, source),
                moved=_moved(log, part, patch),
            )
            if isinstance(result, Problem):
                problems.append(result)
                failed.add(part.path)
                continue
            key = (patch.id, part.path)
            placements[key] = placements.get(key, ()) + result.placements
            _note(log, part, patch, result.placements)
        if not problems:
            self.files, self._log = files, log
            self.placements.update(placements)
        return problems

    def listed(self, patch: Known, path: str) -> bool:
        """Say whether the base's bytes at a path are a released file listed for this patch."""
        data = self.base.get(path)
        digests = patch.listed.get(path, frozenset())
        return bool(digests) and data is not None and sha256(data) in digests


def take(
    files: Tree,
    patch: Known,
    *,
    trusted: bool,
    beneath: Iterable[Known] = (),
    only: Collection[str] | None = None,
    strict: bool = False,
    surely: bool = False,
) -> dict[str, bytes | None] | None:
    """Take a patch off a tree, or only its parts in some paths; None: it is not on there.

    ``trusted`` lets a header's line number decide where the text does not; what comes out must
    then be proven by its digest. ``beneath`` are the patches that stay on. ``strict`` says that
    what only puts lines in, and so finds nothing that the patch had put there, is to stand at its
    line. ``surely`` also refuses where the change could be left to do elsewhere.
    """
    result = dict(files)
    beneath = tuple(beneath)
    for place in reversed(patch.numbers(only)):
        moved = _estimate(place, patch, beneath)
        back = patch.backwards(place)
        before = result.get(back.source or back.path)
        out = _run(result, back, trusted=trusted, moved=moved)
        if isinstance(out, Problem):
            return None
        if strict and not _at_known_lines(out.placements, moved):
            return None
        if surely and _is_left_to_do(out.placements, before or b""):
            return None
    return result


def _at_known_lines(placements: Sequence[Placement], moved: Moved) -> bool:
    """Say whether hunks that take nothing out stand no farther off than those next to them do."""
    telling = [_tells(placement.hunk) for placement in placements]
    below: int | None = None
    nexts: list[int | None] = []
    for placement, tells in zip(reversed(placements), reversed(telling), strict=True):
        below = placement.offset if tells else below
        nexts.append(below)
    above = 0
    for placement, tells, below in zip(placements, telling, reversed(nexts), strict=True):
        if tells:
            above = placement.offset
        elif placement.offset not in (above, below) and moved(placement.hunk) is not None:
            return False
    return True


def _tells(hunk: Hunk) -> bool:
    """Say whether a hunk takes something out: where that is says where the hunk belongs.

    Lines without any around them may stand anywhere for other reasons.
    """
    changed = hunk.old[hunk.leading : len(hunk.old) - hunk.trailing]
    told = bool(hunk.removed) and any(line.strip() for line in changed)
    return told and bool(hunk.leading or hunk.trailing)


def _is_left_to_do(placements: Sequence[Placement], data: bytes) -> bool:
    """Say whether hunks that would come out away from their line could still have to go in.

    That is so if lines like those that a hunk puts back stand where those that it takes out do
    not: then the lines that were found are a twin's, and those that are meant lack the change.
    """
    moved = [placement for placement in placements if placement.offset]
    if not moved:
        return False
    likeness = Likeness(split(data))
    return any(likeness.stands_apart(each.hunk.new, each.hunk.old) for each in moved)


def _run(
    files: dict[str, bytes | None], part: Part, *, trusted: bool, moved: Moved
) -> Applied | Problem:
    """Apply one part to a tree in place."""
    path = part.source or part.path
    data = files.get(path)
    if part.source is not None and files.get(part.path) is not None:
        return Problem(path=part.path, misfit=Misfit(reason="exists"), data=files[part.path])
    told = trusted and moved is nothing_moved
    if not told and data is not None and _is_blob(data, part.diff.old_blob):
        # The diff was made from these very bytes, with all that others have put into them.
        trusted, moved = True, nothing_moved
    result = apply(data, part.diff, trusted=trusted, moved=moved)
    if isinstance(result, Misfit):
        return Problem(path=path, misfit=result, data=data)
    if part.source is not None:
        files[part.source] = None
    files[part.path] = result.data
    return result


class _Growth(NamedTuple):
    """One change by a patch: from a 0-based line on ``taken`` lines gave way to ``lines`` more."""

    at: int
    taken: int
    lines: int
    owner: str


def _growth(hunk: Hunk, at: int, owner: str) -> _Growth:
    taken = len(hunk.old) - hunk.leading - hunk.trailing
    return _Growth(at + hunk.leading, taken, hunk.added - hunk.removed, owner)


def _grown(
    growths: Sequence[_Growth], placements: Sequence[Placement], owner: str
) -> list[_Growth]:
    """The growths of a file after one more patch, in the lines of the file it has made."""
    # Each side counts without the other; merged from the top, each moves by what is above it.
    merged: list[_Growth] = []
    below = first = 0
    for placement in placements:
        growth = _growth(placement.hunk, placement.at, owner)
        while first < len(growths) and growths[first].at < growth.at:
            merged.append(growths[first]._replace(at=growths[first].at + below))
            first += 1
        merged.append(growth._replace(at=growth.at + below))
        below += growth.lines
    merged += [old._replace(at=old.at + below) for old in growths[first:]]
    return merged


def _note(
    log: dict[str, list[_Growth]], part: Part, patch: Known, placements: Sequence[Placement]
) -> None:
    """Write down what a part has done to the lines of its file."""
    growths = log.pop(part.source or part.path, [])
    # A new file has its own lines, a file that is no more has none.
    if part.diff.change not in ("create", "delete"):
        log[part.path] = _grown(growths, placements, patch.id)


def _moved(log: Mapping[str, Sequence[_Growth]], part: Part, patch: Known) -> Moved:
    """How far others moved the hunks of a part, whose headers count lines without theirs."""
    counted: list[_Growth] = []
    total = least = 0
    for growth in log.get(part.source or part.path, ()):
        if growth.owner != patch.id and growth.owner not in patch.requires:
            # A change within lines that others had added stands, without them, at their place.
            least = max(growth.at - total, least)
            counted.append(growth._replace(at=least))
            total += growth.lines
    return _Shift(counted).of if counted else nothing_moved


def _estimate(place: int, patch: Known, beneath: Sequence[Known]) -> Moved:
    """How far those below moved what comes out with a part, going by all their headers."""
    part = patch.parts[place]
    names = {part.source or part.path}
    below = [(patch, patch.leading_to(names, place))]
    below += [(other, other.leading_to(names, len(other.parts))) for other in reversed(beneath)]
    log: dict[str, list[_Growth]] = {}
    for other, numbers in reversed(below):
        for number in reversed(numbers):
            each = other.parts[number]
            moved = _moved(log, each, other)
            placements = [
                Placement(hunk, first_line(hunk.old_start, hunk.old) + (moved(hunk) or 0), 0)
                for hunk in each.diff.hunks
            ]
            _note(log, each, other, placements)
    forward = _moved(log, part, patch)
    return forward if forward is nothing_moved else lambda hunk: forward(hunk.reversed())


class _Shift:
    """How far changes, placed in the lines before all of them, move what is below them."""

    def __init__(self, growths: Iterable[_Growth]) -> None:
        ordered = sorted(growths)
        self._starts = [growth.at for growth in ordered]
        self._ends = list(accumulate((growth.at + growth.taken for growth in ordered), max))
        self._sums = [0, *accumulate(growth.lines for growth in ordered)]

    def of(self, hunk: Hunk) -> int | None:
        """Say how far its lines moved; None if a change took the first or stands around it."""
        at = first_line(hunk.old_start, hunk.old)
        # What was put in at the same place stands above lines, but below an empty side.
        count = bisect_right(self._starts, at) if hunk.old else bisect_left(self._starts, at)
        if count and at < self._ends[count - 1]:
            return None
        return self._sums[count]


def _is_blob(data: bytes, blob: str) -> bool:
    """Say whether git's id of some bytes begins with an id that is long enough to count."""
    if len(blob) < _SHORTEST_BLOB_ID:
        return False
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest().startswith(blob)
