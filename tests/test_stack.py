from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import difftools
from vllm_patcher.diff import parse
from vllm_patcher.known import Known
from vllm_patcher.paths import Part
from vllm_patcher.stack import Stack, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from vllm_patcher.stack import Problem, Tree

NUMBERS = [b"%d\n" % number for number in range(1, 31)]
BLOCK = [
    b"try:\n",
    b"    run()\n",
    b"except KeyError:\n",
    b"    pass\n",
    b"else:\n",
    b"    end()\n",
]


def join(lines: Iterable[bytes]) -> bytes:
    return b"".join(lines)


def known(
    name: str,
    text: bytes,
    *,
    requires: Iterable[str] = (),
    listed: Mapping[str, frozenset[str]] | None = None,
) -> Known:
    """A patch from a diff whose names begin with a/vllm or b/vllm."""
    parts = []
    for file in parse(text, name=name).files:
        sides = [
            side.partition(b"/vllm/")[2].decode() for side in (file.old_name, file.new_name) if side
        ]
        source = sides[0] if file.change == "rename" else None
        parts.append(Part(path=sides[-1], source=source, diff=file))
    return Known(id=name, text=text, parts=tuple(parts), requires=requires, listed=listed)


def diff(old: bytes, new: bytes, *, context: int = 3, path: str = "x.py") -> bytes:
    return header(path) + hunks(old, new, context=context, path=path)


def header(path: str, *lines: bytes) -> bytes:
    name = b"vllm/" + path.encode()
    return b"diff --git a/" + name + b" b/" + name + b"\n" + b"".join(lines)


def hunks(old: bytes, new: bytes, *, context: int = 3, path: str = "x.py") -> bytes:
    """The lines below the header of a diff."""
    text = difftools.with_difflib(old, new, context)
    return text.replace(b"vllm/x.py", b"vllm/" + path.encode())


def patch(
    name: str,
    old: bytes,
    new: bytes,
    *,
    context: int = 3,
    path: str = "x.py",
    requires: Iterable[str] = (),
    listed: bytes | None = None,
) -> Known:
    """A patch from one content of a file to another; ``listed`` is the base it is proven for."""
    digests = {} if listed is None else {path: frozenset({hashlib.sha256(listed).hexdigest()})}
    text = diff(old, new, context=context, path=path)
    return known(name, text, requires=requires, listed=digests)


def put(base: Tree, *patches: Known) -> Stack:
    stack = Stack(base)
    for each in patches:
        assert stack.put(each) == []
    return stack


def reasons(problems: Sequence[Problem]) -> list[tuple[str, str]]:
    return [(problem.path, problem.misfit.reason) for problem in problems]


def edited(lines: Sequence[bytes], at: int, *new: bytes, gone: int = 0) -> list[bytes]:
    return [*lines[:at], *new, *lines[at + gone :]]


# --- values --------------------------------------------------------------------------------


def test_paths_are_all_that_are_read_or_written_once() -> None:
    text = RENAME + diff(b"a\n", b"b\n", path="new.py") + diff(b"a\n", b"b\n", path="z.py")
    assert tuple(known("p", text).paths) == ("old.py", "new.py", "z.py")


def test_a_patch_is_the_same_with_the_same_text_and_equal_only_to_itself() -> None:
    one, two = (patch("p", b"a\n", b"b\n") for _ in range(2))
    assert one.same(two)
    assert one != two
    assert not one.same(patch("q", b"a\n", b"b\n"))
    assert not one.same(patch("p", b"a\n", b"c\n"))


# --- putting on ----------------------------------------------------------------------------


def test_a_patch_goes_on_and_the_base_stays() -> None:
    base = {"x.py": b"a\n", "y.py": b"y\n"}
    stack = put(base, patch("p", b"a\n", b"b\n"))
    assert stack.files == {"x.py": b"b\n", "y.py": b"y\n"}
    assert base == stack.base == {"x.py": b"a\n", "y.py": b"y\n"}
    assert [each.offset for each in stack.placements["p", "x.py"]] == [0]


