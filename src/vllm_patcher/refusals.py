"""What stands against a plan, raised as one error that carries every reason.

Always true here: nothing is written, and a plan that nothing stands against passes in silence.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher import versions
from vllm_patcher.advice import IN_THE_WAY, MORE_CONTEXT, OTHER_HAND, advice
from vllm_patcher.assess import counted, report_on
from vllm_patcher.bytecode import Bytecode
from vllm_patcher.checks import NOT_LASTING, NOT_SHOWN, NOT_TAKEN_APART
from vllm_patcher.errors import (
    Conflict,
    NotInstalled,
    UnsafePath,
    UnsupportedVersion,
    VllmPatchError,
    pasted,
)
from vllm_patcher.judge import FOREIGN
from vllm_patcher.results import Refused
from vllm_patcher.states import BLOCKED, CONFLICT, NOT_NEEDED, PRESENT, UNSUPPORTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from vllm_patcher.plan import Plan
    from vllm_patcher.states import Finding, Reason
    from vllm_patcher.survey import Survey


_IN_A_SOURCE_TREE = "this is a source tree: let git apply the diff there"
_INTO_A_CATALOG = "install vllm with pip or uv, or put the diff into a catalog that has a lock"
_HINTS = {
    NOT_TAKEN_APART: MORE_CONTEXT,
    NOT_SHOWN: "install vllm with pip or uv, so that it has a dist-info",
    NOT_LASTING: "name it after the others, or leave it out",
    FOREIGN: OTHER_HAND,
}


def refuse_to_apply(here: Survey, plan: Plan) -> None:
    """Raise Refused if anything stands against a plan to apply."""
    errors: list[VllmPatchError] = []
    for finding in plan.findings:
        if finding.state in (CONFLICT, BLOCKED):
            errors.append(_error(Conflict, finding, _hint_to_apply(here, plan, finding)))
        elif finding.state == UNSUPPORTED and (finding.named or _nothing_known(here, plan)):
            errors.append(_error(UnsupportedVersion, finding, _hint_to_apply(here, plan, finding)))
    homeless = [*_homeless(here, plan)]
    errors += [
        _refusal(reason)
        for reason in dict.fromkeys(plan.refusals)
        if not (homeless and reason.misfit == NOT_SHOWN)
    ]
    errors += _shadowed(here, plan, _asked_or_changed(plan))
    errors += homeless
    _refuse("apply", "applied", errors, here, plan)


def refuse_to_revert(here: Survey, plan: Plan) -> None:
    """Raise Refused if anything stands against a plan to revert."""
    hints = {
        CONFLICT: OTHER_HAND,
        BLOCKED: pasted("vllm-patch", "revert", "--with-dependents", *here.named),
        PRESENT: "reinstall this vLLM to have the files as they were released",
    }
    errors = [
        _error(Conflict, finding, hints[finding.state])
        for finding in plan.findings
        if finding.state in (CONFLICT, BLOCKED) or (finding.state == PRESENT and here.named)
    ]
    errors += [_refusal(reason) for reason in dict.fromkeys(plan.refusals)]
    errors += _shadowed(here, plan)
    _refuse("revert", "reverted", errors, here, plan)


def _nothing_known(here: Survey, plan: Plan) -> bool:
    """Does the version say nothing, and is no file of any catalog patch a listed one?"""
    return versions.parse(here.version) is None and all(
        finding.state == UNSUPPORTED for finding in plan.findings if finding.id not in here.adhoc
    )


def _hint_to_apply(here: Survey, plan: Plan, finding: Finding) -> str:
    against = here.asked[finding.id].conflicts
    in_its_way = [patch.id for patch in plan.found.patches if patch.id in against]
    if in_its_way:
        return pasted("vllm-patch", "revert", *in_its_way)
    paths = finding.patch.paths if finding.patch is not None else ()
    return advice(
        finding.id,
        finding.state,
        finding.reasons,
        version=here.version,
        adhoc=finding.id in here.adhoc,
        modified=here.record is not None and not plan.found.proven.issuperset(paths),
    )


def _refuse(
    verb: str, done: str, errors: Sequence[VllmPatchError], here: Survey, plan: Plan
) -> None:
    if not errors:
        return
    ids = list(dict.fromkeys(error.patch for error in errors if error.patch))
    shown = [item.id for item in plan.findings if item.state != NOT_NEEDED or item.named]
    some = counted(ids or shown, len(shown)) if ids or len(shown) == 1 else "the patches"
    raise Refused(
        f"{some} can't be {done}; nothing was changed",
        errors=errors,
        report=report_on(verb, here, plan),
        hint=next((error.hint for error in errors if error.hint), None),
    )


def _error(kind: type[VllmPatchError], finding: Finding, hint: str) -> VllmPatchError:
    return kind(
        f"{finding.id} is {finding.state}",
        facts=[reason.text for reason in finding.reasons],
        hint=hint,
        patch=finding.id,
    )


def _refusal(reason: Reason) -> VllmPatchError:
    hint = _HINTS.get(reason.misfit)
    if reason.beside:
        hint = pasted("vllm-patch", "revert", *reason.beside)
    return Conflict(reason.what, facts=[reason.where] if reason.path else [], hint=hint)


def _asked_or_changed(plan: Plan) -> set[str]:
    asked = {finding.patch for finding in plan.findings}
    meant = {path for patch in plan.goal if patch in asked for path in patch.paths}
    return meant | {edit.path for edit in plan.edits}


def _shadowed(here: Survey, plan: Plan, meant: Collection[str] = ()) -> Iterable[VllmPatchError]:
    """Object to patched sources that Python would not read.

    Because of what the plan makes beside them or, for the paths that are ``meant``, of what is
    there and stays.
    """
    package, bytecode = here.install.package, Bytecode(here.install.package)
    made = {edit.path for edit in plan.edits if edit.before is None}
    for path in dict.fromkeys(path for patch in plan.goal for path in patch.paths):
        if plan.target[path] is None:
            continue
        found = [*bytecode.shadowing(path)] if path in meant else []
        init = f"{path.removesuffix('.py')}/__init__.py"
        folder = os.path.join(package, os.path.dirname(init))
        if folder in found and plan.target.get(init, b"") is None:
            found.remove(folder)
        elif folder not in found and init in made:
            found.append(f"vllm/{init}, which is to be there,")
        if found:
            on = next(patch.id for patch in plan.goal if path in patch.paths)
            yield UnsafePath(
                f"Python would never read vllm/{path}, which {on} changes",
                facts=[f"{name} is taken before it" for name in found],
                hint=IN_THE_WAY,
                patch=on,
            )


def _homeless(here: Survey, plan: Plan) -> Iterable[VllmPatchError]:
    """Without a dist-info there is no receipt, and an ad-hoc diff lives in nothing else."""
    if here.info is not None:
        return
    for patch in plan.goal:
        if patch.id in here.adhoc:
            yield NotInstalled(
                f"{patch.id} can't be kept track of: this vLLM has no dist-info",
                hint=_IN_A_SOURCE_TREE if here.install.editable else _INTO_A_CATALOG,
                patch=patch.id,
            )
