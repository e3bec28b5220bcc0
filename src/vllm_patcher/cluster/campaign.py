"""A verb on a whole cluster: asked everywhere at once, and changed nowhere before all can be.

Always true here: a node is written to only after it, and unless told to keep going every other
one, has said that it can be; nodes that see one copy of the files do not write it side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.cluster.nodes import AS_ASKED, INTERRUPTED, NOT_ASKED, Node
from vllm_patcher.errors import VllmPatchError
from vllm_patcher.request import AdHoc

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from typing import Protocol

    from vllm_patcher.cluster.errand import Errand
    from vllm_patcher.request import Request

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
    return _rehearse(cluster, errand)[0]


def _rehearse(cluster: Cluster, errand: Errand) -> tuple[list[Node], Errand]:
    """The same, and the errand that is then to be done."""
    trial = errand.replaced(options={**errand.options, "rehearse": True})
    found = ask(cluster, trial)
    told = _told(errand, found)
    if told is not None:
        # A node that has lost its receipt, or had the patch taken out before, is told by the text.
        errand, trial = (each.replaced(request=told, loose=()) for each in (errand, trial))
        found = ask(cluster, trial)
    return [node.replaced(rehearsed=True) for node in found], errand


def _told(errand: Errand, found: Iterable[Node]) -> Request | None:
    """The request with the diffs that only some nodes know by their names, if there are any."""
    if not errand.loose or not any(node.knows_no_patch for node in found):
        return None
    texts = {name: {n.texts[name] for n in found if name in n.texts} for name in errand.loose}
    if not all(len(each) == 1 for each in texts.values()):
        return None
    patches = [
        AdHoc(id=item, text=next(iter(texts[item])), where="a receipt")
        if isinstance(item, str) and item in texts
        else item
        for item in errand.request.patches
    ]
    return errand.request.replaced(patches=tuple(patches))


def change(
    cluster: Cluster, errand: Errand, *, keep_going: bool, skip_without_vllm: bool
) -> list[Node]:
    """Rehearse an errand on every node, then do it; return what became of each.

    If a node can't, nothing is done anywhere, unless ``keep_going``. ``skip_without_vllm`` lets a
    node without one stand by.
    """
    rehearsed, errand = _rehearse(cluster, errand)
    able = [node for node in rehearsed if node.code == AS_ASKED]
    # Who only may not write what another one writes will find it done.
    copies = {node.copy for node in able if node.copy is not None}
    readers = [node for node in rehearsed if node.may_not_write and node.copy in copies]
    chosen = {node.id for node in (*able, *readers)}
    unable = [node for node in rehearsed if node.id not in chosen]
    skipped = [node for node in unable if skip_without_vllm and node.lacks_vllm]
    if len(skipped) < len(unable) and not keep_going:
        return rehearsed
    done = _do(cluster, errand, [*able, *readers])
    known = {node.id for node in rehearsed}
    try:
        late = [node for node in cluster.joined() if node.id not in known]
    except (KeyboardInterrupt, VllmPatchError):
        late = []  # what was written must be told in any case
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
