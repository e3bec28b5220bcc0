"""Reports that hosts have written, folded: what `--json` printed goes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from scenes import Scene, entry, make_scene, patch, run
from vllm_patcher.cluster import gathered
from vllm_patcher.cluster.gathered import InvalidReport

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))


class Hosts:
    """Hosts with an install each, whose reports lie in files that bear their names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scenes: dict[str, Scene] = {}
        self.files: dict[str, str] = {}

    def report(self, name: str, verb: str = "verify", **more: Any) -> Path:
        """Let a host write its report."""
        if name not in self.scenes:
            self.scenes[name] = make_scene(self.root / name, **more)
        scene = self.scenes[name]
        options = scene.catalog(entry("one", patch(a05="50")))
        printed = scene.run(verb, *options, "--json").out
        path = self.root / f"{name}.json"
        path.write_text(json.dumps({**json.loads(printed), "host": name}) + "\n")
        return path


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_all_the_same(hosts: Hosts) -> None:
    for name in ("gpu-1", "gpu-2"):
        hosts.report(name, "apply")
    files = [hosts.report(name) for name in ("gpu-1", "gpu-2")]
    done = run("merge-reports", *files)
    assert (done.code, done.err) == (0, "")
    assert done.out == "gpu-1, gpu-2  vllm 0.11.0  1 applied\n"


def test_the_odd_one(hosts: Hosts) -> None:
    hosts.report("gpu-1", "apply")
    done = run("merge-reports", *(hosts.report(name) for name in ("gpu-1", "gpu-2")))
    assert done.code == 1
    assert done.out.splitlines() == [
        "gpu-2  vllm 0.11.0  1 not-applied",
        "  one ............................ not-applied",
        "gpu-1  vllm 0.11.0  1 applied",
    ]
    *said, hint = done.err.splitlines()
    assert said == ["error: 1 of 2 nodes is not as asked", "  gpu-2: 1 not-applied"]
    # As that host would say it.
    assert hint.startswith("hint: vllm-patch apply --catalog ")
    assert hint.endswith(f" --site-packages {hosts.root / 'gpu-2' / 'site'}")


def test_another_release(hosts: Hosts) -> None:
    hosts.report("gpu-1", "apply")
    hosts.report("gpu-2", "apply", version="0.10.2")
    done = run("merge-reports", *(hosts.report(name) for name in ("gpu-1", "gpu-2")))
    assert done.code == 1
    assert "gpu-2: vllm 0.10.2; gpu-1: vllm 0.11.0" in done.err


def test_all_on_standard_input(hosts: Hosts) -> None:
    """As `srun` prints them when it is not told to write files."""
    lines = b"".join(hosts.report(name).read_bytes() for name in ("gpu-1", "gpu-2"))
    done = run("merge-reports", "-", stdin=b"\n" + lines)
    assert (done.code, done.out.splitlines()[0]) == (1, "gpu-1, gpu-2  vllm 0.11.0  1 not-applied")


def test_what_apply_has_printed(hosts: Hosts) -> None:
    done = run("merge-reports", *(hosts.report(name, "apply") for name in ("gpu-1", "gpu-2")))
    assert (done.code, done.out.splitlines()[-1]) == (0, "restart running vLLM processes")


@pytest.mark.parametrize(
    ("expected", "code", "said"),
    [
        ("1", 3, "reports of 2 hosts, and --nodes says 1"),
        ("2", 0, ""),
        ("3", 3, "(missing 3): silent: there are reports of 2 of 3 hosts"),
    ],
)
def test_so_many_hosts_there_must_be(hosts: Hosts, expected: str, code: int, said: str) -> None:
    for name in ("gpu-1", "gpu-2"):
        hosts.report(name, "apply")
    files = [hosts.report(name) for name in ("gpu-1", "gpu-2")]
    done = run("merge-reports", "--nodes", expected, *files)
    assert done.code == code
    assert said in done.err


def test_a_host_that_has_reported_twice(hosts: Hosts) -> None:
    """Else it could stand for one that is silent."""
    path = hosts.report("gpu-1", "apply")
    done = run("merge-reports", path, path)
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines() == [
        "error: two reports of gpu-1",
        f"  {path}:1",
        f"  {path}:1",
        "hint: keep the last one of each host",
    ]


