"""Diffs and files as they come in the field, each through whole verbs; what docs/diffs.md says.

A folder of `data/edge` is one case:

| file | holds |
|---|---|
| `before/` | the files of the package as they were released |
| `found/` | what another hand has made of them since; left out if nothing |
| `earlier` | another revision of the patch, which is in; left out if none is |
| `patch` | what is applied |
| `listed` | is there if a lock lists the digests of `before/` for the patch |
| `after/` | what that makes of the files; or else |
| `refused` | all that is printed when nothing may change |
| `told` | all that is printed where it matters what is said of a patch that can be had |

VLLM_PATCHER_REWRITE=1 writes `refused` and `told` anew.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from typing import TYPE_CHECKING

import pytest

import difftools
from fakes import make_install
from scenes import DATA, Ran, Scene, entry
from vllm_patcher.diff import parse
from vllm_patcher.hunks import Misfit, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from vllm_patcher.diff import FileDiff

    Files = dict[str, bytes]

EDGE = DATA / "edge"
REWRITE = "VLLM_PATCHER_REWRITE"

#: Every kind of edge case, and the folders that show it.
ROWS = {
    "no newline at the end of the file": (
        "newline-missing-on-both-sides",
        "newline-missing-and-last-line-changed",
        "newline-added",
        "newline-taken",
        "newline-marker-in-german",
        "newline-marker-in-japanese",
        "newline-marker-in-no-language",
        "newline-marker-in-french-twice",
        "newline-that-the-context-denies",
        "newline-that-the-file-lacks",
        "newline-denied-in-the-middle",
    ),
    "a diff that was pasted without its last newline": (
        "pasted-without-last-newline",
        "pasted-and-ends-in-an-added-line",
        "pasted-and-ends-in-a-marker",
    ),
    "CRLF in the file or the diff": (
        "crlf-in-file-and-diff",
        "crlf-in-the-whole-diff-and-the-file",
        "crlf-in-the-diff-only",
        "crlf-in-the-file-only",
        "crlf-in-one-line",
        "crlf-in-one-line-of-the-file-only",
        "crlf-is-put-in",
        "crlf-in-header-lines-only",
    ),
    "what other programs take for the end of a line": (
        "separator-vertical-tab",
        "separator-form-feed",
        "separator-file-separator",
        "separator-group-separator",
        "separator-record-separator",
        "separator-next-line-u0085",
        "separator-line-separator-u2028",
        "separator-paragraph-separator-u2029",
        "separator-lone-cr",
        "separator-nul",
    ),
    "bytes that are no text": (
        "bytes-latin-1",
        "bytes-that-are-not-utf-8",
        "bytes-every-one",
        "bytes-order-mark",
        "bytes-utf-8-for-latin-1",
    ),
    "a file that is created": (
        "create-a-file",
        "create-a-file-in-a-new-folder",
        "create-an-empty-file",
        "create-where-other-content-is",
        "create-where-an-empty-file-is",
        "create-an-empty-file-where-content-is",
        "create-what-the-release-has",
        "create-what-another-hand-has-put-there",
        "create-where-another-hand-has-put-other-content",
    ),
    "a file that is deleted": (
        "delete-a-file",
        "delete-an-empty-file",
        "delete-a-file-that-differs",
        "delete-a-file-that-holds-more",
        "delete-a-file-that-another-hand-changed",
        "delete-a-file-that-is-not-there",
    ),
    "names": (
        "name-quoted",
        "name-not-quoted-beyond-ascii",
        "name-quoted-without-need",
        "name-quoted-badly",
        "name-with-spaces",
        "name-with-tab-and-time",
        "name-with-spaces-tab-and-time",
        "name-with-blank-and-time",
        "name-with-blank-and-time-of-c",
    ),
    "no context": (
        "zero-context-not-listed",
        "zero-context-listed",
        "zero-context-listed-before-the-first-line",
        "zero-context-listed-behind-the-last-line",
        "zero-context-with-the-id-of-the-file",
        "zero-context-with-the-id-of-another-file",
        "zero-context-line-changed",
        "zero-context-line-taken-out",
    ),
    "overlapping and unsorted hunks": (
        "hunks-that-overlap",
        "hunks-out-of-order",
        "hunk-twice",
    ),
    "a count that is too small": (
        "count-too-small-by-a-context-line",
        "count-too-small-by-an-added-line",
        "count-too-small-by-a-removed-line",
        "count-too-small-before-another-hunk",
    ),
    "a count that is too large, no counts, conflict markers": (
        "count-too-large",
        "count-too-large-before-another-hunk",
        "count-too-large-by-more-than-trimmed-blanks",
        "count-too-large-of-added-lines",
        "hunk-header-bare",
        "hunk-header-bare-behind-a-good-one",
        "conflict-markers-between-hunks",
        "conflict-markers-in-a-hunk",
        "conflict-markers-in-added-lines",
    ),
    "several equal places": (
        "equal-places-at-the-named-line",
        "equal-places-elsewhere",
        "equal-places-told-by-the-heading",
        "equal-places-and-a-heading-of-neither",
    ),
    "a blank context line that lost its space": (
        "blank-context-line-stripped",
        "blank-context-lines-trimmed-at-the-end",
        "blank-context-line-that-is-not-blank-there",
    ),
    "prose": (
        "prose-mail-header",
        "prose-mail-signature",
        "prose-mail-signature-of-dashes",
        "prose-around",
        "prose-with-a-plus-line",
        "prose-with-a-plus-line-behind",
        "prose-with-a-plus-line-behind-a-signature",
        "prose-with-a-rule-before-the-header",
    ),
    "the same file twice in a mail series": (
        "series-touches-a-file-twice",
        "series-makes-a-file-and-changes-it",
        "series-in-the-wrong-order",
    ),
    "a symbolic link": (
        "symlink-made",
        "symlink-made-and-written-through",
        "symlink-where-a-file-is",
    ),
    "two files of which one fails": (
        "second-file-of-two-fails",
        "second-file-of-two-is-missing",
        "second-file-of-two-would-not-compile",
        "both-files-fail",
    ),
    "applied already, in the release, half of it there": (
        "already-applied",
        "already-in-the-release",
        "already-half-applied",
        "already-half-in-the-release",
        "already-half-of-a-file-in-the-release",
        "already-half-of-a-file-by-another-hand",
    ),
    "a new revision of a patch that is in": (
        "revision-takes-the-place-of-another",
        "revision-leaves-a-file-alone",
        "revision-changes-the-same-line",
        "revision-that-does-not-fit",
    ),
}

CASES = sorted(name for names in ROWS.values() for name in names)


def test_every_folder_is_in_the_table_and_every_row_has_folders() -> None:
    assert sorted(folder.name for folder in EDGE.iterdir()) == CASES
    assert all(ROWS.values())
    assert len(ROWS) == 20


class Case:
    """One folder, and an install laid out as it says."""

    def __init__(self, name: str, root: Path) -> None:
        self.folder = EDGE / name
        self.scene = Scene(root=root)
        parts = {part.name for part in self.folder.iterdir()}
        assert parts <= {
            "before", "found", "earlier", "patch", "listed", "after", "refused", "told",
        }  # fmt: skip
        assert not {"after", "refused"} <= parts
        self.refused = "refused" in parts
        self.has = parts.__contains__
        self.released: Files = {}

    def files(self, part: str) -> Files:
        """The files of the package as one part of the case has them."""
        folder = self.folder / part
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def read(self, part: str) -> bytes:
        return (self.folder / part).read_bytes()

    def lay(self) -> None:
        """Lay the install and bring it to where the patch finds it."""
        make_install(self.scene.site, files=self.files("before"))
        self.released = self.scene.everything()
        if self.has("found"):
            for path in self.files("before"):
                (self.scene.package / path).unlink()
            for path, data in self.files("found").items():
                (self.scene.package / path).write_bytes(data)
        if self.has("earlier"):
            ran = self.scene.run("apply", *self.scene.catalog(self.entry("earlier"), name="old"))
            assert ran.code == 0, ran

    def entry(self, part: str) -> dict[str, object]:
        return entry("fix", self.read(part))

    def how(self) -> Sequence[str | Path]:
        """What names the patch on the command line: a diff file, or a catalog and an id."""
        if not (self.has("earlier") or self.has("listed")):
            return ("--no-builtin", self.scene.diff_file("fix.patch", self.read("patch")))
        options = self.scene.catalog(self.entry("patch"))
        if self.has("listed"):
            digests = {
                path: {"before": digest(data), "after": digest(self.files("after")[path])}
                for path, data in self.files("before").items()
            }
            lock = {"schema": 1, "patches": {"fix": {self.scene.version: digests}}}
            (self.scene.root / "catalog" / "lock.json").write_text(json.dumps(lock))
        return ("fix", *options)

    def now(self) -> Files:
        """The files of the package that are there, without the one that was not asked for."""
        everything = self.scene.everything()
        assert everything.pop("vllm/__init__.py") == b'"""A fake vLLM."""\n'
        return {
            path.removeprefix("vllm/"): data
            for path, data in everything.items()
            if path.startswith("vllm/")
        }

    def holds(self, part: str, *told: tuple[str, Ran]) -> None:
        """Hold what was printed against a golden file."""
        text = "".join(self._transcript(verb, ran) for verb, ran in told)
        if os.environ.get(REWRITE):
            (self.folder / part).write_text(text, encoding="utf-8")
        assert text == self.read(part).decode()

    def _transcript(self, verb: str, ran: Ran) -> str:
        text = f"$ {verb}\n{ran.out}{ran.err}" + (f"[{ran.code}]\n" if ran.code else "")
        return text.replace(str(self.scene.root), "ROOT")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    case.lay()
    how, run, released = case.how(), case.scene.run, case.released
    start = case.scene.everything()
    verified = run("verify", *how)
    # As JSON, because the diff itself may be no text.
    dry = run("apply", "--dry-run", "--json", *how)
    assert case.scene.everything() == start
    applied = run("apply", *how)
    if case.refused:
        case.holds("refused", ("apply", applied))
        assert (applied.code, dry.code) == (3, 3)
        assert verified.code in {1, 3}
        assert case.scene.everything() == start
        return
    if case.has("told"):
        case.holds("told", ("verify", verified), ("apply", applied))
    assert (applied.code, dry.code) == (0, 0), applied
    assert case.now() == case.files("after")
    there = case.scene.everything()
    assert run("apply", *how).code == 0
    assert run("verify", *how).code == 0
    assert case.scene.everything() == there
    reverted = run("revert", *how)
    assert reverted.code == 0, reverted
    # With RECORD, and nothing of ours beside it.
    assert case.scene.everything() == released


def test_there_are_three_answers_to_a_patch_that_is_there() -> None:
    told = [
        re.findall(r"^fix [.]+ (.*)$", (EDGE / name / "told").read_text(), re.MULTILINE)[0]
        for name in ("already-applied", "already-in-the-release", "already-half-applied")
    ]
    assert told == ["applied", "upstream", "partial"]


# --- every end, every size, every edge -------------------------------------------------------


def without_ids(patch: bytes) -> bytes:
    """Take out git's index line, which would say which bytes the diff was made from."""
    return re.sub(rb"(?m)^index .*\n", b"", patch)


