"""The catalog as lists and entries, for people and for programs.

Always true here: catalog patches go in, lines come out; nothing is printed and no vLLM is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vllm_patcher import catalog, versions
from vllm_patcher.errors import UnsupportedVersion, pasted
from vllm_patcher.schema import SCHEMA
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.chart import Band
    from vllm_patcher.manifest import Patch

AFFECTED = "affected"
NO_VARIANT = "affected-no-diff"
NOT_AFFECTED = "not-affected"
BY_FILES = "by-files"

_WORDS = {
    AFFECTED: "affected",
    NO_VARIANT: "affected, no diff",
    NOT_AFFECTED: "not affected",
    BY_FILES: "its files decide",
}


class Row(Value):
    """One patch of a list; ``answer`` says what it is to one release, "" if none was asked.

    It is ``affected``, ``affected-no-diff``, ``not-affected``, or ``by-files``: a build between
    releases, whose files decide.
    """

    patch: Patch
    answer: str


class Entry(Value):
    """One patch whole: its manifest entry (None: it is in no catalog) and its diffs.

    Each diff comes with the specifier of the releases it is for.
    """

    patch: Patch | None
    diffs: tuple[tuple[str, bytes], ...]


def rows(patches: Iterable[Patch], release: str | None) -> list[Row]:
    """List patches, and say what each is to a release.

    Raises UnsupportedVersion if the release says nothing about its code.
    """
    if release is not None:
        versions.check_asked(release)
    return [
        Row(patch=patch, answer="" if release is None else _answer(patch, release))
        for patch in patches
    ]


def _answer(patch: Patch, release: str) -> str:
    standing = versions.judge(release, patch.affects)
    if standing == "out":
        return NOT_AFFECTED
    if standing == "in":
        return AFFECTED if catalog.choose(patch, release) else NO_VARIANT
    return BY_FILES


def text(rows: Sequence[Row], release: str | None, *, columns: int = 10**6) -> Iterator[str]:
    """Yield two lines a patch, and one that sums up if a release was asked about.

    Titles are wrapped where the terminal has fewer ``columns`` than they need.
    """
    from textwrap import wrap

    width = max((len(row.patch.id) for row in rows), default=0)
    for number, row in enumerate(rows, 1):
        patch = row.patch
        cells = [f"{number:>2}", f"{patch.id:<{width}}", f"{patch.kind:<12}"]
        cells.append(_WORDS[row.answer] if row.answer else patch.affects)
        yield "  ".join(cells) + ("  if named" if not patch.default else "")
        indent = " " * 4
        yield from wrap(patch.title, columns, initial_indent=indent, subsequent_indent=indent)
    if not rows:
        yield "the catalog is empty"
    elif release is not None:
        yield _sum(rows, release)


def _sum(rows: Sequence[Row], release: str) -> str:
    count = sum(row.answer in (AFFECTED, NO_VARIANT) for row in rows)
    open_ = sum(row.answer == BY_FILES for row in rows)
    line = f"vLLM {release} is affected by {count} of {len(rows)}"
    return f"{line}; its files decide about {open_}" if open_ else line


def document(
    rows: Sequence[Row], release: str | None, bands: Sequence[Band], installed: str | None
) -> dict[str, Any]:
    """Build the JSON of a list; ``installed`` is the version of the vLLM that is found."""
    from vllm_patcher.chart import GETS, OPT_IN

    names, gets = [row.patch.id for row in rows], (GETS, OPT_IN)
    return {
        "schema": SCHEMA,
        "verb": "list",
        "ok": True,
        "for": release,
        "catalog": [{**_entry(row.patch), "answer": row.answer or None} for row in rows],
        "installed": installed or None,
        "releases": {
            release: [name for name, mark in zip(names, band.marks, strict=True) if mark in gets]
            for band in bands
            for release in band.releases
        },
        "errors": [],
    }


def entry(patch: Patch, release: str | None) -> Entry:
    """Take an entry with all its diffs, or with those that can be meant for a release.

    Raises UnsupportedVersion if there is none for it.
    """
    variants = patch.variants if release is None else catalog.candidates(patch, release)
    if not variants:
        raise UnsupportedVersion(
            f"{patch.id} has no diff for vLLM {release}",
            facts=[f"it has one for {variant.vllm}" for variant in patch.variants],
            hint=pasted("vllm-patch", "show", patch.id),
        )
    diffs = tuple((variant.vllm, patch.diff_bytes(variant)) for variant in variants)
    return Entry(patch=patch, diffs=diffs)


def only_diff(name: str, entry: Entry) -> bytes:
    """Return the one diff of an entry. Raises UnsupportedVersion if it has several."""
    if len(entry.diffs) > 1:
        raise UnsupportedVersion(
            f"{name} has {len(entry.diffs)} diffs, each for other versions",
            facts=[f"one for {specifier}" for specifier, _text in entry.diffs],
            hint="add --for VERSION",
        )
    return entry.diffs[0][1]


def entry_text(entry: Entry) -> Iterator[str]:
    """Yield the lines of an entry, without its diffs."""
    if entry.patch is None:
        return
    patch = entry.patch
    facts: list[tuple[str, Iterable[str]]] = [
        ("id", [patch.id]),
        ("title", [patch.title]),
        ("kind", [patch.kind]),
        ("affects", [patch.affects]),
        ("default", [] if patch.default else ["no, only if named"]),
        ("cve", patch.cve),
        ("requires", patch.requires),
        ("conflicts", patch.conflicts),
        ("references", patch.references),
        ("probe", [patch.probe_path] if patch.probe_path else []),
        ("sha256", [f"{variant.sha256}  {variant.vllm}" for variant in patch.variants]),
        ("skip", patch.skip),
        ("note", patch.note.strip().splitlines()),
    ]
    for key, values in facts:
        for number, value in enumerate(values):
            yield f"{'' if number else key:<11} {value}".rstrip()


def diff_headline(specifier: str) -> str:
    """Say which versions the diff below is for; nothing is said of one that is in no catalog."""
    return f"diff for    {specifier}" if specifier else "diff as it was applied"


def entry_document(name: str, entry: Entry) -> dict[str, Any]:
    """Build the JSON of an entry."""
    return {
        "schema": SCHEMA,
        "verb": "show",
        "ok": True,
        "id": name,
        "entry": None if entry.patch is None else _entry(entry.patch),
        "diffs": [
            {"vllm": specifier or None, "diff": text.decode("utf-8", "backslashreplace")}
            for specifier, text in entry.diffs
        ],
        "errors": [],
    }


def _entry(patch: Patch) -> dict[str, Any]:
    return {
        "id": patch.id,
        "title": patch.title,
        "kind": patch.kind,
        "affects": patch.affects,
        "default": patch.default,
        "cve": list(patch.cve),
        "requires": list(patch.requires),
        "conflicts": list(patch.conflicts),
        "references": list(patch.references),
        "probe": patch.probe_path,
        "skip": list(patch.skip),
        "note": patch.note.strip(),
        "variants": [variant.vllm for variant in patch.variants],
    }
