"""Manifests and locks: what is taken, and what is refused with which words."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vllm_patcher
from vllm_patcher import catalog
from vllm_patcher.errors import InvalidCatalog
from vllm_patcher.manifest import Patch, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_patcher.catalog import Catalog

pytestmark = pytest.mark.builtin

DIFF = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"
SHA256 = hashlib.sha256(DIFF).hexdigest()
BEFORE, AFTER = "1" * 64, "2" * 64

VARIANT = f"""
[[patch.variant]]
diff = "mend/all.patch"
sha256 = "{SHA256}"
"""
ENTRY = """
[[patch]]
id = "{id}"
title = "It breaks"
kind = "crash"
affects = ">=0.8.0,<0.11.1"
{more}
"""


def entry(name: str = "mend", more: str = "", variants: str = VARIANT) -> str:
    return ENTRY.format(id=name, more=more) + variants


def variant(vllm: str) -> str:
    return VARIANT + f'vllm = "{vllm}"\n'


def make(folder: Path, *entries: str, head: str = "schema = 1") -> Path:
    """Lay out a catalog with one good diff and probe in FOLDER."""
    (folder / "mend").mkdir(parents=True, exist_ok=True)
    (folder / "mend" / "all.patch").write_bytes(DIFF)
    (folder / "mend" / "probe.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    text = "\n".join([head, *(entries or (entry(),))])
    (folder / "manifest.toml").write_text(text, encoding="utf-8")
    return folder


def facts_of(call: Callable[[], object]) -> list[str]:
    with pytest.raises(InvalidCatalog) as caught:
        call()
    return list(caught.value.facts)


def problems(folder: Path) -> list[str]:
    """Load FOLDER, which must fail, and return the facts without the manifest's path."""
    at = f"{folder / 'manifest.toml'}: "
    facts = facts_of(lambda: catalog.load(str(folder)))
    assert all(fact.startswith(at) for fact in facts)
    return [fact.removeprefix(at) for fact in facts]


# --- what is taken ------------------------------------------------------------------------


def test_an_entry_with_all_keys(tmp_path: Path) -> None:
    more = """
default = false
references = ["https://example.org/1"]
probe = "mend/probe.py"
requires = ["other"]
conflicts = ["third"]
cve = ["CVE-2025-0001", "CVE-2025-12345"]
skip = ["tests/**"]
note = "one\\ntwo"
"""
    folder = make(tmp_path, entry(more=more), entry("other"), entry("third"))
    assert catalog.load(str(folder)).patches[0] == Patch(
        id="mend",
        title="It breaks",
        kind="crash",
        affects=">=0.8.0,<0.11.1",
        folder=str(folder),
        variants=(Variant(vllm=">=0.8.0,<0.11.1", diff="mend/all.patch", sha256=SHA256),),
        references=("https://example.org/1",),
        probe="mend/probe.py",
        default=False,
        requires=("other",),
        conflicts=("third",),
        cve=("CVE-2025-0001", "CVE-2025-12345"),
        skip=("tests/**",),
        note="one\ntwo",
    )


def test_an_entry_with_no_optional_key(tmp_path: Path) -> None:
    loaded = catalog.load(str(make(tmp_path)))
    patch = loaded.patches[0]
    assert loaded.folders == (str(tmp_path),)
    assert loaded.lock.patches == {}
    assert (patch.default, patch.probe, patch.probe_path, patch.note) == (True, None, None, "")
    assert (patch.references, patch.requires, patch.conflicts) == ((), (), ())
    assert (patch.cve, patch.skip) == ((), ())


def test_one_cve_may_be_a_text(tmp_path: Path) -> None:
    folder = make(tmp_path, entry(more='cve = "CVE-2025-0001"'))
    assert catalog.load(str(folder)).patches[0].cve == ("CVE-2025-0001",)


def test_a_catalog_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "manifest.toml").write_text("schema = 1\n", encoding="utf-8")
    assert catalog.load(str(tmp_path)).patches == ()