def there_and_back(root: Path, old: Files, patch: bytes, new: Files) -> None:
    """Apply a diff through whole verbs, twice, verify it, and take it out to the byte."""
    scene = Scene(root=root)
    make_install(scene.site, files=old)
    how = ("--no-builtin", scene.diff_file("fix.patch", patch))
    released = scene.everything()
    for verb in ("apply", "apply", "verify"):
        ran = scene.run(verb, *how)
        assert ran.code == 0, (verb, ran, old, patch)
        for path, data in new.items():
            assert (scene.package / path).read_bytes() == data
    ran = scene.run("revert", *how)
    assert ran.code == 0, (ran, old, patch)
    assert scene.everything() == released


def put(data: bytes, files: Sequence[FileDiff], *, trusted: bool = False) -> bytes | None:
    """Put the parts of a diff on one file by the engine alone."""
    now: bytes | None = data
    for file in files:
        result = apply(now, file, trusted=trusted)
        assert not isinstance(result, Misfit), (data, file, result.reason)
        now = result.data
    return now


ENDS = (b"", b"\n", b"a", b"a\n", b"a\nb", b"a\nb\n")


@pytest.mark.parametrize("old", ENDS)
def test_every_end_becomes_every_other_end(old: bytes, tmp_path: Path) -> None:
    for number, new in enumerate(ENDS):
        if new != old:
            patch = without_ids(difftools.with_git(tmp_path, old, new, 3))
            there_and_back(tmp_path / str(number), {"x.py": old}, patch, {"x.py": new})


