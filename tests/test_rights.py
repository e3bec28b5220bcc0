"""Rights, mounts and full disks as the kernel has them: what can't be written is refused whole.

Here nothing of the file system is a stand-in, locks aside. Another user is a process with that
user's ids; what is mounted is mounted in a namespace of its own, which goes with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import scenes
from fakes import folder_for_all
from scenes import FILES, Ran, Scene, diff, entry, make_scene, patch
from vllm_patcher import locking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UID, GID = 2000, 2000
HINT = "hint: run vllm-patch where the image is built, as the user who owns the files"

READER = "hint: run vllm-patch as a user who may read the install\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# A user may have no right to read this Python and this checkout, so all is imported before.
AS_USER = """\
import importlib, json, os, pkgutil, sys, tempfile
from pathlib import Path
import scenes, vllm_patcher
for module in pkgutil.walk_packages(vllm_patcher.__path__, "vllm_patcher."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
with tempfile.TemporaryDirectory() as folder:
    scene = scenes.make_scene(Path(folder))
    catalog = scene.catalog(scenes.entry("one", scenes.patch(a05="50")))
    for verb in ("verify", "apply", "revert"):
        scene.run(verb, *catalog)
        scene.run(verb, *catalog, "--json")
uid, gid, groups, commands = json.loads(sys.argv[1])
if uid:
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
for command in commands:
    ran = scenes.run(*command)
    print(json.dumps([ran.code, ran.out, ran.err]))
"""


def ran_by(
    *commands: Sequence[str],
    uid: int = UID,
    gid: int = GID,
    groups: Sequence[int] = (),
    before: Sequence[str] = (),
) -> list[Ran]:
    """Run command lines one after another as a user; `before` stands before the interpreter."""
    tests = str(Path(__file__).parent)
    who = [uid, gid, list(groups), [list(command) for command in commands]]
    done = subprocess.run(
        [*before, sys.executable, "-B", "-c", AS_USER, json.dumps(who)],
        check=False,
        capture_output=True,
        env=scenes.environ(PYTHONPATH=os.pathsep.join([str(scenes.SRC), tests])),
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(commands)
    return [Ran(code=code, out=out, err=err) for code, out, err in answers]


def looks(scene: Scene) -> dict[str, tuple[int, int, int, bytes]]:
    """Bytes, mode and owners of all files and folders of a scene."""
    found = {}
    for path in sorted([scene.site, *scene.site.rglob("*")]):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(scene.root))] = (
            status.st_mode,
            status.st_uid,
            status.st_gid,
            data,
        )
    return found


def own(scene: Scene, uid: int, gid: int) -> None:
    """Give all of a site to a user."""
    for path in (scene.site, *scene.site.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)


TEXT = patch(a05="50", b05="50")
"""One patch in two files of one folder."""
MADE = patch(a05="50") + diff("new/deep/made.py", None, b"made = 1\n")
"""One patch in one file, and a file in folders that are not there yet."""
IN_TWO_FOLDERS = patch(a05="50") + diff(scenes.STATS, scenes.STATS_TEXT, b"stats = 1\n")


def options(scene: Scene, text: bytes = TEXT) -> tuple[str, ...]:
    """Name a catalog of one patch, and the install."""
    return (*scene.catalog(entry("one", text)), *scene.at)


def verbs(scene: Scene, *names: str, text: bytes = TEXT, **who: Any) -> list[Ran]:
    """Run verbs on a scene as a user."""
    more = options(scene, text)
    return ran_by(*((name, *more) for name in names), **who)


def said(scene: Scene, state: str, *lines: str) -> str:
    """What stands on standard output for one patch."""
    leader = f"one {'.' * 28} {state}"
    return "".join(f"{line}\n" for line in (f"vllm 0.11.0  {scene.package}", leader, *lines))


@pytest.fixture
def scene() -> Iterator[Scene]:
    """An install of root's that every user may look at."""
    with folder_for_all() as folder:
        yield make_scene(folder)


# Whose files they are.


@as_root
def test_a_user_may_look_at_the_install_of_root_and_not_change_it(scene: Scene) -> None:
    before = looks(scene)
    asked, preview, applied = verbs(
        scene, "verify", "status", "apply", text=IN_TWO_FOLDERS, uid=UID
    )
    assert (asked.code, asked.out) == (1, said(scene, "not-applied"))
    assert preview.code == 0
    assert applied == Ran(
        code=3,
        out="",
        err=f"error: {scene.info} can't be written; nothing was changed\n"
        f"  it is uid 0, gid 0, mode 0755; this is uid {UID}\n"
        f"  {scene.package} can't be written\n"
        f"  {scene.stats.parent} can't be written\n"
        f"{HINT}\n",
    )
    assert looks(scene) == before


@as_root
def test_a_user_may_ask_for_what_root_has_applied_and_not_take_it_out(scene: Scene) -> None:
    assert scene.run("apply", *options(scene)[:-2]).code == 0
    before = looks(scene)
    asked, again, reverted = verbs(scene, "verify", "apply", "revert")
    assert (asked.code, asked.out, asked.err) == (0, said(scene, "applied"), "")
    end = "nothing was changed: all was in already"
    assert (again.code, again.out, again.err) == (0, said(scene, "applied", end), "")
    assert reverted.code == 3
    assert f"error: {scene.info} can't be written; nothing was changed\n" in reverted.err
    assert reverted.err.endswith(f"{HINT}\n")
    assert looks(scene) == before


@as_root
def test_the_owner_is_never_changed_where_only_the_folders_can_be_written(scene: Scene) -> None:
    for folder in (scene.site, *scene.site.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o777)
    before = looks(scene)
    asked, applied = verbs(scene, "verify", "apply")
    assert asked.code == 1
    assert (applied.code, applied.out) == (3, "")
    assert applied.err == (
        f"error: {scene.info / 'RECORD'} would change its owner; nothing was changed\n"
        f"  it must be uid 0, gid 0, mode 0644; this is uid {UID}\n"
        f"  {scene.receipt} would change its owner\n"
        f"  {scene.package / 'a.py'} would change its owner\n"
        f"  {scene.package / 'b.py'} would change its owner\n"
        f"{HINT}\n"
    )
    assert looks(scene) == before


@as_root
@pytest.mark.parametrize(("uid", "gid"), [(0, 0), (UID, 4000)], ids=["owner", "group"])
def test_one_file_of_another_stops_all(scene: Scene, uid: int, gid: int) -> None:
    own(scene, UID, GID)
    os.chown(scene.package / "b.py", uid, gid)
    before = looks(scene)
    (applied,) = verbs(scene, "apply")
    assert (applied.code, applied.out) == (3, "")
    assert applied.err == (
        f"error: {scene.package / 'b.py'} would change its owner; nothing was changed\n"
        f"  it must be uid {uid}, gid {gid}, mode 0644; this is uid {UID}\n"
        f"{HINT}\n"
    )
    assert looks(scene) == before


@as_root
def test_a_group_that_the_user_is_in_is_kept(scene: Scene) -> None:
    own(scene, UID, GID)
    os.chown(scene.package / "b.py", UID, 4000)
    (applied,) = verbs(scene, "apply", groups=[4000])
    assert applied.code == 0, applied.err
    assert (scene.package / "b.py").stat().st_gid == 4000
    assert (scene.package / "a.py").stat().st_gid == GID


@as_root
@pytest.mark.parametrize("uid", [0, UID], ids=["root", "owner"])
def test_the_owner_the_group_and_the_mode_are_kept(scene: Scene, uid: int) -> None:
    own(scene, UID, GID)
    (scene.package / "a.py").chmod(0o664)
    (scene.info / "RECORD").chmod(0o640)
    scene.package.chmod(0o2775)
    before = looks(scene)
    (applied,) = verbs(scene, "apply", text=MADE, uid=uid, gid=uid)
    assert applied.code == 0, applied.err
    after = looks(scene)
    assert {(user, group) for _mode, user, group, _data in after.values()} == {(UID, GID)}
    changed = {name for name in after if after[name] != before.get(name)}
    made = {"site/vllm/new", "site/vllm/new/deep", "site/vllm/new/deep/made.py"}
    kept = {"site/vllm/a.py", "site/vllm-0.11.0.dist-info/RECORD"}
    receipt = "site/vllm-0.11.0.dist-info/vllm-patcher.json"
    assert changed == made | kept | {receipt}
    assert {name: after[name][0] for name in kept} == {name: before[name][0] for name in kept}
    assert after["site/vllm/new/deep"][0] == before["site/vllm"][0]
    assert after["site/vllm/new/deep/made.py"][0] == before["site/vllm/__init__.py"][0]
    assert after[receipt][0] == before["site/vllm-0.11.0.dist-info/RECORD"][0]
    (reverted,) = verbs(scene, "revert", uid=uid, gid=uid)
    assert reverted.code == 0, reverted.err
    assert looks(scene) == before


@as_root
def test_a_sticky_folder_with_the_file_of_another(scene: Scene) -> None:
    own(scene, UID, GID)
    for path in (scene.stats, scene.stats.parent):
        os.chown(path, 0, 0)
    scene.stats.parent.chmod(0o1777)
    before = looks(scene)
    asked, applied = verbs(scene, "verify", "apply", text=IN_TWO_FOLDERS)
    assert asked.code == 1
    assert (applied.code, applied.out) == (3, "")
    assert applied.err == (
        f"error: {scene.stats} can't be replaced; nothing was changed\n"
        f"  its folder is sticky, and it is uid 0, gid 0, mode 0644; this is uid {UID}\n"
        f"{HINT}\n"
    )
    assert looks(scene) == before


@as_root
@pytest.mark.parametrize(
    ("before", "why", "fact"),
    [
        (
            ("setpriv", "--bounding-set", "-chown", "--inh-caps", "-chown"),
            "Operation not permitted",
            "its owner can't be kept, it is immutable, or it is another's in a sticky folder",
        ),
        (
            ("unshare", "--user", "--map-root-user"),
            "Invalid argument",
            "its owner can't be kept: it may be none that this user namespace knows",
        ),
    ],
    ids=["without CAP_CHOWN", "in a user namespace"],
)
def test_a_root_that_may_not_give_files_away(
    scene: Scene, before: tuple[str, ...], why: str, fact: str
) -> None:
    """Which a container without rights has, and a build without root."""
    if shutil.which(before[0]) is None:
        pytest.skip(f"there is no {before[0]}")
    tried = subprocess.run([*before, "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"{before[0]}: {tried.stderr.strip()}")
    os.chown(scene.package / "b.py", UID, GID)
    was = looks(scene)
    asked, applied = verbs(scene, "verify", "apply", uid=0, before=before)
    assert asked.code == 1
    assert (applied.code, applied.out) == (3, "")
    assert applied.err == (
        f"error: {scene.package / 'b.py'} can't be written: {why}; nothing was changed\n"
        f"  {fact}\n"
        f"{HINT}\n"
    )
    assert looks(scene) == was
    os.chown(scene.package / "b.py", 0, 0)
    applied, reverted = verbs(scene, "apply", "revert", uid=0, before=before)
    assert (applied.code, reverted.code) == (0, 0), applied.err + reverted.err


# What a user may not even look at.


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o744, 0o711], ids=oct)
@pytest.mark.parametrize("part", ["v1", "v1/metrics"])
def test_a_folder_of_the_package_that_the_user_may_not_enter_or_list(
    scene: Scene, part: str, mode: int
) -> None:
    (scene.package / part).chmod(mode)
    for ran in verbs(scene, "verify", "apply", "status", text=IN_TWO_FOLDERS):
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == f"error: {scene.stats} can't be read: Permission denied\n{READER}"


@as_root
@pytest.mark.parametrize("name", ["vllm/a.py", "vllm-0.11.0.dist-info/RECORD"])
def test_a_file_that_the_user_may_not_read(scene: Scene, name: str) -> None:
    (scene.site / name).chmod(0o600)
    for ran in verbs(scene, "verify", "apply", "revert"):
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == f"error: {scene.site / name} can't be read: Permission denied\n{READER}"


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o744], ids=oct)
@pytest.mark.parametrize("part", ["site", "site/vllm"])
def test_an_install_that_the_user_may_not_enter(scene: Scene, part: str, mode: int) -> None:
    (scene.root / part).chmod(mode)
    for ran in verbs(scene, "verify", "apply"):
        assert (ran.code, ran.out) == (3, "")
        assert "Permission denied" in ran.err
        assert "remove it" not in ran.err
        assert "EXECUTABLE" not in ran.err


