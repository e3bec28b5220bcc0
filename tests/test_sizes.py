"""Big diffs and big files: memory and work grow in proportion. `make bench` has the times."""

from __future__ import annotations

import cProfile
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scenes
from scenes import make_scene
from vllm_patcher import Request, apply, revert

sys.path.append(str(Path(__file__).parent.parent / "scripts"))
import bench_big

if TYPE_CHECKING:
    from scenes import Scene

MOST_MEMORY = 30  # bytes for a byte of diff; unidiff's objects alone take 20
MOST_GROWTH = 2.2  # for twice the input


#: Runs the command line and tells the most memory that this process had, in kB. What the system
#: tells of a child that ended counts its parent's as well.
MEASURED = """\
import sys
from vllm_patcher import cli
code = cli.run(sys.argv[1:])
print(open("/proc/self/status").read())
sys.exit(code)
"""


def made(tmp_path: Path, files: int) -> tuple[Scene, Path]:
    """Lay an install of many files, and write a diff with fifty hunks for each."""
    case = bench_big.many(str(tmp_path / "big"), files)
    package = tmp_path / "big" / "a" / "vllm"
    contents = {path.name: path.read_bytes() for path in package.iterdir()}
    return make_scene(tmp_path / "scene", files=contents), Path(case.diff)


@pytest.mark.slow
def test_memory_for_ten_thousand_hunks(tmp_path: Path) -> None:
    scene, diff = made(tmp_path, 200)
    size = diff.stat().st_size
    assert size > 12_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "apply", str(diff), "--no-builtin", *scene.at],
        env=scenes.environ(),
        check=True,
        capture_output=True,
        text=True,
    )
    most = int(done.stdout.rpartition("VmHWM:")[2].split()[0]) * 1024
    assert most <= MOST_MEMORY * size
    patched = tmp_path / "big" / "b" / "vllm"
    for path in patched.iterdir():
        if path.name != "__init__.py":
            assert (scene.package / path.name).read_bytes() == path.read_bytes()


def calls(scene: Scene, diff: Path) -> int:
    """Count the calls of functions that an apply and a revert take."""
    request = Request(patches=(str(diff),), builtin=False, site_packages=str(scene.site))
    profile = cProfile.Profile()
    profile.enable()
    apply(request)
    revert(request)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_work_grows_in_proportion_to_files_and_hunks(tmp_path: Path) -> None:
    once = calls(*made(tmp_path / "once", 10))
    twice = calls(*made(tmp_path / "twice", 20))
    assert twice / once <= MOST_GROWTH


def test_work_grows_in_proportion_to_new_files(tmp_path: Path) -> None:
    counted = []
    for number in (100, 200):
        scene = make_scene(tmp_path / str(number))
        text = b"".join(scenes.diff(f"n{n}/x.py", None, b"x = 1\n") for n in range(number))
        counted.append(calls(scene, scene.diff_file("new.patch", text)))
    assert counted[1] / counted[0] <= MOST_GROWTH


def test_a_folder_is_listed_no_more_often_for_more_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.listdir
    counted = []
    for number in (10, 20):
        listed: list[str] = []

        def noted(folder: str, listed: list[str] = listed) -> list[str]:
            listed.append(folder)
            return real(folder)

        scene, diff = made(tmp_path / str(number), number)
        monkeypatch.setattr(os, "listdir", noted)
        calls(scene, diff)
        monkeypatch.setattr(os, "listdir", real)
        counted.append(listed.count(str(scene.package)))
    assert 0 < counted[1] <= counted[0]


@pytest.mark.slow
def test_a_file_of_fifty_megabytes(tmp_path: Path) -> None:
    case = bench_big.long(str(tmp_path / "big"))
    old, new = ((tmp_path / "big" / side / "vllm" / "long.py").read_bytes() for side in "ab")
    assert len(old) > 50_000_000
    scene = make_scene(tmp_path / "scene", files={"long.py": old})
    assert scene.run("apply", case.diff, "--no-builtin").code == 0
    assert (scene.package / "long.py").read_bytes() == new
    assert scene.run("revert", "--no-builtin").code == 0
    assert (scene.package / "long.py").read_bytes() == old
