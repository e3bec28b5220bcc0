from __future__ import annotations

import difflib
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unidiff import patch as unidiff
from unidiff.errors import UnidiffParseError

import difftools
from vllm_patcher import diff as diff_module
from vllm_patcher.diff import Diff, FileDiff, Hunk, parse, unquote_name
from vllm_patcher.errors import InvalidPatch, UnsafePath, VllmPatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAMES = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
HUNK = b"@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n"
PLAIN = NAMES + HUNK
GIT = b"diff --git a/vllm/x.py b/vllm/x.py\n"
EPOCH = b"1970-01-01 00:00:00.000000000 +0000"


def read(data: bytes) -> Diff:
    return parse(data, name="x.patch")


def only(data: bytes) -> FileDiff:
    (file,) = read(data).files
    return file


def hunk_of(data: bytes) -> Hunk:
    (hunk,) = only(data).hunks
    return hunk


def refusal(data: bytes) -> VllmPatchError:
    with pytest.raises((InvalidPatch, UnsafePath)) as caught:
        read(data)
    assert caught.value.facts
    assert all(fact.startswith("x.patch:") for fact in caught.value.facts)
    return caught.value


def lines_of(error: VllmPatchError) -> list[int]:
    return [int(fact.split(":")[1]) for fact in error.facts]


def apply_by_hand(lines: Sequence[bytes], hunks: Sequence[Hunk]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for hunk in hunks:
        begin = hunk.old_start - 1 if hunk.old else hunk.old_start
        out += lines[at:begin]
        assert tuple(lines[begin : begin + len(hunk.old)]) == hunk.old
        assert len(out) == (hunk.new_start - 1 if hunk.new else hunk.new_start)
        out += hunk.new
        at = begin + len(hunk.old)
    return out + list(lines[at:])


def split(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + [
        line for line in data.split(b"\n")[-1:] if line
    ]


# What comes out


def test_a_plain_diff() -> None:
    assert read(b"\n" + NAMES + b"@@ -4,3 +5,4 @@  class A: \n a\n-b\n+c\n+e\n d\n") == Diff(
        files=(
            FileDiff(
                old_name=b"a/vllm/x.py",
                new_name=b"b/vllm/x.py",
                change="modify",
                hunks=(
                    Hunk(
                        old_start=4,
                        new_start=5,
                        old=(b"a\n", b"b\n", b"d\n"),
                        new=(b"a\n", b"c\n", b"e\n", b"d\n"),
                        leading=1,
                        trailing=1,
                        heading=b"class A:",
                        line=4,
                        added=2,
                        removed=1,
                    ),
                ),
                git=False,
                old_blob="",
                new_blob="",
                binary=False,
                line=2,
            ),
        ),
        notes=(),
    )


def test_a_git_diff() -> None:
    file = only(GIT + b"index 12ab34cd..000000000 100644\n" + PLAIN)
    assert file.git
    assert (file.line, file.hunks[0].line) == (1, 5)
    assert (file.old_blob, file.new_blob) == ("12ab34cd", "")


def test_what_is_reversed_twice_is_the_same() -> None:
    file = only(
        GIT
        + b"index 12ab..34cd 100644\n"
        + PLAIN.replace(b" d\n", b"+d\n", 1).replace(b"-1,3 +1,3", b"-1,2 +1,3")
    )
    back = file.reversed()
    assert (back.old_name, back.new_name) == (b"b/vllm/x.py", b"a/vllm/x.py")
    assert (back.old_blob, back.new_blob) == ("34cd", "12ab")
    assert back.hunks[0].old == file.hunks[0].new
    assert (back.hunks[0].added, back.hunks[0].removed) == (1, 2)
    assert back.reversed() == file


@pytest.mark.parametrize(
    ("body", "leading", "trailing"),
    [
        (b" a\n b\n-c\n d\n", 2, 1),
        (b"-c\n a\n", 0, 1),
        (b" a\n-c\n a\n-c\n", 1, 0),
    ],
)
def test_context_is_counted_at_both_ends(body: bytes, leading: int, trailing: int) -> None:
    old, new = body.count(b"\n"), body.count(b"\n ") + body.startswith(b" ")
    hunk = hunk_of(NAMES + b"@@ -1,%d +1,%d @@\n" % (old, new) + body)
    assert (hunk.leading, hunk.trailing) == (leading, trailing)


@pytest.mark.parametrize(
    ("counts", "body", "old", "new"),
    [
        (b"-1 +1", b"-a\n\\ No newline at end of file\n+a\n", (b"a",), (b"a\n",)),
        (b"-1 +1", b"-a\n+a\n\\ No newline at end of file\n", (b"a\n",), (b"a",)),
        (b"-1 +1", b"-a\n\\ Kein Zeilenumbruch\n+b\n\\ Pas de fin\n", (b"a",), (b"b",)),
        (b"-2 +1", b"-b\n a\n\\\n", (b"b\n", b"a"), (b"a",)),
    ],
)
def test_a_newline_taken_away(
    counts: bytes, body: bytes, old: tuple[bytes, ...], new: tuple[bytes, ...]
) -> None:
    counts = counts.replace(b"-2", b"-1,2")
    hunk = hunk_of(NAMES + b"@@ " + counts + b" @@\n" + body)
    assert (hunk.old, hunk.new) == (old, new)


def test_only_a_newline_ends_a_line() -> None:
    odd = b"a\x0cb\rc\x85d\xe2\x80\xa8e\x1cf\xff\x00"
    hunk = hunk_of(NAMES + b"@@ -1 +1,2 @@\n " + odd + b"\n+" + odd + b"\r\n")
    assert hunk.new == (odd + b"\n", odd + b"\r\n")


# What is accepted although it is not as written by diff


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PLAIN[:-1], id="no last newline"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, id="byte order mark"),
        pytest.param(NAMES.replace(b"\n", b"\r\n") + HUNK, id="CR behind the names"),
        pytest.param(PLAIN.replace(b"@@\n", b"@@ \r\n"), id="CR behind the hunk header"),
        pytest.param(b"---\n" + PLAIN, id="rule before the names"),
        pytest.param(GIT + b"index 12ab..34cd 100644\r\n" + PLAIN, id="CR behind git's lines"),
        pytest.param(b"--- a/vllm/x.py\n" + PLAIN, id="name without a partner"),
        pytest.param(PLAIN + b"\n \n\t\n\x0c\n", id="white-space-only leftovers"),
        pytest.param(PLAIN + b"-- \n2.39.5\n\n", id="signature"),
        pytest.param(PLAIN + b"--\n2.39.5\n", id="signature without its blank"),
        pytest.param(PLAIN + b"-- \r\n2.39.5\r\n", id="signature with CR"),
        pytest.param(PLAIN + b"Thanks,\n  me\n* you\n=======\n", id="prose behind"),
        pytest.param(PLAIN + b"-- \nMe\n- and\n+ you\n", id="list behind a signature"),
        pytest.param(b"Hi\n+++ see below\n--- \n - x\n" + PLAIN, id="prose before"),
        pytest.param(b"Use diff --git a/x b/x, or 6c6\n" + PLAIN, id="git's line within prose"),
        pytest.param(b"6c6\nOnly in spring\n@ home - @@ +\n" + PLAIN, id="nearly another kind"),
        pytest.param(b"*** Note\nof mine\n" + PLAIN, id="stars in prose"),
        pytest.param(b"Title\n=======\n" + PLAIN, id="underlined in prose"),
        pytest.param(b"@@\n" + PLAIN, id="at signs in prose"),
        pytest.param(b"diff -ru a/x b/x\nIndex: x\n=====\n" + PLAIN, id="svn and diff -r"),
        pytest.param(PLAIN.replace(b"py\n", b"py\t2024-01-01 10:00\n"), id="stamp after a tab"),
        pytest.param(PLAIN.replace(b"py\n", b"py\t(revision 12)\n"), id="svn's revision"),
        pytest.param(
            PLAIN.replace(b"py\n", b"py   2024-01-01 10:00:00.123456789 +0200 \n"),
            id="date after blanks",
        ),
        pytest.param(PLAIN.replace(b"py\n", b"py 2024-01-01T10:00:00Z\n"), id="ISO 8601"),
        pytest.param(PLAIN.replace(b"py\n", b"py Thu Jan  1 10:00:00 2024\n"), id="C date"),
        pytest.param(PLAIN.replace(b"py\n", b"py  \n"), id="blanks behind the name"),
        pytest.param(b'--- "a/vllm/x.py"\n+++ "b/vllm/x.py"\t2024-01-01\n' + HUNK, id="quoted"),
    ],
)
def test_accepted(data: bytes) -> None:
    file = only(data)
    assert (file.old_name, file.new_name) == (b"a/vllm/x.py", b"b/vllm/x.py")
    assert file.hunks[0].new == (b"a\n", b"c\n", b"d\n")


