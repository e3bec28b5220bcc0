"""What does not compile, and for which Python."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from vllm_patcher import compiling, process

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = (
    (b"x = 1\n", None, ""),
    (b"x = 1\ny = (\n", 2, "never closed"),
    (b"\0", 0, "null"),
    (b"def f():\n  pass\n x\n", 3, "unindent"),
    (b"return\n", 1, "'return' outside function"),
    (b"", None, ""),
)


def check(answers: list[SyntaxError | None]) -> None:
    assert len(answers) == len(SOURCES)
    for error, (_, line, said) in zip(answers, SOURCES, strict=True):
        assert (error is None) is (line is None)
        if error is not None:
            assert said in str(error)
            assert (error.lineno or 0) in (line, 1)


def test_each_source_has_its_own_answer() -> None:
    check(compiling.objections([source for source, _, _ in SOURCES]))


def test_another_python_says_the_same_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    run = process.run

    def counted(command: list[str], **more: Any) -> object:
        runs.append(command)
        return run(command, **more)

    monkeypatch.setattr(process, "run", counted)
    check(compiling.objections_of(sys.executable, [source for source, _, _ in SOURCES]))
    assert len(runs) == 1


@pytest.mark.parametrize("python", ["/bin/true", "/bin/echo", "none"])
def test_a_python_that_does_not_answer_has_no_objection(python: str, tmp_path: Path) -> None:
    python = os.path.join(tmp_path, python)  # an absolute one stays as it is
    assert compiling.objections_of(python, [b"x = (\n", b""]) == [None, None]


def test_who_asks_about_nothing_starts_nothing() -> None:
    assert compiling.objections_of("/none", []) == []
    assert compiling.objections([]) == []


def test_a_source_that_another_python_can_not_bear_speaks_for_itself_only(tmp_path: Path) -> None:
    python = tmp_path / "python"
    dies = "case $0 in *) ;; esac; data=$(cat); case $data in *poison*) kill -9 $$;; esac"
    python.write_text(f'#!/bin/sh\n{dies}\nprintf %s "$data" | {sys.executable} "$@"\n')
    python.chmod(stat.S_IRWXU)
    answers = compiling.objections_of(str(python), [b"x = (", b"# poison", b"y = 1"])
    assert [answer is None for answer in answers] == [False, True, True]


def test_a_child_forked_while_another_thread_compiles_can_compile() -> None:
    begun, done = threading.Event(), threading.Event()
    much = b"x = [" + b"1, " * 20_000 + b"]\n"

    def compile_on() -> None:
        while not done.is_set():
            compiling.objections([much])
            begun.set()

    other = threading.Thread(target=compile_on)
    other.start()
    try:
        begun.wait()
        for _ in range(5):
            filters = list(warnings.filters)
            with warnings.catch_warnings():
                # That the parent has threads is what is tried here.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that waits for ever is killed
                broken = compiling.objections([b"x = ("])[0] is not None
                os._exit(0 if broken and list(warnings.filters) == filters else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        other.join()


def test_a_signal_may_fork_while_this_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = warnings.catch_warnings
    forked: list[int] = []

    def interrupted(*args: Any, **more: Any) -> Any:
        if not forked:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if compiling.objections([b"x = ("])[0] else 1)
            forked.append(os.waitpid(child, 0)[1])
        return filtered(*args, **more)

    monkeypatch.setattr(warnings, "catch_warnings", interrupted)
    assert compiling.objections([b"x = 1"]) == [None]
    assert forked == [0]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Share the work however little it is; the list tells what was compiled here."""
    here: list[bytes] = []
    code_of = compiling.code_of

    def noted(source: bytes, *, name: str) -> object:
        here.append(source)
        return code_of(source, name=name)

    monkeypatch.setattr(compiling, "code_of", noted)
    monkeypatch.setattr(compiling, "_MUCH", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return here


def test_much_is_shared_with_a_second_process(shared: list[bytes]) -> None:
    sources = [source for source, _, _ in SOURCES]
    check(compiling.objections(sources))
    assert shared == sources[: len(sources) // 2]


@pytest.mark.parametrize("status", [0, 1, None])
def test_what_the_second_process_does_not_answer_is_compiled_here(
    shared: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    python = tmp_path / "python"
    if status is not None:
        python.write_text(f"#!/bin/sh\nexit {status}\n", encoding="ascii")
        python.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(python))
    # More than a pipe holds: who does not read must stop nobody.
    sources = [source for source, _, _ in SOURCES]
    padded = [*sources[:-1], b"#" * 1_000_000]
    check(compiling.objections(padded))
    assert shared == padded


def test_one_processor_does_all_by_itself(
    shared: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    sources = [source for source, _, _ in SOURCES]
    check(compiling.objections(sources))
    assert shared == sources
