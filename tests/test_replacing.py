"""A file is replaced whole, or stays as it was with nothing beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from vllm_patcher import catalog_lock
from vllm_patcher.releases.cache import Cache
from vllm_patcher.replacing import replace_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_made_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    replace_file(str(path), b"one")
    replace_file(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["b"]


def test_what_a_link_leads_to_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "lock.json"
    path.write_bytes(b"one")
    path.chmod(0o664)
    link = tmp_path / "lock.json"
    link.symlink_to(path)
    replace_file(str(link), b"two")
    assert (link.is_symlink(), path.read_bytes()) == (True, b"two")
    assert path.stat().st_mode & 0o777 == 0o664


def test_who_interrupts_a_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(str(tmp_path / "lock.json"), b"new")
    assert os.listdir(tmp_path) == []


def test_a_lock_that_cannot_be_replaced_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog_lock.write(str(tmp_path), b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        catalog_lock.write(str(tmp_path), b"new")
    assert os.listdir(tmp_path) == ["lock.json"]
    assert catalog_lock.read(str(tmp_path)) == b"old"


def test_a_cache_that_cannot_be_written_says_why_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"a file where the folder should be")
    cache = Cache(str(tmp_path))
    cache.keep_blob(b"data")
    assert cache.trouble.startswith(f"nothing can be kept in {tmp_path}: ")
    assert os.listdir(tmp_path) == ["blobs"]