def test_nothing_of_a_patch_goes_on_if_a_part_has_no_place() -> None:
    base = {"x.py": b"a\n", "y.py": b"other\n", "z.py": None}
    text = (
        diff(b"a\n", b"b\n") + diff(b"y\n", b"Y\n", path="y.py") + diff(b"z\n", b"Z\n", path="z.py")
    )
    stack = Stack(base)
    problems = stack.put(known("p", text))
    assert reasons(problems) == [("y.py", "nowhere"), ("z.py", "missing")]
    assert [problem.data for problem in problems] == [b"other\n", None]
    assert stack.files == base
    assert stack.placements == {}


def test_a_refused_patch_moves_nothing() -> None:
    lines = BLOCK * 2
    refused = known(
        "refused",
        diff(join(lines), join([b"new\n"] * 6 + lines), context=1)
        + diff(b"y\n", b"Y\n", path="y.py"),
    )
    stack = Stack({"x.py": join(lines), "y.py": None})
    assert reasons(stack.put(refused)) == [("y.py", "missing")]
    wanted = edited(lines, 3, b"    raise\n", gone=1)
    assert stack.put(patch("p", join(lines), join(wanted), context=1)) == []
    assert stack.files["x.py"] == join(wanted)


def test_what_builds_on_a_failed_part_is_no_problem_of_its_own() -> None:
    text = diff(b"a\n", b"b\n") + diff(b"b\n", b"c\n")
    assert reasons(Stack({"x.py": b"z\n"}).put(known("p", text))) == [("x.py", "nowhere")]
    text = diff(b"a\n", b"b\n", path="old.py") + RENAME + diff(b"b\n", b"c\n", path="new.py")
    assert reasons(Stack({"old.py": b"z\n"}).put(known("p", text))) == [("old.py", "nowhere")]


def test_only_some_paths() -> None:
    base = {"x.py": b"a\n", "y.py": b"other\n"}
    two = known("p", diff(b"a\n", b"b\n") + diff(b"y\n", b"Y\n", path="y.py"))
    stack = Stack(base)
    assert stack.put(two, only={"x.py"}) == []
    assert stack.files == {"x.py": b"b\n", "y.py": b"other\n"}
    assert take(stack.files, two, trusted=False) is None
    assert take(stack.files, two, trusted=False, only={"x.py"}) == base


def test_a_file_that_comes_twice_in_one_patch() -> None:
    first = edited(NUMBERS, 2, b"new\n", b"new\n")
    second = edited(first, 20, b"more\n", gone=2)
    text = diff(join(NUMBERS), join(first)) + diff(join(first), join(second))
    twice = known("p", text)
    stack = put({"x.py": join(NUMBERS)}, twice)
    assert stack.files == {"x.py": join(second)}
    assert len(stack.placements["p", "x.py"]) == 2
    assert take(stack.files, twice, trusted=False) == {"x.py": join(NUMBERS)}


def test_the_second_time_a_file_comes_its_lines_are_those_of_the_first() -> None:
    first, second = edited(TWO, 5, *NEW), edited(SECOND, 5, *NEW)
    text = diff(join(TWO), join(first)) + diff(join(first), join(second), context=2)
    twice = known("p", text)
    stack = put({"x.py": join(TWO)}, twice)
    assert stack.files == {"x.py": join(second)}
    assert take(stack.files, twice, trusted=False) == {"x.py": join(TWO)}


# --- both header bases ---------------------------------------------------------------------

#: Two equal blocks as far from each other as `ABOVE` adds lines, so that a header that is
#: taken in the wrong sense names the wrong block.
TWO = [*NUMBERS[:10], *BLOCK, *BLOCK, *NUMBERS[20:]]
SECOND = edited(TWO, 19, b"    raise\n", gone=1)
NEW = [b"new\n"] * len(BLOCK)
ABOVE = patch("above", join(TWO), join(edited(TWO, 5, *NEW)))
#: The same, where only what comes out has equal places.
RAISED = edited(TWO, 13, b"    raise\n", gone=1)
BOTH = edited(RAISED, 19, b"    raise\n", gone=1)


