"""Probe: does a step whose outputs bring no scheduler statistics stop the engine?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. LLMEngine.step is cut out of the installed v1/engine/llm_engine.py by its
syntax tree and run as it is, on stand-ins for what it calls. The engine core answers first with
statistics, then without (as it does where a step ends no token or nothing was left to do),
then with them again: each step must hand on its request outputs, and those statistics that
came must be recorded.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Engine:
    """What step uses of an engine. Keeps what is recorded and aborted."""

    should_execute_dummy_batch = False
    log_stats = True

    def __init__(self, *answers: tuple[str, str | None]) -> None:
        self.recorded: list[str | None] = []
        self.aborted: list[str] = []
        self._answers = list(answers)
        # Every part of the engine is the engine itself.
        self.engine_core = self.output_processor = self
        self.stat_logger = self.logger_manager = self

    def get_output(self) -> SimpleNamespace:
        name, stats = self._answers.pop(0)
        return SimpleNamespace(
            outputs=[name], timestamp=1.0, scheduler_stats=stats, weight_version=None
        )

    def process_outputs(self, outputs: list[str], **_: object) -> SimpleNamespace:
        return SimpleNamespace(request_outputs=outputs, reqs_to_abort=outputs)

    def abort_requests(self, names: list[str]) -> None:
        self.aborted += names

    def record(self, scheduler_stats: str | None, **_: object) -> None:
        self.recorded.append(scheduler_stats)

    def update_scheduler_stats(self, stats: object) -> None:
        """Nothing here depends on it."""

    def do_log_stats_with_interval(self) -> None:
        """Nothing here depends on it."""

    def __getattr__(self, name: str) -> Any:
        # Caches of the processor, which later releases ask for their statistics.
        if name in ("processor", "input_processor", "renderer"):
            return SimpleNamespace(stat_mm_cache=lambda: None, mm_processor_cache=None)
        raise AttributeError(name)


def look(package: str) -> tuple[int, str]:
    """Give the exit status and the line."""
    step = _load(os.path.join(package, "v1", "engine", "llm_engine.py"))
    engine = _Engine(("r1", "first"), ("r2", None), ("r3", "last"))
    _expect(step(engine), ["r1"])
    try:
        _expect(step(engine), ["r2"])
    except AssertionError as error:
        return PRESENT, f"fault present: step raises {error!r} for outputs without statistics"
    _expect(step(engine), ["r3"])
    _expect(engine.aborted, ["r1", "r2", "r3"])
    # Whether an absence is recorded is the logger's affair.
    _expect([stats for stats in engine.recorded if stats is not None], ["first", "last"])
    engine = _Engine(("r1", None))
    engine.stat_logger = engine.logger_manager = None
    _expect(step(engine), ["r1"])
    return ABSENT, "fault absent: step goes on where outputs bring no statistics"


def _expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise CantTellError(f"step gives {found!r} where {wanted!r} is due")


def _load(path: str) -> Any:
    """Run the definition of LLMEngine.step in the file at PATH, and nothing else of it."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    classes = [node for node in tree.body if getattr(node, "name", "") == "LLMEngine"]
    body = [item for node in classes for item in node.body if getattr(item, "name", "") == "step"]
    if len(body) != 1:
        raise CantTellError(f"{path} has no LLMEngine.step")
    module = vars(ModuleType("installed"))
    module["IterationStats"] = SimpleNamespace
    module["record_function_or_nullcontext"] = nullcontext
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
    exec(code, module)  # noqa: S102 - a probe is there to run the installed code
    return module["step"]


def main(arguments: list[str]) -> int:
    """Print the line and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        status, line = _look_or_say_why(arguments[0])
    except CantTellError as why:
        status, line = CANT_TELL, f"can't tell: {why}"
    print(line)
    return status


def _look_or_say_why(package: str) -> tuple[int, str]:
    try:
        return look(package)
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"step works in a way not known here: {error!r}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
