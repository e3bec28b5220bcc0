"""Real installers at work: environments made by venv and uv, filled by pip and uv.

What they install is a stand-in for vLLM: a small project that a real build back end turns into
a wheel. It holds the file that the built-in catalog mends, so every verb has work to do there.
Nothing is fetched; uv gets a cache of its own, which a test may spoil.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scenes
from vllm_patcher import interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FINISH, LEAK = "lora-finish-request", "lora-waiting-leak"
FIXED = {FINISH: "applied", LEAK: "applied"}
UNFIXED = {FINISH: "not-applied", LEAK: "not-applied"}


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    fails: bool = False,
) -> str:
    """Run a command; return all that it printed, and raise that if it did not go as expected."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=None if env is None else dict(env),
        cwd=cwd,
    )
    said = done.stdout.decode("utf-8", "replace")
    if bool(done.returncode) is not fails:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{said}")
    return said


def stand_in(folder: Path, *, version: str = "0.11.0", name: str = "vllm") -> Path:
    """Write the source tree of a project that packages a small `vllm`; return the folder."""
    package = folder / "vllm"
    for path, data in {
        "__init__.py": f'"""A stand-in."""\n\n__version__ = "{version}"\n'.encode(),
        "v1/__init__.py": b"",
        "v1/metrics/__init__.py": b"",
        scenes.STATS: scenes.STATS_TEXT,
        **scenes.FILES,
    }.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_bytes(data)
    (folder / "pyproject.toml").write_text(
        textwrap.dedent(f"""\
            [build-system]
            requires = ["setuptools"]
            build-backend = "setuptools.build_meta"

            [project]
            name = "{name}"
            version = "{version}"

            [tool.setuptools.packages.find]
            include = ["vllm*"]
            """)
    )
    return folder


def wheel(version: str = "0.11.0", name: str = "vllm") -> Path:
    """Build the stand-in's wheel, once in a process; it goes with the process."""
    return _built(version, name)


@functools.cache
def _built(version: str, name: str) -> Path:
    folder = Path(_scratch().name, f"{name}-{version}")
    stand_in(folder / "source", version=version, name=name)
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet")
    pip("wheel", *options, "--wheel-dir", folder, folder / "source")
    (built,) = folder.glob("*.whl")
    return built


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vllm-patcher-tests-")


def pip(*arguments: str | Path, python: str | Path = sys.executable, **more: Any) -> str:
    """Run the pip of an interpreter."""
    return run([python, "-m", "pip", "--disable-pip-version-check", *arguments], **more)


