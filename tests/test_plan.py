"""Every state of the table, what is refused, and what holds for any files and any stack."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, ClassVar

import pytest

from engine import (
    World,
    changing,
    edited,
    in_a,
    inverse,
    known,
    make_diff,
    numbered,
    put,
    refused,
    rename,
    repeating,
    text,
    words,
)
from vllm_patcher.plan import plan_revert
from vllm_patcher.situation import situation
from vllm_patcher.states import (
    APPLIED,
    BLOCKED,
    CONFLICT,
    FAILING,
    NOT_APPLIED,
    NOT_NEEDED,
    OUTDATED,
    PARTIAL,
    PRESENT,
    SATISFYING,
    UNSUPPORTED,
    UPSTREAM,
    Asked,
)

if TYPE_CHECKING:
    from engine import Files
    from vllm_patcher.known import Known

A, B = numbered(40), numbered(40, word="row")
BASE: Files = {"a.py": A, "b.py": B, "c.py": None}

P = changing("p", BASE, a=edited(A, l5="p 5"))
Q = changing("q", BASE, a=edited(A, l20="q 20\nq more"))
AB = changing("ab", BASE, a=edited(A, l12="ab 12"), b=edited(B, l12="ab 12"))
NEW = changing("new", BASE, c=text("made"))
FOREIGN = b"a foreign line\n"


def foreign(data: bytes | None, *, at: int = 28) -> bytes:
    assert data is not None
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:at], FOREIGN, *lines[at:]])


def world(*catalog: Known, on: tuple[Known, ...] = (), record: bool = True) -> World:
    """Lay a world with patches applied as a command applies them."""
    here = World(released=BASE, catalog=catalog or (P, Q, AB, NEW), record=record)
    if on:
        plan = here.apply(*(patch.id for patch in on))
        assert not refused(plan), words(plan)
    return here


def by_hand(*catalog: Known, on: tuple[Known, ...], released: Files = BASE) -> World:
    """Lay a world with patches put on by another tool: there is no receipt."""
    return World(released=released, catalog=catalog, files=put(released, *on))


class TestApplied:
    def test_what_is_in_the_found_set(self) -> None:
        assert world(on=(P, AB)).state("ab") == APPLIED

    def test_after_apply_the_receipt_lists_it_and_apply_again_does_nothing(self) -> None:
        here = world()
        plan = here.apply("q", "p")
        assert {edit.path for edit in plan.edits} == {"a.py"}
        assert [(patch.id, wanted) for patch, wanted in here.receipt] == [("p", "in"), ("q", "in")]
        again = here.apply("p", "q")
        assert (again.edits, again.goal) == ((), (P, Q))

    def test_what_another_tool_put_in_is_adopted_and_can_be_reverted(self) -> None:
        here = by_hand(P, AB, on=(AB,))
        assert here.apply("ab").edits == ()
        assert [patch for patch, _ in here.receipt] == [AB]
        here.revert("ab")
        assert here.files == {"a.py": A, "b.py": B, "c.py": None}

    @pytest.mark.parametrize("twin_first", [False, True])
    def test_the_same_diff_under_two_names(self, twin_first: bool) -> None:
        twin = known("twin", P.text)
        here = world(*((twin, P) if twin_first else (P, twin)), on=(P,))
        plan = here.plan("p", "twin")
        assert [f.state for f in plan.findings] == [APPLIED, APPLIED]
        assert (plan.edits, plan.goal, plan.refusals) == ((), (P,), ())
        assert "does the same" in words(plan)

    def test_the_same_diff_under_two_names_in_one_go(self) -> None:
        here = world(P, known("twin", P.text))
        plan = here.apply("p", "twin")
        assert [f.state for f in plan.findings] == [NOT_APPLIED, NOT_APPLIED]
        assert [f.once_applied().state for f in plan.findings] == [APPLIED, APPLIED]
        assert "another patch that is to go in does the same" in words(plan)
        assert (plan.goal, here.files) == ((P,), {**BASE, **put(BASE, P)})

    @pytest.mark.parametrize("superset_first", [False, True])
    def test_what_a_superset_contains(self, superset_first: bool) -> None:
        both = changing("both", BASE, a=put(BASE, P, Q)["a.py"])
        here = world(*((both, P, Q) if superset_first else (P, Q, both)), on=(both,))
        plan = here.plan("p", "q", "both")
        assert {f.state for f in plan.findings} == {APPLIED}
        assert (plan.edits, plan.goal) == ((), (both,))

    def test_what_it_requires_lies_below_both(self) -> None:
        """A diff of one's own is put into a catalog, on top of a patch that it needs."""
        below = changing("below", BASE, a=edited(A, l5="below"))
        text_of = changing("mine", put(BASE, below), a=edited(A, l5="below\nmine")).text
        mine = known("mine", text_of)
        theirs = known("theirs", text_of, requires=["below"])
        here = World(released=BASE, catalog=[below, mine])
        here.apply("below", "mine")
        again = World(released=BASE, catalog=[below, theirs, mine])
        again.files, again.receipt = here.files, here.receipt
        assert again.state("theirs") == APPLIED

    def test_a_superset_of_what_is_in(self) -> None:
        both = changing("both", BASE, a=put(BASE, P, Q)["a.py"])
        here = world(P, Q, both, on=(P, Q))
        assert here.state("both") == APPLIED
        assert here.apply("both").goal == (P, Q)
        here.revert("p")
        assert here.files["a.py"] == put(BASE, Q)["a.py"]

    def test_not_by_what_is_about_to_go(self) -> None:
        # The old revision does what P does, the new one does not.
        old = changing("rev", BASE, a=edited(A, l5="p 5", l20="old"))
        young = changing("rev", BASE, a=edited(A, l20="young"))
        here = by_hand(P, young, old, on=(old,))
        here.asked["rev"] = Asked(id="rev", candidates=(young,))
        plan = here.plan("p", "rev")
        assert [(f.id, f.state) for f in plan.findings] == [("p", NOT_APPLIED), ("rev", OUTDATED)]
        assert plan.target["a.py"] == put(BASE, P, young)["a.py"]

    def test_what_changes_nothing_at_all(self) -> None:
        there_and_back = make_diff({"c.py": None}, NEW_FILE) + make_diff(NEW_FILE, {"c.py": None})
        here = world(known("mail", there_and_back))
        plan = here.plan("mail")
        assert (plan.findings[0].state, plan.goal, plan.edits) == (APPLIED, (), ())
        assert "changes nothing" in words(plan)

    def test_what_is_in_and_can_no_longer_come_out(self) -> None:
        # Out, nothing could say to which of two places it belongs, so it was never taken out.
        base, patch = repeating()
        here = World(released=base, catalog=[patch])
        here.apply("dup")
        here.files["a.py"] = FOREIGN + (here.files["a.py"] or b"")
        assert here.finding("dup").state == APPLIED
        assert "another hand" in words(here.plan("dup"))
        assert here.apply("dup").edits == ()
        assert [patch.id for patch, _ in here.receipt] == ["dup"]
        assert refused(here.revert("dup"))

    def test_what_is_in_is_not_put_in_a_second_time(self) -> None:
        base, patch = repeating()
        here = World(released=base, catalog=[patch])
        here.apply("dup")
        here.files["a.py"] = FOREIGN + (here.files["a.py"] or b"")
        once = dict(here.files)
        here.catalog = [patch, NEW]
        here.apply("dup", "new")
        assert here.files == {**once, "c.py": text("made")}

    def test_nor_is_the_half_of_it_that_can_no_longer_come_out(self) -> None:
        base, dup = repeating()
        base["b.py"] = B
        both = known("both", dup.text + changing("b", base, b=edited(B, l5="both")).text)
        here = World(released=base, catalog=[both])
        here.apply("both")
        here.files["a.py"] = FOREIGN + (here.files["a.py"] or b"")
        once = dict(here.files)
        here.catalog = [both, NEW]
        here.apply("new")
        assert here.files == {**once, "c.py": text("made")}
        assert here.apply("both").edits == ()