@pytest.mark.parametrize(
    ("body", "blank"),
    [
        pytest.param(b"\n-b\n+c\n d\n", b"\n", id="first"),
        pytest.param(b"\r\n-b\n+c\n d\n", b"\r\n", id="CRLF"),
    ],
)
def test_a_blank_context_line_may_lack_its_space(body: bytes, blank: bytes) -> None:
    assert hunk_of(NAMES + b"@@ -1,3 +1,3 @@\n" + body).old == (blank, b"b\n", b"d\n")


def test_trimmed_blank_context_is_put_back() -> None:
    data = NAMES + b"@@ -1,4 +1,4 @@\n a\n-b\n+c"
    hunk = hunk_of(data)
    assert hunk.old == (b"a\n", b"b\n", b"\n", b"\n")
    assert hunk.trailing == 2


def test_trimmed_context_is_put_back_at_the_end_only() -> None:
    cut = NAMES + b"@@ -1,4 +1,4 @@\n a\n-b\n+c\n"
    assert lines_of(refusal(cut + PLAIN)) != []
    assert lines_of(refusal(cut + b"Bye\n")) == [7]


def test_more_than_the_usual_context_is_not_put_back() -> None:
    assert lines_of(refusal(NAMES + b"@@ -1,6 +1,6 @@\n a\n-b\n+c\n")) == [6]


def test_blank_leftovers_between_hunks() -> None:
    assert len(only(PLAIN + b"\n\n@@ -9 +9 @@\n-a\n+b\n").hunks) == 2


def test_a_mail_series_keeps_its_order() -> None:
    mail = b"From 1234 Mon Sep 17 00:00:00 2001\nSubject: x\n\nText\n---\n x | 2 +-\n\n"
    tail = b"-- \n2.39.5\n\n"
    files = read(mail + GIT + PLAIN + tail + mail + GIT + PLAIN.replace(b"+c", b"+z") + tail).files
    assert [file.hunks[0].new[1] for file in files] == [b"c\n", b"z\n"]


def test_two_plain_parts_with_the_same_name_stay_two() -> None:
    assert [len(file.hunks) for file in read(PLAIN + PLAIN).files] == [1, 1]


def test_lines_that_look_like_names_inside_a_hunk() -> None:
    hunk = hunk_of(NAMES + b"@@ -1,2 +1,2 @@\n--- a\n+++ b\n c\n")
    assert (hunk.old, hunk.new) == ((b"-- a\n", b"c\n"), (b"++ b\n", b"c\n"))


