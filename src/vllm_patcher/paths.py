"""Which file of the package a name in a diff means.

Decided once for the whole diff, from its names and from which of them exist, never name by
name. A path that comes out is relative, has no empty, ``.`` or ``..`` component and therefore
can't leave the package by its text (links on disk are for :mod:`tree` to refuse).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from vllm_patcher.values import Value

from .diff import Diff, FileDiff, show
from .errors import InvalidPatch, UnsafePath

_PACKAGE = "vllm"
_FINDER = "__init__.py"
_PREFIXES = frozenset("abciow12")
_OUTSIDE_FOLDERS = frozenset({"tests", "docs", "examples", "benchmarks"})
_SITE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_MOST_ROOTS = 8
"""More components called vllm than this in one name are not looked at."""
_DEEPEST = 64
"""Folders are looked for among so many components: all of a real name, and little work."""
_MOST_FACTS = 50


class Part(Value):
    """One file's part of a diff and the file it is for.

    ``path`` is package-relative; of a deleted file its old path, of a renamed one its new path.
    ``source`` is the old path of a renamed file, else None.
    """

    path: str
    source: str | None
    diff: FileDiff


class Resolved(Value):
    """The parts inside the package in the diff's order, and the names that were left out."""

    parts: tuple[Part, ...]
    skipped: tuple[str, ...]


def resolve(
    diff: Diff,
    *,
    name: str,
    exists: Callable[[str], bool],
    skip: Sequence[str] = (),
    skip_outside: bool = False,
) -> Resolved:
    """Find the package's file for each part of a diff.

    ``exists`` answers whether a package-relative path is on disk or recorded. ``skip`` are
    globs (``*`` within a component, ``**`` over any number) for names as written after ``a/``
    or ``b/``; what they match is left out. Names outside the package are left out if they are
    tests, docs, examples, benchmarks or in a dot-folder, all others only if ``skip_outside``.

    Raise UnsafePath if a name leads out of the package or its ``__init__.py`` would be gone,
    else InvalidPatch, with one fact for each part that can't be had.
    """
    patterns = [pattern.split("/") for pattern in skip]
    layout = _Layout(diff.files, exists)
    parts: list[Part] = []
    skipped: list[str] = []
    problems: list[_Problem] = []
    for file in diff.files:
        outcome = _resolve_file(file, layout, patterns, skip_outside=skip_outside)
        if isinstance(outcome, Part):
            parts.append(outcome)
        elif isinstance(outcome, _Problem):
            problems.append(outcome)
        else:
            skipped.append(outcome)
    if problems:
        raise _refusal(problems, name=name)
    if not parts:
        raise InvalidPatch(
            f"{name} touches no file of the package", facts=_shortened(skipped, name)
        )
    return Resolved(parts=tuple(parts), skipped=tuple(dict.fromkeys(skipped)))


class _Problem(Value):
    line: int
    text: str
    unsafe: bool = False
    outside: bool = False
    vital: bool = False


def _refusal(problems: Sequence[_Problem], *, name: str) -> InvalidPatch | UnsafePath:
    facts = _shortened([f"{name}:{problem.line}: {problem.text}" for problem in problems], name)
    if any(problem.vital for problem in problems):
        return UnsafePath(f"{name} takes away what the package can't be without", facts=facts)
    if any(problem.unsafe for problem in problems):
        return UnsafePath(f"{name} has names that lead out of the package", facts=facts)
    if all(problem.outside for problem in problems):
        hint = "--skip-outside leaves out what is not in the package"
        return InvalidPatch(f"{name} has files outside the package", facts=facts, hint=hint)
    return InvalidPatch(f"{name} can't be applied to the package", facts=facts)


def _shortened(facts: Sequence[str], name: str) -> list[str]:
    if len(facts) <= _MOST_FACTS:
        return list(facts)
    return [*facts[:_MOST_FACTS], f"{name}: {len(facts) - _MOST_FACTS} more"]


class _Name:
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


class _Layout:
    """Where in the names of one diff the package's folder is.

    ``anchored`` tells whether any name has a component of its name; without one, all names are
    relative to the package.
    """

    def __init__(self, files: Sequence[FileDiff], exists: Callable[[str], bool]) -> None:
        self.exists = exists
        self._names: dict[tuple[bytes, bool], _Name] = {}
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

    def names(self, file: FileDiff) -> list[_Name]:
        """Give the names of a part, the one that counts first."""
        order = (file.old_name, file.new_name)
        if file.change in ("create", "modify"):
            order = (file.new_name, file.old_name)
        return [self._name(raw, git=file.git) for raw in dict.fromkeys(order) if raw is not None]

    def _name(self, raw: bytes, *, git: bool) -> _Name:
        if (raw, git) not in self._names:
            self._names[raw, git] = _Name(raw, git=git)
        return self._names[raw, git]

    def _weigh(self, names: Iterable[_Name]) -> dict[tuple[str, ...], int]:
        """Count for each root how many names exist under it."""
        weights: dict[tuple[str, ...], int] = {}
        for name in {id(name): name for name in names if not name.unsafe}.values():
            for place in name.roots:
                root = name.root(place)
                weights[root] = weights.get(root, 0) + bool(self.exists(name.below(place)))
        return weights

    def _choose(self, names: Iterable[_Name]) -> None:
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

    def _heaviest(self, name: _Name) -> int:
        # Without evidence the last: a checkout of vllm in a folder vllm is common, a folder
        # vllm in the package is not.
        return max(name.roots, key=lambda place: (self._weights[name.root(place)], place))

    def _is_in_outside_folder(self, root: tuple[str, ...]) -> bool:
        """Tell whether a root such as docs/vllm stands beside the package's own folder."""
        return any(
            root[:length] in self.roots and _is_outside_folder(root[length])
            for length in _lengths(root)
        )

    def path(self, name: _Name) -> str | None:
        """Return the package-relative path a name means; None if it is outside."""
        if not self.anchored:
            return "/".join(name.parts)
        for place in reversed(name.roots):
            if name.root(place) in self.roots:
                return name.below(place)
        return None

    def is_left_out(self, name: _Name) -> bool:
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