NEW_FILE: Files = {"c.py": text("x")}


class TestUpstream:
    def test_the_release_has_it(self) -> None:
        here = World(released=put(BASE, AB), catalog=[AB])
        assert here.state("ab") == UPSTREAM
        assert here.apply("ab").goal == ()

    def test_a_deletion_the_release_has_is_said_in_other_words(self) -> None:
        gone = changing("gone", BASE, a=edited(A, l7=None))
        here = World(released=put(BASE, gone), catalog=[gone])
        assert here.state("gone") == UPSTREAM
        assert "are not there" in words(here.plan("gone"))

    def test_lines_that_are_not_there_show_nothing_without_context(self) -> None:
        # Taking the deletion back would put its lines wherever the header says.
        gone = in_a("gone", "@@ -5,2 +4,0 @@\n-other\n-lines\n")
        assert World(released={"a.py": A}, catalog=[gone]).state("gone") == CONFLICT

    def test_beneath_other_patches(self) -> None:
        here = World(released=put(BASE, AB), catalog=[AB, P])
        here.apply("ab", "p")
        assert (here.state("ab"), here.state("p")) == (UPSTREAM, APPLIED)

    def test_what_fits_both_ways_fits(self) -> None:
        # "x x x x" takes one more x, and would give one back.
        same = text(*"xxxxxxxxxx")
        base: Files = {"a.py": same, "t.py": text("tail")}
        one_more = known("more", b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -4,2 +4,3 @@\n x\n+x\n x\n")
        here = World(released=base, catalog=[one_more])
        assert here.state("more") == NOT_APPLIED

    @pytest.mark.parametrize("record", [True, False])
    def test_nor_is_what_fits_both_ways_there_when_it_is_to_come_out(self, record: bool) -> None:
        one_more = in_a("more", "@@ -4,2 +4,3 @@\n x\n+x\n x\n")
        here = World(released={"a.py": text(*"xxxxxxxxxx")}, catalog=[one_more], record=record)
        (finding,) = here.plan_revert("more").findings
        assert finding.state == NOT_APPLIED

    def test_what_fits_both_ways_but_for_another_patch_is_in_conflict(self) -> None:
        base: Files = {"a.py": text(*"xxxxxx")}
        one_more = in_a("more", "@@ -3,2 +3,3 @@\n x\n+x\n x\n")
        other = changing("other", base, a=text(*"uvwyz"))
        assert World(released=base, catalog=[other, one_more]).state("more") == NOT_APPLIED
        here = World(released=base, catalog=[other, one_more])
        here.apply("other")
        assert here.state("more") == CONFLICT

    def test_in_one_of_its_files_only(self) -> None:
        released = {**BASE, "b.py": put(BASE, AB)["b.py"]}
        here = World(released=released, catalog=[AB])
        assert here.state("ab") == CONFLICT
        assert "b.py this file has the change already" in words(here.plan("ab"))

    def test_a_deletion_is_not_there_only_if_its_place_is(self) -> None:
        gone = in_a("gone", "@@ -5,3 +5,2 @@\n add\n-bug()\n flush\n")
        top = ("1", "2", "3", "4")
        other = text(*top, "add", "bug(1)", "flush", "8", "add", "flush", "end")
        assert World(released={"a.py": other}, catalog=[gone]).state("gone") == CONFLICT
        fixed = text(*top, "add", "flush", "end")
        assert World(released={"a.py": fixed}, catalog=[gone]).state("gone") == UPSTREAM
        moved = World(released={"a.py": b"0\n" + fixed}, catalog=[gone])
        assert moved.state("gone") == CONFLICT

    @pytest.mark.parametrize("first", [True, False])
    def test_a_deletion_that_moved_with_the_rest_of_the_patch(self, first: bool) -> None:
        change = {"l5": "new"} if first else {"l35": "new"}
        both = changing("both", BASE, a=edited(A, l20=None, **change))
        released = {**BASE, "a.py": b"0\n" + (put(BASE, both)["a.py"] or b"")}
        assert World(released=released, catalog=[both]).state("both") == UPSTREAM

    def test_a_deletion_under_another_name_above_a_patch_that_moves_it(self) -> None:
        gone = changing("gone", BASE, a=edited(A, l20=None))
        again = known("again", gone.text)
        more = changing("more", BASE, a=edited(A, l5="5\n5 more"))
        here = World(released=BASE, catalog=[more, gone, again])
        here.apply("more", "gone")
        assert (here.state("gone"), here.state("again")) == (APPLIED, APPLIED)

    def test_another_function_that_has_the_change(self) -> None:
        def function(name: str, *body: str) -> bytes:
            return text(f"def {name}():", *(f"    {line}" for line in body))

        hunk = "@@ -6,3 +6,4 @@ def f2():\n     a\n     b\n+    fix\n     c\n"
        patch = in_a("fix", hunk)
        fixed, faulty = function("f1", "a", "b", "fix", "c"), function("f2", "a", "b", "d", "c")
        here = World(released={"a.py": fixed + faulty + b"end\n"}, catalog=[patch])
        assert here.state("fix") == CONFLICT
        done = fixed + function("f2", "0", "a", "b", "fix", "c") + b"end\n"
        assert World(released={"a.py": done}, catalog=[patch]).state("fix") == UPSTREAM

    @pytest.mark.parametrize("named", [(), ("ab",)])
    def test_it_is_never_reverted(self, named: tuple[str, ...]) -> None:
        here = World(released=put(BASE, AB), catalog=[AB])
        here.receipt = [(AB, "in")]
        plan = here.revert(*named)
        assert plan.edits == ()
        assert not refused(plan)
        assert here.receipt == []


class TestPresent:
    @pytest.mark.parametrize("upstream", ["both files", "one file"])
    @pytest.mark.parametrize("where", ["a.py", "b.py"])
    def test_after_a_foreign_edit_nobody_can_say_from_whom(self, upstream: str, where: str) -> None:
        both = put(BASE, AB)
        released = both if upstream == "both files" else {**BASE, "b.py": both["b.py"]}
        here = World(released=released, catalog=[AB], files=both)
        here.files[where] = foreign(here.files[where])
        before = dict(here.files)
        if upstream == "both files" or where == "b.py":
            assert here.state("ab") == PRESENT
        for names in ((), ("ab",)):
            here.revert(*names)
            assert here.files["b.py"] == before["b.py"]
            assert FOREIGN in (here.files[where] or b"")

    def test_it_is_never_reverted_and_asks_for_no_receipt(self) -> None:
        here = by_hand(AB, on=(AB,))
        here.files["b.py"] = foreign(here.files["b.py"])
        before = dict(here.files)
        plan = here.apply("ab")
        assert (plan.findings[0].state, plan.goal, plan.edits) == (PRESENT, (), ())
        assert here.revert().edits == ()
        plan = here.revert("ab")
        assert (plan.findings[0].state, plan.edits) == (PRESENT, ())
        assert here.files == before

    def test_without_record(self) -> None:
        here = by_hand(P, on=(P,))
        here.record = False
        assert here.state("p") == PRESENT
        assert here.revert().edits == ()

    def test_a_foreign_edit_does_not_make_upstream_revertible(self) -> None:
        here = World(released=put(BASE, AB), catalog=[AB, P])
        here.apply("p")
        here.files["a.py"] = foreign(here.files["a.py"])
        assert (here.state("ab"), here.state("p")) == (PRESENT, APPLIED)
        here.revert()
        assert here.files["a.py"] == foreign(put(BASE, AB)["a.py"])


class TestNotNeededAndUnsupported:
    @pytest.mark.parametrize("gate", [NOT_NEEDED, UNSUPPORTED])
    def test_without_a_text_the_gate_is_the_state(self, gate: str) -> None:
        here = world(P)
        here.asked["p"] = Asked(id="p", gate=gate, why="the version says so")
        plan = here.plan("p")
        assert (plan.findings[0].state, plan.edits) == (gate, ())
        assert "the version says so" in words(plan)

    def test_what_is_in_all_the_same_is_applied_and_stays(self) -> None:
        here = world(P, on=(P,))
        here.asked["p"] = Asked(id="p", gate=NOT_NEEDED, why="the version says so")
        assert here.state("p") == APPLIED
        assert here.apply("p").edits == ()

    def test_what_is_partly_in_is_not_said_to_be_applied_afterwards(self) -> None:
        here = World(released=BASE, catalog=[AB], files={"a.py": put(BASE, AB)["a.py"]})
        here.asked["ab"] = Asked(id="ab", gate=UNSUPPORTED, why="the version says so")
        plan = here.plan("ab")
        assert [finding.once_applied().state for finding in plan.findings] == [PARTIAL]
        assert plan.edits == ()


class TestNotApplied:
    def test_it_fits_and_is_not_in(self) -> None:
        here = world()
        assert here.state("p") == NOT_APPLIED
        plan = here.plan("p")
        assert [finding.once_applied().state for finding in plan.findings] == [APPLIED]
        assert plan.findings[0].offsets == {"a.py": (0,)}

    def test_the_receipt_alone_does_not_make_it_applied(self) -> None:
        here = world()
        here.receipt = [(P, "in")]
        assert here.state("p") == NOT_APPLIED

    def test_reverting_it_does_nothing(self) -> None:
        here = world()
        plan = here.revert("p")
        assert ([f.state for f in plan.findings], plan.edits) == ([NOT_APPLIED], ())
        assert not refused(plan)

    def test_reverting_what_no_text_is_known_of_does_nothing(self) -> None:
        plan = world().revert("nobody")
        assert [f.state for f in plan.findings] == [NOT_APPLIED]
        assert not refused(plan)

    def test_offsets_are_told(self) -> None:
        here = World(released={**BASE, "a.py": FOREIGN + A}, catalog=[P, Q])
        assert here.finding("q").offsets == {"a.py": (1,)}


class TestPartial:
    def interrupted(self, *, way: str, files: int) -> World:
        here = world(AB, P)
        if way == "out":
            here.apply("ab")
            here.interrupt(here.plan_revert("ab"), files=files)
        else:
            here.interrupt(here.plan("ab"), files=files)
        return here

    @pytest.mark.parametrize("way", ["in", "out"])
    def test_it_counts_what_is_there(self, way: str) -> None:
        here = self.interrupted(way=way, files=1)
        assert here.state("ab") == PARTIAL
        assert "1 of 2 files, 1 of 2 hunks are in" in words(here.plan("ab"))

    @pytest.mark.parametrize("files", [0, 1, 2])
    @pytest.mark.parametrize("way", ["in", "out"])
    def test_naming_it_moves_it_where_it_is_asked_to_be(self, way: str, files: int) -> None:
        here = self.interrupted(way=way, files=files)
        here.apply("ab")
        assert here.files == {**BASE, **put(BASE, AB)}
        assert here.receipt == [(AB, "in")]
        here = self.interrupted(way=way, files=files)
        here.revert("ab")
        assert here.files == BASE
        assert here.receipt == []

    @pytest.mark.parametrize("way", ["in", "out"])
    def test_the_next_run_about_another_patch_finishes_it(self, way: str) -> None:
        here = self.interrupted(way=way, files=1)
        here.apply("p")
        patches = (P, AB) if way == "in" else (P,)
        assert here.files == {**BASE, **put(BASE, *patches)}
        assert {patch for patch, _ in here.receipt} == set(patches)
        here = self.interrupted(way=way, files=1)
        here.revert("p")
        assert here.files == {**BASE, **put(BASE, *patches[1:])}

    def test_an_entry_on_its_way_out_goes_with_the_next_run(self) -> None:
        here = self.interrupted(way="out", files=2)
        assert here.receipt == [(AB, "out")]
        here.apply("p")
        assert here.receipt == [(P, "in")]

    def test_without_a_receipt_it_stays_as_it_is(self) -> None:
        here = World(released=BASE, catalog=[AB, P], files={"a.py": put(BASE, AB)["a.py"]})
        plan = here.apply("p")
        assert (plan.goal, plan.out) == ((P,), ())
        assert here.files["a.py"] == put(BASE, AB, P)["a.py"]
        assert here.found() == {"p": True, "ab": False}

    def test_what_can_no_longer_be_finished_is_in_nobodys_way(self) -> None:
        here = self.interrupted(way="in", files=1)
        here.files["b.py"] = edited(B, l11="foreign")
        assert here.state("ab") == CONFLICT
        assert not refused(here.apply("p"))
        assert here.files["a.py"] == put(BASE, AB, P)["a.py"]
        assert here.found() == {"p": True, "ab": False}

    @pytest.mark.parametrize("wanted", ["in", "out"])
    def test_what_another_hand_mixed_is_not_taken_out_by_halves(self, wanted: str) -> None:
        here = world(AB, P, on=(AB,))
        here.files["b.py"] = (here.files["b.py"] or b"").replace(b"ab 12", b"ab 12 and more")
        here.receipt = [(AB, wanted)]
        before = dict(here.files)
        for names in ((), ("ab",)):
            plan = here.revert(*names)
            assert [f.state for f in plan.findings] == [CONFLICT]
            assert "b.py the file was changed by another hand" in words(plan)
        here.apply("p")
        assert here.files["b.py"] == before["b.py"]
        assert AB in [patch for patch, _ in here.receipt]


class TestOutdated:
    OLD = changing("rev", BASE, a=edited(A, l5="old"), b=edited(B, l30="old"))
    YOUNG = changing("rev", BASE, a=edited(A, l5="young", l8="young"))

    def old_in(self, *more: Known) -> World:
        here = World(released=BASE, catalog=[self.OLD, *more])
        here.apply("rev", *(patch.id for patch in more))
        here.catalog = [self.YOUNG, *more]
        return here

    def test_the_old_one_goes_and_the_new_one_comes(self) -> None:
        here = self.old_in(Q)
        assert here.state("rev") == OUTDATED
        here.apply("rev")
        assert here.files == {**BASE, **put(BASE, self.YOUNG, Q)}
        assert [patch for patch, _ in here.receipt] == [self.YOUNG, Q]

    def test_nobody_asked_so_the_text_stays(self) -> None:
        here = self.old_in()
        here.catalog = [self.YOUNG, Q]
        here.apply("q")
        assert here.files == {**BASE, **put(BASE, self.OLD, Q)}
        assert self.OLD in [patch for patch, _ in here.receipt]

    def test_if_the_new_one_does_not_fit_the_old_one_stays(self) -> None:
        here = self.old_in(Q)
        unfit = changing("rev", {"a.py": numbered(9, word="no")}, a=numbered(8, word="no"))
        here.catalog = [unfit, Q]
        before = dict(here.files)
        plan = here.apply("rev", "q")
        assert [f.state for f in plan.findings] == [CONFLICT, APPLIED]
        assert (plan.edits, here.files) == ((), before)

    def test_reverting_takes_the_one_out_that_is_in(self) -> None:
        here = self.old_in()
        here.revert("rev")
        assert here.files == BASE

    @pytest.mark.parametrize("names", [("rev",), ("q",)])
    def test_an_interrupted_change_is_finished(self, names: tuple[str, ...]) -> None:
        here = self.old_in(Q)
        here.receipt = [(self.YOUNG, "in"), (Q, "in")]
        here.catalog = [self.YOUNG, self.OLD, Q]
        here.asked["rev"] = Asked(id="rev", candidates=(self.YOUNG,))
        here.files["a.py"] = put(BASE, self.YOUNG, Q)["a.py"]
        assert not here.here.found.base.items() - BASE.items()
        plan = here.apply(*names)
        if names == ("rev",):
            assert plan.findings[0].state == OUTDATED
            assert here.files == {**BASE, **put(BASE, self.YOUNG, Q)}
        assert here.found()["rev"]


class TestConflict:
    def test_a_hunk_without_a_place(self) -> None:
        here = World(released={**BASE, "a.py": edited(A, l4="other")}, catalog=[P, NEW])
        plan = here.apply("p", "new")
        assert [f.state for f in plan.findings] == [CONFLICT, NOT_APPLIED]
        (reason,) = plan.findings[0].reasons
        assert (reason.path, reason.line) == ("a.py", 2)
        assert (reason.expected, reason.found) == (b"line 4\n", b"other\n")
        assert here.files["c.py"] is None

    def test_a_hunk_with_more_than_one(self) -> None:
        block = ("x", "y", "z")
        released: Files = {"a.py": text("top", *block, *block)}
        patch = in_a("two", "@@ -30,3 +30,4 @@\n x\n y\n+new\n z\n")
        plan = World(released=released, catalog=[patch]).plan("two")
        assert plan.findings[0].state == CONFLICT
        assert "more than one place: lines 2, 5" in words(plan)

    @pytest.mark.parametrize(
        ("copies", "says"), [(1, "line 2, which is"), (2, "lines 2, 6, which are")]
    )
    def test_a_hunk_under_another_heading(self, copies: int, says: str) -> None:
        block = ("def f1():", "    x", "    y", "    z")
        released: Files = {"a.py": text(*block * copies, "def f2():", "    x", "    z")}
        patch = in_a("two", "@@ -6,3 +6,3 @@ def f2():\n     x\n-    y\n+    new\n     z\n")
        plan = World(released=released, catalog=[patch]).plan("two")
        assert plan.findings[0].state == CONFLICT
        assert f"hunk 1 fits only at {says} not under 'def f2():'" in words(plan)

    @pytest.mark.parametrize(
        ("patch", "released", "says"),
        [
            pytest.param(P, {"a.py": None}, "no such file", id="missing"),
            pytest.param(NEW, {"c.py": b"other\n"}, "is there with other", id="exists"),
            pytest.param(
                changing("del", BASE, a=None), {"a.py": b"other\n"}, "content differs", id="differs"
            ),
            pytest.param(
                P, {"a.py": A.replace(b"\n", b"\r\n")}, "differs in its line ending", id="crlf"
            ),
            pytest.param(
                P, {"a.py": edited(A, l6="  line 6")}, "line 5 differs in blanks", id="blanks"
            ),
            pytest.param(P, {"a.py": b"nothing of it\n"}, "no place here", id="nowhere"),
            pytest.param(P, {"a.py": numbered(6)}, "line 6 is not there", id="behind the end"),
        ],
    )
    def test_what_is_said(self, patch: Known, released: Files, says: str) -> None:
        plan = World(released=released, catalog=[patch]).plan(patch.id)
        assert plan.findings[0].state == CONFLICT
        assert says in words(plan)

    def test_half_is_not_said_of_lines_that_are_to_go(self) -> None:
        """Its context may stand anywhere, as that of a twin does."""
        old = text("def f():", "if x:", "log(1)", "return", "end", *"abcdef", "z = 5")
        new = old.replace(b"log(1)\n", b"").replace(b"z = 5", b"z = 6")
        released: Files = {"a.py": old.replace(b"log(1)", b"log(2)") + text("if x:", "return")}
        patch = known("p", make_diff({"a.py": old}, {"a.py": new}, context=1))
        said = words(World(released=released, catalog=[patch]).plan("p"))
        assert "no place here" in said
        assert "half of it" not in said

    @pytest.mark.parametrize(
        ("there", "says"),
        [
            ((1,), "half of it is there: hunk 1 of 3"),
            ((1, 2), "half of it is there: hunks 1, 2 of 3"),
        ],
    )
    def test_half_of_it_is_there(self, there: tuple[int, ...], says: str) -> None:
        lines = {1: "l10", 2: "l20", 3: "l30"}
        long: Files = {"a.py": numbered(40)}
        patch = changing("p", long, a=edited(numbered(40), l10="x", l20="y", l30="z"))
        done = {lines[number]: "xyz"[number - 1] for number in there}
        other = {lines[number]: "other" for number in lines if number not in there}
        released: Files = {"a.py": edited(numbered(40), **done, **other)}
        plan = World(released=released, catalog=[patch]).plan("p")
        assert plan.findings[0].state == CONFLICT
        assert says in words(plan)

    @pytest.mark.parametrize(
        ("heading", "moved"),
        [("def f2():", True), ("x = 1", False), ("import os", False)],
        ids=["code that moved", "an assignment", "an import"],
    )
    def test_a_heading_that_says_nothing_of_the_place(self, heading: str, *, moved: bool) -> None:
        """The code has left its block, or the heading opens none: the only place is right."""
        rest = ["    other"] if moved else []
        released: Files = {"a.py": text(heading, *rest, "def f1():", "    x", "    y", "    z")}
        patch = in_a("two", f"@@ -6,3 +6,3 @@ {heading}\n     x\n-    y\n+    w\n     z\n")
        plan = World(released=released, catalog=[patch]).plan("two")
        assert plan.findings[0].state == NOT_APPLIED

    def test_a_twin_that_has_the_change_proves_nothing(self) -> None:
        """The lines that are meant have drifted and lack it; equal ones far off have it."""
        fixed = ("    begin", "    good", "    end")
        faulty = ("    start", "    begin", "    bad", "    end", "    stop")
        released: Files = {"a.py": text(*faulty, *("row",) * 20, "    more", *fixed, "    stop")}
        hunk = "@@ -1,4 +1,4 @@\n     begin\n-    bad\n+    good\n     end\n     stop\n"
        drifted: Files = {
            "a.py": (released["a.py"] or b"").replace(b"end\n    stop\nrow", b"end\nrow")
        }
        for files in (released, drifted):
            plan = World(released=files, catalog=[in_a("two", hunk)]).plan("two")
            assert plan.findings[0].state in (NOT_APPLIED, CONFLICT)
        assert plan.findings[0].state == CONFLICT

    METHODS = (
        "class Pool:",
        *("    def close(self, item):", "        log(item)", "        item.count -= 1"),
        *("        item.done = True", "        self.free(item)", "        return item", ""),
        *("    def abort(self, item):", "        log(item)", "        item.count -= 1"),
        *("        if item is None:", "            return None"),
        *("        item.done = True", "        self.free(item)", "        return item"),
    )

    @pytest.mark.parametrize(
        "changes",
        [
            {"l4": "        item.count -= 2"},
            {"l5": "        item.done = False"},
            {"l4": "        item.count -= 1\n        more()"},
            {"l3": None},
        ],
        ids=["another line", "another line below", "a line more", "a line less"],
    )
    def test_a_twin_in_the_same_class_proves_nothing(self, changes: dict[str, str | None]) -> None:
        """What is meant has changed a little and lacks the fix; its neighbour has it."""
        old = text(*self.METHODS)
        new = edited(
            old, l4="        item.count -= 1\n        if item is None:\n            return None"
        )
        patch = known("fix", make_diff({"a.py": old}, {"a.py": new}))
        released: Files = {"a.py": edited(old, **changes)}
        assert World(released=released, catalog=[patch]).state("fix") == CONFLICT
        # Where it has it, and has no such neighbour, it is there.
        alone = new.partition(b"\n    def abort")[0]
        moved: Files = {"a.py": edited(alone, l1="class Pool:\n    more = 1")}
        assert World(released=moved, catalog=[patch]).state("fix") == UPSTREAM

    def test_a_bare_line_proves_nothing(self) -> None:
        """It may have been there, at its place too, before anybody wanted it there."""
        released: Files = {"a.py": text(*("row",) * 9, "new", *("row",) * 9)}
        for line in (10, 4):
            patch = in_a("two", f"@@ -{line - 1},0 +{line} @@\n+new\n")
            plan = World(released=released, catalog=[patch]).plan("two")
            assert plan.findings[0].state == CONFLICT
            assert "has no context, and nothing proves its line number" in words(plan)

    def test_a_heading_is_shown_printable(self) -> None:
        heading = "def f2\x1b[2J"
        hunk = f"@@ -6,3 +6,3 @@ {heading}\n     x\n-    y\n+    w\n     z\n"
        patch = in_a("two", hunk)
        released: Files = {
            "a.py": text("def f1", "    x", "    y", "    z", heading, "    z", "    x")
        }
        assert "'def f2\\u001b[2J'" in words(World(released=released, catalog=[patch]).plan("two"))

    def test_where_a_hunk_belongs_to_an_end_of_the_file(self) -> None:
        last = changing("last", BASE, a=A + b"last\n")
        plan = World(released={"a.py": A + b"more\n"}, catalog=[last]).plan("last")
        assert "belongs at the end of the file" in words(plan)
        first = changing("first", BASE, a=b"first\n" + A)
        plan = World(released={"a.py": b"more\n" + A}, catalog=[first]).plan("first")
        assert "belongs at the beginning of the file" in words(plan)

    def test_a_renamed_file_that_is_missing_is_not_taken_for_done(self) -> None:
        move = known("move", rename("gone.py", "d.py"))
        plan = World(released=BASE, catalog=[move]).plan("move")
        assert plan.findings[0].state == CONFLICT
        assert "no such file" in words(plan)

    def test_patches_on_neighbouring_lines(self) -> None:
        # The context of one is what the other changes; with less context they live together.
        near = changing("near", BASE, a=edited(A, l6="near 6"))
        here = world(P, near)
        plan = here.apply("p", "near")
        assert [f.state for f in plan.findings] == [NOT_APPLIED, CONFLICT]
        assert here.files == BASE
        far = changing("far", BASE, a=edited(A, l9="far 9"))
        here = world(P, far, on=(P, far))
        here.revert("p")
        assert here.files["a.py"] == put(BASE, far)["a.py"]

    def test_every_refusal_is_reported(self) -> None:
        here = World(released={"a.py": None, "b.py": None, "c.py": b"x\n"}, catalog=[P, AB, NEW])
        plan = here.plan("p", "ab", "new")
        assert [f.state for f in plan.findings] == [CONFLICT] * 3
        assert [reason.path for reason in plan.findings[1].reasons] == ["a.py", "b.py"]


class TestBlocked:
    NEEDS = changing("needs", put(BASE, P), requires=["p"], a=edited(A, l5="p 5", l6="needs"))

    def test_what_it_requires_is_put_in_first(self) -> None:
        here = world(P, self.NEEDS)
        plan = here.apply("needs", "p")
        assert [f.state for f in plan.findings] == [NOT_APPLIED, NOT_APPLIED]
        assert plan.goal == (P, self.NEEDS)

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            (Asked(id="p", gate=UNSUPPORTED), "requires p, which is unsupported"),
            (None, "requires p, which is unknown here"),
        ],
    )
    def test_a_requirement_that_cant_be_had(self, asked: Asked | None, says: str) -> None:
        here = world(P, self.NEEDS)
        if asked is not None:
            here.asked["p"] = asked
        plan = here.plan("needs", *(["p"] if asked else []))
        finding = next(f for f in plan.findings if f.id == "needs")
        assert finding.state == BLOCKED
        assert says in words(plan)
        assert finding.reasons

    def test_a_requirement_that_is_in_conflict(self) -> None:
        here = World(released={"a.py": edited(A, l3="other")}, catalog=[P, self.NEEDS])
        assert [f.state for f in here.plan("p", "needs").findings] == [CONFLICT, BLOCKED]

    def test_a_requirement_of_which_a_part_stays(self) -> None:
        on_ab = changing("on-ab", put(BASE, AB), requires=["ab"], a=edited(A, l12="x", l14="y"))
        here = World(released=BASE, catalog=[AB, on_ab], files={"a.py": put(BASE, AB)["a.py"]})
        here.asked["ab"] = Asked(id="ab", gate=UNSUPPORTED)
        plan = here.plan("ab", "on-ab")
        assert [f.state for f in plan.findings] == [PARTIAL, BLOCKED]

    @pytest.mark.parametrize("state", [NOT_NEEDED, PRESENT, UPSTREAM])
    def test_what_satisfies_a_requirement(self, state: str) -> None:
        released = put(BASE, P)
        here = World(released=released, catalog=[P, self.NEEDS], record=state != PRESENT)
        if state == NOT_NEEDED:
            here.asked["p"] = Asked(id="p", gate=NOT_NEEDED)
        plan = here.plan("p", "needs")
        assert [f.state for f in plan.findings] == [state, NOT_APPLIED]

    def test_a_requirement_that_another_patch_meets(self) -> None:
        twin = known("twin", P.text)
        needs = known("needs", self.NEEDS.text, requires=["twin"])
        plan = world(P, twin, needs, on=(P,)).plan("twin", "needs")
        assert [f.state for f in plan.findings] == [APPLIED, NOT_APPLIED]
        assert plan.goal == (P, needs)

    def test_a_requirement_that_is_in_and_not_asked_about(self) -> None:
        here = world(P, self.NEEDS, on=(P,))
        assert here.state("needs") == NOT_APPLIED

    @pytest.mark.parametrize("on", [(), (P,)])
    def test_a_conflicting_patch(self, on: tuple[Known, ...]) -> None:
        here = world(P, Q, on=on)
        here.asked["q"] = here.ask("q").replaced(conflicts=("p",))
        plan = here.plan("p", "q")
        assert [f.state for f in plan.findings] == [NOT_APPLIED if not on else APPLIED, BLOCKED]
        assert f"conflicts with p, which is {'in' if on else 'to go in'}" in words(plan)

    def test_a_conflicting_patch_that_another_does(self) -> None:
        """It is in under another name, and so it stands in the way as well."""
        one = changing("one", BASE, a=edited(A, l5="x"))
        again = known("again", one.text)
        other = changing("other", BASE, b=edited(B, l5="y"))
        asked = {
            "one": Asked(id="one", candidates=(one,), named=True),
            "other": Asked(id="other", candidates=(other,), named=True, conflicts=("one",)),
        }
        here = World(released=BASE, catalog=[again, one, other], asked=asked)
        here.apply("again")
        plan = here.plan("one", "other")
        assert [finding.state for finding in plan.findings] == [APPLIED, BLOCKED]

    def test_a_conflicting_patch_that_is_not_asked_about(self) -> None:
        here = world(P, Q, on=(Q,))
        here.asked["p"] = here.ask("p").replaced(conflicts=("q",))
        assert here.state("p") == BLOCKED

    @pytest.mark.parametrize(("wanted", "state"), [("in", BLOCKED), ("out", NOT_APPLIED)])
    def test_a_conflicting_patch_on_its_way(self, wanted: str, state: str) -> None:
        here = World(released=BASE, catalog=[AB, P], files={"a.py": put(BASE, AB)["a.py"]})
        here.receipt = [(AB, wanted)]
        here.asked["p"] = here.ask("p").replaced(conflicts=("ab",))
        assert here.state("p") == state

    def test_what_is_in_is_not_blocked(self) -> None:
        here = world(P, self.NEEDS, on=(P, self.NEEDS))
        assert here.state("needs") == APPLIED

    def test_an_old_revision_stays_when_the_new_one_is_blocked(self) -> None:
        old = changing("needs", BASE, b=edited(B, l5="old"))
        here = World(released=BASE, catalog=[old])
        here.apply("needs")
        here.catalog = [P, self.NEEDS]
        here.asked["needs"] = Asked(id="needs", candidates=(self.NEEDS,), requires=("p",))
        before = dict(here.files)
        plan = here.apply("needs")
        assert (plan.findings[0].state, plan.edits, here.files) == (BLOCKED, (), before)

    def test_dependents_stand_in_the_way_of_a_revert(self) -> None:
        here = world(P, self.NEEDS, on=(P, self.NEEDS))
        before = dict(here.files)
        plan = here.revert("p")
        assert [f.state for f in plan.findings] == [BLOCKED]
        assert "needs requires it" in words(plan)
        assert here.files == before
        here.revert("p", with_dependents=True)
        assert here.files["a.py"] == A
        assert here.receipt == []

    def test_reverting_both_or_all_names_no_dependents(self) -> None:
        for names in (("p", "needs"), ()):
            here = world(P, self.NEEDS, on=(P, self.NEEDS))
            here.revert(*names)
            assert here.files["a.py"] == A


