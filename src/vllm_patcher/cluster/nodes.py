"""What many hosts have answered, folded: which agree, which is odd, and what that comes to.

Always true here: answers go in as the JSON of reports, however they came; nothing is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm_patcher.errors import NoVllm, UnknownPatch, VllmPatchError
from vllm_patcher.report import as_it_is
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Hashable

    from vllm_patcher.report import Hint

#: What became of a node: it answered, or why there is no answer of it.
ANSWERED = "answered"
DIED = "died"
TIMED_OUT = "timed-out"
JOINED = "joined"
INTERRUPTED = "interrupted"
FAILED = "failed"
NOT_ASKED = "not-asked"
SILENT = "silent"

_MOST_NAMED = 2
_BACK = {"apply": "revert", "revert": "apply"}
_AS_ASKED, _IS_NOT, _WRONG_CALL, _CANT_TELL = 0, 1, 2, 3


class NodeNotAsAsked(VllmPatchError):
    """A node answered, and what it has is not what was asked for, or could not be made so."""

    code = "node-not-as-asked"


class NodeSilent(VllmPatchError):
    """Of a node there is no answer, so nobody knows what it has."""

    code = "node-silent"


class NodesDiffer(VllmPatchError):
    """Each node is as asked, and yet they do not have the same files."""

    code = "nodes-differ"


class HalfDone(VllmPatchError):
    """Some nodes were written to, and others, that were to be, could not be."""

    code = "half-done"


class Node(Value):
    """One node: its ``id``, ``address`` and ``host`` as far as they are known, and its answer.

    ``report`` is the JSON of a verb, None if there is none; ``why`` says more of a ``fate`` that
    is not `answered`. ``copy`` is equal where nodes see one copy on a shared file system.
    ``rehearsed`` says that the report is of what could be done, and nothing was.
    """

    id: str
    address: str = ""
    host: str = ""
    fate: str = ANSWERED
    report: Mapping[str, Any] | None = None
    why: str = ""
    copy: Hashable = None
    rehearsed: bool = False

    @property
    def name(self) -> str:
        """How people call it."""
        return " ".join(filter(None, dict.fromkeys([self.address, self.host]))) or self.id

    @property
    def order(self) -> list[int | str]:
        """What sorts gpu-2 before gpu-10: texts and numbers come in turns."""
        parts = re.split(r"(\d+)", self.name)
        return [int(part) if place % 2 else part for place, part in enumerate(parts)]

    @property
    def lacks_vllm(self) -> bool:
        """Whether it answered that it has no vLLM at all."""
        errors = self.report["errors"] if self.report is not None else ()
        return any(error["code"] == NoVllm.code for error in errors)

    @property
    def digests(self) -> Mapping[str, str | None]:
        """The SHA-256 digests of the files that patches are about, as they are now."""
        report = self.report or {}
        # In an answer of `verify` what comes after is what `apply` would make.
        key = "sha256_before" if report.get("verb") == "verify" else "sha256_after"
        return {file["path"]: file[key] for file in report.get("files", ())}

    @property
    def states(self) -> Mapping[str, str]:
        """The states of the patches that were reported on."""
        return {patch["id"]: patch["state"] for patch in (self.report or {}).get("patches", ())}

    @property
    def wrote(self) -> bool:
        """Whether something was changed there."""
        return bool((self.report or {}).get("wrote"))

    @property
    def edited(self) -> bool:
        """Whether a source was changed there, and not only records and bytecode."""
        return self.wrote and bool((self.report or {}).get("edits"))

    @property
    def version(self) -> str:
        """The distribution and version of its vLLM."""
        install = (self.report or {}).get("install")
        return f"{install['name'] or 'vllm'} {install['version']}".strip() if install else ""


class Group(Value):
    """Nodes that agree in all that matters; ``code`` is the exit code that each is worth."""

    nodes: tuple[Node, ...]
    code: int
    skipped: bool = False

    @property
    def first(self) -> Node:
        """One of them, to speak for all."""
        return self.nodes[0]


class Answer(Value):
    """The answer of a cluster: groups, the odd ones first, and what is wrong."""

    verb: str
    groups: tuple[Group, ...]
    errors: tuple[VllmPatchError, ...]
    wrote: bool

    @property
    def code(self) -> int:
        """The exit code: the worst of the nodes', or what it means that they differ."""
        worst = max((group.code for group in self.groups), default=_CANT_TELL)
        differ = _IS_NOT if self.verb == "verify" else _CANT_TELL
        return worst or (differ if self.errors else _AS_ASKED)

    @property
    def skipped(self) -> int:
        """How many nodes have no vLLM, and are allowed not to."""
        return sum(len(group.nodes) for group in self.groups if group.skipped)


def fold(
    verb: str,
    nodes: Iterable[Node],
    *,
    skip_without_vllm: bool = False,
    hint: Hint = as_it_is,
) -> Answer:
    """Fold the answers of nodes.

    ``skip_without_vllm`` allows nodes to have none, but not all of them. ``hint`` makes commands
    in the facts of errors ones for the command line at hand.
    """
    by_key: dict[Hashable, list[Node]] = {}
    everyone = sorted(nodes, key=lambda node: node.order)
    skips = skip_without_vllm and not all(node.lacks_vllm for node in everyone)
    for node in everyone:
        by_key.setdefault(_key(node), []).append(node)
    groups = []
    for some in by_key.values():
        skipped = skips and some[0].lacks_vllm
        code = _AS_ASKED if skipped else _code(some[0])
        groups.append(Group(nodes=tuple(some), code=code, skipped=skipped))
    groups.sort(key=lambda group: (-group.code, len(group.nodes)))  # else as the nodes are
    return Answer(
        verb=verb,
        groups=tuple(groups),
        errors=tuple(_errors(verb, groups, hint)),
        wrote=any(node.wrote for node in everyone),
    )


