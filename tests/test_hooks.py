"""The hook for pre-commit: what its pattern takes, its entry, and pre-commit itself."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import scenes
from installers import run
from scenes import entry, patch, write_catalog

ROOT = Path(__file__).resolve().parent.parent
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
(HOOK,) = HOOKS
CUT = patch(a05="50").replace(b"-a05 = 5\n", b"")


def repository(folder: Path) -> Path:
    """Make a git repository that holds a catalog; return it."""
    write_catalog(folder / "patches", entry("one", patch(a05="50")))
    (folder / "README.md").write_text("Hello.\n")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git here")
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
    run(["git", "init", "--quiet"], cwd=folder)
    run(["git", "add", "--all", "--force"], cwd=folder)
    run(["git", *who, "commit", "--quiet", "--no-verify", "-m", "All"], cwd=folder)


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("manifest.toml", True),
        ("my patches/manifest.toml", True),
        ("patches/one/all.patch", True),
        ("x.diff", True),
        ("other-manifest.toml", False),
        ("manifest.toml.j2", False),
        ("patches/one/probe.py", False),
        ("patch", False),
    ],
)
def test_the_hook_takes_manifests_and_diffs(path: str, *, taken: bool) -> None:
    assert bool(re.search(HOOK["files"], path)) is taken


def test_the_entry_is_a_command(tmp_path: Path) -> None:
    program, *words = shlex.split(HOOK["entry"])
    assert program == "vllm-patch"
    write_catalog(tmp_path / "patches", entry("one", patch(a05="50")))
    paths = ["patches/manifest.toml", "patches/one-0.patch"]
    assert all(re.search(HOOK["files"], path) for path in paths)
    right = scenes.process(*words, *paths, cwd=tmp_path)
    assert (right.code, right.err) == (0, "")
    (tmp_path / "patches" / "one-0.patch").write_bytes(CUT)
    wrong = scenes.process(*words, paths[1], cwd=tmp_path)
    assert wrong.code == 3
    assert "  patches/one-0.patch: sha256 is " in wrong.err


@pytest.fixture(scope="module")
def pre_commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the real pre-commit; this needs a package index."""
    folder = tmp_path_factory.mktemp("pre-commit")
    run([sys.executable, "-m", "venv", folder])
    command: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "pre-commit",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pre-commit can't be had: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin" / "pre-commit"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit what an installation needs of this checkout to a repository of its own."""
    folder = tmp_path_factory.mktemp("published")
    for name in (".pre-commit-hooks.yaml", "LICENSE", "NOTICE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("patches", "src"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    commit(folder)
    return folder


@pytest.mark.slow
@pytest.mark.builtin
def test_pre_commit_runs_it(pre_commit: Path, published: Path, tmp_path: Path) -> None:
    folder = repository(tmp_path / "work")
    env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    command = [pre_commit, "try-repo", published, HOOK["id"], "--verbose", "--color", "never"]
    everything = [*command, "--all-files"]
    right = run(everything, cwd=folder, env=env)
    assert "Passed" in right
    assert "no problem in 2 catalogs and diffs" in right
    (folder / "patches" / "one-0.patch").write_bytes(CUT)
    one = [*command, "--files", "patches/one-0.patch"]
    for words in (everything, one):
        wrong = run(words, cwd=folder, env=env, fails=True)
        assert "exit code: 3" in wrong
        assert re.search(r"^  patches/one-0\.patch: sha256 is ", wrong, re.MULTILINE)
        assert re.search(r"^  patches/one-0\.patch:\d+: found ", wrong, re.MULTILINE)
    other = run([*command, "--files", "README.md"], cwd=folder, env=env)
    assert "(no files to check)Skipped" in other
    run([pre_commit, "validate-manifest", ROOT / ".pre-commit-hooks.yaml"], cwd=folder, env=env)


def test_the_page_has_a_configuration_for_it() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n# \.pre-commit-config\.yaml\n(.*?)```", page, re.DOTALL)
    ((hook,),) = [repository["hooks"] for repository in yaml.safe_load(block)["repos"]]
    assert hook["id"] == HOOK["id"]
    # It stands in for the hook's own pattern, so it may take nothing that this one does not.
    names = ("manifest.toml", "one.patch", "one/all.diff", "lock.json", "one/probe.py", "README.md")
    taken = [name for name in names if re.search(hook["files"], f"patches/{name}")]
    assert taken == [name for name in names if re.search(HOOK["files"], name)]
