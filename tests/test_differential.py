"""Ours beside git and GNU patch: the same bytes, or one of the differences that are meant.

A file is edited at random, the edit is made into a diff by each of three tools, and that diff is
put on the file, on what the edit made of it (backwards), and on a file that has drifted. What
ours says, what `git apply` says and what `patch -F0` says are compared; each way in which they
may differ has a name here and a line in docs/diffs.md, and all others fail.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import difftools
from conftest import torture
from vllm_patcher.diff import parse
from vllm_patcher.hunks import Misfit, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vllm_patcher.diff import FileDiff, Hunk

    Maker = Callable[[Path, bytes, bytes, int], bytes]


def with_difflib(_folder: Path, old: bytes, new: bytes, context: int) -> bytes:
    return difftools.with_difflib(old, new, context)


MAKERS = {"git": difftools.with_git, "diff": difftools.with_diff, "difflib": with_difflib}

# Some lines repeat, some begin blocks that a heading names, some are blank or end in a CR.
_LINES = st.one_of(
    st.sampled_from([b"", b"    ", b"def f():", b"class C:", b"    return", b"    x = 1", b"a\r"]),
    st.integers(0, 60).map(lambda n: b"    v%d = %d" % (n, n)),
)


def _joined(lines: Sequence[bytes], *, newline: bool) -> bytes:
    return b"\n".join(lines) + (b"\n" if newline and lines else b"")


def _edited(draw: st.DrawFn, lines: Sequence[bytes], times: int) -> list[bytes]:
    new = list(lines)
    for _ in range(times):
        begin = draw(st.integers(0, len(new)))
        end = min(len(new), begin + draw(st.integers(0, 3)))
        new[begin:end] = draw(st.lists(_LINES, max_size=3))
    return new


@st.composite
def edits(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, what an edit makes of it, and the same file drifted by another edit."""
    old = draw(st.lists(_LINES, max_size=40))
    newline = st.sampled_from([True, True, True, False])
    return (
        _joined(old, newline=draw(newline)),
        _joined(_edited(draw, old, draw(st.integers(1, 4))), newline=draw(newline)),
        _joined(_edited(draw, old, draw(st.integers(0, 2))), newline=draw(newline)),
    )


def put_on(data: bytes, files: Sequence[FileDiff]) -> bytes | str:
    """What ours makes of a file; the reason if it refuses."""
    for file in files:
        result = apply(data, file)
        if isinstance(result, Misfit):
            return result.reason
        data = result.data or b""
    return data


def each_alone(data: bytes, files: Sequence[FileDiff]) -> bool:
    """Say whether each hunk has a place somewhere, if not in its order."""
    alone = (file._replace(hunks=(hunk,)) for file in files for hunk in file.hunks)
    return all(put_on(data, [part]) not in {"nowhere", "elsewhere"} for part in alone)


def without_headings(files: Sequence[FileDiff]) -> list[FileDiff]:
    """The same diff, and nothing behind its second `@@`."""
    return [
        file._replace(hunks=tuple(hunk._replace(heading=b"") for hunk in file.hunks))
        for file in files
    ]


class Case(NamedTuple):
    """A file, a diff that was put on it, and what came of it: the reason where ours refuses."""

    data: bytes
    patch: bytes
    files: Sequence[FileDiff]
    ours: bytes | str

    @property
    def hunks(self) -> list[Hunk]:
        return [hunk for file in self.files for hunk in file.hunks]

    def difference(self, theirs: bytes | None, tool: str) -> str:
        """Name the way in which another tool's answer differs; "same" if it does not."""
        if theirs is None:
            return "same" if isinstance(self.ours, str) else "only ours takes it"
        if isinstance(self.ours, str):
            return self._refused(self.ours)
        if self.ours == theirs:
            return "same"
        if difftools.NO_NEWLINE in self.patch:
            return "no newline"
        if tool == "patch" and any(hunk.trailing < hunk.leading for hunk in self.hunks):
            return "less context below"
        if put_on(self.data, without_headings(self.files)) == "ambiguous":
            return "by heading"
        return f"other bytes than {tool}"

    def _refused(self, reason: str) -> str:
        if any(not hunk.old for hunk in self.hunks):
            return "no old line"
        if reason == "nowhere":
            if any(hunk.leading != hunk.trailing for hunk in self.hunks):
                return "context cut short"
            if difftools.NO_NEWLINE in self.patch:
                return "no newline"
            if len(self.hunks) > 1 and each_alone(self.data, self.files):
                return "only out of order"
        return f"ours refuses: {reason}"


#: docs/diffs.md says why each of these is meant.
MEANT = {
    "same",
    "by heading",
    "only ours takes it",
    "no old line",
    "no newline",
    "ours refuses: ambiguous",
    "ours refuses: elsewhere",
    "context cut short",
    "less context below",
    "only out of order",
}


@pytest.mark.torture
@pytest.mark.parametrize("made_by", MAKERS)
def test_ours_and_theirs(made_by: str, tmp_path: Path) -> None:
    difftools.need("diff", "git", "patch")
    seen: Counter[str] = Counter()

    @settings(max_examples=torture(100, 7000))
    @given(edit=edits(), context=st.integers(0, 5))
    def check(edit: tuple[bytes, bytes, bytes], context: int) -> None:
        old, new, drifted = edit
        patch = MAKERS[made_by](tmp_path, old, new, context)
        if not patch:
            return
        files = parse(patch, name="x.patch").files
        for data in (old, drifted):
            case = Case(data, patch, files, put_on(data, files))
            theirs = {
                "git": difftools.put_on_by_git(
                    tmp_path, data, patch, *(["--unidiff-zero"] if not context else [])
                ),
                "patch": difftools.put_on_by_patch(tmp_path, data, patch),
            }
            for tool, result in theirs.items():
                name = case.difference(result, tool)
                seen[name] += 1
                assert name in MEANT, (name, case, result)

    check()
    assert seen["same"] > sum(seen.values()) / 2, seen
