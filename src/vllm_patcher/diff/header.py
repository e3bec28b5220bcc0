"""Reads the lines with which one file's part of a diff begins.

They are read as written; whether they contradict each other is for :mod:`.parts` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from vllm_patcher.diff.names import (
    binary_names,
    checked,
    git_names,
    header_name,
    renamed_names,
    unquote_name,
)
from vllm_patcher.errors import InvalidPatch
from vllm_patcher.values import Value

_EXTENDED = (
    *("old mode", "new mode", "deleted file mode", "new file mode", "copy from", "copy to"),
    *("rename from", "rename to", "rename old", "rename new"),
    *("similarity index", "dissimilarity index", "index"),
)
_SYNONYMS = {"rename old": "rename from", "rename new": "rename to"}
_MODES = ("old mode", "new mode", "deleted file mode", "new file mode")
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?")


class Header(Value):
    """The header lines of one part: ``length`` of them, the first on the 1-based ``line``.

    A name is None for ``/dev/null``. ``paired`` tells whether there are ``---`` and ``+++``
    lines, behind which a hunk must follow. ``extended`` holds git's lines before those.
    """

    line: int
    length: int
    git: bool
    old: bytes | None
    new: bytes | None
    paired: bool = True
    old_stamp: bytes = b""
    new_stamp: bytes = b""
    binary: bool = False
    extended: Mapping[str, bytes] = MappingProxyType({})


def is_pair(lines: Sequence[bytes], at: int) -> bool:
    """Tell whether a ``---`` line and its ``+++`` line begin at an index."""
    return (
        at + 1 < len(lines) and lines[at].startswith(b"--- ") and lines[at + 1].startswith(b"+++ ")
    )


def read_plain(lines: Sequence[bytes], at: int) -> Header:
    """Read a ``---`` and a ``+++`` line; raise InvalidPatch for a name that can't be."""
    old, old_stamp = _side(lines[at])
    new, new_stamp = _side(lines[at + 1])
    return Header(
        line=at + 1,
        length=2,
        git=False,
        old=old,
        new=new,
        old_stamp=old_stamp,
        new_stamp=new_stamp,
    )


def read_binary(lines: Sequence[bytes], at: int) -> Header | None:
    """Read ``Binary files OLD and NEW differ`` of a plain diff; None if it is no such line."""
    names = binary_names(lines[at].rstrip(b"\r\n"))
    if names is None:
        return None
    old, new = map(_absent, names)
    return Header(line=at + 1, length=1, git=False, old=old, new=new, paired=False, binary=True)


def read_git(lines: Sequence[bytes], at: int) -> Header | None:
    """Read a ``diff --git`` line and all header lines behind it.

    Return None if nothing follows that git would write: then the line is prose. Raise
    InvalidPatch for a name that can't be and for a header line given twice.
    """
    extended, end = _read_extended(lines, at + 1)
    if is_pair(lines, end):
        pair = read_plain(lines, end)
        return pair.replaced(line=at + 1, length=end + 2 - at, git=True, extended=extended)
    binary = read_binary(lines, end) if end < len(lines) else None
    packed = end < len(lines) and lines[end].rstrip() == b"GIT binary patch"
    if not (extended or binary or packed):
        return None
    names = _names_without_pair(lines[at][11:].rstrip(b"\r\n"), extended)
    old, new = names or ((binary.old, binary.new) if binary else (None, None))
    return Header(
        line=at + 1,
        length=end - at + (1 if binary or packed else 0),
        git=True,
        old=None if "new file mode" in extended else old,
        new=None if "deleted file mode" in extended else new,
        paired=False,
        binary=binary is not None or packed,
        extended=extended,
    )


def _side(line: bytes) -> tuple[bytes | None, bytes]:
    name, stamp = header_name(line[4:].rstrip(b"\r\n"))
    return _absent(name), stamp


def _absent(name: bytes) -> bytes | None:
    return None if name == b"/dev/null" else name


def _read_extended(lines: Sequence[bytes], at: int) -> tuple[dict[str, bytes], int]:
    extended: dict[str, bytes] = {}
    while at < len(lines):
        line = lines[at]
        word = next((word for word in _EXTENDED if line.startswith(b"%s " % word.encode())), None)
        if word is None:
            break
        key = _SYNONYMS.get(word, word)
        if key in extended:
            raise InvalidPatch(f"a second '{key}' line in one header")
        extended[key] = line[len(word) + 1 :].removesuffix(b"\n").rstrip(b"\r")
        at += 1
    return extended, at


def _names_without_pair(rest: bytes, extended: Mapping[str, bytes]) -> tuple[bytes, bytes] | None:
    if "rename from" in extended and "rename to" in extended:
        old, new = (unquote_name(extended[key]) for key in ("rename from", "rename to"))
        return renamed_names(rest, checked(old), checked(new))
    return git_names(rest)


def blobs(header: Header) -> tuple[str, str]:
    """Return the two ids of git's index line, ``""`` for one that is absent or all zero."""
    found = _INDEX.fullmatch(header.extended.get("index", b""))
    if not found:
        return "", ""
    old, new = found[1].decode(), found[2].decode()
    return old if old.strip("0") else "", new if new.strip("0") else ""


def modes(header: Header) -> Iterator[bytes]:
    """Give every file mode the header names."""
    for key in _MODES:
        if key in header.extended:
            yield header.extended[key]
    if (found := _INDEX.fullmatch(header.extended.get("index", b""))) and found[3]:
        yield found[3]
