"""Write lock.json of a catalog from the released wheels of vLLM.

    python scripts/lock.py [CATALOG_DIR]        (needs pypi-simple and remotezip)

For each patch, each release it affects and each file it changes there: the digest in the
wheels, and the digest once the patch and all that it requires are in. Only the members that
are needed are fetched, by reading ranges of the wheels; each is held against its wheel's
RECORD and kept in the user's cache folder. If any release can't be read or patched, all such
are named, the run ends with 1 and nothing is written. PIP_INDEX_URL is honoured.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from packaging.version import Version
from pypi_simple import PyPISimple
from remotezip import RemoteZip, RemoteZipError

from vllm_patcher import catalog, diff, paths
from vllm_patcher.errors import Conflict, VllmPatchError
from vllm_patcher.record import Record
from vllm_patcher.stack import Known, Stack

PACKAGE = "vllm/"
CACHE = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")

Changes = dict[str, dict[str, str | None]]


class Wheel:
    """A released wheel: its members, read by range, cached and proven by its RECORD."""

    def __init__(self, filename: str, url: str) -> None:
        self.filename = filename
        self.url = url
        distribution = "-".join(filename.split("-")[:2])
        self.record = Record.parse(self._member(f"{distribution}.dist-info/RECORD"))

    def has(self, path: str) -> bool:
        """Tell whether the wheel has a file at PATH of the package."""
        return self.record.lists(PACKAGE + path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of the file at PATH of the package, None if there is none."""
        if not self.has(path):
            return None
        data = self._member(PACKAGE + path)
        if not self.record.matches(PACKAGE + path, data):
            raise Conflict(f"{self.filename}: {path} is not what RECORD says")
        return data

    def _member(self, name: str) -> bytes:
        cached = os.path.join(CACHE, "vllm-patcher", "members", self.filename, name)
        if not os.path.isfile(cached):
            with RemoteZip(self.url) as archive:
                data = archive.read(name)
            os.makedirs(os.path.dirname(cached), exist_ok=True)
            with open(cached + ".part", "wb") as file:
                file.write(data)
            os.replace(cached + ".part", cached)
        with open(cached, "rb") as file:
            return file.read()


def released() -> dict[str, dict[str, str]]:
    """Return what the index has, oldest first: release to the file names and URLs of wheels."""
    found: dict[str, dict[str, str]] = {}
    index = os.environ.get("PIP_INDEX_URL")
    with PyPISimple(index) if index else PyPISimple() as client:
        for package in client.get_project_page("vllm").packages:
            if package.version and not Version(package.version).is_prerelease:
                wheels = found.setdefault(package.version, {})
                if package.package_type == "wheel":
                    wheels[package.filename] = package.url
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def series(
    patch: catalog.Patch, by_id: dict[str, catalog.Patch], release: str, wheel: Wheel
) -> dict[str, Known]:
    """Return PATCH and, before it, all it requires, as the program would on this release."""
    found: dict[str, Known] = {}
    for name in patch.requires:
        found.update(series(by_id[name], by_id, release, wheel))
    if variant := catalog.choose(patch, release):
        text = patch.diff_bytes(variant)
        name, needs = variant.diff, frozenset(found)
        parsed = diff.parse(text, name=name)
        parts = paths.resolve(parsed, name=name, exists=wheel.has, skip=patch.skip).parts
        found[patch.id] = Known(id=patch.id, text=text, parts=parts, requires=needs)
    return found


def changes(patches: dict[str, Known], wheel: Wheel) -> Changes:
    """Put PATCHES on the files of a wheel; return the digests for the files of the last."""
    stack = Stack({path: wheel.read(path) for patch in patches.values() for path in patch.paths})
    for last in patches.values():
        for problem in stack.put(last):
            raise Conflict(f"{last.id}: {problem.path}: {problem.misfit.reason}")
    return {
        path: {
            side: None if data is None else hashlib.sha256(data).hexdigest()
            for side, data in (("before", stack.base[path]), ("after", stack.files[path]))
        }
        for path in last.paths
    }


def build(loaded: catalog.Catalog) -> tuple[dict[str, dict[str, Changes]], list[str]]:
    """Return the digests for all patches, and what stands in the way of any."""
    by_id = {patch.id: patch for patch in loaded.patches}
    locked: dict[str, dict[str, Changes]] = {patch: {} for patch in by_id}
    failures: list[str] = []
    for release, urls in released().items():
        for patch in [one for one in by_id.values() if catalog.choose(one, release)]:
            try:
                wheels = [Wheel(*url) for url in urls.items()]
                found = [changes(series(patch, by_id, release, wheel), wheel) for wheel in wheels]
                if not found or found.count(found[0]) < len(found):
                    raise Conflict("no wheel, or wheels with different files")
                locked[patch.id][release] = found[0]
            except (VllmPatchError, RemoteZipError, KeyError, OSError) as error:
                facts = "".join(f"; {fact}" for fact in getattr(error, "facts", ()))
                failures.append(f"{patch.id}: vllm {release}: {error}{facts}")
    return locked, failures


def main(folder: str) -> int:
    """Write the lock of the catalog in FOLDER and return the exit status."""
    locked, failures = build(catalog.load(folder, locked=False))
    for patch, found in locked.items():
        print(f"{patch}: {len(found)} releases: {' '.join(found)}")
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        return 1
    with open(os.path.join(folder, catalog.LOCK), "w", encoding="utf-8") as file:
        json.dump({"schema": 1, "patches": locked}, file, indent=1, sort_keys=True)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else catalog.builtin_folder()))