def test_a_host_with_two_installs_counts_once(hosts: Hosts) -> None:
    first, second = (hosts.report(name, "apply") for name in ("gpu-1", "gpu-2"))
    second.write_text(second.read_text().replace('"host": "gpu-2"', '"host": "gpu-1"'))
    assert run("merge-reports", first, second, "--nodes", "1").code == 0
    assert run("merge-reports", first, second, "--nodes", "2").code == 3


def test_a_host_that_has_written_nothing(hosts: Hosts) -> None:
    hosts.report("gpu-1", "apply")
    empty = hosts.root / "gpu-2.json"
    empty.write_text("\n")
    done = run("merge-reports", hosts.report("gpu-1"), empty)
    assert done.code == 3
    assert f"gpu-2: silent: {empty} is empty" in done.err


def test_a_host_without_a_vllm(hosts: Hosts) -> None:
    hosts.report("gpu-1", "apply")
    head = hosts.root / "head.json"
    head.write_text(run("verify", "--json", "--site-packages", hosts.root).out)
    files = [hosts.report("gpu-1"), head]
    assert run("merge-reports", *files).code == 3
    assert run("merge-reports", *files, "--skip-without-vllm").code == 0


def test_json(hosts: Hosts) -> None:
    hosts.report("gpu-1", "apply")
    head = hosts.root / "head.json"
    head.write_text(run("verify", "--json", "--site-packages", hosts.root).out)
    files = [*(hosts.report(name) for name in ("gpu-1", "gpu-2")), head]
    done = run("merge-reports", *files, "--json")
    jsonschema.validate(done.json, SCHEMA)
    assert (done.code, done.json["ok"]) == (3, False)
    assert len(done.json["groups"]) == 3
    assert {node["host"]: node["ok"] for node in done.json["nodes"]}["gpu-1"] is True
    jsonschema.validate(run("merge-reports", "/none", "--json").json, SCHEMA)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no object with schema 1"),
        ("null", "no object with schema 1"),
        ('{"schema": 2, "verb": "verify"}', "no object with schema 1"),
        ('{"schema": 1, "verb": "list", "ok": true, "errors": []}', "not what"),
        ('{"schema": 1, "verb": "verify"}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": 1, "errors": []}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": true, "errors": [1]}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": true, "errors": {}, "patches": 1}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": true, "errors": [], "install": 1}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": true, "errors": [], "files": [{}]}', "not what"),
        ('{"schema": 1, "verb": "verify", "ok": false, "host": "h", "errors": []}', "or neither"),
        ('{"schema": 1, "verb": "verify", "ok": true, "host": "h", "errors": []}', "or neither"),
        ('{"schema": true, "verb": "verify"}', "no object with schema 1"),
        ('{"schema": 1, "x": NaN}', "not JSON: NaN is no number"),
        ('{"schema": 1, "x": 1e999}', "not JSON: 1e999 is no number"),
        ("\x00\xff", "not JSON"),
    ],
)
def test_what_is_no_report(hosts: Hosts, text: str, why: str) -> None:
    path = hosts.root / "odd.json"
    path.write_text(f"\n{text}\n", encoding="latin-1")
    done = run("merge-reports", hosts.report("gpu-1"), path)
    assert (done.code, done.out) == (3, "")
    assert f"{path}:2 is no report of vllm-patch" in done.err
    assert why in done.err


def test_every_field_that_is_read_is_looked_at(hosts: Hosts) -> None:
    """Whatever is taken out of a report or made another kind: an error of ours, or no harm."""
    good = json.loads(hosts.report("gpu-1").read_text())

    def spoiled(value: Any) -> list[Any]:
        found: list[Any] = [None, 7, "x", [], {}, [None], {"x": 1}]
        if isinstance(value, dict):
            for key, inner in value.items():
                found.append({k: v for k, v in value.items() if k != key})
                found += [{**value, key: odd} for odd in spoiled(inner)]
        elif isinstance(value, list) and value:
            found += [[odd, *value[1:]] for odd in spoiled(value[0])]
        return found

    path = hosts.root / "odd.json"
    codes = set()
    for document in spoiled(good):
        path.write_text(json.dumps(document))
        for options in ((), ("--json",), ("-v",)):
            done = run("merge-reports", path, *options)
            assert done.code in (0, 1, 3), (document, done.err)
            codes.add(done.code)
    assert codes >= {1, 3}


