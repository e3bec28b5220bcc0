"""Catalogs: manifests checked as a whole, the lock beside each, and what is for a version.

A catalog that is returned from here can be relied on: every entry is good in itself, every
id it refers to exists, requirements form no circle. All problems are reported at once. The
lock holds digests of released files and is optional; a wrong one is an error all the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from vllm_patcher import manifest, versions
from vllm_patcher.digests import is_sha256, sha256
from vllm_patcher.errors import InvalidCatalog
from vllm_patcher.files import absolute
from vllm_patcher.tables import is_plain
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vllm_patcher.manifest import Patch, Variant

LOCK = "lock.json"
SCHEMA = 1

_SIDES = {"before", "after"}


class Change(NamedTuple):
    """What a patch does to one file of one release: hex sha256 of both sides, None if absent."""

    before: str | None
    after: str | None


class Lock(Value):
    """Digests of released files, by patch id, release and package-relative path."""

    patches: Mapping[str, Mapping[str, Mapping[str, Change]]] = {}

    def before(self, patch: str, path: str, *, within: Sequence[str] = ()) -> frozenset[str]:
        """Return the digests that PATH has in the released wheels that PATCH is for.

        Those WITHIN some specifiers only, if any are given.
        """
        changes = [
            files[path]
            for release, files in self.patches.get(patch, {}).items()
            if path in files
            and (not within or any(versions.judge(release, one) == "in" for one in within))
        ]
        return frozenset(change.before for change in changes if change.before is not None)

    def is_released(self, path: str, data: bytes) -> bool:
        """Tell whether DATA is what some release holds at PATH, whatever patch is for it."""
        digest = sha256(data)
        return any(digest in self.before(patch, path) for patch in self.patches)


class Catalog(Value):
    """The patches of one catalog, or of several taken together, in manifest order."""

    folders: tuple[str, ...]
    patches: tuple[Patch, ...]
    lock: Lock


def load(folder: str, *, locked: bool = True) -> Catalog:
    """Read and check the catalog in FOLDER; without LOCKED, pass over its lock.

    Raises InvalidCatalog with all its problems.
    """
    return load_all([folder], builtin=False, locked=locked)


def load_all(folders: Sequence[str], *, builtin: bool, locked: bool = True) -> Catalog:
    """Read several catalogs as one, the built-in one first if BUILTIN.

    Entries may require and conflict with entries of the other catalogs. A folder that is
    named twice is read once. Without LOCKED, locks are passed over, as is needed to write one
    anew. Raises InvalidCatalog with all problems of all of them.
    """
    chosen = _distinct([*([builtin_folder()] if builtin else []), *folders])
    problems: list[str] = []
    patches: list[Patch] = []
    owners: dict[str, str] = {}
    locks: dict[str, dict[str, dict[str, Change]]] = {}
    of_builtin = False
    for folder in chosen:
        if os.path.isfile(folder):
            problems.append(f"{folder}: a file; name the folder that holds {manifest.NAME}")
            continue
        try:
            found, ids = manifest.read(folder, problems)
        except InvalidCatalog as error:
            problems += error.facts
            continue
        for name in sorted(ids & owners.keys()):
            of_builtin |= builtin and owners[name] == chosen[0]
            problems.append(f"{_manifest(folder)}: patch {name!r}: also in {owners[name]}")
        owners.update(dict.fromkeys(ids, folder))
        patches += found
        if locked:
            locks.update(_lock(folder, ids, problems))
    problems += _link_problems(patches, owners.keys())
    if problems:
        hint = "add --no-builtin to leave the built-in catalog out" if of_builtin else None
        raise InvalidCatalog("the patch catalog can't be used", facts=problems, hint=hint)
    return Catalog(folders=chosen, patches=tuple(patches), lock=Lock(locks))


def builtin_folder() -> str:
    """Return the absolute folder of the catalog that comes with this package.

    Raises InvalidCatalog if the installation has lost it.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.join(package, "patches")]
    checkout, name = os.path.split(os.path.dirname(package))
    if name == "src":  # used from a checkout, or installed as editable
        places.append(os.path.join(checkout, "patches"))
    for folder in places:
        if os.path.isfile(_manifest(folder)):
            return folder
    raise InvalidCatalog(
        "the built-in catalog is missing",
        facts=[f"{_manifest(folder)}: not there" for folder in places],
        hint="install vllm-patcher again, or use --no-builtin with --catalog DIR",
    )


def candidates(patch: Patch, raw_version: str) -> tuple[Variant, ...]:
    """Return the variants of PATCH that can be meant for the version RAW_VERSION, in order.

    At most one for a release. For a build between releases, all whose range it is in or at
    the edge of; for a version that says nothing, all there are: the files decide.
    """
    standing = versions.judge(raw_version, patch.affects)
    if standing == "unknown":
        return patch.variants
    if standing == "out":
        return ()
    return tuple(
        variant
        for variant in patch.variants
        if variant.vllm == patch.affects or versions.judge(raw_version, variant.vllm) == standing
    )


def choose(patch: Patch, raw_version: str) -> Variant | None:
    """Return the variant of PATCH for the release RAW_VERSION.

    None if there is none, or if the version alone can't tell (see :func:`candidates`).
    """
    if versions.judge(raw_version, patch.affects) != "in":
        return None
    return next(iter(candidates(patch, raw_version)), None)


