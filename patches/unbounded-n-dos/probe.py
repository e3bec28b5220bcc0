"""Probe: may one request ask for any number of sequences?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The class SamplingParams is cut out of the installed sampling_params.py by its
syntax tree and run on a small stand-in for msgspec; neither vllm nor msgspec is imported. The
servers make a SamplingParams of each request before they copy the request n times, so what it
takes is what the engine begins to build. Usual numbers must be taken, and zero refused.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

USUAL = ({}, {"n": 1}, {"n": 2, "temperature": 0.7}, {"n": 128}, {"n": 1, "temperature": 0.0})
USUAL_BEST = ({"n": 2, "best_of": 4}, {"n": 4, "best_of": 4})
WRONG = ({"n": 0}, {"n": -1})
HUGE = ({"n": 10**9}, {"n": 20_000}, {"n": 2**70})
HUGE_BEST = ({"n": 1, "best_of": 10**9}, {"n": 10**9, "best_of": 10**9})

_LIMIT = "VLLM_MAX_N_SEQUENCES"
_IMPORTS = ("collections", "copy", "dataclasses", "enum", "functools", "typing", "warnings")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def taken(package: str) -> list[str]:
    """Return which of the huge requests the class in the folder PACKAGE takes."""
    os.environ.pop(_LIMIT, None)  # what this machine allows is not the question
    make = _load(os.path.join(package, "sampling_params.py")).SamplingParams
    has_best = hasattr(make, "best_of")
    for request in (*USUAL, *(USUAL_BEST if has_best else ())):
        if not _is_taken(make, request):
            raise CantTellError(f"a usual request is refused: {_told(request)}")
        if make(**request).n not in (request.get("n", 1), request.get("best_of")):
            raise CantTellError(f"a usual request is changed: {_told(request)}")
    for request in WRONG:
        if _is_taken(make, request):
            raise CantTellError(f"a request that never made sense is taken: {_told(request)}")
    huge = (*HUGE, *(HUGE_BEST if has_best else ()))
    return [_told(request) for request in huge if _is_taken(make, request)]


def _is_taken(make: Callable[..., Any], request: dict[str, Any]) -> bool:
    try:
        make(**request)
    except ValueError:  # what the servers answer with status 400
        return False
    except Exception as error:
        raise CantTellError(f"the class works in a way not known here: {error!r}") from error
    return True


def _told(request: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in request.items())


class _Struct:
    """As much of msgspec.Struct as SamplingParams needs: fields, defaults and __post_init__."""

    def __init_subclass__(cls, **options: Any) -> None:
        pass

    def __init__(self, **given: Any) -> None:
        for name in type(self).__annotations__:
            default = getattr(type(self), name)
            factory = getattr(default, "default_factory", None)
            setattr(self, name, given.pop(name, factory() if factory else default))
        if given:
            raise TypeError(f"there is no parameter {', '.join(given)}")
        self.__post_init__()  # type: ignore[attr-defined]


class _Mixin:
    """Stands for classes that bring no code that matters here."""


def _load(path: str) -> Any:
    """Run SamplingParams of the file at PATH, and the enumerations and constants it uses."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    module = ModuleType("vllm.sampling_params")
    vars(module).update(
        logger=SimpleNamespace(warning=print, warning_once=print),
        msgspec=SimpleNamespace(Struct=_Struct, field=SimpleNamespace),
        PydanticMsgspecMixin=_Mixin,
        VLLMValidationError=ValueError,
    )
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    body = [node for node in tree.body if _is_wanted(node)]
    try:
        code = compile(ast.Module(body, []), path, "exec", flags, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the code of {path} does not stand alone: {error!r}") from error
    if not hasattr(module, "SamplingParams"):
        raise CantTellError(f"{path} has no class SamplingParams")
    return module


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        bases = {getattr(base, "id", "") for base in node.bases}
        return node.name == "SamplingParams" or bool(bases & {"Enum", "IntEnum"})
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ImportFrom):
        return node.module in _IMPORTS
    return isinstance(node, ast.Import) and all(name.name in _IMPORTS for name in node.names)


def tell(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        faults = taken(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if faults:
        print(f"fault present: SamplingParams takes a request with {faults[0]}")
        return PRESENT
    print("fault absent: SamplingParams refuses a request for too many sequences")
    return ABSENT


if __name__ == "__main__":
    sys.exit(tell(sys.argv[1:]))