class TestSilentDependence:
    """A patch needs another one and does not say so."""

    ON_P = changing("on-p", put(BASE, P), a=edited(A, l5="p 5", l6="on p"))

    def test_what_is_beneath_does_not_come_out(self) -> None:
        here = world(P, self.ON_P, on=(P, self.ON_P))
        before = dict(here.files)
        plan = here.revert("p")
        assert refused(plan)
        assert "on-p, which is in, would not fit without p" in words(plan)
        assert here.files == before
        here.revert("on-p")
        assert here.files["a.py"] == put(BASE, P)["a.py"]

    def test_what_comes_beneath_does_not_push_out_what_is_in(self) -> None:
        near = changing("near", BASE, a=edited(A, l6="near 6"))
        here = world(P, near, on=(near,))
        before = dict(here.files)
        plan = here.apply("p")
        assert [f.state for f in plan.findings] == [CONFLICT]
        assert "it fits this vLLM, but not beside near" in words(plan)
        assert (plan.goal, here.files) == ((near,), before)

    def test_it_is_nobodys_business_in_other_files(self) -> None:
        # The series has them the wrong way round: nothing to do with NEW.
        here = by_hand(self.ON_P, P, NEW, on=(P, self.ON_P))
        assert not refused(here.apply("new"))
        assert here.files["a.py"] == put(BASE, P, self.ON_P)["a.py"]


