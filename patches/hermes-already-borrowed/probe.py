"""Probe: can a Hermes tool parser be made while another thread uses the tokenizer?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. Hermes2ProToolParser of the installed hermes_tool_parser.py is run as it is,
with stand-ins for what it imports. The tokenizer is one, too: as a fast tokenizer does, it
raises "Already borrowed" from encode() while it is in use. Parsers are made for two of them,
free and in use, and must know the tags as each of them splits them.
"""

from __future__ import annotations
import __future__

import ast
import os
import re
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_CLASS = "Hermes2ProToolParser"
_STDLIB = ("__future__", "collections.abc", "copy", "functools", "json", "threading", "typing")
_FOLDERS = ("tool_parsers", os.path.join("entrypoints", "openai", "tool_parsers"))


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Users:
    """Who uses a tokenizer; a copy of the tokenizer has no users yet."""

    in_use = False

    def __deepcopy__(self, _memo: Any) -> _Users:
        return _Users()


class _Tokenizer:
    """A fast tokenizer that splits a text with a pattern."""

    vocabulary = ("<tool_call>", "</tool_call>", "<", "</", "tool", "_call", ">")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.users = _Users()

    def encode(self, text: str, **_options: Any) -> list[int]:
        if self.users.in_use:
            raise RuntimeError("Already borrowed")
        return [self.vocabulary.index(token) for token in re.findall(self.pattern, text)]

    def decode(self, ids: list[int], **_options: Any) -> str:
        return "".join(self.vocabulary[number] for number in ids)

    def get_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.vocabulary)}


class _Base:
    """Stands in for ToolParser."""

    def __init__(self, tokenizer: _Tokenizer, _tools: Any = None) -> None:
        self.model_tokenizer = tokenizer

    @property
    def vocab(self) -> dict[str, int]:
        return self.model_tokenizer.get_vocab()


def load(package: str) -> Any:
    """Run the class of the vLLM in the folder PACKAGE, and nothing else of its file."""
    paths = [os.path.join(package, folder, "hermes_tool_parser.py") for folder in _FOLDERS]
    path = next((path for path in paths if os.path.exists(path)), paths[0])
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    module = {
        "MistralTokenizer": type("MistralTokenizer", (), {}),
        "ToolParser": _Base,
        "ToolParserManager": SimpleNamespace(register_module=lambda _name: lambda cls: cls),
        "is_mistral_tokenizer": lambda _tokenizer: False,
        "logger": mock.MagicMock(),
        "re": re,
    }
    body = [node for node in tree.body if _is_wanted(node)]
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags, True), module)  # noqa: S102
    if _CLASS not in module:
        raise CantTellError(f"{path} has no class {_CLASS}")
    return module[_CLASS]


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in _STDLIB
    if isinstance(node, ast.Import):
        return all(alias.name in _STDLIB for alias in node.names)
    return isinstance(node, ast.FunctionDef) or getattr(node, "name", "") == _CLASS


def check(parser: Any, tokens: list[str]) -> None:
    """See whether PARSER holds back the TOKENS of the opening tag until it is whole."""
    if not hasattr(parser, "tool_call_delta_buffer"):
        return  # Releases before and after the affected ones know the tags as text.
    seen = [parser.tool_call_delta_buffer(text) for text in ["a", *tokens, "b"]]
    if seen != ["a", *[""] * (len(tokens) - 1), "<tool_call>", "b"]:
        raise CantTellError(f"the tokens {tokens} are buffered in a way not known here: {seen}")


def probe(package: str) -> str:
    """Return the error of a parser whose tokenizer is in use, or nothing."""
    whole, parts = _Tokenizer(r"</?tool_call>"), _Tokenizer(r"</?|tool|_call|>")
    faults = []
    try:
        cls = load(package)
        for in_use in (True, False, True):
            for tokenizer, tokens in (whole, ["<tool_call>"]), (parts, ["<", "tool", "_call", ">"]):
                tokenizer.users.in_use = in_use
                try:
                    check(cls(tokenizer), tokens)
                except RuntimeError as error:
                    if not in_use or "borrowed" not in str(error):
                        raise
                    faults.append(f"RuntimeError: {error}")
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the parser works in a way not known here: {error!r}") from error
    return faults[0] if faults else ""


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
        print(f"fault present: a parser is made while the tokenizer is in use: {fault}")
        return PRESENT
    print("fault absent: parsers can be made while the tokenizer is in use")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
