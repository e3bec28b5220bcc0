"""Every row of the table in docs/diffs.md is run, and says what was seen.

Ours, GNU patch and git each get the same diff and the same files. What comes of it is put in the
words of the table, and those words must be the row's.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import difftools
from fakes import make_install
from scenes import Scene
from test_differential import MEANT

if TYPE_CHECKING:
    from collections.abc import Mapping

    Files = dict[str, bytes]

PAGE = Path(__file__).parent.parent / "docs" / "diffs.md"
NO_NEWLINE = b"\\ No newline at end of file\n"
NAMES = difftools.NAMES


def numbered(last: int, **lines: bytes) -> bytes:
    """Lines `n1 = 1` and so on; some with another right side."""
    return b"".join(
        b"n%d = %s\n" % (number, lines.get(f"n{number}", b"%d" % number))
        for number in range(1, last + 1)
    )


N, L = numbered(9), numbered(20)
N5 = numbered(9, n5=b"50")
HUNK = b"@@ -2,7 +2,7 @@\n n2 = 2\n n3 = 3\n n4 = 4\n-n5 = 5\n+n5 = 50\n n6 = 6\n n7 = 7\n n8 = 8\n"
FIX = NAMES + HUNK
SHORT = b"@@ -4,3 +4,3 @@\n n4 = 4\n-n5 = 5\n+n5 = 50\n n6 = 6\n"
PUT_IN = b"@@ -5,0 +6 @@\n+new = 0\n"
CALL = b" try:\n-    run()\n+    go()\n finally:\n"
CALLS = (
    b"a = 1\ntry:\n    run()\nfinally:\n    stop()\n"
    b"b = 2\nb = 2\nb = 2\ntry:\n    run()\nfinally:\n    stop()\n"
)
FUNCTIONS = (
    b"def f():\n    try:\n        run()\n    finally:\n        stop()\n\n\n"
    b"def g():\n    try:\n        run()\n    finally:\n        stop()\n"
)
IN_G = b"@@ -%d,3 +%d,3 @@ def g():\n     try:\n-        run()\n+        go()\n     finally:\n"
MARKED = b"<<<<<<< ours\nn5 = 50\n=======\nn5 = 51\n>>>>>>> theirs\n"
NO_END = NAMES + b"@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n+b = 20\n c = 3\n" + NO_NEWLINE
BLANKS = b"a = 1\nb = 2\n\n\n\nc = 3\n"
HEADER = b"diff --git a/vllm/x.py b/vllm/x.py\n"
CREATE = HEADER + (
    b"new file mode 100644\n--- /dev/null\n+++ b/vllm/x.py\n@@ -0,0 +1,2 @@\n+a = 1\n+b = 2\n"
)
DELETE = b"--- a/vllm/x.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a = 1\n-b = 2\n"
LINK = (
    b"diff --git a/vllm/l b/vllm/l\nnew file mode 120000\n--- /dev/null\n+++ b/vllm/l\n"
    b"@@ -0,0 +1 @@\n+x.py\n" + NO_NEWLINE
)
COPY = (
    b"diff --git a/vllm/x.py b/vllm/y.py\nsimilarity index 100%\n"
    b"copy from vllm/x.py\ncopy to vllm/y.py\n"
)
MODE = HEADER + b"old mode 100644\nnew mode 100755\n" + FIX


def last_of(data: bytes, old: bytes, new: bytes) -> bytes:
    """Replace the last of equal parts."""
    before, found, after = data.rpartition(old)
    assert found
    return before + new + after


def blob(data: bytes) -> bytes:
    """The id that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest().encode()  # noqa: S324


def x(data: bytes) -> Files:
    return {"x.py": data}


class Row(NamedTuple):
    """What is given to all three, and the words for what may come of it besides "refuses".

    In the files an executable one has a `*` behind its name, and a link an `@`.
    """

    files: Files
    patch: bytes
    words: Mapping[str, Files]
    times: int = 1
    batch: bool = False
    """For GNU patch: `--batch` instead of `--force`."""
    checkout: bool = False
    """The folder that holds the package is in a repository of git."""


SECOND_TIME = Row(x(N), FIX, {"takes it out again": x(N)}, times=2)
ENDLESS = b"a = 1\nb = 2\nc = 3"

