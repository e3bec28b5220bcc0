"""Probe: does an empty CUDA_VISIBLE_DEVICES stop the process that asks for a GPU's properties?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The function that turns the number of a GPU into the one that the driver knows
is cut out of the installed platforms/cuda.py, or where that has none out of
platforms/interface.py, by the syntax tree, and run as it is. An empty variable, which is what
Ray gives to an actor without GPUs, must be as good as none; with GPUs in it, the function must
give theirs.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NAME = "device_id_to_physical_device_id"


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def look(package: str) -> tuple[int, str]:
    """Give the exit status and the line."""
    function = _load(os.path.join(package, "platforms"))
    _expect(_ask(function, None), [0, 1])
    _expect(_ask(function, "5,3"), [5, 3])
    try:
        found = _ask(function, "")
    except (RuntimeError, ValueError) as error:
        words = " ".join(str(error).split()[:6])
        line = f"fault present: {type(error).__name__} for an empty {VARIABLE}: {words} ..."
        return PRESENT, line
    _expect(found, [0, 1])
    return ABSENT, f"fault absent: an empty {VARIABLE} is taken as one that is not set"


def _ask(function: Any, devices: str | None) -> list[int]:
    """Ask which the first two GPUs are, with DEVICES in the environment."""
    os.environ.pop(VARIABLE, None)
    if devices is not None:
        os.environ[VARIABLE] = devices
    return [function(0), function(1)]


def _expect(found: list[int], wanted: list[int]) -> None:
    if found != wanted:
        raise CantTellError(f"{_NAME} gives {found} where {wanted} is due")


def _load(folder: str) -> Any:
    """Run the definition of the function, and nothing else of its file."""
    path = os.path.join(folder, "cuda.py")
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef) and node.name == _NAME:
            return _exec(node, path)
    path = os.path.join(folder, "interface.py")
    for owner in _tree(path).body:
        if isinstance(owner, ast.ClassDef) and owner.name == "Platform":
            for item in owner.body:
                if isinstance(item, ast.FunctionDef) and item.name == _NAME:
                    item.decorator_list = []
                    method = _exec(item, path)
                    cuda = SimpleNamespace(device_control_env_var=VARIABLE)
                    return lambda device: method(cuda, device)
    raise CantTellError(f"neither cuda.py nor interface.py in {folder} has {_NAME}")


def _tree(path: str) -> ast.Module:
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error


def _exec(function: ast.FunctionDef, path: str) -> Any:
    module = vars(ModuleType("installed"))
    module["os"] = os
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    code = compile(ast.Module([function], []), path, "exec", flags=flags, dont_inherit=True)
    exec(code, module)  # noqa: S102 - a probe is there to run the installed code
    return module[_NAME]


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
        raise CantTellError(f"{_NAME} works in a way not known here: {error!r}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