@pytest.mark.parametrize("context", [0, 3])
def test_files_of_up_to_two_lines_become_each_other(context: int, tmp_path: Path) -> None:
    lines = [side for count in range(3) for side in itertools.product((b"a", b"b"), repeat=count)]
    ends = [b"\n".join(side) + end for side in lines for end in ((b"\n", b"") if side else (b"",))]
    assert len(ends) == 13
    for old, new in itertools.permutations(ends, 2):
        files = parse(difftools.with_git(tmp_path, old, new, context), name="x").files
        turned = [file.reversed() for file in reversed(files)]
        # Without context the line of the header must count.
        assert put(old, files, trusted=not context) == new
        assert put(new, turned, trusted=not context) == old


NINE = [b"n%d = %d\n" % (number, number) for number in range(1, 10)]
WAYS: Mapping[str, Callable[[bytes], list[bytes]]] = {
    "kept": lambda line: [line],
    "changed": lambda _line: [b"new = 0\n"],
    "taken out": lambda _line: [],
    "put before": lambda line: [b"new = 0\n", line],
    "put behind": lambda line: [line, b"new = 0\n"],
}


def edited(*ways: str) -> bytes:
    return b"".join(part for line, way in zip(NINE, ways, strict=True) for part in WAYS[way](line))


@pytest.mark.parametrize("context", [1, 2, 3, 8])
def test_hunks_at_both_edges_of_a_file(context: int, tmp_path: Path) -> None:
    middle = ["kept"] * 7
    for first, last in itertools.product(WAYS, repeat=2):
        old, new = b"".join(NINE), edited(first, *middle, last)
        if old == new:
            continue
        # The last line with and without its end.
        for cut in (None, -1):
            before, after = old[:cut], new[:cut]
            patch = without_ids(difftools.with_git(tmp_path, before, after, context))
            files = parse(patch, name="x").files
            assert put(before, files) == after
            assert put(after, [file.reversed() for file in files]) == before


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("last", WAYS)
def test_edges_of_a_file_by_whole_verbs(first: str, last: str, tmp_path: Path) -> None:
    old, new = b"".join(NINE), edited(first, *["kept"] * 7, last)
    if old != new:
        patch = without_ids(difftools.with_git(tmp_path, old, new, 2))
        there_and_back(tmp_path / "root", {"x.py": old}, patch, {"x.py": new})


