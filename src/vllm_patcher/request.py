"""What a run is asked for: the patches as they are named, and which vLLM is meant.

Always true here: a PATCH that is a file is read, and nothing of the install is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher.errors import InvalidPatch, UnknownPatch, like, pasted
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIFF_SUFFIXES = (".patch", ".diff")


class AdHoc(Value):
    """A diff that no catalog names: its id, its text, and where that came from, for messages."""

    id: str
    text: bytes
    where: str = ""


class Request(Value):
    """What to work with, for every verb.

    ``patches`` are catalog ids, ids of the receipt, paths of diff files, or diffs; none means
    all default patches of the catalog. ``catalogs`` are folders, ``builtin`` adds the built-in
    one. ``kinds`` and ``cves`` choose among the catalog's patches. ``python`` (an interpreter or
    the folder of an environment) or ``site_packages`` says which vLLM; ``assume_version`` says
    which version it is to be taken for. ``allow_editable`` lets a source tree be patched, and
    ``skip_outside`` leaves out what a diff changes outside the package. ``revisions`` pins patches
    of a catalog: id to the SHA-256 (hex) of the diff that must be meant. ``strict`` and ``exact``
    are for `verify` and `apply`; ``policy`` is what the request was read from, for messages.
    """

    patches: tuple[str | AdHoc, ...] = ()
    catalogs: tuple[str, ...] = ()
    builtin: bool = True
    kinds: tuple[str, ...] = ()
    cves: tuple[str, ...] = ()
    python: str | None = None
    site_packages: str | None = None
    assume_version: str | None = None
    allow_editable: bool = False
    skip_outside: bool = False
    revisions: Mapping[str, str] = {}
    strict: bool = False
    exact: bool = False
    policy: str = ""


def from_file(path: str, ids: Sequence[str]) -> AdHoc:
    """Read a diff file that was named as a PATCH; ``ids`` are those that it could have been.

    Raises UnknownPatch and InvalidPatch.
    """
    stem, suffix = os.path.splitext(os.path.basename(path))
    if os.path.isdir(path):
        is_catalog = os.path.isfile(os.path.join(path, "manifest.toml"))
        hint = pasted("vllm-patch", "apply", "--catalog", path) if is_catalog else None
        raise UnknownPatch(f"{path} is a folder", hint=hint)
    is_diff = suffix in DIFF_SUFFIXES
    if os.path.exists(path) and not os.path.isfile(path):
        # Such as what a shell makes of <(git diff).
        raise UnknownPatch(
            f"{path} is no plain file, so it gives the diff no id", hint="add --id NAME"
        )
    if not os.path.isfile(path) and not (is_diff and os.path.lexists(path)):
        close = [stem] if is_diff and stem in ids else like(path, ids)
        raise UnknownPatch(
            f"no patch {path!r}: there is neither such an id nor such a file",
            facts=[f"did you mean {name}?" for name in close],
            hint="vllm-patch list",
        )
    return AdHoc(id=stem, text=read_diff(path), where=path)


def read_diff(path: str) -> bytes:
    """Read a diff file of the user's. Raises InvalidPatch."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidPatch(f"{path} can't be read: {error.strerror}") from error
