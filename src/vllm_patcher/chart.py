"""Which release gets which patch, as a table of bands: releases in a row that get the same.

Always true here: the releases are those that a lock names, so nothing is asked of an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import versions
from vllm_patcher.catalog import choose
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vllm_patcher.catalog import Lock
    from vllm_patcher.manifest import Patch

GETS = "x"
OPT_IN = "o"
LACKS = "-"
NOT_AFFECTED = "."

_GAP = "   "
LEGEND = _GAP.join(
    [
        f"{GETS} gets it",
        f"{OPT_IN} only if named",
        f"{LACKS} affected, no diff",
        f"{NOT_AFFECTED} not affected",
    ]
)

_HERE = "*"


class Band(Value):
    """Releases next to each other, the oldest first, and a mark for each patch in order."""

    releases: tuple[str, ...]
    marks: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first and the last release."""
        first, last = self.releases[0], self.releases[-1]
        return first if first == last else f"{first} - {last}"


def bands(patches: Sequence[Patch], lock: Lock) -> list[Band]:
    """Chart the patches for every release that the lock names."""
    named = {release for releases in lock.patches.values() for release in releases}
    found: list[Band] = []
    for release in versions.ordered(named):
        marks = tuple(mark(patch, release) for patch in patches)
        if found and found[-1].marks == marks:
            found[-1] = found[-1].replaced(releases=(*found[-1].releases, release))
        else:
            found.append(Band(releases=(release,), marks=marks))
    return found


def mark(patch: Patch, release: str) -> str:
    """Say in one character what a release gets."""
    if choose(patch, release) is not None:
        return GETS if patch.default else OPT_IN
    return LACKS if versions.judge(release, patch.affects) == "in" else NOT_AFFECTED


def text(found: Iterable[Band], installed: str | None, *, columns: int = 10**6) -> Iterator[str]:
    """Yield the chart, the numbers of the patches downwards, and mark the band of ``installed``.

    Where the terminal has fewer ``columns`` than it needs, it comes in parts, some patches each.
    """
    shown = list(found)
    if not shown:
        return
    meant = versions.names_of(installed or "")
    names = [f"{' ' if meant.isdisjoint(band.releases) else _HERE} {band.name}" for band in shown]
    width = max(map(len, names))
    room = max((columns - width) // 2, 1)
    for first in range(0, len(shown[0].marks), room):
        if first:
            yield ""
        yield from _part(shown, names, width, range(first, len(shown[0].marks))[:room])
    yield from [LEGEND] if len(LEGEND) <= columns else LEGEND.split(_GAP)
    if any(name[0] == _HERE for name in names):
        yield f"{_HERE} {installed} is installed"


def _part(bands: Iterable[Band], names: Iterable[str], width: int, of: range) -> Iterator[str]:
    """Yield what the chart has of some patches."""
    numbers = [str(place + 1) for place in of]
    digits = len(numbers[-1])
    for place in range(digits):
        name = "  vLLM" if place == digits - 1 else ""
        yield f"{name:<{width}} {' '.join(one.rjust(digits)[place] for one in numbers)}".rstrip()
    for band, name in zip(bands, names, strict=True):
        yield f"{name:<{width}} {' '.join(band.marks[place] for place in of)}"
