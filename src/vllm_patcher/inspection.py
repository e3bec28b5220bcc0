"""A repository's own catalogs and diffs, checked by their files alone.

Always true here: nothing of a vLLM is looked at and nothing is fetched, so what passes is well
formed and can be meant for the package; whether it fits a release is another question. All
problems are reported at once.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from vllm_patcher import catalog, diff, manifest
from vllm_patcher.errors import InvalidCatalog, InvalidPatch, VllmPatchError
from vllm_patcher.paths import check_names
from vllm_patcher.request import DIFF_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Problems(InvalidCatalog):
    """All that is wrong in what was checked; ``errors`` say the same of one file each."""

    def __init__(self, errors: Sequence[VllmPatchError]) -> None:
        facts = [fact for error in errors for fact in error.facts]
        count = "1 problem" if len(facts) == 1 else f"{len(facts)} problems"
        super().__init__(f"{count} in what was checked", facts=facts)
        self.errors = tuple(errors)


def check(paths: Sequence[str], *, catalogs: Sequence[str] = (), builtin: bool = True) -> int:
    """Check manifests, the diffs they name, and diffs that no manifest names.

    PATHS are manifests, folders that hold one, and diff files. A diff is checked with the
    manifest in its folder or the nearest folder above, as the path is given: a change of the one
    asks for a change of the other. Entries may refer to those of CATALOGS and of the built-in
    catalog, if BUILTIN. Return how many files were checked. Raises Problems with one fact
    ``FILE:LINE: problem`` for each problem.
    """
    problems: list[VllmPatchError] = []
    diffs: list[str] = []
    folders: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            folders.append(path)
        elif os.path.basename(path) == manifest.NAME:
            folders.append(os.path.dirname(path))
        elif path.endswith(DIFF_SUFFIXES):
            diffs.append(path)
            folders += _above(path)
        else:
            fact = f"{path}: neither a {manifest.NAME} nor a .patch or .diff file"
            problems.append(InvalidCatalog("a file can't be checked", facts=[fact]))
    checked: set[str] = set()
    for folder in folders:
        home = os.path.realpath(folder)
        if home not in checked:
            checked.add(home)
            problems += _catalog(folder, catalogs, builtin=builtin, checked=checked)
    for path in diffs:
        if os.path.realpath(path) not in checked:
            checked.add(os.path.realpath(path))
            # What is outside the package can be left out by an option.
            problems += _diff(path, skip_outside=True)
    if problems:
        raise Problems(problems)
    return len(checked)


def _above(path: str) -> list[str]:
    """Return the nearest folder above a file, as its path is given, that holds a manifest."""
    folder = os.path.dirname(path)
    while not os.path.isfile(os.path.join(folder, manifest.NAME)):
        if folder in ("", os.path.dirname(folder)):
            return []
        folder = os.path.dirname(folder)
    return [folder]


def _catalog(
    folder: str, catalogs: Sequence[str], *, builtin: bool, checked: set[str]
) -> Iterator[VllmPatchError]:
    absolute = os.path.abspath(folder)
    try:
        catalog.load_all([absolute, *catalogs], builtin=builtin)
    except InvalidCatalog as error:
        yield InvalidCatalog(error.what, facts=_placed(error.facts, absolute, folder))
    try:
        # Once more, for the entries that are good although others are not.
        patches, _ = manifest.read(absolute, [])
    except InvalidCatalog:
        patches = []
    for patch in patches:
        for variant in patch.variants:
            path = os.path.join(folder, variant.diff)
            checked.add(os.path.realpath(path))
            try:
                patch.diff_bytes(variant)
            except InvalidCatalog as error:
                facts = [fact.partition(": ")[2] for fact in error.facts]
                fact = f"{path}: {'; the manifest '.join(facts)}"
                yield InvalidCatalog(error.what, facts=[fact])
            yield from _diff(path, skip=patch.skip)


def _placed(facts: Sequence[str], absolute: str, folder: str) -> Iterator[str]:
    """Give facts their lines in the manifest, and its path as FOLDER is given."""
    path = os.path.join(absolute, manifest.NAME)
    text = _text(path)
    shorter = os.path.join(folder, "")
    for fact in facts:
        placed = _with_line(fact, path, text)
        own = placed.startswith(os.path.join(absolute, ""))
        yield shorter + placed[len(absolute) :].lstrip(os.sep) if own else placed


def _with_line(fact: str, path: str, text: str) -> str:
    """Say at which line of its manifest the entry begins that a fact is about."""
    match = re.match(r": patch (?:'([^']*)'|([0-9]+))[:,] ", fact.removeprefix(path))
    if match is None or not fact.startswith(path):
        return fact
    if match[2]:
        heads = list(re.finditer(r"^\s*\[\[\s*patch\s*\]\]", text, re.MULTILINE))
        at = heads[int(match[2]) - 1 : int(match[2])]
    else:
        quoted = rf"^\s*id\s*=\s*[\"']{re.escape(match[1])}[\"']"
        at = list(re.finditer(quoted, text, re.MULTILINE))[-1:]
    if not at:
        return fact
    start = at[0].end()
    return f"{path}:{text.count(chr(10), 0, start) + 1}{fact[len(path) :]}"


def _text(path: str) -> str:
    try:
        return manifest.read_file(path).decode("utf-8", "replace")
    except InvalidCatalog:
        return ""


def _diff(
    path: str, *, skip: Sequence[str] = (), skip_outside: bool = False
) -> Iterator[VllmPatchError]:
    if os.path.exists(path) and not os.path.isfile(path):
        yield InvalidPatch("a file can't be read", facts=[f"{path}: no plain file"])
        return
    try:
        parsed = diff.parse(manifest.read_file(path), name=path)
    except VllmPatchError as error:
        yield InvalidPatch(error.what, facts=error.facts or [f"{path}: {error.what}"])
        return
    try:
        check_names(parsed, name=path, skip=skip, skip_outside=skip_outside)
    except VllmPatchError as error:
        advice = f"; {error.hint}" if error.hint else ""
        yield InvalidPatch(error.what, facts=[f"{fact}{advice}" for fact in error.facts])
