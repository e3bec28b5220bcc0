"""Answers for a CI service: escaping, places, and what stands in a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scenes import Ran, Scene, changed, entry, make_scene, patch, run
from vllm_patcher import Request, operations, workflow
from vllm_patcher.errors import Conflict, InvalidPatch, VllmPatchError
from vllm_patcher.results import Refused

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = entry("one", patch(a05="50")), entry("two", patch(b05="50"))
ODD = patch(a05="50").replace(b" a06 = 6\n", b" a06 = 66\n")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


def placed(ran: Ran) -> list[str]:
    """The commands that name a file; every line must be a command."""
    lines = ran.out.splitlines()
    assert all(re.match(r"::(error|warning) \w+=", line) for line in lines), ran.out
    return [line for line in lines if line.startswith("::error file=")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            VllmPatchError("50% of\r\nit, or: more"),
            "::error title=vllm-patch::50%25 of%0D%0Ait, or: more",
            id="message",
        ),
        pytest.param(
            InvalidPatch("x: 1,2%", facts=["a,b%/c.patch:7: found ::, expected ::"]),
            "::error file=a%2Cb%25/c.patch,line=7,title=x%3A 1%2C2%25::found ::, expected ::",
            id="properties",
        ),
        pytest.param(
            InvalidPatch("w", facts=["dir/manifest.toml: patch 'x': no"]),
            "::error file=dir/manifest.toml,title=w::patch 'x': no",
            id="no line",
        ),
        pytest.param(
            Conflict("w", facts=["receipt: one:3: no", "two"], hint="h", patch="p"),
            "::error title=p::w%0Areceipt: one:3: no%0Atwo%0Ahint: h",
            id="no place",
        ),
    ],
)
def test_a_command_is_escaped_and_placed(error: VllmPatchError, expected: str) -> None:
    assert list(workflow.github_error(error)) == [expected]


def test_a_command_for_each_place_and_one_for_the_rest() -> None:
    error = InvalidPatch("w", facts=["a.patch:1: x", "a.patch:2: y", "more"], hint="h")
    assert list(workflow.github_error(error)) == [
        "::error file=a.patch,line=1,title=w::x",
        "::error file=a.patch,line=2,title=w::y",
        "::error title=vllm-patch::w%0Amore%0Ahint: h",
    ]


def test_nothing_is_said_of_what_is_right(scene: Scene) -> None:
    catalog = scene.catalog(ONE, TWO)
    assert scene.run("apply", *catalog, "--format", "github") == Ran(code=0, out="", err="")
    assert scene.run("verify", *catalog, "--format", "github") == Ran(code=0, out="", err="")


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_each_failure_and_each_place(scene: Scene, quiet: tuple[str, ...]) -> None:
    fix = scene.diff_file("odd.patch", ODD)
    ran = scene.run("verify", fix, "--format", "github", *quiet)
    assert ran.code == 1
    first, second = ran.out.splitlines()
    assert first.startswith("::error title=vllm-patch::odd is not applied%0Aodd: conflict%0Ahint: ")
    (line,) = placed(ran)
    assert line == second
    assert line.startswith(f"::error file={scene.package}/a.py,line=")
    assert ",title=odd%3A conflict::vllm/a.py:" in line
    assert line.endswith("%0Aexpected  a06 = 66%0Afound     a06 = 6")


def test_a_failure_that_is_no_patch(scene: Scene) -> None:
    (scene.package / "a.py").write_bytes(changed((scene.package / "a.py").read_bytes(), a20="0"))
    catalog = scene.catalog(ONE)
    assert scene.run("apply", *catalog).code == 0
    ran = scene.run("verify", *catalog, "--strict", "--format", "github")
    assert ran.code == 1
    what = "a file is not what was released plus known patches"
    assert f"::error file={scene.package}/a.py,title={what}::modified" in ran.out.splitlines()


def test_what_is_no_failure_is_a_warning(scene: Scene) -> None:
    variants = [(">=0.10.0,<0.10.2", patch(a05="50"))]
    catalog = scene.catalog({**ONE, "variants": variants})
    ran = scene.run("verify", *catalog, "--format", "github")
    assert ran.code == 0
    assert ran.out.startswith("::warning title=vllm-patch::one is unsupported: ")
    assert len(ran.out.splitlines()) == 1
    strict = scene.run("verify", *catalog, "--strict", "--format", "github")
    assert strict.code == 1
    assert strict.out.startswith("::error ")


def test_a_refusal_is_told_once_for_each_patch(scene: Scene) -> None:
    odd = scene.diff_file("odd.patch", ODD)
    strange = scene.diff_file("strange.patch", ODD.replace(b"a.py", b"gone.py"))
    ran = scene.run("apply", odd, strange, "--format", "github")
    assert (ran.code, ran.err) == (3, "")
    files = [re.findall(r"file=([^,:]*)", line)[0] for line in placed(ran)]
    assert files == [f"{scene.package}/a.py", f"{scene.package}/gone.py"]
    assert scene.run("apply", odd, strange).code == 3


def test_a_patch_with_two_conflicts_has_two_places(scene: Scene) -> None:
    text = patch(a05="50", b05="50").replace(b"06 = 6\n", b"06 = 66\n")
    ran = scene.run("apply", scene.diff_file("odd.patch", text), "--format", "github")
    files = [re.findall(r"file=([^,:]*)", line)[0] for line in placed(ran)]
    assert files == [f"{scene.package}/a.py", f"{scene.package}/b.py"]
    assert len(ran.out.splitlines()) == 3


def test_two_reasons_of_one_patch_give_each_place_once(scene: Scene) -> None:
    request = Request(
        patches=(str(scene.diff_file("odd.patch", ODD)),), site_packages=str(scene.site)
    )
    with pytest.raises(Refused) as caught:
        operations.apply(request)
    error = caught.value
    twice = Refused(error.what, errors=[*error.errors, *error.errors], report=error.report)
    assert list(workflow.github_error(twice))[1:] == list(workflow.github_error(error))[1:]


def test_the_reason_of_what_passes_is_no_error(scene: Scene) -> None:
    mended = entry(
        "mended", patch(a07="70").replace(b"-a07 = 7\n+a07 = 70\n", b"-a07 = 70\n+a07 = 7\n")
    )
    ran = scene.run("verify", *scene.catalog(mended, TWO), "--format", "github")
    assert ran.code == 1
    table = scene.run("verify", *scene.catalog(mended, TWO), "--format", "markdown").out
    assert "| mended | upstream | this release has the change already |" in table
    assert len(ran.out.splitlines()) == 1
    assert "mended" not in ran.out


def test_a_dry_run_prints_no_diff(scene: Scene) -> None:
    catalog = scene.catalog(ONE)
    assert "@@" in scene.run("apply", "--dry-run", *catalog).out
    assert scene.run("apply", "--dry-run", *catalog, "--format", "github").out == ""
    assert "@@" not in scene.run("apply", "--dry-run", *catalog, "--format", "markdown").out


def test_the_table(scene: Scene) -> None:
    catalog = scene.catalog(ONE, TWO, entry("old", patch(b07="1"), affects="<0.9"))
    fix = scene.diff_file("od|d_<b>[x].patch", ODD)
    scene.run("apply", "one", *catalog)
    ran = scene.run("verify", *catalog, "--format", "markdown")
    assert ran.code == 1
    assert ran.out.splitlines()[2:8] == [
        "| patch | state | why |",
        "|---|---|---|",
        "| one | applied |  |",
        "| two | **not-applied** |  |",
        "",
        "Not needed for this version: 1.",
    ]
    assert "- error: 1 of 2 patches are not applied\n" not in ran.out
    assert "- error: 1 of 2 patches is not applied\n    - hint: vllm-patch apply " in ran.out
    odd = scene.run("verify", fix, *catalog, "--format", "markdown").out
    assert "\n" + r"| od\|d\_\<b\>\[x\] | **conflict** | vllm/a.py:" in odd


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_beside_a_table_errors_and_warnings_are_told_as_text(
    scene: Scene, quiet: tuple[str, ...]
) -> None:
    old = entry("old", b"", variants=[(">=0.8.0,<0.9", patch(b07="1"))])
    catalog = scene.catalog(ONE, old)
    ran = scene.run("verify", *catalog, "--format", "markdown", *quiet)
    text = scene.run("verify", *catalog, "--quiet")
    assert (ran.code, ran.err) == (1, text.err)
    assert re.search(r"^warning: old is unsupported: .*\nerror: 1 of ", ran.err)
    assert bool(ran.out) is not bool(quiet)
    assert "warning" not in scene.run("status", *catalog, "--format", "markdown").err


def test_the_table_of_status(scene: Scene) -> None:
    ran = scene.run("status", *scene.catalog(ONE), "--format", "markdown")
    assert ran.code == 0
    assert "| one | **not-applied** |  |" in ran.out
    assert "error" not in ran.out


def test_the_tables_of_several_installs_stand_apart(tmp_path: Path) -> None:
    pythons: list[str | Path] = []
    for name, version in (("one", "0.11.0"), ("two", "0.12.0"), ("three", "0.10.2")):
        site = tmp_path / name / "lib" / "python3.11" / "site-packages"
        site.parent.mkdir(parents=True)
        make_scene(tmp_path / f"scene {name}", version=version).site.rename(site)
        pythons += ["--python", tmp_path / name, "--python", tmp_path / "none"]
    for verb in ("verify", "apply", "status"):
        lines = run(verb, *pythons, "--format", "markdown").out.splitlines()
        for begins, times in (("**vllm ", 3), ("| patch |", 2), ("- error: ", 3)):
            found = [number for number, line in enumerate(lines) if line.startswith(begins)]
            assert len(found) >= times
            assert all(number == 0 or lines[number - 1] == "" for number in found)


def test_nothing_to_do(scene: Scene) -> None:
    catalog = scene.catalog(entry("old", patch(a05="1"), affects="<0.9"))
    ran = scene.run("verify", *catalog, "--format", "markdown")
    assert (ran.code, "Nothing to do for vLLM 0.11.0." in ran.out) == (0, True)


def test_a_refusal_has_a_table_and_its_reasons(scene: Scene) -> None:
    odd = scene.diff_file("odd.patch", ODD)
    ran = scene.run("apply", odd, "--format", "markdown")
    assert ran.code == 3
    assert "| odd | **conflict** | vllm/a.py:" in ran.out
    assert ran.out.count("- error: ") == 1
    assert ran.err.startswith("error: ")


def test_an_error_without_a_report(scene: Scene) -> None:
    ran = scene.run("verify", "nothing", "--format", "markdown")
    assert ran.code == 2
    assert "- error: no patch 'nothing'" in ran.out


@pytest.mark.parametrize("format_", ["github", "markdown"])
def test_json_goes_before_other_formats(scene: Scene, format_: str) -> None:
    assert scene.run("status", "--json").json["verb"] == "status"
    ran = scene.run("verify", *scene.catalog(ONE), "--format", format_, "--json")
    assert ran.json["ok"] is False
