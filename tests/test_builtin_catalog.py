"""The catalog that comes with the program, against the facts it was made from."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_patcher import catalog, diff, versions

if TYPE_CHECKING:
    from vllm_patcher.manifest import Patch

pytestmark = pytest.mark.builtin

STATS = "v1/metrics/stats.py"
RELEASES = (
    *("0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.8.4", "0.8.5", "0.8.5.post1", "0.9.0"),
    *("0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.1.1", "0.10.2", "0.11.0"),
)
PRISTINE = "9846a001a48d5ea4b3c5da960a2cd70f8a69028d3065ff3cd73b8f088b5dbc35"
WITH_THE_FIRST = "f7eb755ec35a616ea46a376a7de38212de0bb42e8c358bff9c94b2cd6fc40bb6"
WITH_BOTH = "4018ad7fe886e639307a4149b768c741264eb815fe4edc4e30e51d83f4e6ca05"
# The diff as it was posted in public, with the newline that its last line lacked.
AS_POSTED = "78fdd6ad26957b63247b7befc5d89795d845540f6421df0a9361429aa29a75d3"

BUILTIN = catalog.load(catalog.builtin_folder())
CRASH, LEAK = BUILTIN.patches[:2]
LOCK = BUILTIN.lock

every_patch = pytest.mark.parametrize("patch", BUILTIN.patches, ids=lambda patch: patch.id)
both = pytest.mark.parametrize("patch", [CRASH, LEAK], ids=lambda patch: patch.id)


def test_it_begins_with_the_two_for_lora_requests() -> None:
    assert (CRASH.id, CRASH.kind, CRASH.requires) == ("lora-finish-request", "crash", ())
    assert (LEAK.id, LEAK.kind, LEAK.requires) == ("lora-waiting-leak", "leak", (CRASH.id,))
    assert CRASH.affects == LEAK.affects == ">=0.8.0,<0.11.1"
    assert CRASH.default
    assert LEAK.default


def test_it_is_in_an_order_that_can_be_applied() -> None:
    assert catalog.order(BUILTIN.patches) == BUILTIN.patches


@every_patch
def test_each_patch_has_what_a_reader_needs(patch: Patch) -> None:
    assert patch.references
    assert patch.probe is not None
    assert os.path.isfile(patch.probe_path or "")
    for variant in patch.variants:
        assert variant.diff.split("/")[0] == patch.id


@every_patch
def test_each_diff_is_the_one_described_and_can_be_read(patch: Patch) -> None:
    for variant in patch.variants:
        data = patch.diff_bytes(variant)
        assert data.endswith(b"\n")
        assert b"\r" not in data
        assert diff.parse(data, name=variant.diff).files


def test_the_first_diff_is_the_one_that_was_posted() -> None:
    data = CRASH.diff_bytes(CRASH.variants[0])
    assert hashlib.sha256(data).hexdigest() == AS_POSTED


def test_the_second_adds_one_line() -> None:
    (file,) = diff.parse(LEAK.diff_bytes(LEAK.variants[0]), name="second").files
    (hunk,) = file.hunks
    assert (hunk.added, hunk.removed) == (1, 0)


@both
def test_one_diff_is_for_all_releases(patch: Patch) -> None:
    assert len(patch.variants) == 1
    assert all(catalog.choose(patch, release) for release in RELEASES)
    assert not any(catalog.choose(patch, release) for release in ("0.7.3", "0.11.1", "0.12.0"))
    assert catalog.candidates(patch, "0.11.1rc2.dev191+g80e945298.precompiled")


@every_patch
def test_the_lock_has_all_releases_it_should(patch: Patch) -> None:
    assert patch.id in LOCK.patches
    for release, files in LOCK.patches[patch.id].items():
        assert versions.judge(release, patch.affects) == "in"
        assert files


@both
def test_the_lock_is_complete(patch: Patch) -> None:
    locked = LOCK.patches[patch.id]
    assert set(locked) == set(RELEASES)
    for files in locked.values():
        assert set(files) == {STATS}
        assert files[STATS].before
        assert files[STATS].after
        assert files[STATS].before != files[STATS].after


def test_both_start_from_the_same_files() -> None:
    assert LOCK.before(CRASH.id, STATS) == LOCK.before(LEAK.id, STATS)
    after = [
        {files[STATS].after for files in LOCK.patches[patch.id].values()} for patch in (CRASH, LEAK)
    ]
    assert not after[0] & after[1]
    assert not LOCK.before(CRASH.id, STATS) & after[0]


def test_the_digests_of_0_11_0() -> None:
    first = LOCK.patches[CRASH.id]["0.11.0"][STATS]
    second = LOCK.patches[LEAK.id]["0.11.0"][STATS]
    assert (first.before, first.after) == (PRISTINE, WITH_THE_FIRST)
    assert (second.before, second.after) == (PRISTINE, WITH_BOTH)


def test_the_lock_is_written_as_the_script_writes_it() -> None:
    text = Path(BUILTIN.folders[0], catalog.LOCK).read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_the_page_is_that_of_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parent.parent
    monkeypatch.syspath_prepend(str(root / "scripts"))
    import catalog_page

    written = (root / "docs" / "catalog.md").read_text(encoding="utf-8")
    assert written == catalog_page.page(), "python scripts/catalog_page.py > docs/catalog.md"


@every_patch
def test_its_ranges_are_told_without_packaging(patch: Patch) -> None:
    """Else every run of the program would have to import that."""
    for text in (patch.affects, *(variant.vllm for variant in patch.variants)):
        assert versions._span(text) is not None, text
