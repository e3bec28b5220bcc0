"""What is asked of Ray, and the command line of a cluster. Real Ray has its turn in test_cluster.

The one thing that can't be had is a cluster of hundreds of nodes: for that a stand-in counts what
it is asked.
"""

from __future__ import annotations

import cProfile
import socket
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from scenes import entry, make_scene, patch, run, write_catalog
from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cluster import campaign, raylets
from vllm_patcher.cluster.errand import Errand
from vllm_patcher.cluster.folding import fold
from vllm_patcher.cluster.nodes import DIED, FAILED, TIMED_OUT
from vllm_patcher.cluster.raylets import NoCluster, Raylets, connected
from vllm_patcher.request import Request

if TYPE_CHECKING:
    from pathlib import Path

REPORT = {
    "verb": "apply",
    "ok": True,
    "install": {"name": "vllm", "installed_version": "0.11.0"},
    "patches": [],
    "files": [],
    "wrote": False,
    "edits": [],
    "notes": [],
    "errors": [],
}
ANSWER = {"report": REPORT, "copy": None, "texts": {}}


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class RuntimeEnvSetupError(RayError):
    pass


class CountingRay:
    """Answers for nodes as Ray does, and counts the calls."""

    def __init__(self, count: int) -> None:
        self.calls = 0
        self.alive = [f"n{number}" for number in range(count)]
        self.slow: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.cancelled: list[str] = []
        self.asked: dict[str, Any] = {}
        strategy = SimpleNamespace(NodeAffinitySchedulingStrategy=self._pinned)
        self.util = SimpleNamespace(scheduling_strategies=strategy)
        self.exceptions = SimpleNamespace(
            RayError=RayError, RayTaskError=RayTaskError, RuntimeEnvSetupError=RuntimeEnvSetupError
        )

    def _pinned(self, node: str, *, soft: bool) -> str:
        assert not soft
        return node

    def nodes(self) -> list[dict[str, Any]]:
        self.calls += 1
        found = {"Alive": True, "NodeManagerAddress": "10.0.0.1"}
        gone = {"NodeID": "gone", "Alive": False}
        return [gone, *({**found, "NodeID": n, "NodeManagerHostname": n} for n in self.alive)]

    def remote(self, **options: Any) -> Any:
        self.asked = options

        def task(_function: object) -> Any:
            return SimpleNamespace(options=self._options)

        return task

    def _options(self, *, scheduling_strategy: str) -> Any:
        def remote(_load: object) -> str:
            self.calls += 1
            return scheduling_strategy

        return SimpleNamespace(remote=remote)

    def put(self, load: object) -> object:
        self.calls += 1
        return load

    def wait(
        self, tasks: list[str], *, num_returns: int, timeout: float
    ) -> tuple[list[str], list[str]]:
        self.calls += 1
        assert num_returns == len(tasks)
        assert timeout == 5
        late = [task for task in tasks if task in self.slow]
        return [task for task in tasks if task not in late], late

    def get(self, task: str) -> dict[str, Any]:
        self.calls += 1
        if task in self.errors:
            raise self.errors[task]
        return ANSWER

    def cancel(self, task: str, *, force: bool) -> None:
        assert force
        self.cancelled.append(task)


ERRAND = Errand(verb="apply", request=Request(), options={})


def test_the_calls_grow_with_the_nodes_and_not_faster() -> None:
    counts = []
    for count in (100, 200, 400):
        ray = CountingRay(count)
        found = campaign.change(
            Raylets(ray, seconds=5), ERRAND, keep_going=False, skip_without_vllm=False
        )
        assert len(found) == count
        counts.append(ray.calls)
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])
    assert counts[0] < 5 * 100


