"""Reports that many hosts have written, such as with `srun vllm-patch verify --json`.

Always true here: a line that is no report is refused with its place; a file without any counts
as a node that said nothing.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from vllm_patcher.document import SCHEMA
from vllm_patcher.errors import VllmPatchError

from .nodes import SILENT, Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

VERBS = ("verify", "apply", "revert")


class InvalidReport(VllmPatchError):
    """What was to be a report of vllm-patch is none."""

    code = "invalid-report"


def read(path: str, data: bytes) -> Iterator[Node]:
    """Read the reports in a file, one a line. Raises InvalidReport."""
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines:
        yield Node(id=path, host=_stem(path), fate=SILENT, why=f"{path} is empty")
    for number, line in lines:
        where = f"{path}:{number}"
        report = _report(line, where)
        yield Node(id=where, host=report.get("host") or _stem(path), report=report)


def missing(nodes: Sequence[Node], expected: int) -> Iterator[Node]:
    """Make up for reports of which nobody knows where they should have come from."""
    why = f"{len(nodes)} of {expected} reports are there"
    for number in range(len(nodes), expected):
        yield Node(id=f"(missing {number + 1})", fate=SILENT, why=why)


def verb_of(nodes: Iterable[Node]) -> str:
    """The verb that all reports are of, `verify` if there is none. Raises InvalidReport."""
    verbs = sorted({node.report["verb"] for node in nodes if node.report is not None})
    if len(verbs) > 1:
        raise InvalidReport(f"reports of several verbs: {', '.join(verbs)}")
    return next(iter(verbs), "verify")


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _report(line: bytes, where: str) -> dict[str, Any]:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _invalid(where, f"it is not JSON: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise _invalid(where, f"it is no object with schema {SCHEMA}")
    if report.get("verb") not in VERBS or not _is_whole(report):
        raise _invalid(where, f"it is not what {', '.join(VERBS)} print with --json")
    return report


def _is_whole(report: dict[str, Any]) -> bool:
    """Say whether all that is read of a report is there, and of its kind."""
    try:
        return (
            isinstance(report["ok"], bool)
            and all(isinstance(e["code"] + e["what"], str) for e in report["errors"])
            and all(isinstance(fact, str) for e in report["errors"] for fact in e["facts"])
            and all(isinstance(p["id"] + p["state"], str) for p in report.get("patches", []))
            and all(isinstance(p["reasons"], list) for p in report.get("patches", []))
            and all(
                isinstance(f["path"], str) and "sha256_before" in f and "sha256_after" in f
                for f in report.get("files", [])
            )
            and isinstance(report.get("install", {"version": ""})["version"], str)
        )
    except (KeyError, TypeError):
        return False


def _invalid(where: str, why: str) -> InvalidReport:
    return InvalidReport(
        f"{where} is no report of vllm-patch",
        facts=[why],
        hint="vllm-patch verify --json > FILE on each host, and nothing else into FILE",
    )
