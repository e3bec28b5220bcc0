"""The options that verbs have in common, and the request they make.

Always true here: an option is declared once; what it means is decided in the library. A value that
is empty is refused, whichever it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vllm_patcher.cli.shell import Output
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vllm_patcher.config import Config
    from vllm_patcher.request import AdHoc, Request

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_F = TypeVar("_F", bound=Callable[..., Any])

#: How long a node of a cluster may take, unless it is said.
RAY_SECONDS = 120.0

KINDS = ("crash", "leak", "security", "compat", "wrong-result")


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


class Common(Value):
    """The values of the common options, as click gives them."""

    format_: str = "text"
    json_: bool = False
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False
    catalogs: tuple[str, ...] = ()
    no_builtin: bool = False
    pythons: tuple[str, ...] = ()
    site_packages: str | None = None
    assume_version: str | None = None
    allow_editable: bool = False
    kinds: tuple[str, ...] = ()
    cves: tuple[str, ...] = ()
    name: str | None = None
    skip_outside: bool = False
    obey: bool | None = None
    ray: str | None = None
    ray_timeout: float | None = None
    skip_without_vllm: bool = False
    keep_going: bool = False

    @property
    def markdown(self) -> bool:
        """Whether results are to be printed as Markdown."""
        return self.format_ == "markdown" and not self.json_

    @property
    def github(self) -> bool:
        """Whether results are to be printed as workflow commands of GitHub."""
        return self.format_ == "github" and not self.json_

    def output(self) -> Output:
        """Where the verb's lines go."""
        return Output(
            json=self.json_ or self.format_ == "json",
            color=self.color,
            quiet=self.quiet,
            verbose=self.verbose,
        )

    def catalog_folders(self) -> tuple[str, ...]:
        """The catalogs named by options, or else by the environment."""
        named = os.environ.get("VLLM_PATCH_CATALOG", "")
        return self.catalogs or tuple(folder for folder in named.split(os.pathsep) if folder)

    def requests(self, patches: tuple[str, ...] = ()) -> list[Request]:
        """One request for each install that is meant."""
        from vllm_patcher.request import Request

        if self.site_packages is not None and len(self.pythons) > 1:
            raise click.UsageError("--site-packages goes with one --python at most")
        if patches and (self.kinds or self.cves):
            raise click.UsageError("--kind and --cve choose patches; name none besides")
        self._check_ray()
        if self.assume_version is not None:
            from vllm_patcher import versions

            versions.check_assumed(self.assume_version)
        config = self._config(patches)
        catalogs = self.catalog_folders() or config.catalogs
        builtin = config.builtin and not self.no_builtin
        items = _items(patches or config.patches, self.name, catalogs, builtin=builtin)
        return [
            Request(
                patches=items,
                catalogs=catalogs,
                builtin=builtin,
                kinds=self.kinds,
                cves=tuple(cve.upper() for cve in self.cves),
                python=python,
                site_packages=self.site_packages,
                assume_version=self.assume_version,
                allow_editable=self.allow_editable,
                skip_outside=self.skip_outside,
                revisions=config.revisions,
                strict=config.strict,
                exact=config.exact,
                policy=config.where,
            )
            for python in self.pythons or (None,)
        ]

    def _check_ray(self) -> None:
        only = {
            "--ray-timeout": self.ray_timeout is not None,
            "--skip-without-vllm": self.skip_without_vllm,
            "--keep-going": self.keep_going,
        }
        for option, is_given in only.items():
            if is_given and self.ray is None:
                raise click.UsageError(f"{option} goes with --ray")
        if self.ray is None:
            return
        if self.ray != "auto" and ":" not in self.ray:
            # Else the patch behind it would be taken for the address.
            raise click.UsageError(
                f"--ray takes HOST:PORT or nothing, and {self.ray!r} is neither; put patches first"
            )
        if self.github or self.markdown:
            raise click.UsageError("--ray prints text or JSON")

    def _config(self, patches: tuple[str, ...]) -> Config:
        """What the project wants, unless the command line says what is wanted."""
        from vllm_patcher import config

        if self.obey is None:
            return config.Config()
        environ, folder = dict(os.environ), ""
        chosen = patches or self.kinds or self.cves
        if chosen or not self.obey:
            # The file says nothing then; how strict to be is still said by the environment.
            environ.pop(config.VARIABLE, None)
            if chosen:
                environ.pop(config.PATCHES, None)
        else:
            with suppress(OSError):  # it is gone
                folder = os.getcwd()
        return config.read(folder, environ)


def _items(
    patches: tuple[str, ...], name: str | None, catalogs: tuple[str, ...], *, builtin: bool
) -> tuple[str | AdHoc, ...]:
    """PATCH arguments as the library takes them; standard input is read here."""
    if name is None and "-" not in patches:
        return patches
    from vllm_patcher.request import AdHoc, read_diff

    if name is None:
        raise click.UsageError("a diff on standard input needs --id NAME")
    if len(patches) != 1:
        raise click.UsageError("--id names one diff; give exactly one PATCH with it")
    if patches[0] == "-":
        if sys.stdin is None:
            raise click.UsageError("standard input is closed")
        return (AdHoc(id=name, text=sys.stdin.buffer.read(), where="standard input"),)
    if not os.path.lexists(patches[0]):
        from vllm_patcher import catalog

        loaded = catalog.load_all(catalogs, builtin=builtin, locked=False)
        if patches[0] in {patch.id for patch in loaded.patches}:
            raise click.UsageError(f"--id is for a diff file; {patches[0]} is an id of a catalog")
    return (AdHoc(id=name, text=read_diff(patches[0]), where=patches[0]),)
