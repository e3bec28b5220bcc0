"""Which release gets which patch, and which row is that of the vLLM that is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import scenes
from scenes import entry, make_scene, patch, write_catalog
from vllm_patcher import catalog, chart

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_patcher.catalog import Catalog

OLD, NEW = patch(a05="50"), patch(a05="55")
RELEASES = ("0.8.5", "0.9.0", "0.9.1", "0.10.0", "0.11.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write_catalog(
        tmp_path / "catalog",
        entry("one", OLD, affects=">=0.9,<0.11"),
        entry(
            "two",
            b"",
            affects=">=0.8",
            variants=[(">=0.8,<0.9", OLD), (">=0.10", NEW)],
            default=False,
        ),
    )
    locked: dict[str, dict[str, object]] = {release: {} for release in RELEASES}
    (made / "lock.json").write_text(json.dumps({"schema": 1, "patches": {"two": locked}}))
    return made


@pytest.fixture
def loaded(folder: Path) -> Catalog:
    return catalog.load(str(folder))


def test_releases_that_get_the_same_are_one_band(loaded: Catalog) -> None:
    bands = chart.bands(loaded.patches, loaded.lock)
    assert [(band.name, "".join(band.marks)) for band in bands] == [
        ("0.8.5", ".o"),
        ("0.9.0 - 0.9.1", "x-"),
        ("0.10.0", "xo"),
        ("0.11.0", ".o"),
    ]


@pytest.mark.parametrize(
    ("installed", "row"),
    [
        ("0.9.1", "0.9.0 - 0.9.1"),
        ("0.9.1+cu129", "0.9.0 - 0.9.1"),
        ("0.11.0.post2", "0.11.0"),
        ("0.12.0", None),
        ("0.11.0rc1", None),
        ("dev", None),
        (None, None),
    ],
)
def test_the_row_of_what_is_installed(
    loaded: Catalog, installed: str | None, row: str | None
) -> None:
    lines = list(chart.text(chart.bands(loaded.patches, loaded.lock), installed))
    assert lines[0].split() == ["vLLM", "1", "2"]
    assert chart.LEGEND in lines[-2:]
    marked = [line for line in lines if line.startswith("* ")]
    assert len(marked) == (2 if row else 0)
    if row:
        assert marked[0].split(" ", 1)[1].startswith(f"{row} ")
        assert marked[1] == f"* {installed} is installed"


@pytest.mark.parametrize(
    ("columns", "heads"), [(80, ["vLLM 1 2"]), (19, ["vLLM 1 2"]), (18, ["vLLM 1", "vLLM 2"])]
)
def test_a_narrow_terminal_gets_it_in_parts(
    loaded: Catalog, columns: int, heads: list[str]
) -> None:
    bands = chart.bands(loaded.patches, loaded.lock)
    lines = list(chart.text(bands, "0.9.1", columns=columns))
    assert [" ".join(line.split()) for line in lines if "vLLM" in line] == heads
    here = [line for line in lines if line.startswith("* 0.9.0 - 0.9.1 ")]
    assert [line.split()[4:] for line in here] == (
        [["x", "-"]] if len(heads) == 1 else [["x"], ["-"]]
    )
    assert max(map(len, here)) <= columns
    assert (chart.LEGEND in lines) is (columns == 80)


def test_without_a_lock_there_is_no_chart() -> None:
    assert list(chart.text([], "0.11.0")) == []


def test_the_command(tmp_path: Path, folder: Path) -> None:
    scene = make_scene(tmp_path / "scene")
    options = ("--no-builtin", "--catalog", folder)
    assert "* 0.11.0        . o\n" in scene.run("list", *options).out
    found = scene.run("list", *options, "--json").json
    assert found["installed"] == "0.11.0"
    assert found["releases"]["0.10.0"] == ["one", "two"]


def test_an_option_that_leads_to_no_vllm_is_said(tmp_path: Path, folder: Path) -> None:
    options = ("--no-builtin", "--catalog", folder)
    none = scenes.run("list", *options, "--site-packages", tmp_path)
    assert (none.code, "installed" in none.out) == (0, False)
    assert none.err == f"warning: there is no vllm in {tmp_path}\n"
    nope = tmp_path / "nope"
    warning = f"warning: {nope} is no Python interpreter; {nope}: there is no such file\n"
    ran = scenes.run("list", *options, "--python", nope, "--json")
    assert (ran.code, ran.json["installed"], ran.err) == (0, None, warning)
    ran = scenes.run("show", "two", "--diff", *options, "--python", nope)
    assert (ran.code, ran.err.startswith(warning)) == (3, True)


def test_nothing_is_said_where_no_option_leads_to_a_vllm(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "nope"))
    monkeypatch.setenv("PATH", "")
    ran = scenes.run("list", "--no-builtin", "--catalog", folder)
    assert (ran.code, ran.err) == (0, "")
