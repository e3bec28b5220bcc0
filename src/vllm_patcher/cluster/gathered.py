"""Reports that many hosts have written, such as with `srun vllm-patch verify --json`.

Always true here: a line that is no report is refused with its place; a file without any counts
as a node that said nothing.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NoReturn

from vllm_patcher import visible
from vllm_patcher.cluster.nodes import SILENT, Node
from vllm_patcher.errors import VllmPatchError
from vllm_patcher.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

VERBS = ("verify", "apply", "revert")


_TEXT, _FLAG, _ABSENT = (str,), (bool,), object()
_PERHAPS = (str, type(None))
_ERROR = {"code": _TEXT, "what": _TEXT, "facts": [_TEXT], "hint": _PERHAPS}
_ANY = {"ok": _FLAG, "host": _TEXT, "errors": [_ERROR]}
_PROBE = ({"fault": _TEXT, "says": _TEXT}, type(None))
#: What there is besides where a vLLM was looked at, and where none was.
_WHOLE = {
    "install": {"name": _TEXT, "installed_version": _TEXT, "package": _TEXT},
    "wrote": _FLAG,
    "patches": [
        {
            "id": _TEXT,
            "state": _TEXT,
            "was": _TEXT,
            "adhoc": _FLAG,
            "probe": _PROBE,
            "reasons": [{"what": _TEXT, "path": _PERHAPS, "line": (int, type(None))}],
        }
    ],
    "edits": [_TEXT],
    "notes": [_TEXT],
    "files": [{"path": _TEXT, "sha256_before": _PERHAPS, "sha256_after": _PERHAPS}],
}
_BARE = dict.fromkeys(_WHOLE, _ABSENT)


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
        yield Node(id=where, host=report["host"] or _stem(path), report=report)


def counted(nodes: Sequence[Node], expected: int | None) -> list[Node]:
    """Hold reports against the number of hosts that there must be (None: any).

    What is missing is added as nodes that said nothing; the installs of one host are told apart
    by their order. Raises InvalidReport for more hosts, and for two reports of one install.
    """
    seen: dict[tuple[str, str], Node] = {}
    slots: dict[str, int] = {}
    found = []
    for node in nodes:
        install = (node.report or {}).get("install") or {"package": ""}
        twin = seen.setdefault((node.host, install["package"]), node)
        if twin is not node:
            raise InvalidReport(
                f"two reports of {node.host}",
                facts=[twin.id, node.id],
                hint="keep the last one of each host",
            )
        slots[node.host] = slots.get(node.host, -1) + 1
        found.append(node.replaced(slot=slots[node.host]))
    hosts = {node.host for node in nodes}
    if expected is not None and len(hosts) > expected:
        what = f"reports of {len(hosts)} hosts, and --nodes says {expected}"
        raise InvalidReport(what, facts=sorted(hosts))
    why = f"there are reports of {len(hosts)} of {expected} hosts"
    numbers = range(len(hosts) + 1, (expected or 0) + 1)
    lacking = [Node(id=f"(missing {number})", fate=SILENT, why=why) for number in numbers]
    return [*found, *lacking]


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
        report = _printable(json.loads(line, parse_constant=_no_number, parse_float=_finite))
    except (ValueError, RecursionError) as error:
        raise _invalid(where, f"it is not JSON: {error}") from error
    is_object = isinstance(report, dict) and type(report.get("schema")) is int
    if not is_object or report["schema"] != SCHEMA:
        raise _invalid(where, f"it is no object with schema {SCHEMA}")
    shapes = ({**_ANY, **rest} for rest in (_WHOLE, _BARE))
    if report.get("verb") not in VERBS or not any(_is_like(report, shape) for shape in shapes):
        raise _invalid(where, f"it is not what {', '.join(VERBS)} print with --json")
    if report["ok"] is bool(report["errors"]) or (report["ok"] and "install" not in report):
        raise _invalid(where, "it is ok and has errors, or neither")
    if "diff" in report:
        raise _invalid(where, "it is of a --dry-run, which says nothing of what is there")
    result: dict[str, Any] = report
    return result


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    return number if number - number == 0 else _no_number(text)


def _printable(value: Any) -> Any:
    """Make what a terminal would obey visible: the lines come from other hosts."""
    if isinstance(value, str):
        return visible.text(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return value


def _is_like(value: object, shape: Any) -> bool:
    """Say whether all that is read of a report is there, and of its kind."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_is_like(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            key not in value if inner is _ABSENT else _is_like(value.get(key, _ABSENT), inner)
            for key, inner in shape.items()
        )
    return any(
        _is_like(value, one) if isinstance(one, dict) else type(value) is one for one in shape
    )


def _invalid(where: str, why: str) -> InvalidReport:
    return InvalidReport(
        f"{where} is no report of vllm-patch",
        facts=[why],
        hint="on each host: vllm-patch verify --json > FILE, and nothing else into FILE",
    )