def test_a_patch_on_the_pristine_file_finds_its_block_below_another() -> None:
    wanted = join(edited(SECOND, 5, *NEW))
    second = patch("second", join(TWO), join(SECOND), context=2)
    stack = put({"x.py": join(TWO)}, ABOVE, second)
    assert stack.files["x.py"] == wanted
    assert [each.offset for each in stack.placements["second", "x.py"]] == [0]
    assert put({"x.py": join(TWO)}, second, ABOVE).files["x.py"] == wanted


def test_a_patch_that_requires_the_other_counts_its_lines() -> None:
    base, wanted = edited(TWO, 5, *NEW), edited(SECOND, 5, *NEW)
    second = patch("second", join(base), join(wanted), context=2, requires=["above"])
    stack = put({"x.py": join(TWO)}, ABOVE, second)
    assert stack.files["x.py"] == join(wanted)


def test_a_header_that_fits_in_neither_sense_is_refused() -> None:
    base = edited(TWO, 0, b"0\n")
    second = patch("second", join(TWO), join(SECOND), context=2)
    above = patch("above", join(base), join(edited(base, 5, *NEW)))
    stack = put({"x.py": join(base)}, above)
    assert reasons(stack.put(second)) == [("x.py", "ambiguous")]


def test_lines_that_another_put_right_above_the_hunk_count() -> None:
    lines = [*NUMBERS[:6], *BLOCK, *BLOCK, *NUMBERS[20:]]
    wanted = edited(lines, 15, b"    raise\n", gone=1)
    second = patch("second", join(lines), join(wanted), context=2)
    assert second.parts[0].diff.hunks[0].old_start == 14
    above = patch("above", join(lines), join(edited(lines, 13, *NEW)))
    stack = put({"x.py": join(lines)}, above, second)
    assert stack.files["x.py"] == join(edited(wanted, 13, *NEW))


def test_lines_that_another_took_count_too() -> None:
    lines = [*NUMBERS[:12], *BLOCK, *BLOCK, *NUMBERS[20:]]
    above = patch("above", join(lines), join(edited(lines, 3, gone=6)))
    wanted = edited(lines, 15, b"    raise\n", gone=1)
    first = patch("first", join(lines), join(wanted), context=2)
    stack = put({"x.py": join(lines)}, above, first)
    assert stack.files["x.py"] == join(edited(wanted, 3, gone=6))


def test_what_is_put_into_lines_of_another_counts_at_their_place() -> None:
    # `inner` stands in lines that `outer` added: in the pristine file it has no line of its
    # own, and must not count for what is above them.
    lines = [*NUMBERS[:6], *BLOCK, *BLOCK, *NUMBERS[20:]]
    outer_lines = edited(lines, 18, *NUMBERS)
    inner_lines = edited(outer_lines, 22, *[b"in\n"] * 6)
    outer = patch("outer", join(lines), join(outer_lines), context=1)
    inner = patch("inner", join(outer_lines), join(inner_lines), requires=["outer"])
    wanted = edited(lines, 9, b"    raise\n", gone=1)
    first = patch("first", join(lines), join(wanted), context=2)
    stack = put({"x.py": join(lines)}, outer, inner, first)
    assert stack.files["x.py"] == join(edited(inner_lines, 9, b"    raise\n", gone=1))


# --- trust ---------------------------------------------------------------------------------


def test_a_hunk_without_old_lines_needs_a_listed_base() -> None:
    base = {"x.py": join(NUMBERS)}
    wanted = join(edited(NUMBERS, 10, b"new\n"))
    bare = patch("p", join(NUMBERS), wanted, context=0)
    assert reasons(Stack(base).put(bare)) == [("x.py", "nowhere")]
    bare = patch("p", join(NUMBERS), wanted, context=0, listed=join(NUMBERS))
    assert put(base, bare).files["x.py"] == wanted
    other = {"x.py": join(NUMBERS[1:])}
    assert reasons(Stack(other).put(bare)) == [("x.py", "nowhere")]


