"""Put hunks into a file and take them out again, over lines of bytes.

Always true here: only ``\\n`` ends a line; every context and removed line matches whole or the
hunk has no place; there is no fuzz. A hunk with several places gets one only where something
besides its text says which. Taking out is applying the reversed file diff: there is no second
algorithm.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .diff import FileDiff, Hunk

#: Headings longer than this may have been cut off by the tool that wrote the diff.
_SHORT_HEADING = 39
#: With more equal places than this nobody asks the headings any more.
_MANY_PLACES = 1000


class Placement(NamedTuple):
    """Where one hunk went: ``at`` counts lines of the input from 0, ``offset`` lines moved."""

    hunk: Hunk
    at: int
    offset: int


class Applied(NamedTuple):
    """What a file diff makes of a file: its new bytes (None: no file) and the placements."""

    data: bytes | None
    placements: tuple[Placement, ...] = ()


class Misfit(NamedTuple):
    """Why a file diff can't be applied.

    ``reason`` is ``missing`` (there is no file), ``exists`` (it is to be created and is there),
    ``differs`` (it is to be deleted and holds something else), ``nowhere`` or ``ambiguous``.
    For the last two ``number`` counts the hunks from 1, ``expected`` is the line looked at first
    and ``candidates`` are the equal places; both count from 1.
    """

    reason: str
    number: int = 0
    hunk: Hunk | None = None
    expected: int = 0
    candidates: tuple[int, ...] = ()


class Nearest(NamedTuple):
    """The place that comes closest to a hunk: 1-based ``line``, and the first line that differs.

    ``index`` counts the hunk's old side from 1; ``found`` is None behind the end of the file.
    """

    line: int
    index: int
    expected: bytes
    found: bytes | None


def split(data: bytes) -> list[bytes]:
    """Cut bytes into lines that keep their ends; a carriage return is part of its line."""
    return io.BytesIO(data).readlines()


def _nothing_moved(_line: int) -> int:
    return 0


def apply(
    data: bytes | None,
    diff: FileDiff,
    *,
    trusted: bool = False,
    moved: Callable[[int], int] = _nothing_moved,
) -> Applied | Misfit:
    """Apply one file diff to the bytes of one file (None: there is no such file).

    ``trusted`` says that the lines of the headers are known to be those of this file.
    ``moved`` tells how many lines others added above a header's line.
    """
    if diff.change == "create":
        if data is not None:
            return Misfit(reason="exists")
        return Applied(data=b"".join(line for hunk in diff.hunks for line in hunk.new))
    if data is None:
        return Misfit(reason="missing")
    if diff.change == "delete":
        if data != b"".join(line for hunk in diff.hunks for line in hunk.old):
            return Misfit(reason="differs")
        return Applied(data=None)
    lines = split(data)
    placements = place(lines, diff.hunks, trusted=trusted, moved=moved)
    if isinstance(placements, Misfit):
        return placements
    return Applied(data=_join(lines, placements), placements=placements)


def _join(lines: Sequence[bytes], placements: Sequence[Placement]) -> bytes:
    out: list[bytes] = []
    done = 0
    for placement in placements:
        out += lines[done : placement.at]
        out += placement.hunk.new
        done = placement.at + len(placement.hunk.old)
    out += lines[done:]
    return b"".join(out)


def place(
    lines: Sequence[bytes],
    hunks: Sequence[Hunk],
    *,
    trusted: bool = False,
    moved: Callable[[int], int] = _nothing_moved,
) -> tuple[Placement, ...] | Misfit:
    """Find the one right place of every hunk, in order, or say which has none."""
    exact = _all_at_their_lines(lines, hunks, trusted=trusted, moved=moved)
    if exact is not None:
        return exact
    index = _index(lines)
    placements: list[Placement] = []
    low = offset = 0
    for number, hunk in enumerate(hunks, 1):
        header = _first_line(hunk)
        expected = header + offset + moved(hunk.old_start)
        at = _one_place(lines, index, hunk, low=low, expected=expected, trusted=trusted)
        if not isinstance(at, int):
            found = tuple(place + 1 for place in at)
            reason = "ambiguous" if found else "nowhere"
            return Misfit(
                reason=reason, number=number, hunk=hunk, expected=expected + 1, candidates=found
            )
        offset += at - expected
        placements.append(Placement(hunk=hunk, at=at, offset=offset))
        low = at + len(hunk.old)
    return tuple(placements)


def _first_line(hunk: Hunk) -> int:
    """The 0-based line a header names: ``-N,0`` means behind line N, ``-N,M`` at line N."""
    return hunk.old_start - 1 if hunk.old else hunk.old_start


def _all_at_their_lines(
    lines: Sequence[bytes],
    hunks: Sequence[Hunk],
    *,
    trusted: bool,
    moved: Callable[[int], int],
) -> tuple[Placement, ...] | None:
    """All hunks fit where their headers say: then equal blocks elsewhere do not matter."""
    placements: list[Placement] = []
    low = 0
    for hunk in hunks:
        at = _first_line(hunk) + moved(hunk.old_start)
        if at < low or not _fits(lines, hunk, at) or not _may_stand_alone(lines, hunk, trusted):
            return None
        placements.append(Placement(hunk=hunk, at=at, offset=0))
        low = at + len(hunk.old)
    return tuple(placements)


def _may_stand_alone(lines: Sequence[bytes], hunk: Hunk, trusted: bool) -> bool:
    """A hunk without old lines names a place by number only, which is no proof of anything."""
    return bool(hunk.old) or trusted or not lines


def _fits(lines: Sequence[bytes], hunk: Hunk, at: int) -> bool:
    end = at + len(hunk.old)
    if at < 0 or end > len(lines):
        return False
    if hunk.leading < hunk.trailing and hunk.old_start <= 1 and at != 0:
        return False
    if hunk.leading and not hunk.trailing and end != len(lines):
        return False
    if not _ends_stay_ends(lines, hunk, at, end):
        return False
    return list(hunk.old) == list(lines[at:end])


def _ends_stay_ends(lines: Sequence[bytes], hunk: Hunk, at: int, end: int) -> bool:
    """A line without a newline can only be the last one of the file, before and after."""
    if not hunk.new:
        return True
    if end < len(lines):
        return hunk.new[-1].endswith(b"\n")
    return at == 0 or lines[at - 1].endswith(b"\n")


def _index(lines: Sequence[bytes]) -> dict[bytes, list[int]]:
    index: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        index.setdefault(line, []).append(number)
    return index


def _one_place(
    lines: Sequence[bytes],
    index: dict[bytes, list[int]],
    hunk: Hunk,
    *,
    low: int,
    expected: int,
    trusted: bool,
) -> int | list[int]:
    """The place at or behind ``low``; or all places there are, when that is not exactly one."""
    if not _may_stand_alone(lines, hunk, trusted):
        return []
    if (trusted or not hunk.old) and expected >= low and _fits(lines, hunk, expected):
        return expected
    if not hunk.old:
        return []
    places = _places(lines, index, hunk, low)
    if len(places) == 1:
        return places[0]
    if hunk.heading and len(places) <= _MANY_PLACES:
        under = [at for at in places if _is_under(lines, at, hunk.heading)]
        if len(under) == 1:
            return under[0]
    return places


def _places(
    lines: Sequence[bytes], index: dict[bytes, list[int]], hunk: Hunk, low: int
) -> list[int]:
    """All places at or behind ``low``, found by way of the hunk's rarest line."""
    rarest, seen = 0, len(lines) + 1
    for number, line in enumerate(hunk.old):
        count = len(index.get(line, ()))
        if count < seen:
            rarest, seen = number, count
    positions = index.get(hunk.old[rarest], [])
    start = bisect_left(positions, low + rarest)
    return [at - rarest for at in positions[start:] if _fits(lines, hunk, at - rarest)]


