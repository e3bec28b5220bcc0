"""Probe: is the code of a model's repository run though nobody trusts it?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The function that looks for a model among those of transformers is cut out
of the installed models/registry.py, or model_loader/utils.py before 0.10.1, and run as it is
on a repository made here, whose code only makes an empty file in a temporary folder. What
the function calls of transformers has stand-ins, which load code as transformers does. With
trust_remote_code the code must be run, and without it a model of transformers be found.
"""

from __future__ import annotations
import __future__

import ast
import logging
import os
import runpy
import sys
import tempfile
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

# The files that have the functions: the first one since 0.10.1, the second one before.
_FILES = (
    "model_executor/models/registry.py",
    "model_executor/model_loader/utils.py",
    "transformers_utils/dynamic_module.py",
)
_FUNCTIONS = (
    "_try_resolve_transformers",
    "resolve_transformers_arch",
    "resolve_transformers_fallback",
    "is_transformers_impl_compatible",
    "try_get_class_from_dynamic_module",
)
_CODE = """
import transformers
open({!r}, "w").close()
class Config: pass
class Model(transformers.PreTrainedModel): pass
"""


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Model:
    """Stands for transformers.PreTrainedModel."""

    _supports_flex_attn = supports_backend = True
    is_backend_compatible = _can_set_attn_implementation = staticmethod(lambda: True)


def fault_of(package: str) -> str:
    """Return the fault of the vLLM in the folder PACKAGE, or nothing."""
    resolve = _load(package)
    try:
        for impl in ("auto", "transformers"):
            for name, trust in (("Own", True), ("Known", True), ("Own", False), ("Known", False)):
                found, was_run = _resolve(resolve, name, impl, trust_remote_code=trust)
                if was_run and not trust:
                    return f"the code of a repository was run (model_impl={impl})"
                should_find = trust or name == "Known"
                if trust > was_run or should_find is not found.startswith("Transformers"):
                    raise CantTellError(f"{name} is {found!r} with trust_remote_code={trust}")
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"models are found in a way not known here: {error!r}") from error
    return ""


def _resolve(resolve: Any, name: str, impl: str, *, trust_remote_code: bool) -> tuple[str, bool]:
    """Return what is found for the architecture NAME, and whether its code was run."""
    with tempfile.TemporaryDirectory() as folder:
        marker = os.path.join(folder, "marker")
        with open(os.path.join(folder, "custom.py"), "w", encoding="utf-8") as file:
            file.write(_CODE.format(marker))
        auto_map = {"AutoConfig": "custom.Config", "AutoModel": "custom.Model"}
        config = SimpleNamespace(
            hf_config=SimpleNamespace(auto_map=auto_map),
            model=folder,
            revision=None,
            code_revision=None,
            trust_remote_code=trust_remote_code,
            model_impl=impl,
            _get_transformers_backend_cls=lambda: "TransformersForCausalLM",
        )
        try:
            found = resolve(name, config)
        except ValueError as error:  # as it should be for what can't be found
            found = f"ValueError: {error}"
        return str(found), os.path.exists(marker)


def _load(package: str) -> Any:
    """Return a function that resolves the name of an architecture, with a model's config."""
    cut = []
    for name in _FILES:
        try:
            with open(os.path.join(package, name), "rb") as file:
                tree = ast.parse(file.read(), name)
        except FileNotFoundError:
            continue
        except (OSError, SyntaxError, ValueError) as error:
            raise CantTellError(f"{name} can't be read: {error}") from error
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        cut += [function for function in functions if function.name in _FUNCTIONS]
    transformers = sys.modules["transformers"] = ModuleType("transformers")
    transformers.PreTrainedModel = transformers.Known = _Model
    logging.disable()
    module = SimpleNamespace(
        ModelImpl=SimpleNamespace(AUTO="auto", TRANSFORMERS="transformers", VLLM="vllm"),
        _TRANSFORMERS_BACKEND_MODELS={},
        _TRANSFORMERS_MODELS={},
        envs=SimpleNamespace(VLLM_USE_MODELSCOPE=False),
        get_class_from_dynamic_module=_get_class,
        logger=logging.getLogger(),
        resolve_trust_remote_code=_resolve_trust,
        transformers=transformers,
    )
    flags = __future__.annotations.compiler_flag  # they stay text: what they name is not here
    try:
        code = compile(ast.Module(cut, []), package, "exec", flags=flags, dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the functions of {package} don't stand alone: {error!r}") from error
    method, arch, fallback = (getattr(module, name, None) for name in _FUNCTIONS[:3])
    if method is not None:
        return lambda name, config: method(None, name, config)
    resolve = arch or fallback
    if resolve is None:
        raise CantTellError(f"no known function in {package} looks for models of transformers")
    return lambda name, config: resolve(config, [name])[0]


def _get_class(reference: str, folder: str, **_: Any) -> Any:
    file, name = reference.split(".")
    return runpy.run_path(os.path.join(folder, f"{file}.py"))[name]


def _resolve_trust(trust: Any, *_: Any, **__: Any) -> None:
    if not trust:
        raise ValueError("Please pass the argument `trust_remote_code=True`")


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
        print(f"fault present: without trust_remote_code {fault}")
        return PRESENT
    print("fault absent: the code of a repository is run with trust_remote_code only")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
