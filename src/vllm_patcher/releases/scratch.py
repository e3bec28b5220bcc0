"""A package of a few files, laid out in a temporary folder for a probe to look at.

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
def laid_out(files: Mapping[str, bytes | None]) -> Iterator[str]:
    """Lay files out by their paths in the package (None: no file); give the package's folder."""
    with tempfile.TemporaryDirectory(prefix="vllm-patcher-") as folder:
        package = os.path.join(folder, "vllm")
        os.mkdir(package)
        for path, data in files.items():
            if data is not None:
                target = os.path.join(package, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(data)
        yield package
