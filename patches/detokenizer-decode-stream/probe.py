"""Probe: does one token that the decode stream can't take end the detokenizer of everybody?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The fast detokenizer is cut out of the installed v1/engine/detokenizer.py by
its syntax tree and run as it is, on stand-ins for the DecodeStream of tokenizers 0.21 and 0.22
that take the same arguments and raise the same errors. Usual texts must come out whole, and an
error that nobody knows must not be hidden.
"""

from __future__ import annotations
import __future__

import abc
import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

# Ids are code points, but for SPECIAL; BREAKS is refused by a stream that has been used.
NEGATIVE, HUGE, BREAKS, UNKNOWN, SPECIAL = -1, 2**32, 0xB6A, ord("!"), ord("#")
HELLO, BYE = tuple(map(ord, "hello")), tuple(map(ord, "bye"))


class Story(NamedTuple):
    """What one request says and is answered; ``text`` is what its user must see."""

    what: str
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    text: str
    skip_special_tokens: bool = True


USUAL = (
    Story("is usual", HELLO, BYE, "bye"),
    Story("has a short prompt", (65,), BYE, "bye"),
    Story("shows special tokens", HELLO, (66, SPECIAL, SPECIAL, 67), "B #<s>C", False),
)
ODD = Story("meets an unknown error", HELLO, (UNKNOWN,), "")
STORIES = (
    Story("samples the token id -1", HELLO, (*BYE, NEGATIVE, 65), "byeA"),
    Story("samples the token id 2**32", HELLO, (*BYE, HUGE, 65), "byeA"),
    Story("samples what is no continuation", HELLO, (*BYE, BREAKS, 65), f"bye{chr(BREAKS)}A"),
    Story("has a prompt that breaks the stream", (*HELLO, BREAKS), BYE, "bye"),
)

_CLASSES = ("IncrementalDetokenizer", "BaseIncrementalDetokenizer", "FastIncrementalDetokenizer")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Tokenizer:
    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids)).replace("#", " #")

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {SPECIAL: SimpleNamespace(content="<s>")}


class _Stream21:
    library = "tokenizers 0.21"
    invalid: Exception = OverflowError("out of range integral type conversion attempted")
    broken = Exception("Invalid prefix encountered")
    unknown = RuntimeError("unknown")
    swapped = TypeError("argument 'ids': 'bool' object cannot be converted to 'Sequence'")

    def __init__(self, skip_special_tokens: object) -> None:
        self.skips, self.used = skip_special_tokens, False

    def step(self, tokenizer: _Tokenizer, id: int) -> str:
        if not 0 <= id < HUGE:
            raise self.invalid
        if id == UNKNOWN:
            raise self.unknown
        if id == BREAKS and self.used:
            raise self.broken
        self.used = True
        return tokenizer.decode([id])


class _Stream22(_Stream21):
    library = "tokenizers 0.22"
    invalid = TypeError(
        "argument 'id': StreamInput must be either an integer or a list of integers"
    )
    broken = Exception("Invalid prefix encountered while decoding stream. Token ID: 2922")

    def __init__(self, ids: object = None, skip_special_tokens: object = None) -> None:
        if isinstance(ids, bool):
            raise self.swapped
        super().__init__(skip_special_tokens)


def live(package: str) -> list[str]:
    """Live through all stories on both streams; return the faults, in words."""
    path = os.path.join(package, "v1", "engine", "detokenizer.py")
    faults = []
    for stream in (_Stream21, _Stream22):
        fast = _load(path, stream).FastIncrementalDetokenizer
        for story in (*USUAL, *STORIES):
            error = _live(fast, story)
            known = any(error is one for one in (stream.invalid, stream.broken, stream.swapped))
            if known and story in STORIES:
                faults.append(f"{error!r} when a request {story.what}, with {stream.library}")
            elif error is not None:
                raise CantTellError(f"the detokenizer works in a way not known here: {error!r}")
        if _live(fast, ODD) is not stream.unknown:
            raise CantTellError("an error that nobody knows is hidden, or becomes another")
    return faults


def _live(fast: Any, story: Story) -> Exception | None:
    """Feed one request to the detokenizer as the output processor does; return its error."""
    params = SimpleNamespace(
        stop=[],
        min_tokens=0,
        include_stop_str_in_output=False,
        skip_special_tokens=story.skip_special_tokens,
        spaces_between_special_tokens=False,
    )
    request = SimpleNamespace(
        request_id="r1", prompt_token_ids=list(story.prompt), sampling_params=params
    )
    finished, delta, stopped = True, False, False
    try:
        detokenizer = fast(SimpleNamespace(_tokenizer=_Tokenizer()), request)
        for number in story.ids:
            detokenizer.update([number], stopped)
        text = detokenizer.get_next_output_text(finished, delta)
        ids = list(detokenizer.output_token_ids)
    except Exception as error:  # noqa: BLE001 - which one it is, is what the probe asks
        return error
    if text != story.text or ids != list(story.ids):
        raise CantTellError(f"a request that {story.what} gives {text!r}, not {story.text!r}")
    return None


def _load(path: str, stream: Any) -> Any:
    """Run the classes of the file at PATH, and nothing else of it, on some stream."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    body = [node for node in tree.body if _is_wanted(node)]
    missing = set(_CLASSES) - {getattr(node, "name", "") for node in body}
    if missing:
        raise CantTellError(f"{path} has no class {', '.join(sorted(missing))}")
    module = ModuleType("vllm.v1.engine.detokenizer")
    log = SimpleNamespace(**dict.fromkeys(("warning", "exception"), _say_nothing))
    vars(module).update(
        ABC=abc.ABC, abstractmethod=abc.abstractmethod, DecodeStream=stream, logger=log
    )
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    try:
        code = compile(ast.Module(body, []), path, "exec", flags, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the classes of {path} don't stand alone: {error!r}") from error
    return module


def _is_wanted(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ClassDef) and node.name in _CLASSES


def _say_nothing(message: str, *values: object) -> None:
    """Stand for a method of a logger, which must be given what its message asks for."""
    message % values


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
    if faults:
        print(f"fault present: {faults[0]} ({len(faults)} of {2 * len(STORIES)} go wrong)")
        return PRESENT
    print(f"fault absent: {len(STORIES)} requests with bad tokens are answered, on both streams")
    return ABSENT


if __name__ == "__main__":
    sys.exit(tell(sys.argv[1:]))
