"""The tool, in an environment of its own, works on the vLLM of another interpreter."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import conftest
import installers
import scenes
from installers import FINISH, FIXED, LEAK, MEND, contents, mending, pythons, runs, states, wheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from installers import Environment

ROOT = Path(__file__).resolve().parent.parent
ALL = mending()[1:]
"""The catalog that an interpreter can show, beside the built-in one."""


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


TARGETS = {
    version: python for version, python in pythons().items() if (3, 9) <= number(version) <= (3, 13)
}
VERSIONS: list[str] = sorted(TARGETS, key=number)


def clean(**variables: str | Path) -> dict[str, str]:
    """The variables of a shell in which nothing is active and nobody helps the tool."""
    kept = {name: value for name, value in os.environ.items() if name not in conftest._MEDDLING}
    return {**kept, **{name: str(value) for name, value in variables.items()}}


def ran(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> scenes.Ran:
    """Run a command as from a shell."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean() if env is None else dict(env),
        cwd=cwd,
    )
    return scenes.Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


@pytest.fixture
def own(tmp_path: Path) -> Environment:
    """An environment with the tool's console script; its packages are those of this suite."""
    made = installers.venv(tmp_path / "own")
    code = "import click; print(__import__('os').path.dirname(click.__path__[0]))"
    site = installers.run([sys.executable, "-c", code]).strip()
    (made.site / "tool.pth").write_text(f"{scenes.SRC}\n{site}\n")
    script = script_of(made)
    script.write_text(f"#!{made.python}\nfrom vllm_patcher.__main__ import main\nmain()\n")
    script.chmod(0o755)
    return made


def script_of(made: Environment) -> Path:
    return made.folder / "bin" / "vllm-patch"


def is_mended(made: Environment, package: Path | None = None) -> bool:
    """Let the environment's interpreter say whether it runs the patched code."""
    path, value = runs(made.python, cwd=made.folder)
    assert path == (package or made.package) / "a.py"
    assert value in {"mended", "5"}
    return value == "mended"


def activated(made: Environment, *command: str | Path, **more: str) -> scenes.Ran:
    """Run a command in a shell that has activated the environment."""
    script = '. "$1" && shift && exec "$@"'
    activate = made.folder / "bin" / "activate"
    return ran(["sh", "-c", script, "sh", activate, *command], env=clean(**more))


# Which one


@pytest.mark.parametrize("inside", ["bin/python", "bin/python3", "."])
def test_one_that_is_named(own: Environment, tmp_path: Path, inside: str) -> None:
    made = installers.venv(tmp_path / "env").install()
    at = ("--python", made.folder / inside)
    tool = script_of(own)
    assert ran([tool, "apply", *ALL, *at]).code == 0
    assert is_mended(made)
    assert states(ran([tool, "verify", "--probe", "--json", *ALL, *at])) == {
        **FIXED,
        MEND: "applied",
    }
    assert ran([tool, "revert", *at]).code == 0
    assert not is_mended(made)