def test_conflict_markers_as_text_of_a_line() -> None:
    assert hunk_of(NAMES + b"@@ -1 +1 @@\n-<<<<<<< a\n+=======\n").old == (b"<<<<<<< a\n",)


def test_adjacent_hunks_and_empty_sides() -> None:
    data = NAMES + b"@@ -1 +1 @@\n-a\n+b\n@@ -1,0 +2 @@\n+c\n@@ -2 +2,0 @@\n-d\n"
    assert [hunk.old_start for hunk in only(data).hunks] == [1, 1, 2]


# What a part does to its file


@pytest.mark.parametrize(
    ("data", "change", "names"),
    [
        pytest.param(
            b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n", "create", (None, b"b/x"), id="plain"
        ),
        pytest.param(
            b"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "delete", (b"a/x", None), id="gone"
        ),
        pytest.param(
            b"--- x\t" + EPOCH + b"\n+++ x\t2024-01-01 10:00\n@@ -0,0 +1 @@\n+a\n",
            "create",
            (b"x", b"x"),
            id="epoch",
        ),
        pytest.param(
            b"--- x\t1969-12-31 19:30:00.0 -0430\n+++ x\n@@ -0,0 +1 @@\n+a\n",
            "create",
            (b"x", b"x"),
            id="epoch in another zone",
        ),
        pytest.param(
            b"--- x\n+++ x\t1970-01-01 01:00:00 +0100\n@@ -1 +0,0 @@\n-a\n",
            "delete",
            (b"x", b"x"),
            id="deleted by epoch",
        ),
        pytest.param(
            b"--- x\t1970-01-01 01:00:00 +0000\n+++ x\n@@ -0,0 +1 @@\n+a\n",
            "modify",
            (b"x", b"x"),
            id="an hour after the epoch",
        ),
        pytest.param(b"--- x\n+++ x\n@@ -0,0 +1 @@\n+a\n", "modify", (b"x", b"x"), id="was empty"),
        pytest.param(
            b"--- x\t" + EPOCH + b"\n+++ x\n@@ -1 +1 @@\n-b\n+a\n",
            "modify",
            (b"x", b"x"),
            id="epoch, but not empty",
        ),
        pytest.param(
            b"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..1234567\n"
            b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n",
            "create",
            (None, b"b/x"),
            id="git",
        ),
        pytest.param(
            b"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n",
            "create",
            (None, b"b/x"),
            id="git, empty file",
        ),
        pytest.param(
            b"diff --git a/a b b/a b\ndeleted file mode 100644\nindex e69de29..0000000\n",
            "delete",
            (b"a/a b", None),
            id="git, empty file with a blank",
        ),
        pytest.param(
            b"diff --git a/x b/y z\nsimilarity index 100%\nrename from x\nrename to y z\n",
            "rename",
            (b"a/x", b"b/y z"),
            id="rename",
        ),
        pytest.param(
            b"diff --git x y\nsimilarity index 100%\nrename from x\nrename to y\n",
            "rename",
            (b"x", b"y"),
            id="rename without prefixes",
        ),
        pytest.param(
            b'diff --git a/x "b/\\303\\251"\nrename from x\nrename to "\\303\\251"\n',
            "rename",
            (b"x", b"\xc3\xa9"),
            id="rename to a quoted name",
        ),
        pytest.param(
            b"diff --git old/x newer/x\nnew file mode 100644\n",
            "create",
            (None, b"newer/x"),
            id="prefixes of two lengths",
        ),
        pytest.param(
            b'diff --git "a/\\303\\251" "b/\\303\\251"\ndeleted file mode 100644\n',
            "delete",
            (b"a/\xc3\xa9", None),
            id="two quoted names",
        ),
        pytest.param(
            b'diff --git a/x "b/\\303\\251"\nnew file mode 100644\n',
            "create",
            (None, b"b/\xc3\xa9"),
            id="one quoted name",
        ),
        pytest.param(
            b"diff --git a/x c/y b/z\nrename from q/x\nrename to z\n",
            "rename",
            (b"q/x", b"z"),
            id="rename that git's line does not give",
        ),
        pytest.param(
            b"diff --git a/x b/y\nindex 12ab..34cd 100644\nrename old x\nrename new y\n"
            b"--- a/x\n+++ b/y\n" + HUNK,
            "rename",
            (b"a/x", b"b/y"),
            id="rename with a change",
        ),
    ],
)
def test_change(data: bytes, change: str, names: tuple[bytes | None, bytes | None]) -> None:
    file = only(data)
    assert (file.change, file.old_name, file.new_name) == (change, *names)
    assert file.reversed().reversed() == file
    opposite = {"create": "delete", "delete": "create"}.get(change, change)
    assert file.reversed().change == opposite


@pytest.mark.parametrize("lone", [b"---\n", b"---\r\n", b"--- \n", b"--- a/vllm/x.py\n"])
@pytest.mark.parametrize("header", [b"", GIT])
def test_a_lone_rule_right_behind_a_hunk_belongs_to_no_hunk(lone: bytes, header: bytes) -> None:
    first, second = read(PLAIN + lone + header + PLAIN).files
    assert first.hunks[0].old == second.hunks[0].old == (b"a\n", b"b\n", b"d\n")


def test_but_a_line_that_is_no_rule_does_where_no_header_follows() -> None:
    assert lines_of(refusal(PLAIN + b"--- a/vllm/x.py\nBye\n")) == [8]