ELSEWHERE = (
    "the only place is in another function than `@@` names, and that one has most of its lines"
)

ROWS = {
    "a context line differs": Row(
        x(numbered(9, n2=b"0")), FIX, {"applies": x(numbered(9, n2=b"0", n5=b"50"))}
    ),
    "a hunk has moved": Row(
        x(b"new = 0\n" + N),
        FIX,
        {
            "applies": x(b"new = 0\n" + N5),
            "applies, leaves an `.orig`": {**x(b"new = 0\n" + N5), "x.py.orig": b"new = 0\n" + N},
        },
    ),
    "several equal places, none at the hunk's line": Row(
        x(CALLS),
        NAMES + b"@@ -6,3 +6,3 @@\n" + CALL,
        {"takes the nearest": x(last_of(CALLS, b"run()", b"go()"))},
    ),
    "several equal places, one in the function that `@@` names": Row(
        x(FUNCTIONS),
        NAMES + IN_G % (4, 4),
        {
            "takes that one": x(last_of(FUNCTIONS, b"run()", b"go()")),
            "takes the nearest": x(FUNCTIONS.replace(b"run()", b"go()", 1)),
        },
    ),
    ELSEWHERE: Row(
        x(last_of(FUNCTIONS, b"run()", b"halt()")),
        NAMES + IN_G % (9, 9),
        {"applies": x(last_of(FUNCTIONS, b"run()", b"halt()").replace(b"run()", b"go()"))},
    ),
    "no context below, and the file goes on": Row(
        x(N), NAMES + b"@@ -4,2 +4,2 @@\n n4 = 4\n-n5 = 5\n+n5 = 50\n", {"applies": x(N5)}
    ),
    "less context below than above, and the file goes on": Row(
        x(N),
        NAMES + b"@@ -3,4 +3,4 @@\n n3 = 3\n n4 = 4\n-n5 = 5\n+n5 = 50\n n6 = 6\n",
        {"applies": x(N5)},
    ),
    "the same, and an equal place at the end of the file": Row(
        x(numbered(9) * 2),
        NAMES + b"@@ -6,4 +6,4 @@\n n6 = 6\n n7 = 7\n-n8 = 8\n+n8 = 80\n n9 = 9\n",
        {
            "takes the one at its line": x(numbered(9, n8=b"80") + numbered(9)),
            "takes the one at the end": x(numbered(9) + numbered(9, n8=b"80")),
        },
    ),
    "lines put in with no context (`-U0`)": Row(
        x(N),
        NAMES + PUT_IN,
        {
            "applies": x(N.replace(b"n6", b"new = 0\nn6")),
            "puts them at the end of the file": x(N + b"new = 0\n"),
        },
    ),
    "the same, and the `index` line names this very file": Row(
        x(N),
        HEADER + b"index %s..%s 100644\n" % (blob(N), b"1" * 40) + NAMES + PUT_IN,
        {
            "applies": x(N.replace(b"n6", b"new = 0\nn6")),
            "puts them at the end of the file": x(N + b"new = 0\n"),
        },
    ),
    "a line changed with no context": Row(
        x(N), NAMES + b"@@ -5 +5 @@\n-n5 = 5\n+n5 = 50\n", {"applies": x(N5)}
    ),
    'the diff says "no newline at the end", the file has one': Row(
        x(ENDLESS + b"\n"),
        NO_END,
        {
            "applies": x(b"a = 1\nb = 20\nc = 3\n"),
            "takes the newline away": x(b"a = 1\nb = 20\nc = 3"),
        },
    ),
    "the diff takes the newline off the last line, and the file goes on": Row(
        x(b"a = 1\nb = 2"),
        NAMES + b"@@ -1 +1 @@\n-a = 1\n+a = 10\n" + NO_NEWLINE,
        {"applies": x(b"a = 10\nb = 2")},
    ),
    "the file has no newline at the end, and the diff does not say so": Row(
        x(ENDLESS), NO_END.replace(NO_NEWLINE, b""), {"applies": x(b"a = 1\nb = 20\nc = 3")}
    ),
    '"no newline" is a lone `\\`': Row(
        x(ENDLESS), NO_END.replace(NO_NEWLINE, b"\\\n"), {"applies": x(b"a = 1\nb = 20\nc = 3")}
    ),
    "the diff was pasted without its last newline": Row(x(N), FIX[:-1], {"applies": x(N5)}),
    "blank context lines were trimmed at the end of the diff": Row(
        x(BLANKS),
        NAMES + b"@@ -1,5 +1,5 @@\n a = 1\n-b = 2\n+b = 20\n",
        {"applies": x(BLANKS.replace(b"b = 2", b"b = 20"))},
    ),
    "the diff is indented": Row(x(N), re.sub(rb"(?m)^", b"    ", FIX)[:-4], {"applies": x(N5)}),
    "a line more than the hunk's header counts": Row(
        x(N), FIX + b"+new = 0\n", {"drops the line": x(N5)}
    ),
    "hunks that overlap": Row(
        x(L),
        NAMES + SHORT + b"@@ -6,3 +6,3 @@\n n6 = 6\n-n7 = 7\n+n7 = 70\n n8 = 8\n",
        {"applies": x(numbered(20, n5=b"50", n7=b"70"))},
    ),
    "hunks out of order": Row(
        x(L),
        NAMES + b"@@ -14,3 +14,3 @@\n n14 = 14\n-n15 = 15\n+n15 = 150\n n16 = 16\n" + SHORT,
        {
            "applies": x(numbered(20, n5=b"50", n15=b"150")),
            "fails, one hunk is in": x(numbered(20, n15=b"150")),
        },
    ),
    "conflict markers among the added lines": Row(
        x(N),
        NAMES
        + HUNK.replace(b",7 @@", b",11 @@").replace(
            b"+n5 = 50\n", re.sub(rb"(?m)^(?=.)", b"+", MARKED)
        ),
        {"applies": x(N.replace(b"n5 = 5\n", MARKED))},
    ),
    "the diff has CRLF, the file has LF": Row(
        x(N), FIX.replace(b"\n", b"\r\n"), {"applies": x(N5)}
    ),
    "a file to be created is there, with that content": Row(x(b"a = 1\nb = 2\n"), CREATE, {}),
    "a file to be created is there, and empty": Row(
        x(b""), CREATE, {"applies": x(b"a = 1\nb = 2\n")}
    ),
    "a file to be deleted holds more": Row(
        x(b"a = 1\nb = 2\nc = 3\n"), DELETE, {"fails, the rest is left": x(b"c = 3\n")}
    ),
    "a copy": Row(x(N), COPY, {"applies": {**x(N), "y.py": N}}),
    "a symbolic link": Row(x(N), LINK, {"applies": {**x(N), "l@": b"x.py"}}),
    "a change of mode": Row(x(N), MODE, {"leaves the mode": x(N5), "applies": {"x.py*": N5}}),
    "Python that would not compile any more": Row(
        x(N), FIX.replace(b"+n5 = 50", b"+n5 = ("), {"applies": x(numbered(9, n5=b"("))}
    ),
    "the second of two files fails": Row(
        {**x(N), "y.py": L[30:]},
        FIX + FIX.replace(b"x.py", b"y.py"),
        {"fails, the first is changed": {**x(N5), "y.py": L[30:]}},
    ),
    "a second time": SECOND_TIME,
    "a second time, with `patch --batch`": SECOND_TIME._replace(batch=True),
    "names inside `vllm/`": Row(x(N), FIX.replace(b"/vllm/", b"/"), {"applies": x(N5)}),
    "absolute names": Row(
        x(N),
        re.sub(rb"[ab]/vllm/", b"/usr/lib/python3/dist-packages/vllm/", FIX),
        {"applies": x(N5)},
    ),
    "made by git, put on an environment in a checkout": Row(
        x(N), HEADER + FIX, {"applies": x(N5)}, checkout=True
    ),
}

