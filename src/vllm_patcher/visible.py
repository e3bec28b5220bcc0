"""What can't be seen, or what a terminal or Markdown would obey, made visible in one line."""

from __future__ import annotations

import re

_LONGEST = 200
#: What Markdown, HTML or the runner's older commands (``##[``) would take for more than text.
_MARKUP = r"[\\`*_\[\]<>|#&~]"


def text(given: str) -> str:
    """Show some text with its line ends and other odd characters escaped."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in given)


def line(given: bytes | None) -> str:
    """Show a line of a file, blanks at its end too; None is what stands behind the last one."""
    if given is None:
        return "(end of file)"
    shown = given.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    ending = "" if given.endswith(b"\n") else "  (no newline at the end)"
    shown = shown.replace("\t", "\\t").replace("\r", "\\r").replace("\f", "\\f")
    body = shown.rstrip(" ")
    shown = text(body) + "\N{MIDDLE DOT}" * (len(shown) - len(body))
    return (shown[:_LONGEST] + "…" if len(shown) > _LONGEST else shown) + ending


def in_markdown(given: str) -> str:
    """Make a text one line that Markdown shows as it is."""
    return re.sub(_MARKUP, r"\\\g<0>", " ".join(given.split()))
