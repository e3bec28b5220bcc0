"""What the verbs share: exit codes, output in text or JSON, colour.

Always true here: results go to standard output, diagnostics to standard error; a reader that
closes the pipe does not change the exit code, and an output that can't be written is said. No
control character of a name or a file gets to the terminal, except in a diff asked for.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from vllm_patcher.errors import VllmPatchError

#: In this variable click is told by a shell to complete.
COMPLETE = "_VLLM_PATCH_COMPLETE"

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_BUG = 4
EXIT_INTERRUPTED = 130

Style = Callable[[str, str], str]

_NO_TERMINAL = 10**6

#: All control characters but tabs, line ends and what begins a colour.
_CONTROL = r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"


class Output:
    """Where lines go and how they look.

    ``lost`` says why results could not be written, "" if they could. ``about`` is put before
    errors and warnings: which of several installs they are about.
    """

    def __init__(
        self, *, json: bool = False, color: str = "auto", quiet: bool = False, verbose: bool = False
    ) -> None:
        self.json = json
        self.quiet = quiet
        self.verbose = verbose
        self.lost = ""
        self.about = ""
        self._color = color

    def lines(self, lines: Iterable[str]) -> None:
        """Print result lines, unless quiet."""
        if not self.quiet:
            self._result(_encoded(sys.stdout, "".join(f"{line}\n" for line in lines)))

    def commands(self, lines: Iterable[str]) -> None:
        """Print lines of results that are errors and warnings: quiet does not keep them back."""
        self._result(_encoded(sys.stdout, "".join(f"{line}\n" for line in lines)))

    def raw(self, data: bytes) -> None:
        """Print bytes as they are, unless quiet."""
        if not self.quiet:
            self._result(data)

    def document(self, body: dict[str, Any]) -> None:
        """Print one JSON object on a line of its own."""
        import json

        self._result(json.dumps(body).encode() + b"\n")

    def note(self, line: str) -> None:
        """Print one line of diagnostics, unless quiet."""
        if not self.quiet:
            self._diagnose(f"note: {line}")

    def warning(self, line: str) -> None:
        """Print one line that must be seen."""
        self._diagnose(f"{self.style_for(sys.stderr)('warning', 'yellow')}: {self.about}{line}")

    def error(self, error: VllmPatchError, hint: Callable[[str], str]) -> None:
        """Print an error: what, facts, hint."""
        from vllm_patcher import report

        style = self.style_for(sys.stderr)
        for line in report.error_text(error, style=style, hint=hint, about=self.about):
            self._diagnose(line)

    def error_line(self, line: str) -> None:
        """Print one line as an error."""
        self._diagnose(f"{self.style_for(sys.stderr)('error', 'red')}: {line}")

    def ending(self, code: int, *, changed: bool = False) -> int:
        """Return the exit code of the run, having said if the results could not be written.

        Who asked for an answer and did not get it must not read a 0. If something was
        ``changed`` the answer is that it is done.
        """
        if not self.lost:
            return code
        self.error_line(f"standard output can't be written: {self.lost}")
        return EXIT_REFUSED if code == EXIT_OK and not changed else code

    def columns(self) -> int:
        """How many characters a line of results may have: a terminal's, or any number."""
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError, AttributeError):
            width = 0
        return width or _NO_TERMINAL

    def style_for(self, stream: TextIO) -> Style:
        """The function that colours a text for this stream."""
        return _colored if self._wants_color(stream) else _plain

    def _wants_color(self, stream: TextIO | None) -> bool:
        if self._color != "auto":
            return self._color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"

    def _result(self, data: bytes) -> None:
        try:
            _write(sys.stdout, data)
        except OSError as error:
            self.lost = error.strerror or str(error)

    def _diagnose(self, line: str) -> None:
        try:
            _write(sys.stderr, _encoded(sys.stderr, line + "\n"))
        except OSError:
            return


def _colored(text: str, color: str) -> str:
    return click.style(text, fg=color)


def _plain(text: str, _color: str) -> str:
    return text


def _encoded(stream: TextIO | None, text: str) -> bytes:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if text.replace("\n", "").isprintable():
        return text.encode(encoding, "backslashreplace")
    shown = re.sub(_CONTROL, lambda match: f"\\x{ord(match[0]):02x}", text)
    return shown.encode(encoding, "backslashreplace")


def _write(stream: TextIO | None, data: bytes) -> None:
    """Write bytes, all or an OSError; that nobody reads them is no error."""
    if stream is None:  # closed before the program began
        return
    try:
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except BrokenPipeError:
        return
