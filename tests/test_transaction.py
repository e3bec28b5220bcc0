"""A commit is all or nothing, in an order that survives a crash."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vllm_patcher
from conftest import torture
from fakes import dist_info_folder, make_install
from faulty import Os, snapshot
from vllm_patcher.errors import Conflict, NotPutBack, UnsafePath, WriteFailed
from vllm_patcher.plan import Edit
from vllm_patcher.transaction import Change, commit
from vllm_patcher.tree.writing import Staged, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = {
    "a.py": b"a = 1\n",
    "b.py": b"b = 1\n",
    "gone/gone.py": b"g = 1\n",
}
IN = [
    Edit(path="a.py", before=b"a = 1\n", after=b"a = 2\n"),
    Edit(path="b.py", before=b"b = 1\n", after=b"b = 2\n"),
    Edit(path="gone/gone.py", before=b"g = 1\n", after=None),
    Edit(path="new/deep/made.py", before=None, after=b"m = 1\n"),
]
OUT = [Edit(path=edit.path, before=edit.after, after=edit.before) for edit in IN]
NAME = "vllm-patcher.json"
LINE = f"vllm-0.11.0.dist-info/{NAME}"
MADE = "vllm/new/deep/made.py"

APPLY = Change(
    edits=IN,
    lines=[MADE],
    receipt_name=NAME,
    receipt_line=LINE,
    meanwhile=b"in\n",
    receipt=b"in\n",
)
REVERT = Change(
    edits=OUT,
    no_lines=[MADE],
    receipt_name=NAME,
    receipt_line=LINE,
    meanwhile=b"out\n",
    receipt=None,
)


class Place:
    """A fake install and its two trees."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.package = make_install(site, files=FILES)
        self.info = dist_info_folder(site)

    def commit(self, change: Change, kind: type[Tree] = Tree) -> None:
        commit(kind(str(self.package)), kind(str(self.info)), change)

    @property
    def record(self) -> list[str]:
        return (self.info / "RECORD").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "site")


def test_a_change_is_carried_out_and_taken_back_to_the_byte(place: Place) -> None:
    before = snapshot(place.site)
    place.commit(APPLY)
    assert (place.package / "a.py").read_bytes() == b"a = 2\n"
    assert (place.package / "new/deep/made.py").read_bytes() == b"m = 1\n"
    assert not (place.package / "gone").exists()
    assert place.record[-2:] == [f"{LINE},,", f"{MADE},,"]
    assert (place.info / NAME).read_bytes() == b"in\n"
    place.commit(REVERT)
    assert snapshot(place.site) == before


def recording(log: list[str]) -> type[Tree]:
    """Make trees that write down what becomes visible."""

    class Recording(Tree):
        def publish(self, staged: Staged) -> None:
            super().publish(staged)
            log.append(f"write {staged.path}")

        def remove(self, path: str) -> None:
            super().remove(path)
            log.append(f"remove {path}")

    return Recording


def test_apply_lists_then_notes_then_writes_then_drops_bytecode(place: Place) -> None:
    log: list[str] = []
    cache = place.package / "__pycache__"
    cache.mkdir()
    (cache / "a.cpython-39.pyc").write_bytes(b"")
    (cache / "c.cpython-39.pyc").write_bytes(b"")
    change = APPLY.replaced(bytecode=["__pycache__/c.cpython-39.pyc"])
    place.commit(change, recording(log))
    assert log == [
        "write RECORD",  # the receipt's line
        f"write {NAME}",
        "write RECORD",  # lines of files
        "write a.py",
        "write b.py",
        "write new/deep/made.py",
        "remove gone/gone.py",
        "remove __pycache__/c.cpython-39.pyc",
        "remove __pycache__/a.cpython-39.pyc",
    ]
    assert not cache.exists()


def test_a_folder_is_seen_onto_the_disk_once_before_anything_is_removed(place: Place) -> None:
    """What is removed may be the old name of a file that is there under a new one."""
    log: list[str] = []

    class Settling(recording(log)):  # type: ignore[misc]
        def settle(self, path: str) -> None:
            super().settle(path)
            log.append(f"settle {os.path.dirname(path) or '.'}")

    place.commit(APPLY, Settling)
    assert log == [
        *("write RECORD", "settle ."),
        *(f"write {NAME}", "settle ."),
        *("write RECORD", "settle ."),
        *("write a.py", "write b.py", "write new/deep/made.py", "settle .", "settle new/deep"),
        "remove gone/gone.py",
    ]


