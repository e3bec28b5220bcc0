"""What a run is asked for: the patches as they are named, and which vLLM is meant.

Always true here: a PATCH that is a file is read, and nothing of the install is; what can't be
meant is refused when the request is made, before anything is looked at.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_patcher.errors import InvalidPatch, UnknownPatch, like, pasted
from vllm_patcher.files import is_absent
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIFF_SUFFIXES = (".patch", ".diff")
KINDS = ("crash", "leak", "security", "compat", "wrong-result")


class AdHoc(Value):
    """A diff that no catalog names: its id, its text, and where that came from, for messages.

    Raises TypeError for a text that is not bytes.
    """

    id: str
    text: bytes
    where: str = ""

    def __init__(self, id: str, text: bytes, where: str = "") -> None:
        if not isinstance(text, bytes):
            raise TypeError(f"text: give bytes, as open(path, 'rb') reads them, not {_kind(text)}")
        super().__init__(id=_text("id", id), text=text, where=where)


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

    Paths may be given as `pathlib.Path`. Raises TypeError for one value where several are taken
    and for what is no text, ValueError for a kind that there is not and for ``kinds`` or ``cves``
    beside ``patches``.
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

    def __init__(
        self,
        patches: tuple[str | os.PathLike[str] | AdHoc, ...] = (),
        *,
        catalogs: tuple[str | os.PathLike[str], ...] = (),
        builtin: bool = True,
        kinds: tuple[str, ...] = (),
        cves: tuple[str, ...] = (),
        python: str | os.PathLike[str] | None = None,
        site_packages: str | os.PathLike[str] | None = None,
        assume_version: str | None = None,
        allow_editable: bool = False,
        skip_outside: bool = False,
        revisions: Mapping[str, str] | None = None,
        strict: bool = False,
        exact: bool = False,
        policy: str = "",
    ) -> None:
        super().__init__(
            patches=_several("patches", patches),
            catalogs=_several("catalogs", catalogs),
            builtin=builtin,
            kinds=_several("kinds", kinds),
            cves=_several("cves", cves),
            python=None if python is None else _text("python", python),
            site_packages=None if site_packages is None else _text("site_packages", site_packages),
            assume_version=assume_version,
            allow_editable=allow_editable,
            skip_outside=skip_outside,
            revisions=revisions or {},
            strict=strict,
            exact=exact,
            policy=policy,
        )
        _check_choice(self)


def _several(field: str, given: Any) -> tuple[Any, ...]:
    """Take several texts; one alone is not taken for its letters."""
    if isinstance(given, (str, bytes, os.PathLike, Value)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{field} are several: give a tuple of them, not one {_kind(given)}")
    own = AdHoc if field == "patches" else ()
    return tuple(item if isinstance(item, own) else _text(field, item) for item in given)


def _text(field: str, given: Any) -> str:
    """Take a text, or a path as one."""
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise TypeError(f"{field}: give a text, not {_kind(text)}")
    return text


def _kind(given: object) -> str:
    return "None" if given is None else type(given).__name__


def _check_choice(request: Request) -> None:
    """Refuse what would choose no patch, or other ones than were named."""
    for kind in request.kinds:
        if kind not in KINDS:
            raise ValueError(f"kinds: there is no kind {kind!r}, but {', '.join(KINDS)}")
    if request.patches and (request.kinds or request.cves):
        raise ValueError("kinds and cves choose patches: give no patches besides")


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
    is_path = is_diff or os.sep in path
    if not os.path.isfile(path) and (not is_path or is_absent(path)):
        close = [stem] if is_diff and stem in ids else like(path, ids)
        lack = "no such file" if is_path else "neither such an id nor such a file"
        raise UnknownPatch(
            f"no patch {path!r}: there is {lack}",
            facts=[f"did you mean {name}?" for name in close],
            hint=_where_it_may_be(path) if is_path else "vllm-patch list",
        )
    return AdHoc(id=stem, text=read_diff(path), where=path)


def _where_it_may_be(path: str) -> str:
    """Say how to come by a file that is not there."""
    if "://" in path:
        return pasted("curl", "-fLO", path)
    folder = os.path.dirname(path) or "."
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder) or "."
    return pasted("ls", folder)


def read_diff(path: str) -> bytes:
    """Read a diff file of the user's. Raises InvalidPatch."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidPatch(f"{path} can't be read: {error.strerror}") from error
