"""What is found in the bytes, and what is not taken for ours."""

from __future__ import annotations

import itertools
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import difftools
from engine import (
    World,
    changing,
    edited,
    inverse,
    known,
    make_diff,
    numbered,
    put,
    rename,
    repeating,
    text,
)
from vllm_patcher import unit
from vllm_patcher.identify import identify
from vllm_patcher.stack import take

if TYPE_CHECKING:
    from pathlib import Path

    from engine import Files
    from vllm_patcher.known import Known

BASE: Files = {"a.py": numbered(40), "b.py": numbered(40, word="other"), "c.py": None}

P = changing("p", BASE, a=edited(BASE["a.py"] or b"", l5="p 5"))
Q = changing("q", BASE, a=edited(BASE["a.py"] or b"", l20="q 20\nq more"))
S = changing("s", BASE, a=edited(BASE["a.py"] or b"", l35=None))
AB = changing(
    "ab",
    BASE,
    a=edited(BASE["a.py"] or b"", l12="ab 12"),
    b=edited(BASE["b.py"] or b"", l12="ab 12"),
)
NEW = changing("new", BASE, c=text("made"))
FOREIGN = text("a foreign line")


def a_foreign(data: bytes | None) -> bytes:
    """Edit a file as somebody else would, away from all patches."""
    assert data is not None
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:28], FOREIGN, *lines[28:]])


def assert_base(here: World, expected: Files) -> None:
    base = here.here.found.base
    assert base == {path: expected.get(path) for path in base}


def world(*on: Known, catalog: tuple[Known, ...] = (P, Q, S, AB, NEW), **files: bytes) -> World:
    """Lay a world in which patches were put on by hand."""
    changed = put(BASE, *on)
    changed.update({f"{stem}.py": data for stem, data in files.items()})
    return World(released=BASE, catalog=catalog, files=changed)


def test_pristine_files_hold_no_patch() -> None:
    found = world().here.found
    assert (found.patches, found.partial) == ((), {})
    assert found.proven == {"a.py", "b.py", "c.py"}
    assert found.base == BASE


def test_pristine_files_hold_no_patch_whatever_the_receipt_says() -> None:
    here = world()
    here.receipt = [(P, "in"), (AB, "in")]
    assert here.found() == {}


@pytest.mark.parametrize(
    "receipt",
    [
        pytest.param([P, Q, AB, NEW], id="right"),
        pytest.param([], id="missing"),
        pytest.param([NEW, AB, Q, P], id="out of order"),
        pytest.param([S], id="lying"),
        pytest.param([P, S, Q], id="lying in part"),
        pytest.param([P, Q, S, AB, NEW], id="lists too much"),
        pytest.param([AB], id="lists too little"),
    ],
)
def test_the_bytes_decide_and_not_the_receipt(receipt: list[Known]) -> None:
    here = world(P, Q, AB, NEW)
    here.receipt = [(patch, "in") for patch in receipt]
    assert here.found() == {"p": True, "q": True, "ab": True, "new": True}
    assert_base(here, BASE)
    assert here.here.found.proven == BASE.keys()


def test_what_lies_in_another_order_than_the_series_is_found() -> None:
    on_q = changing("on-q", put(BASE, Q), a=edited(put(BASE, Q)["a.py"] or b"", l21="on q"))
    here = world(Q, on_q, catalog=(on_q, Q))
    assert here.found() == {"q": True, "on-q": True}
    assert_base(here, BASE)


@pytest.mark.parametrize("listed", [False, True])
def test_what_would_go_back_elsewhere_is_not_found(listed: bool) -> None:
    # Somebody made the same change at the other of two equal places.
    base, patch = repeating()
    block = ("same 1", "same 2", "same 3")
    files: Files = {"a.py": text(*block, "x", *block, "x", "y", *block)}
    here = World(released=base, catalog=[patch], files=files)
    here.receipt = [(patch, "in")] if listed else []
    assert here.found() == {}


def test_more_patches_than_a_search_can_try_are_found() -> None:
    data = numbered(400)
    base: Files = {"a.py": data}
    many = [
        changing(f"m{number}", base, a=edited(data, **{f"l{number * 20}": f"m {number}"}))
        for number in range(1, 20)
    ]
    here = World(released=base, catalog=many, files=put(base, *many[:16]))
    assert here.found() == {patch.id: True for patch in many[:16]}
    assert_base(here, base)


