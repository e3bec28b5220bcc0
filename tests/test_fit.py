"""`fit` says for each release whether a patch fits, and goes on whatever is wrong with one."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from fakes import folder_for_all
from index_server import TAG, PackageIndex, serving, use, wheel_bytes
from scenes import (
    FILES,
    SRC,
    Ran,
    changed,
    command,
    diff,
    entry,
    environ,
    patch,
    process,
    run,
    write_catalog,
)
from vllm_patcher.catalog import builtin_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "docs" / "report.schema.json").read_text(encoding="utf-8")
)

A = FILES["a.py"]
FIX = patch(a10='"""x"""')
FIXED = changed(A, a10='"""x"""')
# The same lines twice, and neither where the diff says, under no heading.
TWICE = b"# 1\n# 2\n" + A[A.index(b"a06") : A.index(b"a15")] * 2
# All of it is one string, which the fix would end.
IN_A_STRING = b'x = """\n' + A + b'"""\n'


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with serving(PackageIndex()) as running:
        use(running, monkeypatch, tmp_path / "cache")
        yield running


@pytest.fixture
def fix(tmp_path: Path) -> Path:
    path = tmp_path / "fix.patch"
    path.write_bytes(FIX)
    return path


def verdicts(*arguments: str | Path, stdin: bytes = b"") -> dict[str, tuple[str, str]]:
    """The verdict and its detail for each release, on the one patch that is asked about."""
    (fit,) = fits(*arguments, stdin=stdin)["fits"]
    return {one["release"]: (one["verdict"], one["detail"] or "") for one in fit["releases"]}


def fits(*arguments: str | Path, stdin: bytes = b"") -> dict[str, Any]:
    ran = run("fit", *arguments, "--json", stdin=stdin)
    assert ran.code == 0, ran
    jsonschema.validate(ran.json, SCHEMA)
    return ran.json


def states(*arguments: str | Path, stdin: bytes = b"") -> dict[str, str]:
    return {name: one[0] for name, one in verdicts(*arguments, stdin=stdin).items()}


def lines_of(ran: Ran) -> dict[str, str]:
    """The line of each release."""
    assert ran.code == 0, ran
    found = re.findall(r"^([0-9.post]+) \.+ (.*)$", ran.out, re.MULTILINE)
    return dict(found)


class TestVerdicts:
    @pytest.mark.parametrize("html", [False, True])
    def test_each_kind(self, index: PackageIndex, fix: Path, *, html: bool) -> None:
        index.html = html
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"a.py": b"# 1\n# 2\n" + A})
        index.add("0.8.2", {"a.py": changed(A, a09="other")})
        index.add("0.8.3", {"a.py": FIXED})
        index.add("0.8.4", {"a.py": TWICE})
        index.add("0.8.5", {"b.py": A})
        index.add("0.8.6", {"a.py": IN_A_STRING})
        index.add("0.9.0rc1", {"a.py": A})
        index.add("0.9.0.dev3", {"a.py": A})
        ran = run("fit", fix)
        found = lines_of(ran)
        assert list(found) == [f"0.8.{last}" for last in range(7)]
        assert found["0.8.0"] == "exact"
        assert found["0.8.1"] == "offset  vllm/a.py: +2"
        assert found["0.8.2"].startswith("conflict  vllm/a.py:")
        assert "hunk 1 " in found["0.8.2"]
        assert found["0.8.3"] == "upstream  this release has the change already"
        assert found["0.8.4"].startswith("ambiguous  vllm/a.py:")
        assert found["0.8.5"].startswith("file-missing  vllm/a.py")
        assert found["0.8.6"].startswith("does-not-compile  vllm/a.py")
        assert ran.out.splitlines()[0] == "fix"
        assert ran.out.splitlines()[-1] == "fix fits 2 of 7 releases: >=0.8.0,<0.8.2"
        assert ran.err == ""

    def test_the_order_is_that_of_versions(self, index: PackageIndex, fix: Path) -> None:
        for version in ("0.10.0", "0.9.2", "0.9.10", "0.10.0.post1"):
            index.add(version, {"a.py": A})
        assert list(states(fix)) == ["0.9.2", "0.9.10", "0.10.0", "0.10.0.post1"]

    def test_a_claim_has_holes(self, index: PackageIndex, fix: Path) -> None:
        for version, data in (("0.8.0", A), ("0.8.1", TWICE), ("0.8.2", A), ("0.9.0", TWICE)):
            index.add(version, {"a.py": data})
        assert fits(fix)["fits"][0]["claim"] == ">=0.8.0,<0.9.0,!=0.8.1"

    def test_a_patch_that_fits_nowhere_claims_nothing(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": TWICE})
        assert fits(fix)["fits"][0]["claim"] is None
        assert run("fit", fix).out.splitlines()[-1] == "fix fits 0 of 1 releases"

    def test_what_was_not_looked_at_is_not_claimed(self, index: PackageIndex, fix: Path) -> None:
        for version in ("0.8.0", "0.8.1", "0.8.2", "0.8.3"):
            index.add(version, {"a.py": A})
        found = fits(fix, "--releases", ">=0.8,!=0.8.1,<0.8.3")["fits"][0]
        assert [one["release"] for one in found["releases"]] == ["0.8.0", "0.8.2"]
        assert found["claim"] == ">=0.8.0,<0.8.3,!=0.8.1"
        assert {one.path.split("-")[1] for one in index.wheels_asked} == {"0.8.0", "0.8.2"}

    def test_local_parts_and_zeros_are_no_releases_of_their_own(
        self, index: PackageIndex, fix: Path
    ) -> None:
        for version in ("0.8+cpu", "0.8.0+cu129", "0.8.0", "0.9+cpu"):
            index.add(version, {"a.py": A})
        index.add("0.10+cpu", {"a.py": TWICE})
        found = fits(fix)["fits"][0]
        assert [one["release"] for one in found["releases"]] == ["0.8", "0.9", "0.10"]
        assert found["claim"] == ">=0.8,<0.10"

    def test_a_file_that_is_created(self, index: PackageIndex) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"a.py": A, "new.py": b"x = 1\n"})
        new = diff("new.py", None, b"x = 1\n")
        assert states("-", "--id", "new", stdin=new) == {"0.8.0": "exact", "0.8.1": "upstream"}

    def test_the_usual_wheel_is_looked_at(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": TWICE}, tag="cp38-abi3-manylinux_2_31_aarch64")
        index.add("0.8.0", {"a.py": A})
        assert states(fix) == {"0.8.0": "exact"}
        assert {one.path.rpartition("/")[2] for one in index.wheels_asked} == {
            f"vllm-0.8.0-{TAG}.whl"
        }

    def test_names_that_mean_nothing_there(self, index: PackageIndex, tmp_path: Path) -> None:
        """A diff whose names lack the package needs the file to be there."""
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"b.py": A})
        bare = tmp_path / "bare.patch"
        bare.write_bytes(diff("a.py", A, FIXED, name="a.py"))
        assert states(bare) == {"0.8.0": "exact", "0.8.1": "file-missing"}


class TestPatches:
    def test_ids_files_and_standard_input(
        self, index: PackageIndex, fix: Path, tmp_path: Path
    ) -> None:
        folder = write_catalog(
            tmp_path / "catalog",
            entry("below", patch(a01="9"), affects=">=0.8,<0.9"),
            entry(
                "above",
                diff("a.py", changed(A, a01="9"), changed(A, a01="9", a02="9")),
                affects=">=0.8,<0.9",
                requires=["below"],
            ),
        )
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": A})
        found = fits("above", fix, "--catalog", folder, "--no-builtin")["fits"]
        assert [one["id"] for one in found] == ["above", "fix"]
        assert [[one["verdict"] for one in fit["releases"]] for fit in found] == [
            ["exact", "not-needed"],
            ["exact", "exact"],
        ]
        assert states("-", "--id", "mine", stdin=FIX) == {"0.8.0": "exact", "0.9.0": "exact"}

    def test_markdown_has_a_column_a_patch(
        self, index: PackageIndex, fix: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.patch"
        other.write_bytes(patch(b03="9"))
        index.add("0.8.0", FILES)
        index.add("0.8.1", {**FILES, "a.py": b"#\n" + A})
        index.add("0.8.2", {"a.py": FIXED})
        ran = run("fit", fix, other, "--format", "markdown")
        assert ran.code == 0
        assert ran.out.splitlines() == [
            "| vLLM | fix | other |",
            "|---|---|---|",
            "| 0.8.0 | ✓ | ✓ |",
            "| 0.8.1 | ✓ offset | ✓ |",
            "| 0.8.2 | upstream | file-missing |",
            "",
            "- fix fits 2 of 3 releases: >=0.8.0,<0.8.2",
            "- other fits 2 of 3 releases: >=0.8.0,<0.8.2",
        ]

    def test_offsets_are_in_the_json(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": b"#\n" + A})
        (release,) = fits(fix)["fits"][0]["releases"]
        assert (release["fits"], release["offsets"]) == (True, {"a.py": [1]})

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            ((), 2, "name a PATCH"),
            (("no-such-patch",), 2, "no patch 'no-such-patch'"),
            (("-",), 2, "needs --id"),
            (("--check", "lora-finish-request"), 2, "a whole catalog"),
            (("--lock", "--releases", ">=0.9"), 2, "a whole catalog"),
            (("lora-finish-request", "--releases", "new"), 3, "'new' is not a usable version"),
            (("lora-finish-request", "--releases", ">=7"), 3, "no release in >=7"),
        ],
    )
    def test_what_can_not_be_asked(
        self, index: PackageIndex, arguments: tuple[str, ...], code: int, said: str
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        ran = run("fit", *arguments)
        assert ran.code == code
        assert said in ran.err

    def test_a_diff_that_is_none_is_said_once(self, index: PackageIndex) -> None:
        index.add("0.8.0", {"a.py": A})
        ran = run("fit", "-", "--id", "x", stdin=b"hello\n")
        assert (ran.code, ran.out) == (3, "")
        failed = run("fit", "-", "--id", "x", "--json", stdin=b"hello\n")
        jsonschema.validate(failed.json, SCHEMA)
        assert failed.json["errors"][0]["code"] == "invalid-patch"


class TestTraffic:
    def test_only_ranges_are_fetched_and_only_once(self, index: PackageIndex, fix: Path) -> None:
        files = [index.add(f"0.8.{last}", {**FILES, "c.py": b"%d" % last}) for last in range(4)]
        files.append(index.add("0.8.4", {**FILES, "a.py": b"#\n" + A}))
        first = run("fit", fix)
        assert [one.status for one in index.wheels_asked] == [206] * len(index.wheels_asked)
        # Of each wheel its end, and the file: only one, if two have the same at the same time.
        assert len(files) < len(index.wheels_asked) <= 2 * len(files)
        for file in files:
            sent = [one.sent for one in index.wheels_asked if one.path.endswith(file.name)]
            assert sum(sent) < 64 * 1024 + 2000 < len(file.data)
        index.asked.clear()
        again = run("fit", fix)
        assert (again.out, again.err) == (first.out, "")
        assert index.asked == []

    def test_the_list_is_asked_for_again_after_a_while(
        self, index: PackageIndex, fix: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        assert list(states(fix)) == ["0.8.0"]
        index.add("0.8.1", {"a.py": A})
        assert list(states(fix)) == ["0.8.0"]
        monkeypatch.setattr("vllm_patcher.releases.index._FRESH", 0)
        assert list(states(fix)) == ["0.8.0", "0.8.1"]

    def test_what_is_in_the_cache_needs_no_network(
        self, tmp_path: Path, fix: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serving(PackageIndex()) as index:
            use(index, monkeypatch, tmp_path / "cache")
            index.add("0.8.0", {"a.py": A})
            index.add("0.8.1", {"a.py": b"#\n" + A})
            before = run("fit", fix)
            other = tmp_path / "other.patch"
            other.write_bytes(patch(b03="9"))
        monkeypatch.setattr("vllm_patcher.releases.index._FRESH", 0)
        ran = run("fit", fix)
        assert (ran.code, ran.out) == (0, before.out)
        noted = (
            r"note: the package index can't be read; .*; the list of releases is that of (.*) UTC"
        )
        (when,) = re.findall(noted, ran.err)
        assert abs(time.time() - _seconds(when)) < 24 * 3600
        # What was not read yet is said, and nothing else is lost.
        assert run("fit", fix, "--quiet").err == ""

    def test_a_release_that_is_not_in_the_cache_is_said(
        self, tmp_path: Path, fix: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serving(PackageIndex()) as index:
            use(index, monkeypatch, tmp_path / "cache")
            index.add("0.8.0", {"a.py": A})
            index.add("0.8.1", {"a.py": A})
            run("fit", fix, "--releases", "==0.8.0")
        found = lines_of(run("fit", fix))
        assert found["0.8.0"] == "exact"
        assert found["0.8.1"].startswith(f"unreadable  vllm-0.8.1-{TAG}.whl can't be read; ")

    def test_without_network_and_cache_there_is_nothing_to_say(
        self, tmp_path: Path, fix: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serving(PackageIndex()) as index:
            use(index, monkeypatch, tmp_path / "cache")
        ran = run("fit", fix)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: the package index can't be read\n")
        failed = run("fit", fix, "--json")
        jsonschema.validate(failed.json, SCHEMA)
        assert failed.json["errors"][0]["code"] == "unreadable-release"


def _seconds(when: str) -> float:
    import calendar

    return calendar.timegm(time.strptime(when, "%Y-%m-%d %H:%M"))


GOOD = {"0.8.0": "exact", "0.9.0": "exact"}


class TestWhatIsWrongWithOneRelease:
    """The releases around it get their verdicts, and the exit code is 0."""

    @pytest.fixture(autouse=True)
    def neighbours(self, index: PackageIndex) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": A})

    @pytest.mark.parametrize(
        ("trouble", "said"),
        [
            ("404", "404"),
            ("500", "500"),
            ("no-ranges", "range"),
            ("cut", "IncompleteRead"),
            ("cut-member", "vllm/a.py can't be read; "),
        ],
    )
    def test_what_the_server_does(
        self, index: PackageIndex, fix: Path, trouble: str, said: str
    ) -> None:
        file = index.add("0.8.5", {"a.py": A + b"\n"}, trouble=trouble)
        found = lines_of(run("fit", fix))
        assert found.pop("0.8.5").startswith(f"unreadable  {file.name}")
        assert found == GOOD
        assert said in verdicts(fix)["0.8.5"][1]
        # Nothing of it was kept, so it is asked for again.
        file.trouble = ""
        assert states(fix)["0.8.5"] == "exact"

    def test_no_whole_wheel_is_taken_where_there_are_no_ranges(
        self, index: PackageIndex, fix: Path
    ) -> None:
        """The server offers all of it, and nobody reads on."""
        index.add("0.8.5", {"a.py": A}, trouble="no-ranges")
        assert states(fix)["0.8.5"] == "unreadable"
        assert len([one for one in index.wheels_asked if "-0.8.5-" in one.path]) == 1

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"no zip at all" * 9, "BadZipFile"),
            (wheel_bytes("0.8.5", {"a.py": A})[:-30], "BadZipFile"),
            (b" ", "can't be read; "),
        ],
        ids=["no zip", "end is lost", "empty"],
    )
    def test_a_damaged_zip(self, index: PackageIndex, fix: Path, data: bytes, said: str) -> None:
        file = index.add("0.8.5", {}, data=data)
        found = verdicts(fix)
        state, detail = found.pop("0.8.5")
        assert (state, detail.partition(";")[0]) == ("unreadable", f"{file.name} can't be read")
        assert said in detail
        assert {name: one[0] for name, one in found.items()} == GOOD

    def test_a_damaged_member(self, index: PackageIndex, fix: Path) -> None:
        data = bytearray(wheel_bytes("0.8.5", {"a.py": A + b"\n"}))
        data[60] ^= 255
        index.add("0.8.5", {}, data=bytes(data))
        state, detail = verdicts(fix)["0.8.5"]
        assert (state, "vllm/a.py can't be read" in detail) == ("unreadable", True)

    @pytest.mark.parametrize(
        ("record", "said"),
        [
            (b"a,b,c,d\n", "RECORD is damaged"),
            (b"vllm/a.py,deadbeef,1\n", "RECORD is damaged"),
            (b'"', "RECORD is damaged"),
        ],
    )
    def test_a_damaged_record(
        self, index: PackageIndex, fix: Path, record: bytes, said: str
    ) -> None:
        index.add("0.8.5", {"a.py": A}, record=record)
        state, detail = verdicts(fix)["0.8.5"]
        assert (state, said in detail) == ("unreadable", True)
        assert states(fix) == {**GOOD, "0.8.5": "unreadable"}

    def test_a_wheel_without_record(self, index: PackageIndex, fix: Path) -> None:
        data = wheel_bytes("0.8.4", {"a.py": A})  # its dist-info has the name of another version
        index.add("0.8.5", {}, data=data)
        state, detail = verdicts(fix)["0.8.5"]
        assert (state, "vllm-0.8.5.dist-info/RECORD" in detail) == ("unreadable", True)

    @pytest.mark.parametrize("line", ["vllm/a.py,,", "vllm/a.py,md5=abc,1", "vllm/a.py,sha256=x,1"])
    def test_a_record_that_proves_nothing(self, index: PackageIndex, fix: Path, line: str) -> None:
        index.add("0.8.5", {"a.py": A}, record=line.encode() + b"\n")
        assert verdicts(fix)["0.8.5"] == (
            "unreadable",
            f"vllm-0.8.5-{TAG}.whl: vllm/a.py is not what RECORD says",
        )

    def test_a_digest_that_does_not_match(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.5", {"a.py": A + b"\n"}, lies={"a.py": A})
        for _ in range(2):
            assert verdicts(fix)["0.8.5"] == (
                "unreadable",
                f"vllm-0.8.5-{TAG}.whl: vllm/a.py is not what RECORD says",
            )
        assert states(fix) == {**GOOD, "0.8.5": "unreadable"}

    def test_one_bad_file_is_about_the_patches_that_touch_it(
        self, index: PackageIndex, fix: Path, tmp_path: Path
    ) -> None:
        index.add("0.8.5", FILES, lies={"b.py": b"x"})
        other = tmp_path / "other.patch"
        other.write_bytes(patch(b03="9"))
        found = fits(other, fix, "--releases", "==0.8.5")["fits"]
        assert [one["releases"][0]["verdict"] for one in found] == ["unreadable", "exact"]

    def test_a_wheel_that_can_not_be_had_is_asked_for_once(
        self, index: PackageIndex, fix: Path, tmp_path: Path
    ) -> None:
        """However many patches there are: only its RECORD is in the cache."""
        index.add("0.8.5", FILES, digest=False)
        other = tmp_path / "other.patch"
        other.write_bytes(patch(b03="9"))
        run("fit", "-", "--id", "new", stdin=diff("new.py", None, b"x = 1\n"))
        index.files[-1].trouble = "404"
        index.asked.clear()
        found = fits(other, fix, "--releases", "==0.8.5")["fits"]
        assert [one["releases"][0]["verdict"] for one in found] == ["unreadable", "unreadable"]
        assert len(index.wheels_asked) == 1

    def test_a_yanked_release_is_marked(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.5", {"a.py": A}, yanked=True)
        index.add("0.8.6", {"a.py": A}, yanked=True)
        index.add("0.8.6", {"a.py": A}, tag="cp38-abi3-other_x86_64")
        found = lines_of(run("fit", fix))
        assert (found["0.8.5"], found["0.8.6"]) == ("exact  yanked", "exact")
        yanked = [one["release"] for one in fits(fix)["fits"][0]["releases"] if one["yanked"]]
        assert yanked == ["0.8.5"]

    def test_a_release_of_source_only(self, index: PackageIndex, fix: Path) -> None:
        index.add_source("0.8.5")
        index.add_source("0.8.0")
        found = lines_of(run("fit", fix))
        assert found == {**GOOD, "0.8.5": "unreadable  there is no wheel, only the source"}

    def test_the_last_line_counts_what_could_not_be_read(
        self, index: PackageIndex, fix: Path
    ) -> None:
        index.add("0.8.5", {}, trouble="404")
        last = run("fit", fix).out.splitlines()[-1]
        assert last == "fix fits 2 of 3 releases (1 could not be read): >=0.8.0,<0.9.1,!=0.8.5"


class TestTheList:
    """Without a list of releases there is nothing to say, and that is said."""

    @pytest.mark.parametrize(
        "page",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"meta": {"api-version": "1.0"}}',
            b'{"meta": {"api-version": "9.0"}, "name": "vllm", "files": []}',
            b'{"meta": {"api-version": "1.0"}, "name": "vllm", "files": [1]}',
            b'{"meta": {"api-version": "1.0"}, "name": "vllm", "files": []}',
            b"[" * 100_000,
            b"\xff\xfe",
        ],
        ids=range(10),
    )
    def test_a_page_that_is_none(self, index: PackageIndex, fix: Path, page: bytes) -> None:
        index.page = page
        ran = run("fit", fix)
        assert (ran.code, ran.out) == (3, ""), ran
        assert ran.err.startswith("error: the package index ")

    @pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
    def test_an_index_that_refuses(self, index: PackageIndex, fix: Path, status: int) -> None:
        index.page_status = status
        index.add("0.8.0", {"a.py": A})
        ran = run("fit", fix)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: the package index can't be read\n")

    @pytest.mark.parametrize("html", [False, True])
    def test_a_list_that_is_cut(self, index: PackageIndex, fix: Path, *, html: bool) -> None:
        index.html, index.cut = html, True
        for last in range(10):
            index.add(f"0.8.{last}", {"a.py": A})
        ran = run("fit", fix)
        assert (ran.code, ran.out) == (3, "")
        index.cut = False
        assert len(states(fix)) == 10

    def test_files_that_are_no_release_are_passed_over(
        self, index: PackageIndex, fix: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        for name in ("vllm.zip", "README", "vllm-0.1.dev1.tar.gz", "other-1.0-py3-none-any.whl"):
            index.add_source("0.9.0").name = name
        index.add("0.9.0a1", {"a.py": A})
        assert states(fix) == {"0.8.0": "exact"}


class TestTheExtra:
    @pytest.mark.parametrize("lacking", ["pypi_simple", "remotezip", "requests"])
    @pytest.mark.parametrize("check", [False, True])
    def test_what_is_lacking_is_said_with_the_way_to_get_it(
        self,
        index: PackageIndex,
        fix: Path,
        monkeypatch: pytest.MonkeyPatch,
        lacking: str,
        *,
        check: bool,
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        monkeypatch.setitem(sys.modules, lacking, None)
        ran = run("fit", "--check" if check else fix)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.splitlines() == [
            f"error: released wheels can't be read without {lacking}",
            "hint: pip install 'vllm-patcher[releases]'",
        ]

    @pytest.mark.parametrize("check", [False, True])
    def test_it_is_said_also_when_the_list_is_in_the_cache(
        self, index: PackageIndex, fix: Path, monkeypatch: pytest.MonkeyPatch, *, check: bool
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"a.py": A})
        run("fit", fix, "--releases", "==0.8.0")
        monkeypatch.setitem(sys.modules, "remotezip", None)
        ran = run("fit", "--check" if check else fix)
        assert (ran.code, ran.out) == (3, "")
        assert "hint: pip install 'vllm-patcher[releases]'" in ran.err
        assert states(fix, "--releases", "==0.8.0") == {"0.8.0": "exact"}


class TestTheCacheFolder:
    def test_one_that_is_a_file(
        self, index: PackageIndex, fix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        place = tmp_path / "file"
        place.write_bytes(b"")
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        ran = run("fit", fix)
        assert lines_of(ran) == {"0.8.0": "exact"}
        assert ran.err == f"note: nothing can be kept in {place}/vllm-patcher: Not a directory\n"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
    def test_one_that_may_not_be_written(self, index: PackageIndex) -> None:
        index.add("0.8.0", {"a.py": A})
        with folder_for_all() as folder:
            fix = folder / "fix.patch"
            fix.write_bytes(FIX)
            ran = _as_nobody("fit", str(fix), "--no-builtin", "--json", XDG_CACHE_HOME=str(folder))
            assert ran.code == 0, ran
            assert ran.json["fits"][0]["claim"] == ">=0.8.0,<0.8.1"
            note = f"note: nothing can be kept in {folder}/vllm-patcher: Permission denied\n"
            assert ran.err == note
            assert list(folder.iterdir()) == [fix]

    def test_one_whose_every_file_is_damaged(
        self, index: PackageIndex, fix: Path, tmp_path: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        assert states(fix) == {"0.8.0": "exact"}
        kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert len(kept) == 4  # the list, which RECORD, RECORD, a.py
        for damage in (b"", b"\0", b"[1]", b'{"time": 1e300, "files": [{}]}', b'"a\\u0000b"'):
            for path in kept:
                path.write_bytes(damage)
            index.asked.clear()
            assert states(fix) == {"0.8.0": "exact"}
            assert index.asked
            index.asked.clear()
            assert states(fix) == {"0.8.0": "exact"}
            assert index.asked == []  # it was mended


def _as_nobody(*arguments: str, **more: str) -> Ran:
    """Run the command line as a user without rights, in a process that began as root."""
    # That user may have no right to read this Python, so all is imported by a run before.
    script = (
        "import os, sys, scenes\n"
        "cache = os.environ.pop('XDG_CACHE_HOME')\n"
        "os.environ['XDG_CACHE_HOME'] = sys.argv.pop(1)\n"
        "scenes.run(*sys.argv[1:])\n"
        "os.environ['XDG_CACHE_HOME'] = cache\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ran = scenes.run(*sys.argv[1:])\n"
        "sys.stdout.write(ran.out); sys.stderr.write(ran.err); sys.exit(ran.code)\n"
    )
    tests = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as other:
        done = subprocess.run(
            [sys.executable, "-B", "-c", script, other, *arguments],
            check=False,
            capture_output=True,
            env=environ(PYTHONPATH=os.pathsep.join([str(SRC), tests]), **more),
            cwd="/",
        )
    return Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


class TestTheTerminal:
    def test_a_bar_on_a_terminal_and_silence_in_a_pipe(
        self, index: PackageIndex, fix: Path
    ) -> None:
        for last in range(3):
            index.add(f"0.8.{last}", {"a.py": A})
        seen, out = _on_a_terminal("fit", str(fix))
        assert "releases" in seen
        assert "100%" in seen
        assert out.splitlines()[-1] == "fix fits 3 of 3 releases: >=0.8.0,<0.8.3"
        piped = process("fit", fix)
        assert (piped.code, piped.out, piped.err) == (0, out, "")

    def test_quiet_is_quiet(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": A})
        assert _on_a_terminal("fit", str(fix), "--quiet") == ("", "")

    def test_without_standard_error(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": A})
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("fit", fix)],
            check=False,
            stdout=subprocess.PIPE,
            env=environ(),
        )
        assert (done.returncode, b">=0.8.0,<0.8.1" in done.stdout) == (0, True)

    def test_colour(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": A})
        assert "\x1b[32mexact\x1b[0m" in run("fit", fix, "--color", "always").out
        assert "\x1b" not in run("fit", fix).out


def _on_a_terminal(*arguments: str) -> tuple[str, str]:
    """Run the command line with a terminal as standard error; give both outputs."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=theirs, env=environ(TERM="xterm")
    ) as child:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # nobody has the other end any more
                break
            if not part:
                break
            seen += part
        assert child.stdout is not None
        out = child.stdout.read()
    os.close(ours)
    assert child.returncode == 0
    return seen.decode(), out.decode()


