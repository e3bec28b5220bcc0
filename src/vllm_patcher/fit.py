"""Which releases a patch fits, by the same plan that `apply` makes of an install.

Always true here: every release gets a verdict; what is wrong with one does not keep the others
from theirs. A verdict is about the files of the wheel and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import diff, paths, versions
from vllm_patcher.catalog import Catalog
from vllm_patcher.errors import (
    InvalidPatch,
    NoReaderOfReleases,
    NotReleased,
    UnsafePath,
    VllmPatchError,
)
from vllm_patcher.explain import NOT_COMPILING
from vllm_patcher.plan import plan_apply
from vllm_patcher.releases.index import side_by_side
from vllm_patcher.request import AdHoc, Request, from_file
from vllm_patcher.states import APPLIED, CONFLICT, NOT_APPLIED, UPSTREAM
from vllm_patcher.survey import survey
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Progress = Callable[[Iterable[Any], int], Iterable[Any]]

    from vllm_patcher.plan import Plan
    from vllm_patcher.releases.index import Index, Release
    from vllm_patcher.releases.wheel import Wheel
    from vllm_patcher.states import Finding
    from vllm_patcher.survey import Survey

EXACT = "exact"
OFFSET = "offset"
AMBIGUOUS = "ambiguous"
MISSING = "file-missing"
BROKEN = "does-not-compile"
UNREADABLE = "unreadable"

#: The patch can be applied to the release.
FITTING = frozenset({EXACT, OFFSET})


class Verdict(Value):
    """How one patch stands to one release.

    ``state`` is one of the words of this module, or one of those that every verb uses.
    ``offsets`` are the lines that hunks moved, by path; ``detail`` says why.
    """

    state: str
    detail: str = ""
    release: str = ""
    offsets: Mapping[str, tuple[int, ...]] = {}
    yanked: bool = False


class Fit(Value):
    """One patch and all its verdicts, the oldest release first.

    ``claim`` is a specifier that holds for the releases it fits and for no other of the index, ""
    if it fits none.
    """

    id: str
    verdicts: tuple[Verdict, ...]
    claim: str


def fits(
    patches: Sequence[str | AdHoc],
    *,
    catalog: Catalog,
    index: Index,
    among: str = "",
    skip_outside: bool = False,
    progress: Progress = lambda found, _: found,
) -> list[Fit]:
    """Say for each patch which releases it fits; ``among`` is a specifier, "" means all.

    Patches are ids of the catalog, paths of diff files, or diffs. ``progress`` is given what comes
    of each release, and how many there are, and gives it out again. Raises NotReleased if there
    is no list of releases, UnknownPatch, InvalidPatch and InvalidCatalog.
    """
    items = [_item(item, catalog, skip_outside=skip_outside) for item in patches]
    every = index.releases()
    releases = [
        release for release in every if not among or versions.judge(release.version, among) == "in"
    ]
    if not releases:
        raise NotReleased(f"the package index has no release in {among}")
    names = [item if isinstance(item, str) else item.id for item in items]

    def look(release: Release) -> list[Verdict]:
        return _look(release, items, catalog=catalog, index=index, skip_outside=skip_outside)

    rows = list(progress(side_by_side(look, releases), len(releases)))
    # What was not looked at is not claimed.
    known = [release.version for release in every]
    return [
        Fit(id=name, verdicts=verdicts, claim=versions.claim(_fitting(verdicts), known))
        for name, verdicts in zip(names, zip(*rows, strict=True), strict=True)
    ]


def _fitting(verdicts: Iterable[Verdict]) -> list[str]:
    return [verdict.release for verdict in verdicts if verdict.state in FITTING]


def plan_of(here: Survey) -> Plan:
    """Plan to bring what is named in a survey, and all that it requires, into a wheel."""
    needed = {name for own in here.named for name in (own, *here.asked[own].requires)}
    return plan_apply(here.situation, [item for item in here.asked.values() if item.id in needed])


def _item(item: str | AdHoc, catalog: Catalog, *, skip_outside: bool) -> str | AdHoc:
    """Read a diff file, and see that a diff is one: what is wrong with it is so everywhere.

    So is what it has outside the package, whatever files there are inside.
    """
    ids = [patch.id for patch in catalog.patches]
    if isinstance(item, str) and item not in ids:
        item = from_file(item, ids)
    if isinstance(item, AdHoc):
        name = item.where or item.id
        parsed = diff.parse(item.text, name=name)
        paths.resolve(parsed, name=name, exists=lambda _: True, skip_outside=skip_outside)
    return item


def _look(
    release: Release,
    items: Sequence[str | AdHoc],
    *,
    catalog: Catalog,
    index: Index,
    skip_outside: bool,
) -> list[Verdict]:
    """Give the verdict on each patch for one release."""
    try:
        with index.usual_wheel(release) as wheel:
            found = [_verdict(wheel, item, catalog, skip_outside=skip_outside) for item in items]
    except VllmPatchError as error:
        found = [_unread(error)] * len(items)
    return [one.replaced(release=release.version, yanked=release.yanked) for one in found]


def _unread(error: VllmPatchError) -> Verdict:
    """Give the verdict on what can't be read, unless the same is wrong with every release."""
    if isinstance(error, NoReaderOfReleases):
        raise error
    return Verdict(state=UNREADABLE, detail="; ".join([error.what, *error.facts]))


