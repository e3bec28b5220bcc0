"""The catalog as lists and entries, for people and for programs.

Always true here: catalog patches go in, lines come out; nothing is printed and no vLLM is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from . import catalog, versions
from .catalog import Patch
from .errors import UnsupportedVersion

_SCHEMA = 1


class Row(NamedTuple):
    """One patch of a list; ``answer`` says what it is to one release, "" if none was asked."""

    patch: Patch
    answer: str


class Entry(NamedTuple):
    """One patch whole: its manifest entry (None: it is in no catalog) and its diffs.

    Each diff comes with the specifier of the releases it is for.
    """

    patch: Patch | None
    diffs: tuple[tuple[str, bytes], ...]


def rows(patches: Iterable[Patch], release: str | None) -> list[Row]:
    """List patches, and say what each is to a release."""
    return [
        Row(patch=patch, answer="" if release is None else _answer(patch, release))
        for patch in patches
    ]


def _answer(patch: Patch, release: str) -> str:
    standing = versions.judge(release, patch.affects)
    if standing == "out":
        return "not affected"
    if standing == "in":
        return "affected" if catalog.choose(patch, release) else "affected, no variant"
    return "decided by its files"


def text(rows: Sequence[Row], release: str | None) -> Iterator[str]:
    """Yield a line a patch."""
    width = max((len(row.patch.id) for row in rows), default=0)
    spec = max((len(row.patch.affects) for row in rows), default=0)
    for row in rows:
        patch = row.patch
        marks = "" if patch.default else "  (not by default)"
        answer = f"{row.answer:<22}" if release is not None else ""
        yield (
            f"{patch.id:<{width}}  {answer}{patch.affects:<{spec}}  {patch.kind:<12}  "
            f"{patch.title}{marks}"
        )
    if release is not None:
        count = sum(row.answer.startswith("affected") for row in rows)
        yield f"vLLM {release} is affected by {count} of {len(rows)}"


def document(rows: Sequence[Row], release: str | None) -> dict[str, Any]:
    """Build the JSON of a list."""
    patches = [
        {**_entry(row.patch), **({} if release is None else {"for": row.answer})} for row in rows
    ]
    return {"schema": _SCHEMA, "verb": "list", "ok": True, "version": release, "catalog": patches}


def entry(patch: Patch, release: str | None) -> Entry:
    """Take an entry with all its diffs, or with the one for a release.

    Raises UnsupportedVersion if there is none for it.
    """
    variants = patch.variants if release is None else catalog.candidates(patch, release)
    if not variants:
        raise UnsupportedVersion(
            f"{patch.id} has no variant for vLLM {release}",
            facts=[f"it has one for {variant.vllm}" for variant in patch.variants],
            hint=f"vllm-patch show {patch.id}",
        )
    diffs = tuple((variant.vllm, patch.diff_bytes(variant)) for variant in variants)
    return Entry(patch=patch, diffs=diffs)


def entry_text(entry: Entry) -> Iterator[str]:
    """Yield the lines of an entry, without its diffs."""
    if entry.patch is None:
        return
    for key, value in _entry(entry.patch).items():
        shown = ", ".join(value) if isinstance(value, list) else value
        if shown not in ("", None):
            yield f"{key:<11} {shown}"
    for specifier, _text in entry.diffs:
        yield f"{'diff for':<11} {specifier}"


def entry_document(name: str, entry: Entry) -> dict[str, Any]:
    """Build the JSON of an entry."""
    return {
        "schema": _SCHEMA,
        "verb": "show",
        "ok": True,
        "id": name,
        "entry": None if entry.patch is None else _entry(entry.patch),
        "diffs": [
            {"vllm": specifier or None, "diff": text.decode("utf-8", "backslashreplace")}
            for specifier, text in entry.diffs
        ],
    }


def _entry(patch: Patch) -> dict[str, Any]:
    return {
        "id": patch.id,
        "title": patch.title,
        "kind": patch.kind,
        "affects": patch.affects,
        "default": "yes" if patch.default else "no",
        "cve": list(patch.cve),
        "requires": list(patch.requires),
        "conflicts": list(patch.conflicts),
        "references": list(patch.references),
        "note": patch.note,
    }
