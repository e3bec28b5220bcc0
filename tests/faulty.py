"""An `os` that counts what changes the disk, and fails or dies where a test wants it to.

What is put in place of the module in `vllm_patcher.tree` does all that the real one does, until
the test's function, which is asked before every call that changes something, raises.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from vllm_patcher.tree import looks, reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

CHANGING = frozenset(
    {"fchmod", "fchown", "fsync", "mkdir", "open", "replace", "rmdir", "setxattr", "unlink"}
    | {"removexattr", "utime"}
)


class Killed(BaseException):
    """The process is gone: nothing it would still do is done."""


class Os:
    """The module `os`; `before` is called with the number and the name of each changing call."""

    def __init__(self, before: Callable[[int, str], None] | None = None) -> None:
        self.before = before
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self.calls.append(" ".join([name, *(a for a in args if isinstance(a, str))]))
                if self.before is not None:
                    self.before(len(self.calls) - 1, self.calls[-1])
            # No test pulls the plug, and waiting for the disk is most of what a commit costs.
            return None if name == "fsync" else real(*args, **kwargs)

        return call

    def use(self, monkeypatch: pytest.MonkeyPatch) -> Os:
        """Put this in the place of `os` in all modules that write."""
        for module in (looks, reading, writing):
            monkeypatch.setattr(module, "os", self)
        return self


def dying(at: int) -> Callable[[int, str], None]:
    """Make a process that is killed right before one call."""

    def before(number: int, name: str) -> None:
        if number >= at:
            raise Killed(name)

    return before


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Give all there is in a folder, but bytecode: the mode of each and its bytes or its target."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".pyc" or path.name == "__pycache__":
            continue
        mode = path.lstat().st_mode
        content: bytes | str | None = None
        if stat.S_ISLNK(mode):
            content = str(path.readlink())
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[name] = (mode, content)
    return found
