"""The texts of patches that one run knows, each parsed once.

Always true here: of a catalog only the texts that this version can mean are read; a text of the
receipt goes where it went when it was applied. Nothing is decided about a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import catalog as catalogs
from vllm_patcher import diff, paths, versions
from vllm_patcher.digests import sha256
from vllm_patcher.known import Known
from vllm_patcher.paths import Part
from vllm_patcher.states import NOT_NEEDED, UNSUPPORTED, Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vllm_patcher.catalog import Catalog
    from vllm_patcher.diff import Diff
    from vllm_patcher.manifest import Patch, Variant
    from vllm_patcher.receipt import Entry


class Texts:
    """What is known: ``known`` in the order it was read; ``notes``, by id, on what was left out.

    ``exists`` answers whether a path of the package is on disk or recorded.
    """

    def __init__(self, catalog: Catalog, version: str, exists: Callable[[str], bool]) -> None:
        self.known: list[Known] = []
        self.notes: dict[str, list[str]] = {}
        self._catalog = catalog
        self._version = version
        self._exists = exists
        self._by_id = {patch.id: patch for patch in catalog.patches}
        self._requires = _closures(catalog.patches)

    def ask(self, patch: Patch) -> Asked:
        """Decide by the version which texts of a catalog patch can be meant, and read those."""
        standing = versions.judge(self._version, patch.affects)
        if standing == "out":
            why = f"vLLM {self._version} is outside {patch.affects}"
            return self._asked(patch, (), gate=NOT_NEEDED, why=why)
        meant = catalogs.candidates(patch, self._version)
        if standing == "in" and meant:
            return self._asked(patch, meant)
        if standing == "edge" and meant:
            why = f"no variant fits this build of {self._version}"
            return self._asked(patch, meant, by="content", gate=UNSUPPORTED, why=why)
        why = (
            f"no variant for vLLM {self._version}"
            if standing == "in"
            else f"{self._nameless()}, and no release that is listed for it has these files"
        )
        listed = patch.id in self._catalog.lock.patches
        variants = patch.variants if listed else ()
        return self._asked(patch, variants, by="digest", gate=UNSUPPORTED, why=why)

    def _nameless(self) -> str:
        return (
            f"the version {self._version!r} says nothing"
            if self._version
            else "no version is known"
        )

    def _asked(
        self,
        patch: Patch,
        variants: Sequence[Variant],
        *,
        by: str = "version",
        gate: str = "",
        why: str = "",
    ) -> Asked:
        requires = self._requires[patch.id]
        candidates = tuple(
            self.know(
                patch.id,
                patch.diff_bytes(variant),
                where=patch.diff_path(variant),
                requires=requires,
                skip=patch.skip,
                of_catalog=True,
            )
            for variant in variants
        )
        against = [item.id for item in self._catalog.patches if patch.id in item.conflicts]
        return Asked(
            id=patch.id,
            candidates=candidates,
            by=by,
            gate=gate,
            why=why,
            requires=tuple(sorted(requires)),
            conflicts=(*patch.conflicts, *against),
        )

    def know(
        self,
        name: str,
        text: bytes,
        *,
        where: str = "",
        requires: Iterable[str] = (),
        skip: Sequence[str] = (),
        skip_outside: bool = False,
        of_catalog: bool = False,
        places: Sequence[tuple[str, ...]] = (),
    ) -> Known:
        """Parse a text once; the same id and text is the same object."""
        for known in self.known:
            if known.id == name and known.text == text:
                return known
        parsed = diff.parse(text, name=where or name)
        if len(places) == len(parsed.files):
            parts = _parts_at(parsed, places)
        else:
            resolved = paths.resolve(
                parsed,
                name=where or name,
                exists=self._exists,
                skip=skip,
                skip_outside=skip_outside,
                of_catalog=of_catalog,
            )
            parts = resolved.parts
            outside = [f"{path} is outside the package, left out" for path in resolved.skipped]
            notes = self.notes.setdefault(name, [])
            notes += [f"{name}: {note}" for note in (*parsed.notes, *outside)]
        files = dict.fromkeys(path for part in parts for path in (part.path, part.source))
        known = Known(
            id=name,
            text=text,
            parts=parts,
            requires=requires,
            places=_places(parsed, parts),
            listed=self._listed(name, text, files),
        )
        self.known.append(known)
        return known

    def _listed(
        self, name: str, text: bytes, files: Iterable[str | None]
    ) -> dict[str, frozenset[str]]:
        """The digests, by path, of the releases that a text is for; for an older text, of all.

        One variant's files are not another's: it may fit them, and be the wrong one.
        """
        ranges = [variant.vllm for variant in self._variants(name, text)]
        if ranges and self._by_id[name].affects in ranges:
            ranges = []  # the lock holds no others, and need not be asked about each
        before = self._catalog.lock.before
        return {path: before(name, path, within=ranges) for path in files if path is not None}

    def _variants(self, name: str, text: bytes) -> list[Variant]:
        """The variants of a catalog patch that have a text; none if it is in no catalog."""
        variants = self._by_id[name].variants if name in self._by_id else ()
        digest = sha256(text)
        return [variant for variant in variants if variant.sha256 == digest]

    def of_entry(self, entry: Entry) -> Known:
        """Know a text of the receipt; a catalog that has it knows better what it requires."""
        of_catalog = bool(self._variants(entry.id, entry.text))
        return self.know(
            entry.id,
            entry.text,
            where=f"receipt: {entry.id}",
            requires=self._requires[entry.id] if of_catalog else entry.requires,
            places=entry.places,
        )


def _closures(patches: Iterable[Patch]) -> dict[str, frozenset[str]]:
    """All that each patch requires, directly or by way of others."""
    closures: dict[str, frozenset[str]] = {}
    for patch in catalogs.order(patches):
        needs = set(patch.requires)
        for name in patch.requires:
            needs |= closures[name]
        closures[patch.id] = frozenset(needs)
    return closures


def _parts_at(parsed: Diff, places: Sequence[tuple[str, ...]]) -> tuple[Part, ...]:
    """The parts of a diff that was applied before, at the places it was applied to."""
    return tuple(
        Part(path=place[0], source=place[1] if len(place) > 1 else None, diff=file)
        for file, place in zip(parsed.files, places, strict=True)
        if place
    )


def _places(parsed: Diff, parts: Sequence[Part]) -> list[tuple[str, ...]]:
    """What a receipt keeps of where the parts of a diff went; see :class:`receipt.Entry`."""
    places: list[tuple[str, ...]] = []
    rest = list(reversed(parts))
    for file in parsed.files:
        if rest and rest[-1].diff is file:
            part = rest.pop()
            places.append((part.path,) if part.source is None else (part.path, part.source))
        else:
            places.append(())
    return places
