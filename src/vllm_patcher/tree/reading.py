"""Read files of one folder.

Always true here: no link is followed on the way to a file, and nothing is written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vllm_patcher.errors import AS_A_READER, UnsafePath, VllmPatchError
from vllm_patcher.files import is_temporary

#: How a folder is opened; the root alone may be a link.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK opening a FIFO would wait for ever.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NO_PLAIN_FILE = frozenset({errno.ENXIO, errno.EOPNOTSUPP, errno.ENODEV, errno.ELOOP})


class ReadTree:
    """A folder that can only be read. ``root`` is an absolute path."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none.

        The file itself may be a link (a package manager may have made it one), a folder on the
        way may not. Raises UnsafePath for such a folder and for all that is not a plain file,
        VllmPatchError for what may not be read.
        """
        try:
            with (
                self._folder(path) as (folder, name),
                open(self._open(folder, name, path), "rb") as file,
            ):
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            target = os.path.join(self.root, path)
            hint = AS_A_READER if isinstance(error, PermissionError) else None
            what = f"{target} can't be read: {error.strerror or error}"
            raise VllmPatchError(what, hint=hint) from error

    def exists(self, path: str) -> bool:
        """Say whether there is a file or a link to one."""
        return os.path.isfile(os.path.join(self.root, path))

    def leftovers(self, path: str) -> bool:
        """Say whether the folder of a path holds temporaries of a killed run, or nothing.

        If it is not there, the folder above counts.
        """
        try:
            with self._deepest(path) as (folder, _names):
                names = os.listdir(folder)
        except OSError:
            return False
        return not names or any(is_temporary(name) for name in names)

    def _open(self, folder: int, name: str, path: str) -> int:
        try:
            descriptor = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            if error.errno in _NO_PLAIN_FILE:
                raise self._unsafe(path, "is not a plain file") from error
            raise
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise self._unsafe(path, "is not a plain file")

    @contextmanager
    def _folder(
        self, path: str, make: Callable[[int, str], int] | None = None
    ) -> Iterator[tuple[int, str]]:
        """Open the folder of a path; yield its descriptor and the last name."""
        with self._deepest(path, make) as (folder, names):
            if len(names) > 1:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            yield folder, names[0]

    @contextmanager
    def _deepest(
        self, path: str, make: Callable[[int, str], int] | None = None
    ) -> Iterator[tuple[int, list[str]]]:
        """Open the deepest folder of a path that is there; yield it and the names below it.

        ``make`` makes a folder that is not there; it gets its parent and its path.
        """
        names = self._names(path)
        descriptor = os.open(self.root, FOLDER & ~os.O_NOFOLLOW)
        try:
            while len(names) > 1:
                try:
                    child = self._enter(descriptor, names[0], path)
                except FileNotFoundError:
                    if make is None:
                        break
                    child = make(descriptor, path.removesuffix("/" + "/".join(names[1:])))
                os.close(descriptor)
                descriptor = child
                del names[0]
            yield descriptor, names
        finally:
            os.close(descriptor)

    def _enter(self, parent: int, folder: str, path: str) -> int:
        try:
            return os.open(folder, FOLDER, dir_fd=parent)
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


def exists(folder: int, name: str) -> bool:
    """Say whether an open folder has this name, be it a link that leads nowhere."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
