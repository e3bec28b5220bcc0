from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import difftools
from vllm_patcher.diff import FileDiff, Hunk, parse
from vllm_patcher.hunks import (
    Applied,
    Misfit,
    Nearest,
    apply,
    first_line,
    nearest,
    place,
    split,
)
from vllm_patcher.lines import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Maker = Callable[[Path, bytes, bytes, int], bytes]

CASES = sorted((Path(__file__).parent / "data" / "hunks").iterdir())


def with_difflib(_folder: Path, old: bytes, new: bytes, context: int) -> bytes:
    return difftools.with_difflib(old, new, context)


MAKERS = (difftools.with_git, difftools.with_diff, with_difflib)
FORWARD, REVERSE = "forward", "reverse"


def read(data: bytes) -> tuple[FileDiff, ...]:
    return parse(data, name="x.patch").files


def one(body: bytes) -> FileDiff:
    (file,) = read(difftools.NAMES + body)
    return file


def turned(files: Sequence[FileDiff]) -> list[FileDiff]:
    return [file.reversed() for file in reversed(files)]


def run(
    data: bytes | None, files: Sequence[FileDiff], *, trusted: bool = False
) -> bytes | Misfit | None:
    """Put all parts on one file, whatever they call it."""
    for file in files:
        result = apply(data, file, trusted=trusted)
        if isinstance(result, Misfit):
            return result
        data = result.data
    return data


def reason(result: bytes | Misfit | None) -> str:
    return result.reason if isinstance(result, Misfit) else "applied"


class Case(NamedTuple):
    """A folder of golden files.

    ``before`` and ``after`` are left out where there is no file. ``refused`` holds the reason
    there is no place, ``trust`` the directions in which only a trusted header has one.
    """

    before: bytes | None
    patch: bytes
    after: bytes | None
    refused: str
    trust: frozenset[str]


def load(folder: Path) -> Case:
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert files.keys() <= {"before", "patch", "after", "refused", "trust"}
    trust = files.get("trust", b"").decode().strip()
    return Case(
        before=files.get("before"),
        patch=files["patch"],
        after=files.get("after"),
        refused=files.get("refused", b"").decode().strip(),
        trust=frozenset({FORWARD, REVERSE} if trust == "both" else {trust} - {""}),
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_golden_case_forward(path: Path) -> None:
    case = load(path)
    files = read(case.patch)
    result = run(case.before, files)
    if case.refused:
        assert reason(result) == case.refused
    elif FORWARD in case.trust:
        assert reason(result) == "nowhere"
        assert run(case.before, files, trusted=True) == case.after
    else:
        assert result == case.after
        assert run(case.before, files, trusted=True) == case.after


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_golden_case_in_reverse(path: Path) -> None:
    case = load(path)
    if case.refused:
        return
    files = turned(read(case.patch))
    result = run(case.after, files)
    if REVERSE in case.trust:
        assert reason(result) == "nowhere"
    else:
        assert result == case.before
    assert run(case.after, files, trusted=True) == case.before


#: Only the heading tells here, and GNU patch does not read it: it takes the nearest place.
BY_HEADING = {path.name for path in CASES if "heading" in path.name}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_golden_case_is_as_gnu_patch_has_it(path: Path, folder: Path) -> None:
    case = load(path)
    files = read(case.patch)
    if case.refused or case.before is None or len(files) != 1 or path.name in BY_HEADING:
        return
    theirs = difftools.put_on_by_patch(folder, case.before, case.patch)
    if files[0].change == "modify" and theirs is not None:
        assert theirs == case.after


def test_every_reason_has_a_golden_case() -> None:
    reasons = {load(path).refused for path in CASES}
    assert reasons == {
        "", "missing", "exists", "differs", "nowhere", "ambiguous", "elsewhere",
    }  # fmt: skip


ENDS = (b"", b"\n", b"a", b"a\n", b"b", b"b\n", b"a\nb", b"a\nb\n", b"\na", b"a\n\n", b"a\nc\nb")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("old", ENDS)
def test_every_end_becomes_every_other_end(make: Maker, old: bytes, folder: Path) -> None:
    for new in ENDS:
        if old == new:
            continue
        files = read(make(folder, old, new, 3))
        assert run(old, files) == new, (old, new)
        assert run(new, turned(files)) == old, (old, new)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a\n"]),
        (b"a\r\nb", [b"a\r\n", b"b"]),
        (b"a\rb\x0cc\x85d\n\n", [b"a\rb\x0cc\x85d\n", b"\n"]),
    ],
)
def test_only_a_newline_ends_a_line(data: bytes, lines: list[bytes]) -> None:
    assert split(data) == lines


