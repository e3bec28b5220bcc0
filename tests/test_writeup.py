"""What a plan writes: lines for files that a patch made, the receipt, and stale bytecode."""

from __future__ import annotations

import os
import py_compile
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from fakes import dist_info_folder, make_install
from faulty import snapshot
from scenes import entry, write_catalog
from vllm_patcher import operations, receipt
from vllm_patcher.plan import plan_apply, plan_revert
from vllm_patcher.receipt import Entry
from vllm_patcher.request import AdHoc, Request
from vllm_patcher.survey import Survey, survey
from vllm_patcher.writeup import change_of

if TYPE_CHECKING:
    from vllm_patcher.plan import Plan
    from vllm_patcher.transaction import Change

FILES = {"a.py": b"a = 1\n", "b.py": b"b = 1\n", "gone.py": b"g = 1\n"}


def diff(name: str, old: str, new: str) -> bytes:
    return f"""\
--- a/vllm/{name}
+++ b/vllm/{name}
@@ -1 +1 @@
-{old}
+{new}
""".encode()


CREATE = b"""\
--- /dev/null
+++ b/vllm/new/made.py
@@ -0,0 +1 @@
+m = 1
"""
DELETE = b"""\
--- a/vllm/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-g = 1
"""
FIX = AdHoc("fix", diff("a.py", "a = 1", "a = 2") + CREATE + DELETE)
OTHER = AdHoc("other", diff("b.py", "b = 1", "b = 2"))
LINE = f"vllm-0.11.0.dist-info/{receipt.NAME}"


class Place(NamedTuple):
    """A fake install, and what the verbs would write into it."""

    site: Path

    @property
    def package(self) -> Path:
        return self.site / "vllm"

    @property
    def info(self) -> Path:
        return dist_info_folder(self.site)

    def request(self, *patches: AdHoc, catalogs: tuple[Path, ...] = ()) -> Request:
        return Request(
            patches=patches,
            builtin=False,
            site_packages=str(self.site),
            catalogs=tuple(map(str, catalogs)),
        )

    def survey(self, *patches: AdHoc, catalogs: tuple[Path, ...] = ()) -> Survey:
        request = self.request(*patches, catalogs=catalogs)
        return survey(operations.locate(request), request)

    def to_apply(self, *patches: AdHoc, catalogs: tuple[Path, ...] = ()) -> Change | None:
        here = self.survey(*patches, catalogs=catalogs)
        return change_of(here, apply_plan(here))

    def to_revert(self, *patches: AdHoc) -> Change | None:
        here = self.survey(*patches)
        return change_of(here, revert_plan(here))

    def apply(self, *patches: AdHoc, catalogs: tuple[Path, ...] = ()) -> None:
        operations.apply(self.request(*patches, catalogs=catalogs))

    def revert(self, *patches: AdHoc) -> None:
        operations.revert(self.request(*patches))

    def entries(self) -> tuple[Entry, ...]:
        data = (self.info / receipt.NAME).read_bytes()
        return receipt.load(data, path="the receipt")

    def compile(self, name: str, data: bytes | None = None) -> Path:
        """Compile a file, or other bytes in its place, so that Python asks no more questions."""
        source = self.package / name
        source.parent.mkdir(exist_ok=True)
        before = source.read_bytes() if source.exists() else None
        if data is not None:
            source.write_bytes(data)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        pyc = py_compile.compile(str(source), invalidation_mode=mode, doraise=True)
        if before is None:
            source.unlink()
        else:
            source.write_bytes(before)
        assert pyc is not None
        return Path(pyc)


def apply_plan(here: Survey) -> Plan:
    names = here.named or tuple(here.asked)
    return plan_apply(here.situation, [here.asked[name] for name in names])


def revert_plan(here: Survey) -> Plan:
    return plan_revert(here.situation, here.named or None, with_dependents=False)


def texts(data: bytes | None) -> list[tuple[str, str]]:
    return [(entry.id, entry.wanted) for entry in receipt.load(data, path="the receipt")]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    make_install(tmp_path / "site", files=FILES)
    return Place(tmp_path / "site")


def test_an_apply_writes_files_lines_and_a_receipt(place: Place) -> None:
    change = place.to_apply(FIX)
    assert change is not None
    assert sorted(edit.path for edit in change.edits) == ["a.py", "gone.py", "new/made.py"]
    assert list(change.lines) == ["vllm/new/made.py"]
    assert not change.no_lines
    assert (change.receipt_name, change.receipt_line) == (receipt.NAME, LINE)
    assert change.meanwhile == change.receipt
    (entry,) = receipt.load(change.receipt, path="the receipt")
    places = (("a.py",), ("new/made.py",), ("gone.py",))
    assert entry == Entry(id="fix", text=FIX.text, wanted="in", places=places, adhoc=True)