def _key(node: Node) -> Hashable:
    report = node.report
    if report is None:
        return node.fate, node.why
    return (
        node.version,
        tuple(sorted(node.states.items())),
        tuple(sorted(node.digests.items())),
        tuple((error["code"], error["what"]) for error in report["errors"]),
    )


def _code(node: Node) -> int:
    if node.report is None:
        return _CANT_TELL
    if node.report["ok"]:
        return _AS_ASKED
    if any(error["code"] == UnknownPatch.code for error in node.report["errors"]):
        return _WRONG_CALL
    # Only `verify` says no and describes what it has seen; all else was refused or impossible.
    return _IS_NOT if node.report["verb"] == "verify" and node.version else _CANT_TELL


def _errors(verb: str, groups: Sequence[Group], hint: Hint) -> Iterator[VllmPatchError]:
    if not groups:
        yield NodeSilent("there is no node, so nothing is known")
    wrong = [group for group in groups if group.code and group.first.report is not None]
    if wrong:
        lacking = [group for group in wrong if group.first.lacks_vllm]
        may = ["nodes that never serve may lack it with --skip-without-vllm"] if lacking else []
        yield NodeNotAsAsked(
            f"{_some(wrong, groups)} not as asked",
            facts=[*_lines(wrong), *may],
            hint="vllm-patch apply" if any(group.code == _IS_NOT for group in wrong) else None,
        )
    silent = [group for group in groups if group.first.report is None]
    if silent:
        yield NodeSilent(f"{_some(silent, groups)} without an answer", facts=_lines(silent))
    # Of nodes that agree some may have had it before.
    by_group = [tuple(node for node in group.nodes if node.wrote) for group in groups]
    written = [Group(nodes=nodes, code=_AS_ASKED) for nodes in by_group if nodes]
    if written and (wrong or silent):
        changed = _changed(written)
        back = hint(" ".join(["vllm-patch", _BACK[verb], *changed]))
        # Without names it would be about all patches.
        facts = [f"to take that back, on all nodes: {back}"] if changed else []
        yield HalfDone(
            f"{_some(written, groups)} changed, and not all of the others could be",
            facts=[*_lines(written), *facts],
            hint=f"vllm-patch {verb}",  # which finds done what is done
        )
    served = [group for group in groups if not group.code and not group.skipped]
    # What a rehearsal has seen is not what there will be.
    if len(served) > 1 and not any(group.first.rehearsed for group in served):
        yield NodesDiffer(
            "the nodes do not have the same files",
            facts=_differences(served),
            hint="bring all nodes to one release of vLLM, and the same patches into each",
        )


def _lines(groups: Iterable[Group]) -> list[str]:
    return [f"{who(group.nodes)}: {said(group.first)}" for group in groups]


def _some(some: Iterable[Group], groups: Iterable[Group]) -> str:
    count, total = (sum(len(group.nodes) for group in each) for each in (some, groups))
    return f"{count} of {total} node{'s' if total > 1 else ''} {'is' if count == 1 else 'are'}"


def _changed(groups: Iterable[Group]) -> list[str]:
    """Name the patches that a run has brought in or taken out."""
    return list(
        dict.fromkeys(
            patch["id"]
            for group in groups
            for node in group.nodes
            for patch in (node.report or {})["patches"]
            if patch["was"] != patch["state"]
        )
    )


def _differences(groups: Sequence[Group]) -> Iterator[str]:
    """Say in what each group differs from the largest one."""
    most = max(groups, key=lambda group: len(group.nodes)).first
    for group in groups:
        node = group.first
        if node is most:
            continue
        odd = [node.version] if node.version != most.version else _odd_files(node, most)
        yield f"{who(group.nodes)}: {', '.join(odd)}; {most.name}: {most.version}"


def _odd_files(node: Node, other: Node) -> list[str]:
    """Say which files differ or, should they all be equal, which states."""
    paths = sorted({*node.digests, *other.digests})
    differ = [path for path in paths if node.digests.get(path) != other.digests.get(path)]
    return [f"vllm/{path}" for path in differ] or [
        f"{name} {state}" for name, state in node.states.items() if other.states.get(name) != state
    ]


def who(nodes: Sequence[Node], most: int = _MOST_NAMED) -> str:
    """Name nodes: the first of them, and how many more there are."""
    named = ", ".join(node.name for node in nodes[:most])
    more = len(nodes) - most
    return f"{named} and {more} more" if more > 0 else named


def said(node: Node) -> str:
    """Say in a few words what a node has answered, or why it has not."""
    if node.report is None:
        return f"{node.fate}: {node.why}" if node.why else node.fate
    states = list(node.states.values())
    counted = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    if node.report["ok"]:
        return ", ".join(counted) or "nothing to do"
    errors = [error["what"] for error in node.report["errors"]]
    return errors[0] if not counted or node.report["verb"] != "verify" else ", ".join(counted)
