"""Probe: may LoRA be served by several data-parallel engines behind one front end?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. PrometheusStatLogger of the installed v1/metrics/loggers.py is run as it is,
with stand-ins for what it imports. It is made for one engine and for two, and each engine
reports an adapter that runs: this must be published both times.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from typing import Any
from unittest import mock

ABSENT, PRESENT, CANT_TELL = 0, 1, 77

_METRIC = "vllm:lora_requests_info"
_REAL = ("__future__", "abc", "collections", "collections.abc", "dataclasses", "functools")
_REAL += ("itertools", "logging", "os", "time", "typing")


class CantTellError(Exception):
    """Why the fault can be neither shown nor ruled out here."""


class _Metric:
    """Stands in for a Gauge, Counter or Histogram; notes the labels that are published."""

    published: list[dict[str, Any]] = []  # noqa: RUF012 - one list for all is what is wanted

    def __init__(self, *_args: Any, **options: Any) -> None:
        self.name = options["name"]
        self.labelnames = list(options["labelnames"])

    def labels(self, *values: Any, **named: Any) -> mock.MagicMock:
        labels = named or dict(zip(self.labelnames, values))
        if sorted(labels) != sorted(self.labelnames):
            raise ValueError(f"{self.name} has other labels than {sorted(labels)}")
        if self.name == _METRIC:
            self.published.append(labels)
        return mock.MagicMock()


_METRICS = {"Gauge": _Metric, "Counter": _Metric, "Histogram": _Metric}


def publish(module: dict[str, Any], engines: list[int]) -> list[dict[str, Any]]:
    """Let each of ENGINES report that an adapter runs; return what is published of it."""
    config = mock.MagicMock(speculative_config=None, kv_transfer_config=None)
    config.model_config.max_model_len = 4096
    config.model_config.served_model_name = "model"
    config.lora_config.max_loras = 4
    _Metric.published.clear()
    logger = module["PrometheusStatLogger"](config, engine_indexes=list(engines))
    for engine in engines:
        adapters = {"running_lora_adapters": {"ad": 1}, "waiting_lora_adapters": {}}
        stats = mock.MagicMock(**adapters)
        logger.record(stats, stats, engine_idx=engine)
    return list(_Metric.published)


def load(path: str) -> dict[str, Any]:
    """Run the file at PATH with stand-ins for its imports, up to and with the logger."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        raise CantTellError(f"{path} can't be read: {error}") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    wanted, todo = set(), ["PrometheusStatLogger"]
    while todo:  # The logger, and the bases of it that are in this file.
        name = todo.pop()
        if name in classes:
            wanted.add(name)
            todo += [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
    if not wanted:
        raise CantTellError(f"{path} has no class PrometheusStatLogger")
    module: dict[str, Any] = {"__name__": "vllm.v1.metrics.loggers", "logger": mock.MagicMock()}
    body = [node for node in tree.body if _is_wanted(node, wanted)]
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node not in body:
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                module[name] = _METRICS.get(name) or mock.MagicMock(name=name, **_METRICS)
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags, True), module)  # noqa: S102
    return module


def _is_wanted(node: ast.stmt, classes: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in _REAL
    if isinstance(node, ast.Import):
        return all(alias.name in _REAL for alias in node.names)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    return isinstance(node, ast.FunctionDef) or getattr(node, "name", "") in classes


def probe(package: str) -> str:
    """Return the error that two engines meet, or nothing."""
    label = {"max_lora": 4, "waiting_lora_adapters": "", "running_lora_adapters": "ad"}
    try:
        module = load(os.path.join(package, "v1", "metrics", "loggers.py"))
        alone = publish(module, [0])
        try:
            both = publish(module, [0, 1])
        except NotImplementedError as error:
            both, fault = [label, label], f"NotImplementedError: {error}"
        else:
            fault = ""
    except CantTellError:
        raise
    except Exception as error:
        raise CantTellError(f"the logger works in a way not known here: {error!r}") from error
    if [{name: one.get(name) for name in label} for one in alone + both] != [label] * 3:
        raise CantTellError("adapters are not published in the way known here")
    return fault


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
        print(f"fault present: LoRA with two data-parallel engines: {fault}")
        return PRESENT
    print("fault absent: the adapters of two data-parallel engines are published")
    return ABSENT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
