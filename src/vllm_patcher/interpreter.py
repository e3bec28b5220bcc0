"""Where a Python interpreter would import vLLM from.

vLLM is never imported, in this process or in another: the path finders are asked for a
top-level name, and that reads folders only. The current folder is not part of any answer,
because a console script does not see it; `python -m` and `python -c` alone do.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from vllm_patcher import files, process
from vllm_patcher.errors import NotInstalled, NoVllm, may_not_read, pasted
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MARK = "vllm-patch-answer "
_TIMEOUT = 60.0  # seconds; a cold network disk takes a few, a hanging .pth file takes all
_LONGEST = 200

#: The hint where no interpreter is known that could be meant.
HINT = "vllm-patch apply --python /path/to/venv/bin/python"

# Runs in CPython 3.8 and later, whatever that interpreter's site-packages print. The
# current folder goes before anything is imported from it.
_CODE = """
import sys
if sys.path and sys.path[0] == '':
    del sys.path[0]
import json
found = None
for finder in list(sys.meta_path):
    try:
        spec = finder.find_spec('vllm', None)
    except Exception:
        continue
    if spec is not None:
        kind = finder if isinstance(finder, type) else type(finder)
        found = {
            'origin': spec.origin if spec.has_location else None,
            'locations': list(spec.submodule_search_locations or ()),
            'finder': kind.__module__ + '.' + kind.__name__,
        }
        break
answer = {
    'executable': sys.executable,
    'prefix': sys.prefix,
    'path': [entry for entry in sys.path if isinstance(entry, str)],
    'spec': found,
}
sys.stdout.write('\\n' + MARK + json.dumps(answer) + '\\n')
sys.stdout.flush()
"""


class Spec(Value):
    """What the path finders say about the name `vllm`."""

    origin: str | None  # the file that would be run; None for a namespace package
    locations: tuple[str, ...]  # the folders of the package; empty for a plain module
    finder: str  # module and class of the finder that answered

    @property
    def by_path(self) -> bool:
        """Tell whether the ordinary search along the path found it."""
        return self.finder.endswith(".PathFinder")


class Answer(Value):
    """An interpreter, its import path without the current folder, and its vLLM if it has one."""

    executable: str  # "" if the interpreter can't tell
    prefix: str  # the folder of its environment
    path: tuple[str, ...]
    spec: Spec | None


def own() -> Answer:
    """Answer for the interpreter that runs this code."""
    path = _without_current_folder(sys.path)
    return Answer(
        executable=sys.executable or "",
        prefix=sys.prefix,
        path=tuple(path),
        spec=_find_spec(path),
    )


def ask(
    python: str, *, environ: Mapping[str, str] = os.environ, timeout: float = _TIMEOUT
) -> Answer:
    """Run another interpreter, given as executable or as the folder of its environment.

    It runs with `environ` and for at most `timeout` seconds. Raises NotInstalled if there
    is none or if it does not answer.
    """
    executable = locate(python, environ=environ)
    # -B: looking must not leave bytecode behind.
    command = [executable, "-B", "-c", f"MARK = {_MARK!r}\n{_CODE}"]
    try:
        ended = process.run(command, environ=environ, seconds=timeout)
    except OSError as error:
        raise _silent(executable, error.strerror or str(error)) from error
    if ended is None:
        raise _silent(executable, f"no answer after {timeout:g} seconds")
    answer = _read(ended.output, executable)
    if answer is None:
        said = ended.complaint.decode("utf-8", "replace").strip().splitlines()
        raise _silent(executable, f"exit status {ended.status}", *said[-1:])
    return answer


def locate(python: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """Give the executable a user means: a path, the folder of an environment, a name on PATH.

    Links are not resolved: a virtual environment is known by the link. Raises NotInstalled
    if there is nothing that can be run.
    """
    if os.path.isdir(python):
        choices = of_folder(python)
    elif os.sep in python:
        choices = [python]
    else:
        choices = on_path(python, environ=environ)
    for choice in choices:
        if is_executable(choice):
            return files.absolute(choice)
    message = f"{python} is no Python interpreter"
    looked = [f"{choice}: {_lack(choice)}" for choice in choices] or ["not on PATH"]
    meant = [python] if os.sep in python or os.path.isdir(python) else choices
    kind = NoVllm if all(map(files.is_absent, meant)) else NotInstalled
    raise kind(message, facts=looked, hint=_hint(python))


def _lack(choice: str) -> str:
    return "there is no such file" if files.is_absent(choice) else "no file that can be run"


def _hint(python: str) -> str:
    """Name the environment whose interpreter was mistyped, if it is one's."""
    folder, last = os.path.split(os.path.dirname(python))
    if last == "bin" and os.path.isdir(folder):
        return pasted("vllm-patch", "apply", "--python", folder)
    return HINT