def test_an_empty_side_stands_behind_its_line() -> None:
    assert first_line(5, [b"x\n"]) == 4
    assert first_line(5, []) == 5
    assert first_line(0, []) == 0


def test_placements_say_where_and_how_far() -> None:
    file = one(b"@@ -1,2 +1,3 @@\n a\n+A\n b\n@@ -4,2 +5,2 @@\n d\n-e\n+E\n")
    # Less context above than below only binds at line 1; here there is as much.
    result = apply(b"x\na\nb\nc\ny\nd\ne\n", file)
    assert isinstance(result, Applied)
    assert result.data == b"x\na\nA\nb\nc\ny\nd\nE\n"
    assert [(each.at, each.offset) for each in result.placements] == [(1, 1), (5, 2)]


def test_a_misfit_says_what_was_looked_for_and_where() -> None:
    block = b"f(\n    x,\n)\n"
    file = one(b"@@ -2,3 +2,3 @@\n f(\n-    x,\n+    y,\n )\n")
    result = apply(b"0\n" * 2 + block * 3, file)
    assert isinstance(result, Misfit)
    assert (result.reason, result.number, result.expected) == ("ambiguous", 1, 2)
    assert result.candidates == (3, 6, 9)
    assert result.hunk == file.hunks[0]


def test_the_line_a_misfit_expects_is_one_of_the_file() -> None:
    body = b"@@ -1,2 +1,2 @@\n a\n-b\n+B\n"
    result = place(split(b"x\n"), one(body).hunks, moved=lambda _hunk: -8)
    assert isinstance(result, Misfit)
    assert result.expected == 1


# --- moved and trusted ---------------------------------------------------------------------


CALL = b"@@ -4,3 +4,3 @@\n f(\n-    x,\n+    y,\n )\n"
CALLS = b"1\n2\n3\n" + b"f(\n    x,\n)\n" * 3


def at(data: bytes, body: bytes, **how: object) -> tuple[int, ...] | str:
    result = place(split(data), one(body).hunks, **how)  # type: ignore[arg-type]
    return result.reason if isinstance(result, Misfit) else tuple(each.at for each in result)


def test_moved_lines_are_added_to_the_named_line() -> None:
    assert at(CALLS, CALL) == (3,)
    assert at(CALLS, CALL, moved=lambda _hunk: 3) == (6,)
    assert at(CALLS, CALL, moved=lambda _hunk: 1) == "ambiguous"


def test_moved_by_others_is_no_offset() -> None:
    result = place(split(CALLS), one(CALL).hunks, moved=lambda _hunk: 3)
    assert not isinstance(result, Misfit)
    assert result[0].offset == 0


def test_nothing_is_taken_by_number_among_lines_that_others_changed() -> None:
    assert at(CALLS, CALL, trusted=True, moved=lambda _hunk: None) == "ambiguous"
    assert at(b"f(\n    x,\n)\n", CALL, moved=lambda _hunk: None) == (0,)
    put_in = b"@@ -2,0 +3 @@\n+new\n"
    assert at(CALLS, put_in, trusted=True) == (2,)
    assert at(CALLS, put_in, trusted=True, moved=lambda _hunk: None) == "nowhere"


def test_a_trusted_line_counts_although_another_hunk_moved() -> None:
    body = CALL + b"@@ -14,2 +14,2 @@\n end\n-of\n+OF\n"
    data = CALLS + b"13\n14\nend\nof\n"
    assert at(data, body) == "ambiguous"
    assert at(data, body, trusted=True) == (3, 14)


def test_a_trusted_hunk_that_does_not_fit_at_its_line_is_looked_for() -> None:
    assert at(b"0\n" + CALLS[:-24], CALL, trusted=True) == (4,)
    assert at(b"0\n" + CALLS, CALL, trusted=True) == "ambiguous"


def test_nothing_is_put_behind_a_line_without_newline() -> None:
    assert at(b"a\nb", b"@@ -2,0 +3 @@\n+c\n", trusted=True) == "nowhere"
    assert at(b"a\nb", b"@@ -1,0 +2 @@\n+c\n", trusted=True) == (1,)