@pytest.mark.parametrize("change", [APPLY, REVERT], ids=["apply", "revert"])
def test_every_file_is_asked_for_before_the_first_is_written(place: Place, change: Change) -> None:
    if change is REVERT:
        place.commit(APPLY)
    log: list[str] = []

    class Asking(recording(log)):  # type: ignore[misc]
        def preflight(self, path: str, *, like: str | None) -> None:
            super().preflight(path, like=like)
            log.append(f"ask {path}")

    place.commit(change.replaced(bytecode=["__pycache__/c.cpython-39.pyc"]), Asking)
    writes = [number for number, line in enumerate(log) if not line.startswith("ask ")]
    asked = {line.removeprefix("ask ") for line in log[: writes[0]]}
    written = {line.partition(" ")[2] for line in log[writes[0] :]}
    assert asked == written
    assert asked >= {"RECORD", NAME, *(edit.path for edit in change.edits)}


def test_revert_notes_then_writes_and_unlists_last(place: Place) -> None:
    place.commit(APPLY)
    log: list[str] = []
    place.commit(REVERT, recording(log))
    assert log == [
        f"write {NAME}",
        "write a.py",
        "write b.py",
        "write gone/gone.py",
        "remove new/deep/made.py",
        "write RECORD",  # lines of files
        f"remove {NAME}",
        "write RECORD",  # the receipt's line
    ]


def test_a_receipt_that_is_there_only_meanwhile_is_listed_meanwhile(place: Place) -> None:
    before = snapshot(place.site)
    log: list[str] = []
    change = Change(
        edits=IN[:1], receipt_name=NAME, receipt_line=LINE, meanwhile=b"out\n", receipt=None
    )
    place.commit(change, recording(log))
    assert log == [
        "write RECORD",
        f"write {NAME}",
        "write a.py",
        f"remove {NAME}",
        "write RECORD",
    ]
    assert snapshot(place.info) == {
        name.partition("/")[2]: value
        for name, value in before.items()
        if name.startswith(place.info.name + "/")
    }


def test_without_dist_info_only_the_package_is_written(tmp_path: Path) -> None:
    package = make_install(tmp_path, files=FILES, dist_info=False)
    commit(Tree(str(package)), None, Change(edits=IN))
    assert (package / "a.py").read_bytes() == b"a = 2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["vllm"]


def test_a_dist_info_without_record_gets_a_receipt_and_no_record(tmp_path: Path) -> None:
    package = make_install(tmp_path, files=FILES, record=False)
    info = dist_info_folder(tmp_path)
    commit(Tree(str(package)), Tree(str(info)), APPLY)
    assert (info / NAME).read_bytes() == b"in\n"
    assert (info / NAME).stat().st_mode & 0o777 == info.stat().st_mode & 0o666
    assert not (info / "RECORD").exists()


def test_a_file_that_has_changed_since_the_plan_stops_all(place: Place) -> None:
    (place.package / "b.py").write_bytes(b"b = 3\n")
    before = snapshot(place.site)
    with pytest.raises(Conflict) as caught:
        place.commit(APPLY)
    assert caught.value.facts == (str(place.package / "b.py"),)
    assert snapshot(place.site) == before


def test_what_a_killed_run_left_is_swept(place: Place) -> None:
    change = APPLY.replaced(sweep=["old/x.py", "half/made/x.py"])
    left = [
        place.package / ".aa.vllm-patcher-tmp",
        place.info / ".bb.vllm-patcher-tmp",
        place.package / "old" / ".cc.vllm-patcher-tmp",
    ]
    (place.package / "half").mkdir()
    (place.package / "old").mkdir()
    for path in left:
        path.write_bytes(b"x")
    place.commit(change)
    assert not any(path.exists() for path in left)
    assert not (place.package / "old").exists()
    assert not (place.package / "half").exists()


def test_every_file_that_stands_against_it_is_named_before_the_first_write(place: Place) -> None:
    (place.package / "a.py").unlink()
    (place.package / "b.py").unlink()
    for name in ("a.py", "b.py"):
        (place.package / name).symlink_to("nowhere.py")
    before = snapshot(place.site)
    edits = [Edit(path=name, before=None, after=b"x\n") for name in ("a.py", "b.py")]
    with pytest.raises(UnsafePath) as caught:
        place.commit(Change(edits=edits, receipt_name=NAME, meanwhile=b"in\n", receipt=b"in\n"))
    said = [caught.value.what, *caught.value.facts]
    assert "nothing was changed" in said[0]
    assert any("'a.py'" in line for line in said)
    assert any("'b.py'" in line for line in said)
    assert snapshot(place.site) == before


def failing(at: int, code: int) -> Callable[[int, str], None]:
    """Make an operating system of which one call fails, once."""

    def before(number: int, _name: str) -> None:
        if number == at:
            raise OSError(code, os.strerror(code))

    return before


def breaking(at: int, code: int) -> Callable[[int, str], None]:
    """Make an operating system of which every call from one on fails."""

    def before(number: int, _name: str) -> None:
        if number >= at:
            raise OSError(code, os.strerror(code))

    return before