def _is_under(lines: Sequence[bytes], at: int, heading: bytes) -> bool:
    """Is ``heading`` what a diff tool would have put behind the second ``@@`` for this place?

    Tools take the nearest line above that begins in the first column with a letter, an
    underscore or a dollar sign, or, told that the file is Python, the nearest class or def.
    """
    flush = python = False
    for line in reversed(lines[:at]):
        text = line.strip()
        if not python and text.startswith((b"class ", b"def ", b"async def ")):
            if _is_heading(text, heading):
                return True
            python = True
        if not flush and (line[:1].isalpha() or line[:1] in (b"_", b"$")):
            if _is_heading(text, heading):
                return True
            flush = True
        if flush and python:
            break
    return False


def _is_heading(text: bytes, heading: bytes) -> bool:
    return text == heading or (len(heading) >= _SHORT_HEADING and text.startswith(heading))


def nearest(data: bytes, misfit: Misfit) -> Nearest | None:
    """Find where the hunk of a misfit comes closest to having a place; None: nowhere at all.

    The place with the most equal lines counts, of several the one nearest to the expected line.
    """
    hunk = misfit.hunk
    if hunk is None or not hunk.old:
        return None
    lines = split(data)
    index = _index(lines)
    votes: dict[int, int] = {}
    for number, line in enumerate(hunk.old):
        positions = index.get(line, [])
        # Common lines (blank ones, closing brackets) say nothing about the place.
        if not line.strip() or len(positions) > _MANY_PLACES:
            continue
        for position in positions:
            at = position - number
            votes[at] = votes.get(at, 0) + 1
    if not votes:
        return None
    at = min(votes, key=lambda place: (-votes[place], abs(place + 1 - misfit.expected)))
    for number, line in enumerate(hunk.old):
        found = lines[at + number] if 0 <= at + number < len(lines) else None
        if found != line:
            return Nearest(line=at + 1, index=number + 1, expected=line, found=found)
    # All lines are equal: the hunk belongs to an end of the file and this is not it.
    return Nearest(line=at + 1, index=len(hunk.old), expected=hunk.old[-1], found=None)