def test_a_carriage_return_is_no_part_of_what_gits_lines_say() -> None:
    move = b"similarity index 100%\nrename from vllm/x.py\nrename to vllm/y.py\n"
    text = b"diff --git a/vllm/x.py b/vllm/y.py\n" + move
    file = only(text.replace(b"\n", b"\r\n"))
    assert file == only(text)
    assert (file.old_name, file.new_name) == (b"a/vllm/x.py", b"b/vllm/y.py")
    file = only((GIT + b"index 12ab..34cd 100755\n").replace(b"\n", b"\r\n") + PLAIN)
    assert (file.old_blob, file.new_blob) == ("12ab", "34cd")
    made = only((GIT + b"new file mode 100644\n").replace(b"\n", b"\r\n"))
    assert (made.change, made.new_name) == ("create", b"b/vllm/x.py")
    with pytest.raises(UnsafePath):
        read((GIT + b"new file mode 120000\n").replace(b"\n", b"\r\n"))


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (GIT + b"index 12ab..34cd\nBinary files a/vllm/x.py and b/vllm/x.py differ\n", None),
        (GIT + b"index 12ab..34cd 100644\nGIT binary patch\nliteral 3\nKc$Aq\n\nliteral 0\n", None),
        (b"Binary files a/vllm/x.py and b/vllm/x.py differ\r\n", None),
        (b"Binary files a/c and d and b/c and d differ\n", (b"a/c and d", b"b/c and d")),
        (b"Binary files /dev/null and b/c and d differ\n", (None, b"b/c and d")),
        (b"Binary files a/c and d and /dev/null differ\n", (b"a/c and d", None)),
        (b"Binary file x has changed\n", (b"x", b"x")),
    ],
)
def test_binary(data: bytes, names: tuple[bytes | None, bytes | None] | None) -> None:
    file = only(data)
    assert file.binary
    assert file.hunks == ()
    assert (file.old_name, file.new_name) == (names or (b"a/vllm/x.py", b"b/vllm/x.py"))


def test_modes_are_left_out_with_a_note() -> None:
    mode = b"old mode 100644\nnew mode 100755\n"
    new = b"diff --git a/y b/y\nnew file mode 100755\n"
    diff = read(GIT + mode + PLAIN + b"diff --git a/m b/m\n" + mode + new)
    assert [file.change for file in diff.files] == ["modify", "create"]
    assert diff.notes == (
        "the mode change of 'b/vllm/x.py' is left out",
        "the mode change of 'b/m' is left out",
        "the mode of the new file 'b/y' is left out",
    )


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a/x", b"a/x"),
        (b'"a/caf\\303\\251.py"', b"a/caf\xc3\xa9.py"),
        (b'"\\a\\b\\t\\n\\v\\f\\r\\"\\\\"', b'\a\b\t\n\v\f\r"\\'),
    ],
)
def test_unquote_name(raw: bytes, name: bytes) -> None:
    assert unquote_name(raw) == name


@pytest.mark.parametrize("raw", [b'"', b'"a', b'"a"b"', b'"\\x41"', b'"\\8"', b'"\\777"', b'"\\"'])
def test_broken_quotes(raw: bytes) -> None:
    with pytest.raises(InvalidPatch):
        unquote_name(raw)


