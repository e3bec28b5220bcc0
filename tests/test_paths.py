from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_patcher.diff import Diff, parse
from vllm_patcher.errors import InvalidPatch, UnsafePath
from vllm_patcher.paths import Resolved, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = ("envs.py", "engine/llm_engine.py", "v1/engine/llm_engine.py", "benchmarks/serve.py")
ABSENT = "/dev/null"


def part(old: str, new: str) -> str:
    body = {
        (True, False): "@@ -0,0 +1 @@\n+a\n",
        (False, True): "@@ -1 +0,0 @@\n-a\n",
    }.get((old == ABSENT, new == ABSENT), "@@ -1 +1 @@\n-a\n+b\n")
    return f"--- {old}\n+++ {new}\n{body}"


def same(*names: str) -> str:
    return "".join(part(f"a/{name}", f"b/{name}") for name in names)


def create(name: str) -> str:
    return part(ABSENT, f"b/{name}")


def rename(old: str, new: str) -> str:
    return f"diff --git a/{old} b/{new}\nrename from {old}\nrename to {new}\n"


def binary(name: str) -> str:
    return f"diff --git a/{name} b/{name}\nindex 12ab..34cd\nGIT binary patch\n"


def read(text: str) -> Diff:
    return parse(text.encode("utf-8", "surrogateescape"), name="x.patch")


def run(
    text: str,
    *,
    files: Sequence[str] = PACKAGE,
    skip: Sequence[str] = (),
    skip_outside: bool = False,
) -> Resolved:
    return resolve(
        read(text),
        name="x.patch",
        exists=set(files).__contains__,
        skip=skip,
        skip_outside=skip_outside,
    )


def paths(text: str, *, files: Sequence[str] = PACKAGE) -> list[str]:
    return [each.path for each in run(text, files=files).parts]


def refused(text: str, *, files: Sequence[str] = PACKAGE, skip: Sequence[str] = ()) -> InvalidPatch:
    with pytest.raises(InvalidPatch) as caught:
        run(text, files=files, skip=skip)
    return caught.value


# Where the package is


@pytest.mark.parametrize(
    "before",
    [
        "",
        "./",
        "project/",
        "a/very/deep/",
        "vllm/",
        "vllm/vllm/",
        ".venv/lib/python3.12/site-packages/",
        "vllm/.venv/lib/python3.12/site-packages/",
    ],
)
def test_everything_through_the_folder_goes(before: str) -> None:
    name = f"{before}vllm/v1/engine/llm_engine.py"
    assert paths(same(name)) == ["v1/engine/llm_engine.py"]
    assert paths(part(name, name)) == ["v1/engine/llm_engine.py"]
    assert paths(part(f"/{name}", f"/usr/{name}")) == ["v1/engine/llm_engine.py"]
    assert paths(part(f"../{name}", f"../../{name}")) == ["v1/engine/llm_engine.py"]


def test_a_name_is_never_cut_to_whatever_exists() -> None:
    missing = "vllm/v1/engine/llm_engine.py"
    assert paths(same(missing), files=["engine/llm_engine.py", "envs.py"]) == [
        "v1/engine/llm_engine.py"
    ]


def test_a_folder_of_its_own_name_in_the_package() -> None:
    files = ["vllm/x.py", "envs.py"]
    assert paths(same("vllm/vllm/x.py", "vllm/envs.py"), files=files) == ["vllm/x.py", "envs.py"]


def test_the_nested_layout_is_decided_for_the_whole_diff() -> None:
    text = same("vllm/vllm/envs.py", "vllm/tests/test_envs.py") + create("vllm/vllm/new.py")
    found = run(text)
    assert [each.path for each in found.parts] == ["envs.py", "new.py"]
    assert found.skipped == ("vllm/tests/test_envs.py",)


def test_without_evidence_the_last_folder_counts() -> None:
    assert paths(create("vllm/vllm/new.py")) == ["new.py"]


