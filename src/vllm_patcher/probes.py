"""Run a patch's probe: a script that shows whether the fault is there.

Always true here: a probe runs in a process of its own, isolated from the user's environment,
and writes no bytecode; what it answers is its exit status.
"""

from __future__ import annotations
from typing import NamedTuple


ABSENT = "absent"
SHOWN = "present"
CANT_RUN = "can't run"

_MEANING = {0: ABSENT, 1: SHOWN}
_SECONDS = 120


class Probe(NamedTuple):
    """What a probe said: the fault is ``absent``, ``present``, or it ``can't run``; and a line."""

    answer: str
    line: str


def run(python: str, script: str, package: str) -> Probe:
    """Run a probe on a package folder with an interpreter; never raises for what it does."""
    import subprocess

    command = [python, "-I", "-B", script, package]
    try:
        done = subprocess.run(  # noqa: S603 - the catalog named it and the user asked for it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(answer=CANT_RUN, line=f"no answer within {_SECONDS} s")
    except OSError as error:
        return Probe(answer=CANT_RUN, line=f"{python}: {error.strerror}")
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    line = lines[-1] if lines else f"exit status {done.returncode} and no word"
    return Probe(answer=_MEANING.get(done.returncode, CANT_RUN), line=line)
