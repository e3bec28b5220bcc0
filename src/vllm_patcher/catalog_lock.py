"""Write the lock of a catalog: the digests that its patches have on the released files.

Always true here: the same digests give the same bytes; the old lock is replaced whole or stays.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from vllm_patcher.catalog import LOCK, SCHEMA
from vllm_patcher.replacing import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_patcher.catalog import Change


def text(locked: Mapping[str, Mapping[str, Mapping[str, Change]]]) -> bytes:
    """The lock of some patches: by id, release and path."""
    patches = {
        name: {
            release: {
                name: {"before": change.before, "after": change.after}
                for name, change in files.items()
            }
            for release, files in releases.items()
        }
        for name, releases in locked.items()
    }
    document = {"schema": SCHEMA, "patches": patches}
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def path(folder: str) -> str:
    """Where the catalog in a folder has its lock."""
    return os.path.join(folder, LOCK)


def read(folder: str) -> bytes | None:
    """Read the lock of the catalog in a folder, None if there is none. Raises OSError."""
    try:
        with open(path(folder), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(folder: str, data: bytes) -> bool:
    """Write the lock of the catalog in a folder; return whether it was another. Raises OSError."""
    if read(folder) == data:
        return False
    replace_file(path(folder), data)
    return True
