"""The package index is the user's, its passwords stay with it, and no byte of it is believed."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import threading
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from index_server import TAG, PackageIndex, serving, use, wheel_bytes
from scenes import FILES, patch, run
from vllm_patcher.errors import InvalidRecord, NotReleased
from vllm_patcher.releases.cache import Cache
from vllm_patcher.releases.failing import failing
from vllm_patcher.releases.index import Index
from vllm_patcher.releases.wheel import Wheel, WheelFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A = FILES["a.py"]
FIX = patch(a10="9")
SECRET = "s3cret/@:ü"  # noqa: S105 - of the server here
QUOTED = "s3cret%2F%40%3A%C3%BC"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with serving(PackageIndex()) as running:
        use(running, monkeypatch, tmp_path / "cache")
        running.add("0.8.0", {"a.py": A})
        yield running


@pytest.fixture
def other() -> Iterator[PackageIndex]:
    """Another server: it has the same address, and another port."""
    with serving(PackageIndex()) as running:
        yield running


def asked(*arguments: str) -> str:
    """Ask which releases a diff fits; give all that was said."""
    ran = run("fit", "-", "--id", "fix", *arguments, stdin=FIX)
    return ran.out + ran.err


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


class TestWhoseIndex:
    @pytest.mark.parametrize("name", ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"])
    def test_the_variables_of_pip_and_uv(
        self, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.delenv("PIP_INDEX_URL")
        monkeypatch.setenv(name, index.url)
        assert "fits 1 of 1" in asked()

    def test_the_strongest_counts(
        self, index: PackageIndex, other: PackageIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other.add("0.9.0", {"a.py": A})
        for strong, weak in (
            ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
            ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
        ):
            monkeypatch.setenv(strong, other.url)
            monkeypatch.setenv(weak, index.url)
            assert ">=0.9.0" in asked()
            monkeypatch.delenv(strong)
        monkeypatch.setenv("PIP_INDEX_URL", other.url)
        assert ">=0.8.0" in asked("--index-url", index.url)

    def test_uv_may_give_it_a_name(
        self, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PIP_INDEX_URL")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"our-own.index={index.url}")
        assert "fits 1 of 1" in asked()

    @pytest.mark.parametrize(
        "url",
        [
            "nonsense",
            f"user:{SECRET}@localhost/simple",
            f"ftp://user:{SECRET}@localhost/simple",
            f"http://user:{SECRET}@[::1/simple",
            "http://",
            "http://localhost:port/",
            "https:///simple",
        ],
    )
    def test_an_address_that_is_none(self, url: str) -> None:
        said = asked("--index-url", url)
        assert said.startswith("error: the address of the package index is not a URL")
        assert SECRET not in said

    @pytest.mark.usefixtures("index")
    def test_the_list_of_one_index_is_not_that_of_another(self, other: PackageIndex) -> None:
        other.add("0.9.0", {"a.py": A})
        assert ">=0.8.0" in asked()
        assert ">=0.9.0" in asked("--index-url", other.url)


class TestPasswords:
    @pytest.mark.parametrize("html", [False, True])
    def test_one_in_the_address(self, index: PackageIndex, tmp_path: Path, *, html: bool) -> None:
        index.html, index.password = html, ("me", SECRET)
        said = asked("--index-url", index.with_password("me", QUOTED))
        assert "fits 1 of 1" in said
        assert {one.status for one in index.asked} == {200, 206}
        assert all(one.authorization for one in index.asked)
        for secret in (SECRET, QUOTED):
            assert secret.encode() not in everything_in(tmp_path)

    def test_a_token_without_password(self, index: PackageIndex) -> None:
        index.password = ("token", "")
        url = index.url.replace("//", "//token@")
        assert "fits 1 of 1" in asked("--index-url", url)

    def test_a_wrong_one_is_not_told(self, index: PackageIndex) -> None:
        index.password = ("me", "right")
        said = asked("--index-url", index.with_password("me", QUOTED))
        assert "401" in said
        assert said.startswith("error: the package index can't be read\n")
        assert QUOTED not in said
        assert SECRET not in said

    def test_one_of_a_wheel_that_is_refused_is_not_told(self, index: PackageIndex) -> None:
        index.password = ("me", SECRET)
        index.files[0].trouble = "404"
        said = asked("--index-url", index.with_password("me", QUOTED))
        assert "404" in said
        assert QUOTED not in said

    def test_it_goes_to_no_other_server(self, index: PackageIndex, other: PackageIndex) -> None:
        index.password = ("me", SECRET)
        file = other.add("0.9.0", {"a.py": A})
        file.url = f"http://127.0.0.1:{other.port}/files/{file.name}"
        index.files.append(file)
        assert "fits 2 of 2" in asked("--index-url", index.with_password("me", QUOTED))
        assert other.asked
        assert {one.authorization for one in other.asked} == {""}

    @pytest.mark.parametrize("url", ["", "http://somebody:x@127.0.0.1:1/simple/"])
    def test_netrc(
        self, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        """Also for the wheels that lie elsewhere than an index with a password of its own."""
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login me password right\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        index.password = ("me", "right")
        if not url:
            assert "fits 1 of 1" in asked()
            return
        wheel = index.files[0]
        address = f"http://127.0.0.1:{index.port}/files/{wheel.name}"
        made = Index(Cache(""), url=url)
        file = WheelFile(name=wheel.name, url=address, sha256="")
        with made.wheel(file, "0.8.0") as opened:
            assert opened.read("vllm/a.py") == A

    def test_a_message_of_a_library_loses_them(self) -> None:
        with pytest.raises(NotReleased) as caught, failing("what"):
            raise_from_below(f"no http://me:{QUOTED}@host/simple and https://x@y/")
        (fact,) = caught.value.facts
        assert fact == "ValueError: no http://***@host/simple and https://***@y/"


def raise_from_below(text: str) -> None:
    raise ValueError(text)


class TestCertificates:
    @pytest.mark.parametrize("name", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
    def test_the_users_own_are_trusted(
        self, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
    ) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl to make a certificate with")
        certificate = tmp_path / "own.pem"
        make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(certificate)]
        done = subprocess.run([*make.split(), *more], check=True, capture_output=True)
        with certificate.open("ab") as file:
            file.write(done.stdout)
        with serving(PackageIndex(certificate=certificate)) as index:
            use(index, monkeypatch, tmp_path / "cache")
            index.add("0.8.0", {"a.py": A})
            refused = asked()
            assert refused.startswith("error: the package index can't be read\n")
            assert "CERTIFICATE_VERIFY_FAILED" in refused
            monkeypatch.setenv(name, str(certificate))
            assert "fits 1 of 1" in asked()

    @pytest.mark.parametrize("name", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
    def test_where_they_are_said_to_be(
        self, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path
    ) -> None:
        """A bundle that is not there is named, so it was looked for."""
        missing = str(tmp_path / "no-bundle.pem")
        monkeypatch.setenv(name, missing)
        said = asked("--index-url", index.url.replace("http:", "https:"))
        assert said.startswith("error: the package index can't be read\n")
        assert missing in said


class TestTheList:
    def test_json_and_html_say_the_same(self, index: PackageIndex) -> None:
        index.add("0.8.1", {"a.py": A}, yanked=True)
        index.add("0.8.1", {"a.py": A}, yanked=True, tag="cp38-abi3-manylinux_2_31_aarch64")
        index.add("0.8.2", {}, digest=False)
        index.add_source("0.8.3")
        index.add("0.9.0rc1", {})
        found = []
        for html in (False, True):
            index.html = html
            found.append(Index(Cache("")).releases())
        assert found[0] == found[1]
        assert [one.version for one in found[0]] == ["0.8.0", "0.8.1", "0.8.2", "0.8.3"]
        assert [one.yanked for one in found[0]] == [False, True, False, False]
        assert [len(one.wheels) for one in found[0]] == [1, 2, 1, 0]
        assert found[0][1].wheels[0].name == f"vllm-0.8.1-{TAG}.whl"
        assert found[0][0].wheels[0].sha256 == hashlib.sha256(index.files[0].data).hexdigest()
        assert found[0][2].wheels[0].sha256 == ""

    def test_what_was_fetched_is_counted(self, index: PackageIndex) -> None:
        made = Index(Cache(""))
        (release,) = made.releases()
        with made.usual_wheel(release) as wheel:
            assert wheel.read("vllm/a.py") == A
            assert wheel.read("vllm/a.py") == A
            assert wheel.read("vllm/none.py") is None
        sent = [one.sent for one in index.wheels_asked]
        assert (made.fetched, len(sent)) == (sum(sent), 2)
        assert made.sizes == {wheel.file.name: len(index.files[0].data)}

    @pytest.mark.usefixtures("index")
    def test_parts_of_a_wheel_are_asked_for_as_they_are(self) -> None:
        made = Index(Cache(""))
        seen: list[str] = []
        made._session().hooks["response"].append(
            lambda answer, **_: seen.append(answer.request.headers["Accept-Encoding"])
        )
        (release,) = made.releases()
        made.usual_wheel(release)
        assert seen[1:] == ["identity"]


class TestTheCache:
    def test_it_gives_out_only_what_it_was_given(self, tmp_path: Path) -> None:
        cache = Cache(str(tmp_path))
        digest = hashlib.sha256(b"data").hexdigest()
        assert cache.blob(digest) is None
        cache.keep_blob(b"data")
        assert cache.blob(digest) == b"data"
        (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
        path.write_bytes(b"Data")
        assert cache.blob(digest) is None
        cache.keep_blob(b"data")
        assert cache.blob(digest) == b"data"

    @pytest.mark.parametrize("value", [None, 1, "text", [1], {"a": [None]}])
    def test_notes(self, tmp_path: Path, value: object) -> None:
        cache = Cache(str(tmp_path))
        assert cache.note("kind", "key") is None
        cache.keep_note("kind", "key", value)
        assert cache.note("kind", "key") == value
        assert cache.note("other", "key") is None
        assert cache.note("kind", "../key") is None

    @pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[" * 100_000])
    def test_a_damaged_note_is_none(self, tmp_path: Path, damage: bytes) -> None:
        cache = Cache(str(tmp_path))
        cache.keep_note("kind", "key", 1)
        (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
        path.write_bytes(damage)
        assert cache.note("kind", "key") is None

    def test_without_a_folder_nothing_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        cache = Cache("")
        cache.keep_blob(b"data")
        cache.keep_note("kind", "key", 1)
        assert cache.note("kind", "key") is None
        assert (list(tmp_path.iterdir()), cache.trouble) == ([], "")

    def test_where_the_users_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        assert Cache.of_user({}).folder == "/home/me/.cache/vllm-patcher"
        assert Cache.of_user({"XDG_CACHE_HOME": "/c"}).folder == "/c/vllm-patcher"
        # By the rules of those folders a relative one does not count.
        assert Cache.of_user({"XDG_CACHE_HOME": "c"}).folder == "/home/me/.cache/vllm-patcher"

    def test_a_user_without_home_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        assert Cache.of_user({}).folder == ""

    def test_nothing_is_left_of_what_could_not_be_kept(self, tmp_path: Path) -> None:
        cache = Cache(str(tmp_path))
        digest = hashlib.sha256(b"data").hexdigest()
        (tmp_path / "blobs" / digest[:2] / digest / "in the way").mkdir(parents=True)
        cache.keep_blob(b"data")
        assert cache.trouble.startswith(f"nothing can be kept in {tmp_path}: ")
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_several_may_keep_the_same_at_once(self, tmp_path: Path) -> None:
        """Nobody ever sees a part, and no thread takes away another's."""
        cache = Cache(str(tmp_path))
        data = bytes(300_000)
        digest = hashlib.sha256(data).hexdigest()
        cache.keep_blob(data)
        seen = []

        def work() -> None:
            for _ in range(20):
                cache.keep_blob(data)
                seen.append(cache.blob(digest) == data)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (cache.trouble, set(seen), len(seen)) == ("", {True}, 80)


