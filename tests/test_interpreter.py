"""Real interpreters are asked, with everything around them that may disturb the answer."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import select
import shutil
import sys
import textwrap
import venv
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fakes import make_install
from installers import pythons
from vllm_patcher import interpreter
from vllm_patcher.errors import NotInstalled


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Make an empty virtual environment of this Python."""
    venv.create(tmp_path / "env", symlinks=True)
    return tmp_path / "env"


def site_of(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("python", pythons().values(), ids=pythons())
def test_every_supported_python_answers(python: str, tmp_path: Path) -> None:
    package = make_install(tmp_path / "site", files={"__init__.py": b"raise SystemExit('ran')\n"})
    environ = {**os.environ, "PYTHONPATH": str(package.parent)}
    answer = interpreter.ask(python, environ=environ)
    assert answer.spec == interpreter.Spec(
        origin=str(package / "__init__.py"),
        locations=(str(package),),
        finder=answer.spec.finder if answer.spec else "",
    )
    assert answer.spec.by_path
    assert str(package.parent) in answer.path
    assert not list(package.rglob("*.pyc"))


def test_the_folder_of_an_environment(environment: Path) -> None:
    package = make_install(site_of(environment), files={})
    answer = interpreter.ask(str(environment))
    assert answer.executable == str(environment / "bin" / "python")
    assert answer.prefix == str(environment)
    assert answer.spec is not None
    assert answer.spec.locations == (str(package),)


def test_an_environment_without_vllm(environment: Path) -> None:
    assert interpreter.ask(str(environment)).spec is None


def test_a_pth_file_may_print_and_lead_elsewhere(environment: Path, tmp_path: Path) -> None:
    package = make_install(tmp_path / "elsewhere", files={})
    noise = r"import sys; sys.stdout.write('vllm-patch-answer {}\nno line end')"
    text = f"{noise}\n{package.parent}\n"
    (site_of(environment) / "noise.pth").write_text(text)
    answer = interpreter.ask(str(environment))
    assert answer.spec is not None
    assert answer.spec.locations == (str(package),)


def test_an_import_hook_is_named(environment: Path, tmp_path: Path) -> None:
    package = make_install(tmp_path / "source", files={})
    site = site_of(environment)
    (site / "hook.pth").write_text("import hook\n")
    (site / "hook.py").write_text(
        textwrap.dedent(f"""
            import sys
            from importlib.util import spec_from_file_location
            class Broken:
                @staticmethod
                def find_spec(name, path=None, target=None):
                    if name == "vllm":
                        raise RuntimeError(name)
            class Finder:
                @classmethod
                def find_spec(cls, name, path=None, target=None):
                    if name == "vllm":
                        return spec_from_file_location(name, {str(package / "__init__.py")!r})
            sys.meta_path[:0] = [Broken(), Finder]
            """)
    )
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    answer = interpreter.ask(str(environment), environ=environ)
    assert not list(site.rglob("*.pyc"))
    assert answer.spec is not None
    assert answer.spec.finder == "hook.Finder"
    assert not answer.spec.by_path
    assert answer.spec.locations == (str(package),)


def test_the_current_folder_is_not_seen(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_install(tmp_path / "here", files={})
    (tmp_path / "here" / "json.py").write_text("raise SystemExit('a json of the current folder')")
    monkeypatch.chdir(tmp_path / "here")
    assert interpreter.ask(str(environment)).spec is None


def test_namespace_zip_and_module(environment: Path, tmp_path: Path) -> None:
    site = site_of(environment)
    (site / "vllm").mkdir()
    spec = interpreter.ask(str(environment)).spec
    assert spec is not None
    assert (spec.origin, spec.locations) == (None, (str(site / "vllm"),))

    with zipfile.ZipFile(tmp_path / "v.zip", "w") as archive:
        archive.writestr("vllm/__init__.py", "")
    (site / "zip.pth").write_text(f"{tmp_path / 'v.zip'}\n")
    spec = interpreter.ask(str(environment)).spec
    assert spec is not None
    assert spec.origin == f"{tmp_path / 'v.zip'}/vllm/__init__.py"

    (site / "zip.pth").unlink()
    (site / "vllm.py").write_text("")
    spec = interpreter.ask(str(environment)).spec
    assert spec is not None
    assert (spec.origin, spec.locations) == (str(site / "vllm.py"), ())


def test_names_that_are_not_utf_8(environment: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    package = make_install(folder, files={})
    answer = interpreter.ask(str(environment), environ={**os.environ, "PYTHONPATH": str(folder)})
    assert answer.spec is not None
    assert answer.spec.locations == (str(package),)


def test_a_name_is_looked_up_on_path(environment: Path) -> None:
    environ = {**os.environ, "PATH": f":{environment}/none:{environment}/bin"}
    assert interpreter.locate("python3", environ=environ) == str(environment / "bin" / "python3")
    with pytest.raises(NotInstalled) as caught:
        interpreter.locate("python9", environ=environ)
    assert caught.value.facts == ("not on PATH",)


def test_the_current_folder_on_path_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "python3", "exit 0\n")
    monkeypatch.chdir(tmp_path)
    assert interpreter.on_path("python3", environ={"PATH": ":"}) == []
    assert interpreter.on_path("python3", environ={}) == []
    found = interpreter.on_path("python3", environ={"PATH": f"{tmp_path}:{tmp_path}"})
    assert found == [str(tmp_path / "python3")]


@pytest.mark.parametrize("made", ["nothing", "an empty folder", "a file", "a link to nothing"])
def test_what_is_no_interpreter(tmp_path: Path, made: str) -> None:
    target = tmp_path / "x"
    if made == "an empty folder":
        target.mkdir()
    elif made == "a file":
        target.write_text("")
    elif made == "a link to nothing":
        target.symlink_to(tmp_path / "gone")
    with pytest.raises(NotInstalled, match="is no Python interpreter") as caught:
        interpreter.ask(str(target))
    assert str(target) in caught.value.facts[0]
    assert caught.value.hint is not None
    assert "--python" in caught.value.hint


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        pytest.param("echo broken >&2; echo worse >&2; exit 3\n", "exit status 3", id="fails"),
        pytest.param("echo hello\n", "exit status 0", id="answers something else"),
    ],
)
def test_an_interpreter_that_does_not_answer(tmp_path: Path, body: str, fact: str) -> None:
    python = script(tmp_path / "python", body)
    with pytest.raises(NotInstalled, match="does not run") as caught:
        interpreter.ask(str(python))
    assert caught.value.facts[0] == fact
    if "worse" in body:
        assert caught.value.facts[1:] == ("worse",)


