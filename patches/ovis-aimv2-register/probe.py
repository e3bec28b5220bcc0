"""Probe: does vLLM claim a name that transformers has for a model of its own?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The installed transformers_utils/configs/ovis.py, which `import vllm` reads,
is run as it is. In place of transformers it finds a stand-in, whose AutoConfig keeps names as
the real one does: once as before 4.54, and once as since 4.54, where 'aimv2' is taken. So the
answer does not hang on the transformers that is installed. Configs of Ovis must come out
right with both, and the name must go on meaning what transformers means by it.
"""

from __future__ import annotations
import __future__

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Config:
    """Stands for the config classes of transformers."""

    model_type = ""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class _Text(_Config):
    model_type = "qwen2"


class _Siglip(_Config):
    model_type = "siglip_vision_model"


class _Aimv2(_Config):
    model_type = "aimv2"


_BEFORE_454 = {kind.model_type: kind for kind in (_Text, _Siglip)}
_SINCE_454 = {**_BEFORE_454, "aimv2": _Aimv2}
_SIZE = 7


def fault_of(package: str) -> str:
    """Return the fault of the vLLM in the folder PACKAGE, or nothing."""
    path = os.path.join(package, "transformers_utils", "configs", "ovis.py")
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    try:
        for own in (_BEFORE_454, _SINCE_454):
            auto = _auto_config(own)
            try:
                module = _run(source, path, auto)
            except ValueError as error:
                if "is already used by a Transformers config" not in str(error):
                    raise
                return f"an import of vllm ends with ValueError: {error}"
            _check(module)
            if "aimv2" in own and auto.for_model("aimv2").__class__ is not own["aimv2"]:
                return "the name 'aimv2' no longer means the model of transformers"
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"{path} works in a way not known here: {error!r}") from error
    return ""


def _check(module: Any) -> None:
    """See that the config of Ovis is made of the right parts."""
    for whole, model_type, kind in (
        ("aimv2_visual_tokenizer", "aimv2", module.AIMv2Config),
        ("siglip_visual_tokenizer", "siglip_vision_model", _Siglip),
    ):
        backbone = {"model_type": model_type, "hidden_size": _SIZE}
        visual = {"model_type": whole, "backbone_config": backbone}
        config = module.OvisConfig({"model_type": "qwen2", "hidden_size": _SIZE}, visual)
        made = [config.text_config, config.visual_tokenizer_config.backbone_config]
        if [(type(one), one.hidden_size) for one in made] != [(_Text, _SIZE), (kind, _SIZE)]:
            raise CantTellError(f"a config of Ovis with {model_type} is made of {made}")


def _auto_config(own: dict[str, type]) -> Any:
    """Make an AutoConfig that knows the config classes OWN, as transformers does."""
    more: dict[str, type] = {}

    class AutoConfig:
        @staticmethod
        def register(model_type: str, config: type, *, exist_ok: bool = False) -> None:
            if model_type in own and not exist_ok:
                what = f"'{model_type}' is already used by a Transformers config"
                raise ValueError(f"{what}, pick another name.")
            more[model_type] = config

        @staticmethod
        def for_model(model_type: str, **values: Any) -> Any:
            return {**own, **more}[model_type](**values)

    return AutoConfig


def _run(source: bytes, path: str, auto_config: Any) -> Any:
    sys.modules["transformers"] = ModuleType("transformers")
    names = {"AutoConfig": auto_config, "PretrainedConfig": _Config, "PreTrainedConfig": _Config}
    vars(sys.modules["transformers"]).update(names)
    module = ModuleType("ovis")
    flags = __future__.annotations.compiler_flag  # this Python may be too old for annotations
    code = compile(source, path, "exec", flags=flags, dont_inherit=True)
    exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    return module


def main(arguments: Sequence[str]) -> int:
    """Print whether the fault is there, and return the exit status."""
    if len(arguments) != 1:
        print("can't tell: the folder of the vllm package must be the only argument")
        return CANT_TELL
    try:
        fault = fault_of(arguments[0])
    except CantTellError as error:
        print(f"can't tell: {error}")
        return CANT_TELL
    if fault:
        print(f"fault present: with transformers 4.54 or later, {fault}")
        return PRESENT
    print("fault absent: Ovis gets its configs, and 'aimv2' is left to transformers")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
