"""Write files of one folder, one whole file at a time.

Always true here: what fails leaves the old file, and nothing of its own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_patcher.errors import UnsafePath, WriteFailed
from vllm_patcher.files import TEMPORARY, is_temporary
from vllm_patcher.tree.looks import (
    HINT,
    Model,
    check_flags,
    check_folder,
    check_owner,
    check_sticky,
    date_folder,
)
from vllm_patcher.tree.reading import FOLDER, ReadTree, exists
from vllm_patcher.values import Value

_WHY = {
    errno.EBUSY: "a single file that is mounted into a container can't be replaced",
    errno.EDQUOT: "a quota is used up",
    errno.EINVAL: "its owner can't be kept: it may be none that this user namespace knows",
    errno.ENOSPC: "the disk is full: it has no room for another byte, or for another file",
    errno.EPERM: "its owner can't be kept, it is immutable, or it is another's in a sticky folder",
}
_FULL = frozenset({errno.EDQUOT, errno.ENOSPC})
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})


class Staged(Value):
    """A file that lies ready beside the path it is for; ``made`` are folders made for it."""

    path: str
    temporary: str
    made: list[str]


class Tree(ReadTree):
    """A folder that can be written, one whole file at a time."""

    def replace(self, path: str, data: bytes, *, like: str) -> None:
        """Give a file these bytes; make it, and folders on the way, if it is not there.

        ``like`` is what :meth:`stage` takes. Raises UnsafePath and WriteFailed.
        """
        staged = self.stage(path, data, like=like)
        try:
            self.publish(staged)
            self.settle(path)
        except BaseException:
            self.discard(staged)
            raise

    def stage(self, path: str, data: bytes, *, like: str) -> Staged:
        """Write the bytes beside the file they are for, so that only a rename is left to do.

        Mode, owner and extended attributes are the old file's; a new file takes them from the
        file named ``like`` in its folder, or else in the root. The modification time moves by at
        least a second, since Python compares whole seconds to tell whether bytecode is stale.
        Raises UnsafePath and WriteFailed, and leaves nothing then.
        """
        staged = Staged(path, f".{os.urandom(6).hex()}{TEMPORARY}", [])

        def make(parent: int, folder: str) -> int:
            staged.made.append(folder)
            os.mkdir(os.path.basename(folder), dir_fd=parent)
            date_folder(parent)
            return self._dressed_folder(parent, folder)

        try:
            with self._failing(path), self._folder(path, make) as (folder, name):
                self._write(folder, staged, data, self._model(folder, name, path, like))
        except BaseException:
            self.discard(staged)
            raise
        return staged

    def publish(self, staged: Staged) -> None:
        """Rename a staged file over the path it is for. Raises UnsafePath and WriteFailed."""
        with self._failing(staged.path), self._folder(staged.path) as (folder, name):
            os.replace(staged.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def settle(self, path: str) -> None:
        """See the names in the folder of a path onto the disk. Raises UnsafePath and WriteFailed.

        That is: of all files that were published there since it was last done.
        """
        with self._failing(path), self._folder(path) as (folder, _name):
            _settle(folder)

    def discard(self, staged: Staged) -> None:
        """Take away what is left of a staged file, and the folders made for it if empty."""
        try:
            with self._folder(staged.path) as (folder, _name):
                os.unlink(staged.temporary, dir_fd=folder)
        except (OSError, UnsafePath):
            pass
        for folder_path in reversed(staged.made):
            self._is_gone_if_empty(folder_path)

    def remove(self, path: str) -> None:
        """Remove a file, and the folders it leaves empty; nothing is done if there is none.

        Raises UnsafePath and WriteFailed.
        """
        with self._failing(path):
            try:
                with self._folder(path) as (folder, name):
                    os.unlink(name, dir_fd=folder)
                    _settle(folder)
            except FileNotFoundError:
                return
        self._prune(path)

    def sweep(self, path: str) -> None:
        """Remove what a killed run left in the folder of a path, and that folder if it is empty.

        If it is not there, the folder above counts.
        """
        try:
            with self._deepest(path) as (folder, _names):
                for name in filter(is_temporary, os.listdir(folder)):
                    os.unlink(name, dir_fd=folder)
        except (OSError, UnsafePath):
            return
        self._is_gone_if_empty(os.path.join(os.path.dirname(path), "__pycache__"))
        self._prune(path)

    def preflight(self, path: str, *, like: str | None) -> None:
        """Raise WriteFailed if a file can't be replaced, or not without a change of owner.

        ``like`` is what :meth:`stage` is going to get, None if the file is only to be removed.
        Raises UnsafePath for a path through a link, or to what is not a plain file.
        """
        target = os.path.join(self.root, path)
        with self._failing(path), self._deepest(path) as (folder, names):
            check_folder(folder, os.path.dirname(target.removesuffix("/".join(names))))
            status = self._status(folder, names, path)
            if os.geteuid() == 0:
                return
            if status is not None:
                check_sticky(folder, names[0], target)
            if like is not None:
                check_owner(status or self._status_of(folder, names, like), target)

    def _status(self, folder: int, names: list[str], path: str) -> os.stat_result | None:
        """Stat a plain file or what a link leads to; None if there is none."""
        if len(names) > 1 or not exists(folder, names[0]):
            return None
        try:
            descriptor = self._open(folder, names[0], path)
        except FileNotFoundError as error:
            # Neither a roll back nor a revert could make it anew.
            raise self._unsafe(path, "is a link that leads nowhere") from error
        try:
            # Of a link nothing but the link is replaced.
            if not stat.S_ISLNK(os.stat(names[0], dir_fd=folder, follow_symlinks=False).st_mode):
                check_flags(descriptor, os.path.join(self.root, path))
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _status_of(self, folder: int, names: list[str], like: str) -> os.stat_result:
        descriptor = self._like(folder if len(names) == 1 else None, like)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _model(self, folder: int, name: str, path: str, like: str) -> Model:
        """What a file is to look like: itself, or else the one that is said to be like it."""
        if exists(folder, name):
            return Model.of(self._open(folder, name, path), old=True)
        return Model.of(self._like(folder, like), old=False)

    def _like(self, folder: int | None, like: str) -> int:
        """Open the file a new one is to be like; the root itself if there is none."""
        if folder is not None and exists(folder, like):
            return self._open(folder, like, like)
        try:
            with self._folder(like) as (root, name):
                return self._open(root, name, like)
        except FileNotFoundError:
            return os.open(self.root, FOLDER & ~os.O_NOFOLLOW)

    def _dressed_folder(self, parent: int, folder: str) -> int:
        """Give a new folder the mode and owner of the root; return its descriptor."""
        like = os.stat(self.root)
        made = self._enter(parent, os.path.basename(folder), folder)
        try:
            now = os.fstat(made)
            if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
                os.fchown(made, like.st_uid, like.st_gid)
            os.fchmod(made, stat.S_IMODE(like.st_mode))
        except BaseException:
            os.close(made)
            raise
        return made

    def _write(self, folder: int, staged: Staged, data: bytes, model: Model) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(staged.temporary, flags, 0o600, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            model.dress(descriptor)
            os.fsync(descriptor)

    def _prune(self, path: str) -> None:
        """Remove the folder of a path if it is empty, and then the one above."""
        folder = os.path.dirname(path)
        while folder and self._is_gone_if_empty(folder):
            folder = os.path.dirname(folder)

    def _is_gone_if_empty(self, path: str) -> bool:
        try:
            with self._folder(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
                date_folder(folder)
        except FileNotFoundError:
            return True
        except (OSError, UnsafePath):
            return False
        return True

    @contextmanager
    def _failing(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            target = os.path.join(self.root, path)
            what = f"{target} can't be written: {error.strerror or error}"
            why = _WHY.get(error.errno or 0)
            hint = _df(self.root) if error.errno in _FULL else HINT if why else None
            raise WriteFailed(what, facts=[why] if why else [], hint=hint) from error


def _settle(folder: int) -> None:
    """See a change of names in a folder onto the disk."""
    date_folder(folder)
    # Not every file system can; those that can't have nothing to wait for.
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _df(folder: str) -> str:
    from shlex import join

    return f"{join(['df', folder])}; {join(['df', '-i', folder])}"