class TestRefusals:
    def test_python_that_would_not_compile(self) -> None:
        source = text("def f():", "    return 1", "x = 2")
        patch = changing("bad", {"m.py": source}, m=text("def f():", "  return 1", "   x = 2"))
        plan = World(released={"m.py": source}, catalog=[patch]).plan("bad")
        assert plan.findings[0].state == NOT_APPLIED
        assert "m.py the patched file would not compile" in words(plan)
        assert plan.refusals[0].line == 3

    @pytest.mark.parametrize("broken", [b"def\n", b"\0\n", b"x = 1\n\xff\n"])
    def test_it_need_not_compile_if_it_never_did(self, broken: bytes) -> None:
        patch = changing("p", {"m.py": broken}, m=broken + b"more\n")
        assert not refused(World(released={"m.py": broken}, catalog=[patch]).plan("p"))

    def test_a_new_file_must_compile(self) -> None:
        patch = changing("p", {"m.py": None}, m=b"def\n")
        assert refused(World(released={"m.py": None}, catalog=[patch]).plan("p"))

    def test_other_files_need_not_be_python(self) -> None:
        patch = known("p", make_diff({"m.txt": b"one\n"}, {"m.txt": b"def f(\n"}))
        assert not refused(World(released={"m.txt": b"one\n"}, catalog=[patch]).plan("p"))

    def test_taking_out_never_asks_whether_it_compiles(self) -> None:
        broken, mended = b"def\n", b"x = 1\n"
        patch = changing("mend", {"m.py": broken}, m=mended)
        here = World(released={"m.py": broken}, catalog=[patch])
        here.apply("mend")
        here.revert("mend")
        assert here.files["m.py"] == broken

    @pytest.mark.parametrize("on", [(), (P,)])
    def test_a_patch_and_its_inverse(self, on: tuple[Known, ...]) -> None:
        back = inverse("back", P, BASE)
        here = world(P, back, on=on)
        plan = here.apply("p", "back")
        assert refused(plan)
        assert "nothing in the result would show that p and back are in" in words(plan)
        assert here.state("back") == (UPSTREAM if not on else NOT_APPLIED)

    def test_what_could_not_be_taken_out_again(self) -> None:
        # On a file nobody can prove, a hunk that could come out at two places stays out.
        released: Files = {"a.py": text("top", "x", "y", "bottom", *"abcdef", "x", "new", "y")}
        patch = changing(
            "p",
            released,
            context=1,
            a=text("top", "x", "new", "y", "bottom", *"abcdef", "x", "new", "y"),
        )
        assert not refused(World(released=released, catalog=[patch]).plan("p"))
        here = World(released=released, catalog=[patch], record=False)
        here.files["a.py"] = FOREIGN + (here.files["a.py"] or b"")
        plan = here.plan("p")
        assert plan.findings[0].state == NOT_APPLIED
        assert "could not be taken apart again" in words(plan)