def test_a_revert_writes_what_was_and_takes_lines_and_receipt_away(place: Place) -> None:
    place.apply(FIX)
    change = place.to_revert()
    assert change is not None
    assert not change.lines
    assert list(change.no_lines) == ["vllm/new/made.py"]
    assert texts(change.meanwhile) == [("fix", "out")]
    assert change.receipt is None


def test_what_others_applied_stays_in_the_receipt_in_the_order_of_application(
    place: Place,
) -> None:
    place.apply(OTHER)
    place.apply(FIX)
    assert [entry.id for entry in place.entries()] == ["other", "fix"]
    change = place.to_revert(OTHER)
    assert change is not None
    assert texts(change.meanwhile) == [("other", "out"), ("fix", "in")]
    assert texts(change.receipt) == [("fix", "in")]
    assert list(change.lines) == ["vllm/new/made.py"]


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_what_is_as_it_should_be_is_no_change(place: Place, verb: str) -> None:
    if verb == "apply":
        place.apply(FIX)
        assert place.to_apply(FIX) is None
    else:
        assert place.to_revert(FIX) is None
        assert place.to_revert() is None


def test_equal_installs_get_equal_receipts(place: Place, tmp_path: Path) -> None:
    make_install(tmp_path / "elsewhere", files=FILES)
    other = Place(tmp_path / "elsewhere")
    assert place.to_apply(FIX, OTHER) == other.to_apply(FIX, OTHER)


# RECORD.


def test_a_file_that_record_does_not_list_gets_no_line_by_being_changed(place: Place) -> None:
    (place.package / "own.py").write_bytes(b"o = 1\n")
    before = snapshot(place.site)
    patch = AdHoc("own", diff("own.py", "o = 1", "o = 2"))
    change = place.to_apply(patch)
    assert change is not None
    assert not change.lines
    place.apply(patch)
    place.revert()
    assert snapshot(place.site) == before


@pytest.mark.parametrize("fate", ["cleared", "lost"])
def test_lines_that_are_missing_are_added_again(place: Place, fate: str) -> None:
    place.apply(FIX)
    record = place.info / "RECORD"
    wanted = record.read_bytes()
    lines = wanted.splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:-1] if fate == "lost" else lines[:-2]))
    place.apply(FIX)
    assert record.read_bytes() == wanted


def test_a_line_of_a_receipt_that_is_gone_is_taken_away(place: Place) -> None:
    before = snapshot(place.site)
    place.apply(OTHER)
    (place.info / receipt.NAME).unlink()
    (place.package / "b.py").write_bytes(FILES["b.py"])
    place.revert()
    assert snapshot(place.site) == before


def test_a_dist_info_that_lies_elsewhere_lists_no_files(place: Place, tmp_path: Path) -> None:
    here = place.survey(FIX)
    elsewhere = tmp_path / "elsewhere" / place.info.name
    here = here.replaced(install=here.install.replaced(dist_info=str(elsewhere)))
    change = change_of(here, apply_plan(here))
    assert change is not None
    assert not change.lines
    assert change.receipt_line == LINE


def test_without_record_there_are_no_lines_and_yet_a_receipt(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES, record=False)
    place = Place(tmp_path)
    before = snapshot(tmp_path)
    place.apply(FIX)
    assert [entry.id for entry in place.entries()] == ["fix"]
    assert place.to_apply(FIX) is None
    place.revert()
    assert snapshot(tmp_path) == before


# The receipt.


def test_a_catalog_patch_stays_one_for_a_run_with_other_catalogs(
    place: Place, tmp_path: Path
) -> None:
    catalog = write_catalog(tmp_path / "catalog", entry("fix", FIX.text))
    place.apply(catalogs=(catalog,))
    assert [entry.adhoc for entry in place.entries()] == [False]
    assert place.to_apply(FIX) is None
    place.apply(OTHER)
    assert [(entry.id, entry.adhoc) for entry in place.entries()] == [
        ("fix", False),
        ("other", True),
    ]


def test_while_one_revision_replaces_another_the_receipt_holds_both(
    place: Place, tmp_path: Path
) -> None:
    newer = diff("a.py", "a = 1", "a = 3")
    place.apply(catalogs=(write_catalog(tmp_path / "first", entry("fix", FIX.text)),))
    change = place.to_apply(catalogs=(write_catalog(tmp_path / "second", entry("fix", newer)),))
    assert change is not None
    during = receipt.load(change.meanwhile, path="the receipt")
    assert [(entry.wanted, entry.text) for entry in during] == [("out", FIX.text), ("in", newer)]
    (after,) = receipt.load(change.receipt, path="the receipt")
    assert (after.wanted, after.text) == ("in", newer)


def test_while_one_goes_and_another_stays_the_receipt_keeps_its_order(place: Place) -> None:
    place.apply(FIX)
    place.apply(OTHER)
    for leaving, during in (
        (FIX, [("fix", "out"), ("other", "in")]),
        (OTHER, [("fix", "in"), ("other", "out")]),
    ):
        change = place.to_revert(leaving)
        assert change is not None
        assert texts(change.meanwhile) == during