def test_the_hints_of_hosts_are_left_as_they_are(hosts: Hosts) -> None:
    path = hosts.report("gpu-1")
    report = json.loads(path.read_text())
    hint = "vllm-patch apply --python '/my venv'"
    report["errors"][0]["hint"] = hint
    path.write_text(json.dumps(report))
    assert run("merge-reports", path).err.splitlines()[-1] == f"hint: {hint}"
    assert run("merge-reports", path, "--json").json["errors"][0]["hint"] == hint


def test_what_was_half_done_comes_without_commands(hosts: Hosts) -> None:
    """Nobody knows with which catalogs and options it was done."""
    files = [hosts.report("gpu-1", "apply"), hosts.root / "gpu-2.json"]
    files[1].write_text(run("apply", "--json", "--site-packages", hosts.root).out)
    done = run("merge-reports", *files)
    assert (done.code, "1 of 2 nodes is changed" in done.err) == (3, True)
    assert "vllm-patch apply" not in done.err.partition("is changed")[2]
    assert "revert" not in done.err


def test_a_rehearsal_says_nothing_of_what_is_there(hosts: Hosts) -> None:
    scene = make_scene(hosts.root / "gpu-1")
    options = scene.catalog(entry("one", patch(a05="50")))
    path = hosts.root / "gpu-1.json"
    path.write_text(scene.run("apply", *options, "--dry-run", "--json").out)
    done = run("merge-reports", path)
    assert (done.code, "it is of a --dry-run" in done.err) == (3, True)


def test_what_a_terminal_would_obey_is_made_visible(hosts: Hosts) -> None:
    path = hosts.report("gpu-1", "apply")
    odd = json.dumps("gpu\n10.0.0.9 gpu-9  vllm 0.11.0  9 applied\x1b[8m" + "7" * 5000)
    path.write_text(path.read_text().replace('"host": "gpu-1"', f'"host": {odd}'))
    done = run("merge-reports", path)
    assert done.code == 0
    assert done.out.startswith("gpu\\u000a10.0.0.9 gpu-9  vllm 0.11.0  9 applied\\u001b[8m777")


def test_an_assumed_version_is_not_the_one_that_is_there(hosts: Hosts) -> None:
    files = []
    for name, version in (("gpu-1", "0.11.0"), ("gpu-2", "0.10.2")):
        scene = make_scene(hosts.root / name, version=version)
        options = (*scene.catalog(entry("one", patch(a05="50"))), "--assume-version", "0.11.0")
        scene.run("apply", *options)
        printed = json.loads(scene.run("verify", *options, "--json").out)
        files.append(hosts.root / f"{name}.json")
        files[-1].write_text(json.dumps({**printed, "host": name}))
    done = run("merge-reports", *files)
    assert (done.code, "gpu-2: vllm 0.10.2; gpu-1: vllm 0.11.0" in done.err) == (1, True)


def test_two_verbs_at_once(hosts: Hosts) -> None:
    done = run("merge-reports", hosts.report("gpu-1", "apply"), hosts.report("gpu-2"))
    assert (done.code, done.err) == (3, "error: reports of several verbs: apply, verify\n")


def test_a_file_that_is_not_there() -> None:
    done = run("merge-reports", "/none.json")
    assert (done.code, done.err) == (3, "error: /none.json: No such file or directory\n")


def test_a_name_that_is_empty(hosts: Hosts) -> None:
    file = hosts.report("gpu-1")
    for options in ((), ("--json",)):
        done = run("merge-reports", file, "", *options)
        assert (done.code, done.out) == (2, "")
        assert done.err.endswith("Error: Invalid value for 'FILE...': it is empty\n")


def test_a_file_is_needed() -> None:
    assert run("merge-reports").code == 2


def test_no_report_is_no_answer() -> None:
    with pytest.raises(InvalidReport):
        list(gathered.read("x", b"{}"))
    assert gathered.verb_of([]) == "verify"
