"""The verbs on a cluster, and the reports of many hosts: call the library, print its answer.

Always true here: nothing is decided about a node or a patch.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from vllm_patcher.cli.options import RAY_SECONDS
from vllm_patcher.cli.running import guarded, on_install, told_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_patcher.cli.hints import Call
    from vllm_patcher.cli.shell import Output
    from vllm_patcher.cluster.folding import Answer
    from vllm_patcher.request import Request


def on_nodes(
    call: Call, options: Mapping[str, bool], way: Literal["ask", "rehearse", "change"]
) -> int:
    """Run a verb on every node of a Ray cluster in a way of :mod:`.cluster.campaign`.

    Returns the exit code.
    """
    output = call.options.output()
    chosen = call.options
    changed = False

    def one(request: Request) -> int:
        nonlocal changed
        from vllm_patcher.cluster import campaign, errand, folding, raylets

        load = errand.packed(call.verb, request, options)
        address = None if chosen.ray == "auto" else chosen.ray
        to_the_end = ExitStack()
        with raylets.connected(address, seconds=chosen.ray_timeout or RAY_SECONDS) as cluster:
            if way == "ask":
                found = campaign.ask(cluster, load)
            elif way == "rehearse":
                found = campaign.rehearse(cluster, load)
            else:
                found = campaign.change(
                    cluster,
                    load,
                    keep_going=chosen.keep_going,
                    skip_without_vllm=chosen.skip_without_vllm,
                )
            began = any(node.wrote or node.may_have_written for node in found)
            to_the_end.enter_context(told_to_the_end(wrote=began))
        skips = chosen.skip_without_vllm
        meant = on_install(call, request)
        answer = folding.fold(
            call.verb, found, skip_without_vllm=skips, hint=meant.hint, again=meant.again
        )
        changed = changed or answer.wrote
        with to_the_end:
            return tell(output, answer, hint=meant.hint)

    return output.ending(guarded(call, output, one), changed=changed)


def tell(output: Output, answer: Answer, *, hint: Callable[[str], str]) -> int:
    """Print the answer of a cluster, its hints made ones to be pasted; return its exit code."""
    from vllm_patcher.cluster import table

    if output.json:
        output.document(table.document(answer, hint=hint))
        return answer.code
    for note in table.notes(answer):
        output.note(note)
    style = output.style_for(sys.stdout)
    output.lines(table.text(answer, style=style, verbose=output.verbose))
    for warning in table.warnings(answer):
        output.warning(warning)
    for error in answer.errors:
        output.error(error, hint)
    return answer.code
