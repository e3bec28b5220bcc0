"""A verb on a whole cluster: asked everywhere at once, and changed nowhere before all can be.

Always true here: a node is written to only after it, and unless told to keep going every other
one, has said that it can be; nodes that see one copy of the files do not write it side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import AS_ASKED, INTERRUPTED, NOT_ASKED, Node

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from typing import Protocol

    from .errand import Errand

    class Cluster(Protocol):
        """What is asked of a cluster; :class:`.raylets.Raylets` is one."""

        @property
        def first(self) -> Mapping[str, Node]:
            """The nodes that there were at the beginning, by their ids."""

        def do(self, errand: Errand, nodes: Sequence[str]) -> list[Node]:
            """Do an errand on nodes, at the same time on all; return them with their answers."""

        def joined(self) -> list[Node]:
            """Return the nodes that were not there at the beginning."""


def ask(cluster: Cluster, errand: Errand) -> list[Node]:
    """Do an errand that writes nothing on every node."""
    return [*cluster.do(errand, list(cluster.first)), *cluster.joined()]


def rehearse(cluster: Cluster, errand: Errand) -> list[Node]:
    """Say of every node whether an errand could be done there; write nothing."""
    found = ask(cluster, errand.replaced(options={**errand.options, "rehearse": True}))
    found = [node.replaced(rehearsed=True) for node in found]
    one_name = errand.verb == "revert" and len(errand.request.patches) == 1
    if not one_name or all(node.knows_no_patch for node in found):
        return found
    # Some nodes know it, so it is a name; those that do not have it no more.
    idle = "nothing to revert: it is out"
    return [node.replaced(idle=idle) if node.knows_no_patch else node for node in found]


def change(
    cluster: Cluster, errand: Errand, *, keep_going: bool, skip_without_vllm: bool
) -> list[Node]:
    """Rehearse an errand on every node, then do it; return what became of each.

    If a node can't, nothing is done anywhere, unless ``keep_going``. ``skip_without_vllm`` lets a
    node without one stand by.
    """
    rehearsed = rehearse(cluster, errand)
    able = [node for node in rehearsed if node.report is not None and node.report["ok"]]
    # Who may not write what another one writes will find it done.
    copies = {node.copy for node in able if node.copy is not None}
    able += [node for node in rehearsed if node not in able and node.copy in copies]
    unable = [node for node in rehearsed if node not in able]
    skipped = [node for node in unable if node.idle or (skip_without_vllm and node.lacks_vllm)]
    if len(skipped) < len(unable) and not keep_going:
        return rehearsed
    done = _do(cluster, errand, able)
    known = {node.id for node in rehearsed}
    late = [node for node in cluster.joined() if node.id not in known]
    return [*done, *unable, *late]


def _do(cluster: Cluster, errand: Errand, nodes: Iterable[Node]) -> list[Node]:
    """The first of those that see one copy does the work; the others find it done."""
    by_copy: dict[Hashable, list[Node]] = {}
    for node in nodes:
        by_copy.setdefault(node.id if node.copy is None else node.copy, []).append(node)
    firsts = cluster.do(errand, [some[0].id for some in by_copy.values()])
    stopped = any(first.fate == INTERRUPTED for first in firsts)
    rest: list[Node] = []
    spared: list[Node] = []
    for first, some in zip(firsts, by_copy.values(), strict=True):
        if first.code == AS_ASKED and not stopped:
            rest += some[1:]
            continue
        why = f"{first.name}, which sees the same files, has failed"
        why = "the run was stopped before" if stopped else why
        spared += [n.replaced(fate=NOT_ASKED, report=None, why=why) for n in some[1:]]
    return [*firsts, *cluster.do(errand, [node.id for node in rest]), *spared]
