"""Errands on the nodes of a Ray cluster, one pinned task each.

Always true here: a task asks for no processor and may run on no other node, nothing is installed
anywhere, and what has not answered in time is cancelled. Ray carries this package and unidiff to
the nodes, so that those need Python and Ray alone.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from threading import Thread
from typing import TYPE_CHECKING, Any

from vllm_patcher.cluster import errand as errands
from vllm_patcher.cluster.nodes import ANSWERED, DIED, FAILED, INTERRUPTED, JOINED, TIMED_OUT, Node
from vllm_patcher.errors import VllmPatchError
from vllm_patcher.scratch import laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vllm_patcher.cluster.errand import Errand

_INSTALL = "pip install 'vllm-patcher[ray]'"
_LOOK = "ray status"
_CONNECT_SECONDS = 10.0
_INIT_SECONDS = 60.0
_MOST = 200  # characters of what a node says went wrong


class NoCluster(VllmPatchError):
    """Ray is not there, or no cluster of it."""

    code = "no-cluster"


class Raylets:
    """The nodes of one cluster; each may take so many ``seconds`` for one errand."""

    def __init__(self, ray: Any, *, seconds: float) -> None:
        self._ray = ray
        self._seconds = seconds
        self._task = ray.remote(num_cpus=0, max_retries=0)(errands.run)
        self.first = self._alive()
        """The nodes that were alive at the beginning, by their ids."""

    def do(self, errand: Errand, nodes: Sequence[str]) -> list[Node]:
        """Do an errand on nodes, at the same time on all; return them with their answers.

        Raises NoCluster if the cluster is gone.
        """
        may = "nodes that were being written may be changed: run the same command again"
        with self._losing([may] if errand.writes else []):
            return self._done(errand, nodes)

    @contextmanager
    def _losing(self, facts: Sequence[str] = ()) -> Iterator[None]:
        try:
            yield
        except (OSError, self._ray.exceptions.RayError) as error:
            what = f"the cluster was lost: {_last_line(error)}"
            raise NoCluster(what, facts=facts, hint=_LOOK) from error

    def _done(self, errand: Errand, nodes: Sequence[str]) -> list[Node]:
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        load = self._ray.put(errand)
        tasks: dict[Any, str] = {}
        fate, why = TIMED_OUT, f"no answer in {self._seconds:g} s"
        try:
            for node in nodes:
                pinned = affinity(node, soft=False)
                tasks[self._task.options(scheduling_strategy=pinned).remote(load)] = node
            # All of them began now, so this is the time of each.
            done, late = self._wait(tasks, self._seconds)
        except KeyboardInterrupt:
            if not errand.writes:
                raise
            # What has been written must be told all the same.
            fate, why = INTERRUPTED, "it was stopped while it worked"
            done, late = self._wait(tasks, 0)
        for task in late:
            self._ray.cancel(task, force=True)
        found = {tasks[task]: self._answer(task, self.first[tasks[task]]) for task in done}
        return [found.get(node) or self.first[node].replaced(fate=fate, why=why) for node in nodes]

    def _wait(self, tasks: Mapping[Any, str], seconds: float) -> tuple[list[Any], list[Any]]:
        return self._ray.wait(list(tasks), num_returns=len(tasks), timeout=seconds)  # type: ignore[no-any-return]

    def joined(self) -> list[Node]:
        """Return the nodes that were not there at the beginning: nobody has asked them.

        Raises NoCluster if the cluster is gone.
        """
        why = "it came while the others were asked"
        new = [node for name, node in self._alive().items() if name not in self.first]
        return [node.replaced(fate=JOINED, why=why) for node in new]

    def _alive(self) -> dict[str, Node]:
        with self._losing():
            seen = self._ray.nodes()
        found = [
            Node(
                id=each["NodeID"],
                address=each["NodeManagerAddress"],
                host=each["NodeManagerHostname"],
            )
            for each in seen
            if each["Alive"]
        ]
        return {node.id: node for node in sorted(found, key=lambda node: node.order)}

    def _answer(self, task: Any, node: Node) -> Node:
        exceptions = self._ray.exceptions
        try:
            answer: Mapping[str, Any] = self._ray.get(task)
        except exceptions.RayTaskError as error:
            return node.replaced(fate=FAILED, why=_last_line(error))
        except exceptions.RuntimeEnvSetupError as error:
            return node.replaced(fate=FAILED, why=f"Ray can't set the task up: {_last_line(error)}")
        except exceptions.RayError as error:
            return node.replaced(fate=DIED, why=type(error).__name__)
        return node.replaced(fate=ANSWERED, **answer)


@contextmanager
def connected(address: str | None, *, seconds: float) -> Iterator[Raylets]:
    """Go to the cluster at an address (None: the one that Ray finds), and leave it as it is.

    Raises NoCluster. What Ray prints meanwhile, of workers and nodes, is dropped: it would stand
    in the middle of JSON.
    """
    try:
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise NoCluster("--ray needs Ray, which is not here", hint=_INSTALL) from error
    # Where the driver stands, Ray would look for modules on the nodes, before all else.
    with redirect_stdout(StringIO()), laid_out({}, name="empty") as folder:
        _connect(ray, address, folder)
        try:
            yield Raylets(ray, seconds=seconds)
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None, folder: str) -> None:
    where = address or os.environ.get("RAY_ADDRESS", "")
    told = where or "any address that Ray knows"
    why = _unreachable(where)
    if why:
        raise NoCluster(f"there is no Ray cluster at {told}", facts=[why], hint=_LOOK)
    errors: list[Exception] = []

    def go() -> None:
        try:
            ray.init(
                address=address or "auto",
                runtime_env={"py_modules": _carried(), "working_dir": folder},
                logging_level="ERROR",
                log_to_driver=False,
            )
        except Exception as error:  # noqa: BLE001 - it is raised again
            errors.append(error)

    # Where something else answers Ray tries for ever, and no signal stops it.
    going = Thread(target=go, daemon=True)
    going.start()
    going.join(_INIT_SECONDS)
    if going.is_alive():
        why = f"Ray could not connect in {_INIT_SECONDS:g} s; something else may listen there"
        raise NoCluster(f"there is no Ray cluster at {told}", facts=[why], hint=_LOOK)
    for error in errors:
        if not isinstance(error, (ConnectionError, RuntimeError, ValueError, OSError)):
            raise error
        facts = [_last_line(error)]
        raise NoCluster(f"there is no Ray cluster at {told}", facts=facts, hint=_LOOK) from error


def _unreachable(address: str) -> str:
    """Say why nobody listens at HOST:PORT, which Ray would find out in minutes; "" if not known."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return ""
    import socket

    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        return str(error)
    return ""


def _carried() -> list[str]:
    """The folders of the packages that a node needs besides what Ray itself needs."""
    from importlib.util import find_spec

    names = ["vllm_patcher", "unidiff", *(["tomli"] if sys.version_info < (3, 11) else [])]
    specs = [find_spec(name) for name in names]
    return [os.path.dirname(os.path.abspath(str(spec.origin))) for spec in specs if spec]


def _last_line(error: Exception) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Ray colours it
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MOST] if lines else type(error).__name__