CODES = [errno.ENOSPC, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EIO, errno.EDQUOT]


def attempt(place: Place, change: Change) -> WriteFailed | None:
    try:
        place.commit(change)
    except WriteFailed as error:
        return error
    return None


@pytest.mark.parametrize("change", [APPLY, REVERT], ids=["apply", "revert"])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_whichever_call_fails_all_is_put_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, code: int, change: Change
) -> None:
    if change is REVERT:
        place.commit(APPLY)
    before = snapshot(place.site)
    refused = 0
    for at in count():
        with monkeypatch.context() as patch:
            system = Os(failing(at, code)).use(patch)
            error = attempt(place, change)
        if error is not None:
            refused += 1
            assert error.what.endswith("; nothing was changed"), system.calls
        else:
            # What is only tidying may fail: nobody has to hear of it.
            place.commit(REVERT if change is APPLY else APPLY)
        assert snapshot(place.site) == before, system.calls
        if len(system.calls) <= at:
            break
    assert refused > 20


@pytest.mark.parametrize("change", [APPLY, REVERT], ids=["apply", "revert"])
def test_what_cannot_be_put_back_is_listed_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    told = 0
    for at in count():
        place = Place(tmp_path / str(at))
        if change is REVERT:
            place.commit(APPLY)
        before = snapshot(place.site)
        with monkeypatch.context() as patch:
            system = Os(breaking(at, errno.EIO)).use(patch)
            error = attempt(place, change)
        if len(system.calls) <= at:
            break
        after = snapshot(place.site)
        differ = {
            str(place.site / name)
            for name in after.keys() | before.keys()
            if after.get(name) != before.get(name) and name.endswith((".py", "RECORD", NAME))
        }
        # Only at the very end, when all is done but the tidying, is there nothing to tell.
        if error is not None and "could not be put back" in error.what:
            assert set(error.facts) == differ, system.calls
            assert error.hint is not None
            told += 1
        elif error is not None:
            assert not differ, system.calls
    assert told > 10


class Interrupting(Tree):
    """A tree that is interrupted right after a file became visible, and once on the way back."""

    at = "b.py"
    interrupts: Iterator[int]

    def publish(self, staged: Staged) -> None:
        super().publish(staged)
        if staged.path == self.at and next(self.interrupts) < 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", ["a.py", "b.py", "new/deep/made.py", "RECORD", NAME])
def test_an_interrupt_and_another_one_leave_nothing_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    before = snapshot(place.site)
    monkeypatch.setattr(Interrupting, "at", at)
    monkeypatch.setattr(Interrupting, "interrupts", count(), raising=False)
    with pytest.raises(KeyboardInterrupt):
        place.commit(APPLY, Interrupting)
    assert snapshot(place.site) == before


class Pressed(Tree):
    """A tree whose user presses Ctrl-C once a file is visible, and again and again on the way."""

    pressed = 0

    def publish(self, staged: Staged) -> None:
        super().publish(staged)
        self._press(staged.path)

    def discard(self, staged: Staged) -> None:
        self._press(staged.path)
        super().discard(staged)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._press(path)

    def _press(self, path: str) -> None:
        if path.endswith(".py") or Pressed.pressed:
            Pressed.pressed += 1
            signal.raise_signal(signal.SIGINT)


def test_real_interrupts_one_after_the_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pressed, "pressed", 0)
    handler = signal.getsignal(signal.SIGINT)
    before = snapshot(place.site)
    with pytest.raises(KeyboardInterrupt):
        place.commit(APPLY, Pressed)
    assert snapshot(place.site) == before
    assert Pressed.pressed > 5
    assert signal.getsignal(signal.SIGINT) is handler


def test_who_handles_interrupts_otherwise_decides(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pressed, "pressed", 0)
    came: list[int] = []
    old = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        place.commit(APPLY, Pressed)
    finally:
        signal.signal(signal.SIGINT, old)
    assert (place.package / "a.py").read_bytes() == b"a = 2\n"
    assert came == [signal.SIGINT] * Pressed.pressed


class Sticking(Pressed):
    """A tree that is interrupted, and then can't be written any more."""

    def publish(self, staged: Staged) -> None:
        if Pressed.pressed:
            raise WriteFailed("no")
        super().publish(staged)


def test_an_interrupt_does_not_hide_what_could_not_be_put_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pressed, "pressed", 0)
    with pytest.raises(NotPutBack) as caught:
        place.commit(APPLY, Sticking)
    assert str(place.package / "a.py") in caught.value.facts


def test_in_another_thread_nothing_is_held_back(place: Place) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(place.commit, APPLY).result()
    assert (place.package / "a.py").read_bytes() == b"a = 2\n"