def test_a_listed_base_is_trusted_below_other_patches() -> None:
    wanted = edited(NUMBERS, 10, b"new\n")
    bare = patch("p", join(NUMBERS), join(wanted), context=0, listed=join(NUMBERS))
    above = patch(
        "above", join(NUMBERS), join(edited(NUMBERS, 5, b"a\n", b"b\n", gone=1)), context=1
    )
    stack = put({"x.py": join(NUMBERS)}, above, bare)
    assert stack.files["x.py"] == join(edited(wanted, 5, b"a\n", b"b\n", gone=1))


@pytest.mark.parametrize(
    ("line", "fits"),
    [(8, True), (9, True), (10, False), (11, False), (13, False), (14, True), (15, True)],
)
def test_a_hunk_without_old_lines_has_no_place_in_what_another_changed(
    line: int, fits: bool
) -> None:
    # The other one changes lines 10 to 14, two of which it keeps: where in there the new line
    # belongs, no number can tell.
    changed = [*NUMBERS[:9], b"A\n", b"B\n", b"C\n", *NUMBERS[11:13], *NUMBERS[14:]]
    other = patch("other", join(NUMBERS), join(changed))
    (hunk,) = other.parts[0].diff.hunks
    assert (hunk.leading, len(hunk.old) - hunk.trailing) == (3, 8)
    wanted = edited(NUMBERS, line, b"new\n")
    bare = patch("bare", join(NUMBERS), join(wanted), context=0, listed=join(NUMBERS))
    stack = put({"x.py": join(NUMBERS)}, other)
    problems = stack.put(bare)
    assert reasons(problems) == ([] if fits else [("x.py", "nowhere")])
    if fits:
        assert stack.files["x.py"] == join(edited(changed, line, b"new\n"))


def test_a_listed_path_needs_a_file() -> None:
    listed = patch("p", b"a\n", b"b\n", listed=b"a\n")
    assert Stack({"x.py": b"a\n"}).listed(listed, "x.py")
    assert not Stack({"x.py": b"b\n"}).listed(listed, "x.py")
    assert not Stack({"x.py": None}).listed(listed, "x.py")
    assert not Stack({"x.py": b"a\n"}).listed(listed, "y.py")


def test_a_listed_base_tells_equal_places_apart_although_another_hunk_moved() -> None:
    lines = [*TWO, *NUMBERS]
    base = edited(lines, 40, b"moved\n")
    new = edited(edited(lines, 19, b"    raise\n", gone=1), 45, b"new\n")
    wanted = edited(edited(base, 19, b"    raise\n", gone=1), 46, b"new\n")
    plain = patch("p", join(lines), join(new), context=2)
    assert reasons(Stack({"x.py": join(base)}).put(plain)) == [("x.py", "ambiguous")]
    listed = patch("p", join(lines), join(new), context=2, listed=join(base))
    assert put({"x.py": join(base)}, listed).files["x.py"] == join(wanted)


def git_patch(name: str, folder: Path, old: bytes, new: bytes, *, digits: int = 40) -> Known:
    """A patch as git makes it, with ids of so many digits, and without context."""
    text = difftools.with_git(folder, old, new, 0)
    for data in (old, new):
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        assert blob.encode() in text
        text = text.replace(blob.encode(), blob[:digits].encode())
    return known(name, text)


def test_gits_id_of_the_file_is_trusted(tmp_path: Path) -> None:
    wanted = join(edited(NUMBERS, 10, b"new\n"))
    for digits, problems in ((40, []), (7, []), (6, [("x.py", "nowhere")])):
        bare = git_patch("p", tmp_path, join(NUMBERS), wanted, digits=digits)
        stack = Stack({"x.py": join(NUMBERS)})
        assert reasons(stack.put(bare)) == problems
        assert stack.files["x.py"] == (join(NUMBERS) if problems else wanted)


