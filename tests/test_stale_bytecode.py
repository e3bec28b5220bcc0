"""Old bytecode and new sources, with a real interpreter: which of the two does it run?

For each way in which Python can run what is no longer there, the fault comes first: the source is
put in place by hand, as a tool without our rules does it, and Python is seen to run the old code.
Then `verify` has to say so and to name the file, `apply` has to put it right, and `revert` has to
bring the old code back in the same surroundings. The value is that of one name of `vllm/a.py`; old
and new source are of one size.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scenes
import vllm_patcher
from installers import Environment, run, uv_venv
from vllm_patcher.bytecode import Bytecode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OLD = scenes.FILES["a.py"]
NEW = scenes.changed(OLD, a05="9")
FIX = scenes.patch(a05="9")
LEVELS = pytest.mark.parametrize("level", ["", "-O", "-OO"], ids=["plain", "O", "OO"])
OF_LEVEL = {"": "", "-O": ".opt-1", "-OO": ".opt-2"}
SECOND = 10**9


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def bare(tmp_path: Path, uv_cache: Path) -> Environment:
    """An environment with the stand-in, all of whose files are its own, without bytecode."""
    return uv_venv(tmp_path / "venv", uv_cache).uv_install(uv_cache, "--link-mode=copy")


@pytest.fixture
def fix(tmp_path: Path) -> Path:
    path = tmp_path / "fix.patch"
    path.write_bytes(FIX)
    return path


def value(here: Environment, *options: str, name: str = "a", **environ: str) -> str:
    """What a fresh interpreter runs, as one that writes bytecode where it can."""
    code = f"from vllm import {name}; print({name}.{name}05)"
    env = {**os.environ, **environ}
    return run([here.python, *options, "-c", code], cwd=here.folder, env=env).strip()


def compile_all(here: Environment, *options: str, level: str = "", **environ: str) -> None:
    """Compile the package as many an image build does."""
    given = [level] if level else []
    command = [str(here.python), *given, "-m", "compileall", "-q", *options, str(here.package)]
    run(command, env={**os.environ, **environ})


def compiled(here: Environment, *options: str, level: str = "", **environ: str) -> Path:
    """Compile the package; return the bytecode of `a.py`."""
    compile_all(here, *options, level=level, **environ)
    found = list(here.package.glob(f"__pycache__/a.*{OF_LEVEL[level]}.pyc"))
    (pyc,) = [path for path in found if level or ".opt-" not in path.name]
    return pyc


def by_hand(here: Environment, data: bytes, *, later: int = 0) -> None:
    """Put a source in place with the time that the old one had, or some nanoseconds later."""
    source = here.package / "a.py"
    before = source.stat()
    source.write_bytes(data)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + later))


def verified(here: Environment, fix: Path) -> scenes.Ran:
    return scenes.run("verify", fix, "--site-packages", here.site)


def caught_and_cured(here: Environment, fix: Path, pyc: Path) -> None:
    """`verify` names the bytecode; what it hints at leaves none, and `verify` content."""
    found = verified(here, fix)
    assert found.code == 1
    assert f"error: Python would run old bytecode in place of a patched source\n  {pyc}\n" in (
        found.err
    )
    document = scenes.run("verify", fix, "--site-packages", here.site, "--json").json
    assert document["hiding"] == [str(pyc)]
    assert [error["code"] for error in document["errors"]] == ["stale-bytecode"]
    (hint,) = [line for line in found.err.splitlines() if line.startswith("hint: ")]
    program, *words = shlex.split(hint.removeprefix("hint: "))
    assert program == "vllm-patch"
    cured = scenes.run(*words)
    assert cured.code == 0, cured.out + cured.err
    assert not pyc.exists()
    assert verified(here, fix).code == 0


def apply(here: Environment, fix: Path) -> None:
    ran = scenes.run("apply", fix, "--site-packages", here.site)
    assert ran.code == 0, ran.out + ran.err


def revert(here: Environment) -> None:
    ran = scenes.run("revert", "--site-packages", here.site)
    assert ran.code == 0, ran.out + ran.err
    assert (here.package / "a.py").read_bytes() == OLD


@LEVELS
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--invalidation-mode", "timestamp"), id="by time"),
        pytest.param(("--invalidation-mode", "unchecked-hash"), id="unchecked hash"),
    ],
)
def test_python_runs_what_is_no_longer_there(
    bare: Environment, fix: Path, options: Sequence[str], level: str
) -> None:
    given = (level,) if level else ()
    pyc = compiled(bare, *options, level=level)
    by_hand(bare, NEW)
    assert value(bare, *given) == "5"  # the fault
    caught_and_cured(bare, fix, pyc)
    assert value(bare, *given) == "9"
    # And back, among bytecode of the same kind.
    compiled(bare, "-f", *options, level=level)
    assert value(bare, *given) == "9"
    revert(bare)
    assert value(bare, *given) == "5"
    compiled(bare, "-f", *options, level=level)
    apply(bare, fix)
    assert value(bare, *given) == "9"


def test_the_same_second_is_enough(bare: Environment, fix: Path) -> None:
    """A source that is newer than its bytecode, yet of the same second and size."""
    source = bare.package / "a.py"
    whole = (int(time.time()) - 5) * SECOND
    os.utime(source, ns=(whole, whole))
    pyc = compiled(bare)
    os.utime(pyc, ns=(whole + 1000, whole + 1000))
    by_hand(bare, NEW, later=SECOND // 2)
    assert value(bare) == "5"
    caught_and_cured(bare, fix, pyc)
    assert value(bare) == "9"


def test_another_second_is_enough_for_python(bare: Environment, fix: Path) -> None:
    compiled(bare)
    by_hand(bare, NEW, later=SECOND)
    assert verified(bare, fix).code == 0  # before Python writes it anew
    assert value(bare) == "9"
    assert verified(bare, fix).code == 0


def test_bytecode_that_a_revert_by_hand_left_is_removed_by_revert(
    bare: Environment, fix: Path
) -> None:
    """The other way round: the old source is back, and Python runs the patch."""
    apply(bare, fix)
    pyc = compiled(bare, "--invalidation-mode", "unchecked-hash")
    by_hand(bare, OLD)
    assert value(bare) == "9"
    revert(bare)
    assert not pyc.exists()
    assert value(bare) == "5"


def test_only_what_hides_is_named(bare: Environment, fix: Path) -> None:
    """A copy, and a layer of an image, keep times and are new on their disk: that is no fault."""
    apply(bare, fix)
    pyc = compiled(bare)
    copy = bare.package.with_name("copy")
    shutil.copytree(bare.package, copy)
    shutil.rmtree(bare.package)
    copy.rename(bare.package)
    os.chmod(bare.package / "a.py", 0o640)
    assert (bare.package / "a.py").stat().st_ctime_ns > pyc.stat().st_mtime_ns
    assert value(bare, "-B") == "9"
    assert verified(bare, fix).code == 0


@pytest.mark.parametrize("source_date_epoch", [False, True])
def test_checked_bytecode_needs_no_cure(
    bare: Environment, fix: Path, *, source_date_epoch: bool
) -> None:
    """With SOURCE_DATE_EPOCH set, `compileall` makes this kind by itself."""
    if source_date_epoch:
        pyc = compiled(bare, SOURCE_DATE_EPOCH="315532800")
    else:
        pyc = compiled(bare, "--invalidation-mode", "checked-hash")
    assert pyc.read_bytes()[4:8] == b"\x03\0\0\0"
    by_hand(bare, NEW)
    assert verified(bare, fix).code == 0
    assert value(bare, "-B") == "9"
    assert verified(bare, fix).code == 0
    apply(bare, fix)
    assert value(bare) == "9"
    revert(bare)
    assert value(bare) == "5"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_uv_can_install_bytecode_that_is_never_checked(
    tmp_path: Path, uv_cache: Path, fix: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("PYC_INVALIDATION_MODE", "UNCHECKED_HASH")
    more = ["--link-mode=copy"]
    if by == "option":
        more.append("--compile-bytecode")
    else:
        monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")
    here = uv_venv(tmp_path / "venv", uv_cache).uv_install(uv_cache, *more)
    (pyc,) = here.package.glob("__pycache__/a.*.pyc")
    assert pyc.read_bytes()[4:8] == b"\x01\0\0\0"
    before = bytecodes(here)
    by_hand(here, NEW, later=100 * SECOND)
    assert value(here) == "5"  # whatever the time of the source
    caught_and_cured(here, fix, pyc)
    assert value(here, "-B") == "9"
    revert(here)
    assert value(here, "-B") == "5"
    # Of the bytecode that the user wanted, only that of the patched file has gone.
    assert bytecodes(here) == before - {pyc}


def bytecodes(here: Environment) -> set[Path]:
    return set(here.package.rglob("*.pyc"))


def test_apply_takes_all_levels_and_kinds_away_at_once(bare: Environment, fix: Path) -> None:
    for level, mode in (("", "unchecked-hash"), ("-O", "timestamp"), ("-OO", "unchecked-hash")):
        compiled(bare, "--invalidation-mode", mode, level=level)
    compile_all(bare, "-b")  # and a.pyc beside a.py, which Python does not look at so far
    mine = {path for path in bytecodes(bare) if path.name.startswith("a.")}
    assert len(mine) == 4
    others = bytecodes(bare) - mine
    apply(bare, fix)
    assert bytecodes(bare) == others
    assert [value(bare), value(bare, "-O"), value(bare, "-OO")] == ["9"] * 3


class TestNoSourceAny:
    """A patch that deletes a file has not done so while `b.pyc` is beside it."""

    @pytest.fixture
    def gone(self, tmp_path: Path) -> Path:
        path = tmp_path / "gone.patch"
        path.write_bytes(scenes.diff("b.py", scenes.FILES["b.py"], None))
        return path

    def fails(self, here: Environment) -> bool:
        command = (here.python, "-c", "from vllm import b")
        return "cannot import name 'b'" in run(command, cwd=here.folder, fails=True)

    def test_the_file_beside_it_runs(self, bare: Environment, gone: Path) -> None:
        compile_all(bare, "-b")
        legacy = bare.package / "b.pyc"
        (bare.package / "b.py").unlink()
        assert value(bare, name="b") == "5"  # the fault
        caught_and_cured(bare, gone, legacy)
        assert self.fails(bare)
        revert(bare)
        assert value(bare, name="b") == "5"

    def test_apply_leaves_none(self, bare: Environment, gone: Path) -> None:
        compile_all(bare, "-b", "--invalidation-mode", "unchecked-hash")
        compiled(bare, "--invalidation-mode", "unchecked-hash")
        apply(bare, gone)
        assert self.fails(bare)
        assert not [path for path in bytecodes(bare) if path.name.startswith("b.")]
        revert(bare)
        assert value(bare, name="b") == "5"


def extension() -> Path:
    """An extension module of this interpreter; it need only be one."""
    for folder in ("DESTSHARED", "LIBDEST"):
        for path in sorted(Path(str(sysconfig.get_config_var(folder))).rglob("*.so")):
            return path
    for path in sorted(Path(sysconfig.get_path("platlib")).rglob("*.so")):
        return path
    pytest.skip("this interpreter has no extension module as a file")


class TestShadowed:
    """What Python takes before the source: no patch of the source can help."""

    @pytest.fixture(params=["a.abi3.so", "a.so", "a" + sysconfig.get_config_var("EXT_SUFFIX")])
    def module(self, bare: Environment, request: pytest.FixtureRequest) -> Path:
        path = bare.package / str(request.param)
        shutil.copyfile(extension(), path)
        return path

    def test_by_an_extension_module(self, bare: Environment, fix: Path, module: Path) -> None:
        said = run([bare.python, "-c", "from vllm import a"], cwd=bare.folder, fails=True)
        assert "PyInit_a" in said  # it never came to the source
        self.refused(bare, fix, module)
        by_hand(bare, NEW)
        self.caught(bare, fix, module)
        module.unlink()
        apply(bare, fix)
        assert value(bare) == "9"

    def test_by_a_package(self, bare: Environment, fix: Path) -> None:
        inner = bare.package / "a"
        inner.mkdir()
        (inner / "__init__.py").write_bytes(OLD)
        self.refused(bare, fix, inner)
        by_hand(bare, NEW)
        assert value(bare) == "5"
        self.caught(bare, fix, inner)
        shutil.rmtree(inner)
        apply(bare, fix)
        assert value(bare) == "9"

    def test_a_folder_that_is_no_package_is_not_in_the_way(
        self, bare: Environment, fix: Path
    ) -> None:
        (bare.package / "a").mkdir()
        (bare.package / "a" / "data.json").write_bytes(b"{}")
        apply(bare, fix)
        assert verified(bare, fix).code == 0
        assert value(bare) == "9"

    def test_one_that_comes_later_is_caught_and_keeps_nothing_from_being_reverted(
        self, bare: Environment, fix: Path
    ) -> None:
        apply(bare, fix)
        inner = bare.package / "a"
        inner.mkdir()
        (inner / "__init__.py").write_bytes(OLD)
        self.caught(bare, fix, inner)
        revert(bare)
        assert (inner / "__init__.py").read_bytes() == OLD

    def refused(self, here: Environment, fix: Path, way: Path) -> None:
        before = {path: path.read_bytes() for path in here.site.rglob("*") if path.is_file()}
        ran = scenes.run("apply", fix, "--site-packages", here.site)
        assert ran.code == 3
        said = "error: Python would never read vllm/a.py, which fix changes"
        assert f"{said}\n  {way} is taken before it\n" in ran.err
        after = {path: path.read_bytes() for path in here.site.rglob("*") if path.is_file()}
        assert after == before

    def caught(self, here: Environment, fix: Path, way: Path) -> None:
        ran = verified(here, fix)
        assert ran.code == 1
        assert f"another file is taken before it\n  {way}\n" in ran.err
        assert "hint: remove what is in the way, or reinstall this vLLM\n" in ran.err


class TestTheTimeOfAPatchedSource:
    """Its second is a later one than the old source's, whatever the clock and the variables say."""

    @pytest.fixture
    def source(self, bare: Environment) -> Path:
        return bare.package / "a.py"

    @pytest.mark.parametrize("ahead", [-1000, 0, 3, 10**8], ids=["old", "now", "soon", "far ahead"])
    def test_it_moves(self, bare: Environment, fix: Path, source: Path, ahead: int) -> None:
        # The last moment of a second: Python, which reads a float, sees the next one.
        at = (int(time.time()) + ahead) * SECOND + SECOND - 1
        os.utime(source, ns=(at, at))
        assert int(source.stat().st_mtime) == at // SECOND + 1
        self.rounds(bare, fix, source, [int(source.stat().st_mtime)])

    @pytest.mark.parametrize("epoch", [-5, 0, 5], ids=["below", "equal", "above"])
    def test_it_moves_with_source_date_epoch(
        self,
        bare: Environment,
        fix: Path,
        source: Path,
        monkeypatch: pytest.MonkeyPatch,
        epoch: int,
    ) -> None:
        seconds = [1_700_000_000]
        os.utime(source, (seconds[0], seconds[0]))
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(seconds[0] + epoch))
        self.rounds(bare, fix, source, seconds)
        if epoch > 0:
            assert seconds[1] == seconds[0] + epoch  # the image is built reproducibly
        assert seconds[-1] < 1_700_000_000 + 10

    def rounds(self, here: Environment, fix: Path, source: Path, seconds: list[int]) -> None:
        plain = {"SOURCE_DATE_EPOCH": ""}  # which also changes the kind of bytecode Python writes
        assert value(here, **plain) == "5"
        for wanted in ("9", "5", "9"):
            apply(here, fix) if wanted == "9" else revert(here)
            status = source.stat()
            assert status.st_mtime_ns % SECOND == 0
            seconds.append(int(status.st_mtime))
            assert seconds[-1] > seconds[-2]
            assert value(here, **plain) == wanted
        assert verified(here, fix).code == 0