def test_the_active_one(own: Environment, tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    tool = script_of(own)
    where = activated(made, tool, "where", "--json").json["install"]
    assert (where["found_by"], where["python"]) == ("VIRTUAL_ENV", str(made.python))
    assert activated(made, tool, "apply", *ALL).code == 0
    assert is_mended(made)
    assert activated(made, tool, "verify", "--probe").code == 0


def test_the_active_one_of_uv(own: Environment, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = installers.uv_venv(tmp_path / "env", cache).uv_install(cache)
    assert activated(made, script_of(own), "apply", *ALL).code == 0
    assert is_mended(made)


def test_the_active_one_of_conda(own: Environment, tmp_path: Path) -> None:
    made = installers.standalone(tmp_path / "conda")
    code = "import site, sys; print(sys.prefix, sys.base_prefix, *site.getsitepackages())"
    prefix, base, *sites = installers.run([made.python, "-c", code]).split()
    assert prefix == base == str(made.folder)
    (site,) = filter(Path.is_dir, map(Path, sites))
    made.pip("install", "--no-deps", "--no-index", "--target", site, wheel())
    package = site / "vllm"
    env = clean(CONDA_PREFIX=made.folder, PATH=f"{made.folder}/bin:{os.environ['PATH']}")
    tool = script_of(own)
    where = ran([tool, "where", "--json"], env=env).json["install"]
    assert (where["found_by"], where["package"]) == ("CONDA_PREFIX", str(package))
    assert ran([tool, "apply", *ALL], env=env).code == 0
    assert is_mended(made, package)
    assert ran([tool, "revert"], env=env).code == 0
    assert not is_mended(made, package)


@pytest.mark.parametrize("name", ["python3", "python"])
def test_the_only_one_on_path(own: Environment, tmp_path: Path, name: str) -> None:
    made = installers.venv(tmp_path / "env").install()
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin" / name
    launcher.write_text(f'#!/bin/sh\nexec {made.python} "$@"\n')
    launcher.chmod(0o755)
    env = clean(PATH=f"{own.folder}/bin:{tmp_path}/bin")
    tool = script_of(own)
    where = ran([tool, "where", "--json"], env=env).json["install"]
    assert (where["found_by"], where["python"]) == (f"{name} on PATH", str(made.python))
    assert ran([tool, "apply", *ALL], env=env).code == 0
    assert is_mended(made)


def test_an_active_own_one_without_vllm_means_no_other(own: Environment, tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    tool = script_of(own)
    refused = activated(own, tool, "apply", PATH=f"{made.folder}/bin:{os.environ['PATH']}")
    assert refused.code == 3
    assert f"no vllm on the path of {own.python}" in refused.err
    assert ran([tool, "verify", "--python", made.python]).code == 1


def test_different_ones_are_refused_and_each_option_chooses(
    own: Environment, tmp_path: Path
) -> None:
    own.install("0.10.2")
    made = installers.venv(tmp_path / "my env").install()
    tool = script_of(own)
    for verb in ("apply", "verify", "where"):
        refused = activated(made, tool, verb)
        assert (refused.code, refused.out) == (3, "")
        quoted = shlex.quote(str(made.python))
        assert refused.err.splitlines()[:3] == [
            "error: 2 different vLLMs were found, and one must be chosen",
            f"  {own.package}  0.10.2 (this interpreter): --python {own.python}",
            f"  {made.package}  0.11.0 (VIRTUAL_ENV): --python {quoted}",
        ]
    refused = activated(made, tool, "apply", *ALL)
    for line, chosen in zip(refused.err.splitlines()[1:3], (own, made), strict=True):
        option = shlex.split(line.rpartition(": ")[2])
        assert activated(made, tool, "apply", *ALL, *option).code == 0
        assert is_mended(chosen)
        assert activated(made, tool, "revert", *option).code == 0
    (hint,) = (line for line in refused.err.splitlines() if line.startswith("hint: "))
    words = shlex.split(hint.removeprefix("hint: vllm-patch "))
    assert activated(made, tool, *words).code == 0
    assert [is_mended(own), is_mended(made)] == [True, False]


def test_one_that_is_reached_in_two_ways_is_one(own: Environment, tmp_path: Path) -> None:
    own.install()
    alias = tmp_path / "alias"
    alias.symlink_to(own.folder)
    env = clean(VIRTUAL_ENV=alias, CONDA_PREFIX=own.folder)
    assert ran([script_of(own), "apply", *ALL], env=env).code == 0
    assert is_mended(own)


# Several


def test_several_in_turn_with_the_worst_exit_code(own: Environment, tmp_path: Path) -> None:
    first, second = (installers.venv(tmp_path / name).install() for name in ("first", "second"))
    none = installers.venv(tmp_path / "none")
    tool = script_of(own)

    def asked(verb: str, *made: Environment) -> scenes.Ran:
        at = [word for one in made for word in ("--python", one.python)]
        return ran([tool, verb, *ALL, "--json", *at])

    def packages(said: scenes.Ran) -> list[str | None]:
        return [json.get("install", {}).get("package") for json in documents(said)]

    assert asked("apply", second).code == 0
    for order in ((first, second), (second, first)):
        said = asked("verify", *order)
        assert said.code == 1
        assert packages(said) == [str(made.package) for made in order]
        assert [json["ok"] for json in documents(said)] == [made is second for made in order]
    said = asked("verify", second, none, first)
    assert said.code == 3
    assert packages(said) == [str(second.package), None, str(first.package)]
    said = asked("apply", none, first)
    assert said.code == 3
    assert is_mended(first)
    assert asked("verify", first, second).code == 0
    assert asked("revert", first, second).code == 0
    assert [is_mended(first), is_mended(second)] == [False, False]


def documents(said: scenes.Ran) -> list[dict[str, Any]]:
    """The JSON of each install, in order."""
    return [scenes.Ran(code=0, out=line, err="").json for line in said.out.splitlines()]


# Every version of Python


def test_enough_versions_are_tried() -> None:
    missing = {f"3.{minor}" for minor in range(9, 14)} - TARGETS.keys()
    if len(TARGETS) >= 3:
        return
    if os.environ.get(conftest.REQUIRE_ALL):
        pytest.fail(f"not found, and three are needed: {', '.join(sorted(missing))}")
    pytest.skip(f"not found: {', '.join(sorted(missing))}")


def installed_by_its_own_pip(made: Environment) -> None:
    """Install the stand-in with the pip that this version of Python ships."""
    code = "import ensurepip; print(ensurepip.__file__)"
    file = Path(installers.run([made.python, "-c", code]).strip())
    (shipped,) = file.parent.glob("_bundled/pip-*.whl")
    words = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", wheel())
    installers.run([made.python, *words], env=clean(PYTHONPATH=shipped))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_target_of_each_version(own: Environment, tmp_path: Path, version: str) -> None:
    made = installers.venv(tmp_path / "env", python=TARGETS[version])
    assert made.site.parent.name == f"python{version}"
    try:
        installed_by_its_own_pip(made)
    except (AssertionError, ValueError):  # Debian's has none beside it
        made.install()
    assert not is_mended(made)
    before = contents(made.site)
    at = ("--python", made.python)
    tool = script_of(own)
    probed = ran([tool, "verify", "--probe", "--json", *ALL, *at])
    assert (probed.code, probes(probed)) == (1, {FINISH: "present", LEAK: "present"})

    applied = ran([tool, "apply", "--json", *ALL, *at])
    assert (applied.code, applied.json["install"]["python"]) == (0, str(made.python))
    assert is_mended(made)
    probed = ran([tool, "verify", "--probe", "--json", *ALL, *at])
    assert (probed.code, probes(probed)) == (0, {FINISH: "absent", LEAK: "absent"})

    assert ran([tool, "revert", *at]).code == 0
    assert contents(made.site) == before
    assert not is_mended(made)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_hides_a_source_is_asked_of_the_python_that_serves(
    own: Environment, tmp_path: Path, version: str
) -> None:
    """How old bytecode is shows nothing: a source may come with its times from elsewhere."""
    made = installers.venv(tmp_path / "env", python=TARGETS[version]).install()
    source = made.package / "a.py"
    verify: list[str | Path] = [script_of(own), "verify", *mending(), "--python", made.python]
    compiling = ("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", source)
    assert ran([made.python, *compiling]).code == 0
    (pyc,) = (made.package / "__pycache__").glob("a.*.pyc")
    times = source.stat().st_mtime_ns
    source.write_bytes(scenes.changed(source.read_bytes(), a05='"mended"'))
    os.utime(source, ns=(times, times))
    os.utime(pyc, ns=(times + 10**9, times + 10**9))
    assert not is_mended(made)
    said = ran(verify)
    assert (said.code, str(pyc) in said.err) == (1, True)
    # Made of what is there now, it hides nothing.
    assert ran([made.python, *compiling]).code == 0
    os.utime(pyc, ns=(times - 10**9, times - 10**9))
    assert is_mended(made)
    assert ran(verify).code == 0


def probes(said: scenes.Ran) -> dict[str, str]:
    """What the probes of a run saw."""
    return {
        patch["id"]: patch["probe"]["fault"] for patch in said.json["patches"] if patch["probe"]
    }


# One that does not run


@pytest.mark.parametrize("left", ["nothing", "what can't be run"])
def test_one_whose_base_is_gone(own: Environment, tmp_path: Path, left: str) -> None:
    base = installers.standalone(tmp_path / "base")
    made = installers.venv(tmp_path / "env", python=base.python).install()
    before = contents(made.site)
    assert not is_mended(made)
    executable, kept = base.python.resolve(), tmp_path / "kept"

    def take_away() -> None:
        executable.rename(kept)
        if left != "nothing":
            executable.write_bytes(b"\x7fELF of another machine")
            executable.chmod(0o755)

    take_away()

    tool = script_of(own)
    note = f"{made.folder} was searched, .pth files were not seen"
    ways: list[tuple[list[str | Path], dict[str, str]]] = [
        (["--python", made.folder], clean()),
        (["--python", made.python], clean()),
        ([], clean(VIRTUAL_ENV=made.folder)),
    ]
    what = "is no" if left == "nothing" else "does not run as a"
    for at, env in ways:
        where = ran([tool, "where", "--json", *at], env=env)
        assert where.code == 0
        assert (where.json["install"]["package"], where.json["install"]["python"]) == (
            str(made.package),
            None,
        )
        assert where.json["install"]["others"] == []
        assert note in where.json["notes"][0]
        assert f"{what} Python interpreter" in where.json["notes"][0]

        applied = ran([tool, "apply", *ALL, *at], env=env)
        assert applied.code == 0
        assert applied.err.startswith("note: ")
        assert note in applied.err
        applied = ran([tool, "verify", "--json", *ALL, *at], env=env)
        assert states(applied) == {**FIXED, MEND: "applied"}
        assert note in applied.json["notes"][0]

        kept.replace(executable)
        assert is_mended(made)
        take_away()
        assert ran([tool, "revert", *at], env=env).code == 0
        assert contents(made.site) == before


# Installed by real runners of tools


@functools.cache
def own_wheel() -> Path:
    """Build this project's wheel, once in a process."""
    folder = Path(installers._scratch().name, "tool")
    installers.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT])
    (built,) = folder.glob("*.whl")
    return built


def pipx(folder: Path) -> Path:
    """Give the machine's pipx, or one of the index."""
    found = shutil.which("pipx")
    if found:
        return Path(found)
    made = installers.venv(folder / "pipx")
    made.pip("install", "--quiet", "pipx")
    return made.folder / "bin" / "pipx"


def uv(folder: Path) -> tuple[Path, dict[str, str]]:
    """Give uv, and variables that keep all it makes in a folder."""
    from uv import find_uv_bin

    return Path(find_uv_bin()), clean(
        UV_CACHE_DIR=folder / "cache",
        UV_TOOL_DIR=folder / "tools",
        UV_TOOL_BIN_DIR=folder / "bin",
        UV_PYTHON_DOWNLOADS="never",
    )


def work(tool: Sequence[str | Path], made: Environment, env: Mapping[str, str]) -> None:
    """Let an installed tool go through its story on an environment, named and then active."""
    active = {**env, "VIRTUAL_ENV": str(made.folder)}
    on_path = {**env, "PATH": f"{made.folder}/bin:{env['PATH']}"}
    for at, shell, found_by in (
        (("--python", made.folder), env, f"--python {made.folder}"),
        ((), active, "VIRTUAL_ENV"),
        ((), on_path, "python3 on PATH"),
    ):
        where = ran([*tool, "where", "--json", *at], env=shell)
        assert where.code == 0, where.err
        assert where.json["install"]["found_by"] == found_by
        # The wheel has the whole catalog, the stand-in the file of two of its patches.
        named = (*ALL, FINISH, LEAK, MEND)
        assert ran([*tool, "verify", *named, *at], env=shell).code == 1
        assert ran([*tool, "apply", *named, *at], env=shell).code == 0
        assert is_mended(made)
        verified = ran([*tool, "verify", "--probe", "--json", *named, *at], env=shell)
        assert states(verified) == {**FIXED, MEND: "applied"}
        assert ran([*tool, "revert", *at], env=shell).code == 0
        assert not is_mended(made)


@pytest.mark.slow
def test_pipx_install(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    env = clean(PIPX_HOME=tmp_path / "pipx-home", PIPX_BIN_DIR=tmp_path / "bin")
    command = (pipx(tmp_path), "install", "--python", sys.executable, own_wheel())
    installers.run(command, env=env)
    work([tmp_path / "bin" / "vllm-patch"], made, env)
    assert ran([tmp_path / "bin" / "vllm-patcher", "--version"], env=env).code == 0


@pytest.mark.slow
def test_pipx_run(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    env = clean(PIPX_HOME=tmp_path / "pipx-home", PIPX_BIN_DIR=tmp_path / "bin")
    options = ("--python", sys.executable, "--spec", own_wheel())
    work([pipx(tmp_path), "run", *options, "vllm-patcher"], made, env)


@pytest.mark.slow
def test_uv_tool_install(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    program, env = uv(tmp_path)
    installers.run(
        [program, "tool", "install", "--quiet", "--python", sys.executable, own_wheel()], env=env
    )
    work([tmp_path / "bin" / "vllm-patch"], made, env)
    assert ran([tmp_path / "bin" / "vllm-patcher", "--version"], env=env).code == 0


@pytest.mark.slow
def test_uvx(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    program, env = uv(tmp_path)
    options = ("--quiet", "--python", sys.executable, "--from", own_wheel())
    work([program, "tool", "run", *options, "vllm-patcher"], made, env)
    assert ran([program, "tool", "run", *options, "vllm-patch", "--version"], env=env).code == 0
