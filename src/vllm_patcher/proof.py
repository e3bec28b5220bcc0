"""Prove a catalog on the released wheels: that each entry does what it says, where it says so.

Always true here: nothing is taken from the lock, which is made from what is found here. A probe
sees the released files that its patch touches and those that the entry says it reads.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vllm_patcher import digests, probes, versions
from vllm_patcher.catalog import Change, Lock, choose
from vllm_patcher.errors import InvalidPatch, NoReaderOfReleases, UnsafePath, VllmPatchError
from vllm_patcher.fit import FITTING, look_at, plan_of, verdict_of
from vllm_patcher.plan import plan_apply
from vllm_patcher.releases.index import side_by_side
from vllm_patcher.request import Request
from vllm_patcher.scratch import laid_out
from vllm_patcher.states import APPLIED, NOT_APPLIED, UPSTREAM
from vllm_patcher.survey import survey
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vllm_patcher.catalog import Catalog
    from vllm_patcher.fit import Progress
    from vllm_patcher.manifest import Patch, Variant
    from vllm_patcher.releases.index import Index, Release
    from vllm_patcher.releases.wheel import Wheel
    from vllm_patcher.stack import Tree
    from vllm_patcher.states import Reason

_TELLS = "tells whether the fault is there too: widen the range, or write one"
_ALL = ">=0"


class Tried(Value):
    """One patch on one release.

    ``changes`` are the digests of its files if it is for the release and fits. ``shown`` says that
    its probe shows the fault, and with the patch does not. ``faults`` is what is not right.
    """

    release: str
    changes: Mapping[str, Change] = {}
    shown: bool = False
    faults: tuple[str, ...] = ()


class Proof(Value):
    """One patch on all releases, the oldest first.

    ``unused`` are specifiers of variants that no release is in.
    """

    id: str
    tried: tuple[Tried, ...]
    unused: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """All that is not right, one line each."""
        unused = [f"{self.id}: no release is in {specifier}" for specifier in self.unused]
        found: dict[str, list[str]] = {}
        for one in self.tried:
            for why in one.faults:
                found.setdefault(why, []).append(one.release)
        return unused + [f"{self.id}: vLLM {_some(where)}: {why}" for why, where in found.items()]

    @property
    def changes(self) -> dict[str, Mapping[str, Change]]:
        """The digests of the files of each release that the patch is for."""
        return {one.release: one.changes for one in self.tried if one.changes}


def prove(
    patches: Sequence[Patch],
    *,
    catalog: Catalog,
    index: Index,
    progress: Progress = lambda found, _: found,
) -> list[Proof]:
    """Prove some patches of a catalog on every release.

    Raises NotReleased if there is no list of releases, InvalidCatalog and InvalidPatch.
    """
    releases = index.releases()
    prover = _Prover(catalog.replaced(lock=Lock()), index)

    def look(release: Release) -> list[Tried]:
        return [
            Tried(release=release.version, faults=tuple(faults), changes=changes, shown=shown)
            for faults, changes, shown in prover.all(release, patches)
        ]

    rows = list(progress(side_by_side(look, releases), len(releases)))
    columns = zip(*rows, strict=True)
    return [
        Proof(id=patch.id, tried=tried, unused=_unused(patch, releases))
        for patch, tried in zip(patches, columns, strict=True)
    ]


def _some(releases: Sequence[str]) -> str:
    if len(releases) == 1:
        return releases[0]
    return f"{releases[0]} to {releases[-1]} ({len(releases)} releases)"


def _unused(patch: Patch, releases: Sequence[Release]) -> tuple[str, ...]:
    used = {choose(patch, release.version) for release in releases}
    return tuple(variant.vllm for variant in patch.variants if variant not in used)


_Result = tuple[list[str], "Mapping[str, Change]", bool]


class _Prover:
    def __init__(self, catalog: Catalog, index: Index) -> None:
        self._catalog = catalog
        self._index = index
        self._answers: dict[object, str] = {}

    def all(self, release: Release, patches: Sequence[Patch]) -> Iterator[_Result]:
        """Try each patch on one release."""
        if not release.wheels:
            for patch in patches:
                is_for = choose(patch, release.version) is not None
                yield (["there is no wheel to prove it on"] if is_for else []), {}, False
            return
        try:
            opened = self._index.usual_wheel(release)
        except VllmPatchError as error:
            yield from (_unread(error) for _ in patches)
            return
        with opened as wheel:
            together = self._together(release, wheel, patches)
            for patch in patches:
                try:
                    faults, changes, shown = self._one(patch, release, wheel)
                except VllmPatchError as error:
                    yield _unread(error)
                else:
                    # What can't go in by itself need not be told that it can't with others.
                    yield faults or together.get(patch.id, []), changes, shown

    def _together(
        self, release: Release, wheel: Wheel, patches: Sequence[Patch]
    ) -> dict[str, list[str]]:
        """Say what keeps `apply` without names from bringing in all that a release gets."""
        names = [one.id for one in patches if one.default and choose(one, release.version)]
        if len(names) < 2:  # noqa: PLR2004 - one alone is looked at for itself
            return {}
        try:
            here = survey(wheel.install, Request(patches=tuple(names)), wheel.tree, self._catalog)
            plan = plan_of(here)
        except VllmPatchError:
            return {}
        faults = {
            finding.id: [f"with all others: {finding.state}: {_words(finding.reasons)}"]
            for finding in plan.findings
            if finding.id in names and finding.state not in (NOT_APPLIED, UPSTREAM, APPLIED)
        }
        if plan.refusals and not faults:
            faults[names[-1]] = [f"with all others: {_words(plan.refusals)}"]
        return faults

    def _one(self, patch: Patch, release: Release, wheel: Wheel) -> _Result:
        if choose(patch, release.version) is not None:
            return self._inside(patch, release, wheel)
        standing = versions.judge(release.version, patch.affects)
        where = f"outside {patch.affects}" if standing == "out" else "where no variant is for it"
        return self._outside(patch, wheel, where), {}, False

    def _inside(self, patch: Patch, release: Release, wheel: Wheel) -> _Result:
        here = look_at(wheel, patch.id, self._catalog)
        plan = plan_of(here)
        verdict = verdict_of(plan, patch.id)
        if verdict.state not in FITTING:
            return [f"{verdict.state}: {verdict.detail}"], {}, False
        required = [here.asked[name] for name in here.asked[patch.id].requires]
        before = plan_apply(here.situation, required).target if required else here.situation.current
        finding = next(item for item in plan.findings if item.id == patch.id)
        paths = () if finding.patch is None else tuple(finding.patch.paths)
        faults = list(self._different_wheels(release, wheel, paths))
        shown = False
        if patch.probe is not None:
            more = self._reads(patch, wheel)
            answers = [self._probe(patch, {**more, **files}) for files in (before, plan.target)]
            shown = [answer.partition(":")[0] for answer in answers] == [
                probes.SHOWN,
                probes.ABSENT,
            ]
            if not shown:
                faults.append(f"its probe says {answers[0]}; and with the patch {answers[1]}")
        changes = {
            path: Change(
                before=digests.of_file(here.situation.current[path]),
                after=digests.of_file(plan.target[path]),
            )
            for path in paths
        }
        return faults, changes, shown

    def _different_wheels(
        self, release: Release, usual: Wheel, paths: Sequence[str]
    ) -> Iterator[str]:
        for file in release.wheels[1:]:
            with self._index.wheel(file, release.version) as other:
                for name in (f"vllm/{path}" for path in paths):
                    if other.record.digest(name) != usual.record.digest(name):
                        yield f"{name} is not the same in {usual.file.name} and {file.name}"

    def _outside(self, patch: Patch, wheel: Wheel, where: str) -> list[str]:
        """Where it is not brought in it must not fit, unless its probe says there is no fault."""
        for variant in patch.variants:
            try:
                here = look_at(wheel, patch.id, self._with(_widened(patch, variant)))
            except (InvalidPatch, UnsafePath):  # its names mean nothing here
                continue
            if verdict_of(plan_of(here), patch.id).state not in FITTING:
                continue
            if patch.probe is None:
                return [f"{variant.diff} fits {where}, and there is no probe that {_TELLS}"]
            answer = self._probe(patch, {**self._reads(patch, wheel), **here.situation.current})
            if not answer.startswith(probes.ABSENT):
                return [f"{variant.diff} fits {where}, and its probe says {answer}"]
        return []

    def _with(self, changed: Patch) -> Catalog:
        patches = [changed if one.id == changed.id else one for one in self._catalog.patches]
        return self._catalog.replaced(patches=tuple(patches))

    def _reads(self, patch: Patch, wheel: Wheel) -> dict[str, bytes | None]:
        return {path: wheel.read(f"vllm/{path}") for path in patch.reads}

    def _probe(self, patch: Patch, files: Tree) -> str:
        """Ask a probe once for the same files; what it says, in words."""
        key = (
            patch.id,
            tuple((path, digests.of_file(data)) for path, data in sorted(files.items())),
        )
        if key not in self._answers:
            with laid_out(files) as package:
                probe = probes.run(sys.executable, patch.probe_path or "", package)
            self._answers[key] = f"{probe.answer}: {probe.line}"
        return self._answers[key]


def _widened(patch: Patch, variant: Variant) -> Patch:
    """The patch as if it were for every release, with this diff."""
    return patch.replaced(affects=_ALL, variants=(variant.replaced(vllm=_ALL),))


def _words(reasons: Sequence[Reason]) -> str:
    return "; ".join(reason.text for reason in reasons)


def _unread(error: VllmPatchError) -> _Result:
    """What can't be read proves nothing, unless the same is wrong with every release."""
    if isinstance(error, NoReaderOfReleases):
        raise error
    return ["; ".join([error.what, *error.facts])], {}, False
