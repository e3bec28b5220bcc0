"""Probe: does a LoRA request that ends while it is not running raise KeyError?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The classes that keep count of LoRA requests are cut out of the installed
v1/metrics/stats.py by its syntax tree and run as they are; neither vllm nor torch is
imported. Each story below is the life of one request as the front end sees it. Two other
requests of the same adapter, one waiting and one running, must come through it unharmed.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

STORIES = {
    "runs and finishes": ("QUEUED", "SCHEDULED"),
    "is preempted, goes on and finishes": ("QUEUED", "SCHEDULED", "PREEMPTED", "SCHEDULED"),
    "is aborted before it is scheduled": ("QUEUED",),
    "is aborted before any event of it arrives": (),
    "is aborted while preempted": ("QUEUED", "SCHEDULED", "PREEMPTED"),
}

_ADAPTER = "adapter"
_CLASSES = ("LoRAStats", "IterationStats", "LoRARequestStates")
_IMPORTS = ("collections", "dataclasses", "enum", "time", "typing")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class Outcome(NamedTuple):
    """How a story ended: its error, and how many requests too many are counted."""

    error: KeyError | None
    waiting: int
    running: int


def live(package: str) -> dict[str, Outcome]:
    """Live through all stories with the classes of the vLLM in the folder PACKAGE."""
    module = _load(os.path.join(package, "v1", "metrics", "stats.py"))
    if hasattr(module.LoRARequestStates, "finish_request"):
        front_end = _FrontEnd
    elif hasattr(module.LoRARequestStates, "request_finished"):
        front_end = _RewrittenFrontEnd
    else:
        raise CantTellError("LoRARequestStates has no method known here that ends a request")
    try:
        return {story: _live(front_end(module), events) for story, events in STORIES.items()}
    except Exception as error:
        raise CantTellError(f"the classes work in a way not known here: {error!r}") from error


def _live(front_end: _FrontEnd, events: Sequence[str]) -> Outcome:
    front_end.add("waiting", ("QUEUED",))
    front_end.add("running", ("QUEUED", "SCHEDULED"))
    error = None
    try:
        front_end.add("r1", events)
        front_end.finish("r1")
    except KeyError as caught:
        error = caught
    metrics = SimpleNamespace(waiting_lora_adapters={}, running_lora_adapters={})
    front_end.publish(metrics)
    return Outcome(
        error,
        metrics.waiting_lora_adapters.get(_ADAPTER, 0) - 1,
        metrics.running_lora_adapters.get(_ADAPTER, 0) - 1,
    )


class _FrontEnd:
    """Calls the classes as the output processor of 0.8.0 to 0.11.0 does."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.states = self.new_states()

    def new_states(self) -> Any:
        return self.module.LoRARequestStates()

    def add(self, name: str, events: Sequence[str]) -> None:
        request = SimpleNamespace(request_id=name, lora_name=_ADAPTER)
        self.states.add_request(request)
        self.deliver(name, events, self.states.get_stats(request))

    def deliver(self, name: str, events: Sequence[str], *lora: Any) -> None:
        times = SimpleNamespace(queued_ts=0.0, scheduled_ts=0.0)
        happened = [SimpleNamespace(type=event, timestamp=1.0) for event in events]
        prefilling = True
        self.module.IterationStats().update_from_events(name, happened, prefilling, times, *lora)

    def finish(self, name: str) -> None:
        self.states.finish_request(SimpleNamespace(request_id=name, lora_name=_ADAPTER))

    def publish(self, metrics: SimpleNamespace) -> None:
        self.states.update_iteration_stats(metrics)


class _RewrittenFrontEnd(_FrontEnd):
    """Calls the classes as the output processor of 0.11.1 and later does."""

    def new_states(self) -> Any:
        return self.module.LoRARequestStates(log_stats=True)

    def add(self, name: str, events: Sequence[str]) -> None:
        self.deliver(name, events, self.states, _ADAPTER)

    def finish(self, name: str) -> None:
        self.states.request_finished(name, _ADAPTER)

    def publish(self, metrics: SimpleNamespace) -> None:
        self.states.update_scheduler_stats(metrics)


def _load(path: str) -> Any:
    """Run the classes of the file at PATH, and nothing else of it, as a module."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    body = [node for node in tree.body if _is_wanted(node)]
    missing = set(_CLASSES) - {getattr(node, "name", "") for node in body}
    if missing:
        raise CantTellError(f"{path} has no class {', '.join(sorted(missing))}")
    # What update_from_events imports when it is called.
    _module("vllm")
    _module("vllm.v1")
    _module("vllm.v1.engine", EngineCoreEventType=_EventType)
    module = _module("vllm.v1.metrics.stats")
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
    try:
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the classes of {path} don't stand alone: {error!r}") from error
    return module


class _EventType:
    QUEUED = "QUEUED"
    SCHEDULED = "SCHEDULED"
    PREEMPTED = "PREEMPTED"


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name in _CLASSES
    if isinstance(node, ast.ImportFrom):
        return node.module in _IMPORTS
    return isinstance(node, ast.Import) and all(name.name in _IMPORTS for name in node.names)


def _module(name: str, **contents: Any) -> ModuleType:
    """Make a module that an import of NAME finds instead of the installed one."""
    sys.modules[name] = module = ModuleType(name)
    vars(module).update(contents)
    return module


def tell(judge: Callable[[Outcome], str], arguments: Sequence[str]) -> int:
    """Print whether JUDGE has a fault to tell of some story, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        outcomes = live(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    faults = [(judge(outcome), story) for story, outcome in outcomes.items() if judge(outcome)]
    if not faults:
        print(f"fault absent: {len(outcomes)} lives of a LoRA request end as they should")
        return ABSENT
    fault, story = faults[0]
    others = f" ({len(faults)} of {len(outcomes)} lives go wrong)"
    print(f"fault present: {fault} when a LoRA request {story}{others}")
    return PRESENT


def _judge(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"KeyError: {outcome.error}"
    return (
        f"the count of running requests is off by {outcome.running:+d}" if outcome.running else ""
    )


if __name__ == "__main__":
    sys.exit(tell(_judge, sys.argv[1:]))