@as_root
@pytest.mark.parametrize("name", ["fix.patch", "fix"])
def test_a_diff_in_a_folder_that_the_user_may_not_enter(scene: Scene, name: str) -> None:
    path = scene.root / "shut" / name
    path.parent.mkdir()
    path.write_bytes(TEXT)
    path.parent.chmod(0o700)
    (ran,) = ran_by(("apply", str(path), "--no-builtin", *scene.at))
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"error: {path} can't be read: Permission denied\n"


@as_root
def test_an_install_whose_version_the_user_may_not_read(scene: Scene) -> None:
    """Else `verify` says yes although nobody has looked."""
    (scene.info / "METADATA").chmod(0o600)
    for ran in verbs(scene, "verify", "apply"):
        assert ran.code == 3
        assert "Permission denied" in ran.err


@as_root
def test_a_site_that_the_user_may_not_list(scene: Scene) -> None:
    scene.site.chmod(0o711)
    for ran in verbs(scene, "verify", "apply"):
        assert ran.code == 3
        assert "Permission denied" in ran.err


def interpreter(python: Path, site: Path, *, origin: str | None = None) -> None:
    """Write a program that answers as an interpreter with this path: a user may run no real one."""
    spec = origin and {"origin": origin, "locations": [str(site / "vllm")], "finder": ".PathFinder"}
    answer = {"executable": str(python), "prefix": "/", "path": [str(site)], "spec": spec}
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\necho 'vllm-patch-answer {json.dumps(answer)}'\n")
    python.chmod(0o755)


