"""The verb `merge-reports`."""

from __future__ import annotations

import sys
from typing import Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import FILE, SHOW, Verb, options
from vllm_patcher.cli.running import guarded


@click.command("merge-reports", cls=Verb)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=FILE)
@click.option(
    "--nodes",
    type=click.IntRange(min=1, max=100_000),
    metavar="N",
    help="So many hosts there must be.",
)
@click.option("--skip-without-vllm", is_flag=True, help="Allow hosts to have no vLLM.")
@options(SHOW)
def command(
    files: tuple[str, ...], *, nodes: int | None, skip_without_vllm: bool, **common: Any
) -> int:
    """Fold what `--json` printed on many hosts into one answer.

    It is the answer that --ray gives. FILE holds a report a line; - is standard input. Exit code 0
    means that all hosts are as asked and have the same files.

    \b
    srun --output=%N.json vllm-patch verify --json
    vllm-patch merge-reports --nodes 16 *.json
    """  # noqa: D301 - \b is click's mark
    from vllm_patcher.cli.on_nodes import tell
    from vllm_patcher.cluster import gathered
    from vllm_patcher.cluster.folding import fold
    from vllm_patcher.report import as_it_is

    call = Call(verb="merge-reports", options=Common(**common))
    output = call.options.output()

    def one(_request: object) -> int:
        found = [node for path in files for node in gathered.read(path, _data(path))]
        found = gathered.counted(found, nodes)
        verb = gathered.verb_of(found)
        answer = fold(verb, found, skip_without_vllm=skip_without_vllm)
        # The hosts have made their hints what can be pasted there.
        return tell(output, answer, hint=as_it_is)

    return output.ending(guarded(call, output, one))


def _data(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read() if sys.stdin is not None else b""
    with open(path, "rb") as file:
        return file.read()
