"""Scenes for tests of whole verbs: an install, a catalog and diff files, and the command line.

The package of a scene holds `a.py` and `b.py`, of twenty lines each, and a stand-in for the file
that the built-in catalog is about. It is always named by `--site-packages`, so that the vLLM of
the machine, if there is one, has no part in it.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from unittest import mock

from fakes import dist_info_folder, make_install
from vllm_patcher import cli

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATA = Path(__file__).parent / "data"
SRC = Path(cli.__file__).parent.parent.parent
STATS = "v1/metrics/stats.py"
STATS_TEXT = (DATA / "lora" / "first.py").read_bytes()
FILES = {
    "a.py": b"".join(b"a%02d = %d\n" % (n, n) for n in range(1, 21)),
    "b.py": b"".join(b"b%02d = %d\n" % (n, n) for n in range(1, 21)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        (line,) = self.out.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document


def run(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """Run the command line in this process."""
    out, err = stream(), stream()
    with ExitStack() as stack:
        for name, given in (("stdout", out), ("stderr", err), ("stdin", stream(stdin))):
            stack.enter_context(mock.patch.object(sys, name, given))
        code = cli.run([str(argument) for argument in arguments])
    return Ran(code=code, out=text_of(out), err=text_of(err))


def stream(data: bytes = b"") -> TextIO:
    """Make a stream in memory."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


def text_of(given: TextIO) -> str:
    """Give what was written to such a stream."""
    given.flush()
    buffer = given.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def command(*arguments: str | Path) -> list[str]:
    """The command line for a process of its own."""
    return [sys.executable, "-m", "vllm_patcher", *map(str, arguments)]


def environ(**more: str) -> dict[str, str]:
    """The environment for such a process: it finds this code, installed or not."""
    return {**os.environ, "PYTHONPATH": str(SRC), **more}


def process(*arguments: str | Path, env: Mapping[str, str] | None = None, **more: Any) -> Ran:
    """Run the command line in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        check=False,
        capture_output=True,
        env=environ() if env is None else dict(env),
        **more,
    )
    return Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def diff(path: str, old: bytes | None, new: bytes | None, *, name: str = "") -> bytes:
    """Write a diff of one file of the package, as git does; None is no file."""
    name = name or f"vllm/{path}"
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        (old or b"").splitlines(keepends=True),
        (new or b"").splitlines(keepends=True),
        f"a/{name}".encode() if old is not None else b"/dev/null",
        f"b/{name}".encode() if new is not None else b"/dev/null",
        lineterm=b"\n",
    )
    marked = (
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in lines
    )
    return f"diff --git a/{name} b/{name}\n".encode() + b"".join(marked)


def changed(data: bytes, **lines: str) -> bytes:
    """Give lines of a file another right side: `changed(data, a05="x")`."""
    for name, value in lines.items():
        before = f"{name} = {int(name[1:])}\n".encode()
        assert data.count(before) == 1
        data = data.replace(before, f"{name} = {value}\n".encode())
    return data


def patch(**lines: str) -> bytes:
    """Write a diff that gives lines of `a.py` or `b.py` another right side."""
    parts = []
    for path, data in FILES.items():
        own = {name: value for name, value in lines.items() if name[0] == path[0]}
        if own:
            parts.append(diff(path, data, changed(data, **own)))
    return b"".join(parts)


def entry(id: str, text: bytes, **more: Any) -> dict[str, Any]:
    """Describe a patch of a catalog; a list of `variants` holds pairs of specifier and diff."""
    return {
        "id": id,
        "title": f"What {id} is for",
        "kind": "crash",
        "affects": ">=0.8.0,<0.11.1",
        "references": ["https://example.org/1"],
        "variants": [(None, text)],
        **more,
    }


def write_catalog(folder: Path, *entries: Mapping[str, Any]) -> Path:
    """Write a catalog; a `probe` is the text of a script."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["schema = 1"]
    for one in entries:
        own = dict(one)
        variants: Sequence[tuple[str | None, bytes]] = own.pop("variants")
        if "probe" in own:
            (folder / f"{own['id']}.py").write_text(own["probe"])
            own["probe"] = f"{own['id']}.py"
        lines.append("[[patch]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
        for number, (specifier, text) in enumerate(variants):
            name = f"{own['id']}-{number}.patch"
            (folder / name).write_bytes(text)
            lines += ["[[patch.variant]]", f'diff = "{name}"']
            lines += [f'sha256 = "{hashlib.sha256(text).hexdigest()}"']
            lines += [f'vllm = "{specifier}"'] if specifier else []
    (folder / "manifest.toml").write_text("\n".join(lines) + "\n")
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An install in a folder of its own."""

    root: Path
    version: str = "0.11.0"

    @property
    def site(self) -> Path:
        return self.root / "site"

    @property
    def package(self) -> Path:
        return self.site / "vllm"

    @property
    def stats(self) -> Path:
        return self.package / STATS

    @property
    def info(self) -> Path:
        return dist_info_folder(self.site, version=self.version)

    @property
    def receipt(self) -> Path:
        return self.info / "vllm-patcher.json"

    @property
    def at(self) -> tuple[str, str]:
        """The option that says which install is meant."""
        return "--site-packages", str(self.site)

    def run(self, verb: str, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        """Run a verb on this install, in this process."""
        return run(verb, *arguments, *self.at, stdin=stdin)

    def catalog(self, *entries: Mapping[str, Any], name: str = "catalog") -> tuple[str, str, str]:
        """Write a catalog and return the options that name it and no other."""
        return "--no-builtin", "--catalog", str(write_catalog(self.root / name, *entries))

    def diff_file(self, name: str, text: bytes) -> Path:
        """Write a diff file."""
        path = self.root / name
        path.write_bytes(text)
        return path

    def everything(self) -> dict[str, bytes]:
        """All files of the site, to show that nothing was written."""
        return {
            path.relative_to(self.site).as_posix(): path.read_bytes()
            for path in sorted(self.site.rglob("*"))
            if path.is_file()
        }


def make_scene(root: Path, *, version: str = "0.11.0", **more: Any) -> Scene:
    """Lay an install of a version into a folder; see `make_install` for the rest."""
    scene = Scene(root=root, version=version)
    files = {STATS: STATS_TEXT, **FILES, **more.pop("files", {})}
    make_install(scene.site, files=files, version=version, **more)
    return scene