def test_a_hopeless_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = itertools.count(1)

    def counted(*args: Any, **more: Any) -> Any:
        assert next(tried) < 10_000
        return take(*args, **more)

    monkeypatch.setattr(unit, "take", counted)
    data = numbered(400)
    base: Files = {"a.py": data}
    many = [
        changing(f"m{number}", base, a=edited(data, **{f"l{number * 20}": f"m {number}"}))
        for number in range(1, 20)
    ]
    files = put(base, *many[:16])
    files["a.py"] = a_foreign(files["a.py"])
    assert World(released=base, catalog=many, files=files).found() == {}
    assert next(tried) > len(many)


def test_a_tree_patched_with_gnu_patch_is_recognised(tmp_path: Path) -> None:
    difftools.need("patch")
    for path, data in BASE.items():
        if data is not None:
            (tmp_path / "vllm").mkdir(exist_ok=True)
            (tmp_path / "vllm" / path).write_bytes(data)
    for patch in (Q, NEW, AB):
        subprocess.run(
            ["patch", "-p1", "-F0", "--batch"], cwd=tmp_path, input=patch.text, check=True
        )
    files = {path.name: path.read_bytes() for path in (tmp_path / "vllm").glob("*.py")}
    here = World(released=BASE, catalog=(P, Q, S, AB, NEW), files=dict(files))
    assert here.found() == {"q": True, "ab": True, "new": True}
    assert_base(here, BASE)


class TestWithoutProof:
    """Nothing released can be recognised: another hand, or no RECORD."""

    def test_the_receipts_patches_come_out(self) -> None:
        here = world(P, AB)
        here.files["a.py"] = a_foreign(here.files["a.py"])
        here.receipt = [(P, "in"), (AB, "in")]
        found = here.here.found
        assert here.found() == {"p": True, "ab": True}
        assert found.base == {**BASE, "a.py": a_foreign(BASE["a.py"])}
        assert found.proven == {"b.py", "c.py"}

    def test_no_others_do(self) -> None:
        here = world(P, Q)
        here.files["a.py"] = a_foreign(here.files["a.py"])
        here.receipt = [(P, "in")]
        assert here.found() == {"p": True}
        assert b"q 20" in (here.here.found.base["a.py"] or b"")

    def test_without_record_only_the_receipt_counts(self) -> None:
        here = world(P, Q)
        here.record = False
        assert here.found() == {}
        here.receipt = [(Q, "in")]
        assert here.found() == {"q": True}
        assert here.here.found.proven == frozenset()

    def test_what_is_mangled_stays_and_the_rest_comes_out(self) -> None:
        here = world(P, Q)
        mangled = (here.files["a.py"] or b"").replace(b"q more", b"q mangled")
        here.files["a.py"] = mangled
        here.receipt = [(P, "in"), (Q, "in")]
        assert here.found() == {"p": True}
        assert b"q mangled" in (here.here.found.base["a.py"] or b"")

    def test_what_would_not_go_back_to_the_same_bytes_stays(self) -> None:
        # Out, nothing could say to which of two places it belongs.
        base, patch = repeating()
        added = put(base, patch)["a.py"] or b""
        assert World(released=base, catalog=[patch], files={"a.py": added}).found() == {"dup": True}
        files: Files = {"a.py": text("foreign") + added}
        here = World(released=base, catalog=[patch], files=files, receipt=[(patch, "in")])
        assert here.found() == {}
        assert_base(here, files)

    def test_a_foreign_edit_in_one_file_does_not_hide_patches_in_others(self) -> None:
        here = world(P, NEW)
        here.files["b.py"] = a_foreign(BASE["b.py"])
        assert here.found() == {"p": True, "new": True}
        assert here.here.found.proven == {"a.py", "c.py"}


class TestDoubt:
    """A patch is proven in one file and may or may not be in another."""

    def test_who_can_tell_nothing_takes_nothing_out(self) -> None:
        here = world(AB, P)
        here.files["b.py"] = a_foreign(here.files["b.py"])
        assert here.found() == {}
        assert_base(here, here.files)

    def test_other_patches_of_those_files_stay_found_where_they_are_alone(self) -> None:
        here = world(AB, NEW)
        here.files["b.py"] = a_foreign(here.files["b.py"])
        assert here.found() == {"new": True}

    def test_what_still_fits_is_not_in(self) -> None:
        here = world(b=a_foreign(BASE["b.py"]))
        here.files["a.py"] = put(BASE, AB)["a.py"]
        assert here.found() == {"ab": False}
        assert here.here.found.partial == {AB: {"a.py"}}

    def test_what_fits_both_ways_may_be_in(self) -> None:
        same: Files = {"a.py": text(*"xxxxxx"), "b.py": BASE["b.py"]}
        more = b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -3,2 +3,3 @@\n x\n+x\n x\n"
        patch = known("more", more + changing("b", same, b=put(BASE, AB)["b.py"]).text)
        files = put(same, patch)
        files["a.py"] = FOREIGN + (files["a.py"] or b"")
        assert World(released=same, catalog=[patch], files=files).found() == {}

    def test_the_receipt_settles_it(self) -> None:
        here = world(AB)
        here.files["b.py"] = a_foreign(here.files["b.py"])
        here.receipt = [(AB, "in")]
        assert here.found() == {"ab": True}
        assert_base(here, {**BASE, "b.py": a_foreign(BASE["b.py"])})