def _resolve_file(
    file: FileDiff, layout: _Layout, patterns: Sequence[Sequence[str]], *, skip_outside: bool
) -> Part | _Problem | str:
    """Return the part, what is wrong with it, or the name under which it is left out."""
    names = layout.names(file)
    for name in names:
        if name.climbs:
            return _Problem(line=file.line, text=f"{name.shown} climbs out by '..'", unsafe=True)
    matched = [any(_matches(name.parts, pattern) for pattern in patterns) for name in names]
    if all(matched) if file.change == "rename" else any(matched):
        return names[0].shown
    inside = [name for name in names if not name.unsafe and layout.path(name) is not None]
    if not inside or _is_stray(file, inside, layout):
        return _outside(file, names, layout, skip_outside=skip_outside)
    if file.binary:
        return _Problem(line=file.line, text=f"{names[0].shown} is binary, expected lines of text")
    paths = [path for name in inside if (path := layout.path(name)) is not None]
    if not all(_is_text(path) for path in paths):
        # RECORD is UTF-8: with such a name in it pip and uv could not read it any more.
        return _Problem(line=file.line, text=f"{names[0].shown} is not UTF-8")
    if file.change == "rename":
        return _vital(_renamed(file, names, paths, layout))
    return _vital(_single(file, names, list(dict.fromkeys(paths)), layout))


def _is_text(path: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in path)


def _vital(part: Part | _Problem) -> Part | _Problem:
    """Refuse to take away the file by which the package is found."""
    if isinstance(part, Part) and part.diff.change in ("delete", "rename"):
        gone = part.path if part.source is None else part.source
        if gone == _FINDER:
            text = f"{_PACKAGE}/{_FINDER} would be gone, without which nothing finds the package"
            return _Problem(line=part.diff.line, text=text, unsafe=True, vital=True)
    return part


def _is_stray(file: FileDiff, inside: Sequence[_Name], layout: _Layout) -> bool:
    """Tell whether a new file is for tests or docs, when no name shows where the package is."""
    if layout.anchored or layout.proven or file.change != "create":
        return False
    return layout.is_left_out(inside[0])


def _outside(
    file: FileDiff, names: Sequence[_Name], layout: _Layout, *, skip_outside: bool
) -> _Problem | str:
    shown = names[0].shown
    for name in names:
        if name.unsafe:
            text = f"{name.shown} is absolute and has no folder {_PACKAGE}"
            return _Problem(line=file.line, text=text, unsafe=True)
    if skip_outside or all(layout.is_left_out(name) for name in names):
        return shown
    return _Problem(line=file.line, text=f"{shown} is outside the package", outside=True)


def _renamed(
    file: FileDiff, names: Sequence[_Name], paths: Sequence[str], layout: _Layout
) -> Part | _Problem:
    if len(paths) != len(names) or len(set(paths)) == 1:
        text = f"{names[0].shown} is renamed across the edge of the package"
        return _Problem(line=file.line, text=text)
    if not layout.anchored and not layout.exists(paths[0]):
        return _Problem(line=file.line, text=_missing(names[0]))
    return Part(path=paths[1], source=paths[0], diff=file)


def _single(
    file: FileDiff, names: Sequence[_Name], paths: Sequence[str], layout: _Layout
) -> Part | _Problem:
    path = paths[0]
    if file.change != "create":
        there = [each for each in paths if layout.exists(each)]
        if len(there) > 1 and file.change == "modify":
            text = f"{' and '.join(name.shown for name in names)} are two files of the package"
            return _Problem(line=file.line, text=text)
        if not there and not layout.anchored:
            return _Problem(line=file.line, text=_missing(names[0]))
        path = (there or paths)[0]
    return Part(path=path, source=None, diff=file)


def _missing(name: _Name) -> str:
    return f"{name.shown} is not in the package, and no name in the diff has a folder {_PACKAGE}"


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match components against a glob; ``**`` stands for any number, at the end for some.

    Only the last ``**`` is ever tried again, so the work is bounded by the product of both.
    """
    at = place = 0
    again: tuple[int, int] | None = None
    while at < len(parts):
        if place < len(pattern) and pattern[place] == "**":
            place += 1
            again = (at, place)
        elif place < len(pattern) and fnmatchcase(parts[at], pattern[place]):
            at, place = at + 1, place + 1
        elif again is None:
            return False
        else:
            at, place = again[0] + 1, again[1]
            again = (at, place)
    return place == len(pattern)
