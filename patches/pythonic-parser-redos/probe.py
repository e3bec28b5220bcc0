"""Probe: can a short answer of the model keep the pythonic tool parser busy for ever?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The parser is cut out of the installed file by its syntax tree and run as it
is, with stand-ins for the messages of the protocol. It gets answers that never close what they
open; a sound pattern sees that in microseconds, the reported one would need years. What counts
is the processor time of this process, so a busy machine makes no difference. Lists of calls
must still be found, and other texts must stay texts.
"""

from __future__ import annotations
import __future__

import ast
import json
import os
import re
import signal
import sys
from types import SimpleNamespace
from typing import Any, NoReturn

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

SECONDS = 5.0
_FILE = "entrypoints/openai/tool_parsers/pythonic_tool_parser.py"

ENDLESS = ("[f(" + "a=1, " * 60, "[A(A=" + "\t)A(A=,\t" * 40)
CALLS = {
    '[get(city="Paris, (France)", n=3), now()]': [
        ("get", {"city": "Paris, (France)", "n": 3}),
        ("now", {}),
    ],
    "[now( ), now()]": None,
    "[now() , now()]": None,
    "[now(), \n now() ]": [("now", {}), ("now", {})],
    "[f_1(a=[1, {'b': 'c)]'}]) ]": [("f_1", {"a": [1, {"b": "c)]"}]})],
    "Hello (and = goodbye)": None,
    "[]": None,
    "[1, 2]": None,
    "[f(1)]": None,
    "[f(a=1)] and more": None,
}


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _TooLongError(BaseException):
    """Is no Exception, so that the parser does not take it for one of its own."""


def probe(package: str) -> str:
    """Tell what goes wrong in the vLLM in the folder PACKAGE, or nothing."""
    signal.signal(signal.SIGVTALRM, _stop)
    parser = _load(os.path.join(package, *_FILE.split("/")))
    for text, expected in CALLS.items():
        found = _calls(parser, text)
        if found != expected:
            raise CantTellError(f"{text!r} is parsed as {found}, in a way not known here")
    for text in ENDLESS:
        try:
            found = _calls(parser, text)
        except _TooLongError:
            return f"an answer of {len(text)} characters is not parsed within {SECONDS:g} s"
        if found is not None:
            raise CantTellError(f"{text[:20]!r}… is taken for {found}")
    return ""


def _calls(parser: Any, text: str) -> Any:
    """Return the names and arguments that the parser finds in TEXT, or None if it is a text."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        found = parser.extract_tool_calls(text, None)
    except Exception as error:
        raise CantTellError(f"the parser ends with {error!r}") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if not found.tools_called and found.content == text:
        return None
    functions = [call.function for call in found.tool_calls]
    return [(function.name, json.loads(function.arguments)) for function in functions]


def _stop(*_: object) -> NoReturn:
    raise _TooLongError


def _load(path: str) -> Any:
    """Make the parser of the file at PATH, with the module for patterns that it names."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    imports = [node for node in tree.body if isinstance(node, ast.Import)]
    pattern_module: Any = re
    if any(name.name == "regex" for node in imports for name in node.names):
        try:
            import regex as pattern_module  # type: ignore[import-untyped, no-redef]
        except ImportError as error:
            raise CantTellError("this vLLM uses the module regex, which is not here") from error
    names: dict[str, Any] = {
        "ast": ast,
        "json": json,
        "re": pattern_module,
        "envs": SimpleNamespace(VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS=1),
        "logger": SimpleNamespace(**dict.fromkeys(("exception", "warning", "debug"), _pass)),
        "ToolParser": type("ToolParser", (), {"__init__": _pass}),
        "ToolParserManager": SimpleNamespace(register_module=lambda _: lambda parser: parser),
    }
    for name in ("ExtractedToolCallInformation", "ToolCall", "FunctionCall"):
        names[name] = SimpleNamespace
    body: list[Any] = [
        node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    ]
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    try:
        code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
        exec(code, names)  # noqa: S102 - a probe is there to run the installed code
        return names["PythonicToolParser"](None)
    except Exception as error:
        raise CantTellError(f"the parser does not stand alone: {error!r}") from error


def _pass(*_: object, **__: object) -> None:
    pass


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
    print(f"fault absent: {len(CALLS) + len(ENDLESS)} answers of a model are parsed as they should")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
