"""Tells lines outside every part that were meant to be one: quoted, damaged or of another kind.

Prose may hold anything else. What is told here is never left out, wherever it stands, so a part
that a mail program indented or a hand broke is not lost while the rest is applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_patcher.diff.names import show

# Also every byte beyond ASCII: blanks that don't break, marks of byte order, bars.
_QUOTING = b">|#:;%!/\"'` \t\v\f\r\0\x1b" + bytes(range(0x7F, 0x100))
_SIGNS = b"+-"
# Compiled when first used (re keeps them): most diffs have no prose at all.
_HUNK = rb"@@+[ \t]*[-+]?\d|@ ?-\d{1,15}(?:,\d{1,15})? ?\+\d{1,15}(?:,\d{1,15})? ?@|@@+[ \t]*-"
_SENDER = rb"[A-Za-z]{1,4}(?=[>|])|\d{1,8}(?=[>|:])"
"""Initials before a quoting sign, or the number of a line."""
_COLOUR = rb"\x1b\[[\d;]{0,20}[mK]"
_COMMAND = rb"\d{1,15}(?:,\d{1,15})?[acd]\d{1,15}(?:,\d{1,15})?[ \t\r]*\n"
_EXTENDED = rb"(?:new file mode|deleted file mode) \d{6}[ \t\r]*\n|similarity index \d{1,3}%"
_CONTEXT = rb"\*\*\* \d{1,15}(?:,\d{1,15})? \*\*\*\*"


def stray(lines: Sequence[bytes], at: int) -> str:
    """Say what is wrong with the line at an index, which is of no part; ``""`` if it is prose."""
    line = lines[at]
    bare = _bare(line)
    if not bare:
        return ""
    if _is_hunk_header(bare):
        return (
            f"found a quoted or damaged hunk header {show(line)},"
            " expected '@@ -LINE,COUNT +LINE,COUNT @@' behind a hunk or the names of its file"
        )
    if bare.startswith(b"diff --git ") or re.match(_EXTENDED, bare) or _is_pair(lines, at, bare):
        return f"found a quoted or damaged header {show(line)}, expected that of a file, unquoted"
    return _other_kind(lines, at, bare)


def _bare(line: bytes) -> bytes:
    if b"\x1b" in line:
        line = re.sub(_COLOUR, b"", line)
    bare = line.lstrip(_QUOTING)
    if sender := re.match(_SENDER, bare):
        return bare[sender.end() :].lstrip(_QUOTING)
    return bare


def _is_hunk_header(bare: bytes) -> bool:
    at_sign = bare.lstrip(_SIGNS + _QUOTING) if bare[0] in _SIGNS else bare
    return at_sign.startswith(b"@") and re.match(_HUNK, at_sign) is not None


def _is_pair(lines: Sequence[bytes], at: int, bare: bytes) -> bool:
    return (
        bare.startswith(b"--- ")
        and at + 1 < len(lines)
        and _bare(lines[at + 1]).startswith(b"+++ ")
    )


def _other_kind(lines: Sequence[bytes], at: int, bare: bytes) -> str:
    line = lines[at]
    quoted = len(line) - len(bare)
    after = lines[at + 1][quoted : quoted + 1] if at + 1 < len(lines) else b""
    # Not a sentence that begins so: diff writes two names there, and most have no blank.
    if re.fullmatch(rb"Only in \S+: \S+\s*", bare):
        return f"found {show(line)}, expected the whole file (diff -N)"
    if after in (b"<", b">") and re.fullmatch(_COMMAND, bare):
        return f"found {show(line)} of a normal diff, expected a unified one (diff -u)"
    if re.match(_CONTEXT, bare):
        return f"found {show(line)} of a context diff, expected a unified one (diff -u)"
    if bare.rstrip() == b"GIT binary patch":
        return f"found {show(line)}, expected the 'diff --git' line of its file first"
    if quoted and bare.startswith(b"Binary files ") and bare.rstrip().endswith(b" differ"):
        return f"found a quoted or damaged header {show(line)}, expected that of a file, unquoted"
    return ""
