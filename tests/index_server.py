"""A package index on the loopback that can be told to be as bad as an index can be.

It lists wheels of a project called vllm, which are small zips made in memory, and counts what it
is asked for and what it sends.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import random
import re
import ssl
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fakes import record_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TAG = "cp38-abi3-manylinux1_x86_64"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "text/html; charset=utf-8"

#: More than what is read of a wheel's end at once; it lies before that end.
BALLAST = random.Random(0).randbytes(100_000)  # noqa: S311 - bytes that don't pack


def wheel_bytes(
    version: str,
    files: Mapping[str, bytes],
    *,
    record: bytes | None = None,
    lies: Mapping[str, bytes] | None = None,
) -> bytes:
    """Make a wheel of the files of a package; behind them lie ballast and the dist-info.

    ``record`` takes the place of the true RECORD; ``lies`` are files that are other than it says.
    """
    info = f"vllm-{version}.dist-info"
    members = {
        **{f"vllm/{path}": data for path, data in files.items()},
        "vllm/__init__.py": b'"""A fake vLLM."""\n',
        "vllm/_C.abi3.so": BALLAST,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n",
    }
    lines = [record_line(path, data) for path, data in members.items()]
    listed = "".join(f"{line}\n" for line in [*lines, f"{info}/RECORD,,"]).encode()
    members |= {f"vllm/{path}": data for path, data in (lies or {}).items()}
    members[f"{info}/RECORD"] = listed if record is None else record
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return target.getvalue()


@dataclass(slots=True, kw_only=True)
class File:
    """One file of the project.

    ``trouble`` is "", or one of: "no-ranges", "404", "500", "cut" (every answer is), "cut-member"
    (answers but the first are).
    """

    name: str
    data: bytes
    yanked: bool = False
    digest: bool = True
    trouble: str = ""
    url: str = ""
    """Where it lies, if that is another server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, and what was sent for it."""

    path: str
    range: str
    authorization: str
    status: int
    sent: int


@dataclass(slots=True, kw_only=True)
class PackageIndex:
    """What the server has, how it behaves, and what it was asked.

    ``page`` takes the place of the list of files; with ``cut`` only its half is sent.
    """

    files: list[File] = field(default_factory=list)
    html: bool = False
    password: tuple[str, str] | None = None
    page: bytes | None = None
    page_status: int = 200
    cut: bool = False
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    certificate: Path | None = None
    """A file with a certificate and its key, for https."""

    @property
    def url(self) -> str:
        """The address of the index."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/simple/"

    def with_password(self, user: str, password: str) -> str:
        """The address of the index, with a password in it."""
        return self.url.replace("//", f"//{user}:{password}@")

    def add(self, version: str, files: Mapping[str, bytes], **more: Any) -> File:
        """Release a version with these files in its package."""
        tag = more.pop("tag", TAG)
        of_wheel = {key: more.pop(key) for key in ("record", "lies") if key in more}
        data = more.pop("data", None) or wheel_bytes(version, files, **of_wheel)
        file = File(name=f"vllm-{version}-{tag}.whl", data=data, **more)
        self.files.append(file)
        return file

    def add_source(self, version: str, **more: Any) -> File:
        """Release a version as source only."""
        file = File(name=f"vllm-{version}.tar.gz", data=b"source", **more)
        self.files.append(file)
        return file

    @property
    def wheels_asked(self) -> list[Asked]:
        """The requests that were about wheels."""
        return [one for one in self.asked if one.path.endswith(".whl")]

    def listed(self) -> tuple[str, bytes]:
        """The list of files, and what type it has."""
        if self.page is not None:
            return HTML_TYPE if self.html else JSON_TYPE, self.page
        if self.html:
            return HTML_TYPE, "".join(self._anchors()).encode()
        entries = [
            {
                "filename": file.name,
                "url": self._url_of(file),
                "hashes": {"sha256": _sha256(file.data)} if file.digest else {},
                "yanked": file.yanked,
            }
            for file in self.files
        ]
        body = {"meta": {"api-version": "1.0"}, "name": "vllm", "files": entries}
        return JSON_TYPE, json.dumps(body).encode()

    def _anchors(self) -> Iterator[str]:
        yield "<!DOCTYPE html><html><body>"
        for file in self.files:
            fragment = f"#sha256={_sha256(file.data)}" if file.digest else ""
            yanked = ' data-yanked="bad"' if file.yanked else ""
            href = html.escape(self._url_of(file) + fragment)
            yield f'<a href="{href}"{yanked}>{html.escape(file.name)}</a>'
        yield "</body></html>"

    @staticmethod
    def _url_of(file: File) -> str:
        # Relative, as many indexes have it.
        return file.url or f"../../files/{file.name}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def serving(index: PackageIndex) -> Iterator[PackageIndex]:
    """Serve an index until the end of the context; then nothing listens at its address."""

    class Handler(_Handler):
        served = index

    server = ThreadingHTTPServer(("127.0.0.1", index.port), Handler)
    server.block_on_close = False
    if index.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(index.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use(index: PackageIndex, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Make an index the user's own, and a folder the one of the user's caches.

    Skips where the extra `releases` is not installed.
    """
    for name in ("pypi_simple", "remotezip", "requests"):
        pytest.importorskip(name)
    for name in _MEDDLING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("NETRC", str(cache / "no-netrc"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    monkeypatch.setattr("vllm_patcher.releases.index._PAUSE", 0)


_MEDDLING = (
    *("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    *("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
)


class _Handler(BaseHTTPRequestHandler):
    served: PackageIndex

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if not self._is_let_in():
            self._send(401, b"who are you?", ("WWW-Authenticate", 'Basic realm="index"'))
        elif self.path == "/simple/vllm/":
            kind, body = self.served.listed()
            cut = len(body) // 2 if self.served.cut else None
            self._send(self.served.page_status, body, ("Content-Type", kind), cut=cut)
        else:
            name = self.path.rpartition("/")[2]
            file = next((one for one in self.served.files if one.name == name), None)
            if file is None or file.trouble == "404":
                self._send(404, b"no such file")
            elif file.trouble == "500":
                self._send(500, b"oh")
            else:
                self._send_file(file)

    def _is_let_in(self) -> bool:
        if self.served.password is None:
            return True
        told = base64.b64encode(":".join(self.served.password).encode()).decode()
        return self.headers.get("Authorization") == f"Basic {told}"

    def _send_file(self, file: File) -> None:
        asked = self.headers.get("Range", "")
        match = re.fullmatch(r"bytes=([0-9]*)-([0-9]*)", asked)
        size = len(file.data)
        if match is None or file.trouble == "no-ranges":
            self._send(200, file.data)
            return
        if match[1]:
            first, last = int(match[1]), min(int(match[2] or size), size - 1)
        else:
            first, last = max(size - int(match[2]), 0), size - 1
        body = file.data[first : last + 1]
        is_cut = file.trouble == "cut" or (file.trouble == "cut-member" and match[1])
        where = f"bytes {first}-{last}/{size}"
        cut = len(body) // 2 if is_cut else None
        self._send(206, body, ("Content-Range", where), cut=cut)

    def _send(
        self, status: int, body: bytes, *headers: tuple[str, str], cut: int | None = None
    ) -> None:
        sent = body if cut is None else body[:cut]
        self.served.asked.append(
            Asked(
                path=self.path,
                range=self.headers.get("Range", ""),
                authorization=self.headers.get("Authorization", ""),
                status=status,
                sent=len(sent),
            )
        )
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(sent)
