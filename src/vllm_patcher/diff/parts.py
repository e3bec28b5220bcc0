"""One file's part of a diff: its header and its hunks, and what they ask for together.

A :class:`Section` is consistent: a created file has one hunk without an old side, a deleted one
has one without a new side, a rename has two names, and no hunk overlaps the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from vllm_patcher.diff.block import Block, Problem
from vllm_patcher.diff.header import Header, blobs, modes
from vllm_patcher.diff.names import is_epoch, show, unquote_name
from vllm_patcher.values import Value

_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)


class Section(Value):
    """One file's part, ready to be parsed; the names of the fields are those of FileDiff."""

    line: int
    git: bool
    old_name: bytes | None
    new_name: bytes | None
    change: str
    old_blob: str
    new_blob: str
    binary: bool
    blocks: tuple[Block, ...]


class Closed(Value):
    """What a header and its hunks come to: a part unless it does nothing, problems and notes."""

    section: Section | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def close(header: Header, blocks: Sequence[Block], *, whole: bool) -> Closed:
    """Decide what a part does to its file and say what contradicts that.

    ``whole`` is false if something of the part was refused already: then nothing is said about
    hunks that seem to be missing.
    """
    change = _change(header, blocks)
    old_blob, new_blob = blobs(header)
    problems = [
        *_mode_problems(header),
        *_name_problems(header, change),
        *_side_problems(change, blocks),
        *_order_problems(blocks),
    ]
    if whole and not blocks and not header.binary and not problems:
        problems.extend(_lost_problems(header, change))
    section = Section(
        line=header.line,
        git=header.git,
        old_name=header.old,
        new_name=header.new,
        change=change,
        old_blob=old_blob,
        new_blob=new_blob,
        binary=header.binary,
        blocks=tuple(blocks),
    )
    idle = change == "modify" and not blocks and not header.binary
    return Closed(
        section=None if idle or problems or not whole else section,
        problems=tuple(problems),
        notes=tuple(_notes(header)),
    )


def _change(header: Header, blocks: Sequence[Block]) -> str:
    if "new file mode" in header.extended or header.old is None:
        return "create"
    if "deleted file mode" in header.extended or header.new is None:
        return "delete"
    if header.extended.keys() & {"rename from", "rename to"}:
        return "rename"
    if not header.git and len(blocks) == 1:
        # diff -N and GNU diff's --new-file name the absent file and give it the epoch.
        if blocks[0].old_count == 0 and is_epoch(header.old_stamp):
            return "create"
        if blocks[0].new_count == 0 and is_epoch(header.new_stamp):
            return "delete"
    return "modify"


def _mode_problems(header: Header) -> Iterator[Problem]:
    for mode in modes(header):
        kind = {b"120000": "a symbolic link", b"160000": "a submodule"}.get(mode)
        if kind or not mode.startswith(b"100"):
            text = f"found {kind or f'the mode {show(mode)}'}, expected a plain file"
            yield Problem(line=header.line, text=text, unsafe=True)
            return


def _name_problems(header: Header, change: str) -> Iterator[Problem]:
    extended, text = header.extended, ""
    if "copy from" in extended or "copy to" in extended:
        text = "found a copy, expected a change, a new, a deleted or a renamed file"
    elif header.old is None and header.new is None:
        text = "found no name that can be told, expected one on one side at least"
    elif "new file mode" in extended and header.old is not None:
        text = f"found a new file with the old name {show(header.old)}, expected '/dev/null'"
    elif "deleted file mode" in extended and header.new is not None:
        text = f"found a deleted file with the new name {show(header.new)}, expected '/dev/null'"
    elif extended.keys() & {"rename from", "rename to"}:
        text = _rename_problem(header, change)
    if text:
        yield Problem(line=header.line, text=text)


def _rename_problem(header: Header, change: str) -> str:
    if change != "rename":
        return f"found a rename that is to {change} as well, expected one of them"
    for key, name in (("rename from", header.old), ("rename to", header.new)):
        if key not in header.extended:
            return f"found half of a rename, expected a '{key}' line"
        wanted = unquote_name(header.extended[key])
        if name is None or not (b"/" + name).endswith(b"/" + wanted):
            return f"found '{key}' {show(wanted)}, expected {show(name or b'')}"
    if header.extended["rename from"] == header.extended["rename to"]:
        return "found a rename to the same name, expected two names"
    return ""


def _side_problems(change: str, blocks: Sequence[Block]) -> Iterator[Problem]:
    if change not in ("create", "delete"):
        return
    sign, file = ("+", "a new file") if change == "create" else ("-", "a deleted file")
    for block in blocks[:1]:
        if block.old_count if change == "create" else block.new_count:
            text = f"found other lines, expected only '{sign}' lines in {file}"
            yield Problem(line=block.line, text=text)
    for block in blocks[1:]:
        text = f"found one more hunk, expected a single one in {file}"
        yield Problem(line=block.line, text=text)


def _order_problems(blocks: Sequence[Block]) -> Iterator[Problem]:
    for before, block in pairwise(blocks):
        text = ""
        if before.markers:
            text = "found a hunk behind the end of the file"
        elif _begin(block.old_start, block.old_count) < (
            _begin(before.old_start, before.old_count) + before.old_count
        ):
            text = "found a hunk that begins before the one above it ends"
        elif _begin(block.new_start, block.new_count) < _begin(before.new_start, before.new_count):
            # Only the order counts here: who edits a hunk seldom corrects all later numbers.
            text = "found a hunk whose new side begins before that of the one above it"
        if text:
            text += f", expected hunks in order and none that overlaps that of line {before.line}"
            yield Problem(line=block.line, text=text)


def _begin(start: int, count: int) -> int:
    # An empty side names the line after which it stands, any other its first line.
    return start if count == 0 else max(start - 1, 0)


def _lost_problems(header: Header, change: str) -> Iterator[Problem]:
    """Refuse a part without hunks if its header says that there was something in them."""
    old, new = blobs(header)
    if change in ("create", "delete"):
        blob = new if change == "create" else old
        lost = blob != "" and not any(empty.startswith(blob) for empty in _EMPTY_BLOBS)
    elif change == "rename":
        lost = old != new
    else:
        lost = old != new or "new mode" not in header.extended
    if lost:
        text = "found the header of a file without a hunk, expected '@@ -…' behind it"
        yield Problem(line=header.line, text=text)


def _notes(header: Header) -> Iterator[str]:
    name = show(header.new or header.old or b"")
    if "new mode" in header.extended:
        yield f"the mode change of {name} is left out"
    elif header.extended.get("new file mode", b"100644") != b"100644":
        yield f"the mode of the new file {name} is left out"
