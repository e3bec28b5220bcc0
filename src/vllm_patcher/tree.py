"""One folder of an install, read and written; the only module that writes into an install.

Always true here: a path is walked folder by folder from the root and no link is followed on the
way, so nothing outside the root is ever written. A file is never opened for writing: a new one
is made beside it and renamed over its *lexical* name, because hard links and symlinks of a
package manager lead into a cache that other environments share. A reader sees the old bytes or
the new ones, never a part. :class:`ReadTree` has no method that writes: what gets one of these
can't change anything.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .errors import UnsafePath, WriteFailed

#: What the name of every temporary file of ours ends in.
TEMPORARY = ".vllm-patcher-tmp"

_IGNORED_XATTR_ERRORS = frozenset(
    {errno.ENOTSUP, errno.ENODATA, errno.EINVAL, errno.EACCES, errno.EPERM}
)


class ReadTree:
    """A folder that can only be read. ``root`` is an absolute path."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none.

        The file itself may be a link (a package manager may have made it one), a folder on the
        way may not. Raises UnsafePath for such a folder and for all that is not a plain file.
        """
        try:
            with self._folder(path) as (folder, name):
                return self._read(folder, name, path)
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Say whether there is a file or a link to one."""
        return os.path.isfile(os.path.join(self.root, path))

    def _read(self, folder: int, name: str, path: str) -> bytes:
        # Without O_NONBLOCK opening a FIFO would wait for ever.
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise self._unsafe(path, "is not a plain file") from error
            raise
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._unsafe(path, "is not a plain file")
            return file.read()

    @contextmanager
    def _folder(
        self, path: str, before: Callable[[int, str], None] | None = None
    ) -> Iterator[tuple[int, str]]:
        """Open the folder of a path; yield its descriptor and the last name.

        ``before`` is called with each folder's descriptor and the name to be entered next.
        """
        *folders, name = self._names(path)
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                if before is not None:
                    before(descriptor, folder)
                child = self._enter(descriptor, folder, path)
                os.close(descriptor)
                descriptor = child
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _enter(self, parent: int, folder: str, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(folder, flags, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise self._unsafe(path, f"goes through {folder!r}, no plain folder") from error
            raise

    def _names(self, path: str) -> list[str]:
        names = path.split("/")
        if not path or "\0" in path or any(name in ("", ".", "..") for name in names):
            raise self._unsafe(path, "is no path inside the folder")
        return names

    def _unsafe(self, path: str, why: str) -> UnsafePath:
        return UnsafePath(f"{path!r} {why}", facts=[f"in {self.root}"])


class Tree(ReadTree):
    """A folder that can be written, one whole file at a time."""

    def replace(self, path: str, data: bytes, *, like: str) -> None:
        """Give a file these bytes; make it, and folders on the way, if it is not there.

        Mode, owner and extended attributes stay; a new file takes them from the file ``like``
        of the same tree. The modification time moves by at least a second, since Python
        compares whole seconds to tell whether bytecode is stale. Raises WriteFailed.
        """
        with self._failing(path), self._folder(path, self._make) as (folder, name):
            model = self._model(folder, name, like)
            temporary = f".{name[:200]}.{os.getpid()}{TEMPORARY}"
            try:
                self._write(folder, temporary, data, model)
                self._rename(folder, temporary, name)
            except BaseException:
                _quietly(lambda: os.unlink(temporary, dir_fd=folder))
                raise
            os.fsync(folder)

    def remove(self, path: str) -> None:
        """Remove a file, and the folders it leaves empty; nothing is done if there is none."""
        with self._failing(path):
            try:
                with self._folder(path) as (folder, name):
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
            except FileNotFoundError:
                return
            self._remove_empty(os.path.dirname(path))

    def sweep(self, path: str) -> None:
        """Remove temporaries that a killed run left in the folder of a path."""
        try:
            with self._folder(path) as (folder, _name):
                for name in os.listdir(folder):
                    if name.startswith(".") and name.endswith(TEMPORARY):
                        _quietly(lambda name=name: os.unlink(name, dir_fd=folder))  # type: ignore[misc]
        except (FileNotFoundError, PermissionError):
            return

    def preflight(self, path: str) -> None:
        """Raise WriteFailed if a file can't be replaced, or not without a change of owner."""
        folder = os.path.join(self.root, os.path.dirname(path))
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise WriteFailed(
                f"{folder} can't be written",
                facts=[_read_only(folder) or f"it belongs to {_owner(folder)}"],
                hint="run vllm-patch where the image is built, as the user who owns the files",
            )
        target = os.path.join(self.root, path)
        if os.geteuid() != 0 and os.path.exists(target) and not _can_give(os.stat(target)):
            raise WriteFailed(
                f"replacing {target} would change its owner",
                facts=[f"it belongs to {_owner(target)}"],
                hint="run vllm-patch where the image is built, as the user who owns the files",
            )

    @contextmanager
    def _failing(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            target = os.path.join(self.root, path)
            raise WriteFailed(
                f"{target} can't be written: {error.strerror or error}", facts=_why(error, target)
            ) from error

    def _make(self, parent: int, folder: str) -> None:
        """Make a folder that is not there yet, with the mode and owner of the root."""
        try:
            os.mkdir(folder, dir_fd=parent)
        except FileExistsError:
            return
        like = os.stat(self.root)
        made = self._enter(parent, folder, folder)
        try:
            _quietly(lambda: os.fchown(made, like.st_uid, like.st_gid))
            os.fchmod(made, stat.S_IMODE(like.st_mode))
        finally:
            os.close(made)

    def _model(self, folder: int, name: str, like: str) -> _Model:
        """What a file is to look like: itself, or else the one that is said to be like it."""
        try:
            return _Model.of(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), old=True)
        except FileNotFoundError:
            path = os.path.join(self.root, like)
            return _Model.of(os.open(path, os.O_RDONLY | os.O_CLOEXEC), old=False)

    def _write(self, folder: int, name: str, data: bytes, model: _Model) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        _quietly(lambda: os.unlink(name, dir_fd=folder))
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            model.dress(descriptor)
            os.fsync(descriptor)

    def _rename(self, folder: int, temporary: str, name: str) -> None:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _remove_empty(self, folder: str) -> None:
        while folder:
            try:
                os.rmdir(os.path.join(self.root, folder))
            except OSError:
                return
            folder = os.path.dirname(folder)


class _Model:
    """Mode, owner, extended attributes and time that a new file is to have."""

    def __init__(self, status: os.stat_result, xattrs: dict[str, bytes], *, old: bool) -> None:
        self.status = status
        self.xattrs = xattrs
        self.old = old

    @classmethod
    def of(cls, descriptor: int, *, old: bool) -> _Model:
        try:
            return cls(os.fstat(descriptor), _xattrs(descriptor), old=old)
        finally:
            os.close(descriptor)

    def dress(self, descriptor: int) -> None:
        now = os.fstat(descriptor)
        if (now.st_uid, now.st_gid) != (self.status.st_uid, self.status.st_gid):
            os.fchown(descriptor, self.status.st_uid, self.status.st_gid)
        # After the owner: a change of owner takes the set-id bits away.
        os.fchmod(descriptor, stat.S_IMODE(self.status.st_mode))
        for name, value in self.xattrs.items():
            _set_xattr(descriptor, name, value)
        seconds = self._seconds()
        os.utime(descriptor, (seconds, seconds))

    def _seconds(self) -> int:
        epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
        now = int(epoch) if epoch.isascii() and epoch.isdigit() else int(time.time())
        return max(now, int(self.status.st_mtime) + 1) if self.old else now


def _xattrs(descriptor: int) -> dict[str, bytes]:
    # macOS has none of these functions.
    if not hasattr(os, "listxattr"):
        return {}
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno in _IGNORED_XATTR_ERRORS:
            return {}
        raise


def _set_xattr(descriptor: int, name: str, value: bytes) -> None:
    try:
        os.setxattr(descriptor, name, value)
    except OSError as error:
        if error.errno not in _IGNORED_XATTR_ERRORS:
            raise


def _can_give(status: os.stat_result) -> bool:
    groups = {os.getegid(), *os.getgroups()}
    return status.st_uid == os.geteuid() and status.st_gid in groups


def _owner(path: str) -> str:
    status = os.stat(path)
    return f"uid {status.st_uid}, gid {status.st_gid}, mode {stat.S_IMODE(status.st_mode):04o}"


def _read_only(path: str) -> str:
    return "the file system is read-only" if os.statvfs(path).f_flag & os.ST_RDONLY else ""


def _why(error: OSError, path: str) -> list[str]:
    if error.errno == errno.EBUSY:
        return ["a single file that is mounted into a container can't be replaced"]
    if error.errno == errno.EPERM and os.path.lexists(path):
        return ["the file is immutable, or its folder is sticky and the file is another user's"]
    if error.errno == errno.ENOSPC:
        return ["the disk is full"]
    return []


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except OSError:
        pass
