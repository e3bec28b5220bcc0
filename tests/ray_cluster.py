"""A Ray cluster of several nodes on this machine, each with its own folder at one shared path.

All of it is in a network namespace that has nothing but `lo`. A node is to its processes what a
container is: its folder is mounted at the shared path, it has a host name and an address, and
they end when its first process does.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, run
from typing import TYPE_CHECKING, Any

import pytest

import conftest
import installers
from installers import Environment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "127.0.0.1:6379"
"""That of every cluster: each has a network of its own."""
SECONDS = 120
"""How long a node may take to start, and a command to end."""

# The network is there as long as this process. The request is SIOCSIFFLAGS, the flag IFF_UP.
NETWORK = """\
import fcntl, socket, struct, sys
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh", b"lo", 1))
print("ready", flush=True)
sys.stdin.read()
"""
CONTAINER = (
    *("unshare", "--uts", "--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
# The first process of a node. It reads no more than the end of its input, which is the node's end
# too, and so at the latest that of the tests. What the driver has is hidden from the node.
FIRST = f"""\
mount --bind "$1" "$2" && mount -o "remount,bind,$3" "$2" && mount -t tmpfs none "$4" &&
    echo "$5" >/proc/sys/kernel/hostname || exit
log=$6
shift 6
if timeout {SECONDS} "$@" </dev/null >"$log" 2>&1
then echo ready
else cat "$log"; echo failed
fi &
read -r end
"""
HEAD = ("--head", f"--port={ADDRESS.partition(':')[2]}", "--include-dashboard=false")
# Ports are any that are free. A machine that is full is no reason to kill workers.
NODE = (
    *("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"),
    *("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"),
)
ENVIRON = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}


def why_not() -> str:
    """Say why there can be no cluster here; "" if there can."""
    if os.geteuid() != 0:
        return "only root can make namespaces here"
    for program in ("mount", "nsenter", "timeout", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    tried = run([*CONTAINER, "--net", "true"], check=False, capture_output=True, text=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def with_ray() -> Environment:
    """Make an environment with Ray alone, or skip where that can't be had."""
    folder = Path(tempfile.mkdtemp(dir=installers._scratch().name))
    made = installers.uv_venv(folder, _cache())
    try:
        _install(made, "ray>=2.40")
    except AssertionError as error:
        pytest.skip(f"ray can't be had: {str(error).splitlines()[-1]}")
    return made


@functools.cache
def of_nodes() -> Environment:
    """Make the environment of the nodes, once in a process; it goes with that."""
    return with_ray()


@functools.cache
def of_driver() -> Environment:
    """Make the one of the commands that go to a cluster: it has this project too."""
    made = with_ray()
    # Else uv may take the wheel that it has made of this folder before.
    _install(made, "--refresh-package", "vllm-patcher", ROOT)
    return made


def _install(made: Environment, *what: str | Path) -> None:
    command = ("pip", "install", "--quiet", "--python", made.python, *what)
    installers.uv(*command, cache=_cache(), env={"UV_OFFLINE": "0"})


def _cache() -> Path:
    return conftest._cache_folder().parent / "uv"


