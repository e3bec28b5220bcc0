"""A run that is killed between any two steps: the next one ends in the exact bytes."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import vllm_patcher
from conftest import torture
from fakes import dist_info_folder, make_install
from faulty import Killed, Os, dying, snapshot
from scenes import entry, write_catalog
from vllm_patcher import operations, receipt
from vllm_patcher.request import AdHoc, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILES = {
    "v1/__init__.py": b"",
    "v1/one.py": b"a = 1\nb = 1\nc = 1\n",
    "v1/two.py": b"a = 2\nb = 2\nc = 2\n",
    "v1/alone/old.py": b"a = 3\nb = 3\nc = 3\n",
    "v1/moves.py": b"a = 4\nb = 4\nc = 4\n",
}


def change(path: str, number: int, new: str = "99", first: str = "1") -> bytes:
    return f"""\
--- a/vllm/{path}
+++ b/vllm/{path}
@@ -1,3 +1,3 @@
 a = {first if number == 1 else number}
-b = {number}
+b = {new}
 c = {number}
""".encode()


CREATE = b"""\
--- /dev/null
+++ b/vllm/new/deep/made.py
@@ -0,0 +1,2 @@
+d = 1
+e = 1
"""
DELETE = b"""\
--- a/vllm/v1/alone/old.py
+++ /dev/null
@@ -1,3 +0,0 @@
-a = 3
-b = 3
-c = 3
"""
RENAME = b"""\
diff --git a/vllm/v1/moves.py b/vllm/v1/else/moved.py
similarity index 60%
rename from vllm/v1/moves.py
rename to vllm/v1/else/moved.py
--- a/vllm/v1/moves.py
+++ b/vllm/v1/else/moved.py
@@ -1,3 +1,3 @@
 a = 4
-b = 4
+b = 44
 c = 4
"""
MODIFY = change("v1/one.py", 1) + change("v1/two.py", 2)

DIFFS = {"modify": MODIFY, "all": MODIFY + CREATE + DELETE}


class Case(NamedTuple):
    """An install, the patch for it, and what it looks like without and with it."""

    site: Path
    patch: AdHoc
    plain: Mapping[str, object]
    patched: Mapping[str, object]
    folder: Path

    def fresh(self, *, patched: bool) -> None:
        shutil.rmtree(self.site)
        shutil.copytree(self.folder / ("patched" if patched else "plain"), self.site)

    def apply(self) -> None:
        operations.apply(request(self.site, self.patch))

    def apply_nothing(self) -> None:
        """Apply without names: what the receipt lists is all there is."""
        operations.apply(request(self.site))

    def revert(self) -> None:
        operations.revert(request(self.site))

    def revert_named(self) -> None:
        operations.revert(request(self.site, self.patch))


def request(site: Path, *patches: AdHoc) -> Request:
    return Request(patches=patches, builtin=False, site_packages=str(site))


def make_case(tmp_path: Path, diff: bytes, *, record: str = "as pip writes it") -> Case:
    site = tmp_path / "site"
    make_install(site, files=FILES, newline="\r\n" if record == "CRLF" else "\n")
    path = dist_info_folder(site) / "RECORD"
    if record == "no last newline":
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
    elif record == "read-only modes":
        for file in site.rglob("*.py"):
            file.chmod(0o444)
        path.chmod(0o400)
    plain = snapshot(site)
    shutil.copytree(site, tmp_path / "plain")
    patch = AdHoc("case", diff)
    operations.apply(request(site, patch))
    patched = snapshot(site)
    shutil.copytree(site, tmp_path / "patched")
    return Case(site, patch, plain, patched, tmp_path)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    Os().use(monkeypatch)


@pytest.fixture(params=DIFFS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return make_case(tmp_path, DIFFS[request.param])


def steps(
    case: Case, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Case], None], *, patched: bool
) -> Iterator[str]:
    """Kill a verb before each of its calls that change something; yield the call's name."""
    case.fresh(patched=patched)
    with monkeypatch.context() as patch:
        names = Os().use(patch)
        verb(case)
    assert snapshot(case.site) == (case.plain if patched else case.patched)
    assert len(names.calls) > 10
    for number, name in enumerate(names.calls):
        case.fresh(patched=patched)
        with monkeypatch.context() as patch:
            Os(dying(number)).use(patch)
            with pytest.raises(Killed):
                verb(case)
        yield f"killed before call {number}: {name}"


