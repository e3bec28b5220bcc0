"""What a new file is to look like beside its bytes, and whether that can be had.

Always true here: nothing is changed but the one file whose descriptor is given.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fcntl import ioctl

from vllm_patcher.errors import WriteFailed

_NO_XATTR = frozenset({errno.ENOTSUP, errno.ENODATA, errno.EINVAL, errno.EACCES, errno.EPERM})
_ACL = "system.posix_acl_access"
_MOST_DIGITS = 11  # of seconds: beyond any date, and `os.utime` still takes it
HINT = "run vllm-patch where the image is built, as the user who owns the files"

# What `lsattr` asks for, by its number on nearly all Linux machines. Another machine or file
# system knows no such number, and then the kernel says later and in fewer words.
_GET_FLAGS = 0x80086601
_FLAGS = {0x10: ("immutable", "i"), 0x20: ("append-only", "a")}


class Model:
    """Mode, owner, extended attributes and time that a new file is to have.

    ``old`` is true for those of the file it replaces.
    """

    def __init__(self, status: os.stat_result, xattrs: dict[str, bytes], *, old: bool) -> None:
        self.status = status
        self.xattrs = xattrs
        self.old = old

    @classmethod
    def of(cls, descriptor: int, *, old: bool) -> Model:
        """Take the looks of an open file, and close it."""
        try:
            return cls(os.fstat(descriptor), _xattrs(descriptor), old=old)
        finally:
            os.close(descriptor)

    def dress(self, descriptor: int) -> None:
        """Give an open file these looks. Raises OSError."""
        now = os.fstat(descriptor)
        if (now.st_uid, now.st_gid) != (self.status.st_uid, self.status.st_gid):
            os.fchown(descriptor, self.status.st_uid, self.status.st_gid)
        # A folder's default ACL may have given the new file one that the old one has not.
        if _ACL not in self.xattrs and _ACL in _xattrs(descriptor):
            os.removexattr(descriptor, _ACL)
        # After the owner: a change of owner takes the set-id bits away.
        os.fchmod(descriptor, self._mode())
        for name, value in self.xattrs.items():
            with _unless(_NO_XATTR):
                os.setxattr(descriptor, name, value)
        seconds = self._seconds()
        os.utime(descriptor, (seconds, seconds))

    def _mode(self) -> int:
        mode = stat.S_IMODE(self.status.st_mode)
        return mode & 0o666 if stat.S_ISDIR(self.status.st_mode) else mode

    def _seconds(self) -> int:
        epoch = _build_time()
        now = int(time.time()) if epoch is None else epoch
        return max(now, int(self.status.st_mtime) + 1) if self.old else now


def _build_time() -> int | None:
    """The time that a reproducible build wants on its files (seconds), None if none is wanted."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    given = epoch.isascii() and epoch.isdigit() and len(epoch) <= _MOST_DIGITS
    return int(epoch) if given else None


def date_folder(folder: int) -> None:
    """Give an open folder whose names have changed the time of the build, if one is wanted."""
    epoch = _build_time()
    if epoch is not None:
        # Who may write into a folder need not own it.
        with _unless({errno.EPERM, errno.EACCES}):
            os.utime(folder, (epoch, epoch))


def _xattrs(descriptor: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    # macOS has none of these functions.
    if hasattr(os, "listxattr"):
        with _unless(_NO_XATTR):
            for name in os.listxattr(descriptor):
                with _unless(_NO_XATTR):
                    found[name] = os.getxattr(descriptor, name)
    return found


@contextmanager
def _unless(allowed: Collection[int]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in allowed:
            raise


def check_folder(folder: int, shown: str) -> None:
    """Raise WriteFailed if nothing can be made in an open folder; ``shown`` is its path."""
    check_flags(folder, shown)
    effective = os.access in os.supports_effective_ids
    if os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=effective):
        return
    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    why = "the file system is read-only" if read_only else f"it is {_owner(os.fstat(folder))}"
    raise WriteFailed(f"{shown} can't be written", facts=[why], hint=HINT)


def check_flags(descriptor: int, shown: str) -> None:
    """Raise WriteFailed if an open file or folder is immutable or append-only.

    From such a folder not even a temporary of ours could be taken away again.
    """
    try:
        answer = ioctl(descriptor, _GET_FLAGS, bytes(8))
    except OSError:
        return
    flags = int.from_bytes(answer[:4], sys.byteorder)
    for flag, (word, letter) in _FLAGS.items():
        if flags & flag:
            from shlex import quote

            hint = f"chattr -{letter} {quote(shown)}"
            raise WriteFailed(f"{shown} can't be replaced", facts=[f"it is {word}"], hint=hint)


def check_sticky(folder: int, name: str, target: str) -> None:
    """Raise WriteFailed if the folder is sticky and neither it nor the file is ours."""
    above = os.fstat(folder)
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if above.st_mode & stat.S_ISVTX and os.geteuid() not in (above.st_uid, status.st_uid):
        why = f"its folder is sticky, and it is {_owner(status)}"
        raise WriteFailed(f"{target} can't be replaced", facts=[why], hint=HINT)


def check_owner(status: os.stat_result, target: str) -> None:
    """Raise WriteFailed if we, who are not root, can't give a new file this owner and group."""
    groups = {os.getegid(), *os.getgroups()}
    if status.st_uid != os.geteuid() or status.st_gid not in groups:
        why = f"it must be {_owner(status)}"
        raise WriteFailed(f"{target} would change its owner", facts=[why], hint=HINT)


def _owner(status: os.stat_result) -> str:
    mode = stat.S_IMODE(status.st_mode)
    return f"uid {status.st_uid}, gid {status.st_gid}, mode {mode:04o}; this is uid {os.geteuid()}"