def test_only_a_whole_component_counts() -> None:
    error = refused(same("vllm/envs.py", "vllm_flash_attn/x.py", "xvllm/x.py", "tools/vllm"))
    assert len(error.facts) == 3


def test_relative_names() -> None:
    assert paths(same("envs.py", "benchmarks/serve.py")) == ["envs.py", "benchmarks/serve.py"]
    assert paths(part("envs.py", "./envs.py")) == ["envs.py"]
    assert paths(same("envs.py") + create("tests/new.py")) == ["envs.py", "tests/new.py"]
    assert paths(same("envs.py") + create("new.py")) == ["envs.py", "new.py"]


def test_relative_names_must_exist() -> None:
    error = refused(same("envs.py", "v1/none.py", "none.py") + part("a/gone.py", ABSENT))
    assert [fact.split(":")[1] for fact in error.facts] == ["6", "11", "16"]
    assert "v1/none.py is not in the package" in error.facts[0]


def test_new_files_alone_beside_the_package() -> None:
    error = refused(create("docs/new.md"))
    assert "touches no file of the package" in error.what


def test_new_files_alone_may_be_for_the_repository() -> None:
    """As in a series of mails, of which one has only what is beside the package."""
    error = refused(create("csrc/x.cu") + create("setup2.py"))
    assert "only makes files, and no name in it has a folder vllm" in error.what
    assert [fact.rpartition(" ")[2] for fact in error.facts] == ["csrc/x.cu", "setup2.py"]
    assert error.hint == "write csrc/x.cu as vllm/csrc/x.cu if it is for the package"


def test_prefixes_of_git() -> None:
    text = "diff --git i/envs.py w/envs.py\nindex 12ab..34cd 100644\n" + part(
        "i/envs.py", "w/envs.py"
    )
    assert paths(text) == ["envs.py"]
    assert paths(part("w/envs.py", "w/envs.py"), files=["w/envs.py"]) == ["w/envs.py"]


def test_a_name_of_our_own_temporaries_is_nobody_elses() -> None:
    (fact,) = refused(same("vllm/v1/.x.vllm-patcher-tmp")).facts
    assert fact.endswith("vllm/v1/.x.vllm-patcher-tmp is named as only vllm-patch may")


@pytest.mark.parametrize("name", ["tests/vllm/envs.py", "x/docs/y/vllm/new.py", ".x/vllm/x.py"])
def test_a_folder_beside_the_package_is_outside_whatever_is_in_it(name: str) -> None:
    for text in (same(name), create(name), part(f"../{name}", f"../{name}")):
        assert "touches no file" in refused(text).what
        assert run(text + same("vllm/envs.py")).skipped == (
            ("../" if "../" in text else "") + name,
        )
    assert paths(part(f"/{name}", f"/{name}")) == [name.rpartition("vllm/")[2]]


def test_one_folder_of_several_is_the_package() -> None:
    text = same("vllm/envs.py") + create("tools/vllm/gen.py")
    assert refused(text).facts == ("x.patch:6: tools/vllm/gen.py is outside the package",)
    found = run(text, skip_outside=True)
    assert [each.path for each in found.parts] == ["envs.py"]
    assert found.skipped == ("tools/vllm/gen.py",)
    # Most existing files count, then the shortest.
    text = same("x/vllm/envs.py", "x/vllm/engine/llm_engine.py", "vllm/benchmarks/serve.py")
    assert refused(text).facts == ("x.patch:11: vllm/benchmarks/serve.py is outside the package",)
    text = create("y/x/vllm/new.py") + create("x/vllm/new.py")
    assert refused(text).facts == ("x.patch:1: y/x/vllm/new.py is outside the package",)


def test_sides_with_a_folder_each() -> None:
    pairs = [(f"old/vllm/{name}", f"new/src/vllm/{name}") for name in PACKAGE]
    text = "".join(part(old, new) for old, new in pairs)
    text += part(ABSENT, "new/src/vllm/new.py") + part("old/vllm/gone.py", ABSENT)
    assert paths(text) == [*PACKAGE, "new.py", "gone.py"]
    assert "outside" in refused(text + part(ABSENT, "tools/vllm/new.py")).what
    # Without a file that has both, the sides are not of one tree.
    text = part("old/vllm/envs.py", ABSENT) + part(ABSENT, "tools/vllm/new.py")
    assert refused(text).facts == ("x.patch:5: tools/vllm/new.py is outside the package",)