def has_whole_files_only(case: Case) -> bool:
    """Say whether every file of the wheel, and of the patch, is one of its two versions."""
    plain, patched = case.plain, case.patched
    return all(
        content in (plain.get(name), patched.get(name))
        for name, content in snapshot(case.site).items()
        if not name.endswith(("-tmp", "RECORD", receipt.NAME)) and "/new" not in name
    )


KILLED = [
    pytest.param(Case.apply, False, id="apply"),
    pytest.param(Case.revert, True, id="revert"),
]


@pytest.mark.parametrize(("verb", "patched"), KILLED)
@pytest.mark.parametrize("finish", [Case.revert, Case.revert_named])
def test_what_was_killed_is_reverted_to_the_byte(
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    verb: Callable[[Case], None],
    finish: Callable[[Case], None],
    *,
    patched: bool,
) -> None:
    for step in steps(case, monkeypatch, verb, patched=patched):
        assert has_whole_files_only(case), step
        finish(case)
        assert snapshot(case.site) == case.plain, step


@pytest.mark.parametrize(("verb", "patched"), KILLED)
def test_what_was_killed_is_applied_to_the_byte(
    case: Case, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Case], None], *, patched: bool
) -> None:
    for step in steps(case, monkeypatch, verb, patched=patched):
        case.apply()
        assert snapshot(case.site) == case.patched, step
        case.revert()
        assert snapshot(case.site) == case.plain, step


@pytest.mark.parametrize(("verb", "patched"), KILLED)
@pytest.mark.parametrize("record", ["no last newline", "CRLF", "read-only modes"])
def test_no_byte_of_record_is_lost_when_killed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record: str,
    verb: Callable[[Case], None],
    *,
    patched: bool,
) -> None:
    case = make_case(tmp_path, DIFFS["all"], record=record)
    for step in steps(case, monkeypatch, verb, patched=patched):
        case.revert()
        assert snapshot(case.site) == case.plain, step


@pytest.mark.parametrize(("verb", "patched"), KILLED)
def test_a_run_without_names_moves_what_was_killed_to_where_it_was_going(
    case: Case, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Case], None], *, patched: bool
) -> None:
    start, end = (case.patched, case.plain) if patched else (case.plain, case.patched)
    receipt_says_so = False
    for step in steps(case, monkeypatch, verb, patched=patched):
        case.apply_nothing()
        assert snapshot(case.site) == (end if receipt_says_so else start), step
        receipt_says_so |= ": replace" in step and step.endswith(receipt.NAME)
    assert receipt_says_so


@pytest.mark.parametrize(("verb", "patched"), KILLED)
def test_a_file_that_is_renamed_is_at_no_moment_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Case], None], *, patched: bool
) -> None:
    case = make_case(tmp_path, RENAME)
    for step in steps(case, monkeypatch, verb, patched=patched):
        old, new = case.site / "vllm/v1/moves.py", case.site / "vllm/v1/else/moved.py"
        assert old.exists() or new.exists(), step


@pytest.mark.parametrize(("verb", "patched"), KILLED)
@pytest.mark.parametrize("finish", [Case.apply, Case.revert])
def test_a_rename_that_was_killed_is_finished(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: Callable[[Case], None],
    finish: Callable[[Case], None],
    *,
    patched: bool,
) -> None:
    case = make_case(tmp_path, RENAME)
    for step in steps(case, monkeypatch, verb, patched=patched):
        finish(case)
        assert snapshot(case.site) == (case.patched if finish == Case.apply else case.plain), step