SERVER = textwrap.dedent("""\
    import os, sys
    for line in sys.stdin:
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            sys.path_importer_cache.clear()
            try:
                from vllm import a
                os.write(into, str(a.a05).encode())
            finally:
                os._exit(0)
        os.close(into)
        print(os.read(out, 100).decode(), flush=True)
        os.close(out)
        os.waitpid(child, 0)
""")


class Interpreter:
    """One process that has imported nothing, and forks for each import: each is a first one."""

    def __init__(self, here: Environment) -> None:
        self._process = subprocess.Popen(
            [here.python, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=here.folder,
            text=True,
        )

    def value(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def interpreter(bare: Environment) -> Iterator[Interpreter]:
    made = Interpreter(bare)
    yield made
    made.close()


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_never_stale_however_quick(
    bare: Environment, interpreter: Interpreter, rounds: int
) -> None:
    """Apply, import, revert, import: each import writes bytecode that the next must not run."""
    text = vllm_patcher.AdHoc(id="fix", text=FIX)
    here = vllm_patcher.Request(patches=(text,), builtin=False, site_packages=str(bare.site))
    cached = bare.package / "__pycache__"
    began = time.time()
    for _ in range(rounds):
        vllm_patcher.apply(here)
        assert interpreter.value() == "9"
        assert list(cached.glob("a.*.pyc"))  # else this would show nothing
        assert vllm_patcher.verify(here).ok
        vllm_patcher.revert(here)
        assert interpreter.value() == "5"
    # It went by seconds of the file, not of the clock.
    assert (bare.package / "a.py").stat().st_mtime >= int(began) + 2 * rounds - 2


def test_without_the_rule_it_is_stale(bare: Environment, interpreter: Interpreter) -> None:
    """What the test above would see of a tool that replaces files and thinks no further."""
    source = bare.package / "a.py"
    whole = int(time.time())
    os.utime(source, (whole, whole))
    assert interpreter.value() == "5"
    other = source.with_name("a.new")
    other.write_bytes(NEW)
    os.utime(other, (whole, whole))
    os.replace(other, source)
    assert interpreter.value() == "5"
    assert Bytecode(str(bare.package)).hiding(["a.py"])


def test_bytecode_of_a_prefix_is_out_of_reach_and_does_no_harm(
    bare: Environment, fix: Path, tmp_path: Path
) -> None:
    """With PYTHONPYCACHEPREFIX the time of the source is all that keeps old code from running."""
    elsewhere = str(tmp_path / "pycache")
    for _ in range(2):
        assert value(bare, PYTHONPYCACHEPREFIX=elsewhere) == "5"
        apply(bare, fix)
        assert value(bare, PYTHONPYCACHEPREFIX=elsewhere) == "9"
        revert(bare)
    assert value(bare, PYTHONPYCACHEPREFIX=elsewhere) == "5"
    assert list(Path(elsewhere).rglob("a.*.pyc"))
    assert not (bare.package / "__pycache__").exists()
