"""Probe: does the qwen3_coder tool parser run what the model wrote as Python code?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The installed qwen3coder_tool_parser.py is run as it is, with stand-ins for
what it imports from vllm, and is given the text of a model whose tool call has an expression
for a value. The expression only makes an empty file, in a temporary folder: if the file is
there, the code was run. An honest tool call must come out as it always did.
"""

from __future__ import annotations
import __future__

import ast
import json
import logging
import os
import re
import sys
import tempfile
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

# Where the parser was and is. What is not of type string, number or boolean was evaluated.
_PLACES = ("entrypoints/openai/tool_parsers", "tool_parsers")
_TYPES = ("object", "array", "dict", "any", "null")

_HONEST_TYPES = {"s": "string", "i": "integer", "n": "number", "b": "boolean", "o": "object"}
_HONEST = {"s": "1 + 1", "i": "3", "n": "0.5", "b": "true", "o": '{"a": [1, null]}'}
_HONEST_RESULT = {"s": "1 + 1", "i": 3, "n": 0.5, "b": True, "o": {"a": [1, None]}}


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def obeyed(package: str) -> list[str]:
    """Return the parameter types for which the parser runs an expression of the model."""
    parser_class = _load(package)
    try:
        result = _parse(parser_class, _HONEST, _HONEST_TYPES)
        literal = _parse(parser_class, {"x": "[1, 'two']"}, {"x": "array"})
        with tempfile.TemporaryDirectory() as folder:
            run = [kind for kind in _TYPES if _runs(parser_class, kind, folder)]
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the parser works in a way not known here: {error!r}") from error
    # A list in the way of Python is a list or, where nothing evaluates it, its text.
    if result != _HONEST_RESULT or literal["x"] not in ([1, "two"], "[1, 'two']"):
        raise CantTellError(f"an honest tool call comes out as {result} and {literal}")
    return run


def _runs(parser_class: Any, kind: str, folder: str) -> bool:
    marker = os.path.join(folder, kind)
    _parse(parser_class, {"x": f"open({marker!r}, 'x').close()"}, {"x": kind})
    return os.path.exists(marker)


def _parse(parser_class: Any, values: dict[str, str], types: dict[str, str]) -> Any:
    """Return the arguments that the parser finds in a tool call with these values."""
    text = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    text = f"<tool_call>\n<function=f>\n{text}</function>\n</tool_call>"
    properties = {name: {"type": kind} for name, kind in types.items()}
    function = SimpleNamespace(name="f", parameters={"type": "object", "properties": properties})
    tools = [SimpleNamespace(type="function", function=function)]
    parser = parser_class(SimpleNamespace())
    found = parser.extract_tool_calls(text, SimpleNamespace(tools=tools))
    if [call.function.name for call in found.tool_calls] != ["f"]:
        raise CantTellError("the parser does not find the tool call in the text")
    return json.loads(found.tool_calls[0].function.arguments)


def _load(package: str) -> Any:
    """Run the parser's file with stand-ins, and return the parser's class."""
    logging.disable()  # the parser warns of each value that it can't read
    paths = [os.path.join(package, place, "qwen3coder_tool_parser.py") for place in _PLACES]
    path = next(filter(os.path.exists, paths), paths[0])
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm."):
            sys.modules[str(node.module)] = _StandIn(str(node.module))
    sys.modules["regex"] = re  # its expressions here mean the same to both
    module = ModuleType("parser")
    flags = __future__.annotations.compiler_flag  # this Python may be too old for annotations
    try:
        code = compile(tree, path, "exec", flags=flags, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"{path} does not stand alone: {error!r}") from error
    if not hasattr(module, "Qwen3CoderToolParser"):
        raise CantTellError(f"{path} has no class Qwen3CoderToolParser")
    return module.Qwen3CoderToolParser


class _ToolParser:
    def __init__(self, *_: Any) -> None:
        self.model_tokenizer = True
        self.vocab = {"<tool_call>": 1, "</tool_call>": 2}


class _StandIn(ModuleType):
    """A module of vllm, in which every class only keeps what it is given."""

    ToolParser = _ToolParser
    ToolParserManager = SimpleNamespace(register_module=lambda *_: lambda parser: parser)
    init_logger = staticmethod(logging.getLogger)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace


def main(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        run = obeyed(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if run:
        print(f"fault present: a value that the model wrote was run as code (type {run[0]})")
        return PRESENT
    print(f"fault absent: code that the model wrote was not run, for {len(_TYPES)} types of value")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
