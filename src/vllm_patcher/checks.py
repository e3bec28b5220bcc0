"""What stands against a target once all patches are laid: reasons that belong to no one patch.

Always true here: no patch is judged; a target that draws no objection is Python where the base
was, and can be taken apart again into the base and the patches of the goal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.explain import describe, does_not_compile_any_more
from vllm_patcher.judge import FOREIGN
from vllm_patcher.states import SATISFYING, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from vllm_patcher.identify import Found
    from vllm_patcher.known import Known
    from vllm_patcher.situation import Situation
    from vllm_patcher.stack import Problem, Stack, Tree
    from vllm_patcher.states import Finding
    from vllm_patcher.unit import Unit

#: The kind of the reason against a result in which a patch could not be found again.
NOT_TAKEN_APART = "not-taken-apart"
#: The kind of the reason against a patch that only a receipt could show, where there is none.
NOT_SHOWN = "not-shown"
#: The kind of the reason against a patch that others, to go in behind it, would take out again.
NOT_LASTING = "not-lasting"


def no_longer_fitting(
    unfit: Iterable[tuple[Known, Sequence[Problem]]],
    *,
    changing: Collection[Unit],
    coming: Sequence[Known],
    going: Sequence[Known],
) -> Iterable[Reason]:
    """Object to losing a patch that is in because it has no place any more.

    ``changing`` are the units whose patches change, ``coming`` and ``going`` those patches.
    """
    for patch, problems in unfit:
        if any(patch.touches(unit) for unit in changing):
            what = f"{patch.id}, which is in, {_why(patch, coming, going)}"
            yield Reason(what=what, beside=(patch.id,))
            yield from (describe(problem) for problem in problems)


def _why(patch: Known, coming: Iterable[Known], going: Iterable[Known]) -> str:
    def names(patches: Iterable[Known]) -> str:
        touching = (other for other in patches if patch.touches(other.paths))
        return ", ".join(dict.fromkeys(other.id for other in touching))

    without, beside = names(going), names(coming)
    words = (f" without {without}" if without else "") + (f" beside {beside}" if beside else "")
    return f"would not fit{words}" if words else "would not fit any more"


def not_exact(found: Found, stack: Stack, goal: Iterable[Known]) -> Iterable[Reason]:
    """Object to files RECORD does not prove, and to hunks that moved on one that is not listed."""
    for patch in goal:
        for path in patch.paths:
            placements = stack.placements.get((patch.id, path), ())
            moved = max((placement.offset for placement in placements), key=abs, default=0)
            if path not in found.proven:
                what = "--exact: the file is not proven by RECORD"
                yield Reason(what=what, path=path, misfit=FOREIGN)
            elif moved and not stack.listed(patch, path):
                what = f"--exact: a hunk of {patch.id} moved {moved:+} lines"
                yield Reason(what=what, path=path)


def not_compiling(here: Situation, target: Tree) -> Iterable[Reason]:
    """Object to sources that would stop compiling."""
    base = here.found.base
    changed: list[tuple[str, bytes | None, bytes]] = []
    for unit in here.found.units:
        # A renamed file was another one before.
        others = [base[path] for path in sorted(unit) if base[path] is not None]
        for path in sorted(unit):
            after = target[path]
            if path.endswith(".py") and after is not None and after != here.current[path]:
                before = base[path] if base[path] is not None else next(iter(others), None)
                changed.append((path, before, after))
    errors = here.objections([after for _, _, after in changed])
    broken = [(*each, error) for each, error in zip(changed, errors, strict=True) if error]
    old = here.objections([before or b"" for _, before, _, _ in broken])
    for (path, _, _, error), not_before in zip(broken, old, strict=True):
        if not_before is None:
            yield does_not_compile_any_more(path, error)


def not_taken_apart(
    here: Situation, after: Situation, *, on: Mapping[str, Collection[Known]]
) -> Iterable[Reason]:
    """Object to a target that the same code could not identify afterwards.

    ``after`` is what the next run would find; ``on`` gives for each path to look at the patches
    that are to be found there.
    """
    again = after.found
    for path, patches in on.items():
        lost = [patch.id for patch in patches if patch not in again.on(path)]
        are_in = f"{' and '.join(lost)} {'is' if len(lost) == 1 else 'are'} in"
        if lost and not here.keeps_receipt:
            what = f"without a dist-info, nothing would show that {are_in}"
            yield Reason(what=what, path=path, misfit=NOT_SHOWN)
        elif again.base[path] != here.found.base[path] or set(again.on(path)).difference(patches):
            what = "the result could not be taken apart again"
            yield Reason(what=what, path=path, misfit=NOT_TAKEN_APART)
        elif lost:
            what = f"nothing in the result would show that {are_in}"
            yield Reason(what=what, path=path)


def not_lasting(said: Iterable[Finding], again: Mapping[str, Finding]) -> Iterable[Reason]:
    """Object to calling patches in that the next run, ``again``, would not find to be in.

    One that is `upstream`, say, until others are in.
    """
    now = {finding.id: finding for finding in said}
    for name, then in again.items():
        if now[name].once_applied().state in SATISFYING and then.state not in SATISFYING:
            what = f"{name}, now {now[name].state}, would be {then.state} once the others are in"
            yield Reason(what=what, misfit=NOT_LASTING)