def wheel_of(data: bytes, version: str = "0.8.0") -> Wheel:
    """A wheel in memory."""

    @contextmanager
    def opened() -> Iterator[zipfile.ZipFile]:
        with failing("it can't be read"), zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive

    file = WheelFile(name=f"vllm-{version}-{TAG}.whl", url="", sha256="")
    return Wheel(file, version, open_=opened, cache=Cache(""))


class TestTheWheel:
    def test_it_reads_as_an_install(self) -> None:
        with wheel_of(wheel_bytes("0.8.0", FILES)) as wheel:
            assert wheel.install.version == "0.8.0"
            package = wheel.tree(wheel.install.package)
            assert (package.read("a.py"), package.exists("a.py")) == (A, True)
            assert (package.read("c.py"), package.exists("c.py")) == (None, False)
            assert package.leftovers("a.py") is False
            assert wheel.install.dist_info is not None
            info = wheel.tree(wheel.install.dist_info)
            assert (info.read("RECORD") or b"").startswith(b"vllm/a.py,sha256=")
            assert info.exists("RECORD")
            assert info.read("vllm-patcher.json") is None

    def test_a_damaged_record_closes_the_connection(self) -> None:
        closed = []

        @contextmanager
        def opened() -> Iterator[zipfile.ZipFile]:
            data = wheel_bytes("0.8.0", FILES, record=b"a,b,c,d")
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                yield archive
            closed.append(True)

        file = WheelFile(name=f"vllm-0.8.0-{TAG}.whl", url="", sha256="")
        with pytest.raises(InvalidRecord):
            Wheel(file, "0.8.0", open_=opened, cache=Cache(""))
        assert closed == [True]

    def test_a_bug_of_ours_stays_one(self) -> None:
        with pytest.raises(ZeroDivisionError), failing("what"):
            eval("1 / 0", {"__name__": "vllm_patcher.x"})  # noqa: S307 - a line of this package
        with pytest.raises(NotReleased), failing("what"):
            eval("1 / 0", {"__name__": "zipfile"})  # noqa: S307 - a line of a library