def order(patches: Iterable[Patch]) -> tuple[Patch, ...]:
    """Sort PATCHES so that each comes after what it requires, else as they were.

    Requirements that are not among them are passed over.
    """
    return _walk(patches)[0]


def _distinct(folders: Sequence[str]) -> tuple[str, ...]:
    """Make FOLDERS absolute and leave out those that lead to one already named."""
    by_place: dict[str, str] = {}
    for folder in folders:
        by_place.setdefault(os.path.realpath(folder), absolute(folder))
    return tuple(by_place.values())


def _manifest(folder: str) -> str:
    return os.path.join(folder, manifest.NAME)


def _walk(patches: Iterable[Patch]) -> tuple[tuple[Patch, ...], list[list[str]]]:
    """Go through PATCHES depth first: return them requirements first, and the circles met."""
    by_id = {patch.id: patch for patch in patches}
    position = {name: number for number, name in enumerate(by_id)}
    done: dict[str, Patch] = {}
    circles: list[list[str]] = []
    for first in by_id:
        open_: dict[str, Iterator[str]] = {}  # entered and not left, outermost first
        current: str | None = first
        while current is not None or open_:
            if current is None:
                left, _ = open_.popitem()
                done[left] = by_id[left]
            elif current in open_:
                trail = list(open_)
                circles.append([*trail[trail.index(current) :], current])
            elif current not in done:
                needs = (name for name in by_id[current].requires if name in by_id)
                open_[current] = iter(sorted(needs, key=position.__getitem__))
            current = next(open_[next(reversed(open_))], None) if open_ else None
    return tuple(done.values()), circles


def _link_problems(patches: Sequence[Patch], known: Iterable[str]) -> Iterator[str]:
    """Check what entries say about each other, over all catalogs."""
    ids = set(known)
    against = {patch.id: patch.conflicts for patch in patches}
    where = {patch.id: f"{_manifest(patch.folder)}: patch {patch.id!r}" for patch in patches}
    for patch in patches:
        at = where[patch.id]
        for key, others in (("requires", patch.requires), ("conflicts", patch.conflicts)):
            for other in others:
                if other not in ids:
                    yield f"{at}: {key} names {other!r}, which is in no catalog"
        for other in patch.requires:
            if other in patch.conflicts:
                yield f"{at}: {other!r} is in requires and in conflicts"
            elif patch.id in against.get(other, ()):
                yield f"{at}: it requires {other!r}, which conflicts with it"
        if patch.id in patch.conflicts:
            yield f"{at}: it conflicts with itself"
    for circle in _walk(patches)[1]:
        yield f"{where[circle[0]]}: requirements go in a circle: {' -> '.join(circle)}"


def _lock(
    folder: str, ids: set[str], problems: list[str]
) -> dict[str, dict[str, dict[str, Change]]]:
    """Return the digests in the lock of FOLDER, none if it has no lock; add to PROBLEMS."""
    path = os.path.join(folder, LOCK)
    if not os.path.lexists(path):
        return {}
    import json

    try:
        document = json.loads(manifest.read_file(path))
        return _locked(document, ids)
    except InvalidCatalog as error:
        problems += [fact if fact.startswith(path) else f"{path}: {fact}" for fact in error.facts]
    except (ValueError, RecursionError) as error:
        problems.append(f"{path}: not JSON: {error}")
    return {}


def _locked(document: object, ids: set[str]) -> dict[str, dict[str, dict[str, Change]]]:
    """Turn the JSON of a lock into digests. Raises InvalidCatalog at the first wrong place."""
    if not isinstance(document, dict) or document.keys() != {"schema", "patches"}:
        raise _wrong("must be an object with schema and patches, and nothing else")
    if type(document["schema"]) is not int or document["schema"] != SCHEMA:
        raise _wrong(f"schema must be {SCHEMA}, the only one this version knows")
    locked: dict[str, dict[str, dict[str, Change]]] = {}
    for name, releases in _object(document["patches"], "patches").items():
        if name not in ids:
            raise _wrong(f"patch {name!r} is not in the manifest; generate the lock again")
        locked[name] = {}
        last: object = None
        changes: dict[str, Change] = {}
        for release, files in _object(releases, name).items():
            if files != last:  # else it is as in the release before
                last = files
                changes = {
                    path: _change(change, f"{name} {release} {path}", path)
                    for path, change in _object(files, f"{name} {release}").items()
                }
            locked[name][release] = changes
    return locked


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(f"{where}: must be an object")
    return value


def _change(value: object, where: str, path: str) -> Change:
    if not is_plain(path):
        raise _wrong(f"{where}: the path must be relative to the package and stay inside it")
    sides = _object(value, where)
    if sides.keys() != _SIDES:
        raise _wrong(f"{where}: must have before and after, and nothing else")
    return Change(_digest(sides["before"], where), _digest(sides["after"], where))


def _digest(value: object, where: str) -> str | None:
    if value is None or (isinstance(value, str) and is_sha256(value)):
        return value
    raise _wrong(f"{where}: must be 64 hex digits in lower case, or null")


def _wrong(fact: str) -> InvalidCatalog:
    return InvalidCatalog("the lock of a catalog is wrong", facts=[fact])