def of_folder(folder: str) -> list[str]:
    """Give what the interpreter of an environment's folder may be called; none need be there."""
    return [os.path.join(folder, "bin", name) for name in ("python", "python3")]


def on_path(name: str, *, environ: Mapping[str, str]) -> list[str]:
    """Give every executable of that name on PATH, in order; the current folder is left out."""
    folders = [entry for entry in environ.get("PATH", "").split(os.pathsep) if entry]
    found = [os.path.join(os.path.abspath(folder), name) for folder in dict.fromkeys(folders)]
    return [path for path in found if is_executable(path)]


def site_folders(folder: str) -> list[str]:
    """Give the package folders below an environment's folder by their usual names.

    This is for an environment whose interpreter does not run; `.pth` files are not read.
    Raises NotInstalled for a folder that this user may not list.
    """
    found: list[str] = []
    for lib in _subfolders(folder, "lib"):
        for python in _subfolders(lib, "python"):
            names = (os.path.join(python, name) for name in ("site-packages", "dist-packages"))
            found += [path for path in names if not files.is_absent(path)]
    return found


def is_executable(path: str) -> bool:
    """Tell whether the path is a file that may be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _find_spec(path: list[str]) -> Spec | None:
    from importlib.machinery import PathFinder

    for finder in list(sys.meta_path):
        try:
            # Only the path search takes a path for a top-level name; to any other finder
            # it would mean a submodule.
            spec = finder.find_spec("vllm", path if finder is PathFinder else None)
        except Exception:  # noqa: BLE001, S112 - import hooks of others raise what they like
            continue
        if spec is not None:
            kind = finder if isinstance(finder, type) else type(finder)
            return Spec(
                origin=spec.origin if spec.has_location else None,
                locations=tuple(spec.submodule_search_locations or ()),
                finder=f"{kind.__module__}.{kind.__name__}",
            )
    return None


def _without_current_folder(path: Iterable[object]) -> list[str]:
    entries = [entry for entry in path if isinstance(entry, str)]
    if entries and (not entries[0] or _put_by_dash_m(entries[0])):
        del entries[0]
    return entries


def _put_by_dash_m(entry: str) -> bool:
    # A main module that was imported, and so has a spec, was started with -m.
    if getattr(sys.flags, "safe_path", False):
        return False
    if getattr(sys.modules.get("__main__"), "__spec__", None) is None:
        return False
    try:
        return os.path.abspath(entry) == os.getcwd()
    except OSError:  # the current folder is gone
        return False


def _read(output: bytes, executable: str) -> Answer | None:
    import json

    mark = _MARK.encode()
    lines = [line for line in output.splitlines() if line.startswith(mark)]
    if not lines:
        return None
    raw = json.loads(lines[-1][len(mark) :])
    spec = raw["spec"]
    return Answer(
        executable=raw["executable"] or executable,
        prefix=raw["prefix"],
        path=tuple(raw["path"]),
        spec=None
        if spec is None
        else Spec(origin=spec["origin"], locations=tuple(spec["locations"]), finder=spec["finder"]),
    )


def _silent(executable: str, *facts: str) -> NotInstalled:
    return NotInstalled(
        f"{executable} does not run as a Python interpreter",
        facts=[fact[:_LONGEST] for fact in facts],
        hint=HINT,
    )


def _subfolders(folder: str, prefix: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except PermissionError as error:
        raise may_not_read(folder, error) from error
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(prefix)]