def test_work_grows_with_the_nodes_and_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are written, so that every answer goes all the way."""
    wrote = {"report": {**REPORT, "wrote": True}, "copy": None, "texts": {}}
    counts = []
    for count in (200, 400):
        ray = CountingRay(count)
        monkeypatch.setattr(ray, "get", lambda _task: wrote)
        profile = cProfile.Profile()
        profile.enable()
        found = campaign.change(
            Raylets(ray, seconds=5), ERRAND, keep_going=False, skip_without_vllm=False
        )
        fold("apply", found)
        profile.disable()
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[1] / counts[0] <= 2.2


def test_a_task_asks_for_nothing_and_is_tried_once() -> None:
    ray = CountingRay(1)
    Raylets(ray, seconds=5)
    assert ray.asked == {"num_cpus": 0, "max_retries": 0}


def test_the_nodes_that_are_alive_are_asked_and_no_other() -> None:
    found = Raylets(CountingRay(2), seconds=5).do(ERRAND, ["n0", "n1"])
    assert [(node.id, node.address, node.report) for node in found] == [
        ("n0", "10.0.0.1", REPORT),
        ("n1", "10.0.0.1", REPORT),
    ]


def test_what_does_not_answer_in_time_is_cancelled() -> None:
    ray = CountingRay(3)
    ray.slow = {"n1"}
    found = Raylets(ray, seconds=5).do(ERRAND, ["n0", "n1", "n2"])
    assert [node.id for node in found] == ["n0", "n1", "n2"]
    assert (found[1].fate, found[1].why) == (TIMED_OUT, "no answer in 5 s")
    assert ray.cancelled == ["n1"]


@pytest.mark.parametrize(
    ("verb", "options"), [("verify", {}), ("apply", {"rehearse": True}), ("revert", {})]
)
def test_an_interrupt_while_nodes_are_written_is_told_of(
    verb: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = CountingRay(2)
    ray.slow = {"n1"}
    cluster = Raylets(ray, seconds=5)
    real = ray.wait
    turns = iter([True])

    def interrupted(tasks: list[str], **more: Any) -> tuple[list[str], list[str]]:
        if next(turns, None):
            raise KeyboardInterrupt
        return real(tasks, **{**more, "timeout": 5})

    monkeypatch.setattr(ray, "wait", interrupted)
    errand = Errand(verb=verb, request=Request(), options=options)
    if verb != "revert":
        with pytest.raises(KeyboardInterrupt):
            cluster.do(errand, ["n0", "n1"])
    else:
        assert [node.fate for node in cluster.do(errand, ["n0", "n1"])] == [
            "answered",
            "interrupted",
        ]
        assert ray.cancelled == ["n1"]


@pytest.mark.parametrize(
    ("error", "fate", "why"),
    [
        (RayError("gone"), DIED, "RayError"),
        (RayTaskError("Traceback:\n  x\n\x1b[36mKeyError: 'y'\x1b[39m\n"), FAILED, "KeyError: 'y'"),
        (RuntimeEnvSetupError("no disk"), FAILED, "Ray can't set the task up: no disk"),
        (RayTaskError(""), FAILED, "RayTaskError"),
    ],
)
def test_what_becomes_of_a_node(error: Exception, fate: str, why: str) -> None:
    ray = CountingRay(2)
    ray.errors = {"n0": error}
    (found, other) = Raylets(ray, seconds=5).do(ERRAND, ["n0", "n1"])
    assert (found.fate, found.why, found.report, other.report) == (fate, why, None, REPORT)
    assert fold("apply", [found, other]).code == 3


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), RayError("no head")])
@pytest.mark.parametrize(("options", "told"), [({}, True), ({"rehearse": True}, False)])
def test_a_cluster_that_is_lost(
    error: Exception, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    def lost(*_arguments: object, **_more: object) -> None:
        raise error

    ray = CountingRay(1)
    monkeypatch.setattr(ray, "wait", lost)
    errand = Errand(verb="apply", request=Request(), options=options)
    with pytest.raises(NoCluster, match="the cluster was lost") as caught:
        Raylets(ray, seconds=5).do(errand, ["n0"])
    assert bool(caught.value.facts) is told


@pytest.mark.parametrize(
    ("common", "again"),
    [
        (
            {"obey": False, "keep_going": True, "ray_timeout": 7.0, "name": "x"},
            "--id x --no-config --keep-going --ray-timeout=7",
        ),
        ({"obey": True, "kinds": ("leak",)}, "--kind leak"),
        ({"allow_editable": True}, "--allow-editable"),
        ({"obey": True, "pythons": ("/p",), "catalogs": ("c",)}, "--catalog c --python /p"),
    ],
)
def test_the_same_command_again(common: dict[str, Any], again: str) -> None:
    call = Call(
        verb="apply",
        options=Common(ray="auto", **common),
        patches=("-",),
        flags=("--exact",),
        python=next(iter(common.get("pythons", ())), None),
    )
    assert call.again == f"vllm-patch apply - --exact {again} --ray"
    if "pythons" not in common:  # the library's word for it, which says another install
        told = call.hint("vllm-patch apply --python PATH, or --site-packages DIR")
        assert told == f"{call.again} --python PATH, or --site-packages DIR"


def test_an_interrupt_while_tasks_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = CountingRay(3)
    ray.slow = {"n0"}
    cluster = Raylets(ray, seconds=5)
    real = ray._pinned

    def pinned(node: str, *, soft: bool) -> str:
        if node == "n1":
            raise KeyboardInterrupt
        return real(node, soft=soft)

    def wait(tasks: list[str], **_more: object) -> tuple[list[str], list[str]]:
        return [], tasks

    ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy = pinned
    monkeypatch.setattr(ray, "wait", wait)
    assert {node.fate for node in cluster.do(ERRAND, ["n0", "n1", "n2"])} == {"interrupted"}
    assert ray.cancelled == ["n0"]


def test_a_cluster_that_is_lost_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RayError("gone")

    ray = CountingRay(1)
    cluster = Raylets(ray, seconds=5)
    monkeypatch.setattr(ray, "nodes", lost)
    with pytest.raises(NoCluster, match="the cluster was lost: gone"):
        cluster.joined()


def test_a_node_that_joins() -> None:
    ray = CountingRay(1)
    cluster = Raylets(ray, seconds=5)
    assert cluster.joined() == []
    ray.alive.append("n7")
    assert [node.id for node in cluster.joined()] == ["n7"]


# The command line.


def test_without_ray_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = make_scene(tmp_path).run("verify", "--ray")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines() == [
        "error: --ray needs Ray, which is not here",
        "hint: pip install 'vllm-patcher[ray]'",
    ]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put something in Ray's place; its `init` is for the test to set."""
    fake = SimpleNamespace(shutdown=lambda: None)
    for name in ("ray", "ray.exceptions", "ray.util", "ray.util.scheduling_strategies"):
        monkeypatch.setitem(sys.modules, name, fake)
    fake.exceptions = fake.util = fake.scheduling_strategies = fake
    return fake


