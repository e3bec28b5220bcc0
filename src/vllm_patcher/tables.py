"""Tables of a TOML file, read strictly: each key is taken out once, and what is wrong is noted.

Always true here: a getter that finds a problem returns a harmless value, so that reading goes on
and all problems are told at once; a file that is named is there and inside its folder.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from vllm_patcher import versions
from vllm_patcher.digests import is_sha256
from vllm_patcher.errors import InvalidCatalog, like

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

_NO_NAMES = frozenset({"", ".", ".."})

_T = TypeVar("_T")


class Table:
    """One table: ``where`` is what a problem in it begins with, ``files`` those it may name."""

    def __init__(
        self, raw: Mapping[str, object], where: str, files: Files, problems: list[str]
    ) -> None:
        self.raw = raw
        self.where = where
        self.files = files
        self.problems = problems
        self._known: set[str] = set()

    def problem(self, text: str) -> None:
        """Note something that is wrong."""
        self.problems.append(f"{self.where}: {text}")

    def finish(self) -> None:
        """Note the keys that nobody took."""
        for key in sorted(self.raw.keys() - self._known):
            meant = "".join(f"; did you mean {word}?" for word in like(key, self._known)[:1])
            self.problem(f"unknown key {key!r}{meant}")

    def value(self, key: str, kind: type[_T], *, default: _T | None = None) -> _T:
        """Take a value of just this type; without a default the key must be there."""
        self._known.add(key)
        if key not in self.raw:
            if default is not None:
                return default
            self.problem(f"{key} is missing")
            return kind()
        value = self.raw[key]
        # To isinstance, true is an integer.
        if isinstance(value, kind) and isinstance(value, bool) is (kind is bool):
            return value
        self.problem(f"{key} must be {_NAMES[kind]}, not {_name_of(value)}")
        return kind()

    def text(self, key: str, pattern: re.Pattern[str] | None = None, rule: str = "") -> str:
        """Take one text that is not empty, and that the whole of a pattern matches."""
        before = len(self.problems)
        value = self.value(key, str)
        if len(self.problems) == before:
            if not value.strip():
                self.problem(f"{key} is empty")
            elif pattern and not pattern.fullmatch(value):
                self.problem(f"{key} {value!r} {rule}")
        return value

    def sha256(self, key: str) -> str:
        """Take a digest."""
        before = len(self.problems)
        value = self.text(key)
        if len(self.problems) == before and not is_sha256(value):
            self.problem(f"{key} {value!r} must be 64 hex digits in lower case")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """Take one of some words."""
        value = self.text(key)
        if value and value not in allowed:
            self.problem(f"{key} {value!r} must be one of {', '.join(allowed)}")
        return value

    def texts(
        self,
        key: str,
        pattern: re.Pattern[str] | None = None,
        rule: str = "",
        *,
        single: bool = False,
    ) -> tuple[str, ...]:
        """Take a list of texts; with SINGLE, one text will do."""
        if single and isinstance(self.raw.get(key), str):
            return (self.text(key, pattern, rule),)
        values = self.value(key, list, default=[])
        for value in values:
            if not isinstance(value, str) or not value.strip():
                self.problem(f"{key} must hold texts that are not empty, not {value!r}")
            elif pattern and not pattern.fullmatch(value):
                self.problem(f"{key} {value!r} {rule}")
        texts = tuple(value for value in values if isinstance(value, str))
        if len(set(texts)) < len(texts):
            self.problem(f"{key} names something twice")
        return texts

    def paths(self, key: str) -> tuple[str, ...]:
        """Take a list of paths in the package."""
        paths = self.texts(key)
        for path in paths:
            if not is_plain(path):
                self.problem(f"{key} {path!r} must be a relative path with / inside the package")
        return paths

    def tables(self, key: str) -> list[dict[str, object]]:
        """Take a list of tables, as they are."""
        values = self.value(key, list, default=[])
        for value in values:
            if not isinstance(value, dict):
                self.problem(f"{key} must hold tables ([[…{key}]]), not {_name_of(value)}")
        return [value for value in values if isinstance(value, dict)]

    def specifier(self, key: str, default: str | None) -> str:
        """Take a range of versions in which there can be a release."""
        if key not in self.raw and default is not None:
            self._known.add(key)
            return default
        before = len(self.problems)
        text = self.value(key, str)
        if len(self.problems) == before:
            try:
                versions.check(text)
            except InvalidCatalog as error:
                self.problem(f"{key} {text!r} is no version specifier: {error.facts[0]}")
                return ""
            if versions.is_empty(text):
                self.problem(f"{key} {text!r}: no release can be in it")
        return text

    def file(self, key: str) -> str:
        """Take the path of a file inside the catalog's folder, relative and in posix form."""
        before = len(self.problems)
        path = self.text(key)
        if len(self.problems) == before and (problem := self.files.problem(path)):
            self.problem(f"{key} {path!r} {problem}")
        return path


_NAMES: Mapping[type, str] = {
    bool: "true or false",
    int: "an integer",
    list: "a list",
    str: "a text",
}


def _name_of(value: object) -> str:
    return "a table" if isinstance(value, dict) else _NAMES.get(type(value), type(value).__name__)


class Files:
    """The files of a catalog's folder, of which none may lie outside."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._straight = {""}

    def problem(self, path: str) -> str:
        """Say what is wrong with a manifest's PATH, or nothing."""
        if not is_plain(path):
            return "must be a relative path with / that stays inside the catalog's folder"
        full = os.path.join(self.folder, path)
        if not os.path.isfile(full):
            return "is not there" if not os.path.lexists(full) else "is not a file"
        if self._has_link(path):
            home = os.path.realpath(self.folder)
            if os.path.commonpath([home, os.path.realpath(full)]) != home:
                return "leads out of the catalog's folder through a symbolic link"
        return ""

    def _has_link(self, path: str) -> bool:
        """Say whether a path goes through a link below the folder; to resolve it costs more."""
        passed = []
        while path not in self._straight:
            if os.path.islink(os.path.join(self.folder, path)):
                return True
            passed.append(path)
            path = os.path.dirname(path)
        self._straight.update(passed)
        return False


def is_plain(path: str) -> bool:
    """Tell whether PATH is relative, normalised and without a backslash."""
    odd = "\\" in path or "\0" in path or "\n" in path
    return not odd and _NO_NAMES.isdisjoint(path.split("/"))
