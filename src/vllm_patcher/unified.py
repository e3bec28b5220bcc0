r"""Write changes of files as one unified diff that this package, git and patch can read.

Always true here: only ``\n`` ends a line, bytes come out as they went in, and a last line
without a newline gets its marker. Comparing costs little more than reading, whatever the lines
are: a diff may come out longer than it could be, but not late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from vllm_patcher.hunks import split

if TYPE_CHECKING:
    from vllm_patcher.plan import Edit

_CONTEXT = 3
_NO_NEWLINE = b"\\ No newline at end of file\n"
#: What a name may hold unquoted.
_PLAIN = bytes(set(range(ord("!"), ord("~") + 1)) - set(b'"\\'))
#: So often lines between equal lines are compared anew; the rest is taken out and put in whole.
_DEEPEST = 16


def render(edits: Iterable[Edit], *, prefix: str) -> bytes:
    """Return the diff of all edits; names get ``a/PREFIX/`` and ``b/PREFIX/`` in front."""
    return b"".join(_one(edit, prefix) for edit in edits if edit.before != edit.after)


def _one(edit: Edit, prefix: str) -> bytes:
    old, new = split(edit.before or b""), split(edit.after or b"")
    return b"".join([*_header(edit, f"{prefix}/{edit.path}"), *_hunks(old, new)])


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


def _quoted(name: bytes) -> bytes:
    """Quote a name as git does where it holds what a header line can't."""
    if not name.translate(None, _PLAIN):
        return name
    quoted = (bytes([byte]) if byte in _PLAIN + b" " else b"\\%03o" % byte for byte in name)
    return b'"' + b"".join(quoted) + b'"'


#: A run of lines that differs: where it begins and ends on the old and on the new side.
_Change = tuple[int, int, int, int]


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    group: list[_Change] = []
    for change in _changes(old, new):
        if group and change[0] - group[-1][1] > 2 * _CONTEXT:
            yield from _hunk(old, new, group)
            group = []
        group.append(change)
    if group:
        yield from _hunk(old, new, group)


def _hunk(old: Sequence[bytes], new: Sequence[bytes], group: Sequence[_Change]) -> Iterator[bytes]:
    lead = min(group[0][0], _CONTEXT)
    trail = min(len(old) - group[-1][1], _CONTEXT)
    done, end = group[0][0] - lead, group[-1][1] + trail
    sides = _side(done, end), _side(group[0][2] - lead, group[-1][3] + trail)
    yield b"@@ -%s +%s @@\n" % sides
    for begin_old, end_old, begin_new, end_new in group:
        yield from (_signed(b" ", line) for line in old[done:begin_old])
        yield from (_signed(b"-", line) for line in old[begin_old:end_old])
        yield from (_signed(b"+", line) for line in new[begin_new:end_new])
        done = end_old
    yield from (_signed(b" ", line) for line in old[done:end])


def _side(begin: int, end: int) -> bytes:
    # An empty side names the line above it.
    return b"%d,%d" % (begin + 1 if end > begin else begin, end - begin)


def _signed(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n" + _NO_NEWLINE


def _changes(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[_Change]:
    """Give the runs between kept lines."""
    at_old = at_new = 0
    for kept_old, kept_new in [*_kept(old, new), (len(old), len(new))]:
        if kept_old > at_old or kept_new > at_new:
            yield at_old, kept_old, at_new, kept_new
        at_old, at_new = kept_old + 1, kept_new + 1


def _kept(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Pair equal lines, in order on both sides.

    Lines that each side has only once are paired first; what is between those is compared in the
    same way, where lines may be the only ones that are not so in the whole.
    """
    kept: list[tuple[int, int]] = []
    gaps = [(0, len(old), 0, len(new), 0)]
    while gaps:
        top, bottom, top_new, bottom_new, depth = gaps.pop()
        while top < bottom and top_new < bottom_new and old[top] == new[top_new]:
            kept.append((top, top_new))
            top, top_new = top + 1, top_new + 1
        while top < bottom and top_new < bottom_new and old[bottom - 1] == new[bottom_new - 1]:
            bottom, bottom_new = bottom - 1, bottom_new - 1
            kept.append((bottom, bottom_new))
        if top == bottom or top_new == bottom_new or depth == _DEEPEST:
            continue
        pairs = [
            (one + top, other + top_new)
            for one, other in _anchors(old[top:bottom], new[top_new:bottom_new])
        ]
        for one, other in pairs:
            gaps.append((top, one, top_new, other, depth + 1))
            kept.append((one, other))
            top, top_new = one + 1, other + 1
        if pairs:
            gaps.append((top, bottom, top_new, bottom_new, depth + 1))
    return sorted(kept)


def _anchors(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Pair lines that each side has only once: the longest chain that is in order on both."""
    unique_old, unique_new = _only_once(old), _only_once(new)
    pairs = [(unique_old[line], unique_new[line]) for line in unique_old if line in unique_new]
    # The last pair of the best chain of each length so far, and the pair before each pair.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [at]
        last[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _only_once(lines: Sequence[bytes]) -> dict[bytes, int]:
    """The lines that occur once, in order, and where."""
    seen: dict[bytes, int] = {}
    for number, line in enumerate(lines):
        seen[line] = -1 if line in seen else number
    return {line: number for line, number in seen.items() if number >= 0}