def _verdict(
    wheel: Wheel, item: str | AdHoc, catalog: Catalog, *, skip_outside: bool = False
) -> Verdict:
    try:
        here = look_at(wheel, item, catalog, skip_outside=skip_outside)
    except (InvalidPatch, UnsafePath) as error:
        # It is a diff, and its names mean nothing here.
        return Verdict(state=MISSING, detail="; ".join(error.facts or [error.what]))
    except NotReleased as error:
        return _unread(error)
    return verdict_of(plan_of(here), item if isinstance(item, str) else item.id)


def look_at(
    wheel: Wheel, item: str | AdHoc, catalog: Catalog, *, skip_outside: bool = False
) -> Survey:
    """Survey a wheel for one patch and all that it requires."""
    request = Request(patches=(item,), skip_outside=skip_outside)
    own = _closure(item, catalog) if isinstance(item, str) else frozenset()
    some = Catalog(
        folders=catalog.folders,
        patches=tuple(patch for patch in catalog.patches if patch.id in own),
        lock=catalog.lock,
    )
    return survey(wheel.install, request, wheel.tree, some)


def _closure(name: str, catalog: Catalog) -> frozenset[str]:
    """A patch of the catalog and all that it requires."""
    by_id = {patch.id: patch for patch in catalog.patches}
    found, todo = set[str](), [name]
    while todo:
        found.add(todo[-1])
        todo += [needed for needed in by_id[todo.pop()].requires if needed not in found]
    return frozenset(found)


def verdict_of(plan: Plan, name: str) -> Verdict:
    """Give the verdict that a plan for a wheel is for one patch."""
    finding = next(item for item in plan.findings if item.id == name)
    state = _state(finding, plan)
    reasons = [*finding.reasons, *(plan.refusals if state not in FITTING else ())]
    return Verdict(
        state=state,
        detail="; ".join(reason.text for reason in reasons),
        offsets=finding.offsets if state == OFFSET else {},
    )


def _state(finding: Finding, plan: Plan) -> str:
    if finding.state == APPLIED:  # nothing is in a wheel: so it does not change anything
        return UPSTREAM
    kinds = {reason.misfit for reason in finding.reasons}
    if finding.state == CONFLICT and "missing" in kinds:
        return MISSING
    if finding.state == CONFLICT and kinds == {"ambiguous"}:
        return AMBIGUOUS
    if finding.state != NOT_APPLIED:
        return finding.state
    if plan.refusals:
        return BROKEN if plan.refusals[0].misfit == NOT_COMPILING else CONFLICT
    moved = any(any(offsets) for offsets in finding.offsets.values())
    return OFFSET if moved else EXACT