# What is refused, and where


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        pytest.param(PLAIN + b"+e\n", 8, "'+e', expected no more lines", id="extra added line"),
        pytest.param(PLAIN + b"-e\n", 8, "'-e', expected no more", id="extra removed line"),
        pytest.param(PLAIN + b" e\n", 8, "' e', expected no more", id="extra context line"),
        pytest.param(PLAIN + b"\n+e\n", 9, "'+e', expected no more", id="extra behind a blank"),
        pytest.param(PLAIN + b"-- \n+e\n", 9, "expected no more", id="extra behind a signature"),
        pytest.param(PLAIN + b"---\n-e\n", 9, "expected no more", id="extra behind a rule"),
        pytest.param(PLAIN + b"--- e\nFoo\n", 8, "expected no more", id="extra that looks lone"),
        pytest.param(PLAIN + b"\\ No\n\\ No\n", 9, "expected no more", id="two markers"),
        pytest.param(
            PLAIN.replace(b"+1,3", b"+1,2"), 7, "expected 1 more old and 0", id="more than counted"
        ),
        pytest.param(
            PLAIN.replace(b"-1,3", b"-1,4"), 7, "found the end of the diff", id="old count high"
        ),
        pytest.param(
            PLAIN.replace(b"+1,3", b"+1,5") + b"Bye\n",
            8,
            "found 'Bye', expected 0 more old and 2 more new lines of the hunk at line 3",
            id="new count high",
        ),
        pytest.param(
            PLAIN.replace(b"3 @@", b"9 @@") + b"@@ -20 +20 @@\n-a\n+b\n",
            8,
            "expected 0 more old and 6 more new",
            id="next hunk too early",
        ),
        pytest.param(
            NAMES + b"@@ -1,2 +1,2 @@\n-a\n+b\n" + NAMES + HUNK,
            6,
            "names of a file",
            id="names of the next file eaten",
        ),
        pytest.param(
            NAMES + b"@@ -1,2 +1 @@\n-a\n+b\n+c\n", 6, "found '+c'", id="added, not removed"
        ),
        pytest.param(
            NAMES + b"@@ -1 +1,2 @@\n-a\n+b\n-c\n", 6, "found '-c'", id="removed, not added"
        ),
        pytest.param(NAMES + b"@@\n-a\n+b\n", 3, "expected '@@ -LINE", id="bare @@"),
        pytest.param(PLAIN + b"@@ @@\n-a\n+b\n", 8, "expected '@@ -LINE", id="@@ @@"),
        pytest.param(PLAIN + b"Foo\n@@\n-a\n", 9, "expected '@@ -LINE", id="bare @@ after prose"),
        pytest.param(NAMES + b"@@ -1 +x @@\n", 3, "expected '@@ -LINE", id="no number"),
        pytest.param(NAMES + b"@@ -%s +1 @@\n" % (b"9" * 5000), 3, "'@@ -9", id="huge number"),
        pytest.param(HUNK, 1, "'+++' lines of its file", id="no names"),
        pytest.param(PLAIN + b"Foo\n" + HUNK, 9, "'+++' lines of its file", id="prose before hunk"),
        pytest.param(NAMES, 3, "end of the diff, expected '@@", id="names only"),
        pytest.param(NAMES + b"Foo\n" + HUNK, 3, "'Foo', expected '@@", id="names, then prose"),
        pytest.param(GIT + b"index 12ab..34cd\n", 1, "without a hunk", id="git, hunks lost"),
        pytest.param(
            GIT + b"new file mode 100644\nindex 0000..34cd\n", 1, "without a hunk", id="new, lost"
        ),
        pytest.param(
            GIT + b"deleted file mode 100644\nindex 34cd..0000\n",
            1,
            "without a hunk",
            id="deleted without its lines",
        ),
        pytest.param(
            b"diff --git a/x b/y\nindex 12ab..34cd\nrename from x\nrename to y\n",
            1,
            "without a hunk",
            id="rename, hunks lost",
        ),
        pytest.param(
            NAMES + b"@@ -1,2 +1,2 @@\n a\n b\n", 3, "without a change", id="only context"
        ),
        pytest.param(NAMES + b"@@ -1,0 +1,0 @@\n", 3, "without a change", id="no line"),
        pytest.param(NAMES + b"@@ -1 +1 @@\n-a\n+a\n", 1, "changes no line", id="equal lines"),
        pytest.param(
            GIT + b"old mode 100644\nnew mode 100755\n", 1, "nothing to apply", id="only a mode"
        ),
        pytest.param(b"", 1, "nothing", id="empty"),
        pytest.param(b"\n \n", 1, "nothing", id="white space"),
        pytest.param(b"Binary files differ\nBinary files a differ\n", 1, "no diff", id="no names"),
        pytest.param(
            b'diff --git "a/x"\nnew file mode 100644\n', 1, "no name", id="one name for git"
        ),
        pytest.param(b"Hello\n- a\n+ b\n", 1, "no diff", id="prose"),
        pytest.param(PLAIN.decode().encode("utf-16"), 1, "UTF-16", id="UTF-16"),
        pytest.param(b"1c1\n< a\n---\n> b\n", 1, "of a normal diff", id="normal diff"),
        pytest.param(
            b"diff --git a/x b/x\nis how it begins\n" + PLAIN, 1, "damaged header", id="git's line"
        ),
        pytest.param(PLAIN + b"@@ -3 +3 @@\n-d\n+e\n", 8, "overlaps that of line 3", id="overlap"),
        pytest.param(
            NAMES + HUNK.replace(b"1,3", b"9,3") + HUNK, 8, "before the one above", id="disorder"
        ),
        pytest.param(
            NAMES + HUNK.replace(b"+1,3", b"+9,3") + b"@@ -9 +1 @@\n-d\n+e\n",
            8,
            "new side begins before",
            id="disorder of the new side",
        ),
        pytest.param(
            NAMES + b"@@ -1 +1 @@\n-a\n\\ No\n+b\n@@ -5 +5 @@\n-a\n+b\n",
            7,
            "behind the end of the file",
            id="hunk behind the end",
        ),
        pytest.param(NAMES + b"@@ -1 +1 @@\n\\ No\n-a\n+b\n", 4, "1 more old", id="marker first"),
        pytest.param(
            NAMES + b"@@ -1,2 +1 @@\n-a\n\\ No\n-b\n+b\n", 5, "1 more old", id="marker too early"
        ),
        pytest.param(
            NAMES + b"@@ -1,2 +1,3 @@\n a\n\\ No\n-b\n+b\n+c\n", 5, "2 more new", id="marker inside"
        ),
        pytest.param(
            PLAIN.replace(b"-b\n", b"<<<<<<< HEAD\n-b\n"),
            5,
            "<<<<<<< HEAD",
            id="conflict in a hunk",
        ),
        pytest.param(
            PLAIN + b"=======\n" + HUNK, 8, "conflict marker", id="conflict behind a hunk"
        ),
        pytest.param(b"<<<<<<< HEAD\n" + PLAIN, 1, "conflict marker", id="conflict before names"),
        pytest.param(PLAIN + b"Foo\n>>>>>>> x\n", 9, "conflict marker", id="conflict in prose"),
        pytest.param(
            NAMES + b"@@ -1 +1,5 @@\n+<<<<<<< a\n x\n+=======\n+y\n+>>>>>>> b\n",
            8,
            "conflict marker",
            id="conflict added",
        ),
        pytest.param(b"diff --cc x\n@@@ -1 -1 +1 @@@\n", 1, "combined", id="diff --cc"),
        pytest.param(b"diff --combined x\n", 1, "combined", id="diff --combined"),
        pytest.param(NAMES + b"@@@ -1 -1 +1 @@@\n++a\n", 3, "combined", id="three at signs"),
        pytest.param(
            b"*** a\n--- b\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
            1,
            "context diff",
            id="context diff",
        ),
        pytest.param(
            b"diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n",
            1,
            "a copy",
            id="copy",
        ),
        pytest.param(
            b"--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n", 1, "no name", id="no name"
        ),
        pytest.param(b"--- \n+++ \n" + HUNK, 1, "empty name", id="empty name"),
        pytest.param(b"--- a/\n+++ b/\n" + HUNK, 1, "of a folder", id="folder"),
        pytest.param(b"--- a\0b\n+++ a\n" + HUNK, 1, "NUL", id="NUL in a name"),
        pytest.param(b'--- "a\\nb"\n+++ a\n' + HUNK, 1, "newline", id="newline in a name"),
        pytest.param(b'--- "a\\000b"\n+++ a\n' + HUNK, 1, "NUL", id="quoted NUL"),
        pytest.param(b'--- "a\n+++ a\n' + HUNK, 1, "quotes", id="open quotes"),
        pytest.param(
            b"--- " + b"x" * 9000 + b"\n+++ a\n" + HUNK, 1, "a name of 9000 bytes", id="long name"
        ),
        pytest.param(
            b"diff --git " + b"x" * 4500 + b" " + b"x" * 4500 + b"\nnew file mode 100644\n",
            1,
            "a name of 9001 bytes",
            id="long names of git",
        ),
        pytest.param(
            b"diff --git a/x b/y\nrename from x\nrename to " + b"y" * 9000 + b"\n",
            1,
            "a name of 9000 bytes",
            id="rename to a long name",
        ),
        pytest.param(
            b"diff --git a/a b/b c\nnew file mode 100644\n", 1, "no name", id="names in one"
        ),
        pytest.param(
            GIT + b"index 1111..2222\nindex 1111..2222\n" + PLAIN, 1, "second 'index'", id="twice"
        ),
        pytest.param(
            GIT + b"new file mode 100644\n" + PLAIN, 1, "expected '/dev/null'", id="new with old"
        ),
        pytest.param(
            GIT + b"deleted file mode 100644\n" + PLAIN, 1, "'/dev/null'", id="deleted with new"
        ),
        pytest.param(
            b"--- /dev/null\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n",
            3,
            "'+'",
            id="new with context",
        ),
        pytest.param(
            b"--- a/x\n+++ /dev/null\n@@ -1,2 +1 @@\n-a\n c\n", 3, "only '-'", id="deleted, kept"
        ),
        pytest.param(
            b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n@@ -0,0 +2 @@\n+b\n",
            5,
            "a single one",
            id="new in two hunks",
        ),
        pytest.param(
            b"diff --git a/x b/y\nrename from x\n", 1, "half of a rename", id="half of a rename"
        ),
        pytest.param(
            GIT + b"rename from vllm/y.py\nrename to vllm/x.py\n" + PLAIN,
            1,
            "found 'rename from'",
            id="rename from elsewhere",
        ),
        pytest.param(
            GIT + b"rename from vllm/x.py\nrename to vllm/x.py\n" + PLAIN,
            1,
            "the same name",
            id="rename to itself",
        ),
        pytest.param(
            GIT + b"new file mode 100644\nrename from x\nrename to y\n",
            1,
            "is to create as well",
            id="rename of a new file",
        ),
    ],
)
def test_refused(data: bytes, line: int, words: str) -> None:
    error = refusal(data)
    assert isinstance(error, InvalidPatch)
    assert any(fact.startswith(f"x.patch:{line}: ") and words in fact for fact in error.facts), (
        error.facts
    )


