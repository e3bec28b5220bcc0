"""Probe: does a request that ends before its first token stop the iteration statistics?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The classes of statistics are cut out of the installed v1/metrics/stats.py by
its syntax tree and run as they are; neither vllm nor torch is imported. Each story below is
what one request sends to the front end, with and without a LoRA adapter: one number per
output, which is how many new tokens are in it.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

STORIES = {
    "gives tokens and finishes": (1, 1),
    "gives several tokens at once and finishes": (3,),
    "is aborted after its first token": (1, 0),
    "is aborted before its first token": (0,),
}

_CLASSES = (
    "LoRAStats",
    "RequestStateStats",
    "FinishedRequestStats",
    "IterationStats",
    "LoRARequestStates",
)
_IMPORTS = ("collections", "dataclasses", "enum", "time", "typing")
_PROMPT = 7


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def live(package: str) -> dict[str, str]:
    """Live through all stories; return what went wrong in those that the fault spoils."""
    module = _load(os.path.join(package, "v1", "metrics", "stats.py"))
    faults = {}
    for story, sizes in STORIES.items():
        for lora in (None, module.LoRAStats()):
            try:
                stats = _live(module, sizes, lora)
            except AssertionError as error:
                if sum(sizes):
                    raise CantTellError(f"a request that {story} fails: {error!r}") from error
                faults[story] = repr(error)
                continue
            except Exception as error:
                raise CantTellError(f"the classes work in an unknown way: {error!r}") from error
            _check(stats, story, sizes)
    return faults


def _live(module: Any, sizes: Sequence[int], lora: Any) -> Any:
    """Call the classes as the output processor does, once per output and at the end."""
    stats = module.IterationStats()
    request = module.RequestStateStats(arrival_time=1.0)
    for number, size in enumerate(sizes):
        output = SimpleNamespace(request_id="r1", new_token_ids=[5] * size, events=None)
        stats.update_from_output(output, 2.0 + number, number == 0, _PROMPT, request, lora)
    stats.update_from_finished_request("a reason", _PROMPT, 16, request)
    return stats


def _check(stats: Any, story: str, sizes: Sequence[int]) -> None:
    """Make sure that what is counted is right; only a token-less end is left to the release."""
    told = [stats.num_generation_tokens, len(stats.finished_requests)]
    told += [finished.num_generation_tokens for finished in stats.finished_requests]
    right = [sum(sizes), 1, sum(sizes)]
    if sizes[0]:
        told += [len(stats.time_to_first_tokens_iter), stats.num_prompt_tokens]
        right += [1, _PROMPT]
    if told != right:
        raise CantTellError(f"a request that {story} is counted as {told}, not as {right}")


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
    module = sys.modules["vllm.v1.metrics.stats"] = ModuleType("vllm.v1.metrics.stats")
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module(body, []), path, "exec", flags, dont_inherit=True, optimize=0)
    try:
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the classes of {path} don't stand alone: {error!r}") from error
    return module


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name in _CLASSES
    if isinstance(node, ast.ImportFrom):
        return node.module in _IMPORTS
    return isinstance(node, ast.Import) and all(name.name in _IMPORTS for name in node.names)


def tell(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        faults = live(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    for story, fault in faults.items():
        print(f"fault present: {fault} when a request {story}")
        return PRESENT
    print(f"fault absent: {len(STORIES)} lives of a request are counted to their end")
    return ABSENT


if __name__ == "__main__":
    sys.exit(tell(sys.argv[1:]))
