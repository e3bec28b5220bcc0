"""RECORD: the digests a wheel shipped, and lines of our own added and taken out again.

Bytes in, values or bytes out; nothing here opens a file. A row is `path,digest,size` in
the quoting of RFC 4180, as the "Recording installed projects" specification has it. Paths
are relative to the folder that holds the dist-info, with `/`, and are joined lexically:
`vllm/../bin/x` and `bin/x` are one path. A byte of RECORD that does not belong to a line
added or taken out stays as it is, so adding and then removing gives the same bytes.
"""

from __future__ import annotations

import binascii
import hashlib
import posixpath
import re
from typing import TYPE_CHECKING

from vllm_patcher.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

RECORD = "RECORD"
ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})

# A field ends in exactly one way, so a failing match costs one pass over the row.
_FIELD = r'(?:"[^"]*(?:""[^"]*)*"|[^",\r\n][^,\r\n]*|)'
# Compiled when it is used, as it rarely is.
_ROW = rf"(?:({_FIELD}),({_FIELD}),({_FIELD}))?(\r\n|\r|\n|\Z)"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_TO_BASE64 = str.maketrans("-_", "+/")
_HINT = "reinstall the distribution this RECORD belongs to"
_NEEDS_QUOTES = frozenset('",\r\n')


class Record:
    """What one RECORD says about the files of its distribution.

    Paths are given and returned relative to the folder that holds the dist-info.
    """

    def __init__(self, digests: dict[str, str]) -> None:
        """Take, for each path, `algorithm=digest` as written, or "" if there is none."""
        self._digests = digests

    @classmethod
    def parse(cls, data: bytes, *, name: str = RECORD) -> Record:
        """Read the bytes of a RECORD; `name` is what a complaint calls the file.

        Raises InvalidRecord for a row that has not three fields, for a digest without an
        algorithm, and for a path with two different digests.
        """
        text = _decode(data)
        plain = _plain(text)
        if plain is not None:
            return cls(plain)
        digests: dict[str, str] = {}
        faults: list[str] = []
        for written, digest, _ in _fields(text, name=name):
            path = _normal(written)
            known = digests.get(path)
            if digest and "=" not in digest:
                faults.append(f"{path}: found digest {digest!r}, expected algorithm=digest")
            elif known and digest and known != digest:
                faults.append(f"{path}: found {known} and {digest}, expected one digest")
            elif not known:
                digests[path] = digest
        if faults:
            raise InvalidRecord(f"{name} is damaged", facts=faults, hint=_HINT)
        return cls(digests)

    def lists(self, path: str) -> bool:
        """Tell whether the path has a line, with a digest or without."""
        return _normal(path) in self._digests

    def digest(self, path: str) -> tuple[str, str] | None:
        """Give the algorithm and the unpadded URL-safe base64 digest of a path.

        None if the path has no line, or a line without a digest or with one of an
        algorithm that proves nothing.
        """
        algorithm, _, value = self._digests.get(_normal(path), "").partition("=")
        algorithm = algorithm.lower()
        return (algorithm, value.rstrip("=")) if algorithm in ALGORITHMS else None

    def sha256(self, path: str) -> str:
        """Give the SHA-256 digest of a path in hex, "" if its line has none."""
        algorithm, value = self.digest(path) or ("", "")
        if algorithm != "sha256":
            return ""
        try:
            padded = value.translate(_TO_BASE64) + "=" * (-len(value) % 4)
            return binascii.a2b_base64(padded).hex()
        except (ValueError, UnicodeError):
            return ""

    def listed_without_digest(self, path: str) -> bool:
        """Tell whether the path has a line whose digest field is empty, as ours are."""
        return self._digests.get(_normal(path)) == ""

    def matches(self, path: str, data: bytes) -> bool | None:
        """Tell whether `data` is what the path's line promises; None if it promises nothing."""
        recorded = self.digest(path)
        if recorded is None:
            return None
        algorithm, value = recorded
        digest = hashlib.new(algorithm, data).digest()
        actual = binascii.b2a_base64(digest, newline=False).translate(_URL_SAFE)
        return actual.rstrip(b"=").decode("ascii") == value

    def paths(self) -> Collection[str]:
        """Give every path that has a line, in the order of the file."""
        return self._digests.keys()


