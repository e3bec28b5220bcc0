"""What is in a folder that has no vLLM to be used: what is left of one, or leads elsewhere.

Always true here: nothing is chosen, and what this user may not see is not taken for absent.
"""

from __future__ import annotations

import os

from vllm_patcher import files
from vllm_patcher.errors import may_not_read
from vllm_patcher.record import RECORD


def namespace(found_by: str, *folders: str) -> str:
    """Say of folders of the name that they are no package, and what to do."""
    for folder in folders:
        origin = os.path.join(folder, "__init__.py")
        check_access(origin)
        if os.path.islink(origin):
            return f"{found_by}: {origin} is a link that leads nowhere; reinstall this vLLM"
    return f"{found_by}: {', '.join(folders)} has no __init__.py, so it is no vLLM; remove it"


def check_access(path: str, *, follow_links: bool = True) -> None:
    """Refuse to take what this user may not see for what is not there."""
    try:
        os.stat(path, follow_symlinks=follow_links)
    except PermissionError as error:
        raise may_not_read(path, error) from error
    except OSError:
        return


def are_in(site: str) -> bool:
    """Say whether a folder has something of a vLLM, or can't be looked into."""
    if not files.is_absent(os.path.join(site, "vllm")):
        return True
    try:
        names = os.listdir(site)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    infos = [name for name in names if name.startswith("vllm") and name.endswith(".dist-info")]
    return any(_lists_vllm(os.path.join(site, name, RECORD)) for name in infos)


def _lists_vllm(record: str) -> bool:
    try:
        with open(record, "rb") as file:
            return b"vllm/__init__.py," in file.read()
    except OSError:
        return True


def lack(site: str) -> list[str]:
    """Say why there can be no vLLM in a folder, if that can be told."""
    try:
        os.stat(site)
    except OSError as error:
        return [f"{site}: {error.strerror}"]
    return [] if os.path.isdir(site) else [f"{site} is no folder"]


def traces(site: str) -> list[str]:
    """Say what in a folder leads to a vLLM elsewhere."""
    try:
        names = sorted(os.listdir(site))
    except OSError:
        return []
    return [
        f"{os.path.join(site, name)}: an editable install leads elsewhere"
        for name in names
        if name == "vllm.egg-link" or name.startswith(("__editable__.vllm", "__editable___vllm"))
    ]
