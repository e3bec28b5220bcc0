"""What is advised for each way in which a patch can't be brought in."""

from __future__ import annotations

import pytest

import scenes
from scenes import Scene, diff, entry, make_scene, patch
from vllm_patcher.advice import MORE_CONTEXT, OTHER_HAND, advice
from vllm_patcher.states import Reason

A = scenes.FILES["a.py"]
LINE_ENDINGS = "give the diff the line endings that the file has"
ANEW = "make the diff anew from the files of this vLLM (0.11.0)"


@pytest.mark.parametrize(
    ("state", "kind", "adhoc", "modified", "hint"),
    [
        ("conflict", "nowhere", False, False, "vllm-patch show x"),
        ("conflict", "nowhere", False, True, OTHER_HAND),
        ("conflict", "nowhere", True, False, ANEW),
        ("conflict", "nowhere", True, True, OTHER_HAND),
        ("conflict", "missing", True, True, ANEW),
        ("conflict", "foreign", True, True, OTHER_HAND),
        ("conflict", "ambiguous", True, False, MORE_CONTEXT),
        ("conflict", "ambiguous", False, False, "vllm-patch show x"),
        ("conflict", "no-context", True, False, MORE_CONTEXT),
        ("conflict", "line-ending", True, False, LINE_ENDINGS),
        ("blocked", "", False, False, "vllm-patch status"),
        ("unsupported", "", False, False, "vllm-patch show x"),
    ],
)  # fmt: skip
def test_advice(state: str, kind: str, *, adhoc: bool, modified: bool, hint: str) -> None:
    reasons = [Reason(what="x", misfit=kind)]
    given = advice("x", state, reasons, version="0.11.0", adhoc=adhoc, modified=modified)
    assert given == hint


def test_a_version_that_says_nothing() -> None:
    given = advice("x", "unsupported", [], version="dev", adhoc=False, modified=False)
    assert given == "if you know which release these files are, add --assume-version RELEASE"


@pytest.fixture
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("scene"))


def hint_for(scene: Scene, *diffs: bytes, before: bytes | None = None) -> str:
    """Apply diffs in one go; return the hint of the refusal."""
    if before is not None:
        (scene.package / "a.py").write_bytes(before)
    files = [scene.diff_file(f"d{number}.patch", text) for number, text in enumerate(diffs)]
    ran = scene.run("apply", *files, "--no-builtin")
    assert ran.code == 3, ran.out
    return ran.err.splitlines()[-1].removeprefix("hint: ")


def test_what_a_user_is_told(scene: Scene) -> None:
    fix = patch(a05="50")
    crlf = A.replace(b"\n", b"\r\n")
    assert hint_for(scene, diff("a.py", b"other\n", b"new\n")) == ANEW
    assert hint_for(scene, fix, patch(a05="51")).startswith(
        "make the diff anew from the files with"
    )
    assert (
        hint_for(scene, b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -5,0 +6 @@\n+x = 1\n")
        == MORE_CONTEXT
    )
    assert hint_for(scene, fix + diff("b.py", None, b"x = 1\n")).startswith("take the file away")
    assert hint_for(scene, fix, before=crlf) == LINE_ENDINGS
    assert hint_for(scene, fix, before=A.replace(b"a04", b"a44")) == OTHER_HAND


def test_two_that_clash_are_said_to_clash(scene: Scene) -> None:
    one, two = (scene.diff_file(f"{n}.patch", patch(a05=n)) for n in ("50", "51"))
    ran = scene.run("apply", one, two, "--no-builtin")
    assert "it fits this vLLM, but not beside 50" in ran.out


def test_a_patch_of_a_catalog_on_a_file_that_somebody_changed(scene: Scene) -> None:
    options = scene.catalog(entry("one", patch(a05="50")))
    (scene.package / "a.py").write_bytes(A.replace(b"a04", b"a44"))
    assert scene.run("apply", *options).err.splitlines()[-1] == f"hint: {OTHER_HAND}"


def test_files_outside_the_package_are_for_the_manifest_of_a_catalog(scene: Scene) -> None:
    text = patch(a05="50") + diff("x.cu", b"1\n", b"2\n", name="csrc/x.cu")
    ran = scene.run("apply", *scene.catalog(entry("one", text)))
    assert ran.code == 3
    assert 'skip = ["csrc/**"]' in ran.err
    ran = scene.run("apply", scene.diff_file("fix.patch", text), "--no-builtin")
    assert "--skip-outside" in ran.err


def test_what_could_not_be_found_again_wants_more_context(scene: Scene) -> None:
    text = b"y = 1\nx = 1\ny = 1\ny = 1\n"
    scene = make_scene(scene.root / "another", files={"b.py": text})
    hunk = b"--- a/vllm/b.py\n+++ b/vllm/b.py\n@@ -9 +9 @@\n-x = 1\n+y = 1\n"
    ran = scene.run("apply", scene.diff_file("fix.patch", hunk), "--no-builtin")
    assert (ran.code, ran.err.splitlines()[-1]) == (3, f"hint: {MORE_CONTEXT}")
