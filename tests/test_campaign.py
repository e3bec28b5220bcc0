"""A verb on a cluster: nothing is written before every node can be, and one copy once.

The nodes here are installs in folders, and an errand is done in this process; real Ray has its
turn in test_cluster.
"""

from __future__ import annotations

import os
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

from scenes import FILES, Scene, entry, make_scene, patch, write_catalog
from vllm_patcher import Request
from vllm_patcher.cluster import campaign
from vllm_patcher.cluster import errand as errands
from vllm_patcher.cluster.folding import fold
from vllm_patcher.cluster.nodes import DIED, INTERRUPTED, JOINED, NOT_ASKED, Node
from vllm_patcher.errors import InvalidPatch, UnknownPatch, VllmPatchError
from vllm_patcher.request import AdHoc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vllm_patcher.cluster.errand import Errand


class Nodes:
    """Stands for the nodes of a cluster: each has the install of a scene.

    ``log`` has what was done on which, ``dying`` those that do not come back from a change.
    """

    def __init__(self, scenes: dict[str, Scene]) -> None:
        self.scenes = scenes
        self.first = {name: Node(id=name, host=name) for name in scenes}
        self.dying: set[str] = set()
        self.late: list[Node] = []
        self.log: list[tuple[str, ...]] = []

    def do(self, errand: Errand, nodes: Sequence[str]) -> list[Node]:
        kind = "rehearse" if errand.options.get("rehearse") else errand.verb
        self.log.append((kind, *nodes))
        return [self._one(pickle.loads(pickle.dumps(errand)), name, kind) for name in nodes]  # noqa: S301

    def _one(self, errand: Errand, name: str, kind: str) -> Node:
        if name in self.dying and kind != "rehearse":
            return self.first[name].replaced(fate=DIED)
        site = str(self.scenes[name].site)
        answer = errands.run(errand.replaced(request=errand.request.replaced(site_packages=site)))
        return self.first[name].replaced(**answer)

    def joined(self) -> list[Node]:
        return self.late


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    return str(write_catalog(tmp_path / "catalog", entry("one", patch(a05="50"), probe="print(1)")))


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes({name: make_scene(tmp_path / name) for name in ("n1", "n2", "n3")})


def request(catalog: str, **more: Any) -> Request:
    return Request(catalogs=(catalog,), builtin=False, **more)


def change(nodes: Nodes, catalog: str, verb: str = "apply", **more: Any) -> list[Node]:
    policy = {"keep_going": False, "skip_without_vllm": False, **more}
    errand = errands.packed(verb, request(catalog), {})
    return campaign.change(nodes, errand, **policy)


def applied(nodes: Nodes) -> dict[str, bool]:
    files = {name: scene.package / "a.py" for name, scene in nodes.scenes.items()}
    return {
        name: path.is_file() and b"a05 = 50\n" in path.read_bytes() for name, path in files.items()
    }


def stand_in_the_way(scene: Scene) -> None:
    path = scene.package / "a.py"
    path.write_bytes(re.sub(rb"a05 = .*", b"a05 = other", path.read_bytes()))


def test_all_are_asked_before_any_is_written(nodes: Nodes, catalog: str) -> None:
    answer = fold("apply", change(nodes, catalog))
    assert (answer.code, answer.wrote) == (0, True)
    assert all(applied(nodes).values())
    assert nodes.log == [("rehearse", "n1", "n2", "n3"), ("apply", "n1", "n2", "n3"), ("apply",)]
    again = fold("apply", change(nodes, catalog))
    assert (again.code, again.wrote) == (0, False)
    assert fold("revert", change(nodes, catalog, "revert")).code == 0
    assert not any(applied(nodes).values())


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_nothing_is_written_if_one_node_can_not_be(nodes: Nodes, catalog: str, verb: str) -> None:
    if verb == "revert":
        change(nodes, catalog)
    before = {name: scene.everything() for name, scene in nodes.scenes.items()}
    stand_in_the_way(nodes.scenes["n2"])
    before["n2"] = nodes.scenes["n2"].everything()
    nodes.log.clear()
    answer = fold(verb, change(nodes, catalog, verb))
    assert (answer.code, answer.wrote) == (3, False)
    assert answer.groups[0].first.id == "n2"
    assert [kind for kind, *_ in nodes.log] == ["rehearse"]
    assert {name: scene.everything() for name, scene in nodes.scenes.items()} == before


def test_keep_going_writes_where_it_can(nodes: Nodes, catalog: str) -> None:
    stand_in_the_way(nodes.scenes["n2"])
    answer = fold("apply", change(nodes, catalog, keep_going=True))
    assert (answer.code, answer.wrote) == (3, True)
    assert applied(nodes) == {"n1": True, "n2": False, "n3": True}
    assert [error.code for error in answer.errors] == ["node-not-as-asked", "half-done"]