class TestExact:
    MOVED: ClassVar[Files] = {**BASE, "a.py": b"up\n" + A}

    def test_no_hunk_moves(self) -> None:
        assert not refused(world().plan("p", exact=True))
        plan = World(released=self.MOVED, catalog=[P]).plan("p", exact=True)
        assert "a hunk of p moved +1 lines" in words(plan)

    def test_lines_that_other_patches_added_are_no_offset(self) -> None:
        low = changing("low", BASE, a=edited(A, l35="low"))
        assert not refused(world(Q, low).plan("q", "low", exact=True))

    def test_but_on_a_listed_digest(self) -> None:
        digest = hashlib.sha256(self.MOVED["a.py"] or b"").hexdigest()
        listed = known("p", P.text, listed={"a.py": frozenset({digest})})
        assert not refused(World(released=self.MOVED, catalog=[listed]).plan("p", exact=True))

    def test_every_base_is_proven(self) -> None:
        here = world(record=False)
        assert not refused(here.plan("p"))
        assert "not proven by RECORD" in words(here.plan("p", exact=True))
        here = world(on=(P,))
        here.files["a.py"] = foreign(here.files["a.py"])
        assert "not proven by RECORD" in words(here.plan("p", exact=True))

    def test_what_is_in_and_not_asked_about_has_moved_before(self) -> None:
        other = changing("other", {**BASE, "b.py": A}, b=edited(A, l5="x"))
        here = World(released={**self.MOVED, "b.py": A}, catalog=[P, other])
        here.apply("p")
        assert not refused(here.plan("other", exact=True))
        assert "a hunk of p moved +1 lines" in words(here.plan("p", exact=True))

    def test_what_is_there_from_whom_nobody_knows_is_on_no_proven_base(self) -> None:
        here = world(record=False)
        here.files = put(here.files, P)
        assert here.state("p") == PRESENT
        assert "not proven by RECORD" in words(here.plan("p", exact=True))


