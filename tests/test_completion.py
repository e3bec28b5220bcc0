"""A shell is told verbs, options and ids, and where files or folders are meant.

What real shells make of it is in test_terminal.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

import scenes
from scenes import entry, patch, run, write_catalog
from vllm_patcher.cli import vllm_patch

if TYPE_CHECKING:
    from pathlib import Path


def completed(*words: str, env: dict[str, str] | None = None) -> list[str]:
    """What bash is told for a line of words, of which the last is being typed."""
    line = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    ran = scenes.process(
        env=scenes.environ(_VLLM_PATCH_COMPLETE="bash_complete", **line, **(env or {}))
    )
    assert ran.code == 0, ran.err
    return [found.removeprefix("plain,") for found in ran.out.splitlines() if found]


def test_verbs_options_and_ids() -> None:
    assert completed("vllm-patch", "ver") == ["verify"]
    assert completed("vllm-patch", "verify", "--pro") == ["--probe"]
    assert completed("vllm-patch", "show", "lora-w") == ["lora-waiting-leak"]


@pytest.mark.parametrize("verb", ["apply", "verify", "fit"])
def test_a_patch_is_an_id_or_a_file(verb: str) -> None:
    assert completed("vllm-patch", verb, "lora-f") == ["lora-finish-request", "file,lora-f"]
    assert completed("vllm-patch", verb, "--json", "lora-f")[0] == "lora-finish-request"
    assert completed("vllm-patch", verb, "./fix") == ["file,./fix"]


VALUES = {"DIR": "dir", "EXE_OR_VENV": "file", "FILE...": "file"}


def test_a_value_that_is_a_file_or_a_folder_is_left_to_the_shell() -> None:
    told = set()
    for verb in vllm_patch.list_commands(click.Context(vllm_patch)):
        command = vllm_patch.get_command(click.Context(vllm_patch), verb)
        assert command is not None
        for param in command.params:
            if param.metavar in VALUES:
                (item,) = param.shell_complete(click.Context(command), "my-")
                assert (item.type, item.value) == (VALUES[param.metavar], "my-")
                told.add(param.opts[0])
    assert told == {"--catalog", "--site-packages", "--python", "files"}


def test_ids_of_a_catalog_that_is_named(tmp_path: Path) -> None:
    folder = str(write_catalog(tmp_path, entry("one", patch(a05="50"))))
    assert completed("vllm-patch", "show", "--catalog", folder, "on") == ["one"]
    assert completed("vllm-patch", "show", "on", env={"VLLM_PATCH_CATALOG": folder}) == ["one"]
    assert completed("vllm-patch", "show", "--no-builtin", "lora") == []
    # What can't be read completes nothing, and says nothing either.
    assert completed("vllm-patch", "show", "--catalog", str(tmp_path / "no"), "on") == []
    assert completed("vllm-patch", "show", "--python", "''", "lora-f") == ["lora-finish-request"]


def test_what_is_in(tmp_path: Path) -> None:
    scene = scenes.make_scene(tmp_path)
    scene.run("apply", scene.diff_file("fix.patch", patch(a05="50")), "--no-builtin")
    site = ("--site-packages", str(scene.site))
    assert completed("vllm-patch", "revert", *site, "f") == ["fix", "file,f"]
    assert completed("vllm-patch", "revert", *site, "lora-f") == ["file,lora-f"]
    assert completed("vllm-patch", "revert", "--site-packages", str(tmp_path), "f") == ["file,f"]
    assert completed("vllm-patch", "diff", *site, "") == ["fix"]
    # `show` takes both, and no file.
    assert completed("vllm-patch", "show", *site, "f") == ["fix"]
    assert completed("vllm-patch", "show", *site, "lora-f") == ["lora-finish-request"]
    assert completed("vllm-patch", "show", *site, "no") == []


def test_where_the_current_folder_is_gone(tmp_path: Path) -> None:
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
    assert "vllm-patcher" in ran.out
    if shutil.which(shell):
        command = [shell, "-n"] if shell != "fish" else [shell, "--no-execute"]
        done = subprocess.run(command, input=ran.out.encode(), check=False, capture_output=True)
        assert done.returncode == 0, done.stderr


def test_another_shell_is_unknown() -> None:
    assert run("completion", "csh").code == 2
