"""Run a patch's probe: a script that shows whether the fault is there.

Always true here: a probe runs in a process of its own, isolated from the user's environment,
and writes no bytecode; what it answers is its exit status. Nothing of it is left running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.values import Value

if TYPE_CHECKING:
    from subprocess import Popen

ABSENT = "absent"
SHOWN = "present"
CANT_RUN = "unknown"

SECONDS = 120.0

_MEANING = {0: ABSENT, 1: SHOWN}
#: A script that dies of an exception ends with 1 as well, and has shown nothing.
_DIED = b"Traceback (most recent call last):"


class Probe(Value):
    """What a probe said of the fault: ``absent``, ``present``, or ``unknown``; and a line.

    It is unknown if the probe can't run, dies or gives no answer.
    """

    answer: str
    line: str


def run(python: str, script: str, package: str, *, seconds: float = SECONDS) -> Probe:
    """Run a probe on a package folder with an interpreter; never raises for what it does.

    After ``seconds`` it is killed, with all that it has started.
    """
    import signal
    import subprocess

    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        # The system then keeps no exit status, and every process seems to end with 0.
        return Probe(answer=CANT_RUN, line="this process ignores SIGCHLD, so no answer counts")
    try:
        process = subprocess.Popen(
            [python, "-I", "-B", script, package],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A group of its own, since what it starts may outlive it and hold the pipe open.
            start_new_session=True,
        )
    except OSError as error:
        return Probe(answer=CANT_RUN, line=f"{python}: {error.strerror}")
    with process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Probe(answer=CANT_RUN, line=f"no answer within {seconds:g} s")
        finally:
            _kill_all(process)
    return _read(process.returncode, output)


def _read(status: int, output: bytes) -> Probe:
    lines = output.decode(errors="replace").strip().splitlines()
    line = lines[-1] if lines else f"no word, and {_ending(status)}"
    died = status == 1 and _DIED in output
    answer = CANT_RUN if died else _MEANING.get(status, CANT_RUN)
    return Probe(answer=answer, line=f"it died of {line}" if died else line)


def _ending(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def _kill_all(process: Popen[bytes]) -> None:
    import os
    from signal import SIGKILL

    try:
        os.killpg(process.pid, SIGKILL)
    except OSError:
        return