def test_a_link_may_stay_inside_the_folder(tmp_path: Path) -> None:
    make(tmp_path, entry(more='probe = "probe.py"'))
    (tmp_path / "probe.py").symlink_to(Path("mend", "probe.py"))
    assert catalog.load(str(tmp_path)).patches[0].probe == "probe.py"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    patch = catalog.load(str(tmp_path / "link")).patches[0]
    assert patch.folder == str(tmp_path / "link")
    assert patch.diff_bytes(patch.variants[0]) == DIFF


def test_a_relative_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, entry(more='probe = "mend/probe.py"'))
    monkeypatch.chdir(tmp_path)
    patch = catalog.load(".").patches[0]
    monkeypatch.chdir("/")
    assert patch.probe_path == str(tmp_path / "mend" / "probe.py")
    assert patch.diff_bytes(patch.variants[0]) == DIFF


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", "schema is missing"),
        ("schema = 2", "schema must be 1, the only one this version knows"),
        ("schema = true", "schema must be an integer, not true or false"),
        ('schema = "1"', "schema must be an integer, not a text"),
        ("schema = 1\npatches = []", "unknown key 'patches'; did you mean patch?"),
    ],
)
def test_a_bad_head(tmp_path: Path, head: str, expected: str) -> None:
    assert problems(make(tmp_path, head=head)) == [expected]


@pytest.mark.parametrize("value", ["1", '"x"', "{}"])
def test_patch_must_be_tables(tmp_path: Path, value: str) -> None:
    assert "patch must be a list" in problems(make(tmp_path, f"patch = {value}"))[0]
    assert "patch must hold tables" in problems(make(tmp_path, f"patch = [{value}, 1]"))[0] or (
        value == "{}"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('title = "It breaks"', "", "title is missing"),
        ('title = "It breaks"', 'title = " "', "title is empty"),
        ('title = "It breaks"', "title = 3", "title must be a text, not an integer"),
        ('title = "It breaks"', 'title = "a\\nb"', "title 'a\\nb' must be one line"),
        ('kind = "crash"', "", "kind is missing"),
        (
            'kind = "crash"',
            'kind = "bug"',
            "kind 'bug' must be one of crash, leak, security, compat, wrong-result",
        ),
        ('affects = ">=0.8.0,<0.11.1"', "", "affects is missing"),
        ('affects = ">=0.8.0,<0.11.1"', "affects = 0.8", "affects must be a text, not float"),
        (
            'affects = ">=0.8.0,<0.11.1"',
            'affects = ">0.12,<0.11"',
            "affects '>0.12,<0.11': no release can be in it",
        ),
        (
            'affects = ">=0.8.0,<0.11.1"',
            'affects = ""',
            "affects '' is no version specifier: it is empty, which would mean every release",
        ),
        ('id = "mend"', 'id = "mend"\nurgent = true', "unknown key 'urgent'"),
        (
            'id = "mend"',
            'id = "mend"\ndefault = 1',
            "default must be true or false, not an integer",
        ),
        ('id = "mend"', 'id = "mend"\nnote = ["x"]', "note must be a text, not a list"),
        ('id = "mend"', 'id = "mend"\nrequires = "x"', "requires must be a list, not a text"),
        (
            'id = "mend"',
            'id = "mend"\nskip = [1, ""]',
            "skip must hold texts that are not empty, not 1",
        ),
        ('id = "mend"', 'id = "mend"\nskip = ["a", "a"]', "skip names something twice"),
        (
            'id = "mend"',
            'id = "mend"\ncve = "2025-1"',
            "cve '2025-1' must look like CVE-2025-12345",
        ),
        ('id = "mend"', 'id = "mend"\ncve = ["x"]', "cve 'x' must look like CVE-2025-12345"),
        (
            'id = "mend"',
            'id = "mend"\nreads = ["../../etc/passwd"]',
            "reads '../../etc/passwd' must be a relative path with / inside the package",
        ),
        (
            'id = "mend"',
            'id = "mend"\nrequires = ["no"]',
            "requires names 'no', which is in no catalog",
        ),
        (
            'id = "mend"',
            'id = "mend"\nconflicts = ["no"]',
            "conflicts names 'no', which is in no catalog",
        ),
        ('id = "mend"', 'id = "mend"\nconflicts = ["mend"]', "it conflicts with itself"),
        (
            'id = "mend"',
            'id = "mend"\nrequires = ["mend"]',
            "requirements go in a circle: mend -> mend",
        ),
        ("[[patch.variant]]", "[patch.variant]", "variant must be a list, not a table"),
    ],
)
def test_a_bad_entry(tmp_path: Path, old: str, new: str, expected: str) -> None:
    good = entry()
    assert good.count(old) == 1
    assert problems(make(tmp_path, good.replace(old, new)))[0] == f"patch 'mend': {expected}"


