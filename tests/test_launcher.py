"""A launcher calls the library from many processes and threads at once, and hears typed answers."""

from __future__ import annotations

import json
import locale
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import scenes
from scenes import FILES, Scene, changed, diff, entry, make_scene, patch
from vllm_patcher import (
    AdHoc,
    Refused,
    Report,
    Request,
    VllmPatchError,
    apply,
    changes,
    compiling,
    locate,
    preview,
    revert,
    status,
    verify,
)
from vllm_patcher.plan import Edit
from vllm_patcher.results import FileStatus, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Both of one length: only the time of the file tells bytecode of the one from that of the other.
OLD = b"class Engine:\n    def answer(self):\n        return 'old'\n"
NEW = OLD.replace(b"old", b"new")
DIFF = diff("engine.py", OLD, NEW) + patch(b05="50")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """An install whose module has run before: its bytecode lies beside it."""
    scene = make_scene(tmp_path, files={"engine.py": OLD})
    code = "from vllm.engine import Engine; print(Engine().answer())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=scene.site, check=True, capture_output=True, text=True
    )
    assert done.stdout == "old\n"
    assert list(scene.package.glob("__pycache__/engine.*.pyc"))
    return scene


def request_of(scene: Scene, text: bytes = DIFF, **more: Any) -> Request:
    """What a launcher asks for: a diff of its own, on this install."""
    fix = AdHoc(id="fix", text=text)
    return Request(patches=(fix,), builtin=False, site_packages=str(scene.site), **more)


def temporaries(scene: Scene) -> list[Path]:
    return [path for path in scene.site.rglob("*") if path.name.endswith("-tmp")]


def sources(scene: Scene) -> dict[str, bytes]:
    """All files but bytecode."""
    return {name: data for name, data in scene.everything().items() if not name.endswith(".pyc")}


# One call.


def test_the_answers_are_typed(scene: Scene) -> None:
    request = request_of(scene)
    report: Report = verify(request)
    assert isinstance(report, Report)
    assert (report.verb, report.version, report.ok, report.wrote) == (
        "verify",
        "0.11.0",
        False,
        False,
    )
    (failure,) = report.failures
    assert isinstance(failure, VllmPatchError)
    assert (failure.code, failure.what, failure.hint) == (
        "patch-not-in",
        "fix is not applied",
        "vllm-patch apply",
    )
    assert report.install.package == str(scene.package)
    assert report.install.dist_info == str(scene.info)

    report = apply(request)
    assert (report.verb, report.ok, report.wrote, report.failures) == ("apply", True, True, ())
    (outcome,) = report.patches
    assert isinstance(outcome, Outcome)
    assert (outcome.id, outcome.state, outcome.was) == ("fix", "applied", "not-applied")
    assert (outcome.named, outcome.adhoc, outcome.fails) == (True, True, False)
    assert dict(outcome.files) == {"b.py": (0,), "engine.py": (0,)}
    assert all(isinstance(edit, Edit) for edit in report.edits)
    assert {edit.path: edit.after for edit in report.edits} == {
        "engine.py": NEW,
        "b.py": changed(FILES["b.py"], b05="50"),
    }
    assert all(isinstance(file, FileStatus) for file in report.files)
    assert {file.path: file.state for file in report.files} == {
        "b.py": "pristine",
        "engine.py": "pristine",
    }

    report = verify(request)
    assert (report.ok, report.wrote, report.edits, report.hiding) == (True, False, (), ())
    assert {file.path: file.state for file in report.files} == {
        "b.py": "patched",
        "engine.py": "patched",
    }
    assert not apply(request).wrote

    report = revert(request)
    assert (report.verb, report.wrote) == ("revert", True)
    (outcome,) = report.patches
    assert (outcome.state, outcome.was) == ("not-applied", "applied")
    assert not revert(request).wrote


WITHOUT_ANSWER: list[tuple[str, Callable[[Scene], Request]]] = [
    ("no install", lambda s: Request(site_packages=str(s.root / "none"))),
    ("no interpreter", lambda s: Request(python=str(s.root / "none"))),
    ("no catalog", lambda s: Request(catalogs=(str(s.root),), site_packages=str(s.site))),
    ("unknown id", lambda s: Request(patches=("none",), site_packages=str(s.site))),
    ("no file", lambda s: Request(patches=(str(s.root / "x.patch"),), site_packages=str(s.site))),
    ("no diff", lambda s: request_of(s, b"nothing\n")),
    ("not fitting", lambda s: request_of(s, patch(a05="50").replace(b" a06", b" a6"))),
    ("out of the package", lambda s: request_of(s, DIFF.replace(b"vllm/b.py", b"vllm/../b.py"))),
    ("bad id", lambda s: Request(patches=(AdHoc(id="/", text=DIFF),), site_packages=str(s.site))),
    ("no release", lambda s: request_of(s, assume_version="dev")),
]