@pytest.fixture
def active() -> Iterator[Path]:
    """The folder of an environment with a vLLM, beside another that the python3 on PATH has."""
    with folder_for_all() as folder:
        other = make_scene(folder)
        interpreter(folder / "bin/python3", other.site, origin=str(other.package / "__init__.py"))
        site = folder / "above/env/lib/python3.12/site-packages"
        make_scene(folder / "above").site.rename(folder / "site-packages")
        site.parent.mkdir(parents=True)
        (folder / "site-packages").rename(site)
        interpreter(folder / "above/env/bin/python", site)
        yield folder / "above/env"


def judged(active: Path, *words: str, variable: str = "VIRTUAL_ENV", named: str = "") -> Ran:
    """Verify in an active environment as a user."""
    folder = active.parent.parent
    without = ("-u", "VIRTUAL_ENV", "-u", "CONDA_PREFIX")
    here = ("env", *without, f"{variable}={named or active}", f"PATH={folder}/bin:/bin")
    return ran_by(("verify", "--no-builtin", *words), before=here)[0]


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o744], ids=oct)
@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
@pytest.mark.parametrize("shut", ["..", "", "bin", "lib", "lib/python3.12/site-packages"])
def test_an_active_environment_that_the_user_may_not_see(
    active: Path, shut: str, variable: str, mode: int
) -> None:
    """Else `verify` says yes to another vLLM."""
    (active / shut).chmod(mode)
    ran = judged(active, variable=variable)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"error: {active}")
    fact = f"  {variable} names {active}\n"
    assert ran.err.endswith(f" can't be read: Permission denied\n{fact}{READER}")


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o711], ids=oct)
def test_an_environment_that_does_not_run_and_that_the_user_may_not_list(
    active: Path, mode: int
) -> None:
    (active / "bin/python").unlink()
    (active / "lib").chmod(mode)
    ran = judged(active)
    assert (ran.code, ran.out) == (3, "")
    fact = f"  VIRTUAL_ENV names {active}\n"
    assert ran.err == f"error: {active}/lib can't be read: Permission denied\n{fact}{READER}"


