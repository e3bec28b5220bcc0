"""A shell completes verbs, options and ids of patches."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import scenes
from scenes import entry, patch, run, write_catalog

if TYPE_CHECKING:
    from pathlib import Path


def completed(*words: str, env: dict[str, str] | None = None) -> list[str]:
    """What bash is told for a line of words, of which the last is being typed."""
    line = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    ran = scenes.process(
        env=scenes.environ(_VLLM_PATCH_COMPLETE="bash_complete", **line, **(env or {}))
    )
    assert ran.code == 0, ran.err
    return [found.partition(",")[2] for found in ran.out.splitlines()]


def test_verbs_options_and_ids() -> None:
    assert completed("vllm-patch", "ver") == ["verify"]
    assert completed("vllm-patch", "verify", "--pro") == ["--probe"]
    assert completed("vllm-patch", "verify", "lora-f") == ["lora-finish-request"]
    assert completed("vllm-patch", "verify", "--strict", "lora-f") == ["lora-finish-request"]
    assert completed("vllm-patch", "show", "lora-w") == ["lora-waiting-leak"]
    assert completed("vllm-patch", "apply", "./fix") == ["./fix"]


def test_ids_of_a_catalog_that_is_named(tmp_path: Path) -> None:
    folder = str(write_catalog(tmp_path, entry("one", patch(a05="50"))))
    assert completed("vllm-patch", "apply", "--catalog", folder, "on") == ["one"]
    assert completed("vllm-patch", "apply", "on", env={"VLLM_PATCH_CATALOG": folder}) == ["one"]
    assert completed("vllm-patch", "apply", "--no-builtin", "lora") == ["lora"]
    # What can't be read completes nothing, and says nothing either.
    assert completed("vllm-patch", "apply", "--catalog", str(tmp_path / "no"), "on") == ["on"]


def test_what_is_in_to_be_reverted(tmp_path: Path) -> None:
    scene = scenes.make_scene(tmp_path)
    scene.run("apply", scene.diff_file("fix.patch", patch(a05="50")), "--no-builtin")
    site = str(scene.site)
    assert completed("vllm-patch", "revert", "--site-packages", site, "f") == ["fix"]
    assert completed("vllm-patch", "revert", "--site-packages", site, "lora-f") == ["lora-f"]
    assert completed("vllm-patch", "revert", "--site-packages", str(tmp_path), "f") == ["f"]
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r});"
        " from vllm_patcher import cli; raise SystemExit(cli.run([]))"
    )
    line = {"COMP_WORDS": "vllm-patch revert x", "COMP_CWORD": "2"}
    env = scenes.environ(_VLLM_PATCH_COMPLETE="bash_complete", **line)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env
    )
    assert (done.stdout, done.stderr) == ("file,x\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_the_shell(shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, "_VLLM_PATCH_COMPLETE" in ran.out) == (0, True)
    if shutil.which(shell):
        command = [shell, "-n"] if shell != "fish" else [shell, "--no-execute"]
        done = subprocess.run(command, input=ran.out.encode(), check=False, capture_output=True)
        assert done.returncode == 0, done.stderr


def test_another_shell_is_unknown() -> None:
    assert run("completion", "csh").code == 2