@pytest.mark.parametrize("verb", [apply, preview], ids=["apply", "preview"])
@pytest.mark.parametrize(("name", "make"), WITHOUT_ANSWER, ids=[name for name, _ in WITHOUT_ANSWER])
def test_what_is_refused_is_raised_as_one_kind_of_error(
    scene: Scene, name: str, make: Callable[[Scene], Request], verb: Callable[[Request], Report]
) -> None:
    before = scene.everything()
    with pytest.raises(VllmPatchError) as caught:
        verb(make(scene))
    error = caught.value
    assert error.what, name
    assert not error.what.endswith((".", "\n"))
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code)
    assert all(isinstance(fact, str) for fact in error.facts)
    assert error.hint is None or isinstance(error.hint, str)
    assert isinstance(error, Refused) is (name == "not fitting")
    assert scene.everything() == before


def state_of_the_process() -> dict[str, object]:
    """What a library could change of the process that calls it."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "signal mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "folder": os.getcwd(),
        "mask": mask,
        "path": list(sys.path),
        "finders": list(sys.meta_path),
        "warnings": list(warnings.filters),
        "locale": locale.setlocale(locale.LC_ALL),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "hooks": (sys.excepthook, threading.excepthook, sys.displayhook),
        "threads": set(threading.enumerate()),
        "descriptors": os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else None,
        "children": child_processes(),
    }


def child_processes() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def test_nothing_is_printed_and_the_process_is_left_as_it_was(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    probe = "import sys; print('fault absent'); sys.exit(0)"
    scene.catalog(entry("one", patch(a05="50"), probe=probe))
    catalog = Request(
        catalogs=(str(scene.root / "catalog"),), builtin=False, site_packages=str(scene.site)
    )
    requests = [catalog, request_of(scene)]

    def all_verbs() -> None:
        for request in requests:
            for verb in (locate, preview, verify, apply, changes, status, revert):
                verb(request)
            with pytest.raises(Refused):
                apply(request_of(scene, patch(a05="50").replace(b" a06", b" a6")))
        assert verify(catalog, probe=True, strict=True).patches[0].probe is not None

    all_verbs()  # modules that are imported at first use open nothing a second time
    before = state_of_the_process()
    all_verbs()
    assert state_of_the_process() == before
    assert capfd.readouterr() == ("", "")


def test_the_command_line_is_not_imported(scene: Scene) -> None:
    code = """\
import sys
before = set(sys.modules)
import vllm_patcher
assert {name for name in set(sys.modules) - before if name.startswith("vllm_patcher")} == {
    "vllm_patcher"
}
from vllm_patcher import AdHoc, Request, apply, verify
fix = AdHoc(id="fix", text=open(sys.argv[2], "rb").read())
request = Request(patches=(fix,), builtin=False, site_packages=sys.argv[1])
assert apply(request).wrote
assert verify(request).ok
names = {"click", "vllm", "vllm_patcher.cli", "logging", "multiprocessing", "asyncio"}
print(sorted(names & set(sys.modules)))
"""
    ran = python(code, scene.site, scene.diff_file("fix.patch", DIFF))
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program that uses the library in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=scenes.environ(),
    )


# Many at once.

WORKER = """\
import json, sys
from vllm_patcher import AdHoc, Request, apply, verify

site, name = sys.argv[1:]
with open(name, "rb") as file:
    fix = AdHoc(id="fix", text=file.read())
