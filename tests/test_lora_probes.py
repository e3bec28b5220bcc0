"""The probes of the built-in catalog, on stand-ins for the file that they look at."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_patcher import catalog, diff, hunks
from vllm_patcher.hunks import Applied

if TYPE_CHECKING:
    from vllm_patcher.manifest import Patch

DATA = Path(__file__).parent / "data" / "lora"
FIRST = (DATA / "first.py").read_bytes()
REWRITTEN = (DATA / "rewritten.py").read_bytes()

CRASH, LEAK = catalog.load(catalog.builtin_folder()).patches[:2]
ABSENT, PRESENT, CANT_TELL = 0, 1, 77


def patched(data: bytes, *patches: Patch) -> bytes:
    for patch in patches:
        parsed = diff.parse(patch.diff_bytes(patch.variants[0]), name=patch.id)
        result = hunks.apply(data, parsed.files[0])
        assert isinstance(result, Applied)
        assert result.data is not None
        data = result.data
    return data


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def run(patch: Patch, *arguments: str) -> tuple[int, str]:
    """Run a probe as verify does; return its exit status and the one line that it prints."""
    assert patch.probe_path
    done = subprocess.run(
        [sys.executable, "-I", "-B", patch.probe_path, *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.returncode, done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "vllm"
    (folder / "v1" / "metrics").mkdir(parents=True)
    return folder


def probe(patch: Patch, package: Path, data: bytes) -> tuple[int, str]:
    (package / "v1" / "metrics" / "stats.py").write_bytes(data)
    return run(patch, str(package))


def test_as_it_was_released(package: Path) -> None:
    status, line = probe(CRASH, package, FIRST)
    assert status == PRESENT
    assert "KeyError: 'r1' when a LoRA request is aborted before it is scheduled" in line
    status, line = probe(LEAK, package, FIRST)
    assert status == PRESENT
    assert "off by +1 when a LoRA request is aborted before it is scheduled" in line


def test_with_the_first_patch(package: Path) -> None:
    mended = patched(FIRST, CRASH)
    assert probe(CRASH, package, mended)[0] == ABSENT
    status, line = probe(LEAK, package, mended)
    assert status == PRESENT
    assert "off by +1 when a LoRA request is aborted before it is scheduled (3 of 5" in line


def test_with_both_patches(package: Path) -> None:
    mended = patched(FIRST, CRASH, LEAK)
    assert probe(CRASH, package, mended)[0] == ABSENT
    assert probe(LEAK, package, mended) == (
        ABSENT,
        "fault absent: 5 lives of a LoRA request end as they should",
    )


def test_a_life_that_only_goes_wrong_after_preemption(package: Path) -> None:
    half = replaced(
        FIRST,
        b"        lora_stats.running_requests.remove(req_state.request_id)\n",
        b"        if req_state.request_id in lora_stats.waiting_requests - {'preempted'}:\n"
        b"            return lora_stats.waiting_requests.remove(req_state.request_id)\n"
        b"        lora_stats.running_requests.remove(req_state.request_id)\n",
    )
    half = replaced(
        half,
        b"            stats.running_requests.remove(request_id)\n"
        b"            stats.waiting_requests.add(request_id)\n",
        b"            stats.running_requests.remove(request_id)\n",
    )
    half = replaced(
        half,
        b"            stats.waiting_requests.remove(request_id)\n",
        b"            stats.waiting_requests.discard(request_id)\n",
    )
    status, line = probe(CRASH, package, half)
    assert status == PRESENT
    assert "KeyError: 'r1' when a LoRA request is aborted while preempted (1 of 5" in line


def test_a_mend_that_harms_other_requests_is_a_fault(package: Path) -> None:
    mended = patched(FIRST, CRASH, LEAK)
    greedy = replaced(
        mended,
        b"        lora_stats.waiting_requests.discard(req_state.request_id)\n",
        b"        lora_stats.waiting_requests.clear()\n",
    )
    status, line = probe(LEAK, package, greedy)
    assert status == PRESENT
    assert "off by -1 when a LoRA request runs and finishes (5 of 5" in line
    greedy = replaced(
        mended,
        b"            lora_stats.running_requests.remove(req_state.request_id)\n",
        b"            lora_stats.running_requests.clear()\n",
    )
    assert probe(CRASH, package, greedy)[0] == PRESENT


def test_a_request_that_never_leaves_is_a_fault(package: Path) -> None:
    mended = patched(FIRST, CRASH)
    lame = replaced(
        mended,
        b"            lora_stats.running_requests.remove(req_state.request_id)\n",
        b"            pass\n",
    )
    status, line = probe(CRASH, package, lame)
    assert status == PRESENT
    assert "running requests is off by +1 when a LoRA request runs and finishes (2 of 5" in line


def test_the_code_of_later_releases_is_run_too(package: Path) -> None:
    assert probe(CRASH, package, REWRITTEN)[0] == ABSENT
    assert probe(LEAK, package, REWRITTEN)[0] == ABSENT
    broken = replaced(REWRITTEN, b"        self._move(req_id, lora_name)\n", b"        pass\n")
    assert probe(CRASH, package, broken)[0] == PRESENT
    assert probe(LEAK, package, broken)[0] == PRESENT


@pytest.mark.parametrize("patch", [CRASH, LEAK], ids=lambda patch: patch.id)
@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "has no class IterationStats, LoRARequestStates, LoRAStats", id="empty"),
        pytest.param(b"def f(:\n", "can't be read: ", id="syntax"),
        pytest.param(b"\0", "can't be read: ", id="binary"),
        pytest.param(
            replaced(FIRST, b"class LoRAStats:", b"class OtherStats:"),
            "has no class LoRAStats",
            id="renamed",
        ),
        pytest.param(
            replaced(FIRST, b"def finish_request", b"def end_request"),
            "no method known here that ends a request",
            id="no end",
        ),
        pytest.param(
            replaced(FIRST, b"class IterationStats:", b"class IterationStats(Something):"),
            "don't stand alone: NameError",
            id="base class",
        ),
        pytest.param(
            replaced(FIRST, b"def add_request", b"def enqueue"),
            "work in a way not known here: AttributeError",
            id="other method",
        ),
        pytest.param(
            replaced(REWRITTEN, b"log_stats: bool = False", b"registry"),
            "work in a way not known here: TypeError",
            id="other arguments",
        ),
        pytest.param(
            replaced(
                FIRST, b"            stats.running_requests.add(request_id)", b"            1 / 0"
            ),
            "work in a way not known here: ZeroDivisionError",
            id="other error",
        ),
    ],
)
def test_what_it_does_not_know_it_does_not_judge(
    package: Path, patch: Patch, data: bytes, why: str
) -> None:
    status, line = probe(patch, package, data)
    assert status == CANT_TELL
    assert line.startswith("can't tell: ")
    assert why in line


@pytest.mark.parametrize("patch", [CRASH, LEAK], ids=lambda patch: patch.id)
def test_without_a_file_or_a_folder(package: Path, patch: Patch) -> None:
    status, line = run(patch, str(package))
    assert status == CANT_TELL
    assert "can't be read: " in line
    assert run(patch)[0] == CANT_TELL
    assert run(patch, str(package), str(package))[0] == CANT_TELL


@pytest.mark.parametrize("patch", [CRASH, LEAK], ids=lambda patch: patch.id)
def test_a_probe_is_python_3_9_and_imports_the_standard_library_only(
    patch: Patch,
) -> None:
    assert patch.probe_path
    tree = ast.parse(Path(patch.probe_path).read_bytes(), feature_version=(3, 9))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_a_probe_leaves_nothing_behind(package: Path) -> None:
    places = (catalog.builtin_folder(), str(package))

    def files() -> set[str]:
        walked = (step for place in places for step in os.walk(place))
        return {os.path.join(folder, name) for folder, _, names in walked for name in names}

    probe(LEAK, package, FIRST)
    before = files()
    probe(LEAK, package, FIRST)
    assert files() == before
    assert not any("__pycache__" in file for file in before)
