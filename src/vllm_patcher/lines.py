"""Look for runs of lines in a file, and for the headings above a line.

Always true here: a run is found where all its lines are equal, byte for byte, and nowhere else;
looking costs about as much as reading the file, however often its lines repeat. A heading speaks
for a place that stands in its block or that a diff tool would have named by it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vllm_patcher.diff import Hunk

#: Headings from this length on may have been cut off by the tool that wrote the diff.
_SHORTEST_CUT = 39
#: What ends the blocks above that are indented as far or farther, and may begin one itself.
_MARK = re.compile(rb"([ \t]*)[A-Za-z_@$]")
_PYTHON = (b"class ", b"def ", b"async def ")


class Text:
    """The lines of one file, in which runs can be looked for."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        # With a newline before it, a run is found only where a line begins.
        self._data = b"\n" + b"".join(lines)
        self._starts = [0, *accumulate(map(len, lines))]

    def find(self, run: Sequence[bytes], low: int) -> Iterator[int]:
        """Give all places of a run at or behind ``low``, in order.

        The run is not empty, and each of its lines ends in a newline.
        """
        wanted = b"\n" + b"".join(run)
        found = self._data.find(wanted, self._starts[low])
        while found >= 0:
            yield bisect_left(self._starts, found)
            found = self._data.find(wanted, found + len(run[0]))


class _Mark(NamedTuple):
    """A line that may begin a block, and the one whose block it stands in."""

    line: int
    indent: int
    text: bytes
    outer: _Mark | None


def _within(mark: _Mark | None, outer: _Mark | None) -> _Mark | None:
    """The nearest mark, from one outwards, whose block goes on below another."""
    while outer is not None and mark is not None and outer.indent >= mark.indent:
        outer = outer.outer
    return outer


def _is_within(mark: _Mark | None, heading: bytes) -> bool:
    while mark is not None:
        if _is_heading(mark.text, heading):
            return True
        mark = mark.outer
    return False


def _read(line: bytes) -> _Mark | None:
    found = _MARK.match(line)
    return found and _Mark(0, len(found[1].expandtabs()), line.strip(), None)


def _is_flush(mark: _Mark) -> bool:
    return not mark.indent and not mark.text.startswith(b"@")


