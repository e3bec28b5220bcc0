"""Look for a vLLM in every place where one may be that the user means.

Always true here: what is found is what an interpreter would import, told by its own path finders;
folders are searched by hand only where no interpreter runs. Nothing is chosen in doubt, and
nothing that this user may not see is taken for absent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher import distribution, interpreter
from vllm_patcher.errors import InvalidRecord, NotInstalled, NoVllm, pasted
from vllm_patcher.files import absolute, identity, is_absent
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_patcher.interpreter import Answer

_OWN = "this interpreter"
_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


class Seen(Value):
    """A vLLM that was seen, and how."""

    package: str
    found_by: str
    python: str | None
    path: tuple[str, ...] = ()
    hook: str = ""  # the import hook that led there, if it was not the ordinary search
    fault: str = ""  # why it can't be patched

    @property
    def option(self) -> str:
        """The option that means this one and no other."""
        from shlex import quote

        if self.python:
            return f"--python {quote(self.python)}"
        return f"--site-packages {quote(os.path.dirname(self.package))}"


class Search:
    """What has been seen, where nothing was, and what to say about it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.seen: dict[object, Seen] = {}
        self.looked: list[str] = []
        self.notes: list[str] = []
        self._remains = False  # something was seen that may be meant, or left of one

    def around(self) -> None:
        """Look where no option says: here, in what is active, then on PATH."""
        own = interpreter.own()
        self._answer(own, found_by=_OWN)
        for variable in _ENVIRONMENTS:
            folder = self.environ.get(variable, "")
            if not folder or identity(folder) == identity(own.prefix):
                continue
            try:
                self._active(folder, variable)
            except NotInstalled as error:
                error.facts = (*error.facts, f"{variable} names {folder}")
                raise
        if not self.seen:
            self._on_path(own)

    def _active(self, folder: str, variable: str) -> None:
        if os.path.isdir(folder):
            self.ask(folder, found_by=variable)
        else:
            _check_access(folder)
            self.notes.append(f"{variable} names a folder that is not there: {folder}")

    def ask(self, python: str, *, found_by: str) -> None:
        """Ask an interpreter, or search the folders of one that does not run."""
        _check_access(python)
        try:
            answer = interpreter.ask(python, environ=self.environ)
        except NotInstalled as error:
            folder = _environment(python)
            if folder is None:
                raise
            self.notes.append(f"{error.what}; {folder} was searched, .pth files were not seen")
            self._remains = True  # one that they lead to, perhaps
            self._scan(folder, found_by=found_by)
        else:
            if answer.spec is None:
                _check_path(answer)
            self._answer(answer, found_by=found_by)

    def folder(self, site: str, *, python: str | None) -> None:
        """Look into one folder."""
        found_by = f"--site-packages {site}"
        if python is not None:
            _check_access(python)
        runs = _runs(site) if python is None else interpreter.locate(python, environ=self.environ)
        if self._in_folder(site, found_by=found_by, python=runs):
            return
        from vllm_patcher import remains

        traces = remains.traces(site)
        self.looked += traces or remains.lack(site)
        self._remains |= bool(traces) or remains.are_in(site)
        if os.path.basename(site) == "vllm" and os.path.isfile(os.path.join(site, "__init__.py")):
            hint = pasted("vllm-patch", "apply", "--site-packages", os.path.dirname(site))
        elif traces:
            which = ("--python", runs or "EXECUTABLE")
            hint = pasted("vllm-patch", "apply", "--allow-editable", *which)
        elif interpreter.site_folders(site):
            hint = pasted("vllm-patch", "apply", "--python", site)
        else:
            hint = None
        raise self._nothing(f"there is no vllm in {site}", hint=hint)

    def only(self) -> Seen:
        """Return the one that was seen. Raises NotInstalled for none and for several."""
        seen = list(self.seen.values())
        if not seen:
            raise self._nothing("no vLLM was found")
        if len(seen) > 1:
            raise NotInstalled(
                f"{len(seen)} different vLLMs were found, and one must be chosen",
                facts=[_line(one) for one in seen],
                hint=f"vllm-patch apply {seen[0].option}",
            )
        return seen[0]

    def _nothing(self, what: str, *, hint: str | None = None) -> NotInstalled:
        kind = NotInstalled if self._remains else NoVllm
        return kind(what, facts=[*self.looked, *self.notes], hint=hint or interpreter.HINT)

    def _on_path(self, own: Answer) -> None:
        for name in ("python3", "python"):
            found = interpreter.on_path(name, environ=self.environ)
            if not found:
                self.looked.append(f"{name} is not on PATH")
            first = next(self._meant(found, own), None)
            if first is not None:
                try:
                    answer = interpreter.ask(first, environ=self.environ)
                except NotInstalled as error:
                    self._leave(f"{name} on PATH: {error.what}")
                else:
                    self._answer(answer, found_by=f"{name} on PATH")

    def _meant(self, found: list[str], own: Answer) -> Iterator[str]:
        active = [self.environ.get(variable, "") for variable in _ENVIRONMENTS]
        is_active = any(folder and identity(folder) == identity(own.prefix) for folder in active)
        for python in found:
            if not _same_python(python, own.executable):
                yield python
            elif is_active:  # by the user, who does not mean what lies behind it
                return
            # else a runner of tools, such as uvx, has put it before what the user has there

    def _answer(self, answer: Answer, *, found_by: str) -> None:
        spec = answer.spec
        if spec is not None and spec.origin is not None:
            origin = os.path.abspath(spec.origin)
            self._add(
                Seen(
                    package=os.path.dirname(origin) if spec.locations else origin,
                    found_by=found_by,
                    python=answer.executable or None,
                    path=answer.path,
                    hook="" if spec.by_path else spec.finder,
                    fault=_fault(origin, is_package=bool(spec.locations)),
                )
            )
            return
        from vllm_patcher import remains

        if spec is not None:
            self._leave(remains.namespace(found_by, *spec.locations))
        else:
            self.looked.append(f"{found_by}: no vllm on the path of {answer.executable}")
            self._remains |= any(map(remains.are_in, answer.path))

    def _scan(self, folder: str, *, found_by: str) -> None:
        sites = interpreter.site_folders(folder)
        # All are tried: that two versions of Python hold one each is a doubt to be told.
        found = [self._in_folder(site, found_by=found_by, python=None) for site in sites]
        if not any(found):
            self.looked.append(f"{found_by}: no vllm in {folder}/lib*/python*/site-packages")

    def _in_folder(self, site: str, *, found_by: str, python: str | None) -> bool:
        origin = os.path.join(site, "vllm", "__init__.py")
        package = os.path.dirname(origin)
        if os.path.isfile(origin):
            fault = _fault(origin, is_package=True)
            self._add(Seen(package=package, found_by=found_by, python=python, fault=fault))
            return True
        from vllm_patcher import remains

        if os.path.isdir(package):
            self._leave(remains.namespace(found_by, package))
        else:
            remains.check_access(package)
        return False

    def _leave(self, what: str) -> None:
        self.looked.append(what)
        self._remains = True

    def _add(self, seen: Seen) -> None:
        self.seen.setdefault(identity(seen.package), seen)