@pytest.mark.parametrize("trusted", [False, True])
def test_hunks_never_overlap_whatever_others_moved(trusted: bool) -> None:
    # Both fit at the line that each is told, but not both at once.
    body = b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -8,3 +8,3 @@\n c\n-d\n+D\n e\n"
    first = one(body).hunks[0]
    moved = {"moved": lambda hunk: 0 if hunk == first else -5, "trusted": trusted}
    assert at(b"a\nb\nc\nd\ne\n", body, **moved) == "nowhere"


def test_the_offset_so_far_counts_for_hunks_below() -> None:
    # The second hunk has two equal places behind the first; trusted, the first one's offset
    # leads to the second of them.
    body = b"@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n@@ -8,3 +8,3 @@\n f(\n-    x,\n+    y,\n )\n"
    data = b"0\n0\n0\n0\na\nb\nc\n" + b"f(\n    x,\n)\n" * 2
    assert at(data, body) == "ambiguous"
    assert at(data, body, trusted=True) == (4, 10)


def test_a_run_is_found_where_its_lines_are_and_nowhere_else() -> None:
    kinds = [b"a\n", b"aa\n", b"\n"]
    files = [lines for size in range(5) for lines in product([*kinds, b"a\r\n"], repeat=size)]
    runs = [run for size in (1, 2, 3) for run in product(kinds, repeat=size)]
    for lines, run in product(files, runs):
        equal = [at for at in range(len(lines)) if lines[at : at + len(run)] == run]
        for low in range(len(lines) + 1):
            assert [*Text(lines).find(run, low)] == [at for at in equal if at >= low]
        assert [*Text([*lines, b"a"]).find(run, 0)] == equal


# --- headings ------------------------------------------------------------------------------


def function(name: str, last: str = "stop()") -> bytes:
    return f"def {name}():\n    try:\n        run()\n    finally:\n        {last}\n\n\n".encode()


#: The diff of a file that begins with f1 and f2, for the second.
SECOND = b"""@@ -9,4 +9,4 @@ def f2():
     try:
-        run()
+        walk()
     finally:
         stop()
"""


def test_a_line_is_not_taken_against_the_heading() -> None:
    release = function("f0") + function("f1") + function("f2")
    assert at(release[len(function("f0")) :], SECOND) == (8,)
    assert at(release, SECOND) == (15,)
    # A file that the headers were counted in needs no heading.
    assert at(release, SECOND, trusted=True) == (8,)
    turned_back = one(SECOND).reversed().hunks
    found = place(split(release.replace(b"run", b"walk")), turned_back)
    assert not isinstance(found, Misfit)
    assert [each.at for each in found] == [15]


def test_the_only_place_is_not_taken_against_the_heading() -> None:
    release = function("f1") + function("f2", "halt()")
    result = place(split(release), one(SECOND).hunks)
    assert isinstance(result, Misfit)
    assert (result.reason, result.number, result.expected) == ("elsewhere", 1, 9)
    assert result.candidates == (2,)
    assert at(release, SECOND, trusted=True) == (1,)
    assert at(release.replace(b"f2", b"f3"), SECOND) == (1,)


def test_a_place_deep_in_a_block_is_under_its_heading() -> None:
    inner = b"def f2():\n    with x:\n\tpass\n" + b"".join(function("k").splitlines(True)[1:])
    assert at(function("f1") + inner, SECOND) == (10,)


def test_a_heading_that_a_hunk_above_renames_still_counts() -> None:
    renamed = b"@@ -1,3 +1,3 @@\n class A:\n-    def f2():\n+    def f3():\n         x\n"
    changed = b"@@ -9,3 +9,3 @@ def f2():\n         a\n-        b\n+        B\n         c\n"
    # What the release has put between is nearer, but no block that the place is in.
    data = b"""class A:
    def f2():
        x
        def inner():
            y
        a
        b
        c
class B:
    def f2():
        z
"""
    assert at(data, renamed + changed) == (0, 5)


def test_of_several_places_those_under_other_headings_are_no_candidates() -> None:
    twice = function("f2") + b"".join(function("f2").splitlines(keepends=True)[1:])
    result = place(split(b"top\n" * 2 + twice + function("f1")), one(SECOND).hunks)
    assert isinstance(result, Misfit)
    assert (result.reason, result.candidates) == ("ambiguous", (4, 10))