def test_gits_id_of_another_file_is_not_trusted(tmp_path: Path) -> None:
    bare = git_patch("p", tmp_path, join(NUMBERS), join(edited(NUMBERS, 10, b"new\n")))
    stack = Stack({"x.py": join(NUMBERS[1:])})
    assert reasons(stack.put(bare)) == [("x.py", "nowhere")]


def test_gits_id_of_the_stacked_file_counts_all_lines_in_it(tmp_path: Path) -> None:
    # Made from the file as the other patch leaves it, without saying that it requires it: by
    # the other's lines the header would name the wrong one of two equal blocks.
    lines = [*NUMBERS[:5], *BLOCK, *BLOCK, *BLOCK, *NUMBERS[20:]]
    above = patch("above", join(lines), join(edited(lines, 3, *NEW)))
    stacked = edited(lines, 3, *NEW)
    wanted = edited(stacked, 14, b"    raise\n", gone=1)
    second = git_patch("second", tmp_path, join(stacked), join(wanted))
    stack = put({"x.py": join(lines)}, above, second)
    assert stack.files["x.py"] == join(wanted)


def test_gits_id_of_the_result_is_trusted_in_reverse(tmp_path: Path) -> None:
    new = join(edited(NUMBERS, 10, gone=2))
    gone = git_patch("p", tmp_path, join(NUMBERS), new)
    assert take({"x.py": new}, gone, trusted=False) == {"x.py": join(NUMBERS)}
    assert take({"x.py": b"0\n" + new}, gone, trusted=False) is None


# --- taking off ----------------------------------------------------------------------------


def test_what_is_not_on_is_not_taken_off() -> None:
    two = known("p", diff(b"a\n", b"b\n") + diff(b"y\n", b"Y\n", path="y.py"))
    files = {"x.py": b"b\n", "y.py": b"y\n"}
    assert take(files, two, trusted=True) is None
    assert files == {"x.py": b"b\n", "y.py": b"y\n"}


def test_taking_off_gives_a_new_tree() -> None:
    files = {"x.py": b"b\n"}
    assert take(files, patch("p", b"a\n", b"b\n"), trusted=False) == {"x.py": b"a\n"}
    assert files == {"x.py": b"b\n"}


def test_strictly_lines_come_back_only_at_their_line() -> None:
    lines = edited(NUMBERS, 10, gone=2)
    gone = patch("p", join(NUMBERS), join(lines))
    here, off = {"x.py": join(lines)}, {"x.py": join([b"0\n", *lines])}
    assert take(here, gone, trusted=False, strict=True) == {"x.py": join(NUMBERS)}
    assert take(off, gone, trusted=False) == {"x.py": join([b"0\n", *NUMBERS])}
    assert take(off, gone, trusted=False, strict=True) is None
    beneath = [patch("other", join(lines), join([b"0\n", *lines]))]
    assert take(off, gone, trusted=False, beneath=beneath, strict=True) is not None


@pytest.mark.parametrize("at", [4, 24])
def test_strictly_lines_come_back_as_far_off_as_what_the_patch_put_in(at: int) -> None:
    result = edited(edited(NUMBERS, 14, gone=2), at, b"new\n")
    gone = patch("p", join(NUMBERS), join(result))
    off = [b"0\n", *result]
    back = {"x.py": join([b"0\n", *NUMBERS])}
    assert take({"x.py": join(off)}, gone, trusted=False, strict=True) == back
    # One line more between the two, and only the other stands where its header says.
    between = join(edited(result, result.index(b"21\n" if at > 14 else b"9\n") + 1, b"0\n"))
    assert take({"x.py": between}, gone, trusted=False) is not None
    apart = {"x.py": b"0\n" + between if at > 14 else between}
    assert take(apart, gone, trusted=False, strict=True) is None


