"""Gather what one run works with: the install, the catalog, the receipt, the patches asked for.

Always true here: everything is read and nothing is decided about a file; what is wrong with an
input is said before any file of the package is looked at. Only patches that this version can
mean are parsed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from vllm_patcher import catalog as catalogs
from vllm_patcher import receipt, versions
from vllm_patcher.compiling import is_own, objections, objections_of
from vllm_patcher.digests import sha256
from vllm_patcher.errors import (
    InvalidConfig,
    InvalidPatch,
    UnknownPatch,
    UnsafePath,
    VllmPatchError,
    pasted,
)
from vllm_patcher.record import RECORD, Record
from vllm_patcher.request import AdHoc, from_file
from vllm_patcher.situation import Situation, situation
from vllm_patcher.states import NOT_NEEDED, Asked
from vllm_patcher.texts import Texts
from vllm_patcher.tree.reading import ReadTree
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.catalog import Catalog
    from vllm_patcher.install import Install
    from vllm_patcher.known import Known
    from vllm_patcher.manifest import Patch
    from vllm_patcher.receipt import Entry
    from vllm_patcher.request import Request


class Survey(Value):
    """What one run works with. ``info`` is the dist-info, None if there is none.

    ``entries`` are the receipt's, ``asked`` all patches that can be asked about, ``named`` the ids
    asked for by name, ``everything`` says that none was named or chosen; ``adhoc`` are ids no
    catalog has. ``info_files`` are the files of the dist-info as they were read.
    """

    install: Install
    version: str
    package: ReadTree
    info: ReadTree | None
    record: Record | None
    catalog: Catalog
    entries: tuple[Entry, ...]
    situation: Situation
    asked: dict[str, Asked]
    named: tuple[str, ...]
    everything: bool
    notes: tuple[str, ...]
    adhoc: frozenset[str]
    info_files: Mapping[str, bytes | None]

    def is_up_to_date(self) -> bool:
        """Say whether the install still is as it was read: no other run has changed it since."""
        info = all(
            self.info is not None and self.info.read(name) == data
            for name, data in self.info_files.items()
        )
        current = self.situation.current
        return info and all(self.package.read(path) == data for path, data in current.items())

    def record_path(self, path: str) -> str:
        """The path of a file of the package as RECORD writes it."""
        return _record_path(self.install, path)


def survey(
    install: Install,
    request: Request,
    tree: Callable[[str], ReadTree] = ReadTree,
    catalog: Catalog | None = None,
) -> Survey:
    """Read all that a run works with; ``tree`` makes the trees for the folders.

    ``catalog`` is used instead of those that the request names.
    """
    return _Reader(install, request, tree, catalog).read()


def _record_path(install: Install, path: str) -> str:
    return f"{os.path.basename(install.package)}/{path}"


class _Reader:
    def __init__(
        self,
        install: Install,
        request: Request,
        tree: Callable[[str], ReadTree],
        catalog: Catalog | None,
    ) -> None:
        self.install = install
        self.request = request
        self.package = tree(install.package)
        self.info = tree(install.dist_info) if install.dist_info is not None else None
        self.version = request.assume_version or install.version
        self.catalog = catalog or catalogs.load_all(request.catalogs, builtin=request.builtin)
        # The patches that an id means: not those whose id a diff of the user's has kept.
        self.by_id = {patch.id: patch for patch in self.catalog.patches}
        self.info_files = self._info_files()
        self.record = self._record()
        self.texts = Texts(self.catalog, self.version, self._exists)

    def read(self) -> Survey:
        if self.request.assume_version is not None:
            versions.check_assumed(self.version)
        entries = self._entries()
        # First, since a receipt knows which paths its diffs were taken for.
        listed = [self.texts.of_entry(entry) for entry in entries]
        asked = {patch.id: self.texts.ask(patch) for patch in catalogs.order(self.catalog.patches)}
        of_catalog = tuple(asked)
        self._pin(asked)
        self._keep_own(asked, entries, listed)
        named = self._names(asked, listed)
        self._check_twins()
        series = tuple(dict.fromkeys([*of_catalog, *(entry.id for entry in entries), *named]))
        here = situation(
            current={
                path: self.package.read(path) for item in self.texts.known for path in item.paths
            },
            known=sorted(self.texts.known, key=lambda item: series.index(item.id)),
            receipt=listed,
            wanted={entry.id: entry.wanted for entry in entries},
            series=series,
            of_catalog=of_catalog,
            pristine=self._pristine,
            objections=self._objections,
            keeps_receipt=self.info is not None,
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
            situation=here,
            asked=asked,
            named=tuple(dict.fromkeys(named)),
            everything=not (self.request.patches or self.request.kinds or self.request.cves),
            notes=tuple(dict.fromkeys([*self._policy(), *self._left_out(named)])),
            adhoc=frozenset(name for name in asked if name not in self.by_id),
            info_files=self.info_files,
        )

    def _info_files(self) -> dict[str, bytes | None]:
        if self.info is None:
            return {}
        return {name: self.info.read(name) for name in (RECORD, receipt.NAME)}

    def _left_out(self, named: Sequence[str]) -> list[str]:
        """What was left out of the diffs that are named; of others a catalog says it itself."""
        return [note for name in named for note in self.texts.notes.get(name, ())]

    def _policy(self) -> list[str]:
        return [f"as {self.request.policy} says"] if self.request.policy else []

    def _record(self) -> Record | None:
        data = self.info_files.get(RECORD)
        return None if data is None else Record.parse(data, name=self._info_path(RECORD))

    def _entries(self) -> tuple[Entry, ...]:
        data = self.info_files.get(receipt.NAME)
        return receipt.load(data, path=self._info_path(receipt.NAME))

    def _info_path(self, name: str) -> str:
        return os.path.join(self.info.root if self.info is not None else "", name)

    def _pristine(self, path: str, data: bytes | None) -> bool:
        """Say whether a path holds what was released: by RECORD or, without one, by the lock."""
        if self.record is None:
            return data is not None and self.catalog.lock.is_released(path, data)
        recorded = _record_path(self.install, path)
        if data is None:
            return self.record.digest(recorded) is None
        return self.record.matches(recorded, data) is True

    def _objections(self, sources: Sequence[bytes]) -> list[SyntaxError | None]:
        """Ask the Python that the files are for: others know other syntax."""
        python = self.install.python
        if python is None or is_own(python):
            return objections(sources)
        return objections_of(python, sources)

    def _exists(self, path: str) -> bool:
        if self.package.exists(path):
            return True
        recorded = _record_path(self.install, path)
        return self.record is not None and self.record.digest(recorded) is not None

    def _pin(self, asked: dict[str, Asked]) -> None:
        """Leave of the texts of pinned patches those that were pinned."""
        wrong: list[str] = []
        for name, pinned in self.request.revisions.items():
            if name not in asked:
                wrong.append(f"{name}: in no catalog")
                continue
            digests = [sha256(one.text) for one in asked[name].candidates]
            if digests and pinned not in digests:
                wrong.append(f"{name}: sha256 {', '.join(digests)}, and {pinned} is pinned")
            pairs = zip(asked[name].candidates, digests, strict=True)
            asked[name] = asked[name].replaced(
                candidates=tuple(one for one, digest in pairs if digest == pinned)
            )
        if wrong:
            raise InvalidConfig(
                "a pinned patch is another one",
                facts=[f"{self.request.policy or 'revisions'}: {fact}" for fact in wrong],
                hint="look at what has changed with vllm-patch show ID, then pin that",
            )

    def _keep_own(
        self, asked: dict[str, Asked], entries: Sequence[Entry], listed: Sequence[Known]
    ) -> None:
        """See to diffs of the user's that are in under an id that a catalog has by now.

        Where the catalog's is for other versions the user's is meant; else nobody can tell.
        """
        for entry, known in zip(entries, listed, strict=True):
            patch = self.by_id.get(entry.id) if entry.adhoc else None
            if patch is None or entry.text in _texts(patch):
                continue
            if asked[entry.id].gate == NOT_NEEDED:
                asked[entry.id] = Asked(id=entry.id, candidates=(known,))
                del self.by_id[entry.id]
            else:
                asked[entry.id] = asked[entry.id].replaced(clash=True)

    def _names(self, asked: dict[str, Asked], listed: Sequence[Known]) -> list[str]:
        """Turn all PATCH arguments into ids, or raise one error for all that can't be."""
        named: list[str] = []
        errors: list[VllmPatchError] = []
        for item in self.request.patches:
            try:
                named.append(self._name(item, asked, listed))
            except (InvalidPatch, UnknownPatch, UnsafePath) as error:
                if self.request.policy:
                    error.facts = (*error.facts, f"as {self.request.policy} says")
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
        known = self.texts.know(
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
        if not receipt.is_id(item.id):
            raise InvalidPatch(f"{item.id!r} can't be the id of a patch", hint="add --id NAME")
        if item.id in self.by_id:
            texts = _texts(self.by_id[item.id])
        else:
            texts = [known.text for known in listed if known.id == item.id]
        # What is empty is no other text: that it is none is said when it is read.
        if (item.id in self.by_id or texts) and item.text.strip() and item.text not in texts:
            facts = ["a diff's id is the stem of its file name, unless --id says otherwise"]
            hint = f"add {pasted('--id', f'{item.id}-2')}"
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
        for path in dict.fromkeys(path for known in self.texts.known for path in known.paths):
            twin = names.setdefault(path.casefold(), path)
            if twin != path:
                raise UnsafePath(
                    "two paths differ only in upper and lower case", facts=[twin, path]
                )


def _texts(patch: Patch) -> list[bytes]:
    return [patch.diff_bytes(variant) for variant in patch.variants]


def _lines(error: VllmPatchError) -> list[str]:
    return [error.what, *(f"  {fact}" for fact in error.facts)]
