"""The verbs on a real Ray cluster, whose nodes each see their own install at one path."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import ray_cluster
from fakes import make_install
from ray_cluster import Cluster
from scenes import FILES, diff, entry, patch, write_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess, Popen

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
#: Begins and does not end before a test has had its way.
SLOW_PROBE = "import os, time\nwhile not os.path.exists('/tmp/never'): time.sleep(0.1)\n"


def lay(site: Path, *, version: str = "0.11.0") -> None:
    """Lay an install anew into a folder that may be a node's."""
    for path in site.iterdir() if site.exists() else ():
        shutil.rmtree(path)
    make_install(site, files=FILES, version=version)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A catalog that is on the driver alone: two patches, and one that has a probe."""
    folder = tmp_path_factory.mktemp("catalog")
    two = entry("two", patch(a15="150", b15="150"), requires=["one"])
    probed = entry("slow", patch(b05="50"), default=False, probe=SLOW_PROBE)
    return str(write_catalog(folder, entry("one", patch(a05="50")), two, probed))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with an install each."""
    sites = [tmp_path_factory.mktemp("site") for _ in range(3)]
    with ray_cluster.cluster(tmp_path_factory.mktemp("cluster"), sites) as made:
        yield made


class Nodes:
    """A cluster, and the options that say what is meant on it."""

    def __init__(self, cluster: Cluster, catalog: str) -> None:
        self.cluster = cluster
        self.nodes = cluster.nodes
        self.options = ("--no-builtin", "--catalog", catalog, "--site-packages", str(cluster.site))

    def words(self, verb: str, *arguments: str | Path) -> tuple[str | Path, ...]:
        return (verb, *arguments, *self.options, f"--ray={self.cluster.address}")

    def run(self, verb: str, *arguments: str | Path) -> CompletedProcess[str]:
        return self.cluster.run(*self.words(verb, *arguments))

    def start(self, verb: str, *arguments: str | Path) -> Popen[str]:
        return self.cluster.start(*self.words(verb, *arguments))

    def json(self, verb: str, *arguments: str | Path) -> dict[str, Any]:
        done = self.run(verb, *arguments, "--json")
        document: dict[str, Any] = json.loads(done.stdout)
        jsonschema.validate(document, SCHEMA)
        assert document["ok"] is (done.returncode == 0)
        return document

    def files(self) -> list[dict[str, bytes]]:
        """What is on the disk of each node."""
        return [
            {
                str(path.relative_to(node.site)): path.read_bytes()
                for path in node.site.rglob("*.*")
                if path.is_file()
            }
            for node in self.nodes
        ]

    def applied(self) -> list[bool]:
        return [b"a05 = 50\n" in found.get("vllm/a.py", b"") for found in self.files()]


@pytest.fixture
def nodes(running: Cluster, catalog: str) -> Nodes:
    """Give the three nodes with fresh installs."""
    for node in running.nodes:
        lay(node.site)
    return Nodes(running, catalog)


def fates(document: dict[str, Any]) -> dict[str, str]:
    return {node["host"]: node["fate"] for node in document["nodes"]}


def test_the_whole_story(nodes: Nodes) -> None:
    before = nodes.files()
    asked = nodes.run("verify")
    assert asked.returncode == 1
    assert asked.stdout.splitlines()[0].endswith("vllm 0.11.0  2 not-applied")
    assert "3 of 3 nodes are not as asked" in asked.stderr
    hint = asked.stderr.splitlines()[-1]
    assert hint.startswith("hint: vllm-patch apply ")
    assert hint.endswith(f"--ray={nodes.cluster.address}")

    tried = nodes.run("apply", "--dry-run")
    assert tried.returncode == 0
    assert nodes.files() == before

    assert nodes.run("apply").returncode == 0
    assert nodes.applied() == [True, True, True]
    answer = nodes.json("verify")
    assert answer["ok"]
    assert len(answer["groups"]) == 1
    assert {node["address"] for node in answer["nodes"]} == {n.address for n in nodes.nodes}
    assert {node["host"] for node in answer["nodes"]} == {n.host for n in nodes.nodes}
    assert {node["id"] for node in answer["nodes"]} == {n.id for n in nodes.nodes}

    again = nodes.json("apply")
    assert (again["ok"], again["wrote"]) == (True, False)
    assert nodes.run("revert").returncode == 0
    assert nodes.files() == before


