"""Reads one hunk and holds every line of it against the counts of its header.

A block that comes out is normalised: each line of its body begins with its sign and ends in a
newline, and there are exactly as many of each kind as it says. What is put right on the way: a
context line that lost its only blank, blank context lines trimmed at the end of the diff, and
the wording of the line that says a newline is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from vllm_patcher.diff.names import show
from vllm_patcher.values import Value

_HEADER = re.compile(rb"@@ -(\d{1,15})(?:,(\d{1,15}))? \+(\d{1,15})(?:,(\d{1,15}))? @@([^\n]*)\n")
_SPACE, _PLUS, _MINUS, _BACKSLASH = b" +-\\"
_MARKER = b"\\ No newline at end of file\n"
_BLANK = (b"\n", b"\r\n")
_USUAL_CONTEXT = 3
"""So many blank context lines may be missing at the end of the diff: diff's own default."""
_CONFLICT = (b"+<<<<<<< ", b"+=======", b"+>>>>>>> ")


class Problem(Value):
    """One thing that is wrong, at a 1-based line of the diff."""

    line: int
    text: str
    unsafe: bool = False


class Block(NamedTuple):
    """One hunk as counted: ``kept + removed`` is the old side, ``kept + added`` the new one.

    ``line`` is the 1-based line of its header. ``body`` holds the normalised lines, of which
    ``markers`` say that a newline is missing; the last ``trimmed`` are blank ones that the diff
    lacks.
    """

    line: int
    old_start: int
    new_start: int
    heading: bytes
    kept: int
    added: int
    removed: int
    markers: int
    body: Sequence[bytes]
    trimmed: int = 0

    @property
    def old_count(self) -> int:
        """Lines of the old side."""
        return self.kept + self.removed

    @property
    def new_count(self) -> int:
        """Lines of the new side."""
        return self.kept + self.added


def read_block(lines: Sequence[bytes], at: int) -> tuple[Block | Problem, int]:
    """Read the hunk whose header is at an index; return it and the index of the line behind it.

    ``lines`` keep their newlines and none is without one. A Problem comes out if the hunk is
    malformed; then the index is that of the line that can't be part of it.
    """
    found = _HEADER.fullmatch(lines[at])
    if not found:
        text = f"found {show(lines[at])}, expected '@@ -LINE,COUNT +LINE,COUNT @@'"
        return Problem(line=at + 1, text=text), at + 1
    old_start, old_count, new_start, new_count = (
        1 if number is None else int(number) for number in found.groups()[:4]
    )
    end, odd, old_left, new_left = _measure(lines, at + 1, old_count, new_count)
    if not (old_left or new_left) and _is_marker_of(lines, end, at + 1):
        odd.append(end)
        end += 1
    trimmed = old_left if end == len(lines) and old_left == new_left <= _USUAL_CONTEXT else 0
    if (old_left or new_left) and not trimmed:
        return _malformed(lines, at, end, (old_left, new_left)), end
    body = list(lines[at + 1 : end])
    for place in odd:
        is_marker = lines[place][0] == _BACKSLASH
        body[place - at - 1] = _MARKER if is_marker else b" " + lines[place]
    body.extend([b" \n"] * trimmed)
    markers = body.count(_MARKER) if odd else 0
    # Only kept lines stand on both sides, so the lengths give all counts.
    kept = old_count + new_count - (len(body) - markers)
    block = Block(
        line=at + 1,
        old_start=old_start,
        new_start=new_start,
        heading=found[5].strip(),
        kept=kept,
        added=new_count - kept,
        removed=old_count - kept,
        markers=markers,
        body=body,
        trimmed=trimmed,
    )
    return _content_problem(lines, end, block) or block, end


def _measure(
    lines: Sequence[bytes], at: int, old: int, new: int
) -> tuple[int, list[int], int, int]:
    """Count lines off both sides of a hunk until nothing is left or a line is out of place.

    Return the index behind the last line that fits, the indices of lines to be normalised, and
    what is left of each side.
    """
    start, stop = at, len(lines)
    odd: list[int] = []
    while (old or new) and at < stop:
        line = lines[at]
        sign = line[0]
        if sign == _PLUS:
            if not new:
                break
            new -= 1
        elif sign == _MINUS:
            if not old:
                break
            old -= 1
        elif sign == _BACKSLASH:
            if at == start or not _ends_side(lines[at - 1][0], old, new):
                break
            odd.append(at)
        else:
            if not (old and new and (sign == _SPACE or line in _BLANK)):
                break
            if sign != _SPACE:
                odd.append(at)
            old -= 1
            new -= 1
        at += 1
    return at, odd, old, new


def _is_marker_of(lines: Sequence[bytes], at: int, start: int) -> bool:
    """Tell whether the line at an index marks the one before it, a line of the hunk."""
    if not start < at < len(lines) or lines[at][0] != _BACKSLASH:
        return False
    return lines[at - 1][0] != _BACKSLASH


def _ends_side(sign: int, old: int, new: int) -> bool:
    """Tell whether a line with this sign can be the last of its file, given what is left."""
    if sign == _MINUS:
        return old == 0
    if sign == _PLUS:
        return new == 0
    return sign != _BACKSLASH and old == new == 0


def _malformed(lines: Sequence[bytes], at: int, end: int, left: tuple[int, int]) -> Problem:
    found = show(lines[end]) if end < len(lines) else "the end of the diff"
    return Problem(
        line=min(end + 1, len(lines)),
        text=f"found {found}, expected {left[0]} more old and {left[1]} more new lines"
        f" of the hunk at line {at + 1}",
    )


def _content_problem(lines: Sequence[bytes], end: int, block: Block) -> Problem | None:
    if not block.added and not block.removed:
        text = "found a hunk without a change, expected a '+' or a '-' line in it"
        return Problem(line=block.line, text=text)
    if end < len(lines) and lines[end].startswith(b"@@ -") and _ends_in_names(block.body):
        # The counts took the names of the next file for a removed and an added line.
        text = f"found the names of a file, expected the last lines of the hunk at {block.line}"
        return Problem(line=end - 1, text=text)
    return None


def _ends_in_names(body: Sequence[bytes]) -> bool:
    return len(body) > 1 and body[-2].startswith(b"--- ") and body[-1].startswith(b"+++ ")


def conflict_left_in(block: Block) -> Problem | None:
    """Return the last of a whole set of conflict markers among the added lines, if any."""
    wanted = 0
    for place, line in enumerate(block.body, 1):
        if line.startswith(_CONFLICT[wanted]):
            wanted += 1
        if wanted == len(_CONFLICT):
            text = f"found the conflict marker {show(line)}, expected a resolved change"
            return Problem(line=block.line + place, text=text)
    return None
