"""Many answers folded into one: which nodes agree, which is odd, and what that comes to.

Always true here: nothing is asked and nothing is printed; every node that came in is in one group
of what goes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm_patcher.cluster.nodes import AS_ASKED, CANT_TELL, IS_NOT, Node
from vllm_patcher.errors import VllmPatchError, pasted
from vllm_patcher.report import as_it_is
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Hashable

    from vllm_patcher.report import Hint

_MOST_NAMED = 2
_BACK = {"apply": "revert", "revert": "apply"}


class NodeNotAsAsked(VllmPatchError):
    """A node answered, and what it has is not what was asked for, or could not be made so."""

    code = "node-not-as-asked"


class NodeSilent(VllmPatchError):
    """Of a node there is no answer, so nobody knows what it has."""

    code = "node-silent"


class NodesDiffer(VllmPatchError):
    """Each node is as asked, and yet the files that patches are about are not the same."""

    code = "nodes-differ"


class HalfDone(VllmPatchError):
    """Some nodes were written to, or may have been, and not all that were to be."""

    code = "half-done"


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

    @property
    def code(self) -> int:
        """The exit code: the worst of the nodes', or what it means that they differ."""
        worst = max((group.code for group in self.groups), default=CANT_TELL)
        differ = IS_NOT if self.verb == "verify" else CANT_TELL
        return worst or (differ if self.errors else AS_ASKED)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, the odd ones first."""
        return tuple(node for group in self.groups for node in group.nodes)

    @property
    def wrote(self) -> bool:
        """Whether anything on any disk was changed."""
        return any(node.wrote for node in self.nodes)

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
    again: str = "",
) -> Answer:
    """Fold the answers of nodes.

    ``skip_without_vllm`` allows nodes to have none, but not all of them. ``hint`` makes commands
    in the facts of errors ones for the command line at hand, which is ``again``; "" if none can
    be given.
    """
    by_key: dict[Hashable, list[Node]] = {}
    everyone = sorted(nodes, key=lambda node: node.order)
    skips = skip_without_vllm and not all(node.lacks_vllm for node in everyone)
    for node in everyone:
        by_key.setdefault(node.key, []).append(node)
    groups = []
    for some in by_key.values():
        skipped = skips and some[0].lacks_vllm
        code = AS_ASKED if skipped else some[0].code
        groups.append(Group(nodes=tuple(some), code=code, skipped=skipped))
    groups.sort(key=lambda group: (-group.code, len(group.nodes)))  # else as the nodes are
    errors = [*_wrong(groups), *_half_done(verb, groups, hint, again)]
    return Answer(verb=verb, groups=tuple(groups), errors=tuple(errors or _differ(groups)))


def _wrong(groups: Sequence[Group]) -> Iterator[VllmPatchError]:
    if not groups:
        yield NodeSilent("there is no node, so nothing is known")
    untouched = all(node.rehearsed for group in groups for node in group.nodes)
    end = "; nothing was changed on any" if untouched else ""
    wrong = [group for group in groups if group.code and group.first.report is not None]
    if wrong:
        lacking = [group for group in wrong if group.first.lacks_vllm]
        may = ["nodes that never serve may lack it with --skip-without-vllm"] if lacking else []
        hints = (error["hint"] for g in wrong if g not in lacking for error in g.first.errors)
        yield NodeNotAsAsked(
            f"{_some(wrong, groups)} not as asked{end}",
            facts=[*_lines(wrong), *may],
            hint=next(filter(None, hints), None),
        )
    silent = [group for group in groups if group.first.report is None]
    if silent:
        what = f"{_some(silent, groups)} without an answer{end}"
        yield NodeSilent(what, facts=_lines(silent))


def _half_done(
    verb: str, groups: Sequence[Group], hint: Hint, again: str
) -> Iterator[VllmPatchError]:
    # Of nodes that agree some may have had it before.
    wrote = [tuple(node for node in group.nodes if node.wrote) for group in groups]
    written = [Group(nodes=nodes, code=AS_ASKED) for nodes in wrote if nodes]
    begun = [group for group in groups if group.first.may_have_written] if verb in _BACK else []
    if not begun and not (written and any(group.code for group in groups)):
        return
    parts = [f"{_some(written, groups)} changed"] if written else []
    parts += [f"{_some(begun, groups)} perhaps changed"] if begun else []
    facts = _lines([*written, *begun])
    if again:
        facts.append(f"to finish it: {again}")
    changed = _changed(written)
    # Without names it would be about all patches; a diff of no catalog has none to be had by.
    if again and changed and (verb == "apply" or not any(p["adhoc"] for p in changed.values())):
        back = hint(pasted("vllm-patch", _BACK[verb], *changed))
        facts.append(f"to take that back, on all nodes and where it was so before: {back}")
    yield HalfDone(f"{', and '.join(parts)}", facts=facts)


def _differ(groups: Sequence[Group]) -> Iterator[VllmPatchError]:
    """Object to nodes that are as asked in different ways."""
    served = [group for group in groups if not group.skipped]
    # What a rehearsal has seen is not what there will be.
    if any(group.first.rehearsed for group in served):
        return
    facts: list[str] = []
    for slot in sorted({group.first.slot for group in served}):
        facts += _differences([group for group in served if group.first.slot == slot])
    if facts:
        yield NodesDiffer(
            "the nodes do not have the same files",
            facts=facts,
            hint="bring all nodes to one release of vLLM, and the same patches into each",
        )


def _lines(groups: Iterable[Group]) -> list[str]:
    return [f"{who(group.nodes)}: {group.first.said}" for group in groups]


def _some(some: Iterable[Group], groups: Iterable[Group]) -> str:
    count, total = (sum(len(group.nodes) for group in each) for each in (some, groups))
    return f"{count} of {total} node{'s' if total > 1 else ''} {'is' if count == 1 else 'are'}"


def _changed(groups: Iterable[Group]) -> dict[str, Mapping[str, Any]]:
    """The patches that a run has brought in or taken out."""
    patches = [patch for group in groups for node in group.nodes for patch in node.patches]
    return {one["id"]: one for one in patches if one["was"] != one["state"]}


def _differences(groups: Sequence[Group]) -> Iterator[str]:
    """Say in what each group differs from the largest one."""
    most = max(groups, key=lambda group: len(group.nodes)).first
    for group in groups:
        node = group.first
        if node is most:
            continue
        odd = [node.version] if node.version != most.version else _odd(node, most)
        if odd:
            yield f"{who(group.nodes)}: {', '.join(odd)}; {most.name}: {most.version}"


def _odd(node: Node, other: Node) -> list[str]:
    """Say which files differ or, should they all be equal, which states."""
    paths = sorted({*node.digests, *other.digests})
    differ = [path for path in paths if node.digests.get(path) != other.digests.get(path)]
    return [f"vllm/{path}" for path in differ] or [
        f"{name} {node.states.get(name, 'not looked at')}"
        for name in dict.fromkeys([*node.states, *other.states])
        if other.states.get(name) != node.states.get(name)
    ]


def who(nodes: Sequence[Node]) -> str:
    """Name nodes: the first of them, and how many more there are."""
    named = ", ".join(node.name for node in nodes[:_MOST_NAMED])
    more = len(nodes) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named