def test_nothing_is_installed_on_a_node(nodes: Nodes) -> None:
    place = ray_cluster.of_nodes().folder
    before = {path for path in place.rglob("*") if "__pycache__" not in path.parts}
    assert nodes.run("apply").returncode == 0
    assert before == {path for path in place.rglob("*") if "__pycache__" not in path.parts}
    assert not any(path.name.startswith("vllm_patcher") for path in before)


def test_one_that_is_not_patched(nodes: Nodes) -> None:
    nodes.run("apply")
    lay(nodes.nodes[1].site)
    done = nodes.run("verify")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "127.0.0.2 node1                   vllm 0.11.0  2 not-applied"
    assert lines[-1] == "127.0.0.1 node0, 127.0.0.3 node2  vllm 0.11.0  2 applied"
    assert "127.0.0.2 node1: 2 not-applied" in done.stderr
    assert nodes.json("apply")["wrote"]
    assert nodes.run("verify").returncode == 0


def test_one_on_another_release(nodes: Nodes) -> None:
    lay(nodes.nodes[2].site, version="0.10.2")
    done = nodes.run("apply")
    assert done.returncode == 3  # all have it, and still they are not alike
    assert nodes.applied() == [True, True, True]
    assert "127.0.0.3 node2: vllm 0.10.2; 127.0.0.1 node0: vllm 0.11.0" in done.stderr
    assert nodes.run("verify").returncode == 1


def test_one_where_it_has_no_place(nodes: Nodes) -> None:
    odd = nodes.nodes[1].site / "vllm" / "a.py"
    odd.write_bytes(odd.read_bytes().replace(b"a05 = 5\n", b"a05 = other\n"))
    before = nodes.files()
    done = nodes.run("apply")
    assert done.returncode == 3
    assert nodes.files() == before
    assert "hunk 1 has no place here" in done.stdout
    assert "1 of 3 nodes is not as asked" in done.stderr
    going = nodes.run("apply", "--keep-going")
    assert going.returncode == 3
    assert nodes.applied() == [True, False, True]
    assert "2 of 3 nodes are changed" in going.stderr
    assert " before: vllm-patch revert one two " in going.stderr
    assert "; nothing was changed on any" in done.stderr


def test_a_diff_of_the_driver(nodes: Nodes, tmp_path: Path) -> None:
    fix = tmp_path / "fix.patch"
    fix.write_bytes(patch(a10="100"))
    assert nodes.run("apply", fix).returncode == 0
    assert nodes.run("verify", fix).returncode == 0
    assert nodes.run("verify", "fix").returncode == 0  # by the receipts that the nodes have
    unknown = nodes.run("verify", "other")
    assert unknown.returncode == 2
    assert "no patch 'other'" in unknown.stderr
    assert nodes.run("revert", "fix").returncode == 0


def test_the_built_in_catalog_goes_along(nodes: Nodes) -> None:
    words = ("--site-packages", str(nodes.cluster.site), f"--ray={nodes.cluster.address}")
    done = nodes.cluster.run("verify", "lora-finish-request", "--json", *words)
    (group,) = json.loads(done.stdout)["groups"]
    assert len(group) == 3
    (patch_,) = json.loads(done.stdout)["nodes"][0]["report"]["patches"]
    assert patch_["id"] == "lora-finish-request"


def test_a_node_without_a_vllm(nodes: Nodes) -> None:
    for path in nodes.nodes[0].site.iterdir():
        shutil.rmtree(path)
    done = nodes.run("apply")
    assert done.returncode == 3
    assert "--skip-without-vllm" in done.stderr
    assert nodes.applied() == [False, False, False]
    skipping = nodes.run("apply", "--skip-without-vllm")
    assert skipping.returncode == 0, skipping.stderr
    assert "1 of 3 nodes without a vLLM, which is allowed" in skipping.stdout
    assert nodes.applied() == [False, True, True]
    assert nodes.run("verify", "--skip-without-vllm").returncode == 0
    assert nodes.run("verify").returncode == 3


