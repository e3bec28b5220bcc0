"""The options that verbs have in common.

Always true here: an option is declared once, and a value that is empty is refused, whichever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vllm_patcher.request import KINDS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_F = TypeVar("_F", bound=Callable[..., Any])

#: How long a node of a cluster may take, unless it is said.
RAY_SECONDS = 120.0


class Verb(click.Command):
    """A verb. None of its values may be empty, as an unset variable of a script would make them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments. Raises BadParameter for a value that is empty."""
        rest = super().parse_args(ctx, args)
        for param in [] if ctx.resilient_parsing else self.params:
            value = ctx.params.get(param.name or "")
            if value == "" or (isinstance(value, tuple) and "" in value):
                raise click.BadParameter("it is empty", ctx=ctx, param=param)
        return rest


def options(*groups: Iterable[Callable[[Any], Any]]) -> Callable[[_F], _F]:
    """Put groups of options on a verb, in the order they are to be listed."""

    def decorate(function: _F) -> _F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


def _path(kind: str) -> Complete:
    def complete(
        context: click.Context,  # noqa: ARG001 - click's own
        param: click.Parameter,  # noqa: ARG001 - click's own
        incomplete: str,
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return complete


#: What leaves it to the shell to complete a value.
FILE, FOLDER = _path("file"), _path("dir")

_FORMATS = {
    "text": "",
    "json": "JSON is one object a line, one line an install",
    "github": "github is a workflow command for each thing that is wrong",
    "markdown": "markdown is a table of states",
}


def show(*formats: str) -> tuple[Callable[[Any], Any], ...]:
    """Give the options that say how results are printed, in one of these formats."""
    told = "; ".join(filter(None, ["How to print results", *map(_FORMATS.__getitem__, formats)]))
    return (
        click.option(
            "--format",
            "format_",
            type=click.Choice(formats),
            default="text",
            help=f"{told}.",
        ),
        click.option("--json", "json_", is_flag=True, help="The same as --format json."),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="Colour the text.  [NO_COLOR, FORCE_COLOR]",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Print errors and warnings only."),
        click.option(
            "-v", "--verbose", is_flag=True, help="Print files, digests and moved hunks too."
        ),
    )


SHOW = show("text", "json")
SHOW_CI = show("text", "json", "github", "markdown")
CATALOG = (
    click.option(
        "--catalog",
        "catalogs",
        multiple=True,
        metavar="DIR",
        shell_complete=FOLDER,
        help="A catalog to use besides the built-in one; repeatable.  [VLLM_PATCH_CATALOG]",
    ),
    click.option("--no-builtin", is_flag=True, help="Leave the built-in catalog out."),
)
INSTALL = (
    click.option(
        "--python",
        "pythons",
        multiple=True,
        metavar="EXE_OR_VENV",
        shell_complete=FILE,
        help="The interpreter or environment whose vLLM is meant; repeatable.",
    ),
    click.option(
        "--site-packages",
        metavar="DIR",
        shell_complete=FOLDER,
        help="The folder that holds vllm/.",
    ),
    click.option("--assume-version", metavar="V", help="Take vLLM to be this release."),
)
CHOICE = (
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        type=click.Choice(KINDS),
        help="Only patches of this kind; repeatable.",
    ),
    click.option(
        "--cve", "cves", multiple=True, metavar="ID", help="Only patches for a CVE; repeatable."
    ),
)
POLICY = (
    click.option(
        "--no-config",
        "obey",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Don't obey vllm-patch.toml or pyproject.toml of the current folder.",
    ),
)
RAY = (
    click.option(
        "--ray",
        metavar="[HOST:PORT]",
        is_flag=False,
        flag_value="auto",
        help="On every node of a Ray cluster: the one at this address, or the one Ray finds.",
    ),
    click.option(
        "--ray-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help=f"How long a node may take.  [default: {RAY_SECONDS:g}]",
    ),
    click.option(
        "--skip-without-vllm", is_flag=True, help="Allow nodes of the cluster to have no vLLM."
    ),
)
RAY_WRITES = (
    *RAY,
    click.option(
        "--keep-going",
        is_flag=True,
        help="Write on the nodes that can be written though others can't.",
    ),
)
DIFFS = (
    click.option("--id", "name", metavar="NAME", help="The id of the one diff that is given."),
    click.option(
        "--skip-outside",
        is_flag=True,
        help="Leave out parts of a diff that lie outside the package.",
    ),
)
