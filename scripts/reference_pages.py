"""Write the pages of docs/reference/ that are made from the program: the command line and Python.

python scripts/reference_pages.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

import vllm_patcher
from vllm_patcher import cli, errors, results
from vllm_patcher.cluster import folding, gathered, raylets
from vllm_patcher.install import Install
from vllm_patcher.plan import Edit
from vllm_patcher.probes import Probe
from vllm_patcher.results import FileStatus, Outcome
from vllm_patcher.states import Reason
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by scripts/reference_pages.py from the program. -->"

CLI_HEAD = f"""\
# Command line

{MADE}

`vllm-patcher` is another name of `vllm-patch`. `PATCH` is an id of a catalog, the path of a
diff file, or `-` for standard input, with `--id`. Results go to standard output;
warnings, errors and hints go to standard error. The [exit codes](exit-codes.md) are a contract,
and so is [what `--json` prints](json.md). Options come after the verb; each verb has `--help`.
"""
CLI_TAIL = """
## What the environment says

| variable | meaning |
|---|---|
| `VIRTUAL_ENV`, `CONDA_PREFIX` | Environments that may hold the vLLM that is meant; see \
[which one is meant](../installs.md#which-one-is-meant). |
| `VLLM_PATCH_CATALOG` | Catalogs to use besides the built-in one, with `:` between them, where \
`--catalog` is not given. |
| `VLLM_PATCH_CONFIG`, `VLLM_PATCH_PATCHES`, `VLLM_PATCH_STRICT`, `VLLM_PATCH_EXACT` | What a \
project wants; see [a project's own patches](config.md). |
| `PIP_INDEX_URL`, `UV_DEFAULT_INDEX`, `UV_INDEX_URL` | The index that `fit` asks, where \
`--index-url` is not given; the first that is set. |
| `PIP_CERT`, `REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE` | The certificates that `fit` trusts. |
| `XDG_CACHE_HOME` | Where `fit` keeps what it has read (`~/.cache`). |
| `SOURCE_DATE_EPOCH` | The time that changed files get, or the old one plus a second if \
that is later. |
| `NO_COLOR`, `FORCE_COLOR`, `TERM=dumb` | Whether text is coloured, where `--color` is not given. |
"""

PYTHON_HEAD = f"""\
# Python

{MADE}

The verbs are functions that take a `Request` and return a `Report`. Nothing is printed, no process
is ended, vLLM is not imported, and any number of processes may call any of them on one install at
once. Importing `vllm_patcher` costs nothing; what a verb needs is imported when it is called.

```python
from vllm_patcher import Refused, Request, apply, verify

request = Request(patches=("lora-finish-request",), python="/opt/venv")
try:
    report = apply(request)
except Refused as error:  # there is a vLLM, and the patch does not go in
    print(error.what, *error.facts, error.hint, sep="\\n")
    raise
print(report.wrote, {{patch.id: patch.state for patch in report.patches}})
assert verify(request).ok
```
"""
ERRORS_HEAD = """\
All others are subclasses of `VllmPatchError`, in the modules that the table names; `errors` of a
`Refused` and `failures` of a `Report` are made of them, and those of `cluster` are of answers about
many nodes. A `Request` or an `AdHoc` that can't be meant is a `TypeError` or a `ValueError` where
it is made. What is raised besides is a bug, or Python's own: `KeyboardInterrupt`, `MemoryError`.

| error | of | `code` | meaning |
|---|---|---|---|"""
SECTIONS: dict[str, tuple[type | str, ...]] = {
    "What to ask": ("Request", "AdHoc"),
    "Verbs": ("apply", "preview", "verify", "revert", "status", "changes", "locate"),
    "What they answer": ("Report", Outcome, Reason, Probe, FileStatus, Edit, Install),
    "What they raise": ("VllmPatchError", "Refused"),
}


def cli_page() -> str:
    """Return the page of all verbs and options."""
    context = click.Context(cli.vllm_patch)
    lines = [CLI_HEAD]
    for verb in cli.vllm_patch.list_commands(context):
        command = cli.vllm_patch.get_command(context, verb)
        if command is not None:
            lines += _verb(verb, command)
    return "\n".join(lines) + CLI_TAIL


def _verb(verb: str, command: click.Command) -> Iterator[str]:
    given = [_argument(param) for param in command.params if isinstance(param, click.Argument)]
    yield from (
        f"## {verb}",
        "",
        "```text",
        f"vllm-patch {verb} [OPTIONS] {' '.join(given)}".rstrip(),
    )
    yield from ("```", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        # \b is click's mark for lines that are to stay as they are.
        kept = paragraph.removeprefix("\b\n")
        yield from ["```text", kept, "```", ""] if kept != paragraph else [paragraph, ""]
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield from ("| option | meaning |", "|---|---|")
    for option in options:
        meaning = _cell(option.help or "") + _choices(option) + _default(option)
        yield f"| {_names(option)} | {meaning} |"
    yield ""


def _argument(argument: click.Argument) -> str:
    if isinstance(argument.type, click.Choice):
        return f"{{{'|'.join(map(str, argument.type.choices))}}}"
    return argument.metavar or str(argument.name).upper()


def _names(option: click.Option) -> str:
    *others, last = option.opts
    value = "" if option.is_flag else f" {option.metavar or last.lstrip('-').upper()}"
    return ", ".join(f"`{name}`" for name in [*others, last + value])


def _choices(option: click.Option) -> str:
    if not isinstance(option.type, click.Choice):
        return ""
    return f" One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."


def _default(option: click.Option) -> str:
    return (
        f" Default: `{option.default}`."
        if isinstance(option.default, str) and option.default
        else ""
    )


def _cell(text: str) -> str:
    """Write a text as a cell of a table; what is in brackets is for the eyes at a terminal."""
    text = re.sub(r"\s+\[([A-Z_, ]+)\]$", lambda found: f" Also: {found[1]}.", text)
    return text.replace("|", r"\|")


def python_page() -> str:
    """Return the page of all that is public in Python."""
    lines = [PYTHON_HEAD]
    for title, items in SECTIONS.items():
        lines += [f"## {title}", ""]
        for item in items:
            lines += _told(getattr(vllm_patcher, item) if isinstance(item, str) else item)
    lines += [ERRORS_HEAD]
    modules = (errors, results, folding, gathered, raylets)
    kinds = [kind for module in modules for kind in vars(module).values()]
    for kind in dict.fromkeys(filter(inspect.isclass, kinds)):
        if issubclass(kind, errors.VllmPatchError) and "code" in vars(kind):
            meaning = _cell(" ".join(_doc(kind).split()))
            place = kind.__module__.removeprefix("vllm_patcher.")
            lines.append(f"| `{kind.__name__}` | `{place}` | `{kind.code}` | {meaning} |")
    return "\n".join(lines) + "\n"


def _told(item: object) -> Iterator[str]:
    """Tell of one class or function."""
    name = str(getattr(item, "__name__", ""))
    place = str(getattr(item, "__module__", ""))
    public = name if name in vllm_patcher.__all__ else f"{place}.{name}"
    yield from (f"### {public}", "")
    if inspect.isfunction(item):
        yield from ("```python", _signature(item), "```", "")
    yield from (_doc(item), "")
    if not inspect.isclass(item):
        return
    if issubclass(item, Value):
        yield "```python"
        for field in item._fields:
            default = f" = {getattr(item, field)!r}" if hasattr(item, field) else ""
            yield f"{field}: {item.__annotations__[field]}{default}"
        yield from ("```", "")
    for key, value in vars(item).items():
        if isinstance(value, property):
            yield from (f"`{key}`: {_doc(value)}", "")


def _signature(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    given = []
    for param in signature.parameters.values():
        if param.kind is param.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        default = "Request()" if isinstance(param.default, Value) else repr(param.default)
        given.append(f"{param.name}: {param.annotation} = {default}")
    name = getattr(function, "__name__", "")
    return f"{name}({', '.join(given)}) -> {signature.return_annotation}"


def _doc(item: object) -> str:
    text = inspect.getdoc(item) or ""
    return re.sub(r":[a-z]+:(?=`)", "", text.replace("``", "`"))


PAGES = {"cli.md": cli_page, "python.md": python_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
