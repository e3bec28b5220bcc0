"""Run a patch's probe: a script that shows whether the fault is there.

Always true here: a probe runs in a process of its own, isolated from the user's environment,
and writes no bytecode; what it answers is its exit status.
"""

from __future__ import annotations

from vllm_patcher import process
from vllm_patcher.values import Value

ABSENT = "absent"
SHOWN = "present"
CANT_RUN = "unknown"

SECONDS = 120.0

_MEANING = {0: ABSENT, 1: SHOWN}
#: A script that dies of an exception ends with 1 as well, and has shown nothing.
_DIED = (b"Traceback (most recent call last):", b"\nSyntaxError:", b"\nIndentationError:")


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
    try:
        ended = process.run([python, "-I", "-B", script, package], seconds=seconds)
    except OSError as error:
        return Probe(answer=CANT_RUN, line=f"{python}: {error.strerror}")
    if ended is None:
        return Probe(answer=CANT_RUN, line=f"no answer within {seconds:g} s")
    if ended.status is None:
        return Probe(answer=CANT_RUN, line="this process ignores SIGCHLD, so no answer counts")
    return _read(ended.status, ended.output + ended.complaint)


def _read(status: int, output: bytes) -> Probe:
    lines = output.decode(errors="replace").strip().splitlines()
    line = lines[-1] if lines else f"no word, and {_ending(status)}"
    died = status == 1 and any(mark in output for mark in _DIED)
    answer = CANT_RUN if died else _MEANING.get(status, CANT_RUN)
    return Probe(answer=answer, line=f"it died of {line}" if died else line)


def _ending(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"