def add_lines(data: bytes, paths: Iterable[str]) -> bytes:
    """Add a line without digest and size for each path that RECORD does not list yet.

    The lines take the line ending of the file. They go to the end, or before the last
    line if that one lacks its line ending. Raises InvalidRecord.
    """
    text = _decode(data)
    rows = _rows(text, name=RECORD)
    listed = {_normal(_unquote(row[1])) for row in rows if row[1] is not None}
    new = [path for path in dict.fromkeys(paths) if _normal(path) not in listed]
    ending = next((row[4] for row in rows if row[4]), "\n")
    added = "".join(f"{_quote(path)},,{ending}" for path in new)
    cut = len(text) - (len(rows[-1][0]) if rows and not rows[-1][4] else 0)
    return _encode(text[:cut] + added + text[cut:])


def remove_lines(data: bytes, paths: Iterable[str]) -> bytes:
    """Take out the lines of these paths that have neither digest nor size.

    A path counts as it is spelled in the line. Lines with a digest or a size belong to
    the distribution and stay. Raises InvalidRecord.
    """
    gone = frozenset(paths)
    kept = [
        row[0]
        for row in _rows(_decode(data), name=RECORD)
        if row[1] is None or _unquote(row[2]) or _unquote(row[3]) or _unquote(row[1]) not in gone
    ]
    return _encode("".join(kept))


# The whole row with its end, then path, digest and size (None in a blank line), then the end.
_Row = tuple[str, "str | None", str, str, str]


def _rows(text: str, *, name: str) -> list[_Row]:
    rows: list[_Row] = []
    position, size, match = 0, len(text), re.compile(_ROW).match
    while position < size:
        found = match(text, position)
        if found is None:
            raise _malformed(text, position, name=name)
        rows.append((found[0], found[1], found[2], found[3], found[4]))
        position = found.end()
    return rows


def _fields(text: str, *, name: str) -> Sequence[Sequence[str]]:
    rows = _rows(text, name=name)
    return [(_unquote(row[1]), _unquote(row[2]), row[3]) for row in rows if row[1] is not None]


def _plain(text: str) -> dict[str, str] | None:
    """Read a RECORD as installers write it, in a third of the time; None if it is not plain.

    Plain is a path on a line of its own, once; in quotes only if it holds commas.
    """
    digests: dict[str, str] = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        head = line.rpartition(",")[0]
        path, _, digest = head.rpartition(",")
        if '"' in line:
            if path[:1] + path[-1:] != '""' or line.count('"') != 2:  # noqa: PLR2004 - a pair
                return None
            path = path[1:-1]
        elif "," in path:
            return None
        if "/." in path or "./" in path or "//" in path or path[-1:] == "/":
            path = _normal(path)
        if not path or path in digests or "\r" in line or (digest and "=" not in digest):
            if not line:
                continue
            return None
        digests[path] = digest
    return digests


def _malformed(text: str, position: int, *, name: str) -> InvalidRecord:
    line = 1 + len(re.findall(r"\r\n|\r|\n", text[:position]))
    shown = re.split(r"[\r\n]", text[position : position + 200], maxsplit=1)[0]
    return InvalidRecord(
        f"{name} is damaged",
        facts=[f"{name}:{line}: found {shown!r}, expected path,digest,size"],
        hint=_HINT,
    )


def _normal(path: str) -> str:
    # Nearly every path is normal already, and normpath is slow before Python 3.11.
    odd = "//" in path or "/." in path or "./" in path or path[-1:] == "/"
    return posixpath.normpath(path) if odd else path


def _unquote(field: str) -> str:
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def _quote(path: str) -> str:
    return '"' + path.replace('"', '""') + '"' if _NEEDS_QUOTES.intersection(path) else path


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