@pytest.mark.parametrize(
    "name", ["Mend", "mend_it", "mend it", "-mend", "mend-", "a--b", "../x", "mend.py", "ménd"]
)
def test_an_id_must_be_kebab_case(tmp_path: Path, name: str) -> None:
    (problem,) = problems(make(tmp_path, entry(name)))
    assert problem.startswith(f"patch {name!r}: id {name!r} must be words of a-z and 0-9")


@pytest.mark.parametrize(("line", "word"), [("", "missing"), ("id = 3", "must be a text")])
def test_an_entry_without_an_id_is_named_by_its_number(
    tmp_path: Path, line: str, word: str
) -> None:
    bad = entry("second").replace('id = "second"', line)
    (problem,) = problems(make(tmp_path, entry("first"), bad))
    assert problem.startswith("patch 2: id ")
    assert word in problem


def test_an_id_is_used_once(tmp_path: Path) -> None:
    assert problems(make(tmp_path, entry(), entry("x"), entry())) == [
        "patch 'mend': the id is used twice"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('diff = "mend/all.patch"', "", "diff is missing"),
        ('"mend/all.patch"', '"mend/none.patch"', "diff 'mend/none.patch' is not there"),
        ('"mend/all.patch"', '"mend"', "diff 'mend' is not a file"),
        (SHA256, SHA256.upper(), f"sha256 '{SHA256.upper()}' must be 64 hex digits in lower case"),
        (SHA256, "12", "sha256 '12' must be 64 hex digits in lower case"),
        (f'sha256 = "{SHA256}"', "", "sha256 is missing"),
        ("diff = ", "size = 3\ndiff = ", "unknown key 'size'"),
        ("diff = ", 'vllm = "new"\ndiff = ', "vllm 'new' is no version specifier: "),
    ],
)
def test_a_bad_variant(tmp_path: Path, old: str, new: str, expected: str) -> None:
    good = entry()
    assert good.count(old) == 1
    (problem,) = problems(make(tmp_path, good.replace(old, new)))
    assert problem.startswith(f"patch 'mend', variant 1: {expected}")


def test_an_entry_needs_a_variant(tmp_path: Path) -> None:
    assert problems(make(tmp_path, entry(variants=""))) == [
        "patch 'mend': it has no variant, so there is nothing to apply"
    ]


@pytest.mark.parametrize(
    "path",
    ["../out.patch", "mend/../../out.patch", "./mend/all.patch", "mend//all.patch", "/etc/hosts"],
)
@pytest.mark.parametrize("key", ["diff", "probe"])
def test_a_path_stays_inside_the_folder(tmp_path: Path, key: str, path: str) -> None:
    folder = make(tmp_path / "catalog")
    (tmp_path / "out.patch").write_bytes(DIFF)
    good = entry(more='probe = "mend/probe.py"')
    bad = re.sub(rf'{key} = "[^"]*"', lambda _: f'{key} = "{path}"', good)
    (problem,) = problems(make(folder, bad))
    assert f"{key} {path!r} must be a relative path with / that stays inside" in problem


@pytest.mark.parametrize("path", ["mend\\\\all.patch", "mend\\u0000all.patch", ""])
def test_a_path_is_plain(tmp_path: Path, path: str) -> None:
    assert len(problems(make(tmp_path, entry().replace("mend/all.patch", path)))) == 1


@pytest.mark.parametrize("name", ["file.patch", "folder/out.patch"])
def test_a_link_must_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "out.patch").write_bytes(DIFF)
    folder = make(tmp_path / "outside-not", entry().replace("mend/all.patch", name))
    (folder / "file.patch").symlink_to(outside / "out.patch")
    (folder / "folder").symlink_to(outside)
    (problem,) = problems(folder)
    assert problem.endswith("leads out of the catalog's folder through a symbolic link")


