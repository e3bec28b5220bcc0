"""Write changes of files as one unified diff that this package, git and patch can read.

Always true here: only ``\\n`` ends a line, bytes come out as they went in, and a last line
without a newline gets its marker.
"""

from __future__ import annotations

from collections.abc import Iterable

from .hunks import split
from .plan import Edit

_NO_NEWLINE = b"\\ No newline at end of file\n"


def render(edits: Iterable[Edit], *, prefix: str) -> bytes:
    """Return the diff of all edits; names get ``a/PREFIX/`` and ``b/PREFIX/`` in front."""
    return b"".join(_one(edit, prefix) for edit in edits)


def _one(edit: Edit, prefix: str) -> bytes:
    from difflib import diff_bytes, unified_diff

    old, new = split(edit.before or b""), split(edit.after or b"")
    body = diff_bytes(unified_diff, old, new, lineterm=b"\n")
    lines = [_terminated(line) for line in body][2:]
    return b"".join([*_header(edit, f"{prefix}/{edit.path}"), *lines])


def _header(edit: Edit, name: str) -> list[bytes]:
    path = name.encode("utf-8", "surrogateescape")
    lines = [b"diff --git " + _quoted(b"a/" + path) + b" " + _quoted(b"b/" + path) + b"\n"]
    if edit.before is None:
        lines.append(b"new file mode 100644\n")
    if edit.after is None:
        lines.append(b"deleted file mode 100644\n")
    if edit.before or edit.after:
        old = b"/dev/null" if edit.before is None else _quoted(b"a/" + path)
        new = b"/dev/null" if edit.after is None else _quoted(b"b/" + path)
        lines += [b"--- " + old + b"\n", b"+++ " + new + b"\n"]
    return lines


def _terminated(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE


def _quoted(name: bytes) -> bytes:
    """Quote a name as git does where it holds what a header line can't."""
    if all(0x20 < byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    plain = b"".join(
        bytes([byte]) if 0x20 <= byte < 0x7F and byte not in b'"\\' else b"\\%03o" % byte
        for byte in name
    )
    return b'"' + plain + b'"'
