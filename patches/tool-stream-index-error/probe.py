"""Probe: does a streamed tool call that its parser has not fully tracked end in IndexError?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The statements that close a choice of a streamed chat completion with what is
left of its tool call are cut out of the installed server by its syntax tree, with the methods
they call, and run as they are; neither vllm nor pydantic is imported. The call is one that was
cut off before it was parsed, or one that the parser has recorded without what was streamed of
it. A call of which both are known must still get the rest of its arguments, and a plain
text must stay as it is.
"""

from __future__ import annotations
import __future__

import ast
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_FILES = ("entrypoints/openai/serving_chat.py", "entrypoints/openai/chat_completion/serving.py")
_GENERATOR = "chat_completion_stream_generator"
_METHODS = ("_should_check_for_unstreamed_tool_arg_tokens", "_create_remaining_args_delta")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Message(SimpleNamespace):
    """Stands for the messages of the protocol, which are only made, read and dumped here."""

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return vars(self)


class _FunctionCall(_Message):
    pass


def probe(package: str) -> str:
    """Tell what goes wrong in the vLLM in the folder PACKAGE, or nothing."""
    close = _load(package)
    call = {"name": "weather", "arguments": {"city": "Paris"}}
    parser = _parser([call], ['{"city": "Par'])
    try:
        closed = _arguments(close(parser, _call(""), "stop"))
        text = close(None, _Message(content="Paris", tool_calls=[]), "stop")
    except Exception as error:
        raise CantTellError(f"a whole tool call or a text fails as well: {error!r}") from error
    if closed != (0, 'is"}') or text.content != "Paris":
        raise CantTellError(f"a whole tool call ends with {closed}, in a way not known here")
    untracked = "recorded without what was streamed of it"
    for recorded, streamed, which in (
        ([], [], "cut off before it is parsed"),
        ([], [""], "cut off before it is parsed"),
        ([call], [], untracked),
        ([call, call], ['{"city": "Paris"}'], untracked),
    ):
        try:
            end = _arguments(close(_parser(recorded, streamed), _call('{"ci'), "length"))
        except IndexError as error:
            return f"IndexError: {error} at the end of a streamed tool call {which}"
        except Exception as error:
            raise CantTellError(f"a call {which} raises {error!r}") from error
        if end != (0, '{"ci'):
            raise CantTellError(f"a call {which} ends with {end}, which is not known here")
    return ""


def _parser(recorded: list[Any], streamed: list[str]) -> Any:
    return SimpleNamespace(prev_tool_call_arr=recorded, streamed_args_for_tool=streamed)


def _call(arguments: str) -> _Message:
    function = _FunctionCall(name=None, arguments=arguments)
    return _Message(
        content=None, tool_calls=[_Message(index=0, id=None, type=None, function=function)]
    )


def _arguments(message: Any) -> tuple[int, str]:
    call = message.tool_calls[0]
    function = call.function if isinstance(call.function, dict) else vars(call.function)
    return call.index, function["arguments"]


def _load(package: str) -> Any:
    """Make a function of the statements, which returns the last message of a choice."""
    paths = [os.path.join(package, *name.split("/")) for name in _FILES]
    path = next(filter(os.path.isfile, paths), paths[0])
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    if _GENERATOR not in functions:
        raise CantTellError(f"{path} has no {_GENERATOR}")
    maker: Any = ast.parse(
        "def close(self, tool_parser, delta_message, output): return delta_message"
    )
    maker.body[0].body[:0] = _statements(functions[_GENERATOR])
    maker.body += [functions[name] for name in _METHODS if name in functions]
    names: dict[str, Any] = {
        "json": json,
        "DeltaMessage": _Message,
        "DeltaToolCall": _Message,
        "DeltaFunctionCall": _FunctionCall,
    }
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    try:
        code = compile(maker, path, "exec", flags=flags, dont_inherit=True)
        exec(code, names)  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the code of {path} does not stand alone: {error!r}") from error
    methods = {name: names[name] for name in _METHODS if name in names}
    server = type("Server", (), {**methods, "enable_auto_tools": True, "tool_parser": object})()

    def close(parser: Any, message: Any, reason: str) -> Any:
        return names["close"](server, parser, message, SimpleNamespace(finish_reason=reason))

    return close


def _statements(generator: ast.AST) -> list[ast.stmt]:
    """Find the block that completes a tool call, from where it counts the calls."""
    bodies = [getattr(node, "orelse", None) for node in ast.walk(generator)]
    for body in (body for body in bodies if isinstance(body, list)):
        texts = [ast.dump(node) for node in body]
        first = [n for n, text in enumerate(texts) if text.startswith(_COUNTS)]
        last = [n for n, text in enumerate(texts) if "attr='streamed_args_for_tool'" in text]
        if first and last and first[0] < last[-1] and isinstance(body[last[-1]], ast.If):
            return body[first[0] : last[-1] + 1]
    raise CantTellError("the end of a streamed tool call is not written in a way known here")


# `index = 0`, `auto_tools_called = False` or `if tool_parser:`, whichever comes first.
_COUNTS = (
    "Assign(targets=[Name(id='index'",
    "Assign(targets=[Name(id='auto_tools_called'",
    "If(test=Name(id='tool_parser'",
)


def main(arguments: list[str]) -> int:
    """Print what was seen, and return the exit status."""
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
    print("fault absent: a streamed tool call that is not tracked ends with what was streamed")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