def test_a_diff_without_a_change_need_not_be_made_again() -> None:
    assert refusal(NAMES + b"@@ -1 +1 @@\n-a\n+a\n").hint is None
    assert refusal(GIT + b"old mode 100644\nnew mode 100755\n").hint is None
    assert "the command" in (refusal(b"").hint or "")
    assert "make the diff again" in (refusal(b"Hello\n").hint or "")


SECOND = b"@@ -38,7 +38,7 @@\n"
CHANGE = b"-a\n+b\n"


@pytest.mark.parametrize(
    "line",
    [
        *(b"@ -38,7 +38,7 @\n", b"@@-38,7 +38,7 @@\n", b"@@ 38,7 +38,7 @@\n"),
        *(quote + SECOND for quote in (b"> ", b"# ", b"\t", b" ", b"| ", b"> > ", b"JB> ", b"12:")),
        b"\x1b[36m" + SECOND,
        *(quote + SECOND for quote in (b"\xc2\xa0", b"\xef\xbb\xbf", b"\xe2\x80\x8b")),
    ],
)
@pytest.mark.parametrize("prose", [b"", b"Foo\n", b"-- \n2.39.5\n"])
def test_a_damaged_or_quoted_hunk_is_never_dropped(prose: bytes, line: bytes) -> None:
    wanted = f"x.patch:{8 + prose.count(10)}: found "
    for data in (PLAIN + prose + line + CHANGE, PLAIN + prose + line):
        assert refusal(data).facts[0].startswith(wanted)
    assert lines_of(refusal(line + PLAIN)) == [1]


@pytest.mark.parametrize("quote", [b"> ", b"\t", b"| ", b"\xc2\xa0", b"  ", b"# ", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    "part",
    [
        NAMES,
        PLAIN,
        GIT + PLAIN,
        GIT + b"new file mode 100644\n",
        b"new file mode 100644\nindex 0000000..e69de29\n",
        b"Binary files a/x and b/x differ\n",
        b"*** 1,2 ****\n! a\n",
        b"6c6\n< a\n---\n> b\n",
        b"Only in b/vllm: new.py\n",
        b"GIT binary patch\nliteral 3\n",
    ],
)
def test_a_quoted_part_is_never_dropped(quote: bytes, part: bytes) -> None:
    quoted = b"".join(quote + line for line in part.splitlines(keepends=True))
    assert refusal(PLAIN + quoted).facts[0].startswith("x.patch:8: found ")
    assert lines_of(refusal(b"Hi\n" + quoted + b"Bye\n" + PLAIN))[0] == 2


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (b"Only in b/vllm: new.py\n", "diff -N"),
        (b"6c6\n< a\n---\n> b\n", "of a normal diff"),
        (b"6a7,8\r\n> a\r\n> b\r\n", "of a normal diff"),
        (b"GIT binary patch\nliteral 3\n", "expected the 'diff --git' line"),
        (b"deleted file mode 100644\nindex e69de29..0000000\n", "damaged header"),
        (b"similarity index 100%\nrename from x\nrename to y\n", "damaged header"),
    ],
)
def test_parts_of_another_kind_are_never_dropped(part: bytes, words: str) -> None:
    for data, line in ((PLAIN + part, 8), (PLAIN + b"Bye\n" + part, 9), (part + PLAIN, 1)):
        fact = refusal(data).facts[0]
        assert fact.startswith(f"x.patch:{line}: found ")
        assert words in fact


