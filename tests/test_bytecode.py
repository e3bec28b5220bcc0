"""Which compiled files hide a source: told from headers, and as Python itself does it."""

from __future__ import annotations

import _imp
import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode as Mode

import pytest

from vllm_patcher.bytecode import Bytecode

OLD, NEW = b"VALUE = 'old'\n", b"VALUE = 'new'\n"
FOREIGN = b"\x61\x0d\x0d\x0a"  # CPython 3.9
SECOND = 10**9


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "vllm"
    (folder / "v1").mkdir(parents=True)
    (folder / "__init__.py").write_bytes(b"")
    (folder / "v1" / "__init__.py").write_bytes(b"")
    return folder


def swap(package: Path, *, mode: Mode, mtime: int = 0, data: bytes = NEW) -> Path:
    """Compile the old source, put a new one in its place and return the compiled file."""
    source = package / "v1" / "stats.py"
    source.write_bytes(OLD)
    pyc = Path(py_compile.compile(str(source), doraise=True, invalidation_mode=mode) or "")
    before = source.stat()
    source.write_bytes(data)
    os.utime(source, ns=(before.st_mtime_ns, before.st_mtime_ns + mtime))
    return pyc


def age(pyc: Path, *, seconds: float) -> None:
    """Set how much older than the source a compiled file is."""
    at = (package_source(pyc)).stat().st_mtime_ns - int(seconds * SECOND)
    os.utime(pyc, ns=(at, at))


def package_source(pyc: Path) -> Path:
    return pyc.parent.parent / "stats.py"


def value(package: Path) -> str:
    """Import the module in a fresh Python and say which source it ran."""
    code = "import vllm.v1.stats as m; print(m.VALUE)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def hiding(package: Path) -> list[Path]:
    return [Path(path) for path in Bytecode(str(package)).hiding(["v1/stats.py"])]


def test_by_time_with_the_same_second_and_size(package: Path) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP)
    age(pyc, seconds=0.001)
    assert hiding(package) == [pyc]
    assert value(package) == "old"


def test_by_time_and_made_after_the_source(package: Path) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP, data=OLD)
    age(pyc, seconds=-1)
    assert hiding(package) == []
    age(pyc, seconds=0)
    assert hiding(package) == []


def test_a_source_dated_a_second_ahead_and_compiled_at_once(package: Path) -> None:
    """A source written just now may bear the next second; what is compiled from it is fresh."""
    source = package / "v1" / "stats.py"
    source.write_bytes(NEW)
    ahead = (int(source.stat().st_mtime) + 2) * SECOND
    os.utime(source, ns=(ahead, ahead))
    py_compile.compile(str(source), doraise=True, invalidation_mode=Mode.TIMESTAMP)
    assert hiding(package) == []
    assert value(package) == "new"


def test_by_time_with_another_second(package: Path) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP, mtime=SECOND)
    age(pyc, seconds=5)
    assert hiding(package) == []
    assert value(package) == "new"


def test_by_time_with_another_size(package: Path) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP, data=NEW + b"\n")
    age(pyc, seconds=5)
    assert hiding(package) == []
    assert value(package) == "new"


def test_unchecked_hash_of_another_source(package: Path) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH, mtime=5 * SECOND)
    assert hiding(package) == [pyc]
    assert value(package) == "old"
    age(pyc, seconds=-100)  # its own age does not matter where the hash can be computed
    assert hiding(package) == [pyc]


def test_unchecked_hash_of_this_source(package: Path) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH, data=OLD)
    age(pyc, seconds=5)
    assert hiding(package) == []


def test_unchecked_hash_of_another_python_is_judged_by_age(package: Path) -> None:
    own = swap(package, mode=Mode.UNCHECKED_HASH)
    pyc = own.with_name("stats.cpython-39.opt-1.pyc")
    pyc.write_bytes(FOREIGN + own.read_bytes()[4:])
    own.unlink()
    age(pyc, seconds=1)
    assert hiding(package) == [pyc]
    age(pyc, seconds=0)
    assert hiding(package) == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 hashes by another rule than 3.12")
def test_unchecked_hash_of_another_python_that_hashes_as_this_one(package: Path) -> None:
    """Its age does not matter: the hash tells, with the magic number of that Python as its key."""
    magic = (3531).to_bytes(2, "little") + b"\r\n"  # of 3.12
    own = swap(package, mode=Mode.UNCHECKED_HASH)
    pyc = own.with_name("stats.cpython-312.pyc")
    own.unlink()
    source = (package / "v1" / "stats.py").read_bytes()
    for data, stale in ((source, False), (source + b"# old", True)):
        digest = _imp.source_hash(int.from_bytes(magic, "little"), data)
        pyc.write_bytes(magic + (1).to_bytes(4, "little") + digest)
        age(pyc, seconds=-100)
        assert hiding(package) == ([pyc] if stale else [])


