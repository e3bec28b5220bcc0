"""Input made to do harm: refused with what and where, or done; never a byte outside the package.

Whole verbs on an install whose surroundings are compared to the byte. What could eat time or
memory runs in a process whose processor time and memory the kernel limits.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

import scenes
from scenes import Scene, diff, entry, make_scene, patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A = scenes.FILES["a.py"]
BIT = b"@@ -1,3 +1,4 @@\n a01 = 1\n+new\n a02 = 2\n a03 = 3\n"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_bytes(A)
    return make_scene(tmp_path)


def surroundings(scene: Scene) -> dict[str, object]:
    """All files and links around the install and in it, with what they hold or lead to."""
    found: dict[str, object] = {}
    for path in sorted(scene.root.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[str(path)] = path.readlink()
        elif stat.S_ISREG(status.st_mode):
            found[str(path)] = path.read_bytes()
        else:
            found[str(path)] = stat.S_IFMT(status.st_mode)
    return found


def refused(scene: Scene, text: bytes, *more: str) -> str:
    """Apply a diff that is refused and changes nothing anywhere; return what was said."""
    file = scene.diff_file("evil.patch", text)
    before = surroundings(scene)
    ran = scene.run("apply", file, "--no-builtin", *more)
    assert ran.code == 3, ran.out + ran.err
    assert surroundings(scene) == before
    return ran.out + ran.err


def named(name: bytes, body: bytes = BIT) -> bytes:
    return b"--- a/vllm/%s\n+++ b/vllm/%s\n" % (name, name) + body


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (named(b"../../outside/a.py"), "evil.patch:1: vllm/../../outside/a.py climbs out by '..'"),
        (named(b"v1/../../../outside/a.py"), "climbs out by '..'"),
        (named(b"a.py").replace(b"a/vllm", b"/etc/vllm/..").replace(b"b/vllm", b"/etc/x"), ":1:"),
        (named(b"a.py").replace(b"vllm/a.py", b"../outside/a.py"), ":1:"),
        (b"--- a/vllm/a.py\0x\n+++ b/vllm/a.py\0x\n" + BIT, ":1:"),
        (b'--- "a/vllm/a\\000.py"\n+++ "b/vllm/a\\000.py"\n' + BIT, ":1:"),
        (b'--- "a/vllm/a\\n.py"\n+++ "b/vllm/a\\n.py"\n' + BIT, "a NUL or a newline in it"),
        (named(b"~/a.py"), "no such file"),
        (named(b"a.py/b.py"), "a.py"),
        (b"--- /dev/null\n+++ b/vllm/a.py/b.py\n@@ -0,0 +1 @@\n+x\n", "a.py"),
        (b"--- /dev/null\n+++ b/vllm/v1\n@@ -0,0 +1 @@\n+x\n", "v1"),
        (named(b"a.py") + b"--- /dev/null\n+++ b/vllm/A.py\n@@ -0,0 +1 @@\n+x\n", "upper and low"),
        (
            (b"diff --git a/vllm/l b/vllm/l\nnew file mode 120000\n--- /dev/null\n+++ b/vllm/l\n"
            b"@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n"
            b"--- /dev/null\n+++ b/vllm/l/x\n@@ -0,0 +1 @@\n+x\n"),
            "evil.patch:1: found a symbolic link",
        ),
        (b"Binary file " + b"x and " * 10**5 + b"\n", "evil.patch:1:"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else "",
)  # fmt: skip
def test_names_that_lead_astray(scene: Scene, text: bytes, says: str) -> None:
    assert says in refused(scene, text), refused(scene, text)


def to_file(scene: Scene) -> None:
    (scene.package / "a.py").unlink()
    (scene.package / "a.py").symlink_to(scene.root / "nowhere.py")


def to_folder(scene: Scene) -> None:
    (scene.package / "sub").symlink_to(scene.root / "outside")


def to_above(scene: Scene) -> None:
    (scene.package / "sub").symlink_to("..")


def fifo(scene: Scene) -> None:
    (scene.package / "a.py").unlink()
    os.mkfifo(scene.package / "a.py")


def device(scene: Scene) -> None:
    (scene.package / "a.py").unlink()
    try:
        os.mknod(scene.package / "a.py", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


def folder(scene: Scene) -> None:
    (scene.package / "a.py").unlink()
    (scene.package / "a.py").mkdir()


@pytest.mark.parametrize(
    ("lay", "path"),
    [
        (to_file, b"a.py"),
        (to_folder, b"sub/a.py"),
        (to_above, b"sub/vllm-0.11.0.dist-info/METADATA"),
        (fifo, b"a.py"),
        (device, b"a.py"),
        (folder, b"a.py"),
    ],
)
def test_targets_that_are_no_files(scene: Scene, lay: Callable[[Scene], None], path: bytes) -> None:
    lay(scene)
    said = refused(scene, named(path))
    assert path.decode().partition("/")[0] in said
    refused(scene, b"--- /dev/null\n+++ b/vllm/sub/new.py\n@@ -0,0 +1 @@\n+x\n" + named(path))


def test_a_link_to_a_file_outside_stays_as_it_is(scene: Scene) -> None:
    """As in a cache that many environments share: the link goes, its target stays."""
    target = scene.root / "outside" / "a.py"
    (scene.package / "a.py").unlink()
    (scene.package / "a.py").symlink_to(target)
    assert scene.run("apply", scene.diff_file("fix.patch", patch(a05="x"))).code == 0
    assert target.read_bytes() == A
    assert not (scene.package / "a.py").is_symlink()


def test_record_that_points_outside(scene: Scene) -> None:
    """Lines of RECORD are looked up, never walked: what they name is not touched."""
    with (scene.info / "RECORD").open("a") as file:
        file.write("../../outside/a.py,,\n/etc/passwd,,\nvllm/../../outside/a.py,sha256=AA,1\n")
    before = surroundings(scene)
    made = diff("new/made.py", None, b"x = 1\n") + patch(a05="x")
    assert scene.run("apply", scene.diff_file("fix.patch", made), "--no-builtin").code == 0
    assert scene.run("revert", "--no-builtin").code == 0
    assert surroundings(scene) == {**before, str(scene.root / "fix.patch"): made}


@pytest.mark.parametrize(
    "places", [[["../outside/a.py"]], [["/etc/passwd"]], [["sub/../../outside/a.py"]], [["b.py"]]]
)
def test_a_receipt_that_lies(scene: Scene, places: list[list[str]]) -> None:
    """It may name any path and any text: only bytes that are there count, inside the package."""
    file = scene.diff_file("fix.patch", patch(a05="x"))
    assert scene.run("apply", file, "--no-builtin").code == 0
    document = json.loads(scene.receipt.read_bytes())
    document["patches"][0]["places"] = places
    scene.receipt.write_text(json.dumps(document))
    before = surroundings(scene)
    for verb in ("verify", "revert", "apply"):
        ran = scene.run(verb, "--no-builtin")
        assert ran.code in {0, 1, 3}, ran.err
    after = surroundings(scene)
    outside = str(scene.root / "outside" / "a.py")
    assert after[outside] == before[outside] == A
    assert after[str(scene.package / "b.py")] == scenes.FILES["b.py"]


@pytest.mark.parametrize(
    "text",
    [
        {"id": "x", "wanted": "out", "diff": diff("b.py", scenes.FILES["b.py"], b"").decode()},
        {"id": "x", "wanted": "out", "diff": diff("b.py", b"other\n", None).decode()},
    ],
)
def test_a_receipt_that_wants_out_what_never_was_in(scene: Scene, text: dict[str, str]) -> None:
    scene.receipt.write_text(json.dumps({"schema": 1, "patches": [text]}))
    data = (scene.package / "b.py").read_bytes()
    for verb in ("apply", "revert"):
        assert scene.run(verb, "--no-builtin").code == 0
        assert (scene.package / "b.py").read_bytes() == data


@pytest.mark.parametrize("key", ["diff", "probe"])
@pytest.mark.parametrize("path", ["../evil.patch", "/etc/passwd", "sub/../../evil.patch", "link"])
def test_a_manifest_that_leads_out(scene: Scene, key: str, path: str) -> None:
    scene.diff_file("evil.patch", patch(a05="x"))
    options = scene.catalog(entry("one", patch(a05="x"), probe="print(1)"))
    catalog = scene.root / "catalog"
    (catalog / "link").symlink_to(scene.root / "evil.patch")
    text = (catalog / "manifest.toml").read_text()
    name = "one-0.patch" if key == "diff" else "one.py"
    (catalog / "manifest.toml").write_text(text.replace(f'"{name}"', f'"{path}"'))
    before = surroundings(scene)
    ran = scene.run("apply", *options)
    assert ran.code == 3
    assert "one" in ran.err
    assert path in ran.err
    assert surroundings(scene) == before


# --- what could eat time or memory -----------------------------------------------------------


def limited(
    scene: Scene, text: bytes, *, seconds: int, megabytes: int, verb: str = "apply"
) -> subprocess.CompletedProcess[bytes]:
    """Run a verb on a diff in a process that the kernel ends if it takes more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    file = scene.diff_file("big.patch", text)
    done = subprocess.run(
        scenes.command(verb, file, "--no-builtin", *scene.at),
        check=False,
        capture_output=True,
        env=scenes.environ(),
        preexec_fn=limit,
    )
    assert done.returncode in {0, 3}, done.stderr[-2000:]
    return done


