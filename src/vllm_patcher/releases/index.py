"""The package index: which releases there are, and single members of their wheels.

Always true here: which index, with what certificates and passwords, is the user's affair, by the
variables that pip and uv know; nobody's address is written here. Whatever goes wrong with one
wheel is an error about that wheel. This is the only module that talks to a network.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from vllm_patcher import versions
from vllm_patcher.errors import NotReleased
from vllm_patcher.releases.failing import failing
from vllm_patcher.releases.wheel import Wheel, WheelFile
from vllm_patcher.values import Value

if TYPE_CHECKING:
    import zipfile

    import requests

    from vllm_patcher.releases.cache import Cache

_T = TypeVar("_T")

PROJECT = "vllm"
_WORKERS = 8
_TIMEOUT = (10, 60)  # seconds to connect, and between two answers
_FRESH = 600  # seconds for which a list of releases is not asked for again, as pip has it
_TRIES = 3  # after the first, with a pause that doubles
_PAUSE = 0.3


class Release(Value):
    """One release, with its wheels, the usual one first; ``yanked`` says that it was withdrawn."""

    version: str
    wheels: tuple[WheelFile, ...]
    yanked: bool


def side_by_side(look: Callable[[Release], _T], releases: Iterable[Release]) -> Iterator[_T]:
    """Look at several releases at once, and give in their order what came of it."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_WORKERS) as pool:
        yield from pool.map(look, releases)


class Index:
    """A package index. ``notes`` is what a user should know of how it answered.

    ``fetched`` counts the bytes that were sent for wheels, ``sizes`` gives the size of each wheel
    that something was sent of.
    """

    def __init__(
        self, cache: Cache, *, url: str | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Take the index at a URL, or else the user's own. Raises NotReleased if it is none."""
        self._cache = cache
        self._environ = environ
        self._url, self._user, self._password = _address(
            url or next((environ[name] for name in _INDEX_VARIABLES if environ.get(name)), "")
        )
        self._lock = threading.Lock()
        self._made: requests.Session | None = None
        self.notes: list[str] = []
        self.fetched = 0
        self.sizes: dict[str, int] = {}

    @property
    def trouble(self) -> str:
        """Why something that was read could not be kept, "" if all was."""
        return self._cache.trouble

    def releases(self) -> list[Release]:
        """List all releases that are no pre-releases, the oldest first.

        Raises NotReleased if the index can't be asked and nothing is known of it, or if it has
        none.
        """
        known = _page(self._cache.note("pages", self._url))
        if known is None or not 0 <= time.time() - known["time"] < _FRESH:
            try:
                known = {"time": time.time(), "files": self._ask()}
            except NotReleased as error:
                if not known:
                    raise
                when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(known["time"]))
                why = "; ".join([error.what, *error.facts])
                self.notes.append(f"{why}; the list of releases is that of {when} UTC")
            else:
                self._cache.keep_note("pages", self._url, known)
        found = _releases(known["files"])
        if not found:
            raise NotReleased(f"the package index has no release of {PROJECT}")
        return found

    def _ask(self) -> list[dict[str, Any]]:
        with failing("the package index can't be read"):
            import pypi_simple
            import remotezip  # noqa: F401 - to say at once that it is missing

            url = {"endpoint": self._url} if self._url else {}
            client = pypi_simple.PyPISimple(session=self._session(), **url)
            page = client.get_project_page(PROJECT, timeout=_TIMEOUT)
            return [
                {
                    "name": file.filename,
                    "version": file.version,
                    "wheel": file.package_type == "wheel",
                    "url": file.url,
                    "sha256": file.digests.get("sha256", ""),
                    "yanked": file.is_yanked,
                }
                for file in page.packages
                if file.version and str(file.project).lower() == PROJECT
            ]

    @contextmanager
    def open(self, wheel: WheelFile) -> Iterator[zipfile.ZipFile]:
        """Open a wheel to read members of it. Raises NotReleased if that can't be done."""
        with failing(f"{wheel.name} can't be read"):
            import remotezip

            with remotezip.RemoteZip(
                wheel.url,
                session=self._session(),
                timeout=_TIMEOUT,
                # A part of something packed once more could not be unpacked.
                headers={"Accept-Encoding": "identity"},
            ) as archive:
                self.sizes[wheel.name] = archive.size()
                yield archive

    def wheel(self, file: WheelFile, version: str) -> Wheel:
        """A wheel, to be looked at as if it were installed. Raises NotReleased."""
        return Wheel(file, version, open_=lambda: self.open(file), cache=self._cache)

    def usual_wheel(self, release: Release) -> Wheel:
        """The wheel of a release that most machines take. Raises NotReleased if it has none."""
        if not release.wheels:
            raise NotReleased("there is no wheel, only the source")
        return self.wheel(release.wheels[0], release.version)

    def _session(self) -> requests.Session:
        with self._lock:
            if self._made is None:
                self._made = self._make_session()
            return self._made

    def _make_session(self) -> requests.Session:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        session = requests.Session()
        again = Retry(total=_TRIES, backoff_factor=_PAUSE, status_forcelist=[429, 502, 503, 504])
        adapter = HTTPAdapter(max_retries=again, pool_maxsize=_WORKERS)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.hooks["response"].append(self._count)
        if self._user:
            # The wheels lie there as well, and their addresses have no password.
            session.auth = _of_host(_origin(self._url), self._user, self._password)
        for name in _CERTIFICATE_VARIABLES:
            if self._environ.get(name):
                session.verify = self._environ[name]
                break
        return session

    def _count(self, response: requests.Response, *_: object, **how: object) -> None:
        if response.headers.get("Content-Range"):
            with self._lock:
                self.fetched += int(response.headers.get("Content-Length") or 0)
        elif how.get("stream") and not response.is_redirect:
            # A whole wheel, or a refusal: nobody reads it, so the server must not go on.
            response.close()