def test_a_program_that_repeats_what_it_was_given_is_cut_short(tmp_path: Path) -> None:
    python = script(tmp_path / "python", 'printf %s "$*" | tr "\\n" " " >&2; exit 2\n')
    with pytest.raises(NotInstalled) as caught:
        interpreter.ask(str(python))
    assert max(map(len, caught.value.facts)) == 200


def test_an_interpreter_that_can_not_be_executed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_bytes(b"\x7fELF, or not")
    python.chmod(0o755)
    with pytest.raises(NotInstalled, match="does not run"):
        interpreter.ask(str(python))


def test_an_interpreter_that_hangs(tmp_path: Path) -> None:
    python = script(tmp_path / "python", "exec sleep 60\n")
    with pytest.raises(NotInstalled) as caught:
        interpreter.ask(str(python), timeout=0.2)
    assert caught.value.facts == ("no answer after 0.2 seconds",)


def test_a_hanging_interpreter_goes_with_all_that_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    line = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    body = f"(echo here; exec sleep 600) > {tmp_path}/pipe &\nwait\n"
    try:
        with pytest.raises(NotInstalled, match="does not run"):
            interpreter.ask(str(script(tmp_path / "python", body)), timeout=2)
        assert os.read(line, 100) == b"here\n"
        watch = select.poll()
        watch.register(line, select.POLLIN)
        # The line is cut when the child ends; half a minute is for a child that never does.
        assert watch.poll(30_000) == [(line, select.POLLHUP)]
    finally:
        os.close(line)


