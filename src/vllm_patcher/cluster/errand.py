"""What is carried to a node and done there: one verb, with all that it reads but the install.

Always true here: an errand is made where the catalogs and diffs are, and is all that a node
needs of them; on the node they lie in a temporary folder as long as the verb runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_patcher import catalog, document, manifest, operations
from vllm_patcher.errors import UnknownPatch, VllmPatchError, of_system
from vllm_patcher.request import DIFF_SUFFIXES, Request, from_file
from vllm_patcher.scratch import laid_out
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_patcher.catalog import Catalog
    from vllm_patcher.request import AdHoc
    from vllm_patcher.results import Report


class Errand(Value):
    """One verb for one node.

    ``options`` are what its function takes besides the request. ``files`` are those of its
    catalogs, by the number of the catalog and their path in it. ``loose`` are names of what is to
    come out that no catalog has: receipts may know them.
    """

    verb: str
    request: Request
    options: Mapping[str, bool]
    files: Mapping[str, bytes] = {}
    loose: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        """Whether it changes an install."""
        return self.verb != "verify" and not self.options.get("rehearse")


def packed(verb: str, request: Request, options: Mapping[str, bool]) -> Errand:
    """Put catalogs and diffs into an errand. Raises what reading them raises."""
    loaded = catalog.load_all(request.catalogs, builtin=request.builtin)
    ids = [patch.id for patch in loaded.patches]
    patches = tuple(_read(item, ids) for item in request.patches)
    return Errand(
        verb=verb,
        request=request.replaced(patches=patches, catalogs=(), builtin=False),
        options=options,
        loose=tuple(
            item
            for item in patches
            if verb == "revert" and isinstance(item, str) and item not in ids
        ),
        files={
            f"{number}/{path}": data
            for number, folder in enumerate(loaded.folders)
            for path, data in _files(folder, loaded)
        },
    )


def _read(item: str | AdHoc, ids: list[str]) -> str | AdHoc:
    """Read a diff that is named; what is neither an id nor a file may be in a receipt."""
    if not isinstance(item, str) or item in ids:
        return item
    try:
        return from_file(item, ids)
    except UnknownPatch:
        is_name = not os.path.lexists(item) and os.sep not in item
        if not is_name or item.endswith(DIFF_SUFFIXES):
            raise
        return item


def _files(folder: str, loaded: Catalog) -> Iterator[tuple[str, bytes]]:
    yield manifest.NAME, manifest.read_file(os.path.join(folder, manifest.NAME))
    lock = os.path.join(folder, catalog.LOCK)
    if os.path.lexists(lock):
        yield catalog.LOCK, manifest.read_file(lock)
    for patch in loaded.patches:
        if patch.folder == folder:
            for variant in patch.variants:
                yield variant.diff, patch.diff_bytes(variant)
            if patch.probe is not None:
                yield patch.probe, manifest.read_file(os.path.join(folder, patch.probe))


def run(errand: Errand) -> dict[str, Any]:
    """Do an errand here; return the JSON of the verb's report, and which copy it is of.

    What is raised on purpose is part of the report. With a rehearsal come the diffs that the
    receipt has under loose names.
    """
    report: Report | None = None
    error: VllmPatchError | None = None
    with laid_out(errand.files, name="catalogs") as scratch:
        folders = dict.fromkeys(path.partition("/")[0] for path in errand.files)
        catalogs = tuple(os.path.join(scratch, folder) for folder in folders)
        request = errand.request.replaced(catalogs=catalogs)
        try:
            report = getattr(operations, errand.verb)(request, **errand.options)
        except VllmPatchError as raised:
            error = raised
        except OSError as raised:
            error = of_system(raised)
    body = document.of_report(errand.verb, report, error)
    return {"report": body, "copy": _copy(errand, report), "texts": dict(_texts(errand))}


def _texts(errand: Errand) -> Iterator[tuple[str, bytes]]:
    for name in () if errand.writes else errand.loose:
        try:
            text = operations.applied_text(errand.request.replaced(patches=()), name)
        except (VllmPatchError, OSError):
            continue
        if text is not None:
            yield name, text


def _copy(errand: Errand, report: Report | None) -> tuple[str, int, int] | None:
    """Tell one copy from another: nodes that see one file system say the same of it.

    So may disks that were cloned; who takes those for one must get it right all the same. The
    folder counts, for its files may be linked to those of other copies.
    """
    try:
        install = operations.locate(errand.request) if report is None else report.install
        package = install.package
        status = os.stat(package)
    except (VllmPatchError, OSError):
        return None
    return package, status.st_ino, status.st_ctime_ns