def test_strictly_a_blank_line_that_was_put_in_tells_nothing() -> None:
    result = join(edited(NUMBERS, 10, b"\n", gone=2))
    gone = patch("p", join(NUMBERS), result)
    assert take({"x.py": result}, gone, trusted=False, strict=True) is not None
    assert take({"x.py": b"0\n" + result}, gone, trusted=False) is not None
    assert take({"x.py": b"0\n" + result}, gone, trusted=False, strict=True) is None


def test_lines_taken_out_come_back_only_under_trust() -> None:
    new = join(edited(NUMBERS, 10, gone=2))
    gone = patch("p", join(NUMBERS), new, context=0)
    assert take({"x.py": new}, gone, trusted=False) is None
    assert take({"x.py": new}, gone, trusted=True) == {"x.py": join(NUMBERS)}


def test_what_stays_beneath_tells_where_to_take_off() -> None:
    second = patch("second", join(TWO), join(SECOND), context=2)
    both = edited(edited(SECOND, 13, b"    raise\n", gone=1), 5, *NEW)
    files = {"x.py": join(both)}
    wanted = {"x.py": join(edited(both, 25, b"    pass\n", gone=1))}
    assert take(files, second, trusted=True, beneath=[ABOVE]) == wanted
    assert take(files, second, trusted=False, beneath=[ABOVE]) == wanted
    assert take(files, second, trusted=True) != wanted


def test_of_what_is_beneath_what_is_required_is_in_the_header() -> None:
    base, new = edited(TWO, 5, *NEW), edited(SECOND, 5, *NEW)
    second = patch("second", join(base), join(new), context=2, requires=["above"])
    both = edited(new, 19, b"    raise\n", gone=1)
    wanted = {"x.py": join(edited(both, 25, b"    pass\n", gone=1))}
    assert take({"x.py": join(both)}, second, trusted=True, beneath=[ABOVE]) == wanted


#: A block to be changed, and one further down that is then equal to it.
RAISES = [*BLOCK[:3], b"    raise\n", *BLOCK[4:]]
APART_BLOCKS = [*NUMBERS[:10], *BLOCK, *NUMBERS[10:16], *RAISES, *NUMBERS[20:]]
FIRST = edited(APART_BLOCKS, 13, b"    raise\n", gone=1)


def below(name: str, at: int) -> Known:
    new = [b"%s %d\n" % (name.encode(), number) for number in range(20)]
    return patch(name, join(APART_BLOCKS), join(edited(APART_BLOCKS, at, *new)))


def test_own_lines_above_do_not_make_others_count() -> None:
    # The other's lines are below the hunk in the pristine file, but above the line that the
    # header gives it, which counts the patch's own lines.
    own = edited(FIRST, 2, *[b"own\n"] * 20)
    first, other = patch("first", join(APART_BLOCKS), join(own), context=2), below("other", 18)
    stack = put({"x.py": join(APART_BLOCKS)}, other, first)
    wanted = put(stack.base, other).files
    assert take(stack.files, first, trusted=True, beneath=[other]) == wanted


def test_what_is_beneath_moves_what_is_above_it() -> None:
    # By its header alone the second one's lines would stand above the block.
    one, two = below("one", 4), below("two", 18)
    first = patch("first", join(APART_BLOCKS), join(FIRST), context=2)
    stack = put({"x.py": join(APART_BLOCKS)}, one, two, first)
    wanted = put(stack.base, one, two).files
    assert take(stack.files, first, trusted=True, beneath=[one, two]) == wanted


# --- files as a whole ----------------------------------------------------------------------

RENAME = (
    b"diff --git a/vllm/old.py b/vllm/new.py\nsimilarity index 100%\n"
    b"rename from vllm/old.py\nrename to vllm/new.py\n"
)
CREATE = (
    header("x.py", b"new file mode 100644\n")
    + b"--- /dev/null\n+++ b/vllm/x.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
)
DELETE = (
    header("x.py", b"deleted file mode 100644\n")
    + b"--- a/vllm/x.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
)