class TestChoice:
    ONE = changing("v", BASE, a=edited(A, l5="one"))
    TWO = changing("v", {"a.py": b"top\n"}, a=b"two\n")

    def ask(self, *candidates: Known, by: str) -> Asked:
        return Asked(id="v", candidates=candidates, by=by, gate=UNSUPPORTED, why="none fits")

    @pytest.mark.parametrize("order", list(itertools.permutations([ONE, TWO])))
    def test_by_content_the_one_that_fits(self, order: tuple[Known, ...]) -> None:
        here = world(*order)
        here.asked["v"] = self.ask(*order, by="content")
        finding = here.finding("v")
        assert (finding.state, finding.patch) == (NOT_APPLIED, self.ONE)
        here.apply("v")
        assert here.state("v") == APPLIED

    def test_by_content_the_one_that_fits_on_what_is_laid_before(self) -> None:
        here = world(P, self.TWO)
        on_p = changing("v", put(BASE, P), a=edited(A, l5="p 5", l6="on p"))
        here.asked["v"] = self.ask(self.TWO, on_p, by="content")
        assert [
            f.patch
            for f in World(released=BASE, catalog=[P, self.TWO, on_p], asked=here.asked)
            .plan("p", "v")
            .findings
        ] == [P, on_p]

    def test_by_content_the_one_that_the_release_has(self) -> None:
        here = World(released=put(BASE, self.ONE), catalog=[self.TWO, self.ONE])
        here.asked["v"] = self.ask(self.TWO, self.ONE, by="content")
        assert here.state("v") == UPSTREAM

    def test_by_content_none(self) -> None:
        here = World(released={"a.py": b"else\n"}, catalog=[self.ONE, self.TWO])
        here.asked["v"] = self.ask(self.ONE, self.TWO, by="content")
        assert here.state("v") == UNSUPPORTED

    def test_by_content_the_one_that_is_in(self) -> None:
        other = changing("v", BASE, a=edited(A, l30="other"))
        here = by_hand(other, self.ONE, on=(self.ONE,))
        here.asked["v"] = self.ask(other, self.ONE, by="content")
        assert here.state("v") == APPLIED

    def listed(self, files: Files, data: bytes = AB.text) -> Known:
        digests = {
            path: frozenset({hashlib.sha256(content).hexdigest()} if content else ())
            for path, content in files.items()
        }
        return known("v", data, listed=digests)

    def test_by_digest_all_files_must_be_listed(self) -> None:
        for files, state in (
            ({"a.py": A, "b.py": B}, NOT_APPLIED),
            ({"a.py": A, "b.py": None}, UNSUPPORTED),
            ({"a.py": A}, UNSUPPORTED),
            ({}, UNSUPPORTED),
        ):
            patch = self.listed(files)  # type: ignore[arg-type]
            here = world(patch)
            here.asked["v"] = self.ask(patch, by="digest")
            assert here.state("v") == state

    def test_by_digest_files_to_be_made_need_none(self) -> None:
        patch = self.listed({"a.py": A, "c.py": None}, P.text + NEW.text)
        here = world(patch)
        here.asked["v"] = self.ask(patch, by="digest")
        assert here.state("v") == NOT_APPLIED

    def test_by_digest_new_files_alone_tell_no_release(self) -> None:
        patch = self.listed({"c.py": None}, NEW.text)
        here = world(patch)
        here.asked["v"] = self.ask(patch, by="digest")
        assert here.state("v") == UNSUPPORTED

    def test_by_digest_a_file_that_is_missing_is_not_listed(self) -> None:
        patch = self.listed({"a.py": A, "b.py": B})
        here = World(released={**BASE, "b.py": None}, catalog=[patch])
        here.asked["v"] = self.ask(patch, by="digest")
        assert here.state("v") == UNSUPPORTED

    @pytest.mark.parametrize(("record", "state"), [(True, APPLIED), (False, PRESENT)])
    def test_by_digest_what_is_in_stays_in(self, record: bool, state: str) -> None:
        patch = self.listed({"a.py": A, "b.py": B})
        here = by_hand(patch, on=(patch,))
        here.record = record
        here.asked["v"] = self.ask(patch, by="digest")
        assert here.state("v") == state