class Headings:
    """The headings that the places of a file stand under.

    A heading is a line of the file that the diff was made from. Where hunks above have changed
    such lines, that is in reverse the file as it will be: so either may bear it out. ``passed``
    tells of the hunks in their order.
    """

    def __init__(self, lines: Sequence[bytes], hunks: Sequence[Hunk]) -> None:
        self._lines = lines
        self._hunks = hunks
        self._any = any(hunk.heading for hunk in hunks)
        self._unheard: dict[bytes, bool] = {}
        self.restart()

    def restart(self) -> None:
        """Forget the hunks that were passed."""
        self._passed: list[tuple[Hunk, int]] = []
        self._low = 0
        # The last marks of the file as it will be, down to the last hunk.
        self._open: _Mark | None = None
        self._last: tuple[_Mark | None, _Mark | None] = (None, None)

    def is_under(self, at: int, heading: bytes) -> bool:
        """Is ``heading`` what a diff tool would have put behind the second ``@@`` for a place?

        Tools take the nearest line above that begins in the first column with a letter, an
        underscore or a dollar sign, or, told that the file is Python, the nearest class or def.
        """
        nearest = (_above(marks, at) for marks in self._kinds)
        return any(mark is not None and _is_heading(mark.text, heading) for mark in nearest)

    def allowed(self, hunk: Hunk, places: list[int]) -> list[int]:
        """Return the places, behind the hunks that were passed, that a hunk's heading allows."""
        if not self._speaks(hunk):
            return places
        heading = hunk.heading
        return [
            at
            for at in places
            if self.is_under(at, heading)
            or _is_within(_above(self._marks, at), heading)
            or self._will_be_under(at, heading)
        ]

    def claims(self, hunk: Hunk) -> bool:
        """Say whether a block of a hunk's heading holds half of its lines, or more."""
        wanted = {line.strip() for line in hunk.old} - {b""}
        _, marks = self._marks
        for place, mark in enumerate(marks):
            if not _is_heading(mark.text, hunk.heading):
                continue
            after = (other.line for other in marks[place + 1 :] if other.indent <= mark.indent)
            end = next(after, len(self._lines))
            inside = {line.strip() for line in self._lines[mark.line : end]}
            if 2 * len(wanted & inside) >= len(wanted):
                return True
        return False

    def passed(self, hunk: Hunk, at: int) -> None:
        """Go on behind a hunk that has its place."""
        if self._any:
            self._passed.append((hunk, at))

    def _catch_up(self) -> None:
        """Work out what passing the hunks has changed; few files are ever asked."""
        numbers, marks = self._marks
        for hunk, at in self._passed:
            for mark in marks[bisect_left(numbers, self._low) : bisect_left(numbers, at)]:
                self._enter(mark)
            for line in hunk.new:
                self._enter(_read(line))
            self._low = at + len(hunk.old)
        self._passed.clear()

    def _enter(self, mark: _Mark | None) -> None:
        if mark is not None:
            self._open = mark._replace(outer=_within(mark, self._open))
            flush, python = self._last
            self._last = (
                mark if _is_flush(mark) else flush,
                mark if mark.text.startswith(_PYTHON) else python,
            )

    def _speaks(self, hunk: Hunk) -> bool:
        """Say whether a heading says where its hunk belongs.

        Not if it opens no block, is in no line, or the hunk is out of its block at once.
        """
        if not hunk.heading.startswith(_PYTHON) or self._is_unheard(hunk.heading):
            return False
        marks = (_read(line) for line in hunk.old[: hunk.leading])
        return all(mark is None or mark.indent for mark in marks)

    def _is_unheard(self, heading: bytes) -> bool:
        if heading not in self._unheard:
            self._unheard[heading] = any(
                not any(counts[text] > 0 for text in _meant(texts, heading))
                for counts, texts in self._counted
            )
        return self._unheard[heading]

    def _will_be_under(self, at: int, heading: bytes) -> bool:
        self._catch_up()
        for marks, last in zip(self._kinds, self._last, strict=True):
            mark = _above(marks, at)
            if mark is None or mark.line < self._low:
                mark = last
            if mark is not None and _is_heading(mark.text, heading):
                return True
        inner = None
        mark = _above(self._marks, at)
        while mark is not None and mark.line >= self._low:
            if _is_heading(mark.text, heading):
                return True
            inner, mark = mark, mark.outer
        return _is_within(_within(inner, self._open), heading)

    @cached_property
    def _marks(self) -> tuple[list[int], list[_Mark]]:
        marks: list[_Mark] = []
        for number, line in enumerate(self._lines):
            mark = _read(line)
            if mark is not None:
                outer = _within(mark, marks[-1] if marks else None)
                marks.append(mark._replace(line=number, outer=outer))
        return [mark.line for mark in marks], marks

    @cached_property
    def _kinds(self) -> tuple[tuple[list[int], list[_Mark]], ...]:
        """The marks that tools look for in any file, and in Python."""
        _, marks = self._marks
        flush = [mark for mark in marks if _is_flush(mark)]
        python = [mark for mark in marks if mark.text.startswith(_PYTHON)]
        return tuple(([mark.line for mark in kind], kind) for kind in (flush, python))

    @cached_property
    def _counted(self) -> tuple[tuple[Counter[bytes], list[bytes]], ...]:
        """How often each mark is there, in the file as it is and as it will be; and all in order.

        That all hunks fit is taken for granted: if they do not, nothing is done.
        """
        now = Counter(mark.text for mark in self._marks[1])
        then = now.copy()
        for hunk in self._hunks:
            then.subtract(mark.text for mark in map(_read, hunk.old) if mark)
            then.update(mark.text for mark in map(_read, hunk.new) if mark)
        return (now, sorted(now)), (then, sorted(then))


def _above(marks: tuple[list[int], list[_Mark]], at: int) -> _Mark | None:
    count = bisect_left(marks[0], at)
    return marks[1][count - 1] if count else None


def _meant(texts: Sequence[bytes], heading: bytes) -> Iterator[bytes]:
    """Give the texts, of some in order, that a heading may stand for."""
    for number in range(bisect_left(texts, heading), len(texts)):
        if not _is_heading(texts[number], heading):
            return
        yield texts[number]


def _is_heading(text: bytes, heading: bytes) -> bool:
    return text == heading or (len(heading) >= _SHORTEST_CUT and text.startswith(heading))
