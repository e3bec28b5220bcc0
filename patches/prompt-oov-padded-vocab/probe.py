"""Probe: is a prompt refused for a token id that the model itself can sample?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. A model's vocabulary may be padded: it then has more rows than the tokenizer
has tokens, and can sample an id that the tokenizer does not know. The methods of Processor
that check a prompt are cut out of the installed v1/engine/processor.py by its syntax tree
and run as they are, on such a model; neither vllm nor torch is imported. What no row of the
model stands for must go on being refused.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_METHODS = ("_validate_model_inputs", "_validate_model_input")

# The ids that the tokenizer knows end at 9. Rows of the model: prompts, and whether they are in
# the vocabulary. A model may also have fewer rows: the ids of images have none.
_LAST_TOKEN = 9
_PADDED = 16
_PROMPTS = {
    _PADDED: {(1, 9): True, (1, 10, 2): True, (15,): True, (1, 16): False, (99,): False},
    _LAST_TOKEN + 1: {(1, 9): True, (10,): False},
    _LAST_TOKEN - 1: {(8, 9): True, (10,): False},
}
_OUT = "Token id {} is out of vocabulary"
_EMPTY, _LONG = (), (1,) * 101


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def refused(package: str) -> list[str]:
    """Return the refusals of prompts that the vLLM in the folder PACKAGE should accept."""
    processor = _load(os.path.join(package, "v1", "engine", "processor.py"))
    found = []
    try:
        for rows, prompts in _PROMPTS.items():
            for prompt, is_in in prompts.items():
                answer = _check(processor(), rows, prompt)
                if answer not in ("", _OUT.format(max(prompt))):
                    raise CantTellError(f"a prompt is refused in a way not known here: {answer}")
                if not (is_in or answer):
                    raise CantTellError(f"id {max(prompt)} is accepted for {rows} rows")
                if is_in and answer:
                    found.append(f"{answer!r}, says a model of {rows} rows")
        others = [_check(processor(), _PADDED, prompt) for prompt in (_EMPTY, _LONG)]
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the checks work in a way not known here: {error!r}") from error
    if not ("empty" in others[0] and "longer" in others[1]):
        raise CantTellError(f"an empty and a long prompt are answered by {others}")
    return found


def _check(processor: Any, rows: int, prompt: Sequence[int]) -> str:
    """Return why the prompt is refused, or nothing."""
    tokenizer = SimpleNamespace(max_token_id=_LAST_TOKEN)
    tokenizer.get_lora_tokenizer = lambda *_: tokenizer
    processor.tokenizer = tokenizer
    processor.model_config = SimpleNamespace(
        get_vocab_size=lambda: rows,
        is_multimodal_model=False,
        max_model_len=100,
        skip_tokenizer_init=False,
    )
    inputs = {"type": "token", "prompt_token_ids": list(prompt)}
    # From 0.11.0 on the inputs come apart: those of the encoder, which is not there, are first.
    check = getattr(processor, _METHODS[0])
    apart = "decoder_inputs" in inspect.signature(check).parameters
    try:
        check(*((None, inputs) if apart else (inputs,)))
    except ValueError as error:
        return str(error)
    return ""


def _load(path: str) -> Any:
    """Run the methods that check a prompt, and nothing else of the file at PATH."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    classes = [node for node in tree.body if getattr(node, "name", "") == "Processor"]
    if len(classes) != 1 or not isinstance(classes[0], ast.ClassDef):
        raise CantTellError(f"{path} has no class Processor")
    cut = classes[0]
    cut.body = [node for node in cut.body if getattr(node, "name", "") in _METHODS]
    if _METHODS[0] not in {getattr(node, "name", "") for node in cut.body}:
        raise CantTellError(f"{path} has no {_METHODS[0]} in its class Processor")
    # What the methods call of other modules, for a model without an encoder.
    module = {
        "is_encoder_decoder_inputs": lambda _: False,
        "split_enc_dec_inputs": lambda inputs: (None, inputs),
        "SingletonInputsAdapter": lambda inputs: SimpleNamespace(**inputs),
        "length_from_prompt_token_ids_or_embeds": lambda ids, _: len(ids),
    }
    flags = __future__.annotations.compiler_flag  # they stay text: what they name is not here
    try:
        code = compile(ast.Module([cut], []), path, "exec", flags=flags, dont_inherit=True)
        exec(code, module)  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"Processor of {path} does not stand alone: {error!r}") from error
    return module["Processor"]


def main(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        found = refused(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if found:
        print(f"fault present: ValueError: {found[0]}")
        return PRESENT
    print("fault absent: a prompt is refused for the ids that no row of the model stands for")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