def test_bytecode_of_what_was_killed_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(tmp_path, MODIFY + CREATE)
    made = case.folder / "patched" / "vllm"
    for name in ("v1/one.py", "v1/two.py", "new/deep/made.py"):
        py_compile.compile(
            str(made / name), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    for step in steps(case, monkeypatch, Case.revert, patched=True):
        case.revert()
        assert snapshot(case.site) == case.plain, step
        assert not list(case.site.rglob("*.pyc")), step
        assert not list(case.site.rglob("__pycache__")), step


@pytest.mark.parametrize("undo", [False, True])
def test_a_revision_that_was_killed_in_the_change_to_another_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, undo: bool
) -> None:
    newer = change("v1/one.py", 1, "77") + change("v1/two.py", 2, "77")
    first = write_catalog(tmp_path / "first", entry("fix", MODIFY))
    second = write_catalog(tmp_path / "second", entry("fix", newer))
    site = tmp_path / "site"
    make_install(site, files=FILES)

    def with_catalog(folder: Path) -> Request:
        return Request(catalogs=(str(folder),), builtin=False, site_packages=str(site))

    plain = snapshot(site)
    operations.apply(with_catalog(second))
    wanted = snapshot(site)
    operations.revert(with_catalog(second))
    assert snapshot(site) == plain
    operations.apply(with_catalog(first))
    shutil.copytree(site, tmp_path / "old")

    number, killed = 0, True
    while killed:
        shutil.rmtree(site)
        shutil.copytree(tmp_path / "old", site)
        killed = False
        with monkeypatch.context() as patch:
            Os(dying(number)).use(patch)
            try:
                operations.apply(with_catalog(second))
            except Killed:
                killed = True
        if undo:
            operations.revert(with_catalog(second))
            assert snapshot(site) == plain, number
        else:
            operations.apply(with_catalog(second))
            assert snapshot(site) == wanted, number
        number += 1
    assert number > 20


@pytest.mark.parametrize(("verb", "patched"), KILLED)
def test_another_patch_goes_on_and_finishes_what_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[Case], None], *, patched: bool
) -> None:
    case = make_case(tmp_path, MODIFY + CREATE)
    other = AdHoc("other", change("v1/alone/old.py", 3))
    ends = []
    for mode in (False, True):
        case.fresh(patched=mode)
        operations.apply(request(case.site, other))
        ends.append(snapshot(case.site / "vllm"))
    for step in steps(case, monkeypatch, verb, patched=patched):
        operations.apply(request(case.site, other))
        assert snapshot(case.site / "vllm") in ends, step
        operations.revert(request(case.site))
        assert snapshot(case.site) == case.plain, step


PROGRAM = """\
import os, sys
from vllm_patcher import operations, tree
from vllm_patcher.request import AdHoc, Request
from faulty import Os

def before(number, name):
    if number == int(sys.argv[3]):
        os._exit(9)

class Patch:
    setattr = staticmethod(setattr)

Os(before).use(Patch)
diff = open(sys.argv[2], "rb").read()
operations.apply(Request(patches=(AdHoc("case", diff),), builtin=False, site_packages=sys.argv[1]))
"""


def program(*arguments: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def environment() -> dict[str, str]:
    source = Path(vllm_patcher.__file__).parent.parent
    path = os.pathsep.join([str(source), str(Path(__file__).parent)])
    return {**os.environ, "PYTHONPATH": path}


def test_a_process_that_ends_with_no_clean_up_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(tmp_path, DIFFS["all"])
    diff = tmp_path / "case.patch"
    diff.write_bytes(DIFFS["all"])
    case.fresh(patched=False)
    names = Os().use(monkeypatch)
    case.apply()
    renames = [number for number, name in enumerate(names.calls) if name.startswith("replace")]
    for number in renames:
        case.fresh(patched=False)
        done = subprocess.run(program(case.site, diff, number), env=environment(), check=False)
        assert done.returncode == 9
        case.revert()
        assert snapshot(case.site) == case.plain, names.calls[number]


@pytest.mark.slow
@pytest.mark.torture
def test_kill_at_any_time(tmp_path: Path) -> None:
    case = make_case(tmp_path, DIFFS["all"])
    diff = tmp_path / "case.patch"
    diff.write_bytes(DIFFS["all"])
    attempts = torture(60, 400)
    for attempt in range(attempts):
        case.fresh(patched=False)
        process = subprocess.Popen(program(case.site, diff, -1), env=environment())
        # From before it has found anything to after it has ended.
        time.sleep(0.05 + 0.15 * attempt / attempts)
        process.kill()
        process.wait()
        assert has_whole_files_only(case)
        finish = (case.apply, case.revert)[attempt % 2]
        finish()
        assert snapshot(case.site) == (case.plain, case.patched)[finish == case.apply]
