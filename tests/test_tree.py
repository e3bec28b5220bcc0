"""Files are replaced whole, keep their looks, and nothing outside the folder is touched."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vllm_patcher
from fakes import folder_for_all, make_install
from faulty import Killed, Os, dying, snapshot
from vllm_patcher.errors import UnsafePath, VllmPatchError, WriteFailed
from vllm_patcher.files import TEMPORARY
from vllm_patcher.tree import looks
from vllm_patcher.tree.reading import ReadTree
from vllm_patcher.tree.writing import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD, NEW = b"old = 1\n", b"new = 1\n"
LIKE = "__init__.py"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return make_install(tmp_path / "site", files={"v1/__init__.py": b"", "v1/a.py": OLD})


@pytest.fixture
def tree(package: Path) -> Tree:
    return Tree(str(package))


def replace(tree: Tree, path: str) -> None:
    tree.replace(path, NEW, like=LIKE)


def preflight(tree: Tree, path: str) -> None:
    tree.preflight(path, like=LIKE)


ACTIONS = [Tree.read, replace, Tree.remove, preflight]

# What never has a place in the folder.


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x.py",
        "v1/../../x.py",
        "v1/../v1/a.py",
        "./v1/a.py",
        "v1//a.py",
        "v1/a.py/",
        "v1/.",
        "v1/a\0.py",
        "\0",
    ],
)
def test_a_path_out_of_the_folder_is_refused(
    tree: Tree, path: str, action: Callable[[Tree, str], object]
) -> None:
    outside = Path(tree.root).parent / "x.py"
    outside.write_bytes(OLD)
    before = snapshot(Path(tree.root).parent)
    with pytest.raises(UnsafePath) as caught:
        action(tree, path)
    assert repr(path) in caught.value.what
    assert snapshot(Path(tree.root).parent) == before


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("leads", ["outside", "inside", "nowhere"])
@pytest.mark.parametrize("path", ["link/a.py", "link/new.py", "v1/link/deep/new.py"])
def test_a_folder_that_is_a_link_is_refused(
    package: Path,
    tmp_path: Path,
    path: str,
    leads: str,
    action: Callable[[Tree, str], object],
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_bytes(OLD)
    target = {"outside": outside, "inside": package / "v1", "nowhere": tmp_path / "nowhere"}
    (package / path.partition("link")[0] / "link").symlink_to(target[leads])
    before = snapshot(tmp_path)
    with pytest.raises(UnsafePath, match="goes through 'link'"):
        action(Tree(str(package)), path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_a_file_where_a_folder_should_be_is_refused(
    package: Path, tree: Tree, action: Callable[[Tree, str], object]
) -> None:
    before = snapshot(package)
    with pytest.raises(UnsafePath, match=r"goes through 'a\.py'"):
        action(tree, "v1/a.py/x.py")
    assert snapshot(package) == before


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    import socket

    # Its name may not be long.
    with socket.socket(socket.AF_UNIX) as server:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        finally:
            os.close(descriptor)


def make_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("action", [Tree.read, replace, preflight])
@pytest.mark.parametrize(
    "make", [make_fifo, make_socket, make_device, link_to_device, link_to_itself, Path.mkdir]
)
def test_what_is_no_plain_file_is_refused_and_never_waited_for(
    package: Path,
    tree: Tree,
    make: Callable[[Path], None],
    action: Callable[[Tree, str], object],
) -> None:
    make(package / "odd.py")
    before = snapshot(package)
    with pytest.raises(UnsafePath, match="is not a plain file"):
        action(tree, "odd.py")
    assert snapshot(package) == before


def test_a_link_that_leads_nowhere_is_no_file_and_not_to_be_replaced(
    package: Path, tree: Tree
) -> None:
    (package / "v1" / "b.py").symlink_to("nowhere")
    assert tree.read("v1/b.py") is None
    assert not tree.exists("v1/b.py")
    with pytest.raises(UnsafePath, match="leads nowhere"):
        preflight(tree, "v1/b.py")


def test_a_temporary_that_somebody_made_a_link_is_not_written_through(
    package: Path, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", bytes)
        (package / f".{'00' * 6}{TEMPORARY}").symlink_to(outside)
        with pytest.raises(WriteFailed):
            replace(tree, "made.py")
    assert outside.read_bytes() == OLD


# Reading.


def test_a_file_is_read_also_through_a_link(package: Path, tree: Tree) -> None:
    (package / "v1" / "b.py").symlink_to("a.py")
    assert tree.read("v1/a.py") == tree.read("v1/b.py") == OLD
    assert tree.exists("v1/b.py")


@pytest.mark.parametrize("path", ["b.py", "v2/b.py", "v2/deep/b.py"])
def test_no_file_is_none(tree: Tree, path: str) -> None:
    assert tree.read(path) is None
    assert not tree.exists(path)
    tree.remove(path)


def test_a_name_that_no_file_system_takes_is_an_error(tree: Tree) -> None:
    with pytest.raises(VllmPatchError, match="can't be read: File name too long"):
        tree.read("x" * 300)


def test_the_read_only_tree_can_do_nothing_but_read() -> None:
    assert {name for name in dir(ReadTree) if not name.startswith("_")} == {
        "exists",
        "leftovers",
        "read",
    }


def test_reading_writes_nothing_and_leaves_no_descriptor_open(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "odd.py").mkdir()
    system = Os(dying(0)).use(monkeypatch)
    tree = ReadTree(str(package))
    before = len(os.listdir("/proc/self/fd"))
    for path in ("v1/a.py", "none.py", "odd.py", "v1/a.py/b.py"):
        try:
            tree.read(path)
        except UnsafePath:
            pass
        tree.exists(path)
        tree.leftovers(path.replace("a.py/", ""))
    assert not system.calls
    assert len(os.listdir("/proc/self/fd")) == before


# Replacing.


@pytest.mark.parametrize("link", ["hard", "symlink"])
def test_the_other_name_of_a_linked_file_keeps_its_bytes(tmp_path: Path, link: str) -> None:
    cache = tmp_path / "cache"
    package = make_install(tmp_path / "site", files={"v1/a.py": OLD}, link=link, cache=cache)
    other = make_install(tmp_path / "other", files={"v1/a.py": OLD}, link="copy")
    os.link(cache / "vllm/v1/a.py", other / "v1/b.py")
    tree = Tree(str(package))
    replace(tree, "v1/a.py")
    assert tree.read("v1/a.py") == NEW
    assert not (package / "v1/a.py").is_symlink()
    assert (cache / "vllm/v1/a.py").read_bytes() == OLD
    assert (other / "v1/b.py").read_bytes() == OLD
    tree.remove("v1/a.py")
    assert (cache / "vllm/v1/a.py").read_bytes() == OLD


def test_a_reader_that_has_it_open_keeps_the_old_bytes(package: Path, tree: Tree) -> None:
    with (package / "v1/a.py").open("rb") as file:
        replace(tree, "v1/a.py")
        assert file.read() == OLD
    assert (package / "v1/a.py").read_bytes() == NEW


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444, 0o755, 0o664, 0o2755])
def test_the_mode_is_kept_whatever_the_umask(package: Path, tree: Tree, mode: int) -> None:
    path = package / "v1/a.py"
    path.chmod(mode)
    before = os.umask(0o077)
    try:
        replace(tree, "v1/a.py")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_no_moment_shows_a_secret(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "v1/a.py").chmod(0o600)
    seen: list[int] = []

    def before(_number: int, name: str) -> None:
        if not name.startswith("open"):
            seen.extend(path.stat().st_mode & 0o077 for path in (package / "v1").glob(".*-tmp"))

    Os(before).use(monkeypatch)
    replace(tree, "v1/a.py")
    assert seen
    assert not any(seen)


@as_root
def test_the_owner_is_kept_and_set_id_bits_with_it(package: Path, tree: Tree) -> None:
    path = package / "v1/a.py"
    os.chown(path, 1234, 2345)
    path.chmod(0o4755)
    replace(tree, "v1/a.py")
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)
    assert stat.S_IMODE(status.st_mode) == 0o4755


def set_xattr(path: Path, name: str, value: bytes) -> None:
    if not hasattr(os, "setxattr"):
        pytest.skip("this system has no extended attributes")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EPERM):
            raise
        pytest.skip(f"the file system has no {name}")


def test_extended_attributes_are_kept(package: Path, tree: Tree) -> None:
    path = package / "v1/a.py"
    set_xattr(path, "user.note", b"\0kept")
    replace(tree, "v1/a.py")
    assert os.getxattr(path, "user.note") == b"\0kept"


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Write an ACL as Linux keeps it: entries of tag, permissions and id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
WIDE = acl((1, 6, NOBODY), (2, 6, 4321), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY))


def test_an_acl_is_kept(package: Path, tree: Tree) -> None:
    path = package / "v1/a.py"
    set_xattr(path, "system.posix_acl_access", WIDE)
    mode = path.stat().st_mode
    replace(tree, "v1/a.py")
    assert os.getxattr(path, "system.posix_acl_access") == WIDE
    assert path.stat().st_mode == mode


def test_the_folders_default_acl_adds_no_one(package: Path, tree: Tree) -> None:
    set_xattr(package / "v1", "system.posix_acl_default", WIDE)
    mode = (package / "v1/a.py").stat().st_mode
    replace(tree, "v1/a.py")
    assert os.listxattr(package / "v1/a.py") == []
    assert (package / "v1/a.py").stat().st_mode == mode


def test_attributes_that_the_system_keeps_to_itself_are_left_out(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_xattr(package / "v1/a.py", "user.note", b"x")
    system = Os().use(monkeypatch)

    def setxattr(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(system, "setxattr", setxattr, raising=False)
    replace(tree, "v1/a.py")
    assert tree.read("v1/a.py") == NEW


# Time: Python takes bytecode for fresh if the source's second is the recorded one.


@pytest.mark.parametrize(
    ("epoch", "old", "expected"),
    [
        (None, -100, "now"),
        (None, 100, "old"),
        ("1000", -100, "old"),
        ("9000000000", -100, "epoch"),
        ("", -100, "now"),
        ("soon", -100, "now"),
        ("-5", -100, "now"),
        ("\u0665", -100, "now"),
        ("9" * 40, -100, "now"),
    ],
)
def test_the_time_moves_on_by_a_second_at_least(  # noqa: PLR0917 - a table
    package: Path,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    epoch: str | None,
    old: int,
    expected: str,
) -> None:
    now = int(time.time())
    monkeypatch.setattr(time, "time", lambda: now + 0.9)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    path = package / "v1/a.py"
    os.utime(path, (now + old + 0.5, now + old + 0.5))
    replace(tree, "v1/a.py")
    seconds = {"now": now, "old": now + old + 1, "epoch": 9_000_000_000}[expected]
    assert path.stat().st_mtime == seconds
    replace(tree, "v1/a.py")
    assert path.stat().st_mtime == seconds + 1


def test_a_new_file_has_the_time_of_the_build(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000")
    replace(tree, "made.py")
    assert (package / "made.py").stat().st_mtime == 1000


def test_folders_that_change_have_the_time_of_the_build(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000")
    replace(tree, "v1/new/made.py")
    assert {(package / name).stat().st_mtime for name in ("v1", "v1/new")} == {1000}
    tree.remove("v1/new/made.py")
    assert not (package / "v1" / "new").exists()
    assert (package / "v1").stat().st_mtime == 1000


# Making and removing.


@pytest.mark.parametrize("path", ["v1/made.py", "made.py", "new/deep/made.py"])
def test_a_new_file_looks_like_the_one_it_is_to_be_like(
    package: Path, tree: Tree, path: str
) -> None:
    (package / "__init__.py").chmod(0o640)
    (package / "v1" / "__init__.py").chmod(0o604)
    package.chmod(0o750)
    before = os.umask(0o077)
    try:
        replace(tree, path)
    finally:
        os.umask(before)
    made = package / path
    mode = 0o604 if path.startswith("v1") else 0o640
    assert made.read_bytes() == NEW
    assert stat.S_IMODE(made.stat().st_mode) == mode
    for folder in made.parents[: path.count("/")]:
        assert stat.S_IMODE(folder.stat().st_mode) == (0o755 if folder.name == "v1" else 0o750)


@as_root
def test_new_files_and_folders_have_the_owners_of_old_ones(package: Path, tree: Tree) -> None:
    os.chown(package, 1111, 2222)
    os.chown(package / "__init__.py", 3333, 4444)
    replace(tree, "new/deep/made.py")
    owners = {
        name: (status.st_uid, status.st_gid)
        for name in ("new", "new/deep", "new/deep/made.py")
        for status in [(package / name).stat()]
    }
    assert owners == {
        "new": (1111, 2222),
        "new/deep": (1111, 2222),
        "new/deep/made.py": (3333, 4444),
    }


def test_a_new_file_that_nothing_is_like_goes_by_its_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    Tree(str(tmp_path)).replace("made.json", NEW, like="RECORD")
    assert stat.S_IMODE((tmp_path / "made.json").stat().st_mode) == 0o640


def test_a_name_may_be_as_long_as_names_can_be(tree: Tree) -> None:
    name = "\u00e9" * 120 + ".py"
    replace(tree, name)
    replace(tree, name)
    assert tree.read(name) == NEW


def test_what_is_removed_takes_its_empty_folders_along(package: Path, tree: Tree) -> None:
    replace(tree, "new/deep/made.py")
    replace(tree, "new/other.py")
    tree.remove("new/deep/made.py")
    assert not (package / "new/deep").exists()
    tree.remove("new/other.py")
    assert not (package / "new").exists()
    assert package.is_dir()


def test_the_root_stays(tmp_path: Path) -> None:
    (tmp_path / "only.py").write_bytes(OLD)
    Tree(str(tmp_path)).remove("only.py")
    assert tmp_path.is_dir()


def test_a_link_is_removed_and_not_what_it_leads_to(package: Path, tree: Tree) -> None:
    (package / "link.py").symlink_to("v1/a.py")
    tree.remove("link.py")
    assert not (package / "link.py").is_symlink()
    assert tree.read("v1/a.py") == OLD


def test_a_folder_is_not_removed_as_a_file(package: Path, tree: Tree) -> None:
    with pytest.raises(WriteFailed):
        tree.remove("v1")
    assert (package / "v1/a.py").exists()


# Failing.


@pytest.mark.parametrize("path", ["v1/a.py", "v1/made.py", "new/deep/made.py"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPERM, errno.EBUSY])
def test_whatever_fails_leaves_the_old_file_and_nothing_else(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, path: str, code: int
) -> None:
    before = snapshot(package)
    at, done = 0, False
    while not done:

        def fail(number: int, _name: str, at: int = at) -> None:
            if number == at:
                raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            system = Os(fail).use(patch)
            try:
                replace(tree, path)
            except WriteFailed:
                pass
            else:
                done = True
        # After the rename the new file is in its place, and the caller has to take it back.
        if not done and not any(call.startswith("replace") for call in system.calls[:at]):
            assert snapshot(package) == before, system.calls
        assert not list(package.rglob("*-tmp")), system.calls
        at += 1
    assert at > 4


@pytest.mark.parametrize(
    ("code", "fact", "hint"),
    [
        (errno.EBUSY, "a single file that is mounted", "run vllm-patch where the image is built"),
        (errno.EPERM, "immutable", "run vllm-patch where the image is built"),
        (errno.EINVAL, "user namespace", "run vllm-patch where the image is built"),
        (errno.ENOSPC, "the disk is full", "df -i "),
        (errno.EDQUOT, "a quota", "df "),
        (errno.EIO, "", ""),
    ],
)
def test_a_failure_says_which_file_why_and_what_helps(  # noqa: PLR0917 - a table
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, code: int, fact: str, hint: str
) -> None:
    def fail(_number: int, name: str) -> None:
        if name.startswith("replace"):
            raise OSError(code, os.strerror(code))

    Os(fail).use(monkeypatch)
    with pytest.raises(WriteFailed) as caught:
        replace(tree, "v1/a.py")
    where = f"{package / 'v1/a.py'} can't be written: {os.strerror(code)}"
    assert caught.value.what == where
    assert fact in "".join(caught.value.facts)
    assert bool(fact) is bool(caught.value.facts)
    assert hint in (caught.value.hint or "")
    assert bool(hint) is bool(caught.value.hint)


def test_a_folder_is_synced_after_each_change_of_its_names(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed must be on the disk when the next thing is done."""
    done: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}

    def fsync(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        done.append("sync folder" if stat.S_ISDIR(mode) else "sync file")
        real["fsync"](descriptor)

    def noted(name: str) -> Callable[..., None]:
        def call(*args: object, **more: object) -> None:
            done.append(name)
            real[name](*args, **more)

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", noted("replace"))
    monkeypatch.setattr(os, "unlink", noted("unlink"))
    replace(tree, "v1/a.py")
    assert done == ["sync file", "replace", "sync folder"]
    done.clear()
    tree.remove("v1/a.py")
    assert done == ["unlink", "sync folder"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_is_fine(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(_number: int, name: str) -> None:
        if name == "fsync" and any(call.startswith("replace") for call in system.calls):
            raise OSError(code, os.strerror(code))

    system = Os(fail).use(monkeypatch)
    replace(tree, "v1/a.py")
    assert tree.read("v1/a.py") == NEW


def test_a_disk_that_is_full(package: Path) -> None:
    # The limit on the size of files fails a write half-way, as a full disk does.
    done = run_as(
        package,
        """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
tree.replace("v1/a.py", b"x" * 10000, like="__init__.py")
""",
    )
    assert "File too large" in done
    assert (package / "v1/a.py").read_bytes() == OLD
    assert not list(package.rglob("*-tmp"))


# Sweeping.


def test_temporaries_of_a_killed_run_are_swept(package: Path, tree: Tree) -> None:
    before = snapshot(package)
    with pytest.MonkeyPatch.context() as patch:
        Os(dying(8)).use(patch)
        with pytest.raises(Killed):
            replace(tree, "new/deep/made.py")
    assert tree.leftovers("new/deep/made.py")
    assert not tree.leftovers("v1/a.py")
    tree.sweep("new/deep/made.py")
    assert snapshot(package) == before
    assert not tree.leftovers("new/deep/made.py")


def test_only_temporaries_of_ours_are_swept(package: Path, tree: Tree, tmp_path: Path) -> None:
    names = [f"x{TEMPORARY}", ".x-tmp", f".x{TEMPORARY}.py", "__pycache__"]
    for name in names[:-1]:
        (package / "v1" / name).write_bytes(b"")
    (package / "v1" / "__pycache__").mkdir()
    (package / "v1" / "__pycache__" / "x.pyc").write_bytes(b"")
    (package / "v1" / f".link{TEMPORARY}").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_bytes(OLD)
    tree.sweep("v1/a.py")
    assert sorted(os.listdir(package / "v1")) == sorted([*names, "__init__.py", "a.py"])
    assert (tmp_path / "kept").read_bytes() == OLD


def test_nothing_is_swept_through_a_link(package: Path, tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f".x{TEMPORARY}").write_bytes(b"")
    (package / "link").symlink_to(outside)
    tree.sweep("link/x.py")
    assert (outside / f".x{TEMPORARY}").exists()
    (outside / f".x{TEMPORARY}").unlink()
    tree.sweep("link/x.py")
    assert outside.exists()


# Asking beforehand, as root and as somebody else.


@pytest.fixture
def shared() -> Iterator[Path]:
    """Give a package that other users get to."""
    with folder_for_all() as folder:
        yield make_install(folder, files={"v1/__init__.py": b"", "v1/a.py": OLD})


def run_as(package: Path, code: str, *, uid: int = 0, gid: int = 0) -> str:
    """Run code with a tree as another user; return what it raises, or nothing."""
    # Imported first: the other user may have no access to this Python's own files.
    program = f"""
import os
from vllm_patcher.errors import VllmPatchError
from vllm_patcher.tree.writing import Tree
if {uid}:
    os.setgroups([])
    os.setegid({gid})
    os.seteuid({uid})
tree = Tree({str(package)!r})
try:
    exec({code!r})
except VllmPatchError as error:
    print(type(error).__name__, error.what, *error.facts, error.hint, sep="|")
"""
    source = Path(vllm_patcher.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


ASK = 'tree.preflight("v1/a.py", like="__init__.py")'
ASK_TO_MAKE = 'tree.preflight("v1/made.py", like="__init__.py")'
ASK_TO_REMOVE = 'tree.preflight("v1/a.py", like=None)'
HINT = "run vllm-patch where the image is built, as the user who owns the files"


@pytest.mark.parametrize("answers", [0x10, 0x20, 0x30])
@pytest.mark.parametrize("path", ["v1/a.py", "v1"])
def test_what_is_immutable_or_append_only_is_refused(
    package: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, path: str, answers: int
) -> None:
    """As the kernel tells it; `test_rights.py` has the kernel tell it."""
    marked = (package / path).stat().st_ino

    def ioctl(descriptor: int, _number: int, _room: bytes) -> bytes:
        flags = answers if os.fstat(descriptor).st_ino == marked else 0x80000
        return struct.pack("=I4x", flags)

    monkeypatch.setattr(looks, "ioctl", ioctl)
    for like in (LIKE, None):
        with pytest.raises(WriteFailed) as caught:
            tree.preflight("v1/a.py", like=like)
        assert caught.value.what == f"{package / path} can't be replaced"
        word, letter = ("immutable", "i") if answers & 0x10 else ("append-only", "a")
        assert caught.value.facts == (f"it is {word}",)
        assert caught.value.hint == f"chattr -{letter} {package / path}"
    tree.preflight("__init__.py", like=LIKE)


@pytest.mark.parametrize("code", [errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.EACCES])
def test_a_file_system_that_knows_no_such_thing_is_fine(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def ioctl(_descriptor: int, _number: int, _room: bytes) -> bytes:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(looks, "ioctl", ioctl)
    preflight(tree, "v1/a.py")


@pytest.mark.parametrize("path", ["v1/a.py", "v1/made.py", "new/deep/made.py"])
def test_nothing_stands_against_a_file_of_ours(tree: Tree, path: str) -> None:
    preflight(tree, path)
    tree.preflight(path, like=None)


@as_root
@pytest.mark.parametrize("code", [ASK, ASK_TO_MAKE, ASK_TO_REMOVE])
def test_a_folder_of_root_cannot_be_written_by_others(shared: Path, code: str) -> None:
    (shared / "v1/a.py").chmod(0o666)
    said = run_as(shared, code, uid=1234, gid=1234).strip().split("|")
    assert said == [
        "WriteFailed",
        f"{shared / 'v1'} can't be written",
        "it is uid 0, gid 0, mode 0755; this is uid 1234",
        HINT,
    ]


@as_root
def test_a_new_folder_in_a_folder_of_root_cannot_be_made_by_others(shared: Path) -> None:
    code = 'tree.preflight("new/deep/made.py", like="__init__.py")'
    said = run_as(shared, code, uid=1234, gid=1234)
    assert f"{shared} can't be written" in said


@as_root
@pytest.mark.parametrize("code", [ASK, ASK_TO_MAKE])
def test_a_file_that_would_change_its_owner_is_refused(shared: Path, code: str) -> None:
    (shared / "v1").chmod(0o777)
    said = run_as(shared, code, uid=1234, gid=1234).strip().split("|")
    name = "a.py" if code == ASK else "made.py"
    assert said == [
        "WriteFailed",
        f"{shared / 'v1' / name} would change its owner",
        "it must be uid 0, gid 0, mode 0644; this is uid 1234",
        HINT,
    ]


@as_root
def test_a_group_that_is_not_ours_is_refused(shared: Path) -> None:
    (shared / "v1").chmod(0o777)
    os.chown(shared / "v1/a.py", 1234, 99)
    assert "would change its owner" in run_as(shared, ASK, uid=1234, gid=1234)
    assert not run_as(shared, ASK, uid=1234, gid=99)


@as_root
def test_a_file_of_another_may_be_removed_from_a_folder_of_ours(shared: Path) -> None:
    os.chown(shared / "v1", 1234, 1234)
    assert not run_as(shared, ASK_TO_REMOVE, uid=1234, gid=1234)
    assert not run_as(shared, 'tree.remove("v1/a.py")', uid=1234, gid=1234)
    assert not (shared / "v1/a.py").exists()


@as_root
@pytest.mark.parametrize("code", [ASK, ASK_TO_REMOVE])
def test_a_file_of_another_in_a_sticky_folder_is_refused(shared: Path, code: str) -> None:
    (shared / "v1").chmod(0o1777)
    said = run_as(shared, code, uid=1234, gid=1234)
    assert "can't be replaced" in said
    assert "its folder is sticky, and it is uid 0, gid 0" in said


@as_root
def test_who_owns_all_may_do_all(shared: Path) -> None:
    for path in [shared, *shared.rglob("*")]:
        os.chown(path, 1234, 1234)
    (shared / "v1").chmod(0o1755)
    for code in (ASK, ASK_TO_MAKE, ASK_TO_REMOVE):
        assert not run_as(shared, code, uid=1234, gid=1234)
    code = (
        'tree.replace("v1/a.py", b"n", like=""); tree.replace("n/m.py", b"n", like="__init__.py")'
    )
    assert not run_as(shared, code, uid=1234, gid=1234)
    assert (shared / "n/m.py").stat().st_uid == 1234


@as_root
def test_an_owner_that_cannot_be_kept_fails_without_preflight_too(shared: Path) -> None:
    (shared / "v1").chmod(0o777)
    before = snapshot(shared)
    said = run_as(shared, 'tree.replace("v1/a.py", b"n", like="")', uid=1234, gid=1234)
    assert said.startswith("WriteFailed")
    assert "its owner can't be kept" in said
    assert snapshot(shared) == before


@as_root
def test_what_may_not_be_read_is_an_error_and_no_bug(shared: Path) -> None:
    (shared / "v1/a.py").chmod(0o600)
    said = run_as(shared, 'tree.read("v1/a.py")', uid=1234, gid=1234)
    assert said.startswith(f"VllmPatchError|{shared / 'v1/a.py'} can't be read: Permission denied")


@as_root
def test_a_file_system_that_is_read_only(package: Path) -> None:
    mounted = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "true"], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    program = f"""
from vllm_patcher.errors import WriteFailed
from vllm_patcher.tree.writing import Tree
tree = Tree({str(package)!r})
assert tree.read("v1/a.py") == {OLD!r}
for ask in (lambda: tree.preflight("v1/a.py", like=None), lambda: tree.remove("v1/a.py")):
    try:
        ask()
    except WriteFailed as error:
        print(error.what, *error.facts)
"""
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -B -c "$3"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", package, sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(Path(vllm_patcher.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"{package / 'v1'} can't be written the file system is read-only",
        f"{package / 'v1/a.py'} can't be written: Read-only file system",
    ]