def test_a_dangling_link_is_no_file(tmp_path: Path) -> None:
    folder = make(tmp_path, entry().replace("mend/all.patch", "gone.patch"))
    (folder / "gone.patch").symlink_to("nowhere")
    assert problems(folder) == ["patch 'mend', variant 1: diff 'gone.patch' is not a file"]


def test_all_problems_of_a_manifest_are_told_at_once(tmp_path: Path) -> None:
    bad = entry("first").replace("crash", "bug").replace("mend/all.patch", "no.patch")
    found = problems(make(tmp_path, bad, entry("second", more="x = 1"), head="schema = 3"))
    assert [problem.split(":")[0] for problem in found] == [
        "schema must be 1, the only one this version knows",
        "patch 'first'",
        "patch 'first', variant 1",
        "patch 'second'",
    ]


def test_a_bad_entry_is_still_known_to_those_that_require_it(tmp_path: Path) -> None:
    bad = entry("first").replace("crash", "bug")
    assert len(problems(make(tmp_path, bad, entry("second", more='requires = ["first"]')))) == 1


def test_a_circle_of_requirements_is_spelled_out(tmp_path: Path) -> None:
    folder = make(
        tmp_path,
        entry("a", more='requires = ["b"]'),
        entry("b", more='requires = ["c"]'),
        entry("c", more='requires = ["b"]'),
    )
    assert problems(folder) == ["patch 'b': requirements go in a circle: b -> c -> b"]


def test_nothing_can_be_required_and_in_conflict(tmp_path: Path) -> None:
    folder = make(tmp_path, entry("a", more='requires = ["b"]\nconflicts = ["b"]'), entry("b"))
    assert problems(folder) == ["patch 'a': 'b' is in requires and in conflicts"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("schema = 1\n[[patch]\n", 2),
        ('schema = 1\n\ntitle = "open\n', 3),
        ("schema = 1\nschema = 1\n", 2),
    ],
)
def test_a_toml_error_has_its_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "manifest.toml").write_text(text, encoding="utf-8")
    (fact,) = facts_of(lambda: catalog.load(str(tmp_path)))
    assert fact.startswith(f"{tmp_path / 'manifest.toml'}:{line}: ")


@pytest.mark.parametrize("data", [b"schema = 1 # \xff", b"x = [", b"\x00"])
def test_other_bytes_than_toml(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.toml").write_bytes(data)
    (fact,) = facts_of(lambda: catalog.load(str(tmp_path)))
    assert fact.startswith(f"{tmp_path / 'manifest.toml'}:")


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    assert problems(tmp_path) == ["No such file or directory"]


# --- ranges -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([">=0.8.0,<0.9", ">=0.9,<0.11.1"], []),
        ([">=0.8.0,<0.9"], []),
        (
            [">=0.8.0,<=0.9", ">=0.9,<0.11.1"],
            ["variant 2: '>=0.9,<0.11.1' overlaps '>=0.8.0,<=0.9' of variant 1"],
        ),
        ([">=0.8.0,<0.12"], ["variant 1: '>=0.8.0,<0.12' goes beyond affects '>=0.8.0,<0.11.1'"]),
        (
            [">=0.8.0,<0.11.1", ">=0.8.0,<0.11.1"],
            ["variant 2: '>=0.8.0,<0.11.1' overlaps '>=0.8.0,<0.11.1' of variant 1"],
        ),
    ],
)
def test_ranges_of_variants(tmp_path: Path, ranges: list[str], expected: list[str]) -> None:
    folder = make(tmp_path, entry(variants="".join(map(variant, ranges))))
    if expected:
        assert problems(folder) == [f"patch 'mend', {problem}" for problem in expected]
    else:
        assert len(catalog.load(str(folder)).patches[0].variants) == len(ranges)


def two_variants(tmp_path: Path) -> Patch:
    ranges = variant(">=0.8.0,<0.9") + variant(">=0.9,<0.10.2")
    return catalog.load(str(make(tmp_path, entry(variants=ranges)))).patches[0]


