"""A few files, laid out in a temporary folder for a probe or a verb to read.

Always true here: the folder is new, belongs to this user alone, and is gone afterwards.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def laid_out(files: Mapping[str, bytes | None], *, name: str = "vllm") -> Iterator[str]:
    """Lay files out by their paths in a folder of a name (None: no file); give the folder."""
    with tempfile.TemporaryDirectory(prefix="vllm-patcher-") as scratch:
        folder = os.path.join(scratch, name)
        os.mkdir(folder)
        for path, data in files.items():
            if data is not None:
                target = os.path.join(folder, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(data)
        yield folder
