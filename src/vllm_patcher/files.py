"""What the file system says of a path, as far as this user may see.

Always true here: only looks; what can't be seen is not taken for absent.
"""

from __future__ import annotations

import os

TEMPORARY = ".vllm-patcher-tmp"
"""So the names of files end that are being written."""


def is_absent(path: str) -> bool:
    """Say whether there is surely nothing; a disk that does not answer is no such sign."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a NUL in its name
        return True
    except OSError:
        return False
    return False


def identity(path: str) -> object:
    """Name a file or folder by what it is, not by how it was reached."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino


def is_temporary(name: str) -> bool:
    """Say whether a file of this name is a temporary of ours."""
    return name.startswith(".") and name.endswith(TEMPORARY)


def absolute(path: str) -> str:
    """Make a path absolute as the system reads it, with the links in it as they are.

    But for those before a `..`: that leads to what is above the target of a link.
    """
    parts = path.split("/")
    if ".." not in parts:
        return os.path.abspath(path)
    behind = len(parts) - parts[::-1].index("..")
    head = os.path.realpath("/".join(parts[:behind]))
    return os.path.abspath(os.path.join(head, *parts[behind:]))
