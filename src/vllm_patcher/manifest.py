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
from typing import TYPE_CHECKING

from vllm_patcher import versions
from vllm_patcher.digests import sha256
from vllm_patcher.errors import InvalidCatalog
from vllm_patcher.request import KINDS
from vllm_patcher.tables import Files, Table
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "manifest.toml"
SCHEMA = 1

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]+")
_CVE = re.compile(r"CVE-[0-9]{4}-[0-9]{4,}")
_TOML_LINE = r"\s*\(at line ([0-9]+), column [0-9]+\)$"


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
    files = Files(folder)
    table = Table(document, path, files, problems)
    before = len(problems)
    if table.value("schema", int) != SCHEMA and len(problems) == before:
        table.problem(f"schema must be {SCHEMA}, the only one this version knows")
    patches = []
    ids: set[str] = set()
    for number, raw in enumerate(table.tables("patch"), 1):
        name = raw.get("id")
        shown = repr(name) if isinstance(name, str) else str(number)
        entry = Table(raw, f"{path}: patch {shown}", files, problems)
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


def _patch(entry: Table) -> Patch | None:
    """Read one entry; None if any problem was found in it."""
    before = len(entry.problems)
    affects = entry.specifier("affects", default=None)
    patch = Patch(
        id=entry.text("id", _ID, "must be words of a-z and 0-9, joined by single hyphens"),
        title=entry.text("title", _ONE_LINE, "must be one line"),
        kind=entry.choice("kind", KINDS),
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


def _variants(entry: Table, affects: str) -> tuple[Variant, ...]:
    before = len(entry.problems)
    variants = []
    for number, raw in enumerate(entry.tables("variant"), 1):
        part = Table(raw, f"{entry.where}, variant {number}", entry.files, entry.problems)
        variant = Variant(
            vllm=part.specifier("vllm", default=affects),
            diff=part.file("diff"),
            sha256=part.sha256("sha256"),
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
