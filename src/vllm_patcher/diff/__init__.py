"""Bytes to files and hunks, strictly: what can't be read whole is refused whole.

Every hunk line of the text given is in the result, and only those. :mod:`.scan` finds the
parts and counts their lines, unidiff (which nothing else here imports) parses them from a
normalised text, and the two must agree line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from unidiff import patch as unidiff
from unidiff.errors import UnidiffParseError

from vllm_patcher.diff.block import Block, Problem
from vllm_patcher.diff.names import show, unquote_name
from vllm_patcher.diff.scan import scan
from vllm_patcher.errors import InvalidPatch, UnsafePath
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.diff.parts import Section
    from vllm_patcher.diff.scan import Scan

__all__ = ["Diff", "FileDiff", "Hunk", "parse", "show", "unquote_name"]

_MOST_FACTS = 50
_REMAKE = "make the diff again with 'git diff' or 'diff -u' instead of editing it"
_EMPTY = "look at what the command says that should have made the diff"
_REVERSED = {"create": "delete", "delete": "create"}


class Hunk(NamedTuple):
    r"""One ``@@`` block: the lines of both sides and where its header puts them.

    ``old_start`` and ``new_start`` are 1-based; of an empty side they name the line after which
    it stands. A line ends in ``b"\n"`` unless the diff says that it has no newline. ``leading``
    and ``trailing`` count the context lines before the first and after the last change.
    ``heading`` is what stands behind the second ``@@``; ``line`` is that of the header in the
    diff, 1-based.
    """

    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    leading: int
    trailing: int
    heading: bytes
    line: int
    added: int
    removed: int

    def reversed(self) -> Hunk:
        """Return the hunk that takes this one back."""
        return self._replace(
            old_start=self.new_start,
            new_start=self.old_start,
            old=self.new,
            new=self.old,
            added=self.removed,
            removed=self.added,
        )


class FileDiff(NamedTuple):
    """One file's part of a diff.

    Names are as written, without quotes and timestamp; None stands for ``/dev/null``.
    ``change`` is modify, create, delete or rename. ``hunks`` may be empty for all but modify,
    and is empty if ``binary``. The blobs are the hex ids of git's index line, ``""`` if there is
    none or it is all zero. ``line`` is that of the first header line, 1-based.
    """

    old_name: bytes | None
    new_name: bytes | None
    change: str
    hunks: tuple[Hunk, ...]
    git: bool
    old_blob: str
    new_blob: str
    binary: bool
    line: int

    def reversed(self) -> FileDiff:
        """Return the part that takes this one back."""
        return self._replace(
            old_name=self.new_name,
            new_name=self.old_name,
            change=_REVERSED.get(self.change, self.change),
            hunks=tuple(hunk.reversed() for hunk in self.hunks),
            old_blob=self.new_blob,
            new_blob=self.old_blob,
        )


class Diff(Value):
    """All parts of a diff in order, and what was left out of it on purpose, in words."""

    files: tuple[FileDiff, ...]
    notes: tuple[str, ...]


def parse(data: bytes, *, name: str) -> Diff:
    """Read a unified diff as git, mail or diff write it; ``name`` is for messages only.

    Raise InvalidPatch, or UnsafePath for a symbolic link or a submodule, with one fact
    ``NAME:LINE: found …, expected …`` for each problem that can be told at once.
    """
    found = scan(data)
    if found.problems:
        raise _refusal(found.problems, name=name)
    files, problems = _build(found.sections)
    if problems:
        raise _refusal(problems, name=name)
    if not any(_does_something(part) for part in files):
        problem, hint = _nothing(data, found)
        raise _refusal((problem,), name=name, hint=hint)
    return Diff(files=files, notes=found.notes)


def _refusal(
    problems: Sequence[Problem], *, name: str, hint: str | None = _REMAKE
) -> InvalidPatch | UnsafePath:
    facts = [f"{name}:{problem.line}: {problem.text}" for problem in problems[:_MOST_FACTS]]
    if len(problems) > _MOST_FACTS:
        facts.append(f"{name}: {len(problems) - _MOST_FACTS} more problems")
    if any(problem.unsafe for problem in problems):
        return UnsafePath(f"{name} has parts that are never written", facts=facts)
    return InvalidPatch(
        f"{name} is not a unified diff that can be applied whole",
        facts=facts,
        hint=hint,
    )


def _does_something(part: FileDiff) -> bool:
    if part.change != "modify" or part.binary:
        return True
    return any(hunk.old != hunk.new for hunk in part.hunks)


def _nothing(data: bytes, scanned: Scan) -> tuple[Problem, str | None]:
    """Say what is there in place of a change, and what helps."""
    line, hint = 1, None
    if scanned.sections:
        line, found = scanned.sections[0].line, "a diff that changes no line"
    elif scanned.notes:  # a part that is none leaves notes on modes alone
        found = "only changes of modes, which are left out: nothing to apply"
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        found, hint = "UTF-16 text", _REMAKE
    elif data.strip():
        found, hint = "no diff", _REMAKE
    else:
        found, hint = "nothing: the diff is empty", _EMPTY
    text = f"found {found}, expected a unified diff with a change"
    return Problem(line=line, text=text), hint


def _build(sections: Sequence[Section]) -> tuple[tuple[FileDiff, ...], list[Problem]]:
    """Let unidiff parse the normalised parts and take its lines where they are those counted."""
    lines = (line.decode("latin-1") for line in _text(sections))
    try:
        parsed = iter(unidiff.PatchSet(lines))
    except UnidiffParseError as error:
        line = sections[0].line if sections else 1
        return (), [Problem(line=line, text=f"found what unidiff can't read: {error}")]
    problems: list[Problem] = []
    files = []
    for section in sections:
        hunks = _hunks(section, next(parsed, ()) if section.blocks else (), problems)
        files.append(_file(section, hunks))
    if next(parsed, None) is not None:
        problems.append(Problem(line=1, text="found a part that was not counted, expected none"))
    return tuple(files), problems


def _text(sections: Sequence[Section]) -> Iterator[bytes]:
    """Give unidiff numbers for names: it must not join, split or read anything into them."""
    for number, section in enumerate(sections):
        if not section.blocks:
            continue
        yield b"--- %d\n" % number
        yield b"+++ %d\n" % number
        for block in section.blocks:
            yield b"@@ -%d,%d +%d,%d @@\n" % (
                block.old_start,
                block.old_count,
                block.new_start,
                block.new_count,
            )
            yield from block.body


def _file(section: Section, hunks: tuple[Hunk, ...]) -> FileDiff:
    return FileDiff(
        old_name=section.old_name,
        new_name=section.new_name,
        change=section.change,
        hunks=hunks,
        git=section.git,
        old_blob=section.old_blob,
        new_blob=section.new_blob,
        binary=section.binary,
        line=section.line,
    )


def _hunks(
    section: Section, parsed: Sequence[unidiff.Hunk], problems: list[Problem]
) -> tuple[Hunk, ...]:
    hunks = []
    if len(parsed) > len(section.blocks):
        text = "found a hunk that was not counted, expected none"
        problems.append(Problem(line=section.line, text=text))
    for place, block in enumerate(section.blocks):
        hunk = _hunk(block, parsed[place]) if place < len(parsed) else None
        if hunk is None:
            text = "found a hunk that unidiff reads otherwise, expected all lines to be read"
            problems.append(Problem(line=block.line, text=text))
        else:
            hunks.append(hunk)
    return tuple(hunks)


def _hunk(block: Block, parsed: unidiff.Hunk) -> Hunk | None:
    """Return the hunk as unidiff has read it, or None if that is not the one counted."""
    body = block.body
    read = [line.line_type + line.value for line in parsed]
    place = (parsed.source_start, parsed.source_length, parsed.target_start, parsed.target_length)
    if (
        "".join(read).encode("latin-1") != b"".join(body)
        or [*map(len, read)] != [*map(len, body)]
        or place != (block.old_start, block.old_count, block.new_start, block.new_count)
    ):
        return None
    signs = bytes([line[0] for line in body])
    old = [line[1:] for line in body if line[0] in b" -"]
    new = [line[1:] for line in body if line[0] in b" +"]
    if block.markers:
        _end_without_newline(signs, old, new)
        signs = signs.replace(b"\\", b"")
    return Hunk(
        old_start=block.old_start,
        new_start=block.new_start,
        old=tuple(old),
        new=tuple(new),
        leading=len(signs) - len(signs.lstrip(b" ")),
        trailing=len(signs) - len(signs.rstrip(b" ")),
        heading=block.heading,
        line=block.line,
        added=block.added,
        removed=block.removed,
    )


def _end_without_newline(signs: bytes, old: list[bytes], new: list[bytes]) -> None:
    """Take the newline off the sides that end in a line which a marker follows."""
    for before, sign in pairwise(signs):
        if sign == ord("\\") and before != ord("+"):
            old[-1] = old[-1][:-1]
        if sign == ord("\\") and before != ord("-"):
            new[-1] = new[-1][:-1]
