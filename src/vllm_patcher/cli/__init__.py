"""The command line: click, exit codes, colour.

Always true here: every way a run can end has its exit code, and the codes are a contract (see
:mod:`.shell`); only an error that nobody foresaw shows a traceback.
"""

from __future__ import annotations

import os
from typing import Any

import click

from vllm_patcher import __version__
from vllm_patcher.cli.shell import (
    COMPLETE,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_USAGE,
    Output,
)

_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Verbs(click.Group):
    """Verbs in the order a newcomer needs them; each is imported when it is used."""

    NAMES = (
        *("apply", "verify", "revert", "status", "list", "show", "diff", "where"),
        *("check", "fit", "merge-reports", "completion"),
    )

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own
        return list(self.NAMES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's own
        name: str,
    ) -> click.Command | None:
        if name not in self.NAMES:
            return None
        # importlib.import_module would do the same, and importing importlib takes time.
        module = __import__(f"{__name__}.verbs.{name.replace('-', '_')}", fromlist=["command"])
        command: click.Command = module.command
        return command


@click.command(cls=_Verbs, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="vllm-patch", message="%(prog)s %(version)s")
def vllm_patch() -> None:
    """Apply, verify and revert versioned patches of an installed vLLM.

    \b
    In a Dockerfile:  RUN vllm-patch apply
    In CI:            vllm-patch verify
    """  # noqa: D301 - \b is click's mark


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    output = Output()
    try:
        if not arguments and COMPLETE not in os.environ:
            # Not click's own way: its releases differ in the exit code, and a build that says
            # no verb must not pass.
            context = click.Context(vllm_patch, info_name="vllm-patch", **_CONTEXT)
            click.echo(vllm_patch.get_help(context), err=True)
            return EXIT_USAGE
        result = vllm_patch.main(arguments, prog_name="vllm-patch", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return EXIT_REFUSED
    except (click.Abort, KeyboardInterrupt):
        output.error_line("interrupted")
        return EXIT_INTERRUPTED
    except SystemExit:
        # This is how click ends where nobody reads its help.
        return EXIT_OK
    except OSError as error:
        output.error_line(error.strerror or str(error))
        return EXIT_REFUSED
    except Exception:  # noqa: BLE001 - what is no error of ours is a bug, and must say so
        import traceback

        traceback.print_exc()
        output.error_line(
            f"this is a bug in vllm-patch {__version__}; please report it with the lines above"
        )
        return EXIT_BUG
    return result if isinstance(result, int) else 0
