"""The state of one patch, from what was found and from the patches that were laid before it.

Always true here: nothing is put on or taken out; what is answered is a state and the reasons
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from vllm_patcher.explain import BESIDE, describe, upstream
from vllm_patcher.stack import Problem, Stack, Tree, take
from vllm_patcher.states import (
    APPLIED,
    CONFLICT,
    NOT_APPLIED,
    OUTDATED,
    PARTIAL,
    PRESENT,
    UPSTREAM,
    Asked,
    Reason,
)

if TYPE_CHECKING:
    from vllm_patcher.identify import Found
    from vllm_patcher.known import Known

#: The kind of a reason against a patch in a file that somebody else has changed.
FOREIGN = "foreign"

Verdict = tuple[str, list[Reason]]


def fits(files: Tree, patch: Known, *, only: Collection[str] | None = None) -> bool:
    """Say whether a patch, or its parts in some paths, goes on a tree."""
    return not Stack(files).put(patch, only=only)


def contains(
    files: Tree,
    patch: Known,
    *,
    only: Collection[str] | None = None,
    beneath: Iterable[Known] = (),
    surely: bool = False,
) -> bool:
    """Say whether a patch, or its parts in some paths, could come out of a tree by its text.

    That lines it takes out are not somewhere shows only there that they belong: so the place must
    be the right one. ``beneath`` are patches that may have moved it. ``surely`` also asks that
    nothing stands elsewhere that the patch could be meant for.
    """
    if surely and _is_blind(patch):
        return False
    out = take(files, patch, trusted=False, only=only, beneath=beneath, strict=True, surely=surely)
    return out is not None


def _is_blind(patch: Known) -> bool:
    """Say whether a patch puts lines in by their number alone.

    That equal ones are there shows nothing then: they may have been there before.
    """
    parts = (part.diff for part in patch.parts if part.diff.change != "create")
    return any(not hunk.old for diff in parts for hunk in diff.hunks)


def has(files: Tree, patch: Known, dependents: Iterable[Known]) -> bool:
    """Say whether a tree has what a patch does, perhaps below one of its ``dependents``.

    What builds on a patch may change its lines, so that only both can come out.
    """
    if not fits(files, patch) and contains(files, patch, surely=True):
        return True
    for other in dependents:
        less = take(files, other, trusted=False, strict=True, surely=True)
        if less is not None and not fits(files, other) and not fits(less, patch):
            return contains(less, patch, surely=True)
    return False


def choose(
    asked: Asked,
    there: Sequence[Known],
    found: Found,
    goes_on: Callable[[Known], bool],
    dependents: Sequence[Known],
) -> Known | None:
    """Choose the text that is meant among a patch's candidates; None: none of them.

    ``there`` are the revisions that are in; ``goes_on`` says whether one fits on what was laid;
    ``dependents`` are the texts that require it.
    """
    if asked.by == "version":
        return asked.candidates[0] if asked.candidates else None
    rules: list[Callable[[Known], bool]] = [
        lambda patch: any(patch.same(other) for other in there),
        lambda patch: _all_listed(found.base, patch),
    ]
    if asked.by == "content":
        rules += [
            goes_on,
            lambda patch: contains(found.base, patch, surely=True),
            lambda patch: has(found.base, patch, dependents),
        ]
    chosen = (patch for rule in rules for patch in asked.candidates if rule(patch))
    return next(chosen, None)


def _all_listed(base: Tree, patch: Known) -> bool:
    """Say whether the base, as it is or once the patch is out of it, is one the patch is for.

    The second matters where no digest of RECORD could show that the patch is in.
    """
    less = take(base, patch, trusted=True)
    return _listed(base, patch) or (less is not None and _listed(less, patch))


def _listed(files: Tree, patch: Known) -> bool:
    stack = Stack(files)
    there = [path for path in patch.paths if files[path] is not None]
    made = {
        part.path for part in patch.parts if part.source is not None or part.diff.change == "create"
    }
    # A patch that only makes new files has no digest that could tell a release.
    return (
        bool(there)
        and made.issuperset(path for path in patch.paths if files[path] is None)
        and all(stack.listed(patch, path) for path in there)
    )


def lacking(found: Found, there: Sequence[Known], patch: Known) -> Verdict:
    """Judge a patch that fits; ``there`` are the revisions of it that are in, whole or in part."""
    if not there:
        return NOT_APPLIED, []
    if not all(other.same(patch) for other in there):
        return OUTDATED, [Reason(what="another revision of it is in")]
    return PARTIAL, [counts(found, there[0])]


def counts(found: Found, patch: Known) -> Reason:
    """Say how much there is of a patch of which only a part is in."""
    paths = found.partial[patch]
    hunks = sum(len(part.diff.hunks) for part in patch.parts)
    have = sum(len(part.diff.hunks) for part in patch.parts if part.path in paths)
    return Reason(what=f"{len(paths)} of {len(patch.paths)} files, {have} of {hunks} hunks are in")


def misfit(
    found: Found,
    patch: Known,
    *,
    laid: Tree,
    problems: Iterable[Problem],
    beneath: Sequence[Known],
    dependents: Sequence[Known],
) -> Verdict:
    """Judge a patch that does not go on ``laid``: on the base, with the patches ``beneath``."""
    if has(found.base, patch, dependents):
        if found.proven.issuperset(patch.paths):
            return UPSTREAM, [upstream(patch)]
        what = "it is there, but nothing proves that it was put in by vllm-patch"
        return PRESENT, [Reason(what=what)]
    if any(contains(laid, patch, beneath=on, surely=True) for on in ((), found.patches)):
        return APPLIED, [Reason(what="another patch that is in does the same")]
    reasons = [_why(found, patch, problem) for problem in problems]
    others = [other for other in beneath if other.touches(patch.paths)]
    if others and fits(found.base, patch):
        what = f"it fits this vLLM, but not beside {', '.join(other.id for other in others)}"
        beside = tuple(other.id for other in others if other in found.patches)
        reasons.insert(0, Reason(what=what, misfit=BESIDE, beside=beside))
    return CONFLICT, reasons


def _why(found: Found, patch: Known, problem: Problem) -> Reason:
    unit = next(unit for unit in found.units if problem.path in unit)
    if not fits(found.base, patch, only=unit) and contains(
        found.base, patch, only=unit, surely=True
    ):
        what = "this file has the change already, others of the patch have not"
        return Reason(what=what, path=problem.path)
    return describe(problem, patch)


def absent(found: Found, patch: Known, *, torn: list[Reason]) -> Verdict:
    """Judge a patch that is to come out and was not found; ``torn`` is what `mixed` says."""
    if torn:
        return CONFLICT, torn
    if contains(found.base, patch) and not fits(found.base, patch):
        if found.proven.issuperset(patch.paths):
            return UPSTREAM, [upstream(patch)]
        what = "nothing proves that it was put in by vllm-patch; it stays"
        return PRESENT, [Reason(what=what)]
    return NOT_APPLIED, []


def mixed(found: Found, patch: Known) -> list[Reason]:
    """Say in which files another hand may have left some of a patch, so that it can't come out.

    Those are the ones that nothing proves, that the patch was not found in, and that it does not
    fit or could come out of by its text.
    """
    return [
        Reason(what="the file was changed by another hand", path=path, misfit=FOREIGN)
        for unit in found.units
        if patch.touches(unit)
        and not unit.issubset(found.proven)
        and not any(patch in found.on(path) for path in unit)
        and (not fits(found.base, patch, only=unit) or contains(found.base, patch, only=unit))
        for path in sorted(unit)
        if path in patch.paths
    ]


def stuck(current: Tree, patch: Known, reasons: list[Reason]) -> Verdict:
    """Judge a patch of the receipt that can't be taken out; ``reasons`` is what `mixed` says."""
    if not contains(current, patch):
        return CONFLICT, reasons
    what = "it is in, but another hand has changed the file so that it can't be taken out"
    return APPLIED, [Reason(what=what)]
