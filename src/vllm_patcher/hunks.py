r"""Put hunks into a file and take them out again, over lines of bytes.

Always true here: only ``\n`` ends a line; every context and removed line matches whole or the
hunk has no place; there is no fuzz. A hunk with several places gets one only where something
besides its text says which, and none that its heading speaks against. Taking out is applying the
reversed file diff: there is no second algorithm.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from vllm_patcher.diff import FileDiff, Hunk
from vllm_patcher.likeness import Likeness
from vllm_patcher.lines import Headings, Text
from vllm_patcher.values import Value

#: With more equal places than this nobody asks the headings any more, nor looks for others.
_MANY_PLACES = 1000


class Placement(NamedTuple):
    """Where one hunk went: ``at`` counts lines of the input from 0, ``offset`` lines moved."""

    hunk: Hunk
    at: int
    offset: int


class Applied(Value):
    """What a file diff makes of a file: its new bytes (None: no file) and the placements."""

    data: bytes | None
    placements: tuple[Placement, ...] = ()


class Misfit(Value):
    """Why a file diff can't be applied.

    ``reason`` is ``missing`` (there is no file), ``exists`` (it is to be created and is there),
    ``differs`` (it is to be deleted and holds something else), ``nowhere``, ``ambiguous`` or
    ``elsewhere`` (it fits only where its heading says that it does not belong). For the last three
    ``number`` counts the hunks from 1, ``expected`` is the line looked at first and ``candidates``
    are the equal places, the first thousand at most; both count from 1.
    """

    reason: str
    number: int = 0
    hunk: Hunk | None = None
    expected: int = 0
    candidates: tuple[int, ...] = ()


class Nearest(Value):
    """The place that comes closest to a hunk: 1-based ``line``, and the first line that differs.

    ``index`` counts the hunk's old side from 1; ``found`` is None behind the end of the file.
    Where all lines are equal but the file should begin or end with them, ``expected`` is empty
    and ``index`` that of the line before the first or behind the last.
    """

    line: int
    index: int
    expected: bytes
    found: bytes | None


def split(data: bytes) -> list[bytes]:
    """Cut bytes into lines that keep their ends; a carriage return is part of its line."""
    return io.BytesIO(data).readlines()


def first_line(start: int, side: Sequence[bytes]) -> int:
    """Return the 0-based line a header means: ``N,0`` is behind line N, ``N,M`` at line N."""
    return start - 1 if side else start


#: How many lines others added above a hunk's lines; None if they have changed those very lines.
Moved = Callable[[Hunk], int | None]


def nothing_moved(_hunk: Hunk) -> int:
    """Nobody else has changed the file."""
    return 0


def apply(
    data: bytes | None,
    diff: FileDiff,
    *,
    trusted: bool = False,
    moved: Moved = nothing_moved,
) -> Applied | Misfit:
    """Apply one file diff to the bytes of one file (None: there is no such file).

    ``trusted`` says that the headers count the lines of this very file, but for what ``moved``
    says that others did to it.
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
    moved: Moved = nothing_moved,
) -> tuple[Placement, ...] | Misfit:
    """Find the one right place of every hunk, in order, or say which has none."""
    headings = Headings(lines, hunks)
    exact = _all_at_their_lines(lines, hunks, headings, trusted=trusted, moved=moved)
    if exact is not None:
        return exact
    text = Text(lines)
    headings.restart()
    placements: list[Placement] = []
    low = offset = 0
    for number, hunk in enumerate(hunks, 1):
        shift = moved(hunk)
        expected = first_line(hunk.old_start, hunk.old) + offset + (shift or 0)
        by_line = trusted and shift is not None and expected >= low
        if by_line and _fits(lines, hunk, expected):
            reason, places = "", [expected]
        else:
            places = _places(text, hunk, low)
            reason, places = _choose(places, hunk, headings, trusted=trusted)
        if reason:
            return Misfit(
                reason=reason,
                number=number,
                hunk=hunk,
                expected=max(expected, 0) + 1,
                candidates=tuple(place + 1 for place in places[:_MANY_PLACES]),
            )
        at = places[0]
        headings.passed(hunk, at)
        offset += at - expected
        placements.append(Placement(hunk=hunk, at=at, offset=offset))
        low = at + len(hunk.old)
    return tuple(placements)


