"""What the verbs share: exit codes, output in text or JSON, colour.

Always true here: results go to standard output, diagnostics to standard error; a reader that
closes the pipe does not change the exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

from vllm_patcher.errors import VllmPatchError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_BUG = 4
EXIT_INTERRUPTED = 130


class Output:
    """Where lines go and how they look."""

    def __init__(
        self, *, json: bool = False, color: str = "auto", quiet: bool = False, verbose: bool = False
    ) -> None:
        self.json = json
        self.quiet = quiet
        self.verbose = verbose
        self._color = color

    def lines(self, lines: Iterable[str]) -> None:
        """Print result lines, unless quiet."""
        if not self.quiet:
            for line in lines:
                _write(sys.stdout, line + "\n")

    def raw(self, data: bytes) -> None:
        """Print bytes as they are."""
        _write_bytes(sys.stdout, data)

    def document(self, body: dict[str, Any]) -> None:
        """Print one JSON object."""
        import json

        _write(sys.stdout, json.dumps(body, indent=2, ensure_ascii=True) + "\n")

    def note(self, line: str) -> None:
        """Print one line of diagnostics, unless quiet."""
        if not self.quiet:
            _write(sys.stderr, f"note: {line}\n")

    def error(self, error: VllmPatchError) -> None:
        """Print an error: what, facts, hint."""
        from vllm_patcher import report

        for line in report.error_text(error, style=self.style_for(sys.stderr)):
            _write(sys.stderr, line + "\n")

    def error_line(self, line: str) -> None:
        """Print one line as an error."""
        _write(sys.stderr, f"{self.style_for(sys.stderr)('error', 'red')}: {line}\n")

    def style_for(self, stream: IO[str]) -> Any:
        """The function that colours a text for this stream."""
        return _colored if self._wants_color(stream) else _plain

    def _wants_color(self, stream: IO[str]) -> bool:
        if self._color != "auto":
            return self._color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"


def _colored(text: str, color: str) -> str:
    return click.style(text, fg=color)


def _plain(text: str, _color: str) -> str:
    return text


def _write(stream: IO[str], text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    _write_bytes(stream, text.encode(encoding, "backslashreplace"))


def _write_bytes(stream: IO[str], data: bytes) -> None:
    try:
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(data.decode("utf-8", "backslashreplace"))
        else:
            stream.flush()
            buffer.write(data)
            buffer.flush()
    except BrokenPipeError:
        # The verdict is the exit code; that nobody reads the lines does not change it.
        return