# --- properties ----------------------------------------------------------------------------

#: No `++ x`: changed from `-- x` that is a file's header, which a diff is refused for.
LINES = st.sampled_from(
    [b"a", b"b", b"", b"    c", b"def f():", b"class A:", b"d\r", b"\x0c", b"e\rf", b"\xe9\xff",
     b"\xe2\x80\xa8", b"-- x", b"@@ -1 +1 @@", b"\\ no"]
)  # fmt: skip


def joined(lines: Sequence[bytes], *, newline: bool = True) -> bytes:
    data = b"".join(line + b"\n" for line in lines)
    return data if newline else data[:-1]


@st.composite
def files_and_edits(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A file and what a few edits make of it; lines repeat."""
    old = draw(st.lists(LINES, max_size=40))
    new = list(old)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(new)))
        end = min(len(new), begin + draw(st.integers(0, 3)))
        new[begin:end] = draw(st.lists(LINES, max_size=3))
    ends = st.booleans()
    return joined(old, newline=draw(ends)), joined(new, newline=draw(ends))


def stands_alone(files: Sequence[FileDiff], data: bytes) -> bool:
    """Has a hunk of a change no old side, which is what only a trusted header can place?"""
    return bool(data) and any(not hunk.old for file in files for hunk in file.hunks)


@pytest.mark.parametrize("make", MAKERS)
def test_what_was_made_is_put_on_and_taken_out(make: Maker, folder: Path) -> None:
    make(folder, b"a", b"b", 3)  # skips where its tool is not here

    @settings(max_examples=150, deadline=None)
    @given(pair=files_and_edits(), context=st.integers(0, 5))
    def check(pair: tuple[bytes, bytes], context: int) -> None:
        old, new = pair
        patch = make(folder, old, new, context)
        if old == new:
            assert not patch
            return
        files = read(patch)
        for data, wanted, parts in ((old, new, files), (new, old, turned(files))):
            assert run(data, parts, trusted=True) == wanted
            if stands_alone(parts, data):
                assert reason(run(data, parts)) in {"nowhere", "ambiguous"}
            else:
                assert run(data, parts) == wanted

    check()


def without_headings(file: FileDiff) -> FileDiff:
    return file._replace(hunks=tuple(hunk._replace(heading=b"") for hunk in file.hunks))


@st.composite
def drifted(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, an edited one, and another that has grown or shrunk somewhere else."""
    old, new = draw(files_and_edits())
    other = old.split(b"\n")
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(0, len(other)))
        end = min(len(other), begin + draw(st.integers(0, 2)))
        other[begin:end] = draw(st.lists(LINES, max_size=5))
    return old, new, b"\n".join(other)


def test_where_ours_and_theirs_accept_the_bytes_are_the_same(folder: Path) -> None:
    difftools.need("diff", "git", "patch")
    accepted = {"ours": 0, "patch": 0, "git": 0}

    @settings(max_examples=250, deadline=None)
    @given(files=drifted(), context=st.integers(1, 3))
    def check(files: tuple[bytes, bytes, bytes], context: int) -> None:
        old, new, other = files
        patch = difftools.with_diff(folder, old, new, context)
        if old == new or difftools.NO_NEWLINE in patch:
            # Of the marker, git makes lines without an end, and GNU patch makes nothing.
            return
        (part,) = read(patch)
        ours = run(other, [without_headings(part)])
        if isinstance(ours, Misfit):
            return
        accepted["ours"] += 1
        theirs = {"git": difftools.put_on_by_git(folder, other, patch)}
        if all(hunk.leading <= hunk.trailing for hunk in part.hunks):
            # GNU patch takes any lack of context below for the end of the file, and goes there
            # past an equal place at the named line.
            theirs["patch"] = difftools.put_on_by_patch(folder, other, patch)
        for tool, result in theirs.items():
            if result is not None:
                accepted[tool] += 1
                assert result == ours, tool

    check()
    assert min(accepted.values()) > 20, accepted


def test_lines_that_no_hunk_names_are_kept_to_the_byte() -> None:
    @settings(max_examples=100, deadline=None)
    @given(above=st.binary(max_size=60), below=st.binary(max_size=60))
    def check(above: bytes, below: bytes) -> None:
        head, tail = above.replace(b"begin", b"") + b"\n", below.replace(b"begin", b"")
        part = one(b"@@ -9,3 +9,4 @@\n begin\n-x\n+y\n+z\n end\n")
        ours = run(head + b"begin\nx\nend\n" + tail, [part])
        assert ours == head + b"begin\ny\nz\nend\n" + tail
        assert isinstance(ours, bytes)
        assert run(ours, turned([part])) == head + b"begin\nx\nend\n" + tail

    check()