@as_root
@pytest.mark.parametrize("shut", ["..", "", "bin"])
@pytest.mark.parametrize("named", ["", "bin/python"])
def test_an_interpreter_that_the_user_may_not_see(active: Path, named: str, shut: str) -> None:
    (active / shut).chmod(0o700)
    for words in (("--python",), ("--site-packages", "/", "--python")):
        ran = judged(active, *words, str(active / named))
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith(f"error: {active}")
        assert ran.err.endswith(f" can't be read: Permission denied\n{READER}")


@as_root
@pytest.mark.parametrize("named", ["", "bin/python"])
def test_an_environment_whose_interpreter_is_a_link_that_the_user_may_not_follow(
    active: Path, named: str
) -> None:
    """The python of root's uv, for example: what the environment holds can be seen."""
    (active / "pyvenv.cfg").touch()
    python = active / "bin/python"
    (active.parent / "home").mkdir(mode=0o700)
    python.rename(active.parent / "home/python")
    python.symlink_to(active.parent / "home/python")
    ran = judged(active, "--python", str(active / named))
    assert ran.code == 0, ran.err
    assert ".pth files were not seen" in ran.err


@as_root
def test_an_active_environment_that_is_not_there_is_told(active: Path) -> None:
    ran = judged(active, named=f"{active}/none")
    assert ran.code == 0, ran.err
    assert ran.err == f"note: VIRTUAL_ENV names a folder that is not there: {active}/none\n"


