"""Find the one vLLM to work on, and say what is known of it.

vLLM is never imported. Where :mod:`.search` leaves a doubt nothing is chosen: the error lists
what was seen and the option that chooses it. Nothing is written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_patcher import distribution
from vllm_patcher.errors import NotInstalled
from vllm_patcher.files import absolute, identity
from vllm_patcher.search import Search, Seen, described
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_patcher.distribution import Distribution

_PLAIN = "install vllm with pip or uv, so that it is a plain folder"


class Install(Value):
    """One vLLM on disk.

    ``package`` is the folder `vllm`: absolute, lexical, links not resolved. ``version`` is as it
    is written, "" if nothing says it, and ``version_source`` the file that does, relative to the
    package's parent. ``name`` is the distribution's, "" if there is none, and ``dist_info`` its
    absolute folder. ``python`` is the interpreter it belongs to, if that is known and can run.
    ``found_by`` says how it was found, such as "VIRTUAL_ENV" or "--python /opt/venv"; ``editable``
    why it counts as an editable install, "" if it does not. ``others`` are other copies that were
    seen, ``notes`` what a user should know of how it was found, one line each.
    """

    package: str
    version: str
    version_source: str
    name: str
    dist_info: str | None
    python: str | None
    found_by: str
    editable: str
    others: tuple[str, ...]
    notes: tuple[str, ...]


def find(
    *,
    python: str | None = None,
    site_packages: str | None = None,
    environ: Mapping[str, str] = os.environ,
    allow_editable: bool = False,
) -> Install:
    """Find the vLLM a user means.

    `site_packages` is the folder that holds the package and decides alone; so does
    `python`, an executable, a name on PATH or the folder of an environment. With both,
    `python` only says who runs probes. With neither: this interpreter, VIRTUAL_ENV and
    CONDA_PREFIX, which must agree, then the python3 and python of PATH: the first of that
    name, or the next if the first is this interpreter and the user has not activated it.

    Raises NotInstalled if there is none, if there are several, if it is of a kind that
    can't be patched, and for an editable install unless `allow_editable`.
    """
    search = Search(environ)
    if site_packages is not None:
        search.folder(absolute(site_packages), python=python)
    elif python is not None:
        search.ask(python, found_by=f"--python {python}")
    else:
        search.around()
    return _describe(search.only(), notes=search.notes, allow_editable=allow_editable)


def _describe(seen: Seen, *, notes: list[str], allow_editable: bool) -> Install:
    if seen.fault:
        what = f"{seen.package} can't be patched: it is {seen.fault}"
        raise NotInstalled(what, facts=[f"found by {seen.found_by}"], hint=_PLAIN)
    owner, claims = distribution.owner(seen.package)
    reason = _editable(seen, owner)
    if reason and not allow_editable:
        raise NotInstalled(
            f"{seen.package} is an editable install: its files are a source tree's",
            facts=[f"found by {seen.found_by}", reason],
            hint=f"vllm-patch apply --allow-editable {seen.option}",
        )
    version, source = distribution.version(seen.package, owner=owner, path=seen.path)
    return Install(
        package=seen.package,
        version=version,
        version_source=source,
        name=owner.name if owner else "",
        dist_info=owner.folder if owner else None,
        python=seen.python,
        found_by=seen.found_by,
        editable=reason,
        others=(*claims, *_others(seen)),
        notes=(*notes, *_doubts(seen, owner)),
    )


def _editable(seen: Seen, owner: Distribution | None) -> str:
    site = os.path.dirname(seen.package)
    if seen.hook and site not in {os.path.abspath(entry) for entry in seen.path}:
        return f"the import hook {seen.hook} leads there"
    return distribution.source_tree(seen.package, owner=owner, path=seen.path)


def _doubts(seen: Seen, owner: Distribution | None) -> list[str]:
    if owner is None:
        return [f"no distribution lists {seen.package}: nothing tells what was shipped"]
    if owner.record is None:
        return [f"{owner.folder} has no RECORD: nothing tells what was shipped"]
    return []


def _others(seen: Seen) -> list[str]:
    if not seen.path:
        return []
    known, lines = {identity(seen.package)}, []
    for entry in dict.fromkeys(os.path.abspath(entry) for entry in seen.path):
        package = os.path.join(entry, "vllm")
        if os.path.isfile(os.path.join(package, "__init__.py")) and identity(package) not in known:
            known.add(identity(package))
            lines.append(
                f"{described(Seen(package=package, found_by='', python=None))}: not imported"
            )
    # Asked first, since there may be no current folder any more.
    if os.path.isfile(os.path.join("vllm", "__init__.py")) and identity("vllm") not in known:
        here = os.path.abspath("vllm")
        lines.append(f"{here}: in the current folder, so only `python -m` and `-c` import it")
    return lines
