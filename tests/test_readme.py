"""The README says what is so: its commands, its tables and its examples are held to the program."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from vllm_patcher import catalog, states
from vllm_patcher.cli import shell, vllm_patch

if TYPE_CHECKING:
    from conftest import WheelInstaller

pytestmark = pytest.mark.builtin

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"vllm-patch (?!\W)([a-z]+[^`\n|&#]*)", README)))


def block(language: str, holds: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    (found,) = [text for text in blocks if holds in text]
    return str(found)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that begins with this row."""
    lines = README[README.index(heading) :].splitlines()[2:]
    table = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one(command: str) -> None:
    verb, *words = command.replace("[PATCH…]", "").split()
    found = vllm_patch.get_command(click.Context(vllm_patch), verb)
    assert found is not None
    options = {option for param in found.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_every_verb_is_told_of() -> None:
    told = {command.split()[0] for command in COMMANDS}
    assert set(vllm_patch.list_commands(click.Context(vllm_patch))) <= told


def test_the_states_are_all_states() -> None:
    told = {cells[0].strip("`"): cells[2] for cells in rows("| state | meaning | `verify` |")}
    assert told.keys() == states.SATISFYING | states.FAILING | {states.UNSUPPORTED}
    assert {name for name, answer in told.items() if answer == "passes"} == states.SATISFYING
    assert {name for name, answer in told.items() if answer == "fails"} == states.FAILING


def test_the_exit_codes_are_all_exit_codes() -> None:
    codes = {value for name, value in vars(shell).items() if name.startswith("EXIT_")}
    assert {int(cells[0]) for cells in rows("| code | meaning |")} == codes


def test_the_patches_are_of_the_built_in_catalog() -> None:
    told = {cells[0].strip("`") for cells in rows("| id | vLLM | what it mends |")}
    assert told < {patch.id for patch in catalog.load_all((), builtin=True).patches}


def test_the_manifest_is_a_catalog(tmp_path: Path) -> None:
    diff = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    (tmp_path / "fix-scheduler.patch").write_bytes(diff)
    manifest = block("toml", "[[patch]]").replace("…", hashlib.sha256(diff).hexdigest())
    (tmp_path / "manifest.toml").write_text(manifest, encoding="utf-8")
    (patch,) = catalog.load(str(tmp_path)).patches
    assert patch.diff_bytes(patch.variants[0]) == diff


@pytest.mark.wheels
def test_the_python_example_runs(wheel_install: WheelInstaller) -> None:
    environment = wheel_install("0.11.0.post2").python.parent.parent
    code = block("python", "from vllm_patcher").replace("/opt/venv", str(environment))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True {'lora-finish-request': 'applied'}\n")


def test_the_configuration_is_one(tmp_path: Path) -> None:
    from vllm_patcher import config

    (tmp_path / config.FILE).write_text(block("toml", "[revisions]"), encoding="utf-8")
    found = config.read(str(tmp_path), {})
    assert found.patches == ("lora-finish-request", str(tmp_path / "fixes/scheduler.patch"))
    patches = {patch.id: patch for patch in catalog.load_all((), builtin=True).patches}
    for name, pinned in found.revisions.items():
        assert pinned in {variant.sha256 for variant in patches[name].variants}