def test_where_something_else_answers_it_is_given_up(
    ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raylets, "_INIT_SECONDS", 0.1)
    ended = threading.Event()
    ray.init = lambda **_more: ended.wait()
    with pytest.raises(NoCluster) as caught, connected("auto", seconds=5):
        pass
    ended.set()
    assert "something else may listen there" in caught.value.facts[0]


@pytest.mark.parametrize("error", [ConnectionError("no\n"), RuntimeError("version mismatch")])
def test_what_ray_says_where_it_can_not_connect(ray: SimpleNamespace, error: Exception) -> None:
    def refuse(**_more: object) -> None:
        raise error

    ray.init = refuse
    with pytest.raises(NoCluster) as caught, connected(None, seconds=5):
        pass
    assert caught.value.what == "there is no Ray cluster at any address that Ray knows"
    assert caught.value.facts == (str(error).strip(),)


def test_what_is_no_refusal_is_a_bug(ray: SimpleNamespace) -> None:
    def refuse(**_more: object) -> None:
        raise ZeroDivisionError

    ray.init = refuse
    with pytest.raises(ZeroDivisionError), connected(None, seconds=5):
        pass


@pytest.mark.usefixtures("ray")
def test_an_address_where_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        for given in (address, f"ray://{address}"):
            with pytest.raises(NoCluster) as caught, connected(given, seconds=5):
                pass
            assert caught.value.what == f"there is no Ray cluster at {given}"
            assert "refused" in caught.value.facts[0]


