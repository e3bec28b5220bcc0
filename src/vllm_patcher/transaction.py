"""One change of an install: all of it or nothing, by one process at a time.

Always true here: at every moment each file holds its old or its new bytes; RECORD lines and the
receipt are written before the files and taken away after them, so that a run killed at any point
leaves a mix of known states, which the next run recognises and finishes. An exception takes back
what was done.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from .errors import Conflict, VllmPatchError, WriteFailed
from .plan import Edit
from .record import add_lines, remove_lines
from .tree import Tree

RECORD = "RECORD"
LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.02
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})


class Change(NamedTuple):
    """What a commit writes.

    ``lines`` are the paths RECORD is to have lines of ours for, ``no_lines`` those it is not to
    (both as RECORD writes them). ``receipt`` is its name and its bytes afterwards, ``meanwhile``
    its bytes while files are written; None is no receipt. ``bytecode`` are paths in the package.
    """

    edits: Sequence[Edit]
    lines: Sequence[str] = ()
    no_lines: Sequence[str] = ()
    receipt_name: str = ""
    meanwhile: bytes | None = None
    receipt: bytes | None = None
    bytecode: Sequence[str] = ()


@contextmanager
def locked(
    folder: str, *, warn: Callable[[str], None], seconds: float = LOCK_SECONDS
) -> Iterator[None]:
    """Hold the exclusive lock of a folder; wait for it, and raise WriteFailed in the end.

    The lock is on the folder itself and leaves nothing behind. Where the file system has no
    locks this warns and goes on.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _wait_for_lock(descriptor, folder, warn, seconds)
        yield
    finally:
        os.close(descriptor)


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
                    hint=f"fuser -v {folder}",
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise WriteFailed(f"{folder} can't be locked: {error.strerror}") from error
            warn(f"no locks on the file system of {folder}; run one vllm-patch at a time")
            return
        else:
            return


def commit(package: Tree, info: Tree | None, change: Change) -> None:
    """Carry a change out, under the lock; on any exception take it back and raise.

    ``info`` is the dist-info, None if there is none. Raises Conflict if a file is not what the
    plan was made on, and WriteFailed.
    """
    _read_again(package, change)
    _sweep(package, info, change)
    _preflight(package, info, change)
    undo: list[_Undo] = []
    try:
        for step in _steps(package, info, change):
            step(undo)
    except BaseException as error:
        _roll_back(undo, error)
        raise


class _Undo(NamedTuple):
    tree: Tree
    path: str
    before: bytes | None
    like: str


def _steps(
    package: Tree, info: Tree | None, change: Change
) -> Iterator[Callable[[list[_Undo]], None]]:
    """The order of a commit, in both directions of travel."""
    if info is not None:
        yield lambda undo: _edit_record(info, undo, lambda data: add_lines(data, change.lines))
        yield lambda undo: _put(info, change.receipt_name, change.meanwhile, undo, like=RECORD)
    for edit in change.edits:
        yield lambda undo, edit=edit: _put(  # type: ignore[misc]
            package, edit.path, edit.after, undo, like="__init__.py"
        )
    yield lambda _undo: _remove_bytecode(package, change)
    if info is not None:
        yield lambda undo: _put(info, change.receipt_name, change.receipt, undo, like=RECORD)
        yield lambda undo: _edit_record(
            info, undo, lambda data: remove_lines(data, change.no_lines)
        )


def _put(tree: Tree, path: str, after: bytes | None, undo: list[_Undo], *, like: str) -> None:
    before = tree.read(path)
    if before == after:
        return
    # Noted first: whoever is interrupted between the two takes back nothing too little.
    undo.append(_Undo(tree, path, before, like))
    if after is None:
        tree.remove(path)
    else:
        tree.replace(path, after, like=like)


def _edit_record(info: Tree, undo: list[_Undo], edit: Callable[[bytes], bytes]) -> None:
    before = info.read(RECORD)
    if before is not None:
        _put(info, RECORD, edit(before), undo, like=RECORD)


def _remove_bytecode(package: Tree, change: Change) -> None:
    for path in change.bytecode:
        package.remove(path)


def _read_again(package: Tree, change: Change) -> None:
    changed = [edit.path for edit in change.edits if package.read(edit.path) != edit.before]
    if changed:
        raise Conflict(
            "files changed while they were looked at; nothing was changed",
            facts=[os.path.join(package.root, path) for path in changed],
            hint="run the command again",
        )


def _sweep(package: Tree, info: Tree | None, change: Change) -> None:
    for folder in {os.path.dirname(edit.path): edit.path for edit in change.edits}.values():
        package.sweep(folder)
    if info is not None:
        info.sweep(RECORD)


def _preflight(package: Tree, info: Tree | None, change: Change) -> None:
    """Ask for every file before the first is written; raise one error for all that say no."""
    errors: list[WriteFailed] = []
    targets = [(package, edit.path) for edit in change.edits]
    targets += [(package, path) for path in change.bytecode]
    if info is not None:
        targets.append((info, RECORD))
    for tree, path in targets:
        try:
            tree.preflight(path)
        except WriteFailed as error:
            errors.append(error)
    if errors:
        facts = dict.fromkeys(fact for e in errors for fact in (e.what, *e.facts))
        first = errors[0]
        raise WriteFailed(
            f"{first.what}; nothing was changed",
            facts=[fact for fact in facts if fact != first.what],
            hint=first.hint,
        )


def _roll_back(undo: Sequence[_Undo], error: BaseException) -> None:
    """Take back what was done; if that fails too, raise the exact list of what was not."""
    lost: list[str] = []
    for item in reversed(undo):
        try:
            _put(item.tree, item.path, item.before, [], like=item.like)
        except (VllmPatchError, OSError):
            lost.append(os.path.join(item.tree.root, item.path))
    if lost:
        what = error.what if isinstance(error, VllmPatchError) else repr(error)
        raise WriteFailed(
            f"{what}; and these files could not be put back",
            facts=lost,
            hint="mend the file system, then run the same command again: it finishes the work",
        ) from error
    if isinstance(error, VllmPatchError):
        error.what = f"{error.what}; nothing was changed"
