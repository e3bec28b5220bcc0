"""The values of the options that verbs have in common, and the requests they make.

Always true here: what an option means is decided in the library; here it is only handed on.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from vllm_patcher.cli.shell import Output
from vllm_patcher.request import AdHoc, Request, read_diff
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from vllm_patcher.config import Config


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
