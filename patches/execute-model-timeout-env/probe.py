"""Probe: is the time a worker has for execute_model fixed, whatever the environment says?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The executor class is cut out of the installed v1/executor/multiproc_executor.py
by its syntax tree and run as it is; its worker is a stand-in whose answer takes as long as a
story says, on a clock that is not waited for. With a limit of 5000 s in the environment, a
worker must be allowed 4000 s; without one, the limit must be there as it was.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
import threading
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

VARIABLE = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
_FILE = os.path.join("v1", "executor", "multiproc_executor.py")
_CLASSES = ("FutureWrapper", "MultiprocExecutor")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def run(package: str, limit: str | None, seconds: float) -> TimeoutError | None:
    """Have a worker answer after SECONDS, under a LIMIT in the environment; give its error."""
    os.environ.pop(VARIABLE, None)
    if limit is not None:
        os.environ[VARIABLE] = limit
    executor = _executor(package, seconds)
    try:
        output = executor.execute_model("scheduled")
    except TimeoutError as error:
        return error
    except Exception as error:
        raise CantTellError(f"execute_model works in a way not known here: {error!r}") from error
    if output != "answer to execute_model":
        raise CantTellError(f"execute_model gives {output!r}, not what the worker answered")
    return None


def _executor(package: str, seconds: float) -> Any:
    class Queue:
        """Takes a call, and answers it SECONDS later if that is waited for."""

        def enqueue(self, call: tuple[Any, ...]) -> None:
            self.method = call[0]

        def dequeue(self, timeout: float | None = None, **_: object) -> object:
            if timeout is not None and timeout < seconds:
                raise TimeoutError
            return "SUCCESS", f"answer to {self.method}"

    queue = Queue()
    executor = object.__new__(_load(package))
    vars(executor).update(
        rpc_broadcast_mq=queue,
        workers=[SimpleNamespace(rank=0, worker_response_mq=queue)],
        response_mqs=[queue],
        futures_queue=deque(),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        shutdown_event=threading.Event(),
        is_failed=False,
        io_thread_pool=None,
        output_rank=0,
        has_connector=False,
        kv_output_aggregator=None,
        ec_output_aggregator=None,
    )
    return executor


def _load(package: str) -> Any:
    """Run the constants and the class of the executor's file, and nothing else of it."""
    path = os.path.join(package, _FILE)
    body = [node for node in _tree(path).body if _is_wanted(node)]
    status = SimpleNamespace(SUCCESS="SUCCESS")
    names = {
        "Executor": object,
        "MessageQueue": object,
        "WorkerProc": SimpleNamespace(ResponseStatus=status),
        "envs": _Envs(os.path.join(package, "envs.py")),
    }
    found = _exec(body, path, names)
    if "MultiprocExecutor" not in found:
        raise CantTellError(f"{path} has no class MultiprocExecutor")
    return found["MultiprocExecutor"]


class _Envs:
    """Stands in for vllm.envs, which is run only if it is asked."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> object:
        return _exec(_tree(self.path).body, self.path, {})["__getattr__"](name)


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name in _CLASSES
    if isinstance(node, ast.Assign):
        return all(isinstance(to, ast.Name) and to.id.isupper() for to in node.targets)
    names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    ours = ("cloudpickle", "psutil", "torch", "vllm", "zmq")
    return bool(names) and all(name.split(".")[0] not in ours for name in names)


def _tree(path: str) -> ast.Module:
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error


def _exec(body: list[ast.stmt], path: str, names: dict[str, Any]) -> dict[str, Any]:
    module = vars(ModuleType("installed"))
    module.update(names, __file__=path)
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
    try:
        exec(code, module)  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"{path} doesn't stand alone: {error!r}") from error
    return module


def look(package: str) -> tuple[int, str]:
    """Give the exit status and the line."""
    if run(package, None, 1.0) is not None or run(package, None, 4000.0) is None:
        raise CantTellError("without a limit in the environment, there is none or one below 1 s")
    error = run(package, "5000", 4000.0)
    if error is not None:
        return PRESENT, f"fault present: '{error}' after less than 4000 s, under a limit of 5000 s"
    if run(package, "5000", 6000.0) is None:
        raise CantTellError("with a limit of 5000 s in the environment, there is none")
    return ABSENT, f"fault absent: a worker has the 5000 s that {VARIABLE} gives it"


def main(arguments: list[str]) -> int:
    """Print the line and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        status, line = look(arguments[0])
    except CantTellError as why:
        status, line = CANT_TELL, f"can't tell: {why}"
    print(line)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
