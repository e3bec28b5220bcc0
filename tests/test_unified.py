from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import difftools
from vllm_patcher.diff import parse, unquote_name
from vllm_patcher.hunks import Misfit, apply
from vllm_patcher.plan import Edit
from vllm_patcher.unified import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Files = dict[str, bytes]


def edits(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Edit]:
    paths = sorted(before.keys() | after.keys())
    return [Edit(path=path, before=before.get(path), after=after.get(path)) for path in paths]


def put_on(text: bytes, before: Mapping[str, bytes]) -> Files:
    """Put a diff on files by the package's own parser and engine."""
    after = dict(before)
    for file in parse(text, name="x.patch").files if text else ():
        name = file.new_name or file.old_name or b""
        path = (
            name.removeprefix(b"b/vllm/")
            .removeprefix(b"a/vllm/")
            .decode("utf-8", "surrogateescape")
        )
        result = apply(after.get(path), file)
        assert not isinstance(result, Misfit), result
        after.pop(path, None)
        if result.data is not None:
            after[path] = result.data
    return after


def put_on_by(
    command: Sequence[str], folder: Path, text: bytes, before: Mapping[str, bytes]
) -> Files:
    """Put a diff on files on disk by another tool."""
    root = os.fsencode(folder)
    for path, data in before.items():
        full = os.path.join(root, b"vllm", path.encode("utf-8", "surrogateescape"))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
    done = difftools.start(folder, *command, data=text)
    assert done.returncode == 0, done.stderr
    after: Files = {}
    for within, _, names in os.walk(os.path.join(root, b"vllm")):
        for name in names:
            full = os.path.join(within, name)
            relative = os.path.relpath(full, os.path.join(root, b"vllm"))
            with open(full, "rb") as file:
                after[relative.decode("utf-8", "surrogateescape")] = file.read()
    return after


GIT = ("git", "apply", "--whitespace=nowarn", "-")
PATCH = ("patch", "-F0", "-p1", "--binary", "--force", "-s")

FILES = [
    pytest.param({"x.py": b"a\nb\n"}, {"x.py": b"a\nc\n"}, id="changed"),
    pytest.param({}, {"x.py": b"a\nb\n"}, id="created"),
    pytest.param({}, {"x.py": b"a"}, id="created, no newline"),
    pytest.param({}, {"x.py": b""}, id="created empty"),
    pytest.param({"x.py": b"a\nb\n"}, {}, id="deleted"),
    pytest.param({"x.py": b"a"}, {}, id="deleted, no newline"),
    pytest.param({"x.py": b""}, {}, id="deleted empty"),
    pytest.param({"x.py": b""}, {"x.py": b"a\n"}, id="filled"),
    pytest.param({"x.py": b"a\n"}, {"x.py": b""}, id="emptied"),
    pytest.param({"x.py": b"a\nb"}, {"x.py": b"a\nb\n"}, id="newline added"),
    pytest.param({"x.py": b"a\nb\n"}, {"x.py": b"a\nb"}, id="newline taken"),
    pytest.param({"x.py": b"a\r\nb\r\n"}, {"x.py": b"a\r\nc\r\n"}, id="crlf"),
    pytest.param({"x.py": b"\xe9\x0cb\rc\n"}, {"x.py": b"\xe9\x0cb\rd\n\xe2\x80\xa8"}, id="bytes"),
    pytest.param({"x.py": b"-- a\n-- b\n"}, {"x.py": b"-- a\n--- c\n"}, id="dashes"),
    pytest.param(
        {"x.py": b"a\n", "v1/y.py": b"b\n"}, {"x.py": b"c\n", "w/z.py": b""}, id="several"
    ),
]  # fmt: skip

NAMES = ["two words.py", 'a "quote".py', "back\\slash.py", "caf\u00e9.py", "tab\there.py",
         " blanks ", "\udce9.py", "a -> b", "x.py\t2024-01-01", "d ir/x.py"]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), FILES)
def test_reads_back(before: Files, after: Files) -> None:
    text = render(edits(before, after), prefix="vllm")
    assert put_on(text, before) == after


@pytest.mark.parametrize(("before", "after"), FILES)
def test_git_reads_it(before: Files, after: Files, tmp_path: Path) -> None:
    text = render(edits(before, after), prefix="vllm")
    assert put_on_by(GIT, tmp_path, text, before) == after


@pytest.mark.parametrize(("before", "after"), FILES)
def test_gnu_patch_reads_it(before: Files, after: Files, tmp_path: Path) -> None:
    text = render(edits(before, after), prefix="vllm")
    assert put_on_by(PATCH, tmp_path, text, before) == after


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_read_back(name: str, tmp_path: Path) -> None:
    for number, (before, after) in enumerate(
        [({name: b"a\n"}, {name: b"b\n"}), ({}, {name: b"a\n"}), ({name: b""}, {})]
    ):
        text = render(edits(before, after), prefix="vllm")
        assert put_on(text, before) == after
        for tool, command in (("git", GIT), ("patch", PATCH)):
            folder = tmp_path / f"{tool}{number}"
            folder.mkdir()
            assert put_on_by(command, folder, text, before) == after, tool


