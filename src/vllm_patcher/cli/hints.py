"""Hints that can be pasted: the library's, with the options of the command line at hand.

Always true here: a hint that is no command of this program is left as it is, and no option is
added that the hint has already.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_patcher.cli.common import Common

_PROGRAM = "vllm-patch"
#: The library's word for "this command again"; what it adds says which install is meant.
_AGAIN = ("apply --python ", "apply --site-packages ", "apply --allow-editable ")
_USES_INSTALL = frozenset({"apply", "verify", "revert", "status", "diff", "where"})
_ON_NODES = frozenset({"apply", "verify", "revert"})
_OBEYS = frozenset({"apply", "verify"})
_USES_NO_CATALOG = frozenset({"where"})


class Call(Value):
    """The command line at hand.

    ``flags`` are the options that only this verb has; ``python`` is the one of the installs that
    is being worked on. ``obeyed`` are the options that name the catalogs of the configuration.
    """

    verb: str
    options: Common
    patches: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    python: str | None = None
    obeyed: tuple[str, ...] = ()

    def hint(self, hint: str) -> str:
        """Make a hint of the library one that can be pasted here."""
        program, _, command = hint.partition(" ")
        if program != _PROGRAM:
            return hint
        from shlex import split

        verb, _, rest = command.partition(" ")
        if command.startswith(_AGAIN):
            return self._again(self._assumed(), rest=rest)
        ray = self._ray(verb) if verb in _ON_NODES else ()
        words = [*self._named(), *self._chosen()] if command == "apply" else split(rest)
        catalogs = () if verb in _USES_NO_CATALOG else (*self._catalogs(), *self._obeyed(verb))
        install = self._install() if verb in _USES_INSTALL else ()
        editable = ["--allow-editable"] * (self.options.allow_editable and verb == "apply")
        config = self._no_config() if verb in _OBEYS else ()
        return _joined(verb, words, config, catalogs, install, editable, ray)

    @property
    def again(self) -> str:
        """The same command once more."""
        return self._again(self._install())

    def _again(self, install: Iterable[str], *, rest: str = "") -> str:
        return _joined(
            self.verb,
            (*self._named(), *self.flags),
            self._chosen(),
            self._no_config(),
            self._catalogs(),
            install,
            ["--allow-editable"] * self.options.allow_editable,
            self._ray(self.verb),
            rest=rest,
        )

    def _ray(self, verb: str) -> Iterator[str]:
        if not self.options.ray:
            return
        if self.options.skip_without_vllm:
            yield "--skip-without-vllm"
        if self.options.keep_going and verb != "verify":
            yield "--keep-going"
        if self.options.ray_timeout is not None:
            yield f"--ray-timeout={self.options.ray_timeout:g}"
        # Last, or else it may take the next word for the address.
        yield "--ray" if self.options.ray == "auto" else f"--ray={self.options.ray}"

    def _named(self) -> Iterator[str]:
        for patch in self.patches:
            # Else it would be read as an option.
            yield os.path.join(".", patch) if patch[:1] == "-" and patch != "-" else patch

    def _no_config(self) -> Iterator[str]:
        if self.options.obey is False:
            yield "--no-config"

    def _chosen(self) -> Iterator[str]:
        if self.options.name is not None:
            yield from ("--id", self.options.name)
        if self.options.skip_outside:
            yield "--skip-outside"
        for kind in self.options.kinds:
            yield from ("--kind", kind)
        for cve in self.options.cves:
            yield from ("--cve", cve)

    def _catalogs(self) -> Iterator[str]:
        for folder in self.options.catalogs:
            yield from ("--catalog", folder)
        if self.options.no_builtin:
            yield "--no-builtin"

    def _obeyed(self, verb: str) -> tuple[str, ...]:
        """Only some verbs read the configuration; the others have to be told what it says."""
        return () if verb in _OBEYS else self.obeyed

    def _install(self) -> Iterator[str]:
        if self.python is not None:
            yield from ("--python", self.python)
        if self.options.site_packages is not None:
            yield from ("--site-packages", self.options.site_packages)
        yield from self._assumed()

    def _assumed(self) -> Iterator[str]:
        if self.options.assume_version is not None:
            yield from ("--assume-version", self.options.assume_version)


def _joined(verb: str, *parts: Iterable[str], rest: str = "") -> str:
    from shlex import join

    line = join([_PROGRAM, verb, *(word for part in parts for word in part)])
    return f"{line} {rest}" if rest else line
