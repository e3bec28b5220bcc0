"""Write a file of the user's, never one of an install, so that it is whole or as it was.

Always true here: nobody reads half of it, and a write that failed leaves nothing behind.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress


def replace_file(path: str, data: bytes) -> None:
    """Replace a file, or make it with its folders. Raises OSError.

    What is behind a link is replaced, not the link, and keeps its mode.
    """
    path = os.path.realpath(path)
    # Others may write the same; each has a name of its own until it is whole.
    part = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "wb") as file:
            file.write(data)
        with suppress(FileNotFoundError):
            os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