def test_a_node_that_joined_is_in_the_way_too(nodes: Nodes, catalog: str) -> None:
    nodes.late = [Node(id="n4", fate=JOINED)]
    assert fold("apply", change(nodes, catalog)).code == 3
    assert not any(applied(nodes).values())
    answer = fold("apply", change(nodes, catalog, keep_going=True))
    assert [len(group.nodes) for group in answer.groups] == [1, 3]  # told of once


def test_a_node_that_joined_during_the_writing_is_named(
    nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = nodes.do

    def do(errand: Errand, names: Sequence[str]) -> list[Node]:
        if not errand.options.get("rehearse"):
            nodes.late = [Node(id="n4", fate=JOINED)]
        return real(errand, names)

    monkeypatch.setattr(nodes, "do", do)
    answer = fold("apply", change(nodes, catalog))
    assert answer.code == 3
    assert answer.groups[0].first.id == "n4"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), VllmPatchError("lost")])
def test_what_comes_after_the_writing_does_not_hide_it(
    nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    turns = iter([True])

    def joined() -> list[Node]:
        if next(turns, None):
            return []
        raise error

    monkeypatch.setattr(nodes, "joined", joined)
    answer = fold("apply", change(nodes, catalog))
    assert (answer.code, answer.wrote) == (0, True)


def test_a_node_that_dies_after_others_were_written(nodes: Nodes, catalog: str) -> None:
    nodes.dying = {"n3"}
    answer = fold("apply", change(nodes, catalog), again="vllm-patch apply")
    assert answer.code == 3
    assert [error.code for error in answer.errors] == ["node-silent", "half-done"]
    assert answer.errors[1].facts[-1] == (
        "to take that back, on all nodes and where it was so before: vllm-patch revert one"
    )


class TestOneCopy:
    """Nodes that see one file system."""

    @pytest.fixture
    def nodes(self, tmp_path: Path) -> Nodes:
        shared = make_scene(tmp_path / "shared")
        return Nodes({"n1": shared, "n2": make_scene(tmp_path / "own"), "n3": shared})

    def test_it_is_written_by_one_of_them(self, nodes: Nodes, catalog: str) -> None:
        found = change(nodes, catalog)
        assert nodes.log[1:] == [("apply", "n1", "n2"), ("apply", "n3")]
        assert {node.id: node.wrote for node in found} == {"n1": True, "n2": True, "n3": False}
        assert fold("apply", found).code == 0

    def test_who_may_not_write_it_finds_it_done(
        self, nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The third sees the files of the first through a mount that is read-only."""
        real = nodes._one

        def one(errand: Errand, name: str, kind: str) -> Node:
            found = real(errand, name, kind)
            if name == "n3" and kind == "rehearse":
                error: dict[str, Any] = {"code": "write-failed", "what": "w", "facts": []}
                refused = {"verb": "apply", "ok": False, "errors": [{**error, "hint": None}]}
                return found.replaced(report=refused)
            return found

        monkeypatch.setattr(nodes, "_one", one)
        found = change(nodes, catalog)
        assert nodes.log[1:] == [("apply", "n1", "n2"), ("apply", "n3")]
        assert fold("apply", found).code == 0

    def test_another_refusal_is_not_forgiven(
        self, nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Disks that were cloned say the same of themselves, and one may have been edited since."""
        monkeypatch.setattr(errands, "_copy", lambda *_arguments: ("/site/vllm", 1, 1))
        stand_in_the_way(nodes.scenes["n2"])
        answer = fold("apply", change(nodes, catalog))
        assert (answer.code, answer.wrote) == (3, False)

    def test_where_that_one_fails_no_other_tries(self, nodes: Nodes, catalog: str) -> None:
        nodes.dying = {"n1"}
        found = {node.id: node for node in change(nodes, catalog)}
        assert found["n3"].fate == NOT_ASKED
        assert "n1" in found["n3"].why
        assert found["n3"].report is None
        assert nodes.log[-1] == ("apply",)


class Interrupted(Nodes):
    """Ctrl-C comes while the first is being written; the others are not waited for."""

    def do(self, errand: Errand, nodes: Sequence[str]) -> list[Node]:
        if not errand.writes:
            return super().do(errand, nodes)
        done = super().do(errand, nodes[:1])
        return [*done, *(self.first[name].replaced(fate=INTERRUPTED) for name in nodes[1:])]


def test_an_interrupted_run_tells_what_it_has_done(tmp_path: Path, catalog: str) -> None:
    shared = make_scene(tmp_path / "n1")
    nodes = Interrupted({"n1": shared, "n2": make_scene(tmp_path / "n2"), "n3": shared})
    found = change(nodes, catalog)
    assert {node.id: node.fate for node in found} == {
        "n1": "answered",
        "n2": INTERRUPTED,
        "n3": NOT_ASKED,
    }
    answer = fold("apply", found)
    assert answer.code == 3
    assert [error.code for error in answer.errors] == ["node-silent", "half-done"]


class TestWithoutVllm:
    @pytest.fixture
    def nodes(self, tmp_path: Path) -> Nodes:
        (tmp_path / "head" / "site").mkdir(parents=True)
        return Nodes({"n1": Scene(root=tmp_path / "head"), "n2": make_scene(tmp_path / "n2")})

    def test_it_is_in_the_way(self, nodes: Nodes, catalog: str) -> None:
        assert fold("apply", change(nodes, catalog)).code == 3
        assert not any(applied(nodes).values())

    def test_unless_it_is_to_be_skipped(self, nodes: Nodes, catalog: str) -> None:
        found = change(nodes, catalog, skip_without_vllm=True)
        answer = fold("apply", found, skip_without_vllm=True)
        assert (answer.code, answer.skipped, answer.wrote) == (0, 1, True)

    @pytest.mark.parametrize("leaves", ["vllm/x.py", "__editable__.vllm-0.11.0.pth"])
    def test_what_is_left_of_one_is_no_node_without(
        self, nodes: Nodes, catalog: str, leaves: str
    ) -> None:
        path = nodes.scenes["n1"].site / leaves
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        assert fold("apply", change(nodes, catalog, skip_without_vllm=True)).code == 3


class TestRehearsal:
    """What can be known beforehand is said beforehand, and nothing is written."""

    def test_a_plan_that_fits(self, nodes: Nodes, catalog: str) -> None:
        before = {name: scene.everything() for name, scene in nodes.scenes.items()}
        found = campaign.rehearse(nodes, errands.packed("apply", request(catalog), {}))
        answer = fold("apply", found)
        assert (answer.code, answer.wrote) == (0, False)
        assert found[0].states == {"one": "not-applied"}
        assert {name: scene.everything() for name, scene in nodes.scenes.items()} == before

    def test_one_node_may_have_it_already(self, nodes: Nodes, catalog: str) -> None:
        errand = errands.packed("apply", request(catalog), {})
        campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        for path in (nodes.scenes["n2"].package / "a.py", nodes.scenes["n2"].receipt):
            path.unlink()
        make_scene(nodes.scenes["n2"].root)
        assert applied(nodes) == {"n1": True, "n2": False, "n3": True}
        assert fold("apply", campaign.rehearse(nodes, errand)).code == 0

    def test_a_file_that_can_not_be_written(
        self, nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A read-only mount has its turn in test_cluster."""
        from vllm_patcher.errors import WriteFailed
        from vllm_patcher.tree import writing

        def refuse(_folder: int, path: str) -> None:
            if path.startswith(str(nodes.scenes["n2"].site)):
                raise WriteFailed(f"{path} can't be written")

        monkeypatch.setattr(writing, "check_folder", refuse)
        answer = fold("apply", change(nodes, catalog))
        assert answer.code == 3
        assert answer.groups[0].first.id == "n2"
        assert not any(applied(nodes).values())


PAIR = {"fix": "a10", "other": "b10"}


class TestOutAlready:
    """`revert NAME` of a diff of no catalog: only receipts know the name."""

    @pytest.fixture
    def errand(self, nodes: Nodes, catalog: str) -> Errand:
        fix = AdHoc(id="fix", text=patch(a10="100"))
        put = errands.packed("apply", request(catalog, patches=(fix,)), {})
        for name in ("n1", "n3"):
            nodes._one(put, name, "apply")
        return errands.packed("revert", request(catalog, patches=("fix",)), {})

    def test_who_has_it_no_more_is_no_hindrance(self, nodes: Nodes, errand: Errand) -> None:
        found = campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        answer = fold("revert", found)
        assert (answer.code, answer.wrote) == (0, True)
        assert not any(scene.receipt.exists() for scene in nodes.scenes.values())
        again = campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        assert fold("revert", again).code == 2  # now nobody knows the name

    def test_of_two_names_one_may_still_be_in(self, nodes: Nodes, catalog: str) -> None:
        fix, other = (AdHoc(id=name, text=patch(**{line: "7"})) for name, line in PAIR.items())
        for name, those in (("n1", (fix, other)), ("n2", (other,)), ("n3", (fix,))):
            nodes._one(errands.packed("apply", request(catalog, patches=those), {}), name, "apply")
        both = errands.packed("revert", request(catalog, patches=tuple(PAIR)), {})
        found = campaign.change(nodes, both, keep_going=False, skip_without_vllm=False)
        assert fold("revert", found).code == 0
        assert not any(scene.receipt.exists() for scene in nodes.scenes.values())

    def test_a_node_that_has_lost_its_receipt_still_has_the_patch(
        self, nodes: Nodes, errand: Errand
    ) -> None:
        nodes.scenes["n3"].receipt.unlink()
        found = campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        assert fold("revert", found).code == 0
        texts = {(scene.package / "a.py").read_bytes() for scene in nodes.scenes.values()}
        assert texts == {FILES["a.py"]}

    def test_two_diffs_of_one_name_are_not_mixed_up(self, nodes: Nodes, errand: Errand) -> None:
        other = AdHoc(id="fix", text=patch(a15="7"))
        put = errand.replaced(verb="apply", request=errand.request.replaced(patches=(other,)))
        nodes._one(put, "n2", "apply")
        nodes.scenes["n4"] = make_scene(nodes.scenes["n1"].root.parent / "n4")
        nodes.first["n4"] = Node(id="n4", host="n4")
        found = campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        answer = fold("revert", found)
        assert (answer.code, answer.wrote) == (2, False)

    def test_a_name_that_no_node_knows(self, nodes: Nodes, catalog: str, tmp_path: Path) -> None:
        """A node without a vLLM is none that knows it."""
        (tmp_path / "head" / "site").mkdir(parents=True)
        nodes.scenes["n1"] = Scene(root=tmp_path / "head")
        typo = errands.packed("revert", request(catalog, patches=("oen",)), {})
        found = campaign.change(nodes, typo, keep_going=False, skip_without_vllm=True)
        assert fold("revert", found, skip_without_vllm=True).code == 2


class TestErrand:
    """What travels is all that a node needs."""

    def test_catalogs_go_along(self, nodes: Nodes, catalog: str) -> None:
        errand = errands.packed("apply", request(catalog), {})
        assert sorted(errand.files) == ["0/manifest.toml", "0/one-0.patch", "0/one.py"]
        os.rename(catalog, catalog + "-gone")
        assert fold("apply", campaign.rehearse(nodes, errand)).code == 0

    def test_the_built_in_one_goes_along_with_its_lock(self) -> None:
        errand = errands.packed("verify", Request(), {})
        assert {"0/manifest.toml", "0/lock.json"} <= set(errand.files)
        assert not errand.request.builtin

    def test_a_diff_is_read_here(self, nodes: Nodes, catalog: str, tmp_path: Path) -> None:
        path = tmp_path / "fix.patch"
        path.write_bytes(patch(a10="100"))
        errand = errands.packed("apply", request(catalog, patches=(str(path), "one")), {})
        path.unlink()
        assert errand.request.patches == (
            AdHoc(id="fix", text=patch(a10="100"), where=str(path)),
            "one",
        )
        found = campaign.change(nodes, errand, keep_going=False, skip_without_vllm=False)
        assert found[0].states == {"one": "applied", "fix": "applied"}

    def test_a_diff_that_is_not_there_is_refused_here(self, catalog: str) -> None:
        with pytest.raises((UnknownPatch, InvalidPatch)):
            errands.packed("apply", request(catalog, patches=("./no.patch",)), {})

    def test_a_diff_is_never_read_on_a_node(self, catalog: str) -> None:
        with pytest.raises((UnknownPatch, InvalidPatch)):
            errands.packed("apply", request(catalog, patches=("fix.patch",)), {})

    def test_a_name_may_be_one_of_a_receipt(self, nodes: Nodes, catalog: str) -> None:
        errand = errands.packed("verify", request(catalog, patches=("fix",)), {})
        (found, *_) = campaign.ask(nodes, errand)
        assert found.report is not None
        assert [error["code"] for error in found.report["errors"]] == ["unknown-patch"]

    def test_nothing_is_left_of_it(
        self, nodes: Nodes, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(scratch))
        change(nodes, catalog)
        assert not list(scratch.iterdir())

    def test_what_the_system_refuses_is_an_answer(
        self, nodes: Nodes, catalog: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_arguments: object, **_more: object) -> Iterator[None]:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("vllm_patcher.operations.verify", refuse)
        (found, *_) = campaign.ask(nodes, errands.packed("verify", request(catalog), {}))
        assert found.report is not None
        assert found.report["errors"][0]["what"] == "Input/output error"
