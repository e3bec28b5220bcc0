"""A patch that a run knows the text of: its parts, its paths, and what it is right for.

Always true here: nothing of it changes; two are equal only if they are one object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from vllm_patcher.paths import Part


class Known:
    """A patch this run knows the text of; two are equal only if they are one object.

    ``requires`` holds the ids of all that must be in below it. ``listed`` gives, for a path, the
    SHA-256 digests (hex) of released files that the text is known to be right for. ``places`` says
    which path each file of the text was taken for, as a receipt keeps it.
    """

    def __init__(
        self,
        *,
        id: str,
        text: bytes,
        parts: tuple[Part, ...],
        requires: Iterable[str] = (),
        listed: Mapping[str, frozenset[str]] | None = None,
        places: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self.id = id
        self.text = text
        self.parts = parts
        self.requires = frozenset(requires)
        self.listed = listed or {}
        self.places = tuple(places)

    @cached_property
    def paths(self) -> dict[str, None]:
        """All paths the patch reads or writes, each once and in order."""
        found = (path for part in self.parts for path in (part.source, part.path))
        return dict.fromkeys(path for path in found if path is not None)

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, part in enumerate(self.parts):
            numbers.setdefault(part.path, []).append(number)
        return numbers

    @cached_property
    def _renames(self) -> bool:
        return any(part.source is not None for part in self.parts)

    @cached_property
    def _turned(self) -> dict[int, Part]:
        return {}

    def backwards(self, number: int) -> Part:
        """The part that takes out what one part puts in."""
        if number not in self._turned:
            self._turned[number] = _reversed(self.parts[number])
        return self._turned[number]

    def touches(self, paths: Collection[str]) -> bool:
        """Say whether the patch reads or writes any of some paths."""
        return not self.paths.keys().isdisjoint(paths)

    def numbers(self, only: Collection[str] | None) -> Sequence[int]:
        """Number the parts whose result is in some paths (None: all), in order from 0."""
        if only is None:
            return range(len(self.parts))
        return sorted(number for path in only for number in self._numbers.get(path, ()))

    def leading_to(self, names: set[str], before: int) -> list[int]:
        """Number the parts before one that made some files; adds what those had been renamed from.

        The last comes first.
        """
        if not self._renames:
            return [number for number in reversed(self.numbers(names)) if number < before]
        found = []
        for number in reversed(range(before)):
            part = self.parts[number]
            if part.path in names:
                found.append(number)
                if part.source is not None:
                    names.add(part.source)
        return found

    def same(self, other: Known) -> bool:
        """Say whether two are one patch in the same revision."""
        return self.id == other.id and self.text == other.text


def _reversed(part: Part) -> Part:
    if part.source is None:
        return Part(path=part.path, source=None, diff=part.diff.reversed())
    return Part(path=part.source, source=part.path, diff=part.diff.reversed())