@pytest.mark.parametrize(
    ("raw", "chosen", "possible"),
    [
        ("0.8.5.post1", 0, [0]),
        ("0.9.0+cu129", 1, [1]),
        ("0.11.0", None, []),
        ("0.12.0", None, []),
        ("0.9.0rc1", None, [0, 1]),
        ("0.9.1rc1", None, [1]),
        ("0.10.2.dev3", None, [1]),
        ("0.11.1rc1", None, []),
        ("0.1.dev1+gabc", None, [0, 1]),
        ("dev", None, [0, 1]),
    ],
)
def test_variants_for_a_version(
    tmp_path: Path, raw: str, chosen: int | None, possible: list[int]
) -> None:
    patch = two_variants(tmp_path)
    assert catalog.candidates(patch, raw) == tuple(patch.variants[n] for n in possible)
    assert catalog.choose(patch, raw) == (None if chosen is None else patch.variants[chosen])


# --- the diff's bytes ---------------------------------------------------------------------


def test_a_diff_is_read_on_demand_and_checked(tmp_path: Path) -> None:
    patch = catalog.load(str(make(tmp_path))).patches[0]
    assert patch.diff_bytes(patch.variants[0]) == DIFF
    (tmp_path / "mend" / "all.patch").write_bytes(DIFF + b" ")
    found = hashlib.sha256(DIFF + b" ").hexdigest()
    assert facts_of(lambda: patch.diff_bytes(patch.variants[0])) == [
        f"{tmp_path / 'mend' / 'all.patch'}: sha256 is {found}",
        f"{tmp_path / 'manifest.toml'}: expected {SHA256}",
    ]
    (tmp_path / "mend" / "all.patch").unlink()
    assert facts_of(lambda: patch.diff_bytes(patch.variants[0])) == [
        f"{tmp_path / 'mend' / 'all.patch'}: No such file or directory"
    ]


def test_loading_reads_no_diff(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "mend" / "all.patch").write_bytes(b"not what the manifest says")
    assert catalog.load(str(folder)).patches