def test_a_shim_is_seen_through(environment: Path, tmp_path: Path) -> None:
    shim = script(tmp_path / "bin" / "python3", f'exec "{environment}/bin/python" "$@"\n')
    assert interpreter.ask(str(shim)).executable == str(environment / "bin" / "python")


def test_site_folders(tmp_path: Path) -> None:
    wanted = [
        tmp_path / "lib" / "python3.11" / "site-packages",
        tmp_path / "lib" / "python3.12" / "dist-packages",
        tmp_path / "lib64" / "python3.12" / "site-packages",
    ]
    for folder in [*wanted, tmp_path / "lib" / "ruby" / "site-packages"]:
        folder.mkdir(parents=True)
    (tmp_path / "lib" / "python3.9").write_text("a file")
    assert interpreter.site_folders(str(tmp_path)) == [str(folder) for folder in wanted]
    assert interpreter.site_folders(str(tmp_path / "none")) == []


def own_with(monkeypatch: pytest.MonkeyPatch, *entries: str) -> interpreter.Answer:
    rest = [entry for entry in sys.path if not Path(entry, "vllm").exists()]
    monkeypatch.setattr(sys, "path", [*entries, *rest])
    return interpreter.own()


def test_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_install(tmp_path, files={"__init__.py": b"raise SystemExit('ran')\n"})
    answer = own_with(monkeypatch, str(tmp_path))
    assert answer.spec is not None
    assert answer.spec.locations == (str(package),)
    assert answer.spec.by_path
    assert answer.executable == sys.executable
    assert "vllm" not in sys.modules


def test_own_empty_entry_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_install(tmp_path, files={})
    monkeypatch.chdir(tmp_path)
    assert own_with(monkeypatch, "").spec is None


@pytest.mark.parametrize(
    ("spec", "safe", "found"),
    [
        pytest.param("set", False, False, id="python -m"),
        pytest.param(None, False, True, id="a console script, with the folder on PYTHONPATH"),
        pytest.param("set", True, True, id="python -P -m, with the folder on PYTHONPATH"),
    ],
)
def test_own_current_folder_counts_unless_dash_m_put_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, spec: str | None, safe: bool, found: bool
) -> None:
    make_install(tmp_path, files={})
    monkeypatch.chdir(tmp_path)
    main = ModuleType("__main__")
    main.__spec__ = importlib.machinery.ModuleSpec("x.__main__", None) if spec else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "flags", SimpleNamespace(safe_path=safe))
    assert (own_with(monkeypatch, str(tmp_path)).spec is not None) is found


def test_dash_m_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_install(tmp_path / "site", files={})
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)
    try:
        answer = own_with(monkeypatch, str(package.parent))
    finally:
        monkeypatch.undo()
    assert answer.spec is not None


def test_own_skips_a_finder_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            raise RuntimeError(name, path, target)

    make_install(tmp_path, files={})
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    answer = own_with(monkeypatch, str(tmp_path))
    assert answer.spec is not None
    assert answer.spec.by_path


def test_own_asks_a_hook_for_a_top_level_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hook:
        @classmethod
        def find_spec(
            cls, name: str, path: object = None, target: object = None
        ) -> importlib.machinery.ModuleSpec | None:
            del target
            if name != "vllm" or path is not None:
                return None
            origin = str(tmp_path / "vllm" / "__init__.py")
            return importlib.util.spec_from_file_location(name, origin)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    answer = own_with(monkeypatch)
    assert answer.spec is not None
    assert answer.spec.finder.endswith(".Hook")
    assert answer.spec.locations == (str(tmp_path / "vllm"),)
