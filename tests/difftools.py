"""Diffs made, and put on, by the tools whose work ours is held against.

Each takes and gives the bytes of one file, which its diff calls vllm/x.py; each runs in a folder
that the caller gives and that it may fill. A test is skipped where its tool is not here.
"""

from __future__ import annotations

import difflib
import io
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAMES = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
NO_NEWLINE = b"\n\\ No newline at end of file\n"


def need(*programs: str) -> None:
    """Skip the test unless these programs are on PATH.

    Each tool is asked for where it is started; a property asks before its first example.
    """
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")


def with_git(folder: Path, old: bytes, new: bytes, context: int) -> bytes:
    """Return the diff that git makes, with its index line; nothing if nothing differs."""
    _two_files(folder, old, new)
    options = ("--no-index", "--text", "--no-color", "--no-ext-diff", "--full-index")
    data = _run(folder, "git", "diff", *options, f"-U{context}", "a/x.py", "b/x.py")
    for side in (b"a/", b"b/"):
        # The names stand in the header only: no line of a test file holds them.
        data = data.replace(side * 2 + b"x.py", side + b"vllm/x.py")
        data = data.replace(side + b"x.py", side + b"vllm/x.py")
    return data


def with_diff(folder: Path, old: bytes, new: bytes, context: int) -> bytes:
    """Return the diff that GNU diff makes."""
    _two_files(folder, old, new)
    names = ("--label", "a/vllm/x.py", "--label", "b/vllm/x.py")
    return _run(folder, "diff", "-a", f"-U{context}", *names, "a/x.py", "b/x.py")


def with_difflib(old: bytes, new: bytes, context: int) -> bytes:
    """Return the diff that difflib makes, with the markers that it leaves out."""
    sides = io.BytesIO(old).readlines(), io.BytesIO(new).readlines()
    lines = difflib.diff_bytes(difflib.unified_diff, sides[0], sides[1], n=context, lineterm=b"\n")
    body = [line if line.endswith(b"\n") else line + NO_NEWLINE for line in lines]
    return NAMES + b"".join(body[2:]) if body else b""


def put_on_by_git(folder: Path, data: bytes, patch: bytes, *options: str) -> bytes | None:
    """Return what `git apply` makes of a file; None if it refuses."""
    (folder / "vllm").mkdir(exist_ok=True)
    file = folder / "vllm" / "x.py"
    file.write_bytes(data)
    (folder / "patch").write_bytes(patch)
    done = start(folder, "git", "apply", "--whitespace=nowarn", *options, "patch")
    return file.read_bytes() if done.returncode == 0 else None


def put_on_by_patch(folder: Path, data: bytes, patch: bytes, *options: str) -> bytes | None:
    """Return what `patch` without fuzz makes of a file; None if it refuses."""
    (folder / "in").write_bytes(data)
    (folder / "patch").write_bytes(patch)
    (folder / "out").unlink(missing_ok=True)
    always = ("-F0", "--binary", "--force", "-s", "-r", "-", "-o", "out", "-i", "patch")
    done = start(folder, "patch", *always, *options, "in")
    if done.returncode:
        return None
    # It leaves no file where there would be no line.
    return (folder / "out").read_bytes() if (folder / "out").exists() else b""


def _two_files(folder: Path, old: bytes, new: bytes) -> None:
    for name, data in (("a", old), ("b", new)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "x.py").write_bytes(data)


def _run(folder: Path, *command: str) -> bytes:
    done = start(folder, *command)
    # Both diffs exit with 1 if there is a difference.
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


def start(
    folder: Path, *command: str, data: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool in a folder, on its standard input if need be, without the user's settings."""
    need(command[0])
    ours = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    # In a checkout's subfolder `git apply` would change nothing and say so to nobody.
    ours |= {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    return subprocess.run(
        command, cwd=folder, env=environment | ours, input=data, capture_output=True, check=False
    )