# Two names


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("vllm/envs.py.orig", "vllm/envs.py", "envs.py"),
        ("vllm/envs.py", "vllm/envs.py.new", "envs.py"),
        ("/srv/envs.py", "vllm/envs.py", "envs.py"),
        ("vllm/envs.py", "/srv/envs.py", "envs.py"),
        ("old/vllm/envs.py", "new/site-packages/vllm/envs.py", "envs.py"),
        ("vllm/none.py.orig", "vllm/none.py", "none.py"),
    ],
)
def test_the_name_that_resolves_counts(old: str, new: str, path: str) -> None:
    assert paths(part(old, new)) == [path]


def test_two_files_of_the_package_are_one_too_many() -> None:
    error = refused(part("vllm/envs.py", "vllm/benchmarks/serve.py"))
    assert "two files of the package" in error.facts[0]


def test_a_created_file_is_named_by_its_new_name() -> None:
    text = (
        "--- vllm/envs.py\t1970-01-01 00:00:00 +0000\n+++ vllm/new.py\n@@ -0,0 +1 @@\n+a\n"
        "--- vllm/old.py\n+++ vllm/other.py\t1970-01-01 00:00:00 +0000\n@@ -1 +0,0 @@\n-a\n"
    )
    assert paths(text) == ["new.py", "old.py"]


# Renames


def test_rename() -> None:
    (found,) = run(rename("vllm/envs.py", "vllm/new/envs.py")).parts
    assert (found.source, found.path) == ("envs.py", "new/envs.py")
    assert found.diff.change == "rename"


def test_rename_of_relative_names() -> None:
    (found,) = run(rename("envs.py", "new.py")).parts
    assert (found.source, found.path) == ("envs.py", "new.py")
    assert "not in the package" in refused(rename("none.py", "new.py")).facts[0]


def test_rename_across_the_edge() -> None:
    for text in (rename("vllm/envs.py", "tools/envs.py"), rename("tests/x.py", "vllm/x.py")):
        assert "across the edge" in refused(text).facts[0]
    text = rename("vllm/envs.py", "x/vllm/envs.py")
    assert "across the edge" in refused(text).facts[0]


def test_rename_outside() -> None:
    found = run(same("vllm/envs.py") + rename("tests/a.py", "tests/b.py"))
    assert len(found.parts) == 1
    assert found.skipped == ("tests/a.py",)


# What is left out


@pytest.mark.parametrize(
    "name",
    [
        "tests/v1/test_x.py",
        "docs/x.md",
        "examples/x.py",
        "benchmarks/x.py",
        ".buildkite/test.yaml",
        ".github/workflows/x.yml",
        "docs/vllm/x.md",
        "tests/vllm/envs.py",
    ],
)
def test_left_out_unasked(name: str) -> None:
    found = run(same(name, "vllm/envs.py") + create(name))
    assert [each.path for each in found.parts] == ["envs.py"]
    assert found.skipped == (name,)


def test_left_out_beside_a_package_in_a_folder() -> None:
    assert run(same("repo/vllm/envs.py", "repo/tests/x.py")).skipped == ("repo/tests/x.py",)