request = Request(patches=(fix,), builtin=False, site_packages=site)
print("ready", flush=True)
sys.stdin.read()  # until all are there
report = apply(request)
checked = verify(request)
sys.path.insert(0, site)
from vllm.engine import Engine
print(json.dumps([report.wrote, report.patches[0].state, checked.ok, Engine().answer()]))
"""


def test_of_32_processes_one_writes_and_all_run_the_new_code(scene: Scene) -> None:
    before = sources(scene)
    name = scene.diff_file("fix.patch", DIFF)
    start, go = os.pipe()
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, scene.site, name],
            stdin=start,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=scenes.environ(),
        )
        for _ in range(32)
    ]
    os.close(start)
    for worker in crowd:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    os.close(go)
    said = [worker.communicate() for worker in crowd]
    assert [(worker.returncode, err) for worker, (_, err) in zip(crowd, said, strict=True)] == [
        (0, "")
    ] * 32
    answers = [json.loads(out) for out, _ in said]
    assert [answer[1:] for answer in answers] == [["applied", True, "new"]] * 32
    assert sum(answer[0] for answer in answers) == 1
    after = sources(scene)
    receipt = f"{scene.info.name}/{scene.receipt.name}"
    assert {path for path in after if after[path] != before.get(path)} == {
        "vllm/engine.py",
        "vllm/b.py",
        f"{scene.info.name}/RECORD",
        receipt,
    }
    assert after["vllm/engine.py"] == NEW
    assert after["vllm/b.py"] == changed(FILES["b.py"], b05="50")
    assert after[f"{scene.info.name}/RECORD"].count(receipt.encode()) == 1
    assert not temporaries(scene)
    revert(request_of(scene))
    assert sources(scene) == before


def test_of_8_threads_one_writes(scene: Scene) -> None:
    before = sources(scene)
    barrier = threading.Barrier(8)
    request = request_of(scene)

    def work(_number: int) -> tuple[bool, bool]:
        barrier.wait()
        return apply(request).wrote, verify(request).ok

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(8)))
    assert sorted(answers) == [(False, True)] * 7 + [(True, True)]
    assert (scene.package / "engine.py").read_bytes() == NEW
    assert not temporaries(scene)
    revert(request)
    assert sources(scene) == before


def test_threads_with_different_patches_lose_none(scene: Scene) -> None:
    """All in one file: who comes later plans on what the earlier have written."""
    before = sources(scene)
    lines = [f"a{number:02d}" for number in (1, 5, 9, 13, 17)]
    barrier = threading.Barrier(len(lines))

    def request(line: str) -> Request:
        fix = AdHoc(id=f"fix-{line}", text=patch(**{line: "0"}))
        return Request(patches=(fix,), builtin=False, site_packages=str(scene.site))

    def work(line: str) -> bool:
        barrier.wait()
        return apply(request(line)).wrote

    with ThreadPoolExecutor(len(lines)) as pool:
        assert list(pool.map(work, lines)) == [True] * len(lines)
    expected = changed(FILES["a.py"], **dict.fromkeys(lines, "0"))
    assert (scene.package / "a.py").read_bytes() == expected
    assert all(verify(request(line)).ok for line in lines)
    revert(Request(builtin=False, site_packages=str(scene.site)))
    assert sources(scene) == before


def test_threads_leave_the_filters_of_warnings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that stays behind would hide all warnings of the launcher for ever."""
    second_is_in, first_is_out = threading.Event(), threading.Event()
    turns = iter([True, False])
    real = compile

    def slow(*arguments: Any, **more: Any) -> Any:
        if next(turns, None):
            second_is_in.wait(1)
        else:
            second_is_in.set()
            first_is_out.wait(5)
        return real(*arguments, **more)

    monkeypatch.setattr(compiling, "compile", slow, raising=False)
    with warnings.catch_warnings():
        before = list(warnings.filters)
        first = threading.Thread(target=compiling.objections, args=([b"a = 1\n"],))
        second = threading.Thread(target=compiling.objections, args=([b"b = 1\n"],))
        first.start()
        second.start()
        first.join()
        first_is_out.set()
        second.join()
        assert list(warnings.filters) == before


# Processes that fork.


def test_a_child_that_is_forked_meanwhile_does_not_keep_the_lock(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that a launcher forks live for days; the lock is the parent's."""
    code = """\
import os, sys
from vllm_patcher import AdHoc, Request, apply
from vllm_patcher.tree.writing import Tree

site, name = sys.argv[1:]
stage = Tree.stage
def forking(*arguments, **more):
    Tree.stage = stage
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    return stage(*arguments, **more)
Tree.stage = forking
with open(name, "rb") as file:
    fix = AdHoc(id="fix", text=file.read())
print(apply(Request(patches=(fix,), builtin=False, site_packages=site)).wrote, flush=True)
"""
    monkeypatch.setattr("vllm_patcher.locking.LOCK_SECONDS", 2)
    with subprocess.Popen(
        [sys.executable, "-c", code, scene.site, scene.diff_file("fix.patch", DIFF)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=scenes.environ(),
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdin is not None
        assert launcher.stdout.readline() == "True\n"
        assert launcher.wait() == 0
        # The child lives, since its standard input is open.
        assert revert(request_of(scene)).wrote
        launcher.stdin.close()


def test_a_child_that_is_forked_meanwhile_waits_for_its_turn(scene: Scene) -> None:
    code = """\
import os, sys
from vllm_patcher import AdHoc, Request, apply, locking, verify
from vllm_patcher.tree.writing import Tree

locking.LOCK_SECONDS = 5
site, name = sys.argv[1:]
with open(name, "rb") as file:
    fix = AdHoc(id="fix", text=file.read())
request = Request(patches=(fix,), builtin=False, site_packages=site)
stage = Tree.stage
child = None
def forking(*arguments, **more):
    global child
    Tree.stage = stage
    # What a fork in another thread leaves of this one in the child: nothing.
    child = os.fork()
    if child == 0:
        report = apply(request)
        os._exit(0 if verify(request).ok and not report.wrote else 1)
    return stage(*arguments, **more)
Tree.stage = forking
wrote = apply(request).wrote
print(wrote, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = python(code, scene.site, scene.diff_file("fix.patch", DIFF))
    assert (ran.stdout, ran.stderr) == ("True 0\n", "")
    assert not temporaries(scene)


def test_a_probe_is_not_believed_where_the_launcher_ignores_its_children(scene: Scene) -> None:
    code = """\
import signal, sys
from vllm_patcher import Request, verify
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
request = Request(catalogs=(sys.argv[2],), builtin=False, site_packages=sys.argv[1])
print(verify(request, probe=True).patches[0].probe.answer)
"""
    probe = "import sys; print('fault present'); sys.exit(1)"
    scene.catalog(entry("one", patch(a05="50"), probe=probe))
    assert python(code, scene.site, scene.root / "catalog").stdout in ("present\n", "unknown\n")