def test_a_line_of_a_hundred_megabytes(scene: Scene) -> None:
    line = b"# " + b"x" * 100_000_000 + b"\n"
    text = named(b"a.py", b"@@ -1,3 +1,4 @@\n a01 = 1\n+" + line + b" a02 = 2\n a03 = 3\n")
    assert limited(scene, text, seconds=60, megabytes=1500).returncode == 0
    assert (scene.package / "a.py").stat().st_size == len(A) + len(line)
    assert scene.run("revert", "--no-builtin").code == 0
    assert (scene.package / "a.py").read_bytes() == A


@pytest.mark.parametrize(
    "text",
    [
        b"diff --git a/vllm/a.py b/vllm/a.py\nBinary files " + b"x and " * 10**6 + b" differ\n",
        b"--- " + b"a " * 10**6 + b"\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-a\n+b\n",
        b'--- "' + b"\\303" * 10**6 + b'"\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-a\n+b\n',
        b"@@ -1 +1 @@" + b" @@" * 10**6 + b"\n",
        named(b"/".join([b"d"] * 10**5)),
        b"diff --git " + b"a/x b/" * 10**5 + b"\n" + named(b"a.py"),
        b"\n".join(b"From %d Mon Sep 17 00:00:00 2001" % n for n in range(10**5)),
    ],
    ids=["binary", "spaces", "quoted", "headings", "folders", "joints", "mails"],
)
def test_bombs(scene: Scene, text: bytes) -> None:
    before = scene.everything()
    done = limited(scene, text, seconds=30, megabytes=1000)
    if done.returncode:
        assert b"big.patch" in done.stderr
        assert scene.everything() == before


@pytest.mark.slow
def test_a_million_hunks(scene: Scene) -> None:
    """All of it is read, and refused: the file has not so many lines."""
    body = b"".join(b"@@ -%d +%d @@\n-a\n+b\n" % (n, n) for n in range(1, 1_000_001))
    before = scene.everything()
    done = limited(scene, named(b"a.py", body), seconds=300, megabytes=4000)
    assert done.returncode == 3
    assert b"nothing was changed" in done.stderr
    assert scene.everything() == before
