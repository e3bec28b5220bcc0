"""What was read from the index, kept in the user's cache folder.

Always true here: a file of a wheel is kept under its SHA-256 and is given out only if it still
has it; anything that can't be read counts as not there, anything that can't be written is left.
Removing the folder loses nothing but time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from vllm_patcher import digests
from vllm_patcher.replacing import replace_file


class Cache:
    """A folder of the cache; ``folder`` is where, "" keeps nothing.

    ``trouble`` says why something could not be kept, "" if all was.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.trouble = ""

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> Cache:
        """The user's own, by the rules of the XDG base folders."""
        home = environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(home):
            home = os.path.join(os.path.expanduser("~"), ".cache")
        # A user without a name has no home, and the current folder is none.
        return cls(os.path.join(home, "vllm-patcher") if os.path.isabs(home) else "")

    def blob(self, sha256: str) -> bytes | None:
        """The bytes with this digest (hex), if they are here."""
        data = self._read("blobs", sha256[:2], sha256)
        return data if data is not None and digests.sha256(data) == sha256 else None

    def keep_blob(self, data: bytes) -> None:
        """Keep some bytes under their digest."""
        sha256 = digests.sha256(data)
        self._write(data, "blobs", sha256[:2], sha256)

    def note(self, kind: str, key: str) -> Any:
        """What was noted under a key: JSON of any form, None if there is nothing."""
        data = self._read(kind, _name(key))
        try:
            return None if data is None else json.loads(data)
        except (ValueError, RecursionError):
            return None

    def keep_note(self, kind: str, key: str, value: object) -> None:
        """Note a value under a key."""
        self._write(json.dumps(value).encode(), kind, _name(key))

    def _read(self, *names: str) -> bytes | None:
        if not self.folder:
            return None
        try:
            with open(os.path.join(self.folder, *names), "rb") as file:
                return file.read()
        except (OSError, ValueError):  # a note that is damaged may name anything
            return None

    def _write(self, data: bytes, *names: str) -> None:
        if not self.folder:
            return
        try:
            replace_file(os.path.join(self.folder, *names), data)
        except OSError as error:
            self.trouble = f"nothing can be kept in {self.folder}: {error.strerror or error}"


def _name(key: str) -> str:
    return digests.sha256(key.encode("utf-8", "surrogateescape"))
