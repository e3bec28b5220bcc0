"""Where in a file something like some lines stands.

Always true here: blanks at the ends of lines do not count, nor do blank lines and lines that a
file is full of; what is only alike proves nothing and is never taken for the lines themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A line that a file holds more often than this says nothing about where lines belong.
_COMMON = 100
#: How many of the lines that say something have to be equal (in percent).
_ALIKE = 60
#: By how many lines they may stand apart from where they belong together.
_SHIFT = 1


class Likeness:
    """The lines of a file, to be asked for several others."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._index: dict[bytes, list[int]] = {}
        for number, line in enumerate(lines):
            self._index.setdefault(line.strip(), []).append(number)

    def votes(self, lines: Sequence[bytes]) -> dict[int, int]:
        """Count for each place (from 0, perhaps before the file) how many lines speak for it."""
        votes: dict[int, int] = {}
        for number, line in enumerate(lines):
            for position in self._positions(line):
                votes[position - number] = votes.get(position - number, 0) + 1
        return votes

    def stands_apart(self, lines: Sequence[bytes], others: Sequence[bytes]) -> bool:
        """Say whether most of some lines stand together anywhere but where all of others do."""
        telling = sum(bool(line.strip()) for line in lines)
        least = max(1, -(-telling * _ALIKE // 100))
        taken = [
            place
            for place in self.votes(others)
            if place >= 0 and list(self._lines[place : place + len(others)]) == list(others)
        ]
        found: dict[int, set[int]] = {}
        for number, line in enumerate(lines):
            for position in self._positions(line):
                # A line more or less in between makes them no less alike.
                for shift in range(-_SHIFT, _SHIFT + 1):
                    found.setdefault(position - number + shift, set()).add(number)
        return any(
            len(numbers) >= least
            and not any(
                place < other + len(others) and other < place + len(lines) for other in taken
            )
            for place, numbers in found.items()
        )

    def _positions(self, line: bytes) -> list[int]:
        positions = self._index.get(line.strip(), [])
        return positions if line.strip() and len(positions) <= _COMMON else []
