"""The answer of a cluster as text and as JSON.

Always true here: an answer goes in, lines or one object come out; nothing is decided or printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vllm_patcher.cluster.folding import who
from vllm_patcher.document import of_error
from vllm_patcher.report import Style, as_it_is, color_of, dotted, plain, probe_line
from vllm_patcher.results import PatchNotIn
from vllm_patcher.schema import SCHEMA
from vllm_patcher.states import FAILING, UNSUPPORTED, Reason

if TYPE_CHECKING:
    from vllm_patcher.cluster.folding import Answer, Group
    from vllm_patcher.cluster.nodes import Node
    from vllm_patcher.report import Hint

_GOOD, _SKIPPED, _BAD = "green", "yellow", "red"


def text(answer: Answer, *, style: Style = plain, verbose: bool = False) -> Iterator[str]:
    """Yield a line a group of nodes that agree, the odd ones first, and details of those.

    ``verbose`` names every node and every patch.
    """
    names = [who(group.nodes) for group in answer.groups]
    width = max(map(len, names), default=0)
    versions = [group.first.version or "-" for group in answer.groups]
    second = max(map(len, versions), default=0)
    for group, name, version in zip(answer.groups, names, versions, strict=True):
        word = "skipped: no vLLM" if group.skipped else group.first.said
        color = _BAD if group.code else _SKIPPED if group.skipped else _GOOD
        yield f"{name:<{width}}  {version:<{second}}  {style(word, color)}"
        if verbose and len(group.nodes) > 1:
            yield from (f"  {node.name}" for node in group.nodes)
        yield from _patches(group, style, verbose=verbose)
    if answer.skipped:
        yield f"{answer.skipped} of {len(answer.nodes)} nodes without a vLLM, which is allowed"
    if any(node.edited for node in answer.nodes):
        yield "restart running vLLM processes"


def notes(answer: Answer) -> Iterator[str]:
    """Yield what should be known of nodes; what is true of all of them is said once."""
    yield from _told(answer, lambda node: (node.report or {}).get("notes", ()))


def warnings(answer: Answer) -> Iterator[str]:
    """Yield what must be said although nothing fails because of it."""
    yield from _told(answer, _unsupported)


def _unsupported(node: Node) -> Iterator[str]:
    for patch in node.patches if not node.code else ():
        if patch["state"] == UNSUPPORTED:
            why = "; ".join(reason["what"] for reason in patch["reasons"]) or "nobody knows why"
            yield f"{patch['id']} is unsupported: {why}"


def _told(answer: Answer, lines: Callable[[Node], Iterable[str]]) -> Iterator[str]:
    everyone = [node for node in answer.nodes if node.report is not None]
    found: dict[str, list[Node]] = {}
    for node in everyone:
        for line in lines(node):
            found.setdefault(line, []).append(node)
    for line, nodes in found.items():
        yield line if len(nodes) == len(everyone) else f"{who(nodes)}: {line}"


def _patches(group: Group, style: Style, *, verbose: bool) -> Iterator[str]:
    if group.skipped:
        return
    for patch in group.first.patches:
        probe = patch["probe"]
        if not verbose and not (group.code and (patch["state"] in FAILING or probe)):
            continue
        yield f"  {dotted(patch['id'])} {style(patch['state'], color_of(patch['state']))}"
        yield from _reasons(patch["reasons"])
        if probe:
            yield f"    {probe_line(probe['fault'], probe['says'])}"
    for error in group.first.errors if group.code else ():
        if error["code"] != PatchNotIn.code:  # which the lines above say
            yield from (f"  {line}" for line in (error["what"], *error["facts"]))


def _reasons(reasons: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for reason in reasons:
        where = Reason(what="", path=reason["path"] or "", line=reason["line"] or 0).where
        yield f"    {where}  {reason['what']}" if where else f"    {reason['what']}"


def document(answer: Answer, *, hint: Hint = as_it_is) -> dict[str, Any]:
    """Build the JSON of an answer: every node with its whole report."""
    return {
        "schema": SCHEMA,
        "verb": answer.verb,
        "ok": answer.code == 0,
        "nodes": [
            {
                "id": node.id,
                "address": node.address or None,
                "host": node.host or None,
                "fate": node.fate,
                "why": node.why or None,
                "skipped": group.skipped,
                "ok": group.code == 0,
                "report": node.report,
            }
            for group in answer.groups
            for node in group.nodes
        ],
        "groups": [[node.id for node in group.nodes] for group in answer.groups],
        "wrote": answer.wrote,
        "errors": [of_error(error, hint) for error in answer.errors],
    }