def _check_access(python: str) -> None:
    """Refuse an interpreter, or an environment's folder, that this user may not see.

    A link is seen though what it leads to is not: that is an interpreter that does not run.
    """
    if os.sep not in python and not os.path.isdir(python):
        return  # a name on PATH
    from vllm_patcher import remains

    inside = interpreter.of_folder(python) if os.path.isdir(python) else []
    for path in (python, *inside):
        remains.check_access(path, follow_links=False)


def _check_path(answer: Answer) -> None:
    """Refuse an import path that has a vLLM, perhaps, where this user may not look."""
    from vllm_patcher import remains

    for entry in answer.path:
        remains.check_access(os.path.join(entry, "vllm"))


def _fault(origin: str, *, is_package: bool) -> str:
    package = os.path.dirname(origin)
    if os.path.dirname(package).endswith(".egg"):
        return "an egg"
    if not os.path.isfile(origin):
        return "inside an archive"
    if not is_package:
        return "a single module"
    return "" if os.path.basename(origin) == "__init__.py" else "compiled, without its source"


def _line(seen: Seen) -> str:
    return f"{described(seen)} ({seen.found_by}): {seen.option}"


def described(seen: Seen) -> str:
    """Say where one is, and its version."""
    version = "" if seen.fault else _version(seen)
    return f"{seen.package}  {version or 'of unknown version'}"


def _version(seen: Seen) -> str:
    try:
        owner, _ = distribution.owner(seen.package)
    except (NotInstalled, InvalidRecord):
        return ""
    return distribution.version(seen.package, owner=owner, path=seen.path)[0]


def _environment(python: str) -> str | None:
    if os.path.isdir(python):
        return absolute(python)
    if is_absent(python):  # mistyped
        return None
    folder = os.path.dirname(os.path.dirname(absolute(python)))
    marks = ("pyvenv.cfg", "conda-meta")
    return folder if any(os.path.exists(os.path.join(folder, mark)) for mark in marks) else None


def _runs(site: str) -> str | None:
    own = interpreter.own()
    if identity(site) in {identity(entry) for entry in own.path}:
        return own.executable or None
    # PREFIX/lib/pythonX.Y/site-packages
    lib, version = os.path.split(os.path.dirname(site))
    prefix, name = os.path.split(lib)
    if not (name.startswith("lib") and version.startswith("python")):
        return None
    return next(filter(interpreter.is_executable, interpreter.of_folder(prefix)), None)


def _same_python(one: str, other: str) -> bool:
    # Not the file alone: the python of every virtual environment is a link to one file.
    folders = {identity(os.path.dirname(python)) for python in (one, other)}
    return len(folders) == 1 and identity(one) == identity(other)
