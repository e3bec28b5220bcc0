"""Finds the parts of a diff among everything else a file may hold, in one pass over its lines.

A ``---``/``+++``/``@@`` triple or a ``diff --git`` header that something follows is a part;
the rest is prose. No line is left out in silence: one that could belong to a hunk is either in
a :class:`Block` or in a :class:`Problem`, and prose alone does not make the lines behind a hunk
free: only a mail's end or beginning and a new part do. A Block's body is normalised, so every
line begins with its sign, ends in a newline and is counted by the header. Time and memory are
linear in the bytes given, whatever numbers the headers claim.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

from vllm_patcher.diff.block import Block, Problem, conflict_left_in, read_block
from vllm_patcher.diff.header import Header, is_pair, read_binary, read_git, read_plain
from vllm_patcher.diff.names import show
from vllm_patcher.diff.parts import Section, close
from vllm_patcher.diff.stray import stray
from vllm_patcher.errors import InvalidPatch
from vllm_patcher.values import Value

_RULE = rb"--(?: |-)?\r?\n"
_HUNK_SIGNS = b" +-\\"
_CHANGE_SIGNS = b"+-\\"
_CONFLICT = rb"(?:<{7}|>{7}|\|{7}|={7})(?:[ \r\n])"

_MAIL = (
    rb"From \S{1,200} +[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    rb"|# HG changeset patch\r?\n"
)
"""How a mail of a series begins, and a changeset of Mercurial."""

_PROSE, _HUNK_DONE, _TALK, _SIGNED, _BROKEN = range(5)
"""Talk is prose behind a hunk, where no signed line may be; it is free again after a signature
and its text. In a broken hunk nothing more is said."""


class Scan(Value):
    """All that a diff holds, each in the order of its lines."""

    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def scan(data: bytes) -> Scan:
    """Find the parts of a diff, what is wrong with it and what is left out on purpose."""
    scanner = _Scanner(data)
    scanner.run()
    return Scan(
        sections=tuple(scanner.sections),
        problems=tuple(sorted(scanner.problems, key=lambda problem: problem.line)),
        notes=tuple(scanner.notes),
    )


class _Scanner:
    """The place in the lines, the part that is open, and what has been found so far."""

    def __init__(self, data: bytes) -> None:
        self.lines = list(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")))
        if self.lines and not self.lines[-1].endswith(b"\n"):
            self.lines[-1] += b"\n"
        self.may_conflict = b"\n+<<<<<<< " in data
        self.at = 0
        self.state = _PROSE
        self.header: Header | None = None
        self.blocks: list[Block] = []
        self.whole = True
        self.sections: list[Section] = []
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def run(self) -> None:
        handlers = {
            b"-": self._dash,
            b"@": self._at_sign,
            b"d": self._diff,
            b"B": self._binary,
            b"*": self._star,
            b"<": self._conflict,
            b">": self._conflict,
            b"|": self._conflict,
            b"=": self._conflict,
        }
        while self.at < len(self.lines):
            line = self.lines[self.at]
            handler = handlers.get(line[:1])
            if handler is None or not handler(line):
                self._other(line)
        self._close()

    def _problem(self, text: str) -> None:
        self.problems.append(Problem(line=self.at + 1, text=text))
        self.whole = False

    def _refuse(self, text: str) -> bool:
        """Note a problem with this line and leave out what may belong to it."""
        self._problem(text)
        self.state = _BROKEN
        self.at += 1
        return True

    def _other(self, line: bytes) -> None:
        if self.state != _BROKEN and (text := stray(self.lines, self.at)):
            self._refuse(text)
        elif line.isspace():
            self.at += 1
        elif self._is_leftover(line):
            self._refuse(f"found {show(line)}, expected no more lines of the hunk above")
        else:
            self.at += 1
            if line[0] not in _HUNK_SIGNS:
                self._talk(line)

    def _is_leftover(self, line: bytes) -> bool:
        if self.state == _TALK:
            return line[0] in _CHANGE_SIGNS
        return self.state in (_HUNK_DONE, _SIGNED) and line[0] in _HUNK_SIGNS

    def _talk(self, line: bytes) -> None:
        if self.state not in (_HUNK_DONE, _TALK) or re.match(_MAIL, line):
            self.state = _PROSE
        else:
            self.state = _TALK

    def _dash(self, line: bytes) -> bool:
        if is_pair(self.lines, self.at):
            self._open(read_plain)
            return True
        if self.state == _PROSE:
            return False
        # A signature, or a lone rule: what follows is still held against the hunk above.
        lone = line.startswith(b"--- ") and self._header_follows()
        if lone or re.fullmatch(_RULE, line):
            self.at += 1
            if self.state != _BROKEN and line.rstrip(b"\r\n") == b"-- ":
                self.state = _SIGNED
            return True
        return False

    def _header_follows(self) -> bool:
        after = self.at + 1
        return is_pair(self.lines, after) or (
            after < len(self.lines) and self.lines[after].startswith(b"diff --git ")
        )

    def _diff(self, line: bytes) -> bool:
        if line.startswith((b"diff --cc ", b"diff --combined ")):
            self._close()
            return self._refuse("found a combined diff of a merge, expected one with two sides")
        if not line.startswith(b"diff --git "):
            return False
        # One that nothing of git's follows is damaged, which is said like that of a quoted one.
        return self._open(read_git)

    def _binary(self, line: bytes) -> bool:
        if not line.startswith(b"Binary file"):
            return False
        return self._open(read_binary)

    def _open(self, read: Callable[[Sequence[bytes], int], Header | None]) -> bool:
        """Begin a part; return False if the lines here are no header."""
        try:
            header = read(self.lines, self.at)
        except InvalidPatch as error:
            self._close()
            return self._refuse(f"found {error.what}, expected the header of a file")
        if header is None:
            return False
        self._close()
        self.header = header
        self.at += header.length
        self.state = _TALK
        if header.paired:
            self._expect_hunk()
        return True

    def _expect_hunk(self) -> None:
        if self.at < len(self.lines) and self.lines[self.at].startswith(b"@@"):
            self.state = _HUNK_DONE
            return
        found = show(self.lines[self.at]) if self.at < len(self.lines) else "the end of the diff"
        self._problem(f"found {found}, expected '@@ -…' behind the names of a file")
        self.header = None
        self.state = _BROKEN

    def _close(self) -> None:
        """End the part that is open, if any."""
        header, blocks, whole = self.header, self.blocks, self.whole
        self.header, self.blocks, self.whole = None, [], True
        if header is None:
            return
        closed = close(header, blocks, whole=whole)
        self.notes.extend(closed.notes)
        self.problems.extend(closed.problems)
        if closed.section is not None:
            self.sections.append(closed.section)

    def _star(self, line: bytes) -> bool:
        names, stars = self.lines[self.at + 1 : self.at + 2], self.lines[self.at + 2 : self.at + 3]
        if not (
            line.startswith(b"*** ")
            and any(name.startswith(b"--- ") for name in names)
            and any(star.startswith(b"***************") for star in stars)
        ):
            return False
        self._close()
        self._refuse("found a context diff, expected a unified one (diff -u)")
        self.at += 2
        return True

    def _conflict(self, line: bytes) -> bool:
        if self.state == _BROKEN or not re.match(_CONFLICT, line):
            return False
        # In prose a row of seven underlines a heading.
        if line.startswith(b"=") and self.state in (_PROSE, _TALK):
            return False
        return self._refuse(f"found the conflict marker {show(line)}, expected a resolved diff")

    def _at_sign(self, line: bytes) -> bool:
        if line.startswith(b"@@@ -"):
            self._close()
            return self._refuse("found a combined diff of a merge, expected one with two sides")
        if not line.startswith(b"@@"):
            return False
        if self.header is not None and self.header.paired and self.state not in (_PROSE, _TALK):
            self._hunk()
            return True
        if line.startswith(b"@@ -"):
            return self._refuse(
                f"found the hunk {show(line)}, expected the '---' and '+++' lines of its file first"
            )
        if (self.header or self.sections) and not line.strip(b"@. \r\n"):
            return self._refuse(f"found {show(line)}, expected '@@ -LINE,COUNT +LINE,COUNT @@'")
        return False

    def _hunk(self) -> None:
        read, self.at = read_block(self.lines, self.at)
        if isinstance(read, Block) and self.may_conflict:
            read = conflict_left_in(read) or read
        if isinstance(read, Block):
            self.blocks.append(read)
            self.state = _HUNK_DONE
            if read.trimmed:
                lines = "a line" if read.trimmed == 1 else f"{read.trimmed} lines"
                self.notes.append(
                    f"the diff ends {lines} before the hunk of its line {read.line} does; "
                    "blank ones were taken for what is missing"
                )
        else:
            self.problems.append(read)
            self.state, self.whole = _BROKEN, False