class TestUpstream:
    """The release has a change already: it is nobody's patch."""

    def test_on_a_pristine_file(self) -> None:
        released = put(BASE, AB)
        here = World(released=released, catalog=[AB])
        assert here.found() == {}

    @pytest.mark.parametrize("receipt", [[], [P]])
    def test_beside_a_patch(self, receipt: list[Known]) -> None:
        released = put(BASE, AB)
        here = World(released=released, catalog=[AB, P], files=put(released, P))
        here.receipt = [(patch, "in") for patch in receipt]
        assert here.found() == {"p": True}
        assert_base(here, released)

    def test_beside_a_patch_and_a_foreign_edit(self) -> None:
        released = put(BASE, AB)
        files = put(released, P)
        files["a.py"] = a_foreign(files["a.py"])
        here = World(released=released, catalog=[AB, P], files=files, receipt=[(P, "in")])
        assert here.found() == {"p": True}
        assert_base(here, {**released, "a.py": a_foreign(released["a.py"])})

    def test_in_one_of_its_files(self) -> None:
        released = {**BASE, "b.py": put(BASE, AB)["b.py"]}
        here = World(released=released, catalog=[AB])
        assert here.found() == {}
        here.files["a.py"] = put(BASE, AB)["a.py"]
        assert here.found() == {"ab": False}


class TestParts:
    """Some files of a patch have it."""

    @pytest.mark.parametrize("receipt", [[], [AB]])
    def test_a_part_is_found(self, receipt: list[Known]) -> None:
        here = world(P)
        here.files["b.py"] = put(BASE, AB)["b.py"]
        here.receipt = [(patch, "in") for patch in receipt]
        assert here.found() == {"p": True, "ab": False}
        assert here.here.found.partial == {AB: {"b.py"}}
        assert here.here.found.on("b.py") == (AB,)
        assert here.here.found.on("a.py") == (P,)

    def test_whole_before_parts(self) -> None:
        whole = changing("whole", BASE, a=put(BASE, AB)["a.py"])
        here = world(whole, catalog=(AB, whole))
        assert here.found() == {"whole": True}

    def test_whole_before_parts_beside_a_foreign_file(self) -> None:
        whole = changing("whole", BASE, a=put(BASE, AB)["a.py"])
        here = world(whole, catalog=(AB, whole), b=a_foreign(BASE["b.py"]))
        assert here.found() == {"whole": True}

    def test_two_whole_ones_before_one_part(self) -> None:
        both = edited(BASE["a.py"] or b"", l5="p 5", l20="q 20\nq more")
        superset = changing("superset", BASE, a=both, b=put(BASE, AB)["b.py"])
        here = world(P, Q, catalog=(superset, P, Q))
        assert here.found() == {"p": True, "q": True}

    def test_what_is_on_elsewhere_before_what_is_nowhere(self) -> None:
        half = changing("half", BASE, b=put(BASE, AB)["b.py"], c=text("never"))
        here = world(AB, catalog=(half, AB, P))
        here.receipt = [(P, "in")]
        here.files["a.py"] = put(BASE, AB, P)["a.py"]
        assert here.found() == {"ab": True, "p": True}

    def test_among_parts_too(self) -> None:
        half = changing("half", BASE, b=put(BASE, AB)["b.py"], c=text("never"))
        other = changing("other", BASE, b=edited(BASE["b.py"] or b"", l30="another"), c=text("no"))
        here = world(AB, catalog=(half, AB, other))
        here.files["b.py"] = edited(here.files["b.py"] or b"", l30="another")
        assert here.found() == {"ab": True, "other": False}

    def test_the_receipt_that_explains_one_file_helps_with_the_next(self) -> None:
        other = changing("other", BASE, b=edited(BASE["b.py"] or b"", l30="another 30"))
        here = world(AB, other, catalog=(AB, other))
        here.receipt = [(AB, "in")]
        assert here.found() == {"ab": True, "other": True}


