"""Look for runs of lines in a file, and for the heading above a line.

Always true here: a run is found where all its lines are equal, byte for byte, and nowhere else;
looking costs about as much as reading the file, however often its lines repeat.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

#: The file is searched as a string with one character for each line; so many there are.
_CHARACTERS = 0x10FFFF
#: Headings from this length on may have been cut off by the tool that wrote the diff.
_SHORTEST_CUT = 39


class Text:
    """The lines of one file, in which the given runs can be looked for."""

    def __init__(self, lines: Sequence[bytes], runs: Iterable[Sequence[bytes]]) -> None:
        self.lines = lines
        self._characters: dict[bytes, str] = {}
        for run in runs:
            for line in run:
                if line not in self._characters:
                    # Should there be more lines than characters, some lines share one.
                    character = chr(len(self._characters) % _CHARACTERS + 1)
                    self._characters[line] = character
        # No run has a line of the character 0.
        self._text = "".join([self._characters.get(line, "\0") for line in lines])

    def find(self, run: Sequence[bytes], low: int) -> Iterator[int]:
        """Give all places of a run, which is not empty, at or behind ``low``, in order."""
        wanted = "".join([self._characters[line] for line in run])
        at = self._text.find(wanted, low)
        while at >= 0:
            if all(map(bytes.__eq__, run, self.lines[at : at + len(run)])):
                yield at
            at = self._text.find(wanted, at + 1)

    def is_under(self, at: int, heading: bytes) -> bool:
        """Is ``heading`` what a diff tool would have put behind the second ``@@`` for a place?

        Tools take the nearest line above that begins in the first column with a letter, an
        underscore or a dollar sign, or, told that the file is Python, the nearest class or def.
        """
        for marks in (self._flush, self._python):
            above = bisect_left(marks, at) - 1
            if above >= 0 and _is_heading(self.lines[marks[above]].strip(), heading):
                return True
        return False

    @cached_property
    def _flush(self) -> list[int]:
        return [
            number
            for number, line in enumerate(self.lines)
            if line[:1].isalpha() or line[:1] in (b"_", b"$")
        ]

    @cached_property
    def _python(self) -> list[int]:
        starts = (b"class ", b"def ", b"async def ")
        return [
            number
            for number, line in enumerate(self.lines)
            if line.lstrip(b" \t").startswith(starts)
        ]


def _is_heading(text: bytes, heading: bytes) -> bool:
    return text == heading or (len(heading) >= _SHORTEST_CUT and text.startswith(heading))