def _all_at_their_lines(
    lines: Sequence[bytes],
    hunks: Sequence[Hunk],
    headings: Headings,
    *,
    trusted: bool,
    moved: Moved,
) -> tuple[Placement, ...] | None:
    """All hunks fit where their headers say: then equal blocks elsewhere do not matter."""
    placements: list[Placement] = []
    low = 0
    for hunk in hunks:
        shift = moved(hunk)
        if shift is None or not _may_stand_alone(lines, hunk, trusted=trusted):
            return None
        at = first_line(hunk.old_start, hunk.old) + shift
        if at < low or not _fits(lines, hunk, at):
            return None
        if not trusted:
            if not headings.allowed(hunk, [at]):
                return None
            headings.passed(hunk, at)
        placements.append(Placement(hunk=hunk, at=at, offset=0))
        low = at + len(hunk.old)
    return tuple(placements)


def _may_stand_alone(lines: Sequence[bytes], hunk: Hunk, *, trusted: bool) -> bool:
    """A hunk without old lines names a place by number only, which is no proof of anything."""
    return bool(hunk.old) or trusted or not lines


def _fits(lines: Sequence[bytes], hunk: Hunk, at: int) -> bool:
    end = at + len(hunk.old)
    return (
        0 <= at <= end <= len(lines)
        and (at == 0 or not _begins_file(hunk))
        and (end == len(lines) or not _ends_file(hunk))
        and (at == 0 or not hunk.new or lines[at - 1].endswith(b"\n"))
        and hunk.old == tuple(lines[at:end])
    )


def _begins_file(hunk: Hunk) -> bool:
    """Context is cut short only by the beginning of the file, which counts as context then."""
    return hunk.leading < hunk.trailing and hunk.old_start <= 1


def _ends_file(hunk: Hunk) -> bool:
    """The same at the end; besides, a line without a newline can only be the last one."""
    if hunk.leading and not hunk.trailing:
        return True
    return _is_open(hunk.old) or _is_open(hunk.new)


def _is_open(side: Sequence[bytes]) -> bool:
    return bool(side) and not side[-1].endswith(b"\n")


def _choose(
    places: list[int], hunk: Hunk, headings: Headings, *, trusted: bool
) -> tuple[str, list[int]]:
    """Choose the one place and no reason; or say why there is none, and name the candidates."""
    if not places or len(places) > _MANY_PLACES:
        return "ambiguous" if places else "nowhere", places
    allowed = places if trusted else headings.allowed(hunk, places)
    if len(allowed) == 1:
        return "", allowed
    if not allowed:
        # The only place there is, and nothing like it where the heading says: the code moved.
        alone = len(places) == 1 and not headings.claims(hunk)
        return ("", places) if alone else ("elsewhere", places)
    under = [at for at in allowed if hunk.heading and headings.is_under(at, hunk.heading)]
    return ("", under) if len(under) == 1 else ("ambiguous", allowed)


def _places(text: Text, hunk: Hunk, low: int) -> list[int]:
    """All places at or behind ``low``, but no more than it takes to call them many."""
    equal: Iterable[int]
    if not hunk.old:
        return []
    if _begins_file(hunk):
        equal = (0,)
    elif _ends_file(hunk):
        equal = (len(text.lines) - len(hunk.old),)
    else:
        equal = text.find(hunk.old, low)
    fitting = (at for at in equal if at >= low and _fits(text.lines, hunk, at))
    return list(islice(fitting, _MANY_PLACES + 1))


def nearest(data: bytes, misfit: Misfit) -> Nearest | None:
    """Find where the hunk of a misfit comes closest to having a place; None: nowhere at all.

    The place with the most lines that are equal but for blanks and line ends counts, of several
    the one nearest to the expected line.
    """
    hunk = misfit.hunk
    if hunk is None or not hunk.old:
        return None
    lines = split(data)
    votes = Likeness(lines).votes(hunk.old)
    if not votes:
        return None
    at = min(votes, key=lambda place: (-votes[place], abs(place + 1 - misfit.expected)))
    for number, line in enumerate(hunk.old):
        found = lines[at + number] if 0 <= at + number < len(lines) else None
        if found != line:
            return Nearest(line=at + 1, index=number + 1, expected=line, found=found)
    end = at + len(hunk.old)
    if at and _begins_file(hunk):
        return Nearest(line=at + 1, index=0, expected=b"", found=lines[at - 1])
    if end < len(lines) and _ends_file(hunk):
        return Nearest(line=at + 1, index=len(hunk.old) + 1, expected=b"", found=lines[end])
    # It fits here, but before the place of the hunk above it.
    return None