@pytest.mark.parametrize("line", [b"-e\n", b"+e\n", b"- me\n", b"\\ No\n"])
@pytest.mark.parametrize("prose", [b"x7 = 7\n", b"Thanks,\n\n", b"Bye\n--\n", b"From me\n"])
def test_prose_does_not_free_the_lines_behind_a_hunk(prose: bytes, line: bytes) -> None:
    error = refusal(PLAIN + prose + line)
    assert lines_of(error) == [8 + prose.count(10)]
    assert "expected no more lines of the hunk above" in error.facts[0]
    assert lines_of(refusal(GIT + b"new file mode 100644\n" + prose + line))


@pytest.mark.parametrize(
    "begin",
    [
        b"-- \n2.39.5\n\n",
        b"-- \r\n2.39.5\r\n",
        b"\nFrom 12ab34cd Mon Sep 17 00:00:00 2001\nSubject: x\n\n",
        b"\nbye\nFrom me@here Thu Jan  1 10:00:00 2024\n",
        b"# HG changeset patch\n# User me\n",
    ],
)
def test_a_series_may_have_lists_in_its_messages(begin: bytes) -> None:
    body = b"- one\n+ two\n---\n x | 2 +-\n 1 file changed\n\n"
    assert len(read(b"Hi\n" + body + PLAIN + begin + body + GIT + PLAIN + begin).files) == 2


def test_a_log_of_several_commits_is_read() -> None:
    commit = b"commit 12ab\nAuthor: me\n\n    Title\n\n    - one\n---\n x | 2 +-\n\n"
    assert len(read((commit + GIT + PLAIN + b"\n") * 2).files) == 2


@pytest.mark.parametrize(
    "header",
    [
        b"new file mode 120000\n",
        b"deleted file mode 120000\n",
        b"index 12ab..34cd 120000\n",
        b"index 12ab..34cd 160000\n",
        b"old mode 100644\nnew mode 120000\n",
        b"new file mode 040000\n",
    ],
)
def test_links_and_submodules_are_unsafe(header: bytes) -> None:
    error = refusal(GIT + header + PLAIN)
    assert isinstance(error, UnsafePath)
    assert "expected a plain file" in error.facts[0]


def test_all_problems_are_told_at_once() -> None:
    bad = PLAIN + b"+e\n"
    assert lines_of(refusal(bad + bad + NAMES + b"@@\n-a\n@@ -7 +7,2 @@\n-a\n+b\nBye\n")) == [
        8,
        16,
        19,
        24,
    ]


def test_a_malformed_hunk_is_told_once() -> None:
    assert lines_of(refusal(NAMES + b"@@ -1,9 +1,9 @@\n a\n-b\n+c\n d\nBye\n+e\n")) == [8]


def test_the_facts_are_few_and_printable() -> None:
    facts = refusal((NAMES + b"\x1b[31m" + b"x" * 999 + b"\n") * 1000).facts
    assert len(facts) < 100
    assert all(fact.isprintable() and len(fact) < 200 for fact in facts)
    assert "950 more" in facts[-1]


# The gate


