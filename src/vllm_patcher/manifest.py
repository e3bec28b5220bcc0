"""The manifest of a catalog: its entries as types, read strictly.

A patch that is returned from here has had each of its keys checked: known, of the right
type, of the right form, and each file it names is there and inside the catalog's folder.
Problems are collected, not raised, so that a manifest is read whole; each names the manifest
and the entry. What entries say about each other is checked in :mod:`vllm_patcher.catalog`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, TypeVar

from vllm_patcher.values import Value

from . import versions
from .digests import is_sha256, sha256
from .errors import InvalidCatalog, like

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = "manifest.toml"
SCHEMA = 1
KINDS = ("crash", "leak", "security", "compat", "wrong-result")

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]+")
_CVE = re.compile(r"CVE-[0-9]{4}-[0-9]{4,}")
_NO_NAMES = frozenset({"", ".", ".."})
_TOML_LINE = r"\s*\(at line ([0-9]+), column [0-9]+\)$"

_T = TypeVar("_T")


class Variant(Value):
    """One diff of a patch: the releases it is for, its path in the catalog, its digest."""

    vllm: str
    diff: str
    sha256: str


class Patch(Value):
    """One entry of a manifest. ``folder`` is the catalog's folder, absolute.

    ``reads`` are paths in the package that its probe reads besides those its diffs touch.
    """

    id: str
    title: str
    kind: str
    affects: str
    folder: str
    variants: tuple[Variant, ...]
    references: tuple[str, ...] = ()
    probe: str | None = None
    default: bool = True
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    cve: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    note: str = ""

    @property
    def probe_path(self) -> str | None:
        """The probe's absolute path, or None if the entry has none."""
        return None if self.probe is None else os.path.join(self.folder, self.probe)

    def diff_path(self, variant: Variant) -> str:
        """Return the absolute path of the diff of VARIANT."""
        return os.path.join(self.folder, variant.diff)

    def diff_bytes(self, variant: Variant) -> bytes:
        """Read the diff of VARIANT. Raises InvalidCatalog unless it has the manifest's digest."""
        data = read_file(self.diff_path(variant))
        found = sha256(data)
        if found != variant.sha256:
            raise InvalidCatalog(
                f"the diff of patch {self.id!r} is not the one that its manifest describes",
                facts=[
                    f"{self.diff_path(variant)}: sha256 is {found}",
                    f"{os.path.join(self.folder, NAME)}: expected {variant.sha256}",
                ],
            )
        return data


def read_file(path: str) -> bytes:
    """Read a file of a catalog. Raises InvalidCatalog if that fails."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidCatalog(
            "a file can't be read", facts=[f"{path}: {error.strerror or error}"]
        ) from error


def read(folder: str, problems: list[str]) -> tuple[list[Patch], set[str]]:
    """Return the entries of the manifest in FOLDER that are good, and the ids of all.

    What is wrong with the others is added to PROBLEMS.
    """
    path = os.path.join(folder, NAME)
    document = read_toml(path)
    files = _Files(folder)
    table = _Table(document, path, files, problems)
    before = len(problems)
    if table.value("schema", int) != SCHEMA and len(problems) == before:
        table.problem(f"schema must be {SCHEMA}, the only one this version knows")
    patches = []
    ids: set[str] = set()
    for number, raw in enumerate(table.tables("patch"), 1):
        name = raw.get("id")
        shown = repr(name) if isinstance(name, str) else str(number)
        entry = _Table(raw, f"{path}: patch {shown}", files, problems)
        if isinstance(name, str) and name in ids:
            entry.problem("the id is used twice")
        elif patch := _patch(entry):
            patches.append(patch)
        if isinstance(name, str):
            ids.add(name)
    table.finish()
    return patches, ids


def read_toml(path: str) -> dict[str, object]:
    """Read a TOML file. Raises InvalidCatalog."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(read_file(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        fact = f"{path}: byte {error.start} is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        at = re.search(_TOML_LINE, text)
        fact = f"{path}:{at[1]}: {text[: at.start()]}" if at else f"{path}: {text}"
    except (ValueError, RecursionError) as error:  # endless digits, endless brackets
        fact = f"{path}: {error}"
    raise InvalidCatalog(f"{os.path.basename(path)} is not TOML", facts=[fact])