def edit_receipt(place: Place, **changes: object) -> None:
    entries = [entry.replaced(**changes) for entry in place.entries()]
    (place.info / receipt.NAME).write_bytes(receipt.dump(entries))


def test_a_patch_on_its_way_out_that_is_nowhere_is_forgotten(place: Place) -> None:
    place.apply(FIX)
    whole = place.site.with_name("whole")
    shutil.copytree(place.site, whole)
    place.revert()
    shutil.copy(whole / place.info.name / receipt.NAME, place.info)
    edit_receipt(place, wanted="out")
    place.apply(OTHER)
    assert [entry.id for entry in place.entries()] == ["other"]


def test_a_patch_on_its_way_out_that_may_still_be_there_is_not_forgotten(place: Place) -> None:
    place.apply(FIX)
    edit_receipt(place, wanted="out")
    (place.package / "a.py").write_bytes(b"a = 2  # and another hand\n")
    change = place.to_apply(OTHER)
    assert change is not None
    assert ("fix", "out") in texts(change.receipt)


def test_a_patch_that_is_wanted_in_and_gone_is_not_forgotten(place: Place) -> None:
    place.apply(OTHER)
    (place.package / "b.py").write_bytes(FILES["b.py"])
    change = place.to_apply(FIX)
    assert change is not None
    assert texts(change.receipt) == [("other", "in"), ("fix", "in")]


def test_a_patch_of_another_tool_that_is_taken_out_is_noted_while_that_lasts(
    place: Place, tmp_path: Path
) -> None:
    catalog = write_catalog(tmp_path / "catalog", entry("fix", diff("a.py", "a = 1", "a = 2")))
    before = snapshot(place.site)
    (place.package / "a.py").write_bytes(b"a = 2\n")
    here = place.survey(catalogs=(catalog,))
    change = change_of(here, revert_plan(here))
    assert change is not None
    assert texts(change.meanwhile) == [("fix", "out")]
    assert change.receipt is None
    operations.revert(place.request(catalogs=(catalog,)))
    assert snapshot(place.site) == before


# What killed runs and other processes left.


@pytest.mark.parametrize("folder", ["vllm", "vllm-0.11.0.dist-info"])
def test_a_temporary_that_was_left_is_reason_enough(place: Place, folder: str) -> None:
    before = snapshot(place.site)
    (place.site / folder / ".abc.vllm-patcher-tmp").write_bytes(b"half")
    assert place.to_revert(FIX) is not None
    place.revert(FIX)
    assert snapshot(place.site) == before


def test_a_folder_that_was_left_is_reason_enough(place: Place) -> None:
    before = snapshot(place.site)
    (place.package / "new").mkdir()
    place.revert(FIX)
    assert snapshot(place.site) == before


# Bytecode.


@pytest.mark.parametrize("verb", [Place.apply, Place.revert])
def test_bytecode_goes_with_the_files_that_change(place: Place, verb: object) -> None:
    names = ["a.py", "gone.py"]
    if verb is Place.revert:
        place.apply(FIX)
        names = ["a.py", "new/made.py"]
    compiled = [place.compile(name) for name in names]
    kept = place.compile("b.py")
    (place.apply if verb is Place.apply else place.revert)(FIX)
    assert [pyc for pyc in compiled if pyc.exists()] == []
    assert kept.exists()
    assert (place.package / "new").exists() is (verb is Place.apply)


def test_bytecode_that_hides_a_patch_goes_although_no_byte_changes(place: Place) -> None:
    place.apply(FIX)
    pyc = place.compile("a.py", b"a = 1\n")
    change = place.to_apply(FIX)
    assert change is not None
    assert not change.edits
    assert list(change.bytecode) == [os.path.relpath(pyc, place.package)]
    before = snapshot(place.site)
    place.apply(FIX)
    assert not pyc.exists()
    assert snapshot(place.site) == before
    assert place.to_apply(FIX) is None


def test_bytecode_that_hides_nothing_stays(place: Place) -> None:
    place.apply(FIX)
    pyc = place.compile("a.py")
    hiding_another = place.compile("b.py", b"b = 9\n")
    assert place.to_apply(FIX) is None
    place.apply(FIX)
    assert pyc.exists()
    assert hiding_another.exists()


def test_bytecode_of_files_that_a_killed_revert_deleted_goes(place: Place) -> None:
    before = snapshot(place.site)
    place.apply(FIX)
    made = place.compile("new/made.py")
    hiding = place.compile("a.py")
    (place.package / "new/made.py").unlink()
    (place.package / "a.py").write_bytes(FILES["a.py"])
    (place.package / "gone.py").write_bytes(FILES["gone.py"])
    edit_receipt(place, wanted="out")
    place.revert()
    assert not hiding.exists()
    assert not made.parent.exists()
    assert snapshot(place.site) == before
