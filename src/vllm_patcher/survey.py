"""Gather what one run works with: the install, the catalog, the receipt, the patches asked for.

Always true here: everything is read and nothing is decided about a file; what is wrong with an
input is said before any file of the package is looked at. Only patches that this version can
mean are parsed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from vllm_patcher.values import Value

from . import catalog as catalogs
from . import diff, paths, receipt, versions
from .errors import (
    InvalidPatch,
    UnknownPatch,
    UnsafePath,
    UnsupportedVersion,
    VllmPatchError,
)
from .paths import Part
from .plan import Situation, situation
from .record import Record
from .request import AdHoc, from_file, pasted
from .stack import Known
from .states import NOT_NEEDED, UNSUPPORTED, Asked
from .tree.reading import ReadTree

if TYPE_CHECKING:
    from .catalog import Catalog, Patch, Variant
    from .diff import Diff
    from .install import Install
    from .receipt import Entry
    from .request import Request


class Survey(Value):
    """What one run works with. ``info`` is the dist-info, None if there is none.

    ``entries`` are the receipt's, ``asked`` all patches that can be asked about, ``named`` the ids
    asked for by name; ``adhoc`` are ids no catalog has.
    """

    install: Install
    version: str
    package: ReadTree
    info: ReadTree | None
    record: Record | None
    catalog: Catalog
    entries: tuple[Entry, ...]
    here: Situation
    asked: dict[str, Asked]
    named: tuple[str, ...]
    notes: tuple[str, ...]
    adhoc: frozenset[str]

    def record_path(self, path: str) -> str:
        """The path of a file of the package as RECORD writes it."""
        return _record_path(self.install, path)


def survey(
    install: Install, request: Request, tree: Callable[[str], ReadTree] = ReadTree
) -> Survey:
    """Read all that a run works with; ``tree`` makes the trees for the folders."""
    return _Reader(install, request, tree).read()


def _record_path(install: Install, path: str) -> str:
    return f"{os.path.basename(install.package)}/{path}"


class _Reader:
    def __init__(self, install: Install, request: Request, tree: Callable[[str], ReadTree]) -> None:
        self.install = install
        self.request = request
        self.package = tree(install.package)
        self.info = tree(install.dist_info) if install.dist_info is not None else None
        self.version = request.assume_version or install.version
        self.catalog = catalogs.load_all(request.catalogs, builtin=request.builtin)
        self.by_id = {patch.id: patch for patch in self.catalog.patches}
        self.requires = _closures(self.catalog.patches)
        self.record = self._record()
        self.known: list[Known] = []
        self.notes: list[str] = []

    def read(self) -> Survey:
        if self.request.assume_version is not None and versions.parse(self.version) is None:
            raise UnsupportedVersion(
                f"--assume-version {self.version!r} is not the version of a release",
                hint="--assume-version 0.11.0",
            )
        entries = self._entries()
        # First, since a receipt knows which paths its diffs were taken for.
        listed = [self._entry(entry) for entry in entries]
        asked = {patch.id: self._ask(patch) for patch in catalogs.order(self.catalog.patches)}
        of_catalog = tuple(asked)
        named = self._names(asked, listed)
        self._check_twins()
        series = tuple(dict.fromkeys([*of_catalog, *(entry.id for entry in entries), *named]))
        here = situation(
            current={path: self.package.read(path) for item in self.known for path in item.paths},
            known=sorted(self.known, key=lambda item: series.index(item.id)),
            receipt=listed,
            wanted={entry.id: entry.wanted for entry in entries},
            series=series,
            pristine=self._pristine,
        )
        for item in listed:
            if item.id not in asked:
                asked[item.id] = Asked(id=item.id, candidates=(item,))
        return Survey(
            install=self.install,
            version=self.version,
            package=self.package,
            info=self.info,
            record=self.record,
            catalog=self.catalog,
            entries=entries,
            here=here,
            asked=asked,
            named=tuple(dict.fromkeys(named)),
            notes=tuple(dict.fromkeys(self.notes)),
            adhoc=frozenset(name for name in asked if name not in self.by_id),
        )

    def _record(self) -> Record | None:
        if self.info is None:
            return None
        data = self.info.read("RECORD")
        return None if data is None else Record.parse(data, name=f"{self.info.root}/RECORD")

    def _entries(self) -> tuple[Entry, ...]:
        if self.info is None:
            return ()
        path = os.path.join(self.info.root, receipt.NAME)
        return receipt.load(self.info.read(receipt.NAME), path=path)

    def _pristine(self, path: str, data: bytes | None) -> bool:
        """Say whether a path holds what was released: by RECORD or, without one, by the lock."""
        if self.record is None:
            return data is not None and self.catalog.lock.is_released(path, data)
        recorded = _record_path(self.install, path)
        if data is None:
            return self.record.digest(recorded) is None
        return self.record.matches(recorded, data) is True

    def _exists(self, path: str) -> bool:
        if self.package.exists(path):
            return True
        recorded = _record_path(self.install, path)
        return self.record is not None and self.record.digest(recorded) is not None

    def _ask(self, patch: Patch) -> Asked:
        """Decide by the version which texts of a catalog patch can be meant, and read those."""
        standing = versions.judge(self.version, patch.affects)
        if standing == "out":
            why = f"vLLM {self.version} is outside {patch.affects}"
            return self._asked(patch, (), gate=NOT_NEEDED, why=why)
        meant = catalogs.candidates(patch, self.version)
        if standing == "in" and meant:
            return self._asked(patch, meant)
        if standing == "edge" and meant:
            why = f"no variant fits this build of {self.version}"
            return self._asked(patch, meant, by="content", gate=UNSUPPORTED, why=why)
        why = (
            f"no variant for vLLM {self.version}"
            if standing == "in"
            else f"{self._nameless()}, and the files are not those of a listed release"
        )
        listed = patch.id in self.catalog.lock.patches
        variants = patch.variants if listed else ()
        return self._asked(patch, variants, by="digest", gate=UNSUPPORTED, why=why)

    def _nameless(self) -> str:
        return (
            f"the version {self.version!r} says nothing" if self.version else "no version is known"
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
        requires = self.requires[patch.id]
        candidates = tuple(
            self._know(
                patch.id,
                patch.diff_bytes(variant),
                where=patch.diff_path(variant),
                requires=requires,
                skip=patch.skip,
            )
            for variant in variants
        )
        against = [item.id for item in self.catalog.patches if patch.id in item.conflicts]
        return Asked(
            id=patch.id,
            candidates=candidates,
            by=by,
            gate=gate,
            why=why,
            requires=tuple(sorted(requires)),
            conflicts=(*patch.conflicts, *against),
        )

    def _know(
        self,
        name: str,
        text: bytes,
        *,
        where: str = "",
        requires: Iterable[str] = (),
        skip: Sequence[str] = (),
        skip_outside: bool = False,
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
            )
            parts = resolved.parts
            outside = [f"{path} is outside the package, left out" for path in resolved.skipped]
            self.notes += [f"{name}: {note}" for note in (*parsed.notes, *outside)]
        files = dict.fromkeys(path for part in parts for path in (part.path, part.source))
        known = Known(
            id=name,
            text=text,
            parts=parts,
            requires=requires,
            places=_places(parsed, parts),
            listed={
                path: self.catalog.lock.before(name, path) for path in files if path is not None
            },
        )
        self.known.append(known)
        return known

    def _entry(self, entry: Entry) -> Known:
        return self._know(
            entry.id,
            entry.text,
            where=f"receipt: {entry.id}",
            requires=entry.requires,
            places=entry.places,
        )

    def _names(self, asked: dict[str, Asked], listed: Sequence[Known]) -> list[str]:
        """Turn all PATCH arguments into ids, or raise one error for all that can't be."""
        named: list[str] = []
        errors: list[VllmPatchError] = []
        for item in self.request.patches:
            try:
                named.append(self._name(item, asked, listed))
            except (InvalidPatch, UnknownPatch, UnsafePath) as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise type(errors[0])(
                f"{len(errors)} of the {len(self.request.patches)} named patches can't be used",
                facts=[line for error in errors for line in _lines(error)],
                hint=next((error.hint for error in errors if error.hint), None),
            )
        return named

    def _name(self, item: str | AdHoc, asked: dict[str, Asked], listed: Sequence[Known]) -> str:
        """Turn one PATCH argument into an id that is asked about."""
        if isinstance(item, str):
            if item in asked or any(known.id == item for known in listed):
                return item
            item = from_file(item, [*asked, *(known.id for known in listed)])
        self._check_id_is_free(item, listed)
        known = self._know(
            item.id, item.text, where=item.where, skip_outside=self.request.skip_outside
        )
        named = asked.setdefault(item.id, Asked(id=item.id, candidates=(known,)))
        if item.id not in self.by_id and named.candidates != (known,):
            raise InvalidPatch(
                f"two different diffs have the id {item.id!r}",
                facts=["a diff's id is the stem of its file name, unless --id says otherwise"],
                hint="rename one of the files, or apply them one at a time with --id",
            )
        return item.id

    def _check_id_is_free(self, item: AdHoc, listed: Sequence[Known]) -> None:
        odd = not item.id.isprintable() or item.id != item.id.strip() or "/" in item.id
        if not item.id or odd or item.id.startswith(("-", ".")):
            raise InvalidPatch(f"{item.id!r} can't be the id of a patch", hint="add --id NAME")
        texts = [known.text for known in listed if known.id == item.id]
        if item.id in self.by_id:
            patch = self.by_id[item.id]
            texts += [patch.diff_bytes(variant) for variant in patch.variants]
        if (item.id in self.by_id or texts) and item.text not in texts:
            facts = ["a diff's id is the stem of its file name, unless --id says otherwise"]
            hint = f"add --id {item.id}-2"
            if item.id not in self.by_id:
                # Never replaced unasked: two fixes that bear one name are both wanted.
                facts.append(f"if it is another fix, {hint}; if it replaces the one that is in:")
                hint = pasted("vllm-patch", "revert", item.id)
            raise InvalidPatch(
                f"the id {item.id!r} is known with another text", facts=facts, hint=hint
            )

    def _check_twins(self) -> None:
        """Two names that differ only in case are one file on some disks, two on others."""
        names: dict[str, str] = {}
        for path in dict.fromkeys(path for known in self.known for path in known.paths):
            twin = names.setdefault(path.casefold(), path)
            if twin != path:
                raise UnsafePath(
                    "two paths differ only in upper and lower case", facts=[twin, path]
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


def _lines(error: VllmPatchError) -> list[str]:
    return [error.what, *(f"  {fact}" for fact in error.facts)]
