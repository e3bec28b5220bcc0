"""One change of an install, made under its lock: all of it or nothing.

Always true here: at every moment each file holds its old or its new bytes; RECORD lines and the
receipt are written before the files and taken away after them, so that a run killed at any point
leaves a mix of known states, which the next run recognises and finishes. An exception takes back
what was done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vllm_patcher.bytecode import Bytecode
from vllm_patcher.errors import Conflict, NotPutBack, VllmPatchError
from vllm_patcher.interrupts import held_back
from vllm_patcher.record import RECORD, add_lines, remove_lines
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.plan import Edit
    from vllm_patcher.tree.writing import Staged, Tree


class Change(Value):
    """What a commit writes.

    ``lines`` are the paths of files that RECORD is to have lines of ours for, ``no_lines`` those
    it is not to (as RECORD writes them). ``receipt`` is the receipt's bytes afterwards,
    ``meanwhile`` its bytes while files are written; None is no receipt. ``receipt_name`` is its
    name in the dist-info, ``receipt_line`` its path for RECORD. ``bytecode`` and ``sweep`` are
    paths in the package: bytecode to be removed, and files in whose folders a killed run may
    have left something.
    """

    edits: Sequence[Edit]
    lines: Sequence[str] = ()
    no_lines: Sequence[str] = ()
    receipt_name: str = ""
    receipt_line: str = ""
    meanwhile: bytes | None = None
    receipt: bytes | None = None
    bytecode: Sequence[str] = ()
    sweep: Sequence[str] = ()


def check(package: Tree, info: Tree | None, change: Change) -> None:
    """Ask for every file whether it can be written, and write nothing. Raises as `commit` does."""
    opening, closing = _around(info, change)
    _preflight(package, change, [*opening, *_files(package, change), *closing])


def commit(package: Tree, info: Tree | None, change: Change) -> None:
    """Carry a change out, under the lock; on any exception take it back and raise.

    ``info`` is the dist-info, None if there is none. Raises Conflict if a file is not what the
    plan was made on, InvalidRecord, UnsafePath and WriteFailed.
    """
    _read_again(package, change)
    opening, closing = _around(info, change)
    files = _files(package, change)
    _sweep(package, info, change)
    _preflight(package, change, [*opening, *files, *closing])
    with held_back() as hand_on:
        work = _Work()
        try:
            for write in opening:
                work.stage(write)
                work.publish([write])
            # A full disk or an owner that can't be kept shows here, before any file has changed.
            for write in (*files, *closing):
                hand_on()
                work.stage(write)
            work.publish(files)
            _remove_bytecode(package, change)
            for write in closing:
                work.publish([write])
            hand_on()
        except BaseException as error:
            work.take_back(error)
            raise


def _files(package: Tree, change: Change) -> list[_Write]:
    return [
        _Write(package, edit.path, edit.before, edit.after, edit.like or "__init__.py")
        for edit in change.edits
    ]


class _Write(Value):
    """One file, before and after; ``like`` names the file whose looks a new one gets."""

    tree: Tree
    path: str
    before: bytes | None
    after: bytes | None
    like: str


def _around(info: Tree | None, change: Change) -> tuple[list[_Write], list[_Write]]:
    """What is written before the files of the package, and what after them.

    While there is a receipt RECORD lists it, and while RECORD or the package has a file of ours
    there is a receipt: so the next run, and an uninstaller, know all that a killed run leaves.
    """
    if info is None:
        return [], []
    texts = [info.read(RECORD)]
    for function, lines in (
        (add_lines, [change.receipt_line] if change.meanwhile is not None else []),
        (add_lines, change.lines),
        (remove_lines, change.no_lines),
        (remove_lines, [change.receipt_line] if change.receipt is None else []),
    ):
        last = texts[-1]
        texts.append(function(last, lines) if last is not None and lines else last)
    receipt = info.read(change.receipt_name)
    listed, with_files, without_files, unlisted = (
        _Write(info, RECORD, before, after, RECORD) for before, after in pairwise(texts)
    )
    opening = _Write(info, change.receipt_name, receipt, change.meanwhile, RECORD)
    closing = _Write(info, change.receipt_name, change.meanwhile, change.receipt, RECORD)
    return (
        _that_change([listed, opening, with_files]),
        _that_change([without_files, closing, unlisted]),
    )


def _that_change(writes: Iterable[_Write]) -> list[_Write]:
    return [write for write in writes if write.before != write.after]


class _Work:
    """The writes of one commit so far, and the way back."""

    def __init__(self) -> None:
        self._staged: dict[_Write, Staged] = {}
        self._published: list[_Write] = []

    def stage(self, write: _Write) -> None:
        """Get everything ready that can fail, unless the file is to be removed."""
        if write.after is not None:
            staged = write.tree.stage(write.path, write.after, like=write.like)
            self._staged[write] = staged

    def publish(self, writes: Sequence[_Write]) -> None:
        """Make them so, and see that on the disk: first what is there afterwards, then the rest."""
        there = [write for write in writes if write.after is not None]
        for write in there:
            # Noted first: who is interrupted in between must not take back too little.
            self._published.append(write)
            write.tree.publish(self._staged[write])
            del self._staged[write]
        for write in {(w.tree, os.path.dirname(w.path)): w for w in there}.values():
            write.tree.settle(write.path)
        # A file that is renamed must at no moment be nowhere.
        for write in writes:
            if write.after is None:
                self._published.append(write)
                write.tree.remove(write.path)

    def take_back(self, error: BaseException) -> None:
        """Put every file back; if that fails too, raise the exact list of what was not."""
        for write, staged in self._staged.items():
            write.tree.discard(staged)
        lost = [write for write in reversed(self._published) if not _put_back(write)]
        if lost:
            what = error.what if isinstance(error, VllmPatchError) else type(error).__name__
            raise NotPutBack(
                f"{what}; and these files could not be put back",
                facts=dict.fromkeys(os.path.join(write.tree.root, write.path) for write in lost),
                hint="mend the file system, then run the same command again: it finishes the work",
            ) from error
        if isinstance(error, VllmPatchError):
            error.what = f"{error.what}; nothing was changed"


def _put_back(write: _Write) -> bool:
    try:
        if write.tree.read(write.path) == write.before:
            return True
        if write.before is None:
            write.tree.remove(write.path)
        else:
            write.tree.replace(write.path, write.before, like=write.like)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - the other files must be put back
        return _is_back(write)
    return True


def _is_back(write: _Write) -> bool:
    try:
        return write.tree.read(write.path) == write.before
    except VllmPatchError:
        return False


def _remove_bytecode(package: Tree, change: Change) -> None:
    # Asked for again: others may have compiled files since the plan was made.
    bytecode = Bytecode(package.root)
    paths = [path for edit in change.edits for path in bytecode.compiled(edit.path)]
    for path in dict.fromkeys([*change.bytecode, *paths]):
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
    paths = [*change.sweep, *(edit.path for edit in change.edits)]
    for path in {os.path.dirname(path): path for path in paths}.values():
        package.sweep(path)
    if info is not None:
        info.sweep(RECORD)


def _preflight(package: Tree, change: Change, writes: Sequence[_Write]) -> None:
    """Ask for every file before the first is written; raise one error for all that say no."""
    errors: list[VllmPatchError] = []
    targets = [
        (write.tree, write.path, write.like if write.after is not None else None)
        for write in writes
    ]
    targets += [(package, path, None) for path in change.bytecode]
    for tree, path, like in targets:
        try:
            tree.preflight(path, like=like)
        except VllmPatchError as error:
            errors.append(error)
    if errors:
        first = errors[0]
        facts = dict.fromkeys(fact for error in errors for fact in (error.what, *error.facts))
        raise type(first)(
            f"{first.what}; nothing was changed",
            facts=[fact for fact in facts if fact != first.what],
            hint=first.hint,
        )