def _patch(entry: _Table) -> Patch | None:
    """Read one entry; None if any problem was found in it."""
    before = len(entry.problems)
    affects = entry.specifier("affects", default=None)
    patch = Patch(
        id=entry.text("id", _ID, "must be words of a-z and 0-9, joined by single hyphens"),
        title=entry.text("title", _ONE_LINE, "must be one line"),
        kind=entry.kind(),
        affects=affects,
        folder=entry.files.folder,
        references=entry.texts("references"),
        probe=entry.file("probe") if "probe" in entry.raw else None,
        default=entry.value("default", bool, default=True),
        requires=entry.texts("requires"),
        conflicts=entry.texts("conflicts"),
        cve=entry.texts("cve", _CVE, "must look like CVE-2025-12345", single=True),
        skip=entry.texts("skip"),
        reads=entry.paths("reads"),
        note=entry.value("note", str, default=""),
        variants=_variants(entry, affects),
    )
    entry.finish()
    return patch if len(entry.problems) == before else None


def _variants(entry: _Table, affects: str) -> tuple[Variant, ...]:
    before = len(entry.problems)
    variants = []
    for number, raw in enumerate(entry.tables("variant"), 1):
        part = _Table(raw, f"{entry.where}, variant {number}", entry.files, entry.problems)
        variant = Variant(
            vllm=part.specifier("vllm", default=affects),
            diff=part.file("diff"),
            sha256=part.sha256(),
        )
        part.finish()
        variants.append(variant)
    if not variants:
        entry.problem("it has no variant, so there is nothing to apply")
    if affects and len(entry.problems) == before:
        entry.problems += _range_problems(entry.where, affects, variants)
    return tuple(variants)


def _range_problems(where: str, affects: str, variants: Sequence[Variant]) -> Iterator[str]:
    """Compare ranges; this is the costly part, so nothing is asked that text can answer."""
    for number, variant in enumerate(variants, 1):
        if variant.vllm != affects and not versions.within(variant.vllm, affects):
            yield f"{where}, variant {number}: {variant.vllm!r} goes beyond affects {affects!r}"
        for other, earlier in enumerate(variants[: number - 1], 1):
            if versions.overlap(earlier.vllm, variant.vllm):
                yield (
                    f"{where}, variant {number}: {variant.vllm!r} overlaps {earlier.vllm!r}"
                    f" of variant {other}"
                )


class _Table:
    """One table of a manifest: takes keys out one by one and notes what is wrong.

    A getter that finds a problem returns a harmless value, so that reading can go on.
    """

    def __init__(
        self, raw: Mapping[str, object], where: str, files: _Files, problems: list[str]
    ) -> None:
        self.raw = raw
        self.where = where
        self.files = files
        self.problems = problems
        self._known: set[str] = set()

    def problem(self, text: str) -> None:
        self.problems.append(f"{self.where}: {text}")

    def finish(self) -> None:
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
        before = len(self.problems)
        value = self.value(key, str)
        if len(self.problems) == before:
            if not value.strip():
                self.problem(f"{key} is empty")
            elif pattern and not pattern.fullmatch(value):
                self.problem(f"{key} {value!r} {rule}")
        return value

    def sha256(self) -> str:
        before = len(self.problems)
        value = self.text("sha256")
        if len(self.problems) == before and not is_sha256(value):
            self.problem(f"sha256 {value!r} must be 64 hex digits in lower case")
        return value

    def kind(self) -> str:
        value = self.text("kind")
        if value and value not in KINDS:
            self.problem(f"kind {value!r} must be one of {', '.join(KINDS)}")
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
        values = self.value(key, list, default=[])
        for value in values:
            if not isinstance(value, dict):
                self.problem(f"{key} must hold tables ([[…{key}]]), not {_name_of(value)}")
        return [value for value in values if isinstance(value, dict)]

    def specifier(self, key: str, default: str | None) -> str:
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


class _Files:
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
