"""Which compiled files Python would run in place of a source file.

Only looks, never deletes. The rules are those of CPython's `importlib`: a `.pyc` of a
source file is taken on the word of its 16-byte header, an extension module or a package
of the same name is taken before the source is looked at. Only `.py` paths have answers.
Paths are relative to the package, with `/`.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from typing import TYPE_CHECKING

from vllm_patcher.compiling import code_of, of_other_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType

_HEADER = 16  # magic, flags, then either mtime and size or the hash of the source
_HASH_BASED = 0b01
_CHECKED = 0b10
#: With this magic number, that of 3.11, Python began to hash by another rule.
_OTHER_HASH = 3495
_SECOND = 10**9  # in nanoseconds
_EXTENSION_TAGS = (".cpython-", ".abi3", ".pypy")


class Bytecode:
    """The compiled files of one package; each folder is listed once, as it was when first asked."""

    def __init__(self, package: str, python: str | None = None) -> None:
        """Take the package's folder and the interpreter that serves from it, if that is known."""
        self._package = package
        self._python = python
        self._listed: dict[str, list[str]] = {}

    def compiled(self, path: str) -> tuple[str, ...]:
        """Give every `.pyc` there is of a source file, relative to the package.

        Those are `__pycache__/STEM.*.pyc` of all tags and optimisation levels and a
        `STEM.pyc` beside the source, which need not exist.
        """
        if not path.endswith(".py"):
            return ()
        folder, stem = _split(path)
        cache = os.path.join(folder, "__pycache__")
        found = [
            os.path.join(cache, name)
            for name in _beginning(self._names(os.path.join(self._package, cache)), stem)
            if name.endswith(".pyc")
        ]
        legacy = os.path.join(folder, stem + ".pyc")
        if os.path.lexists(os.path.join(self._package, legacy)):
            found.append(legacy)
        return tuple(found)

    def hiding(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Give the `.pyc` files, absolute, that run in place of what the sources now say.

        For a source that is absent that is a `STEM.pyc` beside it. A file that can't be read
        or is too short for a header hides nothing: Python passes over it as well. About bytecode
        of another Python the package's own is asked, once; else its age decides.
        """
        found: dict[str, bool] = {}
        open_: dict[str, tuple[str, os.stat_result]] = {}
        for path in paths:
            for pyc, source, status in self._looked_for(path):
                verdict = _hides(pyc, source, status) if status is not None else True
                found[pyc] = bool(verdict)
                if verdict is None and status is not None:
                    open_[pyc] = source, status
        pairs = [(pyc, source, _level(pyc)) for pyc, (source, _) in open_.items()]
        answers = of_other_text(self._python, pairs)
        for (pyc, (_, status)), answer in zip(open_.items(), answers, strict=True):
            found[pyc] = _is_older(pyc, status) if answer is None else answer
        return tuple(pyc for pyc, hides in found.items() if hides)

    def _looked_for(self, path: str) -> Iterator[tuple[str, str, os.stat_result | None]]:
        """The bytecode that Python would look for, its source and how that is, if it is there."""
        if not path.endswith(".py"):
            return
        source = os.path.join(self._package, path)
        try:
            status = os.stat(source)
        except OSError:
            legacy = source[: -len(".py")] + ".pyc"
            if _header(legacy):
                yield legacy, source, None
            return
        for name in self.compiled(path):
            if os.path.basename(os.path.dirname(name)) == "__pycache__":
                yield os.path.join(self._package, name), source, status

    def shadowing(self, path: str) -> tuple[str, ...]:
        """Give the extension modules and packages, absolute, that Python takes before it."""
        if not path.endswith(".py"):
            return ()
        folder, stem = _split(path)
        base = os.path.join(self._package, folder) if folder else self._package
        found = [os.path.join(base, name) for name in _extensions(self._names(base), stem)]
        inner = os.path.join(base, stem)
        # A folder without any kind of __init__ is at most a namespace, and the source beats that.
        inside = self._names(inner) if stem != "__init__" else []
        if not {"__init__.py", "__init__.pyc"}.isdisjoint(inside) or _extensions(
            inside, "__init__"
        ):
            found.append(inner)
        return tuple(found)

    def _names(self, folder: str) -> list[str]:
        """The names in a folder, in order; none if it can't be listed."""
        if folder not in self._listed:
            try:
                self._listed[folder] = sorted(os.listdir(folder))
            except OSError:
                self._listed[folder] = []
        return self._listed[folder]


def _hides(pyc: str, source: str, status: os.stat_result) -> bool | None:
    """Say whether Python takes a file for fresh that was made of what the source no longer says.

    None if that is for another Python to say.
    """
    header = _header(pyc)
    if not header:
        return False
    flags = int.from_bytes(header[4:8], "little")
    if flags & _HASH_BASED:
        return False if flags & _CHECKED else _hash_is_stale(header, source)
    recorded = (int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little"))
    actual = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    # Where both times of the source lie before it, it is fresh. They lie after it in an image and
    # in a copy too; so it is looked into.
    if recorded != actual or _written(pyc) > max(status.st_mtime_ns, status.st_ctime_ns):
        return False
    import importlib.util

    return _gives_other_code(pyc, source) if header[:4] == importlib.util.MAGIC_NUMBER else None


def _hash_is_stale(header: bytes, source: str) -> bool | None:
    import _imp
    from importlib.util import MAGIC_NUMBER

    magic, ours = (int.from_bytes(number[:2], "little") for number in (header, MAGIC_NUMBER))
    if (magic < _OTHER_HASH) is not (ours < _OTHER_HASH):
        return None
    try:
        with open(source, "rb") as file:
            # The key is the magic number of the Python that made it.
            return (
                _imp.source_hash(int.from_bytes(header[:4], "little"), file.read()) != header[8:16]
            )
    except OSError:
        return False


def _level(pyc: str) -> int:
    """The level of optimisation that the name of a compiled file tells."""
    level = pyc.removesuffix(".pyc").rpartition(".opt-")[2]
    return int(level) if level in {"1", "2"} else 0


def _gives_other_code(pyc: str, source: str) -> bool:
    import marshal

    try:
        with open(source, "rb") as file:
            fresh = code_of(file.read(), name=source, optimize=_level(pyc))
        with open(pyc, "rb") as file:
            # Read, never run. Where the code lay when it was compiled makes it no other code.
            there = marshal.loads(file.read()[_HEADER:])  # noqa: S302
        return bool(_without_places(there) != _without_places(fresh))
    except (OSError, RecursionError, MemoryError):
        return False
    except (SyntaxError, ValueError, EOFError, TypeError, AttributeError):
        return True  # nothing that this source could have given


def _without_places(code: CodeType) -> CodeType:
    """Leave out which columns code came from: -X no_debug_ranges makes it without them."""
    inner = (_without_places(one) if isinstance(one, type(code)) else one for one in code.co_consts)
    return code.replace(co_consts=tuple(inner), co_linetable=b"")


def _is_older(pyc: str, status: os.stat_result) -> bool:
    # A source that was dated, and not just written, may bear a time up to a second ahead, so
    # that its whole second is a new one. So may its copies; in place, the time of its last
    # change on this disk tells when it was really written.
    dated = status.st_mtime_ns % _SECOND == 0
    written = min(status.st_mtime_ns - dated * _SECOND, status.st_ctime_ns)
    return _written(pyc) < written


def _written(pyc: str) -> float:
    """When a compiled file was written, in nanoseconds; one that is gone hides nothing."""
    try:
        return os.stat(pyc).st_mtime_ns
    except OSError:
        return float("inf")


def _header(pyc: str) -> bytes:
    try:
        # Else it might be waited for, for ever.
        if not stat.S_ISREG(os.stat(pyc).st_mode):
            return b""
        with open(pyc, "rb") as file:
            header = file.read(_HEADER)
    except OSError:
        return b""
    return header if len(header) == _HEADER else b""


def _beginning(listed: list[str], stem: str) -> list[str]:
    """Choose the names of one stem from those of a folder, which are in order."""
    # A slash comes next to a full stop, and is in no name.
    return listed[bisect_left(listed, f"{stem}.") : bisect_left(listed, f"{stem}/")]


def _extensions(listed: list[str], stem: str) -> list[str]:
    """Choose the extension modules of a name."""
    found = [name for name in _beginning(listed, stem) if name.endswith(".so")]
    tags = [name[len(stem) : -len(".so")] for name in found]
    return [
        name
        for name, tag in zip(found, tags, strict=True)
        if not tag or tag.startswith(_EXTENSION_TAGS)
    ]


def _split(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path)
    return folder, name[: -len(".py")]
