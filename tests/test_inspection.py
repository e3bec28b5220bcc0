"""The verb `check`: catalogs and diffs by their files alone."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

import pytest

from scenes import diff, entry, patch, run, write_catalog
from vllm_patcher import inspection
from vllm_patcher.errors import InvalidCatalog

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = entry("one", patch(a05="50")), entry("two", patch(b05="50"))
CUT = patch(a05="50").replace(b"-a05 = 5\n", b"")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(*paths: str, builtin: bool = True) -> tuple[str, ...]:
    with pytest.raises(InvalidCatalog) as caught:
        inspection.check(paths, builtin=builtin)
    return caught.value.facts


def number(path: Path, text: str) -> int:
    """The line of a file that holds a text."""
    (found,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return found


def test_what_is_right_is_counted_once(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", ONE, TWO)
    (tmp_path / "own" / "sub").mkdir()
    (tmp_path / "own" / "sub" / "more.diff").write_bytes(patch(a07="70"))
    paths = ["own/manifest.toml", "own/one-0.patch", "own", "own/two-0.patch", "own/sub/more.diff"]
    assert inspection.check(paths) == 4
    assert run("check", *paths).out == "no problem in 4 catalogs and diffs\n"


def test_one_is_counted_as_one(tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_bytes(patch(a07="70"))
    assert run("check", "x.diff").out == "no problem in 1 catalog or diff\n"


def test_the_manifest_in_the_current_folder(tmp_path: Path) -> None:
    write_catalog(tmp_path, ONE)
    assert inspection.check(["manifest.toml"]) == 2
    assert inspection.check(["one-0.patch"]) == 2
    (tmp_path / "one-0.patch").write_bytes(patch(a05="51"))
    (fact,) = problems("one-0.patch")
    assert fact.startswith("one-0.patch: sha256 is ")


def test_a_changed_diff_fails_its_manifest(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path / "own", ONE, TWO)
    text = patch(a05="51")
    (catalog / "one-0.patch").write_bytes(text)
    old, new = (hashlib.sha256(data).hexdigest() for data in (patch(a05="50"), text))
    (fact,) = problems("own/one-0.patch")
    assert fact == f"own/one-0.patch: sha256 is {new}; the manifest expected {old}"


def test_all_problems_at_once_and_where_they_are(tmp_path: Path) -> None:
    bad = entry("three", patch(a09="9"), kind="odd")
    lost = entry("four", patch(a11="9"), requires=["nobody"])
    catalog = write_catalog(tmp_path / "own", entry("one", CUT), TWO, bad, lost)
    manifest = catalog / "manifest.toml"
    (catalog / "two-0.patch").write_bytes(CUT)
    (tmp_path / "loose.patch").write_bytes(b"no diff\n")
    third, fourth = (number(manifest, f'id = "{name}"') for name in ("three", "four"))
    facts = problems("own/manifest.toml", "loose.patch", "gone.diff", "README.md")
    assert [fact.split(": ")[0] for fact in facts] == [
        "README.md",
        f"own/manifest.toml:{third}",
        f"own/manifest.toml:{fourth}",
        facts[3].split(": ")[0],
        "own/two-0.patch",
        facts[5].split(": ")[0],
        "loose.patch:1",
        "gone.diff",
    ]
    assert facts[3].startswith("own/one-0.patch:")
    assert facts[5].startswith("own/two-0.patch:")
    assert "'nobody'" in facts[2]


def test_a_problem_of_a_variant_is_told_once_with_its_line(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path / "own", ONE, TWO)
    (catalog / "two-0.patch").unlink()
    at = number(catalog / "manifest.toml", 'id = "two"')
    assert problems("own/manifest.toml", "own", str(catalog), "own/one-0.patch") == (
        f"own/manifest.toml:{at}: patch 'two', variant 1: diff 'two-0.patch' is not there",
    )


def test_an_entry_without_an_id_is_found_by_its_number(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path / "own", ONE, TWO)
    manifest = catalog / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('id = "two"\n', ""))
    (fact,) = problems("own")
    second = manifest.read_text().splitlines().index("[[patch]]", 3) + 1
    assert fact == f"own/manifest.toml:{second}: patch 2: id is missing"


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.patch")
    assert problems("x.patch") == ("x.patch: no plain file",)


def test_a_manifest_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "manifest.toml").write_text("schema = 1\nx = = 2\n")
    (fact,) = problems("manifest.toml")
    assert fact.startswith("manifest.toml:2: ")


def test_a_requirement_may_be_in_the_built_in_catalog(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", {**ONE, "requires": ["lora-finish-request"]})
    assert inspection.check(["own"]) == 2
    assert "in no catalog" in problems("own", builtin=False)[0]
    assert run("check", "own", "--no-builtin").code == 3


def test_a_requirement_may_be_in_another_catalog(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", {**ONE, "requires": ["two"]})
    write_catalog(tmp_path / "base", TWO)
    assert run("check", "own").code == 3
    assert run("check", "own", "--catalog", "base").code == 0


def test_the_answers(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path / "own", ONE)
    assert run("check", "own", "--json").json == {
        "schema": 1,
        "verb": "check",
        "ok": True,
        "errors": [],
    }
    assert run("check", "own", "--format", "github").out == ""
    assert run("check", "own", "--quiet").out == ""
    (catalog / "one-0.patch").write_bytes(CUT)
    ran = run("check", "own")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("error: 2 problems in what was checked\n  own/one-0.patch: sha256 ")
    assert run("check", "own", "--json").json["errors"][0]["code"] == "invalid-catalog"


def test_each_annotation_has_a_title_of_its_own(tmp_path: Path) -> None:
    bad = entry("three", patch(a09="9"), kind="odd")
    catalog = write_catalog(tmp_path / "own", entry("one", CUT), TWO, bad)
    (catalog / "two-0.patch").write_bytes(patch(b05="51"))
    ran = run("check", "own", "README.md", "--format", "github")
    found = [re.findall(r"file=([^,:]+)|title=([^:]+)", line) for line in ran.out.splitlines()]
    assert [[file or title for file, title in properties] for properties in found] == [
        ["vllm-patch"],
        ["own/manifest.toml", "the patch catalog can't be used"],
        ["own/one-0.patch", "own/one-0.patch is not a unified diff that can be applied whole"],
        [
            "own/two-0.patch",
            "the diff of patch 'two' is not the one that its manifest describes",
        ],
    ]
    assert "::a file can't be checked%0AREADME.md: neither" in ran.out
    assert "problems" not in ran.out


@pytest.mark.parametrize("words", [(), ("",), ("--catalog", "", "x.patch")])
def test_usage(words: tuple[str, ...]) -> None:
    assert run("check", *words).code == 2


@pytest.mark.builtin
def test_the_built_in_catalog_is_right() -> None:
    from vllm_patcher import catalog

    folder = catalog.builtin_folder()
    whole = catalog.load(folder)
    diffs = {patch.diff_path(variant) for patch in whole.patches for variant in patch.variants}
    assert inspection.check([folder]) == len(diffs) + 1


OUTSIDE = b"""\
diff --git a/csrc/x.cpp b/csrc/x.cpp
--- a/csrc/x.cpp
+++ b/csrc/x.cpp
@@ -1 +1 @@
-1
+2
"""


def test_what_apply_would_never_take_is_found_without_a_vllm(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", ONE, entry("two", patch(b05="50") + OUTSIDE))
    line = number(tmp_path / "own" / "two-0.patch", "a/csrc/x.cpp b/csrc/x.cpp")
    expected = (
        f"own/two-0.patch:{line}: csrc/x.cpp is outside the package; "
        'name them in the manifest to leave them out, as skip = ["csrc/**"]'
    )
    assert problems("own") == (expected,)
    write_catalog(tmp_path / "own", ONE, entry("two", patch(b05="50") + OUTSIDE, skip=["csrc/**"]))
    assert inspection.check(["own"]) == 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vllm/../../etc/x.py", "climbs out by '..'"),
        ("vllm/.x.vllm-patcher-tmp", "is named as only vllm-patch may"),
    ],
)
def test_names_that_no_install_could_have(tmp_path: Path, name: str, why: str) -> None:
    """A diff that no manifest names may bring files outside: an option leaves them out."""
    (tmp_path / "fix.patch").write_bytes(patch(a05="50") + OUTSIDE)
    assert inspection.check(["fix.patch"]) == 1
    (tmp_path / "fix.patch").write_bytes(OUTSIDE.replace(b"csrc/x.cpp", name.encode()))
    (fact,) = problems("fix.patch")
    assert why in fact


def test_new_files_alone_need_a_name_with_the_package(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", entry("one", diff("x.py", None, b"1\n", name="csrc/x.py")))
    (fact,) = problems("own")
    assert fact.endswith("write csrc/x.py as vllm/csrc/x.py if it is for the package")


def test_names_that_only_the_files_can_tell_are_let_pass(tmp_path: Path) -> None:
    write_catalog(tmp_path / "own", entry("one", patch(a05="50").replace(b"/vllm/", b"/")))
    assert inspection.check(["own"]) == 2
