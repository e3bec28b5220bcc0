"""From a plan to everything a commit writes: files, RECORD lines, the receipt, bytecode.

Always true here: nothing is written; the same plan on the same install gives the same change,
and a change that would write nothing is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from . import bytecode, receipt
from .plan import Plan
from .receipt import Entry
from .stack import Known
from .survey import Survey
from .transaction import Change


def change_of(here: Survey, plan: Plan) -> Change | None:
    """Work out what to write, or None if all is as the plan wants it already."""
    order = {name: place for place, name in enumerate(here.here.series)}
    wanted = [_entry(here, patch, "in") for patch in plan.goal]
    going = {patch.id for patch in (*plan.goal, *plan.out)}
    wanted += [entry for entry in here.entries if entry.id not in going]
    leaving = [_entry(here, patch, "out") for patch in plan.out if patch.id not in _ids(wanted)]
    wanted.sort(key=lambda entry: order[entry.id])
    during = sorted([*wanted, *leaving], key=lambda entry: order[entry.id])
    lines, no_lines = _record_lines(here, plan, keeps_receipt=bool(wanted))
    change = Change(
        edits=plan.edits,
        lines=lines,
        no_lines=no_lines,
        receipt_name=receipt.NAME,
        meanwhile=receipt.dump(during) if during else None,
        receipt=receipt.dump(wanted) if wanted else None,
        bytecode=_stale_bytecode(here, plan),
    )
    return change if _does_anything(here, change, wanted) else None


def _ids(entries: Iterable[Entry]) -> set[str]:
    return {entry.id for entry in entries}


def _entry(here: Survey, patch: Known, wanted: str) -> Entry:
    return Entry(
        id=patch.id,
        text=patch.text,
        wanted=wanted,
        requires=tuple(sorted(patch.requires)),
        skip=patch.skip,
        skip_outside=patch.skip_outside,
        adhoc=patch.id in here.adhoc,
    )


def _does_anything(here: Survey, change: Change, wanted: Sequence[Entry]) -> bool:
    if change.edits or change.bytecode:
        return True
    if here.info is None:
        return False
    if tuple(wanted) != here.entries:
        return True
    record = here.record
    return record is not None and (
        any(not record.lists(path) for path in change.lines)
        or any(record.listed_without_digest(path) for path in change.no_lines)
    )


def _record_lines(
    here: Survey, plan: Plan, *, keeps_receipt: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths that RECORD is to have lines of ours for, and paths that it is not to."""
    if here.record is None or here.install.dist_info is None:
        return (), ()
    info = here.install.dist_info
    lines: list[str] = []
    no_lines: list[str] = []
    receipt_line = f"{os.path.basename(info)}/{receipt.NAME}"
    (lines if keeps_receipt else no_lines).append(receipt_line)
    if os.path.dirname(info) == os.path.dirname(here.install.package):
        for path, data in plan.target.items():
            recorded = here.record_path(path)
            if here.record.digest(recorded) is None:
                (no_lines if data is None else lines).append(recorded)
    return tuple(lines), tuple(no_lines)


def _stale_bytecode(here: Survey, plan: Plan) -> tuple[str, ...]:
    """All bytecode of files to be changed, and what hides a patch in any other."""
    package = here.install.package
    edited = [edit.path for edit in plan.edits]
    stale = [name for path in edited for name in bytecode.compiled(package, path)]
    patched = dict.fromkeys(path for patch in plan.goal for path in patch.paths)
    for path in patched:
        if path not in edited:
            hiding = bytecode.hiding(package, path)
            stale += [os.path.relpath(name, package) for name in hiding]
    return tuple(stale)
