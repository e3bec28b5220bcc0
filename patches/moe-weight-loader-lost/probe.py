"""Probe: can the weights of an unquantized MoE layer be loaded a second time?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. UnquantizedFusedMoEMethod of the installed fused_moe/layer.py is run as it is,
with small stand-ins for torch and for what else it uses. Weights are made, loaded, processed
and loaded again, as at a weight update; on ROCm, processing must still pad them.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_CLASS = "UnquantizedFusedMoEMethod"
_AITER = "vllm.model_executor.layers.fused_moe.rocm_aiter_fused_moe"
_WEIGHTS = ("w13_weight", "w2_weight")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Tensor:
    """Has memory that is shared with what is cut out of it, and knows if it was padded."""

    def __init__(self, memory: list[str], *, padded: bool = False) -> None:
        self.memory = memory
        self.padded = padded

    def stride(self, dimension: int) -> int:
        return {-1: 1, -2: 512}[dimension]

    def element_size(self) -> int:
        return 2

    def __getitem__(self, _index: Any) -> _Tensor:
        return _Tensor(self.memory, padded=self.padded)


class Parameter:
    """Stands in for torch.nn.Parameter."""

    def __init__(self, data: _Tensor, *, requires_grad: bool = True) -> None:
        self.data = data
        self.requires_grad = requires_grad


class _Base:
    """Stands in for the bases of the class."""

    def process_weights_after_loading(self, layer: Any) -> None:
        pass

    @staticmethod
    def register(_name: str) -> Any:
        return lambda cls: cls


def _set_weight_attrs(weight: Any, attributes: dict[str, Any]) -> None:
    vars(weight).update(attributes)


def _load_weight(parameter: Parameter, text: str) -> None:
    parameter.data.memory.append(text)


def live(path: str, *, rocm: bool) -> str:
    """Make, load, process and load weights; return what is wrong with that, or nothing."""
    platform = mock.MagicMock(
        **{f"is_{name}.return_value": False for name in ("cpu", "tpu", "xpu", "cuda", "hpu")},
        **{"is_rocm.return_value": rocm, "is_cuda_alike.return_value": True},
    )
    torch = mock.MagicMock()
    torch.nn.Parameter = Parameter
    torch.empty = lambda *_size, **_options: _Tensor([])
    module = {
        "CustomOp": _Base,
        "F": SimpleNamespace(pad=lambda tensor, *_how: _Tensor(list(tensor.memory), padded=True)),
        "FusedMoEMethodBase": type("FusedMoEMethodBase", (), {}),
        "__name__": "layer",
        "current_platform": platform,
        "envs": mock.MagicMock(VLLM_ROCM_MOE_PADDING=True),
        "set_weight_attrs": _set_weight_attrs,
        "torch": torch,
    }
    sys.modules[_AITER] = aiter = ModuleType(_AITER)
    vars(aiter).update(is_rocm_aiter_moe_enabled=lambda: False, shuffle_weights=None)
    method = _load(path, module)()
    layer = SimpleNamespace()
    layer.register_parameter = lambda name, parameter: setattr(layer, name, parameter)
    method.create_weights(layer, 4, 8, 16, "bfloat16", weight_loader=_load_weight)
    for name in _WEIGHTS:
        parameter = getattr(layer, name)
        parameter.weight_loader(parameter, "first")
    method.process_weights_after_loading(layer)
    for name in _WEIGHTS:
        parameter = getattr(layer, name)
        if parameter.data.padded is not rocm or parameter.data.memory != ["first"]:
            raise CantTellError(f"{name} is not processed in the way known here")
        try:
            loader = parameter.weight_loader
        except AttributeError as error:
            return str(error)
        loader(parameter, "second")
        if getattr(layer, name).data.memory != ["first", "second"]:
            raise CantTellError(f"{name} is not loaded in the way known here")
    return ""


def _load(path: str, module: dict[str, Any]) -> Any:
    """Run the class in the file at PATH, and nothing else of it, in MODULE."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    body = [node for node in tree.body if getattr(node, "name", "") == _CLASS]
    if not body:
        raise CantTellError(f"{path} has no class {_CLASS}")
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags, True), module)  # noqa: S102
    return module[_CLASS]


def probe(package: str) -> str:
    """Return the fault that was seen, or nothing."""
    path = os.path.join(package, "model_executor", "layers", "fused_moe", "layer.py")
    try:
        return live(path, rocm=False) or live(path, rocm=True)
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the class works in a way not known here: {error!r}") from error


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
        print(f"fault present: when weights are loaded again: {fault}")
        return PRESENT
    print("fault absent: the weights of a MoE layer can be loaded again")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