def uv(*arguments: str | Path, cache: Path, **more: Any) -> str:
    """Run uv, which fetches nothing, with a cache of its own."""
    from uv import find_uv_bin

    env = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}
    env |= more.pop("env", {})
    return run([find_uv_bin(), *arguments], env=env, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    @property
    def package(self) -> Path:
        return self.site / "vllm"

    @property
    def stats(self) -> Path:
        return self.package / scenes.STATS

    def pip(self, *arguments: str | Path, **more: Any) -> str:
        """Run this suite's pip on the environment."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return run([*command, "--python", self.python, *arguments], **more)

    def install(self, version: str = "0.11.0", *, name: str = "vllm") -> Environment:
        """Install the stand-in with pip."""
        self.pip("install", "--no-deps", "--no-index", wheel(version, name))
        return self

    def uv_install(
        self, cache: Path, *more: str, version: str = "0.11.0", name: str = "vllm"
    ) -> Environment:
        """Install the stand-in with uv."""
        command = ("pip", "install", "--python", self.python, "--no-deps", "--no-index")
        uv(*command, *more, wheel(version, name), cache=cache)
        return self


def venv(folder: Path, *options: str, python: str | Path = sys.executable) -> Environment:
    """Make an environment without pip, as `python -m venv` does."""
    run([python, "-m", "venv", "--without-pip", *options, folder])
    return Environment(folder=folder)


def uv_venv(folder: Path, cache: Path) -> Environment:
    """Make an environment with uv."""
    uv("venv", "--python", sys.executable, folder, cache=cache)
    return Environment(folder=folder)


def states(ran: scenes.Ran) -> dict[str, str]:
    """The state of each patch in the JSON of a run."""
    return {patch["id"]: patch["state"] for patch in ran.json["patches"]}


def tool(
    *arguments: str | Path,
    python: str | Path = sys.executable,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> scenes.Ran:
    """Run vllm-patch, with an interpreter that has or gets it, and nothing of this shell's.

    `env` are variables that are added.
    """
    clean = {
        key: value
        for key, value in scenes.environ().items()
        if key not in {"VIRTUAL_ENV", "CONDA_PREFIX"}
    }
    done = subprocess.run(
        [str(python), "-m", "vllm_patcher", *map(str, arguments)],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**clean, **(env or {})},
        cwd=cwd,
    )
    return scenes.Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def where(*arguments: str | Path, **more: Any) -> dict[str, Any]:
    """What `where --json` says."""
    ran = tool("where", *arguments, "--json", **more)
    assert ran.code == 0, ran.out + ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


MEND = "mend-a"


@functools.cache
def mending() -> tuple[str, str, str]:
    """Give the options for a catalog whose one patch an interpreter can show.

    It turns `vllm.a.a05` from 5 to "mended". Its lock lists the file, so it may go into a tree
    without a dist-info too.
    """
    text = scenes.patch(a05='"mended"')
    folder = scenes.write_catalog(Path(_scratch().name, "mending"), scenes.entry(MEND, text))
    before = scenes.FILES["a.py"]
    after = scenes.changed(before, a05='"mended"')
    digests = {
        "before": hashlib.sha256(before).hexdigest(),
        "after": hashlib.sha256(after).hexdigest(),
    }
    lock = {"schema": 1, "patches": {MEND: {"0.11.0": {"a.py": digests}}}}
    (folder / "lock.json").write_text(json.dumps(lock))
    return "--no-builtin", "--catalog", str(folder)


def runs(
    python: str | Path, *options: str, cwd: Path, env: Mapping[str, str] | None = None
) -> tuple[Path, str]:
    """Let an interpreter import `vllm.a`; return the file it ran and the value it got."""
    code = "from vllm import a; print(a.__file__); print(a.a05)"
    said = run([python, *options, "-c", code], cwd=cwd, env={**os.environ, **(env or {})})
    path, value = said.splitlines()
    return Path(path), value


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, links followed, but not the bytecode that imports leave there."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def paste(ran: scenes.Ran, **more: Any) -> scenes.Ran:
    """Run the command in the hint of a run, as a user would who pastes it."""
    (hint,) = (line for line in ran.err.splitlines() if line.startswith("hint: "))
    program, *words = shlex.split(hint.removeprefix("hint: "))
    assert program == "vllm-patch", hint
    return tool(*words, **more)


@functools.cache
def back_end() -> Path:
    """Make a folder for PYTHONPATH that holds this suite's setuptools and nothing else."""
    folder = Path(_scratch().name, "back-end")
    folder.mkdir()
    files = metadata.files("setuptools") or []
    site = Path(str(metadata.distribution("setuptools").locate_file("")))
    for name in {Path(file).parts[0] for file in files} - {"..", "__pycache__"}:
        (folder / name).symlink_to(site / name)
    return folder


@functools.cache
def pythons() -> dict[str, str]:
    """Find one interpreter of each minor version from 3.8 to 3.13 on this machine."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    names = [f"python3.{minor}" for minor in range(8, 14)]
    found = [str(Path(folder, name)) for folder in folders for name in names]
    roots = [os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv")]
    for root in filter(None, roots):
        # A root that this user may not read has none; pathlib would raise.
        found += sorted(glob.glob(f"{root}/versions/3.*/bin/python3"))
    by_version: dict[str, str] = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for python in filter(interpreter.is_executable, found):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        minor = done.stdout.strip()
        if done.returncode == 0 and tuple(map(int, minor.split("."))) >= (3, 8):
            by_version.setdefault(minor, python)
    return by_version


def standalone(prefix: Path) -> Environment:
    """Make a prefix as conda does: an interpreter of its own, no pyvenv.cfg, real site-packages.

    The standard library is links to that of this suite's interpreter.
    """
    base = Path(sys.base_prefix)
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    shutil.copy(executable, prefix / "bin" / own)
    for name in ("python3", "python"):
        (prefix / "bin" / name).symlink_to(own)
    for name in ("dist-packages", "site-packages"):  # a Debian Python looks into the one alone
        (prefix / "lib" / own / name).mkdir(parents=True)
    links = [*base.glob("lib/libpython*"), *base.glob(f"lib/{own}/*")]
    for path in links:
        if path.name not in {"EXTERNALLY-MANAGED", "dist-packages", "site-packages"}:
            (prefix / path.relative_to(base)).symlink_to(path)
    return Environment(folder=prefix)
