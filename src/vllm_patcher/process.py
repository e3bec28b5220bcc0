"""Run another program to its end.

Always true here: it runs in a session of its own, and however it ends, nothing of that session's
process group is left running.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO


class Ended(Value):
    """How a program ended: its exit status (minus the number of a signal) and what it wrote.

    ``status`` is None if the system does not tell.
    """

    status: int | None
    output: bytes
    complaint: bytes


def run(
    command: Sequence[str],
    *,
    seconds: float,
    data: bytes = b"",
    environ: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Ended | None:
    """Run a command on `data`; None if it takes more than `seconds`. Raises OSError.

    `meanwhile` is called while it runs; the seconds begin after that.
    """
    from subprocess import PIPE, Popen, TimeoutExpired
    from threading import Thread

    process = Popen(
        command,
        env=None if environ is None else dict(environ),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    with process:
        try:
            if meanwhile is not None:
                Thread(target=_feed, args=(process.stdin, data), daemon=True).start()
                process.stdin = None
                meanwhile()
            output, complaint = process.communicate(data, timeout=seconds)
        except TimeoutExpired:
            return None
        finally:
            _kill_group(process.pid)
    return Ended(
        status=process.returncode if _is_told() else None, output=output, complaint=complaint
    )


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError), pipe:
        pipe.write(data)


def _is_told() -> bool:
    """Of a process that ignores SIGCHLD the children leave no status: all seem to end with 0."""
    import signal

    return signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN


def _kill_group(leader: int) -> None:
    from signal import SIGKILL

    try:
        os.killpg(leader, SIGKILL)
    except OSError:  # nobody is left in it
        return
