"""File names as the headers of a diff spell them.

Names are bytes throughout and nothing here knows what lies on disk. No expression is run over
more than :data:`LONGEST` bytes, so a header can't be made expensive.
"""

from __future__ import annotations

import re

from vllm_patcher.errors import InvalidPatch

LONGEST = 8192
"""The longest header, in bytes, in which a name is looked for (twice PATH_MAX of Linux)."""

# Compiled when first used (re keeps them): most diffs need none of these.
_QUOTED = rb'(?s:"(?:[^"\\]|\\.)*")'
_ESCAPE = rb'\\(?:([abtnvfr"\\])|([0-3][0-7]{2})|)'
_LETTERS = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_CLOCK = rb"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ZONE = rb"(?: ?(?:[+-]\d\d:?\d\d|Z|UTC|GMT))?"
_ISO_DATE = rb"\d{4}-\d\d-\d\d[ T]" + _CLOCK + _ZONE
_C_DATE = rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d " + _CLOCK + rb" (?:[A-Z]{3,4} )?\d{4}" + _ZONE
_DATE_AT_END = rb" (" + _ISO_DATE + rb"|" + _C_DATE + rb") *\Z"
_EPOCH = (
    rb"(1969-12-31|1970-01-01)[ T](\d\d):(\d\d)(?::00(?:[.,]0{1,9})?)?(?: ?([+-])(\d\d):?(\d\d))?"
)


def unquote_name(raw: bytes) -> bytes:
    r"""Take the C quotes off a name such as ``"a/caf\303\251.py"``.

    A name that does not begin with a quote is returned as it is. Raise InvalidPatch where the
    quotes or an escape are broken. The escapes are those of git's ``core.quotePath``.
    """
    if not raw.startswith(b'"'):
        return raw
    if not re.fullmatch(_QUOTED, raw):
        raise InvalidPatch(f"the quotes of the name {show(raw)} are broken")
    return re.sub(_ESCAPE, lambda found: _unescaped(found, raw), raw[1:-1])


def _unescaped(found: re.Match[bytes], raw: bytes) -> bytes:
    if found[1]:
        return bytes((_LETTERS[found[1][0]],))
    if found[2]:
        return bytes((int(found[2], 8),))
    raise InvalidPatch(f"the name {show(raw)} has an escape that is not known")


def header_name(rest: bytes) -> tuple[bytes, bytes]:
    """Split what stands behind ``--- `` or ``+++ `` into a name and its timestamp.

    The line end must be off. The name is unquoted; the timestamp is ``b""`` if there is none.
    Raise InvalidPatch for a name no file can have.
    """
    _check_length(rest)
    if rest.startswith(b'"'):
        quoted = re.match(_QUOTED, rest)
        end = quoted.end() if quoted else len(rest)
        return checked(unquote_name(rest[:end])), rest[end:].strip()
    if b"\t" in rest:
        name, _, stamp = rest.partition(b"\t")
    elif b" " in rest and (date := re.search(_DATE_AT_END, rest)):
        name, stamp = rest[: date.start()].rstrip(b" "), date[1]
    else:
        # No tab follows, so blanks at the end are not part of it: git would have put one.
        name, stamp = rest.rstrip(b" "), b""
    return checked(name), stamp.strip()


def checked(name: bytes) -> bytes:
    """Return a name that a file can have; raise InvalidPatch for any other."""
    _check_length(name)
    if not name:
        raise InvalidPatch("an empty name")
    if b"\0" in name or b"\n" in name:
        raise InvalidPatch(f"the name {show(name)} with a NUL or a newline in it")
    if name.endswith(b"/"):
        raise InvalidPatch(f"the name {show(name)} of a folder")
    return name


def _check_length(raw: bytes) -> None:
    if len(raw) > LONGEST:
        raise InvalidPatch(f"a name of {len(raw)} bytes")


def git_names(rest: bytes) -> tuple[bytes, bytes] | None:
    """Split what stands behind ``diff --git `` into its two names.

    Return None where spaces make more than one split possible. Raise InvalidPatch for a name
    no file can have.
    """
    _check_length(rest)
    if rest.startswith(b'"') or rest.endswith(b'"'):
        return _quoted_pair(rest)
    middle = len(rest) // 2
    old, new = rest[:middle], rest[middle + 1 :]
    # git leaves spaces unquoted, but then both names are the same behind their prefixes.
    same = len(old) == len(new) and rest[middle : middle + 1] == b" "
    if not (same and (old == new or old[1:] == new[1:] or _tail(old) == _tail(new))):
        if rest.count(b" ") != 1:
            return None
        old, _, new = rest.partition(b" ")
    return checked(old), checked(new)


def _tail(name: bytes) -> bytes:
    return name.partition(b"/")[2] or name


def _quoted_pair(rest: bytes) -> tuple[bytes, bytes] | None:
    if first := re.match(_QUOTED, rest):
        old, gap, new = first[0], rest[first.end() : first.end() + 1], rest[first.end() + 1 :]
    else:
        old, gap, new = rest.partition(b' "')
        new = b'"' + new
    if not gap:
        return None
    return checked(unquote_name(old)), checked(unquote_name(new))


def renamed_names(rest: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """Give the two names of a rename the prefixes which ``diff --git REST`` has for them.

    Where the line is quoted or says something else the names stay bare.
    """
    prefixes, odd = divmod(len(rest) - len(old) - len(new) - 1, 2)
    if odd or prefixes < 0:
        return old, new
    whole_old, whole_new = rest[: prefixes + len(old)], rest[prefixes + len(old) + 1 :]
    if whole_old.endswith(old) and whole_new.endswith(new):
        return whole_old, whole_new
    return old, new


def binary_names(text: bytes) -> tuple[bytes, bytes] | None:
    """Read the names out of ``Binary files OLD and NEW differ``; None if it is no such line.

    Mercurial's ``Binary file NAME has changed`` gives the name twice.
    """
    if len(text) > LONGEST:
        return None
    if text.startswith(b"Binary file ") and text.endswith(b" has changed"):
        name, _ = header_name(text[12:-12])
        return name, name
    if not (text.startswith(b"Binary files ") and text.endswith(b" differ")):
        return None
    rest = text[13:-7]
    joints = [found.start() for found in re.finditer(b" and ", rest)]
    if not joints:
        return None
    # A name may hold " and " itself: the joint in the middle leaves equal names on both sides.
    joint = min(joints, key=lambda at: abs(2 * at + 5 - len(rest)))
    if rest.startswith(b"/dev/null and "):
        joint = joints[0]
    elif rest.endswith(b" and /dev/null"):
        joint = joints[-1]
    return header_name(rest[:joint])[0], header_name(rest[joint + 5 :])[0]


def is_epoch(stamp: bytes) -> bool:
    """Tell whether a timestamp is 1970-01-01 00:00:00 UTC, which diff gives an absent file.

    Without a zone the clock must read midnight.
    """
    found = re.fullmatch(_EPOCH, stamp)
    if not found:
        return False
    minutes = int(found[2]) * 60 + int(found[3]) - (1440 if found[1] == b"1969-12-31" else 0)
    if found[4]:
        ahead = int(found[5]) * 60 + int(found[6])
        minutes -= ahead if found[4] == b"+" else -ahead
    return minutes == 0


def show(raw: bytes, *, longest: int = 60) -> str:
    """Quote bytes of a diff for a message: one line, printable, cut after ``longest`` bytes."""
    line = raw[: longest + 1].removesuffix(b"\n")
    text = line[:longest].decode("utf-8", "backslashreplace")
    safe = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )
    return f"'{safe}…'" if len(line) > longest else f"'{safe}'"
