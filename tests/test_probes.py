"""Probes, run as real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from vllm_patcher import probes
from vllm_patcher.probes import Probe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "probe.py"


def run(script: Path, source: str, *, package: str = "/package", seconds: float = 60) -> Probe:
    script.write_text(source)
    return probes.run(sys.executable, str(script), package, seconds=seconds)


@pytest.mark.parametrize(
    ("source", "answer", "line"),
    [
        pytest.param("print('all is well')", "absent", "all is well", id="0"),
        pytest.param("print('oh'); exit(1)", "present", "oh", id="1"),
        pytest.param("print('no gpu'); exit(77)", "unknown", "no gpu", id="77"),
        pytest.param("exit(2)", "unknown", "no word, and exit status 2", id="other"),
        pytest.param("print('a\\nb\\n\\n')", "absent", "b", id="last line"),
        pytest.param("", "absent", "no word, and exit status 0", id="silent"),
        pytest.param("import sys; print('x', file=sys.stderr)", "absent", "x", id="stderr"),
        pytest.param(
            "import sys; sys.stdout.buffer.write(b'caf\\xe9')", "absent", "caf\ufffd", id="latin-1"
        ),
        pytest.param(
            "import not_there_at_all",
            "unknown",
            "it died of ModuleNotFoundError: No module named 'not_there_at_all'",
            id="an exception is no answer",
        ),
        pytest.param(
            "def f(:", "unknown", "it died of SyntaxError: invalid syntax", id="no Python"
        ),
        pytest.param(
            "import os; os.kill(os.getpid(), 9)",
            "unknown",
            "no word, and killed by signal 9",
            id="crash",
        ),
    ],
)
def test_the_exit_status_is_the_answer(script: Path, source: str, answer: str, line: str) -> None:
    assert run(script, source) == Probe(answer=answer, line=line)


def test_it_gets_the_package_and_nothing_on_standard_input(script: Path) -> None:
    source = "import sys; print(sys.argv[1:], repr(sys.stdin.read()))"
    assert run(script, source, package="/a b").line == "['/a b'] ''"


def test_it_is_isolated_and_writes_no_bytecode(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/from-the-environment")
    (script.parent / "beside.py").write_text("")
    found = run(
        script,
        "import sys\n"
        "print(sys.flags.isolated, sys.dont_write_bytecode, '/from-the-environment' in sys.path)",
    )
    assert found.line == "1 True False"


def test_an_interpreter_that_is_not_there(script: Path) -> None:
    found = probes.run("/no/python", str(script), "/package")
    assert found == Probe(answer="unknown", line="/no/python: No such file or directory")


def test_one_that_gives_no_answer_is_killed_with_all_it_has_started(script: Path) -> None:
    # The child holds the pipe open, so that waiting for its end would take as long as it sleeps.
    child = script.with_name("pid")
    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    found = run(script, source, seconds=2)
    assert found == Probe(answer="unknown", line="no answer within 2 s")
    assert gone(int(child.read_text()))


def test_what_it_leaves_running_is_killed(script: Path) -> None:
    child = script.with_name("pid")
    source = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        f"open({str(child)!r}, 'w').write(str(child.pid))\n"
        "print('done')\n"
    )
    assert run(script, source) == Probe(answer="absent", line="done")
    assert gone(int(child.read_text()))


def gone(pid: int) -> bool:
    """Wait until a process has ended; one that nobody waits for may stay as a zombie."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"Z":
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return False
