"""The lock on an install: one process at a time plans and writes there.

Always true here: the lock is on the package's folder itself, leaves nothing behind and ends with
the process that took it, whatever that has forked.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_patcher.errors import WriteFailed, pasted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.02
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})


@contextmanager
def locked(
    folder: str, *, warn: Callable[[str], None], seconds: float | None = None
) -> Iterator[None]:
    """Hold the exclusive lock of a folder; wait for it, and raise WriteFailed in the end.

    The end is after so many seconds, or after ``LOCK_SECONDS``. The lock is on the folder itself
    and leaves nothing behind. Where the file system has no locks this warns and goes on.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WriteFailed(f"{folder} can't be locked: {error.strerror}") from error
    taker = os.getpid()
    try:
        _wait_for_lock(descriptor, folder, warn, LOCK_SECONDS if seconds is None else seconds)
        yield
    finally:
        if os.getpid() == taker:
            _let_go(descriptor)
        os.close(descriptor)


def _let_go(descriptor: int) -> None:
    """Unlock: to close is not enough where a process has been forked, which has it open too."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        return  # there are no locks, and that has been said


def _wait_for_lock(
    descriptor: int, folder: str, warn: Callable[[str], None], seconds: float
) -> None:
    import fcntl

    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise WriteFailed(
                    f"another vllm-patch has been working on {folder} for {seconds:.0f} s",
                    hint=pasted("fuser", "-v", folder),
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise WriteFailed(f"{folder} can't be locked: {error.strerror}") from error
            warn(f"no locks on the file system of {folder}; run one vllm-patch at a time")
            return
        else:
            return