def test_a_file_comes_and_goes() -> None:
    create, delete = known("create", CREATE), known("delete", DELETE)
    nothing, there = {"x.py": None}, {"x.py": b"a\nb\n"}
    assert put(nothing, create).files == there
    assert take(there, create, trusted=False) == nothing
    assert put(there, delete).files == nothing
    assert take(nothing, delete, trusted=False) == there
    assert reasons(Stack(there).put(create)) == [("x.py", "exists")]
    assert reasons(Stack({"x.py": b"c\n"}).put(delete)) == [("x.py", "differs")]
    assert take({"x.py": b"c\n"}, create, trusted=True) is None


def test_a_renamed_file_moves_with_its_change() -> None:
    lines = join(edited(NUMBERS, 10, b"new\n", gone=1))
    change = hunks(join(NUMBERS), lines, path="new.py").replace(b"a/vllm/new", b"a/vllm/old")
    moving = known("p", RENAME + change)
    base = {"old.py": join(NUMBERS), "new.py": None}
    stack = put(base, moving)
    assert stack.files == {"old.py": None, "new.py": lines}
    assert take(stack.files, moving, trusted=False) == base


def test_a_rename_needs_a_source_and_a_free_place() -> None:
    moving = known("p", RENAME)
    problems = Stack({"old.py": b"a\n", "new.py": b"b\n"}).put(moving)
    assert reasons(problems) == [("new.py", "exists")]
    assert problems[0].data == b"b\n"
    assert reasons(Stack({"old.py": None, "new.py": None}).put(moving)) == [("old.py", "missing")]
    assert take({"old.py": b"b\n", "new.py": b"a\n"}, moving, trusted=True) is None


def test_lines_that_others_added_are_still_counted_after_a_rename() -> None:
    above = patch("above", join(TWO), join(edited(TWO, 5, *NEW)), path="old.py")
    change = diff(join(TWO), join(SECOND), path="new.py", context=2)
    base = {"old.py": join(TWO), "new.py": None}
    stack = put(base, above, known("moving", RENAME + change))
    assert stack.files == {"old.py": None, "new.py": join(edited(SECOND, 5, *NEW))}


@pytest.mark.parametrize("apart", [True, False])
def test_and_when_it_is_taken_off(apart: bool) -> None:
    above = patch("above", join(RAISED), join(edited(RAISED, 5, *NEW)), path="old.py")
    change = diff(join(RAISED), join(BOTH), path="new.py", context=2)
    base = {"old.py": join(RAISED), "new.py": None}
    patches = [above, known("both", RENAME + change)]
    if apart:
        patches = [above, known("rename", RENAME), known("change", change)]
    stack = put(base, *patches)
    assert stack.files == {"old.py": None, "new.py": join(edited(BOTH, 5, *NEW))}
    beneath = patches[:-1]
    wanted = put(base, *beneath).files
    assert take(stack.files, patches[-1], trusted=True, beneath=beneath) == wanted


@pytest.mark.parametrize("how", ["renamed", "deleted"])
def test_a_new_file_does_not_inherit_lines_from_an_old_one(how: str) -> None:
    old = join(TWO)
    grown = join(edited(TWO, 5, *NEW))
    above = patch("above", old, grown, path="old.py")
    away, again = RENAME, header("old.py", b"new file mode 100644\n")
    if how == "deleted":
        away = header("old.py", b"deleted file mode 100644\n")
        away += hunks(grown, b"", path="old.py").replace(b"+++ b/vllm/old.py", b"+++ /dev/null")
    again += hunks(b"", old, path="old.py").replace(b"--- a/vllm/old.py", b"--- /dev/null")
    # Put on, the second block has an equal one above it; taken off, so has the first one.
    second = patch("second", old, join(SECOND), path="old.py", context=2)
    first = patch("first", join(SECOND), join(BOTH), path="old.py", context=2, requires=["second"])
    base = {"old.py": old, "new.py": None}
    beneath = [above, known("away", away), known("again", again), second]
    stack = put(base, *beneath, first)
    assert stack.files["old.py"] == join(BOTH)
    wanted = put(base, *beneath).files
    assert take(stack.files, first, trusted=True, beneath=beneath) == wanted


