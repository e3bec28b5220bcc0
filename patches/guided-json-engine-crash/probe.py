"""Probe: does a request whose JSON schema or regular expression is broken reach the engine?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. The check of structured output in the front end is cut out of the installed
files by their syntax trees, and so is what makes a grammar in the engine, where an exception
is the end of all requests. Stand-ins for xgrammar and llguidance refuse what those refuse.
Good requests must pass, to xgrammar or to guidance, and what neither supports must not.
"""

from __future__ import annotations
import __future__

import ast
import json
import os
import re
import sys
from types import SimpleNamespace
from typing import Any

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_OUTPUT = "v1/structured_output/"
_FILES = (_OUTPUT + "utils.py", _OUTPUT + "backend_xgrammar.py", "v1/engine/processor.py")
_ENGINE = _OUTPUT + "__init__.py"

GOOD = {"json": {"type": "object", "properties": {"city": {"type": "string"}}}}
NOT_IN_XGRAMMAR = {"json": {"type": "integer", "multipleOf": 3}}
BROKEN = {
    "a JSON schema": {"json": {"type": "object", "properties": {"city": "string"}}},
    "a JSON schema as text": {"json": '{"type": "object", "properties": {"city": "string"}}'},
    "a regular expression": {"regex": "("},
}


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


def probe(package: str) -> str:
    """Tell what goes wrong in the vLLM in the folder PACKAGE, or nothing."""
    check, create = _load(package)
    outcomes = [check("xgrammar", GOOD), check("xgrammar", NOT_IN_XGRAMMAR)]
    backends = ["xgrammar"]
    if outcomes != ["xgrammar", None]:
        raise CantTellError(f"xgrammar gets requests in a way not known here: {outcomes}")
    if check("auto", GOOD) is not None:  # the first releases have no such choice
        outcomes = [check("auto", GOOD), check("auto", NOT_IN_XGRAMMAR)]
        backends.append("auto")
        if outcomes != ["xgrammar", "guidance"]:
            raise CantTellError(f"auto chooses in a way not known here: {outcomes}")
    for backend in backends:
        for name, request in BROKEN.items():
            if check(backend, request) is None:
                continue
            try:
                create(request)
            except RuntimeError as error:
                return f"{error!r} when {name} is broken and the backend is {backend}"
            except Exception as error:
                raise CantTellError(f"the engine ends with {error!r}") from error
            raise CantTellError(f"{name} that is broken is not refused, and does no harm")
    return ""


class _Params(SimpleNamespace):
    """Stands for GuidedDecodingParams."""

    def __init__(self, request: Any) -> None:
        nothing = dict.fromkeys(("json", "regex", "choice", "grammar", "json_object", "backend"))
        super().__init__(**{**nothing, "structural_tag": None, "backend_was_auto": False})
        vars(self).update(request)

    def backend_options(self) -> list[str]:
        return []

    def add_option(self, name: str) -> None:
        pass


def _refused(request: Any) -> str:
    """Say why a maker of grammars refuses a request, or nothing."""
    if request.get("regex"):
        try:
            re.compile(request["regex"])
        except re.error as error:
            return f"Regex parsing error: {error}"
    schema = request.get("json") or {}
    parsed = json.loads(schema) if isinstance(schema, str) else schema
    parts = parsed.get("properties", {}).values()
    return "" if all(isinstance(part, (dict, bool)) for part in parts) else "Bad schema"


def _make(request: Any, kind: type[Exception] = RuntimeError) -> None:
    if why := _refused(request):
        raise kind(why)


def _load(package: str) -> Any:
    """Return two functions: one checks a request, one makes its grammar in the engine."""
    platforms = SimpleNamespace(current_platform=SimpleNamespace(is_tpu=lambda: False))
    vllm: Any = SimpleNamespace(platforms=platforms)
    sys.modules.update({"vllm": vllm, "vllm.platforms": platforms})  # type: ignore[dict-item]
    grammar = SimpleNamespace(
        from_json_schema=lambda schema, **_: _make({"json": schema}),
        from_regex=lambda regex, **_: _make({"regex": regex}),
    )

    def guidance(params: Any, **_: Any) -> None:
        _make(vars(params.guided_decoding), ValueError)

    names: dict[str, Any] = {
        "json": json,
        "re": re,
        "vllm": vllm,
        "xgr": SimpleNamespace(Grammar=grammar),
        "validate_guidance_grammar": guidance,
        "StructuredOutputOptions": SimpleNamespace(JSON="json", REGEX="regex"),
    }
    for name in _FILES:
        _cut(os.path.join(package, *name.split("/")), names, ("_validate_structured_output",))
    _cut(os.path.join(package, *_ENGINE.split("/")), names, ("_async_create_grammar",))
    if not {"_validate_structured_output", "_async_create_grammar"} <= names.keys():
        raise CantTellError("structured output is checked or made in a way not known here")

    def check(backend: str, request: Any) -> str | None:
        config = SimpleNamespace(guided_decoding_backend=backend, backend=backend)
        config.disable_fallback = False
        server = SimpleNamespace(
            decoding_config=config,
            vllm_config=SimpleNamespace(speculative_config=None),
            model_config=SimpleNamespace(skip_tokenizer_init=False),
            tokenizer=None,
        )
        params = SimpleNamespace(guided_decoding=_Params(request))
        try:
            names["_validate_structured_output"](server, params)
        except ValueError:
            return None
        except Exception as error:
            raise CantTellError(f"the check of {request} ends with {error!r}") from error
        return str(params.guided_decoding.backend or backend)

    def create(request: Any) -> None:
        ((kind, value),) = request.items()
        key = (kind, value if isinstance(value, str) else json.dumps(value))
        backend = SimpleNamespace(compile_grammar=lambda *key: _make(dict([key])))
        compiler = SimpleNamespace(compile_json_schema=grammar.from_json_schema)
        manager = SimpleNamespace(compiler=compiler, backend=backend)
        output = SimpleNamespace(structured_output_key=key)
        given = [manager, SimpleNamespace(structured_output_request=output), backend]
        make = names["_async_create_grammar"]
        make(*given[: make.__code__.co_argcount])

    return check, create


def _cut(path: str, names: dict[str, Any], methods: tuple[str, ...]) -> None:
    """Run the functions of the file at PATH, and METHODS of its classes; nothing else."""
    if path.endswith("backend_xgrammar.py") and not os.path.exists(path):
        return  # 0.8.0 has none
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    body: list[Any] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        body += [one for one in inner if getattr(one, "name", "") in methods]
    # Annotations stay text: this Python may be too old for them, or lack what they name.
    flags = __future__.annotations.compiler_flag
    try:
        code = compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True)
        exec(code, names)  # noqa: S102 - a probe is there to run the installed code
    except Exception as error:
        raise CantTellError(f"the code of {path} does not stand alone: {error!r}") from error


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
        print(f"fault present: the engine is hit by {fault}")
        return PRESENT
    print("fault absent: a broken schema or regular expression is refused before the engine")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