#: The rows that tell of each way in which the random comparison lets the tools differ.
SHOWN = {
    "only ours takes it": [
        '"no newline" is a lone `\\`',
        "the diff was pasted without its last newline",
        "blank context lines were trimmed at the end of the diff",
        "less context below than above, and the file goes on",
    ],
    "no old line": [
        "lines put in with no context (`-U0`)",
        "the same, and the `index` line names this very file",
    ],
    "no newline": [
        'the diff says "no newline at the end", the file has one',
        "the diff takes the newline off the last line, and the file goes on",
        "the file has no newline at the end, and the diff does not say so",
    ],
    "by heading": ["several equal places, one in the function that `@@` names"],
    "context cut short": ["no context below, and the file goes on"],
    "less context below": ["the same, and an equal place at the end of the file"],
    "only out of order": ["hunks out of order"],
    "ours refuses: ambiguous": ["several equal places, none at the hunk's line"],
    "ours refuses: elsewhere": [ELSEWHERE],
}

OURS, PATCH, GIT = "vllm-patch", "GNU patch", "git apply"


def table() -> dict[str, dict[str, str]]:
    """Read the table of the page: case → tool → word."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    assert head == ["case", OURS, PATCH, GIT]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_the_rows_that_are_run() -> None:
    assert list(table()) == list(ROWS)
    assert all(len(set(words.values())) > 1 for words in table().values())


def test_every_difference_that_is_meant_is_in_the_table() -> None:
    assert SHOWN.keys() == MEANT - {"same"}
    assert {row for rows in SHOWN.values() for row in rows} <= ROWS.keys()


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.parametrize("name", ROWS)
def test_row_of_ours(name: str, tmp_path: Path) -> None:
    row, scene = ROWS[name], Scene(root=tmp_path)
    if row.checkout:
        difftools.start(tmp_path, "git", "init", "-q")
    make_install(scene.site, files=row.files)
    fix = scene.diff_file("fix.patch", row.patch)
    for _ in range(row.times):
        start = seen(scene.package)
        ran = scene.run("apply", "--no-builtin", fix)
    word = told(row, start, seen(scene.package), failed=ran.code != 0)
    assert (word or "has nothing to do") == table()[name][OURS], ran


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("tool", [PATCH, GIT])
def test_row_of_another_tool(name: str, tool: str, tmp_path: Path) -> None:
    row, package = ROWS[name], tmp_path / "site" / "vllm"
    command = ["git", "-C", "site", "apply", "../fix.patch"]
    if tool == PATCH:
        how = "--batch" if row.batch else "--force"
        command = ["patch", "-d", "site", "-p1", how, "-i", "../fix.patch"]
        if b"GNU patch" not in difftools.start(tmp_path, "patch", "--version").stdout:
            pytest.skip("the patch on PATH is not GNU patch")
    package.mkdir(parents=True)
    for path, data in row.files.items():
        (package / path).write_bytes(data)
    (tmp_path / "fix.patch").write_bytes(row.patch)
    if row.checkout:
        difftools.start(tmp_path, "git", "init", "-q")
    for _ in range(row.times):
        start = seen(package)
        done = difftools.start(tmp_path, *command)
    word = told(row, start, seen(package), failed=done.returncode != 0)
    if word == "applies" and b" with fuzz " in done.stdout:
        word = "applies, with fuzz"
    assert (word or "changes nothing, exits with 0") == table()[name][tool], done


@pytest.mark.parametrize(
    "name", [name for name, words in table().items() if words[PATCH] == "applies, with fuzz"]
)
def test_without_fuzz_gnu_patch_refuses(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    assert difftools.put_on_by_patch(tmp_path, row.files["x.py"], row.patch) is None


def seen(package: Path) -> Files:
    """All files of the package but the one that every install has."""
    found = {}
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package).as_posix()
        if path.is_symlink():
            found[f"{name}@"] = str(path.readlink()).encode()
        elif path.is_file() and name != "__init__.py":
            found[name + "*" * bool(path.stat().st_mode & 0o100)] = path.read_bytes()
    return found


def told(row: Row, start: Files, now: Files, *, failed: bool) -> str:
    """Put what came of it in a word of the row; "" if nothing did and that was no failure."""
    for files in (now, {name: data for name, data in now.items() if not is_left_over(name)}):
        for word, wanted in row.words.items():
            if files == wanted != start and failed == word.startswith("fails"):
                return word
    same = {name: data for name, data in now.items() if not is_left_over(name)} == {
        name: data for name, data in start.items() if not is_left_over(name)
    }
    assert same, now
    return "refuses" if failed else ""


def is_left_over(name: str) -> bool:
    """Tell whether it is a file that GNU patch leaves beside the one it was about."""
    return name.endswith((".orig", ".rej"))