def touching(ways: Sequence[str]) -> bytes:
    """Write hunks of three old lines each that touch; no tool does that, but editors of diffs."""
    body, grown = b"", 0
    for number, way in enumerate(ways):
        before, line, after = NINE[3 * number : 3 * number + 3]
        new = WAYS[way](line)
        body += b"@@ -%d,3 +%d,%d @@\n" % (3 * number + 1, 3 * number + 1 + grown, 2 + len(new))
        body += b" " + before + b"-" + line + b"".join(b"+" + each for each in new) + b" " + after
        grown += len(new) - 1
    return difftools.NAMES + body


@pytest.mark.parametrize("way", [way for way in WAYS if way != "kept"])
def test_hunks_that_touch(way: str, tmp_path: Path) -> None:
    ways = [each for each in WAYS if each != "kept"]
    for others in itertools.product(ways, repeat=2):
        three = (way, *others)
        new = edited(*[each for one in three for each in ("kept", one, "kept")])
        old = b"".join(NINE)
        files = parse(touching(three), name="x").files
        assert put(old, files) == new
        assert put(new, [file.reversed() for file in files]) == old
    three = (way, way, way)
    new = edited(*[each for one in three for each in ("kept", one, "kept")])
    there_and_back(tmp_path, {"x.py": b"".join(NINE)}, touching(three), {"x.py": new})


# --- every form of a name --------------------------------------------------------------------


AT = "v1/metrics/stats.py"
TIME = "\t2025-10-01 12:00:00.000000000 +0200"
GIT = "diff --git {0} {1}\n"
HUNK = "@@ -4,3 +4,3 @@\n n4 = 4\n-n5 = 5\n+n5 = 50\n n6 = 6\n"


def form(old: str, new: str, *, git: bool = False, stamp: str = "") -> bytes:
    header = GIT.format(old, new) if git else ""
    return f"{header}--- {old}{stamp}\n+++ {new}{stamp}\n{HUNK}".encode()


def both(name: str, **how: object) -> bytes:
    return form(f"a/{name}", f"b/{name}", **how)  # type: ignore[arg-type]


