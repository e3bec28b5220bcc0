"""Which file of the package a name in a diff means.

Decided once for the whole diff, from its names and from which of them exist, never name by
name. A path that comes out is relative, has no empty, ``.`` or ``..`` component and therefore
can't leave the package by its text (links on disk are for :mod:`tree` to refuse).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from vllm_patcher.errors import InvalidPatch, UnsafePath
from vllm_patcher.files import is_temporary
from vllm_patcher.layout import Layout, Name
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.diff import Diff, FileDiff

_PACKAGE = "vllm"
_FINDER = "__init__.py"
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
    of_catalog: bool = False,
) -> Resolved:
    """Find the package's file for each part of a diff.

    ``exists`` answers whether a package-relative path is on disk or recorded. ``skip`` are
    globs (``*`` within a component, ``**`` over any number) for names as written after ``a/``
    or ``b/``; what they match is left out. Names outside the package are left out if they are
    tests, docs, examples, benchmarks or in a dot-folder, all others only if ``skip_outside``.
    ``of_catalog`` says that a manifest can name them.

    Raise UnsafePath if a name leads out of the package or its ``__init__.py`` would be gone,
    else InvalidPatch, with one fact for each part that can't be had.
    """
    patterns = [pattern.split("/") for pattern in skip]
    layout = Layout(diff.files, exists)
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
        raise _refusal(problems, name=name, hint=_IN_MANIFEST if of_catalog else _BY_OPTION)
    if not parts:
        raise InvalidPatch(
            f"{name} touches no file of the package", facts=_shortened(skipped, name)
        )
    if not (layout.anchored or layout.proven):
        # New files all of them: in a series with a commit each, those beside the package too.
        raise InvalidPatch(
            f"{name} only makes files, and no name in it has a folder {_PACKAGE}",
            facts=_shortened([f"{name}:{p.diff.line}: {p.path}" for p in parts], name),
            hint=f"write {parts[0].path} as {_PACKAGE}/{parts[0].path} if it is for the package",
        )
    return Resolved(parts=tuple(parts), skipped=tuple(dict.fromkeys(skipped)))


def check_names(
    diff: Diff, *, name: str, skip: Sequence[str] = (), skip_outside: bool = False
) -> None:
    """Raise what :func:`resolve` raises for names of a catalog's diff, whatever is on disk.

    Nothing is known of names that are all relative to the package, and some of files that are
    there: only these tell.
    """

    def nothing(_path: str) -> bool:
        return False

    made = all(file.change == "create" for file in diff.files)
    if made or Layout(diff.files, nothing).anchored:
        resolve(
            diff,
            name=name,
            exists=nothing,
            skip=skip,
            skip_outside=skip_outside,
            of_catalog=True,
        )


_BY_OPTION = "--skip-outside leaves out what is not in the package"
_IN_MANIFEST = 'name them in the manifest to leave them out, as skip = ["csrc/**"]'


class _Problem(Value):
    line: int
    text: str
    unsafe: bool = False
    outside: bool = False
    vital: bool = False


def _refusal(problems: Sequence[_Problem], *, name: str, hint: str) -> InvalidPatch | UnsafePath:
    facts = _shortened([f"{name}:{problem.line}: {problem.text}" for problem in problems], name)
    if any(problem.vital for problem in problems):
        return UnsafePath(f"{name} takes away what the package can't be without", facts=facts)
    if any(problem.unsafe for problem in problems):
        return UnsafePath(f"{name} has names that lead out of the package", facts=facts)
    if all(problem.outside for problem in problems):
        return InvalidPatch(f"{name} has files outside the package", facts=facts, hint=hint)
    return InvalidPatch(f"{name} can't be applied to the package", facts=facts)


def _shortened(facts: Sequence[str], name: str) -> list[str]:
    if len(facts) <= _MOST_FACTS:
        return list(facts)
    return [*facts[:_MOST_FACTS], f"{name}: {len(facts) - _MOST_FACTS} more"]


def _resolve_file(
    file: FileDiff, layout: Layout, patterns: Sequence[Sequence[str]], *, skip_outside: bool
) -> Part | _Problem | str:
    """Return the part, what is wrong with it, or the name under which it is left out."""
    names = layout.names(file)
    for name in names:
        if name.climbs:
            return _Problem(line=file.line, text=f"{name.shown} climbs out by '..'", unsafe=True)
        if name.parts and is_temporary(name.parts[-1]):
            return _Problem(line=file.line, text=f"{name.shown} is named as only vllm-patch may")
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


def _is_stray(file: FileDiff, inside: Sequence[Name], layout: Layout) -> bool:
    """Tell whether a new file is for tests or docs, when no name shows where the package is."""
    if layout.anchored or layout.proven or file.change != "create":
        return False
    return layout.is_left_out(inside[0])


def _outside(
    file: FileDiff, names: Sequence[Name], layout: Layout, *, skip_outside: bool
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
    file: FileDiff, names: Sequence[Name], paths: Sequence[str], layout: Layout
) -> Part | _Problem:
    if len(paths) != len(names) or len(set(paths)) == 1:
        text = f"{names[0].shown} is renamed across the edge of the package"
        return _Problem(line=file.line, text=text)
    if not layout.anchored and not layout.exists(paths[0]):
        return _Problem(line=file.line, text=_missing(names[0]))
    return Part(path=paths[1], source=paths[0], diff=file)


def _single(
    file: FileDiff, names: Sequence[Name], paths: Sequence[str], layout: Layout
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


def _missing(name: Name) -> str:
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
