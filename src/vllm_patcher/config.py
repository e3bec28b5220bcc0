"""What a project wants of its vLLM, as a file beside the project or the environment says it.

Always true here: only the current folder is looked into, never one above, and a file that belongs
to neither this user nor root is not obeyed. A key that is not known or not right is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher.digests import is_sha256
from vllm_patcher.errors import InvalidCatalog, InvalidConfig, like
from vllm_patcher.files import absolute
from vllm_patcher.manifest import read_toml
from vllm_patcher.request import DIFF_SUFFIXES
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "vllm-patch.toml"
PROJECT = "pyproject.toml"
TABLE = "vllm-patch"
_OTHER_NAMES = ("vllm-patcher", "vllm_patch", "vllm_patcher")
VARIABLE = "VLLM_PATCH_CONFIG"
PATCHES = "VLLM_PATCH_PATCHES"

_WITHOUT = "run vllm-patch in another folder, or with --no-config"
#: The words of a variable for yes and for no; the inputs of the GitHub Action take the same.
YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")


class Config(Value):
    """What is wanted; ``where`` is the file that says so, "" if none does.

    ``patches`` are ids, or absolute paths of diff files; ``catalogs`` are absolute folders;
    ``builtin`` adds the built-in one. ``revisions`` pins patches of a catalog: id to the SHA-256
    (hex) of the diff. ``strict`` and ``exact`` are the options of that name.
    """

    where: str = ""
    patches: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()
    builtin: bool = True
    revisions: Mapping[str, str] = {}
    strict: bool = False
    exact: bool = False


def read(folder: str, environ: Mapping[str, str]) -> Config:
    """Read what a folder and the environment say; the environment is the stronger.

    ``folder`` is absolute, "" for none. Raises InvalidConfig.
    """
    config = _from_file(folder, environ)
    named = environ.get(PATCHES, "").split()
    if named:
        where = f"{PATCHES} and {config.where}" if config.where else PATCHES
        config = config.replaced(patches=tuple(named), where=where)
    for key in ("strict", "exact"):
        variable = f"VLLM_PATCH_{key.upper()}"
        word = environ.get(variable, "").strip()
        if word:
            config = config.replaced(**{key: _is_yes(variable, word)})
    return config


def _is_yes(variable: str, word: str) -> bool:
    if word.lower() not in YES + NO:
        raise InvalidConfig(f"{variable} is {word!r}, which is none of {', '.join(YES + NO)}")
    return word.lower() in YES


def _from_file(folder: str, environ: Mapping[str, str]) -> Config:
    named = environ.get(VARIABLE, "")
    if named:
        if not os.path.isfile(named):
            raise InvalidConfig(f"{named}: there is no such file", facts=[f"{VARIABLE} names it"])
        path = absolute(named)
        return _read(path, os.path.basename(path) == PROJECT)
    for name in (FILE, PROJECT):
        path = os.path.join(folder, name)
        if folder and (_is_there(path) if name == FILE else _may_hold_a_table(path)):
            config = _read(path, name == PROJECT)
            if config.where:
                return config
    return Config()


def _is_there(path: str) -> bool:
    """Say whether there is something of the name; it must be a file then. Raises InvalidConfig."""
    if not os.path.lexists(path):
        return False
    if not os.path.isfile(path):
        raise InvalidConfig(f"{path} is no file that can be read", hint=_WITHOUT)
    return True


def _may_hold_a_table(path: str) -> bool:
    """Spare the usual project that another file is parsed for nothing."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            data = file.read()
            return any(name.encode() in data for name in (TABLE, *_OTHER_NAMES))
    except OSError:
        return False


def _read(path: str, is_project: bool) -> Config:  # noqa: FBT001 - private, and called by place
    try:
        document = read_toml(path)
    except InvalidCatalog as error:
        raise InvalidConfig(error.what, facts=error.facts, hint=_WITHOUT) from error
    table = _of_project(path, document) if is_project else document
    if table is None:
        return Config()
    _check_owner(path)
    if not isinstance(table, dict):
        raise _wrong(path, f"tool.{TABLE} must be a table")
    return _of_table(path, table)


def _of_project(path: str, document: Mapping[str, object]) -> object:
    """The table in a project's file, None if it has none. Raises InvalidConfig for a wrong name."""
    tool = document.get("tool")
    tables = tool if isinstance(tool, dict) else {}
    for name in _OTHER_NAMES:
        if name in tables:
            raise _wrong(path, f"[tool.{name}] must be called [tool.{TABLE}]")
    return tables.get(TABLE)


def _check_owner(path: str) -> None:
    owner = os.stat(path).st_uid
    if owner not in (0, os.geteuid()):
        raise InvalidConfig(
            f"{path} belongs to uid {owner}, so it is not obeyed",
            hint=_WITHOUT,
        )


def _of_table(path: str, table: Mapping[str, object]) -> Config:
    home = os.path.dirname(path)
    unknown = sorted(set(table) - set(Config._fields) | (set(table) & {"where"}))
    if unknown:
        keys = [field for field in Config._fields if field != "where"]
        meant = [f"{key}, did you mean {word}?" for key in unknown for word in like(key, keys)[:1]]
        raise _wrong(path, f"unknown key {', '.join(unknown)}", *meant)
    flags = {key: _flag(path, table, key) for key in ("builtin", "strict", "exact") if key in table}
    return Config(
        where=path,
        patches=tuple(_patch(home, item) for item in _texts(path, table, "patches")),
        catalogs=tuple(os.path.join(home, item) for item in _texts(path, table, "catalogs")),
        revisions=_revisions(path, table.get("revisions", {})),
        **flags,
    )


def _patch(home: str, item: str) -> str:
    return os.path.join(home, item) if item.endswith(DIFF_SUFFIXES) else item


def _flag(path: str, table: Mapping[str, object], key: str) -> bool:
    value = table[key]
    if not isinstance(value, bool):
        raise _wrong(path, f"{key} must be true or false")
    return value


def _texts(path: str, table: Mapping[str, object], key: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise _wrong(path, f"{key} must be a list of texts")
    return value


def _revisions(path: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(path, "revisions must be a table")
    pins = value
    for name, digest in pins.items():
        if not isinstance(digest, str) or not is_sha256(digest):
            raise _wrong(
                path, f"revisions.{name} must be the sha256 of a diff, 64 hex digits in lower case"
            )
    return pins


def _wrong(path: str, fact: str, *more: str) -> InvalidConfig:
    return InvalidConfig("the configuration can't be used", facts=[f"{path}: {fact}", *more])