class TestSupersets:
    BOTH = changing("both", BASE, a=edited(BASE["a.py"] or b"", l5="p 5", l20="q 20\nq more"))

    def test_the_receipt_says_which(self) -> None:
        here = world(P, Q, catalog=(P, Q, self.BOTH))
        here.receipt = [(P, "in"), (Q, "in")]
        assert here.found() == {"p": True, "q": True}
        here.receipt = [(self.BOTH, "in")]
        assert here.found() == {"both": True}

    def test_fewest_first_without_one(self) -> None:
        here = world(P, Q, catalog=(P, Q, self.BOTH))
        assert here.found() == {"both": True}


class TestNeutral:
    def test_a_file_with_no_net_effect_does_not_count(self) -> None:
        # Takes back what AB does to b.py, and does something else.
        back = known(
            "back",
            make_diff(
                {**put(BASE, AB), "c.py": None},
                {**put(BASE, AB), "b.py": BASE["b.py"], "c.py": text("made")},
            ),
        )
        here = world(AB, back, catalog=(AB, back))
        assert here.files["b.py"] == BASE["b.py"]
        assert here.found() == {"ab": True, "back": True}
        here.receipt = [(AB, "in"), (back, "in")]
        assert here.found() == {"ab": True, "back": True}

    def test_a_patch_and_its_inverse_leave_no_trace(self) -> None:
        here = world(catalog=(P, inverse("back", P, BASE)))
        assert here.found() == {}

    def test_a_file_a_patch_does_not_change_does_not_count(self) -> None:
        there_and_back = make_diff({"c.py": None}, {"c.py": text("x")}) + make_diff(
            {"c.py": text("x")}, {"c.py": None}
        )
        patch = known("mail", P.text + there_and_back)
        here = world(patch, catalog=(patch,))
        assert here.found() == {"mail": True}
        here.receipt = [(patch, "in")]
        assert here.found() == {"mail": True}
        here.files["a.py"] = a_foreign(here.files["a.py"])
        assert here.found() == {"mail": True}


class TestRevisions:
    OLD = changing("rev", BASE, a=edited(BASE["a.py"] or b"", l5="old"))
    YOUNG = changing("rev", BASE, a=edited(BASE["a.py"] or b"", l5="new", l8="new too"))

    @pytest.mark.parametrize("receipt", [[], [OLD]])
    def test_the_one_that_is_in_is_found(self, receipt: list[Known]) -> None:
        here = world(self.OLD, Q, catalog=(self.YOUNG, self.OLD, Q))
        here.receipt = [(patch, "in") for patch in receipt]
        assert set(here.here.found.patches) == {self.OLD, Q}

    def test_an_interrupted_change_of_revision_is_found(self) -> None:
        old, young = (
            changing(
                "rev",
                BASE,
                a=edited(BASE["a.py"] or b"", l5=word),
                b=edited(BASE["b.py"] or b"", l5=word),
            )
            for word in ("old", "young")
        )
        here = world(catalog=(old, young))
        here.files = {**put(BASE, old), "a.py": put(BASE, young)["a.py"]}
        assert here.here.found.partial == {old: {"b.py"}, young: {"a.py"}}
        assert_base(here, BASE)


class TestRenames:
    MOVE = known("move", rename("a.py", "d.py"))

    def test_they_tie_files(self) -> None:
        here = world(catalog=(self.MOVE, AB))
        assert frozenset({"a.py", "d.py"}) in here.here.found.units
        assert frozenset({"b.py"}) in here.here.found.units

    def test_a_chain_is_one_unit(self) -> None:
        here = world(catalog=(self.MOVE, known("on", rename("d.py", "e.py"))))
        assert here.here.found.units == (frozenset({"a.py", "d.py", "e.py"}),)

    def test_they_are_found_with_what_lies_below(self) -> None:
        here = world(P, self.MOVE, catalog=(P, self.MOVE))
        assert here.files["a.py"] is None
        assert here.found() == {"p": True, "move": True}
        assert_base(here, {"a.py": BASE["a.py"], "d.py": None})

    def test_a_copy_left_behind_is_no_rename(self) -> None:
        here = world(self.MOVE, catalog=(self.MOVE,))
        here.files["a.py"] = BASE["a.py"]
        assert here.found() == {}

    def test_a_copy_left_behind_by_an_interrupted_run_is_one(self) -> None:
        here = world(self.MOVE, catalog=(self.MOVE,))
        here.files["a.py"] = BASE["a.py"]
        here.receipt = [(self.MOVE, "in")]
        assert here.here.found.partial == {self.MOVE: {"d.py"}}
        here.files["a.py"] = a_foreign(BASE["a.py"])
        assert here.found() == {}


def test_what_is_found_is_in_the_order_it_was_known_in() -> None:
    current = dict(put(BASE, AB, P, Q))
    found = identify(current, [Q, P, AB, S], [AB, P, Q], lambda path, data: BASE.get(path) == data)
    assert found.patches == (Q, P, AB)