def test_plain_names_are_not_quoted() -> None:
    text = render([Edit(path="v1/x.py", before=b"a\n", after=b"b\n")], prefix="vllm")
    assert text == (
        b"diff --git a/vllm/v1/x.py b/vllm/v1/x.py\n"
        b"--- a/vllm/v1/x.py\n+++ b/vllm/v1/x.py\n@@ -1,1 +1,1 @@\n-a\n+b\n"
    )


def test_quoted_names_are_plain_text() -> None:
    text = render([Edit(path='\u00e9 "', before=b"a\n", after=b"b\n")], prefix="vllm")
    assert b'--- "a/vllm/\\303\\251 \\042"\n' in text
    assert unquote_name(b'"a/vllm/\\303\\251 \\042"') == 'a/vllm/\u00e9 "'.encode()


def test_what_does_not_change_is_left_out() -> None:
    assert not render([Edit(path="x.py", before=b"a\n", after=b"a\n")], prefix="vllm")


def hunk_headers(old: bytes, new: bytes) -> list[bytes]:
    text = render([Edit(path="x.py", before=old, after=new)], prefix="vllm")
    return [line for line in text.split(b"\n") if line.startswith(b"@@")]


def test_changes_close_together_share_a_hunk() -> None:
    lines = [b"%d\n" % number for number in range(40)]
    near, far = list(lines), list(lines)
    near[10] = near[17] = b"new\n"
    far[10] = far[18] = b"new\n"
    assert hunk_headers(b"".join(lines), b"".join(near)) == [b"@@ -8,14 +8,14 @@"]
    assert hunk_headers(b"".join(lines), b"".join(far)) == [
        b"@@ -8,7 +8,7 @@",
        b"@@ -16,7 +16,7 @@",
    ]


def counts(old: bytes, new: bytes) -> tuple[int, int]:
    text = render([Edit(path="x.py", before=old, after=new)], prefix="vllm")
    (file,) = parse(text, name="x.patch").files
    return sum(hunk.removed for hunk in file.hunks), sum(hunk.added for hunk in file.hunks)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        pytest.param(b"a\nb\nc\n", b"a\nx\nb\nc\n", (0, 1), id="put in"),
        pytest.param(b"a\nb\nc\n", b"a\nc\n", (1, 0), id="taken out"),
        pytest.param(b"a\nb\nc\nd\n", b"c\nd\na\nb\n", (2, 2), id="moved"),
        # Only between the first two unique lines is each `)` one of a kind.
        pytest.param(b"a\n(\n)\nb\n(\n)\nc\n", b"a\n1\n)\nb\n(\n3\n)\nc\n", (1, 2), id="repeated"),
        pytest.param(
            b"A\np\nu\nq\nB\nu\nv\n", b"A\nr\nu\ns\nB\nu\nw\n", (3, 3), id="once between others"
        ),
        pytest.param(b"x\n" * 9, b"x\n" * 7, (2, 0), id="all equal"),
    ],
)  # fmt: skip
def test_the_diff_is_short(old: bytes, new: bytes, wanted: tuple[int, int]) -> None:
    assert counts(old, new) == wanted


LINES = st.sampled_from([b"a", b"b", b"c", b"", b"    d", b"e\r", b"\x0c", b"-- x", b"@@ -1 +1 @@"])
DATA = st.none() | st.builds(b"\n".join, st.lists(LINES, max_size=30))


@settings(max_examples=400, deadline=None)
@given(before=DATA, after=DATA)
@example(before=b"a\nb\nc\nd", after=b"d\nc\nb\na")
def test_every_change_reads_back(before: bytes | None, after: bytes | None) -> None:
    edit = Edit(path="x.py", before=before, after=after)
    sides = [{} if data is None else {"x.py": data} for data in (before, after)]
    text = render([edit], prefix="vllm")
    assert put_on(text, sides[0]) == sides[1]
    for file in parse(text, name="x.patch").files if text else ():
        back = apply(after, file.reversed())
        assert not isinstance(back, Misfit)
        assert back.data == before


# No time is asserted: what is quadratic takes minutes here.


def test_ten_thousand_changes() -> None:
    lines = [b"%d\n" % number for number in range(100_000)]
    new = list(lines)
    new[5::10] = [b"new %d\n" % number for number in range(10_000)]
    assert counts(b"".join(lines), b"".join(new)) == (10_000, 10_000)


def test_ten_thousand_changes_among_lines_that_repeat() -> None:
    old = b"".join(b"%d\n" % (number % 7) for number in range(100_000))
    new = b"".join(b"%d\n" % (number % 7 if number % 10 else 9) for number in range(100_000))
    text = render([Edit(path="x.py", before=old, after=new)], prefix="vllm")
    assert put_on(text, {"x.py": old}) == {"x.py": new}


def test_lines_in_opposite_order() -> None:
    lines = [b"%d\n" % number for number in range(30_000)]
    assert counts(b"".join(lines), b"".join(lines[::-1])) == (29_999, 29_999)