class TestTheSchema:
    def test_it_notices_what_is_not_right(self, index: PackageIndex, fix: Path) -> None:
        index.add("0.8.0", {"a.py": A})
        body = fits(fix)
        for wrong in (
            {**body, "verb": "fits"},
            {**body, "more": 1},
            {key: value for key, value in body.items() if key != "fits"},
            {**body, "fits": [{**body["fits"][0], "claim": 1}]},
            {**body, "fits": [{**body["fits"][0], "releases": [{}]}]},
        ):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(wrong, SCHEMA)


@pytest.mark.wheels
def test_a_patch_of_the_catalog_on_released_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the network, or the cache that an earlier run of this test has left."""
    monkeypatch.delenv("VLLM_PATCH_CATALOG", raising=False)
    ran = run("fit", "lora-finish-request", "--releases", ">=0.10,<0.12", "--json")
    if ran.code == 3 and "can't be read" in ran.json["errors"][0]["what"]:
        pytest.skip(f"the package index can't be had: {ran.json['errors'][0]['facts']}")
    assert ran.code == 0, ran
    (fit,) = ran.json["fits"]
    found = {one["release"]: (one["verdict"], one["offsets"]) for one in fit["releases"]}
    path = "v1/metrics/stats.py"
    assert found == {
        "0.10.0": ("offset", {path: [-17]}),
        "0.10.1": ("offset", {path: [-13]}),
        "0.10.1.1": ("offset", {path: [-13]}),
        "0.10.2": ("offset", {path: [-9]}),
        "0.11.0": ("exact", {}),
        "0.11.1": ("not-needed", {}),
        "0.11.2": ("not-needed", {}),
    }
    assert fit["claim"] == ">=0.10.0,<0.11.1"
    # Its diff alone says where it is in, besides.
    folder = Path(builtin_folder(), "lora-finish-request")
    (text,) = (path.read_bytes() for path in folder.glob("*.patch"))
    by_diff = states("-", "--id", "x", "--releases", ">=0.11,<0.11.2", stdin=text)
    assert by_diff == {"0.11.0": "exact", "0.11.1": "conflict"}