def _address(url: str) -> tuple[str, str, str]:
    """Take an address apart into one without a password, the user and the password.

    So none gets into a message, into the cache, or to another host. Raises NotReleased.
    """
    # uv lets an index have a name: name=https://...
    url = re.sub(r"^[\w.-]+=(?=https?://)", "", url.strip())
    if not url:
        return "", "", ""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise NotReleased("the address of the package index is not a URL of http or https")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, unquote(parts.username or ""), unquote(parts.password or "")


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _of_host(origin: tuple[str, str], user: str, password: str) -> Callable[[Any], Any]:
    """Give a password to one host only; others get what the user's netrc has for them."""
    from requests.auth import HTTPBasicAuth
    from requests.utils import get_netrc_auth

    def authorize(request: Any) -> Any:
        if _origin(request.url) == origin:
            return HTTPBasicAuth(user.encode(), password.encode())(request)
        other = get_netrc_auth(request.url)
        return HTTPBasicAuth(*other)(request) if other else request

    return authorize


#: Where pip and uv are told of the user's index, the strongest first.
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_CERTIFICATE_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


def _page(noted: Any) -> dict[str, Any] | None:
    """A list of releases as it was noted, None if it is not one."""
    try:
        time.gmtime(noted["time"])
        _releases(noted["files"])
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError, OSError):
        return None
    return dict(noted)


def _releases(files: Iterable[Mapping[str, Any]]) -> list[Release]:
    by_version: dict[str, list[Mapping[str, Any]]] = {}
    spelled: dict[object, str] = {}
    for file in files:
        if versions.is_release(file["version"]):
            # 0.11 and 0.11.0 are one release, and so are 0.11.0+cpu and 0.11.0+cu129.
            public = file["version"].partition("+")[0]
            version = spelled.setdefault(versions.parse(public), public)
            by_version.setdefault(version, []).append(file)
    return [
        Release(
            version=version,
            wheels=tuple(
                WheelFile(name=file["name"], url=file["url"], sha256=file["sha256"])
                for file in sorted(by_version[version], key=_unusual)
                if file["wheel"]
            ),
            yanked=all(file["yanked"] for file in by_version[version]),
        )
        for version in versions.ordered(by_version)
    ]


def _unusual(file: Mapping[str, Any]) -> tuple[bool, str]:
    return "x86_64" not in file["name"], file["name"]
