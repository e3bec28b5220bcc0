"""Probe: does the pickle in a checkpoint get to run code when it is loaded?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The functions that load a checkpoint, a LoRA adapter or a prompt adapter are
cut out of the installed files by their syntax trees and run as they are. The stand-in for
torch.load is a real unpickler that, as before torch 2.6, runs what it is told unless it is
asked for weights only. The pickle makes a marker folder. Sound checkpoints must load.
"""

from __future__ import annotations
import __future__

import ast
import collections
import contextlib
import json
import os
import pickle
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_FILES = (
    "model_executor/model_loader/weight_utils.py",
    "lora/models.py",
    "prompt_adapter/utils.py",  # not in every release
)
_ITERATORS = ("pt_weights_iterator", "np_cache_weights_iterator")
_CONVERTER, _LORA, _PROMPT = (
    "convert_bin_to_safetensor_file",
    "from_local_checkpoint",
    "load_peft_weights",
)
_WANTED = (*_ITERATORS, _CONVERTER, _LORA, _PROMPT, "_shared_pointers", "enable_tqdm")
_WEIGHTS, _EMBEDDINGS = "adapter_model.bin", "new_embeddings.bin"


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class Tensor(SimpleNamespace):
    """All that the stand-in for torch knows."""

    cpu = detach = numpy = contiguous = lambda self: self
    data_ptr = lambda self: id(self)  # noqa: E731, PLW0108


class _Evil:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (self.marker,)


class _WeightsUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name != "Tensor":
            raise pickle.UnpicklingError(f"{module}.{name} is no weight")
        return Tensor


def _torch_load(path: str, *, weights_only: bool = False, **_: Any) -> Any:
    with open(path, "rb") as file:
        return (_WeightsUnpickler if weights_only else pickle.Unpickler)(file).load()


def _save(content: Any, path: str, **_: Any) -> None:
    with open(path, "wb") as file:
        pickle.dump(content, file)


def probe(package: str) -> str:
    """Tell what goes wrong in the vLLM in the folder PACKAGE, or nothing."""
    functions = _load(package)
    ways = [(name, _WEIGHTS) for name in _WANTED[:5] if name in functions]
    for name, evil in [*ways, (_LORA, _EMBEDDINGS)]:
        sound = {"q": Tensor(value=1)}
        with tempfile.TemporaryDirectory() as folder:
            for file in (_WEIGHTS, _EMBEDDINGS):
                _save(sound, os.path.join(folder, file))
            try:
                loaded = _run(functions[name], name, folder)
            except Exception as error:
                raise CantTellError(f"{name} fails on a sound file: {error!r}") from error
            if loaded != (sound, sound) if name == _LORA else loaded != sound:
                raise CantTellError(f"{name} loads a sound file as {loaded}")
        with tempfile.TemporaryDirectory() as folder:
            marker = os.path.join(folder, "marker")
            for file in (_WEIGHTS, _EMBEDDINGS):
                content = {"q": _Evil(marker)} if file == evil else sound
                _save(content, os.path.join(folder, file))
            # Whether it is refused or breaks later makes no difference: only the marker counts.
            with contextlib.suppress(Exception):
                _run(functions[name], name, folder)
            if os.path.isdir(marker):
                return f"{name} runs what {evil} says"
    return ""


def _run(function: Any, name: str, folder: str) -> Any:
    """Load the file in FOLDER with a function of vLLM, and return what it found."""
    weights = os.path.join(folder, _WEIGHTS)
    converted = os.path.join(folder, "converted")
    offers = {
        "model_name_or_path": "model",
        "cache_dir": None,
        "hf_folder": folder,
        "hf_weights_files": [weights],
        "use_tqdm_on_load": False,
        "pt_load_map_location": "cpu",
        "pt_filename": weights,
        "sf_filename": converted,
        "cls": SimpleNamespace(from_lora_tensors=lambda **given: given),
        "lora_dir": folder,
        "expected_lora_modules": ["q"],
        "peft_helper": SimpleNamespace(target_modules=["q"]),
        "lora_model_id": 1,
        "device": "cpu",
        "model_id": folder,
    }
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"target_modules": ["q"], "r": 1, "lora_alpha": 1}, file)
    code = function.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = function(**{name: offers[name] for name in taken if name in offers})
    if name == _CONVERTER:
        return _torch_load(converted)
    return (found["tensors"], found["embeddings"]) if name == _LORA else dict(found)


def _load(package: str) -> dict[str, Any]:
    torch = SimpleNamespace(
        load=_torch_load,
        device=str,
        equal=lambda one, other: one == other,
        from_numpy=lambda array: array,
        cuda=SimpleNamespace(empty_cache=lambda: None),
        distributed=SimpleNamespace(is_initialized=lambda: False),
    )
    names: dict[str, Any] = {
        "os": os,
        "json": json,
        "torch": torch,
        "np": SimpleNamespace(save=lambda file, one: pickle.dump(one, file), load=pickle.load),
        "defaultdict": collections.defaultdict,
        "tqdm": lambda files, **_: files,
        "_BAR_FORMAT": "",
        "get_lock": lambda *_: contextlib.nullcontext(),
        "save_file": _save,
        "load_file": _torch_load,
        "WEIGHTS_NAME": _WEIGHTS,
        "SAFETENSORS_WEIGHTS_NAME": "adapter_model.safetensors",
        "PEFTHelper": SimpleNamespace(from_dict=lambda config: SimpleNamespace(**config)),
    }
    for path in (os.path.join(package, *name.split("/")) for name in _FILES):
        if path.endswith("prompt_adapter/utils.py") and not os.path.exists(path):
            continue
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError) as error:
            raise CantTellError(f"{path} can't be read: {error}") from error
        body: list[Any] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in _WANTED:
                node.decorator_list = []
                body.append(node)
        # Annotations stay text: this Python may be too old for them, or lack what they name.
        flags = __future__.annotations.compiler_flag
        try:
            code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
            exec(code, names)  # noqa: S102 - a probe is there to run the installed code
        except Exception as error:
            raise CantTellError(f"the code of {path} does not stand alone: {error!r}") from error
    missing = {*_ITERATORS, _CONVERTER, _LORA} - names.keys()
    if missing:
        raise CantTellError(f"there is no {', '.join(sorted(missing))}")
    return names


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
    print("fault absent: no checkpoint or adapter runs what its pickle says")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
