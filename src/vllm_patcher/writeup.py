"""From a plan to everything a commit writes: files, RECORD lines, the receipt, bytecode.

Always true here: nothing is written; the same plan on the same install gives the same change,
and a change that would write nothing is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vllm_patcher import receipt
from vllm_patcher.bytecode import Bytecode
from vllm_patcher.receipt import Entry
from vllm_patcher.transaction import Change

if TYPE_CHECKING:
    from vllm_patcher.known import Known
    from vllm_patcher.plan import Plan
    from vllm_patcher.survey import Survey


def change_of(here: Survey, plan: Plan) -> Change | None:
    """Work out what to write, or None if all is as the plan wants it already."""
    order = {name: place for place, name in enumerate(here.situation.series)}
    staying, leaving = _entries(here, plan)
    staying.sort(key=lambda entry: order[entry.id])
    during = sorted([*leaving, *staying], key=lambda entry: order[entry.id])
    lines, no_lines = _file_lines(here, plan)
    meanwhile = receipt.dump(during) if during else None
    change = Change(
        edits=plan.edits,
        lines=lines,
        no_lines=no_lines,
        receipt_name=receipt.NAME,
        receipt_line=_receipt_line(here),
        meanwhile=meanwhile,
        receipt=meanwhile if during == staying else receipt.dump(staying) if staying else None,
        bytecode=_stale_bytecode(here, plan),
        sweep=tuple(plan.target),
    )
    return change if _does_anything(here, change, staying) else None


def _entries(here: Survey, plan: Plan) -> tuple[list[Entry], list[Entry]]:
    """The receipt's entries that are there afterwards, and those that are on their way out."""
    going = {patch.id for patch in plan.out}
    staying = [_entry(here, patch, "in") for patch in plan.goal]
    ids = {entry.id for entry in staying}
    # What nobody asked about and is nowhere to be found is not for this run to forget.
    staying += [
        entry
        for entry in here.entries
        if entry.id not in ids | going and (entry.wanted == "in" or not _is_over(here, entry))
    ]
    there = [*plan.found.patches, *plan.found.partial, *here.situation.receipt]
    kept = {(entry.id, entry.text) for entry in staying}
    leaving = [
        _entry(here, patch, "out")
        for patch in dict.fromkeys(there)
        if (patch.id in ids | going or patch in here.situation.receipt)
        and (patch.id, patch.text) not in kept
    ]
    return staying, leaving


def _is_over(here: Survey, entry: Entry) -> bool:
    """Say whether nothing can be left of a patch that an earlier run was taking out."""
    return all(
        here.situation.found.proven.issuperset(patch.paths)
        for patch in here.situation.receipt
        if patch.id == entry.id and patch.text == entry.text
    )


def _entry(here: Survey, patch: Known, wanted: str) -> Entry:
    return Entry(
        id=patch.id,
        text=patch.text,
        wanted=wanted,
        requires=tuple(sorted(patch.requires)),
        places=patch.places,
        adhoc=_is_adhoc(here, patch),
    )


def _is_adhoc(here: Survey, patch: Known) -> bool:
    """Say whether no catalog has a text: none of this run, or none of those before it."""
    was = {(entry.id, entry.text): entry.adhoc for entry in here.entries}
    if patch.id in here.adhoc:
        return was.get((patch.id, patch.text), True)
    adopted = any(patch.same(one) for one in here.asked[patch.id].candidates)
    return was.get((patch.id, patch.text), False) and not adopted


def _does_anything(here: Survey, change: Change, staying: Sequence[Entry]) -> bool:
    if change.edits or change.bytecode:
        return True
    if any(here.package.leftovers(path) for path in _one_a_folder(change.sweep)):
        return True
    if here.info is None:
        return False
    if tuple(staying) != here.entries or here.info.leftovers(receipt.NAME):
        return True
    record = here.record
    if record is None:
        return False
    lines = [*change.lines, *([change.receipt_line] if staying else [])]
    no_lines = [*change.no_lines, *([] if staying else [change.receipt_line])]
    return any(not record.lists(path) for path in lines) or any(
        record.listed_without_digest(path) for path in no_lines
    )


def _one_a_folder(paths: Iterable[str]) -> Iterable[str]:
    return {os.path.dirname(path): path for path in paths}.values()


def _receipt_line(here: Survey) -> str:
    info = here.install.dist_info
    return "" if info is None else f"{os.path.basename(info)}/{receipt.NAME}"


def _file_lines(here: Survey, plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of files that RECORD is to have lines of ours for, and those it is not to.

    They are the files that a patch has made: the wheel has none there.
    """
    info = here.install.dist_info
    if here.record is None or info is None:
        return (), ()
    if os.path.dirname(info) != os.path.dirname(here.install.package):
        return (), ()
    lines: list[str] = []
    no_lines: list[str] = []
    for path, data in plan.target.items():
        recorded = here.record_path(path)
        if plan.found.base[path] is None and here.record.digest(recorded) is None:
            (no_lines if data is None else lines).append(recorded)
    return tuple(lines), tuple(no_lines)


def _stale_bytecode(here: Survey, plan: Plan) -> tuple[str, ...]:
    """All bytecode of files that change, or are away, and what hides any other of a patch.

    What goes out counts like what comes in: a killed run may have left either.
    """
    bytecode = Bytecode(here.install.package, here.install.python)
    edited = {edit.path for edit in plan.edits}
    known = (plan.goal, plan.out, plan.found.patches, here.situation.receipt, plan.there_anyhow)
    patches = dict.fromkeys(patch for some in known for patch in some)
    paths = sorted(edited.union(*(patch.paths for patch in patches)))
    staying = [path for path in paths if path not in edited and plan.target[path] is not None]
    gone = sorted({*paths}.difference(staying))
    stale = [name for path in gone for name in bytecode.compiled(path)]
    hiding = bytecode.hiding(staying)
    return (*stale, *(os.path.relpath(name, here.install.package) for name in hiding))
