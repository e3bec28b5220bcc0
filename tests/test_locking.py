"""One process at a time has the lock of a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import scenes
from faulty import snapshot
from vllm_patcher.errors import VllmPatchError, WriteFailed
from vllm_patcher.locking import locked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a file."""
    (tmp_path / "a.py").write_bytes(b"")
    return tmp_path


def never(warning: str) -> None:
    raise AssertionError(warning)


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_the_lock_is_exclusive_and_leaves_nothing(folder: Path) -> None:
    before = snapshot(folder)
    with locked(str(folder), warn=never):
        assert is_locked(folder)
        assert snapshot(folder) == before
        with (
            pytest.raises(WriteFailed) as caught,
            locked(str(folder), warn=never, seconds=0),
        ):
            pass
    assert not is_locked(folder)
    assert f"another vllm-patch has been working on {folder} for 0 s" in caught.value.what
    assert caught.value.hint == f"fuser -v {folder}"
    assert snapshot(folder) == before


def test_the_lock_is_let_go_on_an_error(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(str(folder), warn=never):
        raise ZeroDivisionError
    assert not is_locked(folder)


def test_the_lock_is_let_go_although_a_child_has_it_open(folder: Path) -> None:
    """A process that is forked meanwhile, by another thread, has the folder open as well."""
    code = f"""
import os, sys
from vllm_patcher.locking import locked
with locked({str(folder)!r}, warn=print):
    child = os.fork()
    if child == 0:
        sys.exit(0)  # which leaves the block as well, and must not unlock it for its parent
    os.waitpid(child, 0)
    print("held", flush=True)
    os.read(0, 1)
    child = os.fork()
    if child == 0:
        os.read(0, 1)  # until the end of its input
        os._exit(0)
print("let go", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=scenes.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"held\n"
        assert is_locked(folder)
        parent.stdin.write(b".")
        assert parent.stdout.readline() == b"let go\n"
        assert not is_locked(folder)
        parent.stdin.close()


def test_the_lock_is_waited_for(folder: Path) -> None:
    code = f"""
import fcntl, os, sys
d = os.open({str(folder)!r}, os.O_RDONLY)
fcntl.flock(d, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read(1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(WriteFailed), locked(str(folder), warn=never, seconds=0.05):
            pass
        holder.stdin.close()
        with locked(str(folder), warn=never):
            assert holder.wait() == 0


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF])
def test_without_locks_there_is_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    warnings: list[str] = []
    with locked(str(folder), warn=warnings.append):
        pass
    assert warnings == [f"no locks on the file system of {folder}; run one vllm-patch at a time"]


def test_a_lock_that_fails_otherwise_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(WriteFailed), locked(str(folder), warn=never):
        pass
    with pytest.raises(VllmPatchError), locked(str(folder / "none"), warn=never):
        pass