# --- the nearest place ---------------------------------------------------------------------


def closest(data: bytes, body: bytes) -> Nearest | None:
    result = apply(data, one(body))
    assert isinstance(result, Misfit)
    return nearest(data, result)


FOUR = b"@@ -2,4 +2,4 @@\n one\n two\n-three\n+THREE\n four\n"


def test_nearest_names_the_first_line_that_differs() -> None:
    found = closest(b"0\n0\n0\none\ntwo\n3\nfour\n", FOUR)
    assert found == Nearest(line=4, index=3, expected=b"three\n", found=b"3\n")


def test_nearest_is_where_most_lines_are_equal() -> None:
    found = closest(b"0\none\ntwo\n3\n0\none\ntwo\nthree\n4\n", FOUR)
    assert found == Nearest(line=6, index=4, expected=b"four\n", found=b"4\n")


def test_of_places_equally_near_the_one_at_the_expected_line_counts() -> None:
    found = closest(
        b"one\ntwo\n3\n4\none\ntwo\n3\n4\none\ntwo\n3\n4\n", FOUR.replace(b"2,4", b"6,4")
    )
    assert found is not None
    assert found.line == 5


def test_nearest_finds_the_place_where_only_line_ends_differ() -> None:
    found = closest(b"0\r\none\r\ntwo\r\nthree\r\nfour\r\n", FOUR)
    assert found == Nearest(line=2, index=1, expected=b"one\n", found=b"one\r\n")


def test_nearest_finds_the_place_where_only_the_indentation_differs() -> None:
    found = closest(b"0\n  one\n  two\n  three\n  four\n", FOUR)
    assert found == Nearest(line=2, index=1, expected=b"one\n", found=b"  one\n")


def test_nearest_runs_over_the_end_of_the_file() -> None:
    found = closest(b"0\none\ntwo\nthree\n", FOUR)
    assert found == Nearest(line=2, index=4, expected=b"four\n", found=None)


def test_nearest_says_that_the_file_should_begin_or_end_there() -> None:
    begins = b"@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n"
    found = closest(b"x\na\nb\nc\n", begins)
    assert found == Nearest(line=2, index=0, expected=b"", found=b"x\n")
    ends = b"@@ -1,2 +1,3 @@\n a\n b\n+c\n"
    found = closest(b"a\nb\nx\n", ends)
    assert found == Nearest(line=1, index=3, expected=b"", found=b"x\n")


@pytest.mark.parametrize(
    ("data", "body"),
    [
        pytest.param(b"0\n", b"@@ -2,0 +3 @@\n+new\n", id="no old side"),
        pytest.param(b"0\n", FOUR, id="nothing equal"),
        pytest.param(b"\n\n\n", b"@@ -2,2 +2,2 @@\n \n-x\n+y\n", id="only blank lines equal"),
        pytest.param(b"one\n" * 200, FOUR, id="only a common line equal"),
        pytest.param(
            b"c\nd\ne\n0\na\nb\n",
            b"@@ -1,2 +1,2 @@\n a\n-b\n+B\n@@ -3,3 +3,3 @@\n c\n-d\n+D\n e\n",
            id="above the hunk above",
        ),
    ],
)
def test_nothing_is_near(data: bytes, body: bytes) -> None:
    assert closest(data, body) is None


def test_nothing_is_near_where_it_fits() -> None:
    file = one(b"@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n")
    assert nearest(b"a\nb\nc\n", Misfit("nowhere", 1, file.hunks[0], 1)) is None


def test_a_misfit_of_a_whole_file_has_no_nearest() -> None:
    assert nearest(b"a\n", Misfit(reason="differs")) is None


# --- much to do ----------------------------------------------------------------------------
# No time is asserted: what is quadratic takes minutes here.


def spread(count: int, apart: int) -> tuple[Hunk, ...]:
    """Hunks that each change a line of their own."""
    hunks = b"".join(
        b"@@ -%d,3 +%d,3 @@\n %d\n-%d\n+new\n %d\n" % (at, at, at, at + 1, at + 2)
        for at in range(1, count * apart, apart)
    )
    return one(hunks).hunks


