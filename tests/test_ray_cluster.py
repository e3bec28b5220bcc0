"""The clusters of `ray_cluster` are what they say, and leave nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ray_cluster
from fakes import make_install
from ray_cluster import Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

# What a task says that is pinned to a node, for each of some nodes.
ASK = """\
import json, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Pinned

def look(site, driver):
    import importlib.util, os, pathlib
    try:
        pathlib.Path(site, "written").touch()
        access = "rw"
    except OSError as error:
        access = error.strerror
    return {
        "host": os.uname().nodename,
        "files": {path.name: path.read_text() for path in pathlib.Path(site, "vllm").glob("*")},
        "access": access,
        "modules": [name for name in ("ray", "unidiff", "vllm", "vllm_patcher")
                    if importlib.util.find_spec(name)],
        "driver": os.listdir(driver),
        "environment": os.environ.get("VIRTUAL_ENV"),
        "network": pathlib.Path("/proc/net/dev").read_text(),
    }

address, seconds, site, *ids = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
tasks = []
for id in ids:
    pinned = Pinned(id, soft=False)
    task = ray.remote(look).options(num_cpus=0, max_retries=0, scheduling_strategy=pinned)
    tasks.append(task.remote(site, sys.prefix))
said = []
for task in tasks:
    try:
        said.append(ray.get(task, timeout=float(seconds)))
    except ray.exceptions.RayError as error:
        said.append(type(error).__name__)
print(json.dumps([said, {node["NodeID"]: node["Alive"] for node in ray.nodes()}]))
"""


def ask(cluster: Cluster, *nodes: Node, seconds: float = 60) -> tuple[list[Any], dict[str, bool]]:
    """What tasks pinned to nodes say, and which nodes are alive, as Ray sees it."""
    ids = [node.id for node in nodes]
    printed = cluster.python(ASK, cluster.address, str(seconds), cluster.site, *ids)
    said, alive = json.loads(printed.splitlines()[-1])
    return said, alive


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two installs, and a folder without one."""
    folder = tmp_path_factory.mktemp("sites")
    for number in range(2):
        make_install(folder / str(number), files={"a.py": b"a = %d\n" % number})
    (folder / "2").mkdir()
    return [folder / str(number) for number in range(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, sites: list[Path]) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ray_cluster.cluster(folder, sites, read_only=[1]) as made:
        yield made


@pytest.fixture(scope="module")
def said(cluster: Cluster) -> list[Any]:
    """What a task on each node says."""
    said, alive = ask(cluster, *cluster.nodes)
    assert alive == {node.id: True for node in cluster.nodes}
    return said


def test_each_node_has_its_own_files_at_the_shared_path(
    cluster: Cluster, said: list[Any], sites: list[Path]
) -> None:
    assert [one["host"] for one in said] == ["node0", "node1", "node2"]
    assert [one["files"].get("a.py") for one in said] == ["a = 0\n", "a = 1\n", None]
    assert [one["access"] for one in said] == ["rw", "Read-only file system", "rw"]
    assert [Path(site, "written").exists() for site in sites] == [True, False, True]
    assert list(cluster.site.iterdir()) == []


def test_nodes_have_ray_and_nothing_of_the_driver(cluster: Cluster, said: list[Any]) -> None:
    assert [(one["modules"], one["driver"]) for one in said] == [(["ray"], [])] * 3
    ran = cluster.run("--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("vllm-patch ")


def test_nothing_but_lo_is_in_the_network(cluster: Cluster, said: list[Any]) -> None:
    of_driver = cluster.python("print(open('/proc/net/dev').read())")
    for text in (of_driver, *(one["network"] for one in said)):
        assert [line.split(":")[0].strip() for line in text.splitlines() if ":" in line] == ["lo"]


def test_a_node_that_joins_may_see_the_files_of_another_and_may_go_away(
    cluster: Cluster, sites: list[Path]
) -> None:
    node = cluster.join(sites[0], environ={"VIRTUAL_ENV": "/somewhere"})
    assert (node.number, node.host, node.address) == (3, "node3", "127.0.0.4")
    ((one,), alive) = ask(cluster, node)
    assert (one["host"], one["environment"]) == ("node3", "/somewhere")
    assert one["files"]["a.py"] == "a = 0\n"
    assert alive[node.id]
    node.kill()
    assert node.pids == []
    # The task ends when the head has given the node up.
    said, alive = ask(cluster, node)
    assert said == ["TaskUnschedulableError"]
    assert not alive[node.id]


def test_a_node_that_is_paused_goes_on(cluster: Cluster) -> None:
    node = cluster.nodes[2]
    node.pause()
    assert ask(cluster, node, seconds=0.5)[0] == ["GetTimeoutError"]
    node.resume()
    assert ask(cluster, node)[0][0]["host"] == "node2"


def test_nothing_is_left_even_of_what_was_interrupted(tmp_path: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    found: list[Path] = []

    def interrupted() -> None:
        own = ray_cluster.with_ray()
        python = tmp_path / "site" / "bin" / "python"
        with ray_cluster.cluster(tmp_path, [own.folder], python=python) as made:
            (head,) = made.nodes
            head.pause()
            program = made._process("sh", "-c", "sleep 600 & echo ready; wait", env={})
            ray_cluster._ready(program)
            pids = made.pids
            assert {program.pid, *head.pids} < set(pids)
            commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in head.pids]
            assert any(command.startswith(bytes(python)) for command in commands)
            # What has ended and is only not forgotten yet is in no network any more.
            found.extend([made._scratch, *(Path(f"/proc/{pid}/ns/net") for pid in pids)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(found) > 5
    assert [path for path in found if path.exists()] == []
    assert Path("/proc/self/mounts").read_text() == before
    assert list((tmp_path / "site").iterdir()) == []


def test_why_a_cluster_does_not_start_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sites: list[Path]
) -> None:
    for name, site, python in (
        ("no-folder", tmp_path / "no-folder", None),
        ("no-python", sites[0], tmp_path / "no-python"),
    ):
        (tmp_path / f"for-{name}").mkdir()
        started = ray_cluster.cluster(tmp_path / f"for-{name}", [site], python=python)
        with pytest.raises(AssertionError, match=f"/{name}"), started:
            pass
    monkeypatch.setenv("PATH", "")
    assert ray_cluster.why_not() == "there is no mount"
    started = ray_cluster.cluster(tmp_path, sites)
    with pytest.raises(pytest.skip.Exception, match="there is no mount"), started:
        pass
