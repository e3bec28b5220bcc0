"""Which installed distribution a `vllm` folder belongs to, and what that says of itself.

The owner is the distribution whose RECORD lists `vllm/__init__.py`; its name does not
matter, because vLLM is shipped under several. Only files beside the package are read, as
bytes, and nothing is imported or written. What is no regular file counts as missing.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from vllm_patcher import receipt
from vllm_patcher.errors import InvalidReceipt, InvalidRecord, NotInstalled, may_not_read
from vllm_patcher.record import RECORD, Record
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INIT = "vllm/__init__.py"
_SOURCE_MARKS = ("vllm.egg-info", ".git", "setup.py", "pyproject.toml")
_VERSION_FILES = ("_version.py", "version.py")
_VERSION_TEXT = rb"""(?m)^[ \t]*__version__[^'"=\n]*=[^'"\n]*['"]([^'"\n]+)['"]"""
_LIMIT = 1 << 16  # bytes; a version stands at the top of its file


class Distribution(Value):
    """One dist-info folder."""

    folder: str  # absolute
    record: bytes | None  # RECORD as it is on disk; None if there is none
    name: str
    version: str  # as METADATA has it; "" if that is missing


def owner(package: str) -> tuple[Distribution | None, tuple[str, ...]]:
    """Find the distribution that put a package folder there, and others that claim it too.

    `package` is absolute. Of several the one with more matching digests is the owner.
    Where no RECORD lists the package, a distribution without any RECORD counts if it names
    vllm. Raises NotInstalled if several are equally good, InvalidRecord if one of several
    can't be read.
    """
    site = os.path.dirname(package)
    listing: list[tuple[str, bytes]] = []
    unlisted: list[str] = []
    for folder in _dist_infos(site, must=True):
        of_vllm = os.path.basename(folder).startswith("vllm")
        record = _read(os.path.join(folder, RECORD), must=of_vllm)
        if record is None:
            unlisted.append(folder)
        elif _claims(record):
            listing.append((folder, record))
    if len(listing) > 1:
        listing = _ranked(listing, site=site)
    if listing:
        best, *rest = (_distribution(folder, record) for folder, record in listing)
        return best, tuple(f"{other.folder} claims {package} as well" for other in rest)
    named = [folder for folder in unlisted if _names_vllm(folder)]
    if len(named) > 1:
        raise _tie(package, named)
    return (_distribution(named[0], None) if named else None), ()


def version(package: str, *, owner: Distribution | None, path: Iterable[str]) -> tuple[str, str]:
    """Give the version of a package as written, and the file that says so.

    That is METADATA of the owner, or of the editable install on the import path that leads
    to the package, else the package's own text, which can lack a local part that METADATA
    has. The file is relative to the folder of the dist-info or of the package. Both are ""
    if nothing says a version.
    """
    says = owner or _leading_to(package, path)
    if says is not None and says.version:
        return says.version, f"{os.path.basename(says.folder)}/METADATA"
    for name in _VERSION_FILES:
        found = re.search(_VERSION_TEXT, (_read(os.path.join(package, name)) or b"")[:_LIMIT])
        if found:
            return found[1].decode("utf-8", "replace").strip(), f"vllm/{name}"
    return "", ""


def source_tree(package: str, *, owner: Distribution | None, path: Iterable[str]) -> str:
    """Say why a package's files are somebody's source tree, or "" if they are not.

    `path` is the import path on which an editable install may be. Links of single files
    are none: uv links them into its cache.
    """
    site = os.path.dirname(package)
    if any(part.startswith("__editable__") for part in package.split(os.sep)):
        return f"{package} is a folder of links into a source tree"
    if os.path.islink(package):
        return f"{package} is a link to {os.path.realpath(package)}"
    installed = owner or _leading_to(package, path)
    if installed is not None:
        source = _editable_source(installed.folder)
        named = os.path.join(installed.folder, "direct_url.json")
        return f"{named} names the source tree {source}" if source else ""
    for mark in _SOURCE_MARKS:
        if os.path.exists(os.path.join(site, mark)):
            return f"{site} is a source tree: it holds {mark}"
    return ""


def _leading_to(package: str, path: Iterable[str]) -> Distribution | None:
    real = os.path.realpath(package)
    for entry in path:
        for folder in _dist_infos(entry):
            source = _editable_source(folder)
            if source and real.startswith(os.path.join(os.path.realpath(source), "")):
                return _distribution(folder, None)
    return None


def _claims(record: bytes) -> bool:
    wanted = _INIT.encode()
    if record.startswith(wanted + b",") or b"\n" + wanted + b"," in record:
        return True
    # Rare: another spelling of the path, or a file of that name deeper in another package.
    if wanted not in record:
        return False
    try:
        return Record.parse(record).lists(_INIT)
    except InvalidRecord:
        return False


def _ranked(listing: list[tuple[str, bytes]], *, site: str) -> list[tuple[str, bytes]]:
    records = [Record.parse(data, name=os.path.join(folder, RECORD)) for folder, data in listing]
    scores = [0] * len(records)
    # Patched files match nobody's digests.
    patched = {path for folder, _ in listing for path in _touched(folder)}
    listed = {path for record in records for path in record.paths() if path[:5] == "vllm/"}
    for path in listed - patched:
        if len({record.digest(path) for record in records}) == 1:
            continue  # it can't tell them apart, so it need not be read
        data = _read(os.path.join(site, path))
        for index, record in enumerate(records):
            scores[index] += data is not None and record.matches(path, data) is True
    # Of two that are equal otherwise, who has been patched before stays the owner.
    ours = [os.path.isfile(os.path.join(folder, receipt.NAME)) for folder, _ in listing]
    order = sorted(range(len(records)), key=lambda index: (-scores[index], not ours[index]))
    first, second = ((scores[index], ours[index]) for index in order[:2])
    if first == second:
        tied = [listing[index][0] for index in order if scores[index] == scores[order[0]]]
        raise _tie(os.path.join(site, "vllm"), tied)
    return [listing[index] for index in order]


def _touched(folder: str) -> set[str]:
    """The files, as RECORD writes them, that the receipt of a distribution is about."""
    path = os.path.join(folder, receipt.NAME)
    try:
        entries = receipt.load(_read(path), path=path)
    except InvalidReceipt:
        return set()
    return {f"vllm/{name}" for entry in entries for place in entry.places for name in place}


def _tie(package: str, folders: list[str]) -> NotInstalled:
    return NotInstalled(
        f"{len(folders)} distributions claim {package}, and its files do not tell whose they are",
        facts=folders,
        hint="uninstall all but one of them and install that one again",
    )


def _names_vllm(folder: str) -> bool:
    top_level = _read(os.path.join(folder, "top_level.txt")) or b""
    return b"vllm" in top_level.split() or _distribution(folder, None).name.lower() == "vllm"


def _distribution(folder: str, record: bytes | None) -> Distribution:
    metadata = _read(os.path.join(folder, "METADATA"), must=record is not None) or b""
    header = re.split(rb"\r?\n\r?\n", metadata, maxsplit=1)[0]
    # The folder's name is NAME-VERSION.dist-info with the name's dashes turned to underscores.
    by_folder = os.path.basename(folder).partition("-")[0]
    return Distribution(
        folder=folder,
        record=record,
        name=_field(header, "name") or by_folder,
        version=_field(header, "version"),
    )


def _field(header: bytes, name: str) -> str:
    for line in header.decode("utf-8", "replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.lower() == name:
            return value.strip()
    return ""


def _editable_source(folder: str) -> str:
    data = _read(os.path.join(folder, "direct_url.json"))
    if data is None or b'"editable"' not in data:  # spares most installs two slow imports
        return ""
    import json
    from urllib.parse import unquote, urlsplit

    try:
        value = json.loads(data)
        is_editable = value["dir_info"]["editable"] is True
        return unquote(urlsplit(value["url"]).path) if is_editable else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _dist_infos(site: str, *, must: bool = False) -> Iterator[str]:
    """Give the dist-infos of a folder; one that may not be listed has none, unless it ``must``."""
    try:
        names = sorted(os.listdir(site))
    except OSError as error:
        _check(error, site, must=must)
        return
    # What begins with ~ pip has put aside, and forgotten when it was killed.
    real = (name for name in names if name.endswith(".dist-info") and name[0] != "~")
    yield from (os.path.join(site, name) for name in real)


def _read(path: str, *, must: bool = False) -> bytes | None:
    """Read a file, None if there is none or it may not be read, unless that ``must`` be said."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError as error:
        _check(error, path, must=must)
        return None


def _check(error: OSError, path: str, *, must: bool) -> None:
    if must and isinstance(error, PermissionError):
        raise may_not_read(path, error) from error


def _without_waiting(path: str, flags: int) -> int:
    # A FIFO in the place of a file may have nobody who ever writes to it.
    return os.open(path, flags | os.O_NONBLOCK)