def test_ten_thousand_hunks_that_moved() -> None:
    hunks = spread(10_000, 10)
    lines = [b"top\n", *(b"%d\n" % number for number in range(1, 100_001))]
    result = place(lines, hunks)
    assert not isinstance(result, Misfit)
    assert {each.offset for each in result} == {1}


def test_ten_thousand_hunks_among_lines_that_repeat() -> None:
    # Every line is there thousands of times, every run once: a count in base three.
    lines = [b"top\n"]
    for number in range(10_000):
        lines += [b"start\n", *(b"%d\n" % (number // 3**digit % 3) for digit in range(9))]
    hunks = [
        Hunk(
            old_start=begin, new_start=begin, old=tuple(lines[begin : begin + 10]),
            new=(b"new\n",), leading=0, trailing=0, heading=b"", line=1, added=1, removed=10,
        )
        for begin in range(1, 100_001, 10)
    ]  # fmt: skip
    result = place(lines, hunks)
    assert not isinstance(result, Misfit)
    assert {each.offset for each in result} == {1}


def test_many_equal_places_are_cut_off() -> None:
    body = b"@@ -7,5 +7,5 @@ def f():\n x\n x\n-x\n+y\n x\n x\n"
    result = apply(b"top\n" + b"x\n" * 100_000, one(body))
    assert isinstance(result, Applied)
    result = apply(b"x\n" * 100_000, one(body.replace(b"-7,5", b"-200000,5")))
    assert isinstance(result, Misfit)
    assert result.reason == "ambiguous"
    assert len(result.candidates) == 1000


def test_among_too_many_places_no_heading_tells() -> None:
    blocks = [b"def f%d():\n    a\n    b\n    c\n" % number for number in range(1100)]
    body = b"@@ -9999,3 +9999,3 @@ def f9():\n     a\n-    b\n+    B\n     c\n"
    assert isinstance(apply(b"".join(blocks[:900]), one(body)), Applied)
    # The second of this name is behind the places that are looked at.
    blocks[-1] = blocks[9]
    result = apply(b"".join(blocks), one(body))
    assert isinstance(result, Misfit)
    assert result.reason == "ambiguous"


def test_a_hunk_of_many_lines_among_lines_that_repeat() -> None:
    old = [b"%d\n" % (number % 7) for number in range(50_000)]
    hunk = Hunk(
        old_start=9, new_start=9, old=tuple(old), new=(b"new\n",), leading=0, trailing=0,
        heading=b"", line=1, added=1, removed=len(old),
    )  # fmt: skip
    result = place([*old, *old], [hunk])
    assert isinstance(result, Misfit)
    assert nearest(b"".join(old[1:]), result) is None


def test_many_headings_are_asked() -> None:
    block = [b"    a\n", b"    b\n", b"    c\n"]
    lines = [b"top\n"]
    hunks = []
    for number in range(900):
        heading = b"def f%d():" % number
        hunks.append(
            Hunk(
                old_start=len(lines) + 1, new_start=len(lines) + 1, old=tuple(block),
                new=(b"    d\n",), leading=0, trailing=0, heading=heading, line=1, added=1,
                removed=3,
            )
        )  # fmt: skip
        lines += [heading + b"\n", *block, *[b"    # %d\n" % number] * 50]
    result = place(lines, hunks)
    assert not isinstance(result, Misfit)
    assert {each.offset for each in result} == {1}


def test_ten_thousand_headings_that_are_there() -> None:
    lines = [b"class A:\n"]
    hunks = []
    for number in range(10_000):
        heading = b"def f%d():" % number
        lines += [b"    " + heading + b"\n", b"        with x:\n", b"            go()\n"]
        old = (b"            %d\n" % number, b"            end()\n")
        hunks.append(
            Hunk(
                old_start=len(lines), new_start=len(lines), old=old, new=(old[0],), leading=1,
                trailing=1, heading=heading, line=1, added=0, removed=1,
            )
        )  # fmt: skip
        lines += old
    result = place([*lines, b"class B:\n", *lines], hunks)
    assert isinstance(result, Misfit)
    assert result.reason == "ambiguous"
    result = place(lines, hunks)
    assert not isinstance(result, Misfit)
    assert {each.offset for each in result} == {1}
