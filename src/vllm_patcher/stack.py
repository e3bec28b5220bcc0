"""Trees with patches put on and taken off again, in memory.

Always true here: a tree maps paths of the package to bytes, or to None where there is no file;
trees are not changed, new ones are returned. A patch goes on whole or not at all.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from .hunks import Applied, Misfit, Placement, apply
from .paths import Part

Tree = Mapping[str, bytes | None]

#: Shorter ids of git are too easily equal by chance.
_SHORTEST_BLOB_ID = 7


class Known:
    """A patch this run knows the text of; two are equal only if they are one object.

    ``requires`` holds the ids of all that must be in below it. ``listed`` gives, for a path, the
    SHA-256 digests (hex) of released files that the text is known to be right for. ``skip`` and
    ``skip_outside`` say what of the text was left out.
    """

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the manifest's word
        text: bytes,
        parts: tuple[Part, ...],
        requires: Iterable[str] = (),
        listed: Mapping[str, frozenset[str]] | None = None,
        skip: Sequence[str] = (),
        skip_outside: bool = False,
    ) -> None:
        self.id = id
        self.text = text
        self.parts = parts
        self.requires = frozenset(requires)
        self.listed = listed or {}
        self.skip = tuple(skip)
        self.skip_outside = skip_outside

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """All paths the patch reads or writes, each once."""
        found = (path for part in self.parts for path in (part.source, part.path))
        return tuple(dict.fromkeys(path for path in found if path is not None))

    def same(self, other: Known) -> bool:
        """Say whether two are one patch in the same revision."""
        return self.id == other.id and self.text == other.text


class Problem(NamedTuple):
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
        for part in patch.parts:
            if (only is not None and part.path not in only) or part.path in failed:
                continue
            growths = log.get(part.source or part.path, [])
            result = _run(
                files,
                part,
                trusted=self._trusted(patch, part, files),
                moved=_moved(growths, patch.requires | {patch.id}),
            )
            if isinstance(result, Problem):
                problems.append(result)
                failed.add(part.path)
                continue
            key = (patch.id, part.path)
            placements[key] = placements.get(key, ()) + result.placements
            log[part.path] = _grown(growths, result.placements, patch.id)
        if not problems:
            self.files, self._log = files, log
            self.placements.update(placements)
        return problems

    def listed(self, patch: Known, path: str) -> bool:
        """Say whether the base's bytes at a path are a released file listed for this patch."""
        data = self.base.get(path)
        digests = patch.listed.get(path)
        return bool(digests) and data is not None and _sha256(data) in digests

    def _trusted(self, patch: Known, part: Part, files: Tree) -> bool:
        path = part.source or part.path
        blob = part.diff.old_blob
        data = files.get(path)
        if data is not None and len(blob) >= _SHORTEST_BLOB_ID and _blob_id(data).startswith(blob):
            return True
        return self.listed(patch, path)


def take(
    files: Tree,
    patch: Known,
    *,
    trusted: bool,
    beneath: Iterable[Known] = (),
    only: Collection[str] | None = None,
) -> dict[str, bytes | None] | None:
    """Take a patch off a tree, or only its parts in some paths; None: it is not on there.

    ``trusted`` lets a header's line number decide where the text does not; what comes out must
    then be proven by its digest. ``beneath`` are the patches that stay on.
    """
    result = dict(files)
    beneath = tuple(beneath)
    for part in reversed(patch.parts):
        if only is not None and part.path not in only:
            continue
        moved = _estimate(part, patch, beneath)
        if isinstance(_run(result, _reversed(part), trusted=trusted, moved=moved), Problem):
            return None
    return result


def _reversed(part: Part) -> Part:
    if part.source is None:
        return Part(path=part.path, source=None, diff=part.diff.reversed())
    return Part(path=part.source, source=part.path, diff=part.diff.reversed())


def _run(
    files: dict[str, bytes | None],
    part: Part,
    *,
    trusted: bool,
    moved: Callable[[int], int],
) -> Applied | Problem:
    """Apply one part to a tree in place."""
    path = part.source or part.path
    data = files.get(path)
    if part.source is not None and files.get(part.path) is not None:
        return Problem(path=part.path, misfit=Misfit(reason="exists"), data=files[part.path])
    result = apply(data, part.diff, trusted=trusted, moved=moved)
    if isinstance(result, Misfit):
        return Problem(path=path, misfit=result, data=data)
    if part.source is not None:
        files[part.source] = None
    files[part.path] = result.data
    return result


class _Growth(NamedTuple):
    """Lines that a patch added (or took, if negative) before a 0-based line of the file."""

    at: int
    lines: int
    owner: str


def _moved(growths: Sequence[_Growth], without: Collection[str]) -> Callable[[int], int]:
    """How far others moved a line, whose number counts without them."""
    points: list[tuple[int, int]] = []
    total = 0
    for growth in growths:
        if growth.owner not in without:
            points.append((growth.at - total + 1, growth.lines))
            total += growth.lines
    return _sum_up_to(points)


def _grown(
    growths: Sequence[_Growth], placements: Sequence[Placement], owner: str
) -> list[_Growth]:
    """The growths of a file after one more patch, in the lines of the file it has made."""
    new = [
        _Growth(placement.at + placement.hunk.leading, placement.hunk.added - placement.hunk.removed, owner)
        for placement in placements
    ]
    # Each side counts without the other; merged from the top, each moves by what is above it.
    merged: list[_Growth] = []
    below = first = 0
    for growth in new:
        while first < len(growths) and growths[first].at < growth.at:
            old = growths[first]
            merged.append(_Growth(old.at + below, old.lines, old.owner))
            first += 1
        merged.append(_Growth(growth.at + below, growth.lines, growth.owner))
        below += growth.lines
    merged += [_Growth(old.at + below, old.lines, old.owner) for old in growths[first:]]
    return merged


def _estimate(part: Part, patch: Known, beneath: Sequence[Known]) -> Callable[[int], int]:
    """How far the patches below moved a line, going by their own headers."""
    return _sum_up_to(
        (hunk.old_start + hunk.leading, hunk.added - hunk.removed)
        for other in beneath
        if other.id != patch.id and other.id not in patch.requires
        for other_part in other.parts
        if other_part.path == part.path
        for hunk in other_part.diff.hunks
    )


def _sum_up_to(points: Iterable[tuple[int, int]]) -> Callable[[int], int]:
    ordered = sorted(points)
    lines = [line for line, _ in ordered]
    sums = [0, *accumulate(growth for _, growth in ordered)]
    return lambda line: sums[bisect_right(lines, line)]


def _blob_id(data: bytes) -> str:
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
