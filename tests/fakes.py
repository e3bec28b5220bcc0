"""Fake vLLM installs, laid on disk as pip and uv lay the real one.

What is built here is always an install that a package manager would accept: the RECORD
lists every file with its true digest and size, and itself without either. A test that
wants something broken breaks it afterwards or asks for it by a keyword.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def make_install(
    site: Path,
    *,
    files: Mapping[str, bytes],
    version: str = "0.11.0",
    name: str = "vllm",
    record: bool = True,
    dist_info: bool = True,
    installer: str = "pip",
    direct_url: Mapping[str, Any] | None = None,
    extra_record: Iterable[str] = (),
    newline: str = "\n",
    package: str = "vllm",
    link: str = "copy",
    cache: Path | None = None,
) -> Path:
    """Lay a package with its dist-info into `site` and return the package's folder.

    `files` are relative to the package; an `__init__.py` is added if there is none.
    `extra_record` are whole RECORD lines without their end. `link` is `copy`, `hard` or
    `symlink`; for the last two the contents lie in `cache`, as with uv.
    """
    site.mkdir(parents=True, exist_ok=True)
    contents = {"__init__.py": b'"""A fake vLLM."""\n', **files}
    listed = {f"{package}/{path}": data for path, data in contents.items()}
    if dist_info:
        folder = dist_info_folder(site, name=name, version=version).name
        listed[f"{folder}/METADATA"] = _metadata(name, version)
        listed[f"{folder}/INSTALLER"] = installer.encode() + b"\n"
        listed[f"{folder}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        if direct_url is not None:
            listed[f"{folder}/direct_url.json"] = json.dumps(direct_url).encode()
    for path, data in listed.items():
        _lay(site / path, data, link=link, cached=None if cache is None else cache / path)
    if dist_info and record:
        lines = [record_line(path, data) for path, data in listed.items()]
        lines += [*extra_record, f"{folder}/RECORD,,"]
        text = "".join(line + newline for line in lines)
        (site / folder / "RECORD").write_bytes(text.encode("utf-8", "surrogateescape"))
    return site / package


def dist_info_folder(site: Path, *, name: str = "vllm", version: str = "0.11.0") -> Path:
    """Name the dist-info folder of a distribution; it need not exist."""
    return site / f"{name.replace('-', '_')}-{version}.dist-info"


def record_line(path: str, data: bytes, *, algorithm: str = "sha256") -> str:
    """Write the RECORD line of a file, without its end."""
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest())
    quoted = '"' + path.replace('"', '""') + '"' if any(c in path for c in ',"\r\n') else path
    return f"{quoted},{algorithm}={digest.rstrip(b'=').decode()},{len(data)}"


def _metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nA fake.\n".encode()


def _lay(target: Path, data: bytes, *, link: str, cached: Path | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if link == "copy":
        target.write_bytes(data)
        return
    if cached is None:
        raise ValueError("links need a cache to lead to")
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(data)
    if link == "hard":
        os.link(cached, target)
    else:
        target.symlink_to(cached)


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Give a temporary folder that every user gets to, or skip: those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        if not all(above.stat().st_mode & 0o005 == 0o005 for above in folder.parents):
            pytest.skip(f"not every user gets to {folder}")
        yield folder