def test_checked_hash_never_hides(package: Path) -> None:
    pyc = swap(package, mode=Mode.CHECKED_HASH)
    age(pyc, seconds=5)
    assert hiding(package) == []
    assert value(package) == "new"


@pytest.mark.parametrize("length", [0, 4, 15])
def test_a_short_file_hides_nothing(package: Path, length: int) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH)
    pyc.write_bytes(pyc.read_bytes()[:length])
    assert hiding(package) == []


def test_an_unreadable_file_hides_nothing(package: Path) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH)
    pyc.unlink()
    pyc.mkdir()
    assert hiding(package) == []


def test_what_is_no_file_hides_nothing_and_is_not_waited_for(package: Path) -> None:
    (package / "v1" / "stats.py").write_bytes(NEW)
    cache = package / "v1" / "__pycache__"
    cache.mkdir()
    os.mkfifo(cache / "stats.cpython-311.pyc")
    assert hiding(package) == []


def test_a_file_beside_the_source_hides_only_its_absence(package: Path) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH)
    legacy = package / "v1" / "stats.pyc"
    legacy.write_bytes(pyc.read_bytes())
    pyc.unlink()
    assert hiding(package) == []
    assert value(package) == "new"
    (package / "v1" / "stats.py").unlink()
    assert hiding(package) == [legacy]
    assert value(package) == "old"
    legacy.write_bytes(b"")
    assert hiding(package) == []


def test_the_cache_of_an_absent_source_hides_nothing(package: Path) -> None:
    swap(package, mode=Mode.UNCHECKED_HASH)
    (package / "v1" / "stats.py").unlink()
    assert hiding(package) == []


def test_compiled_gives_every_tag_and_level_and_no_other_module(package: Path) -> None:
    cache = package / "v1" / "__pycache__"
    cache.mkdir()
    mine = [
        "stats.cpython-310.opt-1.pyc",
        "stats.cpython-310.pyc",
        "stats.cpython-312.opt-2.pyc",
        "stats.pypy39.pyc",
    ]
    for name in [*mine, "statsd.cpython-310.pyc", "stats.cpython-310.pyc.140", "stats.txt"]:
        (cache / name).write_bytes(b"")
    (package / "v1" / "stats.pyc").write_bytes(b"")
    assert Bytecode(str(package)).compiled("v1/stats.py") == (
        *(f"v1/__pycache__/{name}" for name in mine),
        "v1/stats.pyc",
    )
    assert Bytecode(str(package)).compiled("v1/none.py") == ()


def test_compiled_at_the_top_of_the_package(package: Path) -> None:
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"")
    found = Bytecode(str(package)).compiled("__init__.py")
    assert found == ("__pycache__/__init__.cpython-311.pyc",)


@pytest.mark.parametrize(
    "name",
    [
        "stats.so",
        "stats.abi3.so",
        "stats.cpython-312-x86_64-linux-gnu.so",
        "stats.pypy310-pp73-darwin.so",
    ],
)
def test_an_extension_module_shadows(package: Path, name: str) -> None:
    (package / "v1" / name).write_bytes(b"")
    assert Bytecode(str(package)).shadowing("v1/stats.py") == (str(package / "v1" / name),)


@pytest.mark.parametrize("name", ["stats.py.so", "stats.data.so", "statsd.so", "stats.abi3.so.bak"])
def test_what_is_no_extension_module_of_that_name(package: Path, name: str) -> None:
    (package / "v1" / name).write_bytes(b"")
    assert Bytecode(str(package)).shadowing("v1/stats.py") == ()


@pytest.mark.parametrize("init", ["__init__.py", "__init__.pyc", "__init__.abi3.so"])
def test_a_package_shadows(package: Path, init: str) -> None:
    inner = package / "v1" / "stats"
    inner.mkdir()
    assert Bytecode(str(package)).shadowing("v1/stats.py") == ()  # so far a namespace
    (inner / init).write_bytes(b"")
    assert Bytecode(str(package)).shadowing("v1/stats.py") == (str(inner),)


def test_an_extension_module_shadows_the_init_of_a_package(package: Path) -> None:
    (package / "v1" / "__init__.abi3.so").write_bytes(b"")
    (package / "v1.so").write_bytes(b"")  # Python takes the folder first
    (package / "v1" / "__init__").mkdir()  # and never looks for the init of an init
    (package / "v1" / "__init__" / "__init__.py").write_bytes(b"")
    found = Bytecode(str(package)).shadowing("v1/__init__.py")
    assert found == (str(package / "v1" / "__init__.abi3.so"),)