# --- properties ----------------------------------------------------------------------------

LINE = st.sampled_from([b"a\n", b"b\n", b"\n", b"    c\n"])
#: So many lines give way to those, and whose edit it is.
EDIT = st.tuples(st.integers(0, 2), st.lists(LINE, max_size=4), st.integers(0, 2))
OWNERS = ("one", "two", "needs one")
#: From one edit to the next, so that no context reaches into another edit.
APART = 8

Edits = list[tuple[int, list[bytes], int]]


def written(base: Sequence[bytes], edits: Edits, owner: int, below: Iterable[int]) -> bytes:
    """Write the diff of one owner's edits on what those below have made of the base.

    No tool writes it: among lines that repeat they find edits in other places.
    """
    text = b""
    grown = added = 0
    for number, (gone, new, whose) in enumerate(edits):
        at = 4 + APART * number
        lead, trail = base[at - 3 : at], base[at + gone : at + gone + 3]
        if whose == owner and (gone or new):
            text += b"@@ -%d,%d +%d,%d @@\n" % (
                at - 2 + grown, 6 + gone, at - 2 + grown + added, 6 + len(new),
            )  # fmt: skip
            sides = ((b" ", lead), (b"-", base[at : at + gone]), (b"+", new), (b" ", trail))
            text += join(sign + line for sign, lines in sides for line in lines)
            added += len(new) - gone
        if whose in below:
            grown += len(new) - gone
    return header("x.py") + difftools.NAMES + text if text else b""


def built(base: Sequence[bytes], edits: Edits, owners: Iterable[int]) -> bytes:
    """Return the base with the edits of some owners."""
    out = list(base)
    for number, (gone, new, whose) in reversed(list(enumerate(edits))):
        at = 4 + APART * number
        if whose in owners:
            out[at : at + gone] = new
    return join(out)


@settings(max_examples=300, deadline=None)
@given(
    base=st.lists(LINE, min_size=60, max_size=60),
    edits=st.lists(EDIT, min_size=7, max_size=7),
    order=st.sampled_from([(0, 1, 2), (0, 2, 1), (1, 0, 2)]),
)
def test_patches_that_leave_each_other_alone_stack_whatever_repeats(
    base: list[bytes], edits: Edits, order: tuple[int, ...]
) -> None:
    stack = Stack({"x.py": join(base)})
    on: list[Known] = []
    trees = [stack.files]
    for owner in order:
        below, requires = ([0], ["one"]) if OWNERS[owner] == "needs one" else ([], [])
        text = written(base, edits, owner, below)
        if built(base, edits, [*below, owner]) == built(base, edits, below):
            continue
        each = known(OWNERS[owner], text, requires=requires)
        assert stack.put(each) == []
        on.append(each)
        trees.append(stack.files)
        assert stack.files["x.py"] == built(base, edits, [OWNERS.index(each.id) for each in on])
        assert {place.offset for place in stack.placements[each.id, "x.py"]} == {0}
    while on:
        each = on.pop()
        for trusted in (True, False):
            assert take(trees[-1], each, trusted=trusted, beneath=on) == trees[-2]
        trees.pop()


def test_three_thousand_changes_by_each_of_three_patches() -> None:
    lines = [b"%d\n" % number for number in range(30_000)]
    texts = []
    for number in range(3):
        hunks = b"".join(
            b"@@ -%d,3 +%d,4 @@\n %d\n-%d\n+new\n+new\n %d\n" % (at + 1, at + 1, at, at + 1, at + 2)
            for at in range(3 * number, 30_000 - 9, 10)
        )
        texts.append(difftools.NAMES + hunks)
    patches = [known(f"p{number}", text) for number, text in enumerate(texts)]
    stack = put({"x.py": join(lines)}, *patches)
    files: Tree | None = stack.files
    for number in range(2, -1, -1):
        assert files is not None
        files = take(files, patches[number], trusted=True, beneath=patches[:number])
    assert files == stack.base