@pytest.mark.parametrize("name", ["setup.py", ".gitignore", "csrc/x.cu", "tests", "x/tests/y.py"])
def test_left_out_when_asked(name: str) -> None:
    text = same("vllm/envs.py", name)
    error = refused(text)
    assert error.facts == (f"x.patch:6: {name} is outside the package",)
    assert error.hint is not None
    assert "--skip-outside" in error.hint
    assert run(text, skip_outside=True).skipped == (name,)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("setup.py", "setup.py", True),
        ("setup.py", "x/setup.py", False),
        ("**/setup.py", "setup.py", True),
        ("**/setup.py", "x/y/setup.py", True),
        ("csrc/**", "csrc/x/y.cu", True),
        ("csrc/*", "csrc/x/y.cu", False),
        ("csrc/*/*.cu", "csrc/x/y.cu", True),
        ("csrc/**/y.cu", "csrc/x/z/y.cu", True),
        ("**/x/**/y.cu", "csrc/x/z/y.cu", True),
        ("**/q/**/y.cu", "csrc/x/z/y.cu", False),
        ("vllm/none/**", "vllm/none/x.py", True),
        ("vllm/[!n]*/**", "vllm/xone/x.py", True),
        ("csrc", "csrc/x", False),
        ("csrc/**", "csrc", False),
        ("c+.py", "c+.py", True),
        ("c+.py", "cc.py", False),
    ],
)
def test_patterns_of_the_manifest(*, pattern: str, name: str, matches: bool) -> None:
    text = same("vllm/envs.py", name)
    skipped = run(text, skip=[pattern], skip_outside=True).skipped
    if matches:
        assert skipped == (name,)
        assert len(run(text, skip=["x", pattern]).parts) == 1
    elif not name.startswith("vllm/"):
        assert "outside" in refused(text, skip=[pattern]).what


def test_patterns_match_whole_renames_and_either_name() -> None:
    text = same("vllm/envs.py") + rename("csrc/a", "vllm/b")
    assert "across" in refused(text, skip=["csrc/**"]).facts[0]
    assert run(text, skip=["csrc/**", "vllm/b"]).skipped == ("csrc/a",)
    two = same("vllm/envs.py") + part("csrc/a.orig", "csrc/a")
    assert run(two, skip=["csrc/a.orig"]).skipped == ("csrc/a",)


def test_nothing_left() -> None:
    error = refused(same("vllm/envs.py", "setup.py"), skip=["**"])
    assert "touches no file of the package" in error.what
    assert error.facts == ("vllm/envs.py", "setup.py")


def test_a_binary_part() -> None:
    assert "binary" in refused(same("vllm/envs.py") + binary("vllm/x.so")).facts[0]
    assert "outside" in refused(same("vllm/envs.py") + binary("logo.png")).facts[0]
    found = run(same("vllm/envs.py") + binary("docs/logo.png") + binary("x"), skip=["x"])
    assert found.skipped == ("docs/logo.png", "x")
    assert len(found.parts) == 1
    assert run(same("vllm/envs.py") + binary("vllm/x.so"), skip=["**/*.so"]).parts


# What leads out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a/vllm/../../x", "b/vllm/../../x"),
        ("a/vllm/../x", "b/vllm/../x"),
        ("a/vllm/v1/../envs.py", "b/vllm/v1/../envs.py"),
        ("a/../vllm/../x", "a/x"),
        ("a/../../etc/x", "b/../../etc/x"),
        ("../envs.py", "../envs.py"),
        ("a/vllm/envs.py", "b/../../evil.py"),
        ("/etc/passwd", "/etc/passwd"),
        ("/etc/passwd", ABSENT),
        (ABSENT, "/srv/x.py"),
        ('"a/vllm/\\056\\056/x"', '"b/vllm/\\056\\056/x"'),
    ],
)
@pytest.mark.parametrize("rest", ["", same("vllm/envs.py"), same("envs.py")])
def test_unsafe(old: str, new: str, rest: str) -> None:
    text = rest + part(old, new)
    for skip in ([], ["**"]):
        with pytest.raises(UnsafePath) as caught:
            run(text, skip_outside=True, skip=skip if ".." in text or "056" in text else [])
        assert caught.value.facts[0].startswith(f"x.patch:{6 if rest else 1}: ")


def test_all_problems_are_told_at_once() -> None:
    text = same("vllm/envs.py", "setup.py", "vllm/../x") + binary("vllm/x.so")
    with pytest.raises(UnsafePath) as caught:
        run(text)
    assert [fact.split(":")[1] for fact in caught.value.facts] == ["6", "11", "16"]


