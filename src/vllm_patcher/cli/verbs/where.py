"""The verb `where`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import INSTALL, SHOW, Verb, options
from vllm_patcher.cli.running import guarded
from vllm_patcher.cli.shell import EXIT_OK

if TYPE_CHECKING:
    from vllm_patcher.request import Request


@click.command("where", cls=Verb)
@options(INSTALL, SHOW)
def command(**common: Any) -> int:
    """Tell which vLLM is meant, and how it was found.

    Its version is told too, and which other copies there are.
    """
    from vllm_patcher import document, operations, report

    call = Call(verb="where", options=Common(**common))
    output = call.options.output()

    def one(request: Request) -> int:
        install = operations.locate(request)
        version = request.assume_version or install.version
        if output.json:
            output.document(document.of_install(install, version))
        else:
            output.lines(report.install_text(install, version))
        return EXIT_OK

    return output.ending(guarded(call, output, one))
