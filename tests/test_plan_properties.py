"""What holds of any files, any stack of patches, any order of commands and any foreign edit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from conftest import torture
from engine import World, known, make_diff, put, refused
from vllm_patcher.errors import InvalidPatch
from vllm_patcher.states import SATISFYING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine import Files
    from vllm_patcher.known import Known

NAMES = ("a.txt", "b.txt", "c.txt")
EXAMPLES = torture(150, 3000)

pytestmark = pytest.mark.torture

thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """A release and patches for it; every line that a patch adds is its own."""

    released: Files
    patches: tuple[Known, ...]

    def world(self, **more: object) -> World:
        return World(released=self.released, catalog=self.patches, **more)  # type: ignore[arg-type]


@st.composite
def files(draw: st.DrawFn) -> Files:
    """Make files with many equal lines, or with none."""
    alphabet = draw(st.sampled_from([2, 5, 1000]))
    lines = st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=30)
    made: Files = dict.fromkeys(NAMES)
    for place, name in enumerate(NAMES):
        if draw(st.booleans()) or place == 0:
            numbers = draw(lines)
            plain = [n if alphabet < 1000 else place for place, n in enumerate(numbers)]
            made[name] = "".join(f"line {n}\n" for n in plain).encode()
    if draw(st.booleans()):
        made["a.txt"] = (made["a.txt"] or b"")[:-1]
    return made


@st.composite
def change(draw: st.DrawFn, base: Files, tag: str) -> Files:
    """Change one or two files as a patch would."""
    changed = dict(base)
    count = 0
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)):
        data = base[name]
        if data is None:
            changed[name] = f"{tag} made\n".encode()
            continue
        if draw(st.integers(0, 9)) == 0:
            changed[name] = None
            continue
        lines = data.splitlines(keepends=True)
        for _ in range(draw(st.integers(1, 3))):
            count += 1
            at = draw(st.integers(0, len(lines)))
            gone = draw(st.integers(0, 2))
            new = [f"{tag} {count}\n".encode()] if draw(st.integers(0, 3)) else []
            lines[at : at + gone] = new
        changed[name] = b"".join(lines)
    return changed


@st.composite
def stacks(draw: st.DrawFn, *, most: int = 4) -> Stacked:
    """Make patches, each on the release or on those before it, whether it says so or not."""
    released = draw(files())
    patches: list[Known] = []
    top = released
    for number in range(draw(st.integers(1, most))):
        tag = f"p{number}"
        below = top if draw(st.booleans()) else released
        after = draw(change(below, tag))
        data = make_diff(below, after, context=draw(st.sampled_from([1, 3])))
        says_so = below is top and draw(st.booleans())
        try:
            patch = known(tag, data, requires=[p.id for p in patches] if says_so else ())
        except InvalidPatch:
            continue
        patches.append(patch)
        try:
            top = {**top, **put(top, patch)}
        except AssertionError:
            continue
    assume(patches)
    return Stacked(released=released, patches=tuple(patches))


def tagged(data: bytes | None) -> Counter[bytes]:
    return Counter((data or b"").splitlines())


def everything(tree: Files) -> Counter[bytes]:
    return sum((tagged(data) for data in tree.values()), Counter())


def apply_what_goes(world: World, patches: Sequence[Known]) -> list[Known]:
    """Apply patches one by one; return those that were not refused and are in."""
    for patch in patches:
        world.apply(patch.id)
    return list(world.here.found.patches)


def same(tree: Files, other: Files) -> bool:
    return all(tree.get(name) == other.get(name) for name in {*tree, *other})


@thorough
@given(stacks())
def test_the_found_set_is_the_applied_set(stack: Stacked) -> None:
    world = stack.world()
    applied: set[str] = set()
    for patch in stack.patches:
        plan = world.apply(patch.id)
        if not refused(plan):
            applied = {patch.id for patch in plan.goal}
        assert world.found() == dict.fromkeys(applied, True)
    event(f"{len(applied)} applied")
    for patch in stack.patches:
        if patch.id in applied:
            assert world.state(patch.id) in SATISFYING


def placeless(patch: Known) -> bool:
    """Say whether some hunk leaves nothing behind that it could be found by."""
    parts = [part.diff for part in patch.parts if part.diff.change == "modify"]
    return any(not hunk.new for diff in parts for hunk in diff.hunks)


@thorough
@given(stacks())
def test_without_the_receipt_the_base_is_found_all_the_same(stack: Stacked) -> None:
    """But for lines taken out with no line left to find the place by: only the receipt tells
    what had moved it, and without one the file counts as modified.
    """
    world = stack.world()
    apply_what_goes(world, [patch for patch in stack.patches if not placeless(patch)])
    world.receipt = []
    found = world.here.found
    assert same(dict(found.base), {name: stack.released[name] for name in found.base})
    assert found.proven == set(found.base)


@thorough
@given(stacks())
def test_revert_gives_back_every_byte(stack: Stacked) -> None:
    world = stack.world()
    for patch in stack.patches:
        before, receipt = dict(world.files), list(world.receipt)
        in_before = set(world.found())
        plan = world.apply(patch.id)
        new = {patch.id for patch in plan.goal} - in_before
        if refused(plan) or new != {patch.id}:
            continue
        undone = world.revert(patch.id)
        assert not refused(undone)
        assert same(world.files, before)
        assert world.receipt == receipt
        world.apply(patch.id)
    assert not refused(world.revert())
    assert same(world.files, stack.released)
    assert world.receipt == []


@thorough
@given(stacks())
def test_applying_again_changes_nothing(stack: Stacked) -> None:
    world = stack.world()
    apply_what_goes(world, stack.patches)
    names = [patch.id for patch in stack.patches if world.state(patch.id) in SATISFYING]
    before, receipt = dict(world.files), list(world.receipt)
    plan = world.apply(*names)
    assert (plan.edits, plan.refusals) == ((), ())
    assert all(finding.state in SATISFYING for finding in plan.findings)
    assert (world.files, world.receipt) == (before, receipt)


@thorough
@given(stacks(), st.randoms(use_true_random=False))
def test_the_order_of_commands_does_not_matter(stack: Stacked, random: object) -> None:
    at_once = stack.world()
    plan = at_once.apply(*(patch.id for patch in stack.patches))
    if refused(plan):
        return
    goal = set(plan.goal)
    shuffled = list(stack.patches)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    in_turn = stack.world()
    if any(refused(in_turn.apply(patch.id)) for patch in shuffled):
        event("refused in this order")
        return
    event("both ways")
    if set(in_turn.here.found.patches) == goal:
        assert same(in_turn.files, at_once.files)


@thorough
@given(stacks(), st.data())
def test_a_subset_gives_the_same_bytes_by_any_road(stack: Stacked, data: st.DataObject) -> None:
    """Down from all, or up from nothing."""
    down = stack.world()
    plan = down.apply(*(patch.id for patch in stack.patches))
    if refused(plan):
        return
    goal = list(plan.goal)
    kept = [patch for patch in goal if data.draw(st.booleans(), label=patch.id)]
    gone = [patch.id for patch in goal if patch not in kept]
    if gone and refused(down.revert(*gone)):
        event("depends")
        return
    up = stack.world()
    if refused(up.apply(*(patch.id for patch in kept))):
        return
    if set(up.here.found.patches) == set(kept):
        event("both ways")
        assert same(up.files, down.files)


@thorough
@given(stacks(), st.data())
def test_a_run_that_was_killed_is_finished(stack: Stacked, data: st.DataObject) -> None:
    world = stack.world()
    names = [patch.id for patch in stack.patches]
    before = data.draw(st.lists(st.sampled_from(names), unique=True))
    for name in before:
        world.apply(name)
    asked = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    reverts = data.draw(st.booleans())
    plan = world.plan_revert(*asked) if reverts else world.plan(*asked)
    if refused(plan) or len(plan.edits) < 2:
        return
    event("killed")
    expected = {**world.files, **plan.target}
    world.interrupt(plan, files=data.draw(st.integers(0, len(plan.edits) - 1)))
    again = world.revert(*asked) if reverts else world.apply(*asked)
    assert not refused(again)
    assert same(world.files, expected)
    assert set(world.here.found.patches) == set(plan.goal)


@st.composite
def meddled(draw: st.DrawFn, tree: Files) -> Files:
    """Edit files as somebody else would: lines put in, put in place of others, or taken out."""
    changed = dict(tree)
    for number in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(NAMES))
        lines = (changed[name] or b"").splitlines(keepends=True)
        at = draw(st.integers(0, len(lines)))
        new = [f"foreign {number}\n".encode()] if draw(st.integers(0, 4)) else []
        lines[at : at + draw(st.integers(0, 1))] = new
        changed[name] = b"".join(lines)
    return changed


@st.composite
def meddled_worlds(draw: st.DrawFn) -> World:
    """Make an install that has some patches, some of it upstream, after a foreign edit."""
    stack = draw(stacks())
    released = stack.world()
    for patch in draw(st.lists(st.sampled_from(stack.patches), unique=True, max_size=2)):
        released.apply(patch.id)
    world = World(released=released.files, catalog=stack.patches, record=draw(st.booleans()))
    for patch in draw(st.lists(st.sampled_from(stack.patches), unique=True)):
        world.apply(patch.id)
    world.files = draw(meddled(world.files))
    if draw(st.booleans()):
        world.receipt = []
    return world


def lines_of(patches: Iterable[Known], side: str) -> Counter[bytes]:
    """Count the lines on one side of patches."""
    return Counter(
        line.rstrip(b"\n")
        for patch in patches
        for part in patch.parts
        for hunk in part.diff.hunks
        for line in getattr(hunk, side)
    )


@thorough
@given(meddled_worlds(), st.data())
def test_with_a_foreign_edit_nothing_goes_that_is_not_ours(
    world: World, data: st.DataObject
) -> None:
    names = [patch.id for patch in world.catalog]
    for _ in range(3):
        asked = data.draw(st.lists(st.sampled_from(names), unique=True))
        before, found = dict(world.files), world.here.found
        there = {*found.patches, *found.partial}
        ours = {patch for patch, _ in world.receipt}
        # What the receipt does not list is proven in every file it was found in.
        assert all(path in found.proven for p in there - ours for path in found.partial.get(p, ()))
        assert all(found.proven.issuperset(p.paths) for p in set(found.patches) - ours)
        revert = data.draw(st.booleans(), label="revert")
        plan = world.revert(*asked) if revert or not asked else world.apply(*asked)
        losses = everything(before) - everything(world.files)
        # A line goes because a patch that was found put it in, or because a new one takes it out.
        new = set(plan.goal) - there
        assert not losses - lines_of(there, "new") - lines_of(new, "old")
        assert not any(line.startswith(b"foreign") for line in losses)
        if not refused(plan):
            event("done")


@thorough
@given(meddled_worlds(), st.data())
def test_with_a_foreign_edit_revert_still_gives_back_every_byte(
    world: World, data: st.DataObject
) -> None:
    there = set(world.found())
    before = dict(world.files)
    name = data.draw(st.sampled_from([patch.id for patch in world.catalog]))
    plan = world.apply(name)
    if refused(plan) or {patch.id for patch in plan.goal} - there != {name}:
        return
    event("applied beside it")
    assert not refused(world.revert(name))
    assert same(world.files, before)