@pytest.mark.usefixtures("ray")
def test_the_address_that_ray_is_told_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(NoCluster, match=r"127\.0\.0\.1:1$"), connected(None, seconds=5):
        pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("verify --ray lora-finish-request", "put patches first"),
        ("verify --ray=", "'--ray': it is empty"),
        ("apply --keep-going", "--keep-going goes with --ray"),
        ("revert --skip-without-vllm", "--skip-without-vllm goes with --ray"),
        ("verify --ray-timeout 5", "--ray-timeout goes with --ray"),
        ("verify --ray --ray-timeout 0", "--ray-timeout"),
        ("verify --ray --format markdown", "--ray prints text or JSON"),
        ("status --ray", "No such option"),
    ],
)
def test_usage(arguments: str, said: str) -> None:
    ran = run(*arguments.split(" "))
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


def test_the_python_at_hand_is_in_the_hint(
    ray: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.init = lambda **_more: None
    counting = CountingRay(1)
    counting.errors = {"n0": RayTaskError("x")}
    failing = {**REPORT, "verb": "verify", "ok": False, "host": "h", "notes": ["look"]}
    hint = "vllm-patch apply"
    failing["errors"] = [{"code": "patch-not-in", "what": "w", "facts": [], "hint": hint}]
    monkeypatch.setattr(
        counting, "get", lambda _task: {"report": failing, "copy": None, "texts": {}}
    )
    for name in ("remote", "put", "wait", "get", "nodes", "cancel", "util", "exceptions"):
        setattr(ray, name, getattr(counting, name))
    monkeypatch.setattr(raylets, "_connect", lambda *_arguments: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vllm-patch.toml").write_text('catalogs = ["own"]\nbuiltin = false\n')
    write_catalog(tmp_path / "own", entry("one", patch(a05="50")))
    ran = run("verify", "--python", "/opt/v", "--ray-timeout", "5", "--ray")
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == (
        "hint: vllm-patch apply --python /opt/v --ray-timeout=5 --ray"
    )
    assert ran.err.splitlines()[0] == "note: look"


@pytest.mark.parametrize(
    ("verb", "options", "hint", "shown"),
    [
        ("verify", {"ray": "auto"}, "vllm-patch apply", "vllm-patch apply one --ray"),
        (
            "apply",
            {"ray": "h:1", "skip_without_vllm": True, "site_packages": "/s"},
            "vllm-patch revert one",
            "vllm-patch revert one --site-packages /s --skip-without-vllm --ray=h:1",
        ),
        (
            "apply",
            {"ray": "auto"},
            "vllm-patch apply --python P",
            "vllm-patch apply one --ray --python P",
        ),
        ("verify", {"ray": "auto"}, "vllm-patch list", "vllm-patch list"),
        ("verify", {}, "vllm-patch revert 'my fix'", "vllm-patch revert 'my fix'"),
        (
            "apply",
            {"ray": "auto", "keep_going": True, "ray_timeout": 5.0},
            "vllm-patch apply",
            "vllm-patch apply one --keep-going --ray-timeout=5 --ray",
        ),
        (
            "apply",
            {"ray": "auto", "keep_going": True},
            "vllm-patch verify",
            "vllm-patch verify --ray",
        ),
    ],
)
def test_hints_mean_the_cluster(verb: str, options: dict[str, Any], hint: str, shown: str) -> None:
    call = Call(verb=verb, options=Common(**options), patches=("one",))
    assert call.hint(hint) == shown