def test_loading_one_range_does_not_import_packaging(tmp_path: Path) -> None:
    source = os.path.dirname(os.path.dirname(vllm_patcher.__file__))
    code = (
        f"import sys; sys.path.insert(0, {source!r}); from vllm_patcher import catalog;"
        f"catalog.load({str(make(tmp_path))!r}); sys.exit('packaging' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- order --------------------------------------------------------------------------------


def patch(name: str, *requires: str) -> Patch:
    return Patch(
        id=name, title="", kind="crash", affects="", folder="", variants=(), requires=requires
    )


@pytest.mark.parametrize(
    ("patches", "expected"),
    [
        ([], ""),
        ([patch("a"), patch("b")], "ab"),
        ([patch("b"), patch("a")], "ba"),
        ([patch("a", "c"), patch("b"), patch("c")], "cab"),
        ([patch("a", "c", "b"), patch("b"), patch("c")], "bca"),
        ([patch("a", "b"), patch("b", "c"), patch("c")], "cba"),
        ([patch("a", "elsewhere"), patch("b")], "ab"),
        ([patch("a", "b"), patch("b", "a")], "ba"),
    ],
)
def test_requirements_come_first(patches: list[Patch], expected: str) -> None:
    assert "".join(one.id for one in catalog.order(patches)) == expected


def test_a_long_chain_of_requirements() -> None:
    chain = [patch(str(n), str(n + 1)) for n in range(5000)]
    assert [one.id for one in catalog.order(chain)] == [str(n) for n in reversed(range(5000))]


@given(st.lists(st.sets(st.integers(0, 9)), max_size=10), st.randoms())
def test_order_keeps_all_and_is_stable(needs: list[set[int]], random: Any) -> None:
    patches = [
        patch(str(n), *(str(m) for m in sorted(need) if m < n)) for n, need in enumerate(needs)
    ]
    assert catalog.order(patches) == tuple(patches)
    random.shuffle(patches)
    ordered = catalog.order(patches)
    place = {one.id: n for n, one in enumerate(ordered)}
    assert sorted(place) == sorted(one.id for one in patches)
    assert all(place[need] < place[one.id] for one in ordered for need in one.requires)
    assert catalog.order(ordered) == ordered


# --- several catalogs ---------------------------------------------------------------------


def test_catalogs_are_joined_in_order(tmp_path: Path) -> None:
    first = make(tmp_path / "1", entry("a"))
    second = make(tmp_path / "2", entry("b", more='requires = ["a"]'))
    loaded = catalog.load_all([str(first), str(second)], builtin=False)
    assert [one.id for one in loaded.patches] == ["a", "b"]
    assert loaded.folders == (str(first), str(second))
    assert facts_of(lambda: catalog.load(str(second)))


def test_the_builtin_catalog_comes_first(tmp_path: Path) -> None:
    folder = make(tmp_path, entry("a", more='requires = ["lora-finish-request"]'))
    loaded = catalog.load_all([str(folder)], builtin=True)
    assert loaded.folders == (catalog.builtin_folder(), str(folder))
    assert loaded.patches[-1].id == "a"
    assert "lora-finish-request" in loaded.lock.patches


def test_an_id_is_in_one_catalog_only(tmp_path: Path) -> None:
    first, second = make(tmp_path / "1"), make(tmp_path / "2")
    assert facts_of(lambda: catalog.load_all([str(first), str(second)], builtin=False)) == [
        f"{second / 'manifest.toml'}: patch 'mend': also in {first}"
    ]


def test_a_copy_of_the_builtin_catalog_stands_in_its_place_if_that_is_said(tmp_path: Path) -> None:
    twin = make(tmp_path / "1", entry("lora-finish-request"))
    with pytest.raises(InvalidCatalog) as caught:
        catalog.load_all([str(twin)], builtin=True)
    assert caught.value.hint == "add --no-builtin to leave the built-in catalog out"
    other = make(tmp_path / "2", entry("lora-finish-request"))
    with pytest.raises(InvalidCatalog) as caught:
        catalog.load_all([str(twin), str(other)], builtin=False)
    assert caught.value.hint is None


def test_two_dots_behind_a_link_lead_to_a_catalog_too(tmp_path: Path) -> None:
    make(tmp_path / "far" / "patches", entry("far"))
    make(tmp_path / "patches", entry("near"))
    (tmp_path / "far" / "inner").mkdir()
    (tmp_path / "link").symlink_to("far/inner")
    (found,) = catalog.load(str(tmp_path / "link" / ".." / "patches")).patches
    assert found.id == "far"


def test_a_catalog_may_be_named_twice(tmp_path: Path) -> None:
    make(tmp_path / "1")
    (tmp_path / "link").symlink_to("1")
    folders = [str(tmp_path / "1"), str(tmp_path / "link"), str(tmp_path / "x" / ".." / "1")]
    assert catalog.load_all(folders, builtin=False).folders == (str(tmp_path / "1"),)


def test_problems_of_all_catalogs_are_told(tmp_path: Path) -> None:
    first = make(tmp_path / "1", head="schema = 2")
    second = tmp_path / "2"
    facts = facts_of(lambda: catalog.load_all([str(first), str(second)], builtin=False))
    assert [fact.split(":")[0] for fact in facts] == [
        str(first / "manifest.toml"),
        str(second / "manifest.toml"),
    ]


def test_no_catalog_at_all() -> None:
    assert catalog.load_all([], builtin=False).patches == ()


@pytest.mark.parametrize("place", ["site/vllm_patcher/patches", "checkout/patches"])
def test_the_builtin_catalog_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    package = tmp_path / ("site" if place.startswith("site") else "checkout/src") / "vllm_patcher"
    monkeypatch.setattr(catalog, "__file__", str(package / "catalog.py"))
    with pytest.raises(InvalidCatalog, match="built-in catalog is missing"):
        catalog.builtin_folder()
    make(tmp_path / place)
    assert catalog.builtin_folder() == str(tmp_path / place)


def test_a_stranger_beside_an_installed_package_is_not_the_builtin_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "patches")
    monkeypatch.setattr(catalog, "__file__", str(tmp_path / "site" / "vllm_patcher" / "catalog.py"))
    with pytest.raises(InvalidCatalog):
        catalog.builtin_folder()


# --- the lock -----------------------------------------------------------------------------