GOOD = wheel_bytes("0.8.0", FILES)
LENGTH = len(GOOD)
# Where something is written that zipfile reads: all but the ballast.
WRITTEN = [*range(600), *range(LENGTH - 1500, LENGTH)]


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(WRITTEN), st.integers(0, 255), min_size=1, max_size=4))
def test_whatever_is_wrong_in_a_zip_is_said_or_does_not_matter(damage: dict[int, int]) -> None:
    data = bytearray(GOOD)
    for place, value in damage.items():
        data[place] = value
    try:
        with wheel_of(bytes(data)) as wheel:
            found = wheel.read("vllm/a.py")
    except (NotReleased, InvalidRecord):
        return
    assert found in {A, None}


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(st.sampled_from(WRITTEN), st.integers(0, 255), min_size=1, max_size=4))
def test_the_same_over_the_network(index: PackageIndex, damage: dict[int, int]) -> None:
    data = bytearray(GOOD)
    for place, value in damage.items():
        data[place] = value
    index.files[0].data = bytes(data)
    index.asked.clear()
    made = Index(Cache(""))
    (release,) = made.releases()
    try:
        with made.usual_wheel(release) as wheel:
            found = wheel.read("vllm/a.py")
    except (NotReleased, InvalidRecord):
        return
    assert found in {A, None}
