"""Where in the names of one diff the package's folder stands.

Always true here: names are taken apart as text; which reading of them is right is weighed for
the whole diff by how many of its files are found, and no file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vllm_patcher.diff import FileDiff, show

_PACKAGE = "vllm"
_PREFIXES = frozenset("abciow12")
_OUTSIDE_FOLDERS = frozenset({"tests", "docs", "examples", "benchmarks"})
_SITE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_MOST_ROOTS = 8
"""More components called vllm than this in one name are not looked at."""
_DEEPEST = 64
"""Folders are looked for among so many components: all of a real name, and little work."""


class Name:
    """One name of a diff, taken apart.

    ``roots`` are the places of components that may be the package's folder; ``beside`` tells
    that all such components are in a folder for tests, docs or the like.
    """

    __slots__ = ("absolute", "beside", "climbs", "parts", "roots", "shown", "unsafe")

    def __init__(self, raw: bytes, *, git: bool) -> None:
        parts = raw.decode("utf-8", "surrogateescape").split("/")
        self.absolute = parts[0] == ""
        parts = [part for part in parts if part not in ("", ".")]
        # git has more prefixes than a/ and b/; only there is one letter no folder.
        prefixes = _PREFIXES if git else ("a", "b")
        if not self.absolute and len(parts) > 1 and parts[0] in prefixes:
            del parts[0]
        up = 0
        while up < len(parts) and parts[up] == "..":
            up += 1
        self.parts = tuple(parts)
        self.shown = show("/".join(parts).encode("utf-8", "surrogateescape"), longest=200)[1:-1]
        at = [place for place, part in enumerate(parts[:-1]) if part == _PACKAGE]
        self.roots = tuple(at if self.absolute else _not_beside(parts, at, up))[:_MOST_ROOTS]
        self.beside = bool(at) and not self.roots
        self.climbs = ".." in parts[up:] or (up > 0 and not at)
        self.unsafe = self.climbs or (self.absolute and not self.roots)

    def root(self, place: int) -> tuple[str, ...]:
        """What stands before the package's folder if that is the component at ``place``."""
        return self.parts[:place]

    def below(self, place: int) -> str:
        """The package-relative path if the component at ``place`` is the package's folder."""
        return "/".join(self.parts[place + 1 :])


def _not_beside(parts: Sequence[str], at: Iterable[int], up: int) -> Iterable[int]:
    """Leave out the places that are in a folder for tests, docs or the like, or in a dot-folder.

    An environment is often in a dot-folder, so there the folder of its packages counts.
    """
    below = range(up, len(parts))
    plain = next((each for each in below if parts[each] in _OUTSIDE_FOLDERS), len(parts))
    hidden = next((each for each in below if parts[each].startswith(".")), len(parts))
    for place in at:
        if place < plain and (place < hidden or parts[place - 1] in _SITE_FOLDERS):
            yield place


class Layout:
    """Where in the names of one diff the package's folder is.

    ``anchored`` tells whether any name has a component of its name; without one, all names are
    relative to the package.
    """

    def __init__(self, files: Sequence[FileDiff], exists: Callable[[str], bool]) -> None:
        self.exists = exists
        self._names: dict[tuple[bytes, bool], Name] = {}
        names = [name for file in files for name in self.names(file)]
        self.anchored = any(name.roots or name.beside for name in names)
        self._weights = self._weigh(names)
        self._rejected: set[tuple[str, ...]] = set()
        self.roots: set[tuple[str, ...]] = set()
        self._choose(names)
        self._keep_one(files)
        self.proven = not self.anchored and any(
            exists("/".join(name.parts)) for name in names if not name.unsafe
        )

    def names(self, file: FileDiff) -> list[Name]:
        """Give the names of a part, the one that counts first."""
        order = (file.old_name, file.new_name)
        if file.change in ("create", "modify"):
            order = (file.new_name, file.old_name)
        return [self._name(raw, git=file.git) for raw in dict.fromkeys(order) if raw is not None]

    def _name(self, raw: bytes, *, git: bool) -> Name:
        if (raw, git) not in self._names:
            self._names[raw, git] = Name(raw, git=git)
        return self._names[raw, git]

    def _weigh(self, names: Iterable[Name]) -> dict[tuple[str, ...], int]:
        """Count for each root how many names exist under it."""
        weights: dict[tuple[str, ...], int] = {}
        for name in {id(name): name for name in names if not name.unsafe}.values():
            for place in name.roots:
                root = name.root(place)
                weights[root] = weights.get(root, 0) + bool(self.exists(name.below(place)))
        return weights

    def _choose(self, names: Iterable[Name]) -> None:
        for name in names:
            if name.unsafe or not name.roots:
                continue
            chosen = self._heaviest(name)
            self.roots.add(name.root(chosen))
            self._rejected.update(name.root(place) for place in name.roots if place != chosen)
        self.roots -= self._rejected
        self.roots -= {root for root in self.roots if self._is_in_outside_folder(root)}

    def _keep_one(self, files: Iterable[FileDiff]) -> None:
        """Keep the root of most existing files, and the other side's if each side has but one.

        ``diff -r OLD NEW`` gives each side a root of its own; any more are other folders that
        happen to be called like the package.
        """
        if not self.roots:
            return
        pairs = {
            (self._root(file, file.old_name), self._root(file, file.new_name), file.change)
            for file in files
        }
        old, new = ({pair[side] for pair in pairs} - {None} for side in (0, 1))
        if len(old) == len(new) == 1 and any(
            None not in pair and pair[2] != "rename" for pair in pairs
        ):
            return
        best = min(self.roots, key=lambda root: (-self._weights[root], len(root), root))
        self.roots = {best}

    def _root(self, file: FileDiff, raw: bytes | None) -> tuple[str, ...] | None:
        if raw is None:
            return None
        name = self._name(raw, git=file.git)
        roots = (name.root(place) for place in reversed(name.roots))
        return next((root for root in roots if root in self.roots), None)

    def _heaviest(self, name: Name) -> int:
        # Without evidence the last: a checkout of vllm in a folder vllm is common, a folder
        # vllm in the package is not.
        return max(name.roots, key=lambda place: (self._weights[name.root(place)], place))

    def _is_in_outside_folder(self, root: tuple[str, ...]) -> bool:
        """Tell whether a root such as docs/vllm stands beside the package's own folder."""
        return any(
            root[:length] in self.roots and _is_outside_folder(root[length])
            for length in _lengths(root)
        )

    def path(self, name: Name) -> str | None:
        """Return the package-relative path a name means; None if it is outside."""
        if not self.anchored:
            return "/".join(name.parts)
        for place in reversed(name.roots):
            if name.root(place) in self.roots:
                return name.below(place)
        return None

    def is_left_out(self, name: Name) -> bool:
        """Tell whether a name outside the package may be left out unasked.

        What counts is the folder beside the package's own.
        """
        if name.beside:
            return True
        parts = name.parts
        known = [0, *(length for length in _lengths(parts) if parts[:length] in self.roots)]
        rest = parts[known[-1] :]
        return len(rest) > 1 and _is_outside_folder(rest[0])


def _lengths(parts: Sequence[str]) -> range:
    return range(min(len(parts), _DEEPEST))


def _is_outside_folder(part: str) -> bool:
    return part in _OUTSIDE_FOLDERS or part.startswith(".")