FORMS = {
    **{
        f"strip {depth}": form(f"{folders}vllm/{AT}", f"{folders}vllm/{AT}")
        for depth in range(9)
        for folders in ["".join(f"d{number}/" for number in range(depth))]
    },
    "a/ and b/": both(f"vllm/{AT}"),
    "a/ and b/ of git": both(f"vllm/{AT}", git=True),
    **{
        f"{pair[0]}/ and {pair[1]}/ of git": form(
            f"{pair[0]}/vllm/{AT}", f"{pair[1]}/vllm/{AT}", git=True
        )
        for pair in ("iw", "ci", "co", "cw", "ow", "12")
    },
    "i/ and w/ without git's header": form(f"i/vllm/{AT}", f"w/vllm/{AT}"),
    "no prefix of git": form(f"vllm/{AT}", f"vllm/{AT}", git=True),
    "old/ and new/": form(f"old/vllm/{AT}", f"new/vllm/{AT}"),
    "two releases unpacked": form(f"vllm-0.11.0.orig/vllm/{AT}", f"vllm-0.11.0/vllm/{AT}"),
    "a copy beside the file": form(f"vllm/{AT}.orig", f"vllm/{AT}"),
    "the copy second": form(f"vllm/{AT}", f"vllm/{AT}.fixed"),
    "inside vllm": form(AT, AT),
    "inside vllm, a/ and b/": both(AT),
    "inside vllm, i/ and w/ of git": form(f"i/{AT}", f"w/{AT}", git=True),
    "inside vllm, ./": form(f"./{AT}", f"./{AT}"),
    "inside vllm, with a time": form(AT, AT, stamp=TIME),
    "./": form(f"./vllm/{AT}", f"./vllm/{AT}"),
    "./ in the middle": both(f"./vllm/./{AT}"),
    "two slashes": both(f"/vllm//{AT}"),
    "absolute, of Debian": form(*[f"/usr/lib/python3/dist-packages/vllm/{AT}"] * 2),
    "absolute, of an environment": form(
        *[f"/opt/.venv/lib/python3.12/site-packages/vllm/{AT}"] * 2
    ),
    "absolute, with a time": form(
        *[f"/usr/local/lib/python3.12/dist-packages/vllm/{AT}"] * 2, stamp=TIME
    ),
    "absolute, old against new": form(
        f"/srv/vllm/{AT}", f"/usr/lib/python3/dist-packages/vllm/{AT}"
    ),
    "below site-packages": both(f"lib/python3.12/site-packages/vllm/{AT}"),
    "a checkout called vllm": form(f"vllm/vllm/{AT}", f"vllm/vllm/{AT}"),
    "a checkout called vllm, a/ and b/": both(f"vllm/vllm/{AT}"),
    "above the folder": form(f"../vllm/{AT}", f"../vllm/{AT}"),
    "a time behind a tab": both(f"vllm/{AT}", stamp=TIME),
    "a time behind a blank": both(f"vllm/{AT}", stamp=TIME.replace("\t", " ")),
    "quoted": form(f'"a/vllm/{AT}"', f'"b/vllm/{AT}"'),
    "quoted, with an escape": form(f'"a/vllm/\\166{AT[1:]}"', f'"b/vllm/\\166{AT[1:]}"', git=True),
    "quoted, with a time": form(f'"a/vllm/{AT}"', f'"b/vllm/{AT}"', stamp=TIME),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_of_a_name(name: str, tmp_path: Path) -> None:
    old = b"".join(NINE)
    new = old.replace(b"n5 = 5\n", b"n5 = 50\n")
    there_and_back(tmp_path, {AT: old}, FORMS[name], {AT: new})


def test_a_folder_in_the_package_that_is_called_like_it(tmp_path: Path) -> None:
    old, at = b"".join(NINE), f"vllm/{AT}"
    new = old.replace(b"n5 = 5\n", b"n5 = 50\n")
    files = {at: old, "v1/other.py": old}
    there_and_back(tmp_path, files, both(f"vllm/{at}"), {**files, at: new})


UNIFIED = "FIX is not a unified diff that can be applied whole"
UNSAFE = "FIX has names that lead out of the package"
UNNAMED_HUNK = (
    "FIX:3: found the hunk '@@ -4,3 +4,3 @@', expected the '---' and '+++' lines of its file first"
)
UNKNOWN_ESCAPE = (
    f"FIX:1: found the name '\"a/vllm/\\x41{AT}\"' has an escape that is not known,"
    " expected the header of a file"
)
NOT_THERE = "is not in the package, and no name in the diff has a folder vllm"
REFUSED_FORMS = {
    "i/ and w/ inside vllm without git's header": (
        form(f"i/{AT}", f"w/{AT}"),
        ["FIX can't be applied to the package", f"FIX:1: w/{AT} {NOT_THERE}"],
    ),
    "inside vllm, below other folders": (
        form(f"x/y/{AT}", f"x/y/{AT}"),
        ["FIX can't be applied to the package", f"FIX:1: x/y/{AT} {NOT_THERE}"],
    ),
    "only the file's name": (
        form("stats.py", "stats.py"),
        ["FIX can't be applied to the package", f"FIX:1: stats.py {NOT_THERE}"],
    ),
    "absolute, without the package": (
        form(f"/usr/lib/python3/dist-packages/{AT}", f"/usr/lib/python3/dist-packages/{AT}"),
        [
            UNSAFE,
            f"FIX:1: usr/lib/python3/dist-packages/{AT} is absolute and has no folder vllm",
        ],
    ),
    "climbs out of the package": (
        both(f"vllm/../../{AT}"),
        [UNSAFE, f"FIX:1: vllm/../../{AT} climbs out by '..'"],
    ),
    "climbs, and no folder vllm": (
        form(f"../{AT}", f"../{AT}"),
        [UNSAFE, f"FIX:1: ../{AT} climbs out by '..'"],
    ),
    "beside the package": (
        both(f"vllm/{AT}") + both("setup.py"),
        ["FIX has files outside the package", "FIX:8: setup.py is outside the package"],
    ),
    "only tests": (
        both("tests/vllm/test_stats.py"),
        ["FIX touches no file of the package", "tests/vllm/test_stats.py"],
    ),
    "a folder": (
        both("vllm/v1/"),
        [
            UNIFIED,
            "FIX:1: found the name 'a/vllm/v1/' of a folder, expected the header of a file",
            UNNAMED_HUNK,
        ],
    ),
    "no name at all": (
        form("/dev/null", "/dev/null"),
        [
            UNIFIED,
            "FIX:1: found no name that can be told, expected one on one side at least",
            "FIX:3: found other lines, expected only '+' lines in a new file",
        ],
    ),
    "an escape that is not known": (
        form(f'"a/vllm/\\x41{AT}"', f'"b/vllm/\\x41{AT}"'),
        [
            UNIFIED,
            UNKNOWN_ESCAPE,
            UNNAMED_HUNK,
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED_FORMS)
def test_form_of_a_name_that_is_refused(name: str, tmp_path: Path) -> None:
    patch, expected = REFUSED_FORMS[name]
    scene = Scene(root=tmp_path)
    make_install(scene.site, files={AT: b"".join(NINE)})
    fix = scene.diff_file("fix.patch", patch)
    start = scene.everything()
    ran = scene.run("apply", "--no-builtin", fix)
    assert ran.code == 3
    what, *facts = ran.err.replace(str(fix), "FIX").splitlines()
    facts = [fact.strip() for fact in facts if not fact.startswith("hint: ")]
    assert [what.removeprefix("error: "), *facts] == expected
    assert scene.everything() == start


@pytest.mark.parametrize(
    "name",
    ["café.py", "a b.py", "a\tb.py", 'a"b.py', "a\\b.py", "a,b.py", "a\x07\x7fb.py", "-- a.py"],
)
@pytest.mark.parametrize("there", [True, False])
def test_names_as_git_writes_them(name: str, there: bool, tmp_path: Path) -> None:
    difftools.need("git")
    old = b"".join(NINE) if there else None
    new = b"".join(NINE).replace(b"n5 = 5\n", b"n5 = 50\n")
    work = tmp_path / "work"
    (work / "vllm").mkdir(parents=True)
    difftools.start(work, "git", "init", "-q")
    if old is not None:
        (work / "vllm" / name).write_bytes(old)
    difftools.start(work, "git", "add", "--all")
    (work / "vllm" / name).write_bytes(new)
    difftools.start(work, "git", "add", "--all", "--intent-to-add")
    patch = difftools.start(work, "git", "diff", "--text").stdout
    assert b"n5 = 50" in patch
    files = {} if old is None else {name: old}
    there_and_back(tmp_path / "root", files, patch, {name: new})