def test_names_are_shown_on_one_printable_line() -> None:
    error = refused(same("vllm/envs.py") + part('"a/\\033[31m\\r"', '"b/\\033[31m\\r"'))
    assert error.facts == ("x.patch:6: \\x1b[31m\\r is outside the package",)


def test_many_problems_are_cut() -> None:
    error = refused(same("vllm/envs.py") + same("x") * 200)
    assert len(error.facts) == 51


def test_names_in_the_package_must_be_text() -> None:
    odd = "vllm/\udce9.py"
    for text in (same(odd), create(odd), rename("vllm/envs.py", odd)):
        error = refused(same("vllm/envs.py") + text)
        assert "is not UTF-8" in error.facts[0]
    assert "is not UTF-8" in refused(same("envs.py", "\udce9.py")).facts[0]
    assert run(same("vllm/envs.py", "tests/\udce9.py")).skipped
    assert paths(same("vllm/caf\u00e9.py")) == ["caf\u00e9.py"]


@pytest.mark.parametrize("folder", ["vllm/", "", "x/site-packages/vllm/"])
def test_the_package_keeps_the_file_by_which_it_is_found(folder: str) -> None:
    files = [*PACKAGE, "__init__.py", "v1/__init__.py"]
    finder = f"{folder}__init__.py"
    for text in (part(f"a/{finder}", ABSENT), rename(finder, f"{folder}old.py")):
        with pytest.raises(UnsafePath) as caught:
            run(same(f"{folder}envs.py") + text, files=files)
        assert "without which nothing finds the package" in caught.value.facts[0]
        assert "takes away" in caught.value.what
    other = f"{folder}v1/__init__.py"
    assert paths(part(f"a/{other}", ABSENT), files=files) == ["v1/__init__.py"]
    assert paths(same(finder), files=files) == ["__init__.py"]


names = st.lists(
    st.sampled_from(["vllm", "..", ".", "", "a", "b", "tests", ".x", "envs.py", "x y"]),
    min_size=1,
    max_size=6,
).map("/".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(names, names), min_size=1, max_size=4), st.booleans())
def test_no_path_leads_out(pairs: list[tuple[str, str]], skip_outside: bool) -> None:
    text = "".join(part(old, new) for old, new in pairs)
    try:
        found = run(text, skip_outside=skip_outside)
    except (InvalidPatch, UnsafePath):
        return
    assert len(found.parts) <= len(pairs)
    for each in found.parts:
        pieces = each.path.split("/")
        assert not {"", ".", ".."} & set(pieces)


pieces = st.lists(st.text("ab*?", min_size=1, max_size=3) | st.just("**"), min_size=1, max_size=5)


@settings(max_examples=400, deadline=None)
@given(pieces, st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=5))
def test_patterns_mean_what_an_expression_means(pattern: list[str], name: list[str]) -> None:
    one = {"*": "[^/]*", "?": "[^/]"}
    expression = "".join(
        "(?:[^/]+/)*"
        if piece == "**"
        else "".join(one.get(sign, re.escape(sign)) for sign in piece) + "/"
        for piece in pattern
    )
    if pattern[-1] == "**":
        expression += "[^/]+/"
    wanted = re.fullmatch(expression, "/".join(name) + "/") is not None
    text = same("vllm/envs.py", "x/" + "/".join(name))
    found = run(text, skip=["x/" + "/".join(pattern)], skip_outside=False) if wanted else None
    if found is None:
        assert "outside" in refused(text, skip=["x/" + "/".join(pattern)]).what
    else:
        assert found.skipped


def test_a_hostile_number_of_folders() -> None:
    deep = "vllm/" * 1500
    wide = "".join(f"{letter}/" for letter in string.ascii_letters) * 30
    text = part(f"a/{deep}x", f"b/{wide}x") * 200
    assert len(run(text, skip_outside=True).parts) == 200