class TestRenames:
    MOVE = known("move", rename("a.py", "d.py"))

    def test_there_and_back(self) -> None:
        here = world(P, self.MOVE, on=(P, self.MOVE))
        assert here.files["d.py"] == put(BASE, P)["a.py"]
        here.revert("p")
        assert (here.files["a.py"], here.files["d.py"]) == (None, A)
        here.revert("move")
        assert (here.files["a.py"], here.files.get("d.py")) == (A, None)

    @pytest.mark.parametrize("files", [0, 1, 2])
    @pytest.mark.parametrize("way", ["in", "out"])
    def test_an_interrupted_one(self, way: str, files: int) -> None:
        here = world(self.MOVE)
        if way == "out":
            here.apply("move")
        plan = here.plan("move") if way == "in" else here.plan_revert("move")
        here.interrupt(plan, files=files)
        if files == 1:
            # It is there twice; at no time is it nowhere.
            assert (here.files["a.py"], here.files["d.py"]) == (A, A)
            assert here.state("move") == PARTIAL
        before = dict(here.files), list(here.receipt)
        assert not refused(here.apply("move"))
        assert (here.files["a.py"], here.files["d.py"]) == (None, A)
        here.files, here.receipt = before
        assert not refused(here.revert("move"))
        assert (here.files["a.py"], here.files.get("d.py")) == (A, None)

    @pytest.mark.parametrize("way", ["in", "out"])
    def test_an_interrupted_one_upon_another_patch(self, way: str) -> None:
        here = world(P, self.MOVE, Q, on=(P,))
        moved = put(BASE, P)["a.py"]
        if way == "out":
            here.apply("move")
        here.interrupt(here.plan("move") if way == "in" else here.plan_revert("move"), files=1)
        assert (here.files["a.py"], here.files["d.py"]) == (moved, moved)
        assert here.found() == {"p": True, "move": False}
        assert not refused(here.apply("p"))
        assert (here.files["a.py"], here.files["d.py"]) == (
            (None, moved) if way == "in" else (moved, None)
        )


def test_a_modified_file_that_no_patch_touches_stays_as_it_is() -> None:
    here = world()
    here.files["b.py"] = foreign(B)
    here.apply("p", "new")
    here.revert()
    assert here.files == {**BASE, "b.py": foreign(B)}


def test_a_patch_the_series_does_not_name_is_not_lost() -> None:
    here = world(on=(P, Q)).here
    short = situation(
        current=here.current,
        known=here.known,
        receipt=here.receipt,
        wanted=here.wanted,
        series=["new"],
        pristine=here.pristine,
    )
    plan = plan_revert(short, ["p"], with_dependents=False)
    assert plan.target["a.py"] == put(BASE, Q)["a.py"]


def test_failing_and_satisfying_states_are_not_the_same() -> None:
    assert not FAILING & SATISFYING