def drop_a_line(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    del files[0][0][-1]
    return files


def change_a_line(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    files[0][0][1].value = "other\n"
    return files


def join_two_lines(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    """All is there, and two lines are one."""
    hunk = files[0][0]
    hunk[0].value += str(hunk[1])
    del hunk[1]
    return files


def move_a_hunk(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    files[0][0].source_start += 1
    return files


def drop_a_hunk(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    del files[0][0]
    return files


def add_a_hunk(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    files[0].append(files[0][0])
    return files


def drop_a_part(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    return files[:-1]


def add_a_part(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    return files * 2


def fail(files: list[unidiff.PatchedFile]) -> list[unidiff.PatchedFile]:
    raise UnidiffParseError(str(files[0]))


@pytest.mark.parametrize(
    "change",
    [
        *(drop_a_line, change_a_line, join_two_lines, move_a_hunk, drop_a_hunk, add_a_hunk),
        *(drop_a_part, add_a_part, fail),
    ],
)
def test_what_unidiff_reads_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[unidiff.PatchedFile]], list[unidiff.PatchedFile]],
) -> None:
    other = SimpleNamespace(PatchSet=lambda lines: change(list(unidiff.PatchSet(lines))))
    monkeypatch.setattr(diff_module, "unidiff", other)
    assert isinstance(refusal(PLAIN + PLAIN), InvalidPatch)


# Hostile input: these must end; a quadratic scan would take hours


MANY = 10**5


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"Binary file " + b"x and " * MANY + b"\n", id="binary"),
        pytest.param(b"diff --git " + b"a/x " * MANY + b"\nindex 1111..2222\n", id="git"),
        pytest.param(b"diff --git " + b'"a' * MANY + b"\nindex 1111..2222\n", id="git, quotes"),
        pytest.param(b"--- " + b" 2024-01-01 10:00" * 400 + b"x\n+++ x\n", id="dates"),
        pytest.param(b"--- x" + b" " * MANY + b"y\n+++ x\n", id="blanks"),
        pytest.param(b'--- "' + b"\\\\" * MANY + b"\n+++ x\n", id="escapes"),
        pytest.param(b"--- x\n+++ x\n@@ -" + b"1" * MANY + b" +1 @@\n", id="digits"),
        pytest.param(b"--- x\n+++ x\n@@ -1 +1 @@" + b"@@ " * MANY + b"\n", id="heading"),
        pytest.param(b"--- x\n+++ x\n@@ -1,999999999999999 +1,999999999999999 @@\n", id="count"),
        pytest.param(b"--- x\n+++ x\n" * 10**4, id="names"),
        pytest.param(b"--- x\n" * MANY, id="old names"),
        pytest.param(b"diff --git a/x b/x\n" * MANY, id="git lines"),
        pytest.param(b"diff --git a/x b/x\nnew mode 100644\n" * 10**4, id="modes"),
        pytest.param(b"diff --git a/x b/x\n" + b"index 1111..2222\n" * MANY, id="index lines"),
        pytest.param(b"*** x\n--- x\n" * MANY, id="stars"),
        pytest.param(b"@@ -1 +1 @@\n" * MANY, id="hunks without names"),
        pytest.param(NAMES + b"@@ -1,0 +1,99999 @@\n" + b"+<<<<<<< a\n" * MANY, id="conflicts"),
        pytest.param(PLAIN + b"\\\n" * MANY, id="markers"),
        pytest.param(b"<<<<<<< \n" * MANY, id="conflict markers"),
    ],
)
def test_bombs_are_refused(data: bytes) -> None:
    assert 0 < len(refusal(data).facts) < 100


def test_a_name_full_of_joints_is_read() -> None:
    assert only(b"Binary files " + b"x and " * 1300 + b"y differ\n").binary


def test_a_long_line_is_read() -> None:
    line = b"x" * 10**7
    assert hunk_of(NAMES + b"@@ -1 +1 @@ " + line + b"\n-a\n+" + line + b"\n").new == (
        line + b"\n",
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *(b"-a", b"+a", b" a", b"", b"\\ No", b"-- ", b"---", b"--- x", b"+++ x"),
                *(b"@@ -1 +1 @@", b"@@ -1,2 +1,2 @@", b"@@ -5,0 +6 @@", b"@@", b"@@@ -1"),
                *(b"diff --git a/x b/x", b"index 12ab..34cd 100644", b"new file mode 100644"),
                *(b"rename from x", b"rename to y", b"Binary files a/x and b/x differ"),
                *(b"<<<<<<< a", b"=======", b"*** x", b"***************", b"text", b"\r", b"\xff"),
            ]
        ),
        max_size=25,
    )
)
def test_any_mix_of_lines_is_read_or_refused(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    try:
        diff = read(data)
    except (InvalidPatch, UnsafePath):
        return
    for file in diff.files:
        for hunk in file.hunks:
            assert lines[hunk.line - 1].startswith(b"@@ -")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    for text in (data, NAMES + data, PLAIN + data):
        try:
            read(text)
        except (InvalidPatch, UnsafePath):
            continue


# What others write comes through whole

texts = st.lists(
    st.sampled_from(
        [b"a", b"b", b"", b"-- ", b"--- x", b"+++ x", b"@@", b"\\", b"\r", b"\xe9\x0c"]
    ),
    max_size=12,
).flatmap(lambda lines: st.sampled_from([b"\n".join(lines), b"".join(x + b"\n" for x in lines)]))


def unified(old: bytes, new: bytes, context: int) -> bytes:
    """Write the diff with difflib, and the markers which it leaves out."""
    lines = difflib.diff_bytes(
        difflib.unified_diff, split(old), split(new), b"a/x", b"b/x", n=context
    )
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )


@settings(max_examples=300, deadline=None)
@given(texts, texts, st.integers(0, 4))
def test_difflib(old: bytes, new: bytes, context: int) -> None:
    if old == new:
        return
    hunks = only(unified(old, new, context)).hunks
    assert b"".join(apply_by_hand(split(old), hunks)) == new
    back = [hunk.reversed() for hunk in hunks]
    assert b"".join(apply_by_hand(split(new), back)) == old


@pytest.mark.parametrize("command", ["git diff --no-index --no-prefix", "diff -r -N"])
@pytest.mark.parametrize("context", [0, 3])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\nb\nc\n" * 9, b"a\nb\nc\n" * 4 + b"x\n" + b"a\nb\nc\n" * 3),
        (b"a\nb", b"a\nb\n"),
        (b"a\r\n\r\nb\r\n", b"a\r\n\r\nc\r\n"),
        (b"\xe9\x0c\n-- \n--- x\n", b"\xe9\x0c\n++ \n+++ x\n"),
        (b"", b"a\n"),
        (b"a", b""),
        (None, b"a\nb"),
        (b"a\nb\n", None),
    ],
)
def test_git_and_diff(
    tmp_path: Path, command: str, context: int, old: bytes | None, new: bytes | None
) -> None:
    difftools.need(command.split(maxsplit=1)[0])
    for folder, data in (("a", old), ("b", new)):
        (tmp_path / folder).mkdir()
        if data is not None:
            (tmp_path / folder / "x y.py").write_bytes(data)
    written = subprocess.run(
        [*command.split(), f"-U{context}", "a", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    file = only(written.stdout)
    wanted = "create" if old is None else "delete" if new is None else "modify"
    assert file.change == wanted
    assert {file.old_name, file.new_name} <= {b"a/x y.py", b"b/x y.py", None}
    assert b"".join(apply_by_hand(split(old or b""), file.hunks)) == (new or b"")
    back = file.reversed()
    assert b"".join(apply_by_hand(split(new or b""), back.hunks)) == (old or b"")


def test_git_quotes_what_we_unquote(tmp_path: Path) -> None:
    difftools.need("git")
    names = ["caf\u00e9.py", 'q"uote', "t\tab", "back\\slash", "plain name"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in names:
        (tmp_path / "b" / name).write_bytes(b"" if name == "t\tab" else b"x\n")
    written = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "a", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    found = {file.new_name for file in read(written.stdout).files}
    assert found == {b"b/" + name.encode() for name in names}