# What is mounted.


class Mounts:
    """A mount namespace, held by a process.

    Its files are seen from here below `root`; what runs in it sees them as they are.
    """

    def __init__(self, folder: Path, holder: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.inside = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt")
        self._root = Path(f"/proc/{holder.pid}/root")

    def sh(self, *words: str | Path) -> None:
        """Run a command in the namespace; skip the test if the system has it not or refuses it."""
        done = subprocess.run(
            [*self.inside, *map(str, words)], check=False, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"{' '.join(map(str, words))}: {done.stderr.strip()}")

    def seen(self, path: Path) -> Path:
        """The path by which the test sees a file of the namespace."""
        return self._root / path.relative_to("/")

    def tmpfs(self, *options: str) -> None:
        """Mount a file system of memory on the folder."""
        words = ",".join(["size=1m", "mode=755", *options])
        self.sh("mount", "-t", "tmpfs", "-o", words, "tmpfs", self.folder)

    def scene(self, text: bytes = TEXT) -> Scene:
        """Lay an install and a catalog into the folder; the scene's paths are the test's."""
        scene = make_scene(self.seen(self.folder))
        scene.catalog(entry("one", text))
        return scene

    @property
    def site(self) -> Path:
        return self.folder / "site"

    def run(self, verb: str, *arguments: str, uid: int = 0) -> Ran:
        """Run a verb in the namespace on the scene's install, with its catalog."""
        return self.runs((verb, *arguments), uid=uid)[0]

    def runs(self, *commands: Sequence[str], uid: int = 0) -> list[Ran]:
        """Run several of them."""
        catalog = ("--no-builtin", "--catalog", str(self.folder / "catalog"))
        more = (*catalog, "--site-packages", str(self.site))
        return ran_by(
            *((*command, *more) for command in commands), uid=uid, gid=uid, before=self.inside
        )


@contextmanager
def mounts(folder: Path) -> Iterator[Mounts]:
    """Make a mount namespace, or skip where none can be had."""
    if shutil.which("nsenter") is None or shutil.which("unshare") is None:
        pytest.skip("no mount namespace: there is no nsenter or no unshare")
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"ready\n":
            pytest.skip(f"no mount namespace: {holder.stderr.read().decode().strip()}")
        try:
            yield Mounts(folder, holder)
        finally:
            holder.stdin.close()


@pytest.fixture
def space() -> Iterator[Mounts]:
    """A namespace and a folder in it that every user gets to."""
    with folder_for_all() as folder, mounts(folder) as made:
        yield made


def refused(ran: Ran, scene: Scene, before: object) -> str:
    """Check that nothing was changed and nothing left; return what was said."""
    assert (ran.code, ran.out) == (3, ""), ran
    assert looks(scene) == before
    return ran.err


@as_root
@pytest.mark.parametrize("how", ["remount", "remount,bind"])
def test_a_file_system_that_is_read_only(space: Mounts, how: str) -> None:
    if how == "remount":
        space.tmpfs()
    else:
        space.sh("mount", "--bind", space.folder, space.folder)
    scene = space.scene()
    space.sh("mount", "-o", f"{how},ro", space.folder)
    before = looks(scene)
    for uid in (0, UID):
        asked, preview, applied = space.runs(("verify",), ("status",), ("apply",), uid=uid)
        assert (asked.code, preview.code) == (1, 0)
        assert refused(applied, scene, before) == (
            f"error: {space.site / scene.info.name} can't be written; nothing was changed\n"
            "  the file system is read-only\n"
            f"  {space.site / 'vllm'} can't be written\n"
            f"{HINT}\n"
        )
    space.sh("mount", "-o", f"{how},rw", space.folder)
    assert space.run("apply").code == 0
    space.sh("mount", "-o", f"{how},ro", space.folder)
    before = looks(scene)
    for uid in (0, UID):
        asked, again, reverted = space.runs(("verify",), ("apply",), ("revert",), uid=uid)
        assert (asked.code, asked.err, again.code) == (0, "", 0)
        assert "  the file system is read-only\n" in refused(reverted, scene, before)


@pytest.fixture(params=["tmpfs", "ext4"])
def with_flags(space: Mounts, request: pytest.FixtureRequest, tmp_path: Path) -> Mounts:
    """A file system whose files can be immutable."""
    if request.param == "tmpfs":
        space.tmpfs()
        space.sh("chattr", "=", space.folder)
    else:
        image = tmp_path / "image"
        image.write_bytes(b"")
        os.truncate(image, 1 << 22)
        space.sh("mkfs.ext4", "-q", "-F", image)
        space.sh("mount", "-o", "loop", image, space.folder)
        space.seen(space.folder).chmod(0o755)
    return space


@as_root
@pytest.mark.parametrize("name", ["vllm/b.py", "vllm", "vllm-0.11.0.dist-info/RECORD"])
@pytest.mark.parametrize(("flag", "word"), [("i", "immutable"), ("a", "append-only")])
def test_what_is_immutable_or_append_only(
    with_flags: Mounts, name: str, flag: str, word: str
) -> None:
    scene = with_flags.scene()
    path = with_flags.site / name
    with_flags.sh("chattr", f"+{flag}", path)
    before = looks(scene)
    asked, applied = with_flags.runs(("verify",), ("apply",))
    assert asked.code == 1
    assert refused(applied, scene, before) == (
        f"error: {path} can't be replaced; nothing was changed\n"
        f"  it is {word}\n"
        f"hint: chattr -{flag} {path}\n"
    )
    with_flags.sh(*shlex.split(f"chattr -{flag} {path}"))
    assert with_flags.run("apply").code == 0


@as_root
def test_a_link_to_an_immutable_file_is_replaced_all_the_same(with_flags: Mounts) -> None:
    """The file in the cache of a package manager is not what changes."""
    scene = with_flags.scene()
    cached = scene.root / "cached.py"
    (scene.package / "b.py").rename(cached)
    (scene.package / "b.py").symlink_to(with_flags.folder / "cached.py")
    with_flags.sh("chattr", "+i", with_flags.folder / "cached.py")
    applied = with_flags.run("apply")
    with_flags.sh("chattr", "-i", with_flags.folder / "cached.py")
    assert applied.code == 0, applied.err
    assert cached.read_bytes() == FILES["b.py"]
    assert b"b05 = 50\n" in (scene.package / "b.py").read_bytes()


@as_root
@pytest.mark.parametrize("access", ["rw", "ro"])
@pytest.mark.parametrize("name", ["vllm/a.py", "vllm/b.py", "vllm-0.11.0.dist-info/RECORD"])
def test_a_single_file_that_is_mounted(space: Mounts, name: str, access: str) -> None:
    scene = space.scene()
    path = space.site / name
    space.sh("mount", "--bind", path, path)
    space.sh("mount", "-o", f"remount,bind,{access}", path)
    before = looks(scene)
    asked, applied = space.runs(("verify",), ("apply",))
    assert asked.code == 1
    assert refused(applied, scene, before) == (
        f"error: {path} can't be written: Device or resource busy; nothing was changed\n"
        "  a single file that is mounted into a container can't be replaced\n"
        f"{HINT}\n"
    )


@as_root
def test_a_single_file_in_another_folder_that_is_mounted(space: Mounts) -> None:
    scene = space.scene(IN_TWO_FOLDERS)
    path = space.site / "vllm" / scenes.STATS
    elsewhere = space.folder / "elsewhere.py"
    space.seen(elsewhere).write_bytes(scenes.STATS_TEXT)
    space.sh("mount", "--bind", elsewhere, path)
    before = looks(scene)
    said = refused(space.run("apply"), scene, before)
    assert said.startswith(f"error: {path} can't be written: Device or resource busy;")
    assert space.seen(elsewhere).read_bytes() == scenes.STATS_TEXT


@as_root
@pytest.mark.parametrize("name", ["vllm", "vllm-0.11.0.dist-info", "vllm/v1/metrics"])
def test_a_folder_that_is_mounted_is_like_any_other(space: Mounts, name: str) -> None:
    scene = space.scene(IN_TWO_FOLDERS)
    before = looks(scene)
    space.sh("mount", "--bind", space.site / name, space.site / name)
    applied, asked, reverted = space.runs(("apply",), ("verify",), ("revert",))
    assert [applied.code, asked.code, reverted.code] == [0, 0, 0], applied.err
    assert looks(scene) == before


# What is full.

FULL = "  the disk is full: it has no room for another byte, or for another file\n"


def fill(folder: Path, size: int, *, left: int) -> None:
    """Write files of a size until no more go, then take some away again."""
    folder.mkdir()
    number = 0
    with suppress(OSError):
        while True:
            (folder / str(number)).write_bytes(bytes(size))
            number += 1
    # What did not get all its bytes goes as well.
    (folder / str(number)).unlink(missing_ok=True)
    assert number > left
    for name in range(left):
        (folder / str(name)).unlink()


@as_root
@pytest.mark.parametrize("left", range(3))
@pytest.mark.parametrize(
    ("option", "size"), [("size=1m", 4096), ("nr_inodes=40", 0)], ids=["bytes", "inodes"]
)
def test_a_disk_that_is_full(space: Mounts, option: str, size: int, left: int) -> None:
    """There is room for no new file, for the receipt, or for that and one of the package."""
    space.tmpfs(option)
    scene = space.scene()
    fill(scene.root / "filler", size, left=left)
    before = looks(scene)
    asked, applied = space.runs(("verify",), ("apply",))
    assert asked.code == 1
    name = ("vllm-0.11.0.dist-info/RECORD", "vllm/a.py", "vllm/b.py")[left]
    path = space.site / name
    tree = space.site / Path(name).parts[0]
    assert refused(applied, scene, before) == (
        f"error: {path} can't be written: No space left on device; nothing was changed\n"
        f"{FULL}"
        f"hint: df {tree}; df -i {tree}\n"
    )
    shutil.rmtree(scene.root / "filler")
    assert space.run("apply").code == 0


# The lock.


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    scene = make_scene(tmp_path)
    monkeypatch.setattr(fcntl, "flock", flock)
    note = f"no locks on the file system of {scene.package}; run one vllm-patch at a time"
    ran = scene.run("apply", *options(scene)[:-2])
    end = "restart running vLLM processes"
    assert ran == Ran(code=0, out=said(scene, "applied", end), err=f"note: {note}\n")
    ran = scene.run("revert", "--json", *options(scene)[:-2])
    assert ran.code == 0
    assert note in ran.json["notes"]


HOLD = """\
import fcntl, os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_another_process_holds_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_scene(tmp_path)
    more = options(scene)[:-2]
    before = looks(scene)
    monkeypatch.setattr(locking, "LOCK_SECONDS", 0.2)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, scene.package],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        ran = scene.run("apply", *more)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == (
            f"error: another vllm-patch has been working on {scene.package} for 0 s\n"
            f"hint: fuser -v {scene.package}\n"
        )
        # Who only looks does not wait.
        assert scene.run("verify", *more).code == 1
        assert scene.run("apply", "--dry-run", *more).code == 0
        holder.stdin.close()
    assert looks(scene) == before
    assert scene.run("apply", *more).code == 0