def test_the_cluster_that_ray_finds(nodes: Nodes) -> None:
    address = nodes.cluster.address
    words = ("verify", *nodes.options, "--ray")
    assert nodes.cluster.run(*words, RAY_ADDRESS=address).returncode == 1
    none = nodes.cluster.run(*words, RAY_ADDRESS="127.0.0.1:1")
    assert (none.returncode, none.stderr.splitlines()[0]) == (
        3,
        "error: there is no Ray cluster at 127.0.0.1:1",
    )


def test_ray_itself_says_nothing(nodes: Nodes) -> None:
    nodes.run("apply")
    done = nodes.run("verify")
    # Without a network Ray wonders how this machine is called.
    said = [line for line in done.stderr.splitlines() if "determine local IP" not in line]
    assert (done.returncode, said, len(done.stdout.splitlines())) == (0, [], 1)


def test_one_that_hangs(nodes: Nodes) -> None:
    nodes.run("apply")
    nodes.nodes[2].pause()
    try:
        done = nodes.run("verify", "--ray-timeout", "5")
    finally:
        nodes.nodes[2].resume()
    assert done.returncode == 3
    assert "127.0.0.3 node2: timed-out: no answer in 5 s" in done.stderr
    assert "127.0.0.1 node0, 127.0.0.2 node1  vllm 0.11.0  2 applied" in done.stdout
    assert nodes.run("verify").returncode == 0