def test_python_agrees_that_a_package_shadows_and_a_namespace_does_not(package: Path) -> None:
    (package / "v1" / "stats.py").write_bytes(NEW)
    (package / "v1" / "stats").mkdir()
    assert value(package) == "new"
    (package / "v1" / "stats" / "__init__.py").write_bytes(OLD)
    assert value(package) == "old"


def test_only_python_files_have_answers(package: Path) -> None:
    (package / "v1" / "stats.json").write_bytes(b"")
    (package / "v1" / "stats.so").write_bytes(b"")
    bytecode = Bytecode(str(package))
    assert bytecode.hiding(["v1/stats.json"]) == ()
    for look in (bytecode.compiled, bytecode.shadowing):
        assert look("v1/stats.json") == ()


def test_the_magic_number_is_where_the_header_says(package: Path) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH)
    assert pyc.read_bytes()[:4] == importlib.util.MAGIC_NUMBER


def copied(package: Path) -> None:
    """Give all files of the package a new life on this disk, with their old times."""
    source = package / "v1" / "stats.py"
    os.utime(source, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))


def test_by_time_with_a_time_that_was_put_back(package: Path) -> None:
    """The time of the last change can't be put back: it tells that there may be something."""
    pyc = swap(package, mode=Mode.TIMESTAMP)
    assert hiding(package) == [pyc]
    assert value(package) == "old"
    # Whoever makes bytecode later than that time has made it of what is there now.
    age(pyc, seconds=-5)
    assert hiding(package) == []


def test_bytecode_made_without_columns_is_no_other_code(package: Path) -> None:
    source = package / "v1" / "stats.py"
    source.write_bytes(b"def f():\n    return [g(x) for x in y]\n")
    command = [sys.executable, "-X", "no_debug_ranges", "-m", "compileall", "-q", str(source)]
    subprocess.run(command, check=True)
    copied(package)
    assert hiding(package) == []


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_copy_of_source_and_bytecode_hides_nothing(package: Path, level: int) -> None:
    source = package / "v1" / "stats.py"
    source.write_bytes(b'"""Words."""\nassert True\n' + NEW)
    ahead = (int(source.stat().st_mtime) + 1) * SECOND
    os.utime(source, ns=(ahead, ahead))
    elsewhere = "/built/elsewhere/stats.py"
    py_compile.compile(str(source), dfile=elsewhere, doraise=True, optimize=level)
    copied(package)
    assert hiding(package) == []
    source.write_bytes(b'"""Words."""\nassert True\n' + OLD)
    os.utime(source, ns=(ahead, ahead))
    assert [path.name.count(".opt-") for path in hiding(package)] == [int(level > 0)]


@pytest.mark.parametrize("spoilt", [b"", b"?", b"\xe9\0\0\0\0"])
def test_by_time_with_what_is_no_code(package: Path, spoilt: bytes) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP)
    pyc.write_bytes(pyc.read_bytes()[:16] + spoilt)
    age(pyc, seconds=0)
    assert hiding(package) == [pyc]


def test_by_time_of_another_python_is_judged_by_age(package: Path) -> None:
    pyc = swap(package, mode=Mode.TIMESTAMP)
    source = package_source(pyc)
    second = int(source.stat().st_mtime) - 10
    data = pyc.read_bytes()
    pyc.write_bytes(FOREIGN + data[4:8] + second.to_bytes(4, "little") + data[12:])
    middle, whole = second * SECOND + SECOND // 2, second * SECOND
    os.utime(source, ns=(middle, middle))
    age(pyc, seconds=0.001)
    assert hiding(package) == [pyc]
    age(pyc, seconds=0)
    assert hiding(package) == []
    # A source that was dated may have been written up to a second before its date.
    os.utime(source, ns=(whole, whole))
    age(pyc, seconds=0.9)
    assert hiding(package) == []


def test_a_source_of_a_whole_second_and_older_unchecked_bytecode_of_another_python(
    package: Path,
) -> None:
    pyc = swap(package, mode=Mode.UNCHECKED_HASH)
    pyc.write_bytes(FOREIGN + pyc.read_bytes()[4:])
    whole = int(package_source(pyc).stat().st_mtime) * SECOND
    os.utime(package_source(pyc), ns=(whole, whole))
    age(pyc, seconds=0.9)
    assert hiding(package) == []
    age(pyc, seconds=1.1)
    assert hiding(package) == [pyc]