class Broken(Tree):
    """A tree with a bug that shows at some writes, counted from 1."""

    faults: tuple[int, ...]
    writes: Iterator[int]

    def publish(self, staged: Staged) -> None:
        if staged.path.endswith(".py") and next(self.writes) in self.faults:
            raise ZeroDivisionError
        super().publish(staged)


def test_a_bug_on_the_way_is_put_back_and_stays_a_bug(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(place.site)
    monkeypatch.setattr(Broken, "writes", count(1), raising=False)
    monkeypatch.setattr(Broken, "faults", (3,), raising=False)
    with pytest.raises(ZeroDivisionError):
        place.commit(APPLY, Broken)
    assert snapshot(place.site) == before


def test_a_bug_on_the_way_back_does_not_keep_the_other_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(place.site)
    monkeypatch.setattr(Broken, "writes", count(1), raising=False)
    # Written are a, b and made; the way back writes b and a.
    monkeypatch.setattr(Broken, "faults", (3, 4), raising=False)
    with pytest.raises(WriteFailed) as caught:
        place.commit(APPLY, Broken)
    assert caught.value.what == "ZeroDivisionError; and these files could not be put back"
    assert caught.value.facts == (str(place.package / "b.py"),)
    after = snapshot(place.site)
    assert after.pop("vllm/b.py") != before.pop("vllm/b.py")
    assert after == before


def test_a_full_disk_is_noticed_before_a_file_has_changed(place: Place) -> None:
    log: list[str] = []

    class Full(recording(log)):  # type: ignore[misc]
        def stage(self, path: str, data: bytes, *, like: str) -> Staged:
            if path == "new/deep/made.py":
                raise WriteFailed("the disk is full")
            staged: Staged = super().stage(path, data, like=like)
            return staged

    with pytest.raises(WriteFailed):
        place.commit(APPLY, Full)
    assert not [line for line in log if line.endswith(".py") and line.startswith("write")]


# Many at once.

DIFF = b"""\
--- a/vllm/a.py
+++ b/vllm/a.py
@@ -1 +1 @@
-a = 1
+a = 2
--- a/vllm/b.py
+++ b/vllm/b.py
@@ -1 +1 @@
-b = 1
+b = 2
--- /dev/null
+++ b/vllm/new/made.py
@@ -0,0 +1 @@
+m = 1
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(vllm_patcher.__file__).parent.parent)}


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_of_sixteen_that_apply_at_once_one_does_the_work(place: Place, tmp_path: Path) -> None:
    diff = tmp_path / "fix.patch"
    diff.write_bytes(DIFF)
    options = ("--no-builtin", "--site-packages", place.site)
    crowd = [start("-m", "vllm_patcher", "apply", diff, *options) for _ in range(16)]
    said = [process.communicate() for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 16, said
    assert sum("restart" in out + err for out, err in said) == 1, said
    assert (place.package / "a.py").read_bytes() == b"a = 2\n"
    assert place.record.count(f"{LINE},,") == 1
    assert place.record.count("vllm/new/made.py,,") == 1
    assert not list(place.site.rglob("*-tmp"))


CROWD = """\
import sys
from vllm_patcher import operations
from vllm_patcher.request import AdHoc, Request

site, diff, verbs, rounds = sys.argv[1:]
patch = AdHoc("fix", open(diff, "rb").read())
request = Request(patches=(patch,), builtin=False, site_packages=site)
for _ in range(int(rounds)):
    for verb in verbs.split(","):
        getattr(operations, verb)(request)
"""


@pytest.mark.torture
def test_nobody_in_a_mixed_crowd_sees_a_torn_file(place: Place, tmp_path: Path) -> None:
    before = snapshot(place.site)
    diff = tmp_path / "fix.patch"
    diff.write_bytes(DIFF)
    writers = ("apply", "revert", "apply,revert", "revert,apply") * torture(1, 4)
    crowd = [
        start("-c", CROWD, place.site, diff, verbs, torture(12, 300))
        for verbs in (*writers, "verify", "verify,status")
    ]
    whole = {
        "a.py": {b"a = 1\n", b"a = 2\n"},
        "b.py": {b"b = 1\n", b"b = 2\n"},
        "new/made.py": {b"m = 1\n"},
    }
    while any(process.poll() is None for process in crowd):
        for name, versions in whole.items():
            try:
                assert (place.package / name).read_bytes() in versions
            except FileNotFoundError:
                assert name == "new/made.py"
    said = [process.communicate() for process in crowd]
    assert [process.returncode for process in crowd] == [0] * len(crowd), said
    subprocess.run(
        [sys.executable, "-c", CROWD, place.site, diff, "revert", "1"],
        env=environment(),
        check=True,
    )
    assert snapshot(place.site) == before
