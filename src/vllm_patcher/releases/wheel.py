"""A released wheel, to be looked at as if it were installed.

Always true here: only members that are asked for are fetched, each once, and each is held against
the wheel's RECORD.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher.digests import sha256
from vllm_patcher.errors import NotReleased
from vllm_patcher.install import Install
from vllm_patcher.record import RECORD, Record
from vllm_patcher.releases.failing import failing
from vllm_patcher.tree.reading import ReadTree
from vllm_patcher.values import Value

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from vllm_patcher.releases.cache import Cache

_PACKAGE = "vllm"


class WheelFile(Value):
    """One wheel as the index lists it. ``sha256`` (hex) is "" if the index does not say."""

    name: str
    url: str
    sha256: str

    @property
    def key(self) -> str:
        """What names its content."""
        return self.sha256 or self.url


class Wheel:
    """One wheel; a context, since it holds a connection open while members are fetched."""

    def __init__(
        self,
        file: WheelFile,
        version: str,
        *,
        open_: Callable[[], AbstractContextManager[zipfile.ZipFile]],
        cache: Cache,
    ) -> None:
        self.file = file
        self._open = open_
        self._cache = cache
        self._opened: AbstractContextManager[zipfile.ZipFile] | None = None
        self._archive: zipfile.ZipFile | None = None
        self._refused: NotReleased | None = None
        self._read: dict[str, bytes | None] = {}
        info = "-".join(file.name.split("-")[:2]) + ".dist-info"
        self.install = Install(
            package=os.path.join(os.sep, file.name, _PACKAGE),
            version=version,
            version_source=file.name,
            name=_PACKAGE,
            dist_info=os.path.join(os.sep, file.name, info),
            python=None,
            found_by="the package index",
            editable="",
            others=(),
            notes=(),
        )
        self._record_name = f"{info}/{RECORD}"
        try:
            self.record = Record.parse(self._record(), name=f"{file.name}/{self._record_name}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Wheel:  # noqa: PYI034 - Self would be one more dependency
        """Keep the connection until the end of the context."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection, if there is one."""
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = self._archive = None

    def tree(self, root: str) -> ReadTree:
        """The package or the dist-info as a folder that can be read."""
        return _Folder(root, self)

    def has(self, path: str) -> bool:
        """Say whether RECORD lists a file of the wheel."""
        return self.record.lists(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file of the wheel, None if there is none.

        Raises NotReleased if it can't be had, or is not what RECORD says.
        """
        if path == self._record_name:
            return self._record()
        if not self.has(path):
            return None
        if path not in self._read:
            self._read[path] = self._fetched(path)
        return self._read[path]

    def _fetched(self, path: str) -> bytes:
        digest = self.record.sha256(path)
        kept = self._cache.blob(digest) if digest else None
        if kept is not None:
            return kept
        data = self._member(path)
        if self.record.matches(path, data) is not True:
            raise NotReleased(f"{self.file.name}: {path} is not what RECORD says")
        self._cache.keep_blob(data)
        return data

    def _record(self) -> bytes:
        if self._record_name not in self._read:
            digest = self._cache.note("wheels", self.file.key)
            data = self._cache.blob(digest) if isinstance(digest, str) else None
            if data is None:
                data = self._member(self._record_name)
                self._cache.keep_blob(data)
                digest = sha256(data)
                self._cache.keep_note("wheels", self.file.key, digest)
            self._read[self._record_name] = data
        return self._read[self._record_name] or b""

    def _member(self, name: str) -> bytes:
        if self._refused is not None:
            raise self._refused  # asking once more for each file would only take longer
        if self._archive is None:
            opened = self._open()
            try:
                self._archive = opened.__enter__()
            except NotReleased as error:
                self._refused = error
                raise
            self._opened = opened
        with failing(f"{self.file.name}: {name} can't be read"):
            return self._archive.read(name)


class _Folder(ReadTree):
    """A folder of a wheel."""

    def __init__(self, root: str, wheel: Wheel) -> None:
        super().__init__(root)
        self._wheel = wheel
        self._name = os.path.basename(root)

    def read(self, path: str) -> bytes | None:
        return self._wheel.read(f"{self._name}/{path}")

    def exists(self, path: str) -> bool:
        return self._wheel.has(f"{self._name}/{path}")

    def leftovers(self, path: str) -> bool:  # noqa: ARG002 - a wheel holds none
        return False
