"""All patches that a release gets, together: on the released files, and on whole wheels.

A release is laid out as the files that its patches touch and their probes read, with the lines
that its RECORD has for them; they are fetched as `fit` fetches them.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from test_wheels import differences, vllm_patch
from vllm_patcher import Request, apply, catalog, revert, verify, versions
from vllm_patcher.releases.cache import Cache
from vllm_patcher.releases.index import Index

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import WheelInstaller
    from vllm_patcher.manifest import Patch
    from vllm_patcher.releases.index import Release
    from vllm_patcher.results import Report

pytestmark = [pytest.mark.builtin, pytest.mark.wheels, pytest.mark.slow]

BUILTIN = catalog.load(catalog.builtin_folder())
RELEASES = [
    release
    for release in versions.ordered({r for found in BUILTIN.lock.patches.values() for r in found})
    if versions.judge(release, ">=0.8.0,<=0.18.1") == "in"
]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(Cache.of_user())


@pytest.fixture(scope="module")
def released(index: Index) -> dict[str, Release]:
    return {release.version: release for release in index.releases()}


def meant(release: str) -> list[Patch]:
    return [patch for patch in BUILTIN.patches if catalog.choose(patch, release)]


def lay_out(site: Path, release: Release, index: Index) -> None:
    """Lay out what the patches of a release and their probes need of its wheel."""
    paths = {path for patch in meant(release.version) for path in patch.reads}
    for patch in meant(release.version):
        paths.update(BUILTIN.lock.patches[patch.id][release.version])
    with index.usual_wheel(release) as wheel:
        name = wheel.file.name
        info = "-".join(name.split("-")[:2]) + ".dist-info"
        record = wheel.read(f"{info}/RECORD") or b""
        wanted = {f"vllm/{path}" for path in paths} | {"vllm/__init__.py"}
        (site / info).mkdir(parents=True)
        (site / info / "METADATA").write_text(f"Name: vllm\nVersion: {release.version}\n")
        lines = [
            line
            for line in record.decode().splitlines(keepends=True)
            if next(csv.reader(io.StringIO(line)))[0] in {*wanted, f"{info}/RECORD"}
        ]
        (site / info / "RECORD").write_text("".join(lines))
        for path in wanted:
            data = wheel.read(path)
            if data is not None:
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).write_bytes(data)


def everything(site: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(site.rglob("*")) if path.is_file()}


def states(report: Report) -> dict[str, str]:
    return {patch.id: patch.state for patch in report.patches}


def check(site: Path, release: str, ids: tuple[str, ...]) -> None:
    """Apply, verify with probes, and revert some patches, or all default ones."""
    before = everything(site)
    request = Request(patches=ids, site_packages=str(site))
    wanted = [patch.id for patch in meant(release) if patch.id in ids or not ids]
    wanted = [name for name in wanted if ids or default(name)]
    assert states(apply(request)) == dict.fromkeys(wanted, "applied")
    report = verify(request, probe=True)
    assert report.ok, report.failures
    assert {patch.probe.answer for patch in report.patches if patch.probe} <= {"absent"}
    assert not apply(request).wrote
    revert(Request(site_packages=str(site)))
    assert everything(site) == before


def default(name: str) -> bool:
    return next(patch.default for patch in BUILTIN.patches if patch.id == name)


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_a_release_gets(
    release: str, tmp_path: Path, index: Index, released: dict[str, Release]
) -> None:
    lay_out(tmp_path, released[release], index)
    check(tmp_path, release, ())
    # Those that are opt-in stack with the others as well.
    check(tmp_path, release, tuple(patch.id for patch in meant(release)))


@pytest.mark.parametrize("release", RELEASES)
def test_the_files_tell_as_much_as_the_version(
    release: str, tmp_path: Path, index: Index, released: dict[str, Release]
) -> None:
    """A build of a release whose version says nothing, or another one, gets the same."""
    lay_out(tmp_path, released[release], index)
    request = Request(site_packages=str(tmp_path))
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    made = []
    for version in (release, "dev", f"{release}rc1"):
        metadata.write_text(f"Name: vllm\nVersion: {version}\n")
        apply(request)
        everywhere = everything(tmp_path).items()
        made.append({path: data for path, data in everywhere if path.startswith("vllm/")})
        revert(request)
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("release", ["0.8.5", "0.9.2", "0.10.2", "0.11.0.post2", "0.12.0"])
def test_all_on_a_whole_wheel(release: str, wheel_install: WheelInstaller) -> None:
    install = wheel_install(release)
    vllm_patch(install, "apply")
    found = json.loads(vllm_patch(install, "verify", "--probe", "--json"))["patches"]
    ids = {patch.id for patch in meant(release) if patch.default}
    assert {patch["id"] for patch in found} == ids
    assert {(patch["state"], patch["probe"]["fault"]) for patch in found} == {("applied", "absent")}
    vllm_patch(install, "revert")
    assert differences(install) == set()
