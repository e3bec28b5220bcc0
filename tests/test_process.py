"""Another program runs to its end, and no longer than it may."""

from __future__ import annotations

import sys
import time

from vllm_patcher import process

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
ECHOES = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"]
MUCH = b"x" * 5_000_000  # more than a pipe holds


def test_it_gets_all_of_its_data_and_what_it_writes_comes_back() -> None:
    ended = process.run(ECHOES, data=MUCH, seconds=30)
    assert ended is not None
    assert (ended.status, ended.output) == (0, MUCH)


def test_something_else_is_done_meanwhile() -> None:
    done: list[str] = []
    ended = process.run(ECHOES, data=MUCH, seconds=30, meanwhile=lambda: done.append("this"))
    assert ended is not None
    assert (ended.output, done) == (MUCH, ["this"])


def test_one_that_does_not_read_keeps_nobody_waiting() -> None:
    for more in ({}, {"meanwhile": lambda: None}):
        begin = time.monotonic()
        assert process.run(SLEEPS, data=MUCH, seconds=0.2, **more) is None  # type: ignore[arg-type]
        assert time.monotonic() - begin < 30