def until(holds: Callable[[], bool], *, pause: float = 0.05) -> None:
    """Wait for something that happens on another node."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(pause)


def test_where_the_driver_stands_does_not_matter(nodes: Nodes) -> None:
    """Ray would look there for modules, on every node that sees the folder as well."""
    here = nodes.cluster.site.parent
    make_install(here, files=FILES)
    (here / "unidiff.py").write_text("raise RuntimeError('the one of the driver')\n")
    try:
        assert nodes.run("apply").returncode == 0
        words = [word for word in nodes.words("verify") if word != str(nodes.cluster.site)]
        done = nodes.cluster.run(*(word for word in words if word != "--site-packages"))
        assert done.returncode == 3
        assert "no vLLM was found" in done.stderr
        assert nodes.run("revert").returncode == 0
    finally:
        (here / "unidiff.py").unlink()
        shutil.rmtree(here / "vllm")
        shutil.rmtree(next(here.glob("vllm-*.dist-info")))


def test_an_interrupt_while_nodes_are_written(nodes: Nodes, tmp_path: Path) -> None:
    many = tmp_path / "many.patch"
    many.write_bytes(b"".join(diff(f"new/f{n}.py", None, b"x = 1\n") for n in range(1000)))
    applying = nodes.start("apply", many, "--json")
    until(lambda: any((nodes.nodes[1].site / "vllm" / "new").glob(".*")), pause=0)
    applying.send_signal(signal.SIGINT)
    out, err = applying.communicate(timeout=60)
    assert applying.returncode == 3, err
    answer = json.loads(out)
    jsonschema.validate(answer, SCHEMA)
    assert set(fates(answer).values()) <= {"answered", "interrupted"}
    assert [error["code"] for error in answer["errors"]][-1] == "half-done"
    assert nodes.run("apply", many).returncode == 0
    assert nodes.run("revert").returncode == 0


def test_a_revert_that_is_cut_off_can_be_repeated(nodes: Nodes, tmp_path: Path) -> None:
    """By the name of a diff that only receipts know, and some have it no more."""
    fix = tmp_path / "fix.patch"
    fix.write_bytes(patch(a10="100"))
    assert nodes.run("apply", fix).returncode == 0
    odd = nodes.nodes[1].site / "vllm" / "a.py"
    good = odd.read_bytes()
    odd.write_bytes(good.replace(b"a10 = 100\n", b"a10 = other\n"))
    going = nodes.run("revert", "fix", "--keep-going")
    assert going.returncode == 3
    assert "to finish it: vllm-patch revert fix " in going.stderr
    odd.write_bytes(good)
    assert nodes.run("revert", "fix").returncode == 0
    assert nodes.files()[0] == nodes.files()[1] == nodes.files()[2]
    assert nodes.run("verify", "fix").returncode == 2


def test_one_that_joins_meanwhile_and_is_killed_in_the_middle(nodes: Nodes, tmp_path: Path) -> None:
    """Of a node that joins nobody knows what it has; the next run finishes what was cut off."""
    lay(tmp_path / "late")
    probing = nodes.start("verify", "slow", "--probe")
    until(lambda: all("slow.py" in commands(node) for node in nodes.nodes))
    late = nodes.cluster.join(tmp_path / "late")
    try:
        for node in nodes.nodes[:3]:
            for pid in node.pids:
                if "slow.py" in command(pid):
                    os.kill(pid, signal.SIGKILL)
        out, err = probing.communicate(timeout=60)
        assert probing.returncode == 3
        assert out.startswith("127.0.0.4 node3 ")
        assert "127.0.0.4 node3: joined: it came while the others were asked" in err

        many = tmp_path / "many.patch"
        many.write_bytes(b"".join(diff(f"new/f{n}.py", None, b"x = 1\n") for n in range(1000)))
        applying = nodes.start("apply", many, "--json")
        until(lambda: any((late.site / "vllm" / "new").glob(".*")), pause=0)
        late.kill()
        out, err = applying.communicate(timeout=60)
    finally:
        late.kill()
        nodes.nodes.remove(late)
    assert applying.returncode == 3, err
    answer = json.loads(out)
    jsonschema.validate(answer, SCHEMA)
    others = dict.fromkeys(("node0", "node1", "node2"), "answered")
    assert fates(answer) == {**others, "node3": "died"}
    assert [error["code"] for error in answer["errors"]] == ["node-silent", "half-done"]
    assert any((late.site / "vllm" / "new").glob(".*"))

    back = nodes.cluster.join(late.site)
    try:
        # Ray takes its time to give the other up.
        until(lambda: nodes.run("apply", many).returncode == 0)
        assert sum(1 for _ in (late.site / "vllm" / "new").iterdir()) == 1000
    finally:
        back.kill()
        nodes.nodes.remove(back)
    until(lambda: nodes.run("revert").returncode == 0)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def commands(node: ray_cluster.Node) -> str:
    return "".join(map(command, node.pids))


def test_one_that_can_not_be_written_and_two_that_see_one_copy(
    tmp_path: Path, catalog: str
) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    for site in (shared, other):
        lay(site)
    (tmp_path / "cluster").mkdir()
    with ray_cluster.cluster(tmp_path / "cluster", [shared, other, shared], read_only=[1]) as made:
        nodes = Nodes(made, catalog)
        before = nodes.files()
        done = nodes.run("apply")
        assert done.returncode == 3
        assert re.search(r"127\.0\.0\.2 node1: .*can't be written", done.stderr)
        assert nodes.files() == before

        going = nodes.json("apply", "--keep-going")
        wrote = {node["host"]: (node["report"] or {}).get("wrote") for node in going["nodes"]}
        assert wrote == {"node0": True, "node1": None, "node2": False}
        assert nodes.applied() == [True, False, True]
        assert len(going["groups"]) == 2

        made.nodes[1].kill()
        until(lambda: nodes.run("verify").returncode == 0)
        assert nodes.json("revert")["wrote"]
        assert nodes.files() == before

        # One more that may only read what the others write.
        reader = made.join(shared, read_only=True)
        answer = nodes.json("apply")
        assert (answer["ok"], answer["wrote"]) == (True, True)
        assert fates(answer) == dict.fromkeys(("node0", "node2", reader.host), "answered")


def test_the_vllm_of_the_workers_python_is_meant(tmp_path: Path, catalog: str) -> None:
    own = ray_cluster.with_ray()
    make_install(own.site, files=FILES)
    python = tmp_path / "site" / "bin" / "python"
    with ray_cluster.cluster(tmp_path, [own.folder], python=python) as made:
        options = ("--no-builtin", "--catalog", catalog, f"--ray={made.address}", "--json")
        answer = json.loads(made.run("apply", *options).stdout)
        (node,) = answer["nodes"]
        assert node["report"]["install"]["found_by"] == "this interpreter"
        assert b"a05 = 50\n" in (own.site / "vllm" / "a.py").read_bytes()
        answer = json.loads(made.run("verify", "--python", python, *options).stdout)
        assert answer["ok"]
        assert answer["nodes"][0]["report"]["install"]["found_by"] == f"--python {python}"