def locked(folder: Path, document: object) -> Callable[[], Catalog]:
    make(folder)
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "lock.json").write_text(text, encoding="utf-8")
    return lambda: catalog.load(str(folder))


def one_change(change: object, path: str = "x.py") -> dict[str, Any]:
    return {"schema": 1, "patches": {"mend": {"0.8.0": {path: change}}}}


def test_digests_of_a_lock(tmp_path: Path) -> None:
    releases = {
        "0.8.0": {
            "x.py": {"before": BEFORE, "after": AFTER},
            "new.py": {"before": None, "after": AFTER},
        },
        "0.8.1": {
            "x.py": {"before": AFTER, "after": BEFORE},
            "old.py": {"before": BEFORE, "after": None},
        },
    }
    lock = locked(tmp_path, {"schema": 1, "patches": {"mend": releases}})().lock
    assert lock.before("mend", "x.py") == {BEFORE, AFTER}
    assert lock.before("mend", "new.py") == set()
    assert lock.patches["mend"]["0.8.0"]["new.py"] == (None, AFTER)
    assert lock.patches["mend"]["0.8.1"]["old.py"] == (BEFORE, None)
    assert lock.before("mend", "old.py") == {BEFORE}
    assert lock.before("other", "x.py") == lock.before("mend", "y.py") == set()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("[]", "must be an object with schema and patches, and nothing else"),
        ({"schema": 1}, "must be an object with schema and patches, and nothing else"),
        ({"schema": 1, "patches": {}, "x": 1}, "must be an object with schema and patches, and"),
        ({"schema": 2, "patches": {}}, "schema must be 1, the only one this version knows"),
        ({"schema": True, "patches": {}}, "schema must be 1, the only one this version knows"),
        ({"schema": 1, "patches": []}, "patches: must be an object"),
        ({"schema": 1, "patches": {"gone": {}}}, "patch 'gone' is not in the manifest"),
        ({"schema": 1, "patches": {"mend": 3}}, "mend: must be an object"),
        ({"schema": 1, "patches": {"mend": {"0.8.0": 3}}}, "mend 0.8.0: must be an object"),
        (one_change(3), "mend 0.8.0 x.py: must be an object"),
        (one_change({"before": BEFORE}), "mend 0.8.0 x.py: must have before and after"),
        (one_change({"before": BEFORE, "after": "12"}), "mend 0.8.0 x.py: must be 64 hex digits"),
        (one_change({"before": 5, "after": AFTER}), "mend 0.8.0 x.py: must be 64 hex digits"),
        (one_change({"before": None, "after": AFTER}, "../x"), "mend 0.8.0 ../x: the path must be"),
    ],
)
def test_a_bad_lock(tmp_path: Path, document: object, expected: str) -> None:
    (fact,) = facts_of(locked(tmp_path, document))
    assert fact.startswith(f"{tmp_path / 'lock.json'}: {expected}")


def test_a_bad_lock_can_be_passed_over(tmp_path: Path) -> None:
    locked(tmp_path, "{")
    assert catalog.load(str(tmp_path), locked=False).lock.patches == {}


def test_a_lock_that_is_no_file(tmp_path: Path) -> None:
    (make(tmp_path) / "lock.json").mkdir()
    assert facts_of(lambda: catalog.load(str(tmp_path))) == [
        f"{tmp_path / 'lock.json'}: Is a directory"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'schema = 1\n[[patch]]\nid = ["a"]\n', "id"),
        (b"schema = 1\n[[patch]]\nid = {a = 1}\n", "id"),
        (b"schema = " + b"1" * 5000 + b"\n", "manifest.toml"),
        (b"schema = 1\nz = " + b"[" * 3000 + b"\n", "manifest.toml"),
    ],
    ids=["id-list", "id-table", "digits", "brackets"],
)
def test_what_no_manifest_can_be_is_an_error_of_ours(
    tmp_path: Path, text: bytes, said: str
) -> None:
    (tmp_path / "manifest.toml").write_bytes(text)
    with pytest.raises(InvalidCatalog) as caught:
        catalog.load(str(tmp_path))
    assert any(said in fact for fact in caught.value.facts)
