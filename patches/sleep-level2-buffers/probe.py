"""Probe: do the buffers of a model outlive a level 2 sleep?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The workers of the installed v1/worker/gpu_worker.py and worker/worker.py are
run as they are, with small stand-ins for what they import. The one for the allocator discards
memory as the real one does: what was not offloaded is lost, and what is asleep can't be read
or written. A model with a weight and a buffer is put to sleep and woken, at level 1, at level 2
with the weight loaded again, and at level 2 in two steps.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import os
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_FILES = (os.path.join("v1", "worker", "gpu_worker.py"), os.path.join("worker", "worker.py"))


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Tensor:
    """Lives in memory that the allocator may take away."""

    def __init__(self, value: str) -> None:
        self.memory: str | None = value

    def cpu(self) -> _Tensor:
        return _Tensor(self.read())

    clone = cpu

    @property
    def data(self) -> _Tensor:
        return self

    def read(self) -> str:
        if self.memory is None:
            raise CantTellError("memory that is asleep is read or written")
        return self.memory

    def copy_(self, other: _Tensor) -> None:
        self.read()
        self.memory = other.read()


class _Allocator:
    """Stands in for CuMemAllocator; all its tensors are in the pool of the weights."""

    def __init__(self, tensors: list[_Tensor]) -> None:
        self.tensors = tensors
        self.values: list[str] = []

    def sleep(self, offload_tags: tuple[str, ...]) -> None:
        kept = "weights" in offload_tags
        self.values = [tensor.read() if kept else "garbage" for tensor in self.tensors]
        for tensor in self.tensors:
            tensor.memory = None

    def wake_up(self, tags: list[str] | None = None) -> None:
        if tags is None or "weights" in tags:
            for tensor, value in zip(self.tensors, self.values):
                tensor.memory = value


class _Base:
    """Stands in for the bases of a worker."""

    def __init__(self, vllm_config: Any, *_args: Any, **_options: Any) -> None:
        self.vllm_config = vllm_config
        for name in ("model", "cache", "parallel", "scheduler", "lora", "load", "device"):
            setattr(self, f"{name}_config", getattr(vllm_config, f"{name}_config"))
        self.speculative_config = None


def live(path: str) -> list[str]:
    """Sleep and wake up in all ways; return the buffer's value after each."""
    results = []
    for level, steps in (1, [None]), (2, [None]), (2, [["weights"], ["kv_cache"]]):
        weight, buffer = _Tensor("weight"), _Tensor("buffer")
        allocator = _Allocator([weight, buffer])
        cls = _load(path, allocator)
        has_tags = "tags" in inspect.signature(cls.wake_up).parameters
        config = mock.MagicMock()
        config.model_config.trust_remote_code = False
        worker = cls(config, 0, 0, "tcp://")
        worker.model_runner = SimpleNamespace(model=mock.MagicMock())
        worker.model_runner.model.buffers = lambda b=buffer: iter([b])
        worker.model_runner.model.named_buffers = lambda b=buffer: iter([("b", b)])
        for _again in range(2):
            worker.sleep(level)
            if weight.memory is not None:
                raise CantTellError("sleep() leaves the weights where they are")
            for tags in steps if has_tags else [None]:
                worker.wake_up(*([] if tags is None else [tags]))
            if weight.read() != ("weight" if level == 1 else "garbage"):
                raise CantTellError(f"a weight is {weight.read()!r} after sleep({level})")
            weight.copy_(_Tensor("weight"))
        results.append(buffer.read())
    return results


def _load(path: str, allocator: _Allocator) -> Any:
    """Run the class Worker in the file at PATH, and nothing else of it."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    torch = mock.MagicMock()
    torch.cuda.mem_get_info = lambda: (sum(t.memory is None for t in allocator.tensors), 9)
    module: dict[str, Any] = {"__name__": "worker"}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                module[alias.asname or alias.name.partition(".")[0]] = mock.MagicMock()
    module.update(
        CuMemAllocator=SimpleNamespace(get_instance=lambda: allocator),
        GiB_bytes=1,
        LocalOrDistributedWorkerBase=_Base,
        WorkerBase=_Base,
        envs=mock.MagicMock(VLLM_TORCH_PROFILER_DIR=None),
        logger=mock.MagicMock(),
        torch=torch,
    )
    body = [node for node in tree.body if getattr(node, "name", "") == "Worker"]
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags, True), module)  # noqa: S102
    return module["Worker"]


def probe(package: str) -> str:
    """Return what becomes of a buffer that is lost, or nothing."""
    try:
        for file in _FILES:
            first, *others = live(os.path.join(package, file))
            if first != "buffer":
                raise CantTellError(f"after a level 1 sleep a buffer is {first}")
            lost = [value for value in others if value != "buffer"]
            if lost:
                return f"a buffer of {file} is {lost[0]} after sleep(2) and wake_up()"
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"a worker works in a way not known here: {error!r}") from error
    return ""


def main(arguments: list[str]) -> int:
    """Print what was seen in one line, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        fault = probe(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if fault:
        print(f"fault present: {fault}")
        return PRESENT
    print("fault absent: buffers have their values after sleep(2) and wake_up()")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
