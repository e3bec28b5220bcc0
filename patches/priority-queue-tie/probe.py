"""Probe: does the queue of priority scheduling fail on requests that arrived at one time?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The installed v1/core/sched/request_queue.py is run whole, with the class
Request that is cut out of the installed v1/request.py; neither vllm nor torch is imported.
Requests are made bare, with only what a queue may sort by: the priority, the time of arrival,
and the id. Those of distinct times must come out in order; so must a family of parallel
samples (n>1), which share all but the id, and which must not push others out of line.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

# Priority, time of arrival and id, in the order in which they are to be served.
DISTINCT = ((-1, 9.0, "b"), (0, 1.0, "d"), (0, 2.0, "c"), (0, 3.0, "a"), (5, 0.5, "e"))
SAMPLES = tuple((0, 2.0, f"{index}_c") for index in range(5))
FAMILY = (*DISTINCT[:2], *SAMPLES, *DISTINCT[3:])


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def live(package: str) -> str:
    """Queue requests as the scheduler does; return how that fails for a family, or ""."""
    request = _load_request(os.path.join(package, "v1", "request.py"))
    path = os.path.join(package, "v1", "core", "sched", "request_queue.py")
    queues = _run(_parsed(path), path, ModuleType("vllm.v1.core.sched.request_queue"))
    try:
        _serve(request, queues, DISTINCT)
        _serve(request, queues, FAMILY)
    except TypeError as error:
        if "'<' not supported between instances of 'Request'" in str(error):
            return f"TypeError: {error}"
        raise CantTellError(f"the queue works in a way not known here: {error!r}") from error
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the queue works in a way not known here: {error!r}") from error
    return ""


def _serve(request: Any, queues: Any, ranks: Sequence[tuple[int, float, str]]) -> None:
    """Add requests in several orders, take some out, put one back, and serve all of them."""
    for start in range(len(ranks)):
        waiting = [_bare(request, rank) for rank in (*ranks[start:], *ranks[:start])]
        queue = queues.create_request_queue(queues.SchedulingPolicy.PRIORITY)
        other = queues.create_request_queue(queues.SchedulingPolicy.PRIORITY)
        extra, *more = [
            _bare(request, rank) for rank in ((0, 2.0, "x"), (0, 2.5, "y"), (9, 9, "z"))
        ]
        for one in (extra, *waiting[:2], *more):
            queue.add_request(one)
        for one in waiting[2:]:
            other.add_request(one)
        queue.prepend_requests(other)
        queue.remove_request(extra)
        queue.remove_requests(more)
        queue.prepend_request(queue.pop_request())  # as after a step without room for it
        seen = [_rank(one) for one in queue]
        served = []
        while queue:
            if queue.peek_request() not in waiting:
                raise CantTellError("a request that is next was never added")
            served.append(_rank(queue.pop_request()))
        # Which of two parallel samples comes first does not matter.
        for told in (seen, served):
            in_line = [rank[:2] for rank in told] == [rank[:2] for rank in ranks]
            if not in_line or set(told) != set(ranks):
                raise CantTellError(f"requests are served in the order {told}")


def _bare(request: Any, rank: tuple[int, float, str]) -> Any:
    made = request.__new__(request)
    made.priority, made.arrival_time, made.request_id = rank
    return made


def _rank(request: Any) -> tuple[int, float, str]:
    return (request.priority, request.arrival_time, request.request_id)


def _load_request(path: str) -> Any:
    """Run the class Request of the file at PATH, and put it where the queues import it from."""
    tree = _parsed(path)
    body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Request"]
    for name in ("vllm", "vllm.v1", "vllm.v1.request"):
        sys.modules[name] = module = ModuleType(name)
    vars(module)["deprecated"] = lambda _: lambda method: method  # used by 0.17
    _run(ast.Module(body, []), path, module)
    if not hasattr(module, "Request"):
        raise CantTellError(f"{path} has no class Request")
    return module.Request


def _parsed(path: str) -> ast.Module:
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error


def _run(tree: ast.Module, path: str, module: ModuleType) -> Any:
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    try:
        code = compile(tree, path, "exec", flags, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the code of {path} does not stand alone: {error!r}") from error
    return module


def tell(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        fault = live(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if fault:
        print(f"fault present: {fault} when parallel samples wait in the priority queue")
        return PRESENT
    print(f"fault absent: {len(SAMPLES)} parallel samples wait in line between other requests")
    return ABSENT


if __name__ == "__main__":
    sys.exit(tell(sys.argv[1:]))