@dataclass(slots=True, kw_only=True)
class Node:
    """A node. The first of a cluster is its head."""

    number: int
    host: str
    address: str
    site: Path
    """The folder that it has at the shared path."""
    process: Popen[str]
    id: str = ""
    """What Ray calls it."""

    @property
    def pids(self) -> list[int]:
        """Ray's processes on it, by the numbers that they have here; none after its end."""
        first = self._first()
        return [pid for pid in _sharing("pid", *first) if pid not in first]

    def kill(self) -> None:
        """Kill all of them at once, as when the machine loses its power."""
        _signal(signal.SIGKILL, self._first())
        if not self._first():
            self.process.kill()
        self.process.wait()  # which is until all of them have ended

    def pause(self) -> None:
        """Stop all of them, as when the machine hangs: its connections stay."""
        done: set[int] = set()
        while fresh := set(self.pids) - done:  # one may have started another meanwhile
            _signal(signal.SIGSTOP, fresh)
            done |= fresh

    def resume(self) -> None:
        """Let them go on."""
        _signal(signal.SIGCONT, self.pids)

    def ready(self) -> Node:
        """Wait until it is part of the cluster."""
        _ready(self.process)
        for pid in self.pids:
            with suppress(OSError):  # it may have ended
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                named = [word.partition("=")[2] for word in words if word.startswith("--node_id=")]
                self.id = named[0] if named else self.id
        return self

    def _first(self) -> list[int]:
        """The first process of its namespace, if there is one."""
        with suppress(FileNotFoundError):
            children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
            if self.process.poll() is None:  # else the number may be another's by now
                return [int(pid) for pid in Path(children).read_text().split()]
        return []


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A cluster that runs."""

    site: Path
    """The path that the nodes share; an empty folder to the driver and to this process."""
    address: str = ADDRESS
    nodes: list[Node] = field(default_factory=list)
    _scratch: Path
    _python: Path
    _environ: Mapping[str, str]
    _network: Popen[str]
    _processes: list[Popen[str]] = field(default_factory=list)

    def join(
        self, site: Path, *, environ: Mapping[str, str] | None = None, read_only: bool = False
    ) -> Node:
        """Start one more node; `environ` are more variables that Ray has there."""
        return self._begin(site, environ or {}, read_only=read_only).ready()

    def run(
        self, *arguments: str | Path, timeout: float = SECONDS, **environ: str
    ) -> CompletedProcess[str]:
        """Run the driver's vllm-patch, with variables that are added."""
        return _ended(self.start(*arguments, **environ), timeout)

    def start(self, *arguments: str | Path, **environ: str) -> Popen[str]:
        """Start the driver's vllm-patch; it ends with the cluster at the latest."""
        program = of_driver().folder / "bin" / "vllm-patch"
        return self._process(program, *arguments, env=environ, cwd=self.site.parent)

    def python(self, code: str, *arguments: str | Path, **environ: str) -> str:
        """Run code with the driver's Python; return what it printed on standard output."""
        words = (of_driver().python, "-c", code, *arguments)
        done = _ended(self._process(*words, env=environ, cwd=self.site.parent), SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def pids(self) -> list[int]:
        """All processes in its network."""
        return _sharing("net", self._network.pid) if self._network.poll() is None else []

    def close(self) -> None:
        """End all that is in its network."""
        for node in self.nodes:
            node.kill()
        for process in self._processes:
            process.kill()
        while others := set(self.pids) - {self._network.pid}:
            _signal(signal.SIGKILL, others)
            time.sleep(0.01)
        for process in (*self._processes, self._network):
            with process:
                process.kill()

    def _begin(self, site: Path, environ: Mapping[str, str], *, read_only: bool) -> Node:
        number = len(self.nodes)
        host, address = f"node{number}", f"127.0.0.{number + 1}"
        folder = self._scratch / host  # Ray's sockets lie there, so its path has to be short
        access = "ro" if read_only else "rw"
        mounts = (site, self.site, access, of_driver().folder)
        process = self._process(
            *(*CONTAINER, "sh", "-c", FIRST, "sh", *mounts, host, f"{folder}.log"),
            *(self._python, "-m", "ray.scripts.scripts", "start", *NODE),
            *(HEAD if number == 0 else (f"--address={ADDRESS}",)),
            *(f"--node-ip-address={address}", f"--temp-dir={folder}"),
            env={**ENVIRON, **self._environ, **environ},
            stdin=PIPE,
        )
        node = Node(number=number, host=host, address=address, site=site, process=process)
        self.nodes.append(node)
        return node

    def _process(
        self,
        *words: str | Path,
        env: Mapping[str, str],
        cwd: str | Path = "/",
        stdin: int = DEVNULL,
    ) -> Popen[str]:
        """Start a process in the network that knows of no Ray and no environment."""
        unknown = ("RAY_", "VIRTUAL_ENV", "CONDA_PREFIX")
        own = {key: value for key, value in os.environ.items() if not key.startswith(unknown)}
        inside = ("nsenter", f"--net=/proc/{self._network.pid}/ns/net", *words)
        self._processes.append(_started(inside, env={**own, **env}, cwd=cwd, stdin=stdin))
        return self._processes[-1]


@contextmanager
def cluster(
    folder: Path,
    sites: Sequence[Path],
    *,
    environ: Mapping[str, str] | None = None,
    read_only: Collection[int] = (),
    python: Path | None = None,
) -> Iterator[Cluster]:
    """Start a cluster with a node for each of some folders, or skip where there can be none.

    `environ` are more variables that Ray has on each node, `read_only` are the numbers of nodes
    that may not write to their folder, `python` is an interpreter with Ray, as the nodes see it.
    The driver works in `folder`.
    """
    reason = why_not()
    if reason:
        pytest.skip(reason)
    python = python or of_nodes().python
    site = folder / "site"
    site.mkdir()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as scratch:
        made = Cluster(
            site=site,
            _scratch=Path(scratch),
            _python=python,
            _environ=environ or {},
            _network=_started(("unshare", "--net", sys.executable, "-c", NETWORK), stdin=PIPE),
        )
        try:
            _ready(made._network)
            for number, one in enumerate(sites):
                node = made._begin(one, {}, read_only=number in read_only)
                if number == 0:
                    node.ready()
            for node in made.nodes[1:]:
                node.ready()
            yield made
        finally:
            made.close()


def _started(words: Sequence[str | Path], **more: Any) -> Popen[str]:
    # In a session of its own: an interrupt from the keyboard goes to the tests alone.
    command = [str(word) for word in words]
    return Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True, **more)


def _ready(process: Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    said = line = process.stdout.readline()
    while line not in {"ready\n", "failed\n", ""}:
        line = process.stdout.readline()
        said += line
    if line != "ready\n":
        if process.stdin is not None:
            process.stdin.close()
        raise AssertionError(said + process.stderr.read())


def _ended(process: Popen[str], timeout: float) -> CompletedProcess[str]:
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return CompletedProcess(process.args, process.returncode, out, err)


def _sharing(kind: str, *pids: int) -> list[int]:
    """The processes that are in a namespace of given ones, which is none of this process."""
    links = {_link(pid, kind) for pid in pids} - {_link(os.getpid(), kind), ""}
    everything = map(int, filter(str.isdecimal, os.listdir("/proc")))
    # What has ended and is only not forgotten yet is in no network any more.
    return [pid for pid in everything if _link(pid, kind) in links and _link(pid, "net")]


def _link(pid: int, kind: str) -> str:
    with suppress(OSError):  # it may have ended
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def _signal(what: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)
