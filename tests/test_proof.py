"""`fit --check` lists all that is wrong with a catalog, `fit --lock` writes what the wheels say."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from index_server import TAG, PackageIndex, serving, use
from scenes import FILES, Ran, changed, diff, entry, patch, run, write_catalog
from vllm_patcher import catalog as catalogs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "docs" / "report.schema.json").read_text(encoding="utf-8")
)

NO_PROBE = (
    "and there is no probe that tells whether the fault is there too: widen the range, or write one"
)

ARM = "cp38-abi3-manylinux_2_31_aarch64"
A, B = FILES["a.py"], FILES["b.py"]
FIX = patch(a10="99")
FIXED = changed(A, a10="99")
MOVED = b"# one\n# more\n" + A
#: Fixed in another way, so that the diff fits, and does no good.
ELSEWHERE = A + b"a10 = 99\n"

#: Runs the file, as the probes of the catalog do.
PROBE = """\
import runpy, sys
value = runpy.run_path(sys.argv[1] + "/a.py")["a10"]
print("a10 is", value)
sys.exit(0 if value == 99 else 1 if value == 10 else 77)
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    monkeypatch.delenv("VLLM_PATCH_CATALOG", raising=False)
    with serving(PackageIndex()) as running:
        use(running, monkeypatch, tmp_path / "cache")
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


@pytest.fixture
def proven(index: PackageIndex, folder: Path) -> Path:
    """A catalog that is right: two releases have the fault, one is behind it."""
    index.add("0.8.0", {"a.py": A})
    index.add("0.8.1", {"a.py": MOVED})
    index.add("0.9.0", {"a.py": FIXED})
    return write_catalog(folder, fix(probe=PROBE))


def fix(**more: Any) -> dict[str, Any]:
    return entry("fix", more.pop("text", FIX), **{"affects": ">=0.8,<0.9", **more})


def check(*folders: Path) -> Ran:
    return run("fit", "--check", *(word for one in folders for word in ("--catalog", one)))


def faults(*folders: Path, verb: str = "--check") -> list[str]:
    """All faults that are found; text and JSON say the same."""
    options = [str(word) for one in folders for word in ("--catalog", one)]
    ran = run("fit", verb, *options)
    answer = run("fit", verb, *options, "--json")
    jsonschema.validate(answer.json, SCHEMA)
    found: list[str] = answer.json["faults"]
    assert (ran.code, answer.code) == ((3, 3) if found else (0, 0))
    assert answer.json["ok"] is (not found)
    said = [line for line in ran.err.splitlines() if not line.startswith(("hint:", "note:"))]
    assert said == (
        ["error: the catalog is not proven", *(f"  {one}" for one in found)] if found else []
    )
    return found


def lock(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "lock.json").read_bytes())
    return document


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class TestWhatIsRight:
    def test_it_is_said_of_each_patch(self, proven: Path) -> None:
        ran = check(proven)
        assert (ran.code, ran.err) == (0, "")
        assert re.fullmatch(r"fix \.+ proven on 2 releases\n", ran.out)
        write_catalog(proven, fix())
        assert re.fullmatch(
            r"fix \.+ proven on 2 releases, 2 without a probe that shows it\n", check(proven).out
        )

    @pytest.mark.parametrize("verb", ["--check", "--lock"])
    def test_markdown(self, proven: Path, verb: str) -> None:
        options = ("--catalog", proven, "--format", "markdown")
        ran = run("fit", verb, *options)
        assert ran.code == 0
        head = ["| patch | proof |", "|---|---|"]
        assert ran.out.splitlines() == [*head, "| fix | proven on 2 releases |", ""]
        write_catalog(proven, fix(probe=PROBE), entry("more", diff("a_b.py", B, B[20:])))
        (fault,) = faults(proven, verb=verb)
        ran = run("fit", verb, *options)
        assert ran.code == 3
        assert ran.out.splitlines() == [
            *head,
            "| fix | proven on 2 releases |",
            "| more | **not proven (1 fault)** |",
            "",
            f"- {fault}".replace("_", r"\_"),
        ]
        assert ran.err == f"error: the catalog is not proven\n  {fault}\n"
        assert run("fit", verb, *options, "--quiet") == Ran(code=3, out="", err=ran.err)

    def test_json(self, proven: Path) -> None:
        ran = run("fit", "--check", "--catalog", proven, "--json")
        jsonschema.validate(ran.json, SCHEMA)
        assert ran.json == {
            "schema": 1,
            "verb": "fit",
            "ok": True,
            "proofs": [
                {
                    "id": "fix",
                    "proven": True,
                    "releases": ["0.8.0", "0.8.1"],
                    "shown": ["0.8.0", "0.8.1"],
                }
            ],
            "faults": [],
            "errors": [],
        }
        for wrong in ({**ran.json, "more": 1}, {**ran.json, "proofs": [{}]}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(wrong, SCHEMA)

    def test_only_the_named_catalogs_are_proven(self, proven: Path, index: PackageIndex) -> None:
        """The built-in one is not: nothing of it is in these wheels."""
        assert faults(proven) == []
        found = faults()
        assert found
        assert not any(one.startswith("fix:") for one in found)
        assert index.wheels_asked

    def test_a_release_that_no_variant_is_for_is_nobodys_fault(
        self, index: PackageIndex, folder: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"a.py": A[:50]})
        write_catalog(folder, fix(variants=[("<0.8.1,>=0.8", FIX)]))
        assert faults(folder) == []

    def test_source_only_outside_the_range(self, proven: Path, index: PackageIndex) -> None:
        index.add_source("0.7.0")
        assert faults(proven) == []

    def test_the_fault_is_shown_on_top_of_what_is_required(
        self, index: PackageIndex, folder: Path
    ) -> None:
        """Without it the probe could not tell, and the diff would not fit."""
        index.add("0.8.0", {"a.py": changed(A, a10="7")})
        below = diff("a.py", changed(A, a10="7"), A)
        write_catalog(
            folder,
            entry("below", below, affects=">=0.8,<0.9"),
            fix(requires=["below"], probe=PROBE),
        )
        assert faults(folder, verb="--lock") == []
        (change,) = lock(folder)["patches"]["fix"]["0.8.0"].values()
        assert change == {"before": sha256(changed(A, a10="7")), "after": sha256(FIXED)}

    def test_a_probe_sees_what_it_reads(self, index: PackageIndex, folder: Path) -> None:
        index.add("0.8.0", {"a.py": A, "sub/c.py": b"known = 10\n"})
        probe = PROBE.replace(
            "value = r",
            "import os\nif not os.path.exists(sys.argv[1] + '/sub/c.py'): sys.exit(77)\nvalue = r",
        )
        write_catalog(folder, fix(probe=probe))
        (found,) = faults(folder)
        assert found.endswith("unknown: no word, and exit status 77")
        write_catalog(folder, fix(probe=probe, reads=["sub/c.py", "sub/no.py"]))
        assert faults(folder) == []

    def test_files_that_come_and_go(self, index: PackageIndex, folder: Path) -> None:
        index.add("0.8.0", {"a.py": A, "b.py": B, "old.py": B})
        text = (
            diff("new/c.py", None, b"x = 1\n")
            + diff("b.py", B, None)
            + b"diff --git a/vllm/old.py b/vllm/moved.py\nsimilarity index 100%\n"
            + b"rename from vllm/old.py\nrename to vllm/moved.py\n"
        )
        write_catalog(folder, fix(text=text))
        assert faults(folder, verb="--lock") == []
        assert lock(folder)["patches"]["fix"]["0.8.0"] == {
            "b.py": {"before": sha256(B), "after": None},
            "moved.py": {"before": None, "after": sha256(B)},
            "new/c.py": {"before": None, "after": sha256(b"x = 1\n")},
            "old.py": {"before": sha256(B), "after": None},
        }
        assert faults(folder) == []


class TestWhatIsWrong:
    def test_a_release_in_the_range_that_it_does_not_fit(
        self, proven: Path, index: PackageIndex
    ) -> None:
        index.add("0.8.2", {"a.py": changed(A, a09="x")})
        index.add("0.8.3", {"a.py": FIXED})
        index.add("0.8.4", {"b.py": A})
        conflict, upstream, missing = faults(proven)
        assert conflict.startswith("fix: vLLM 0.8.2: conflict: vllm/a.py")
        assert upstream.startswith("fix: vLLM 0.8.3: upstream")
        assert missing.startswith("fix: vLLM 0.8.4: file-missing: vllm/a.py")

    def test_a_release_in_the_range_that_does_not_compile_afterwards(
        self, index: PackageIndex, folder: Path
    ) -> None:
        index.add("0.8.0", {"a.py": b'x = """\n' + A + b'"""\n'})
        write_catalog(folder, fix(text=patch(a10='"""x"""')))
        (found,) = faults(folder)
        assert found.startswith("fix: vLLM 0.8.0: does-not-compile: vllm/a.py")

    @pytest.mark.parametrize("trouble", ["404", "no-ranges", "cut", "cut-member"])
    @pytest.mark.parametrize("version", ["0.8.2", "0.9.1"])
    def test_a_wheel_that_can_not_be_read_proves_nothing(
        self, proven: Path, index: PackageIndex, trouble: str, version: str
    ) -> None:
        """In the range as outside it; the other releases are proven all the same."""
        index.add(version, {"a.py": A + b"\n"}, trouble=trouble)
        index.add("0.8.3", {"a.py": A[:40]})
        first, second = sorted(faults(proven), key=lambda fault: f"vLLM {version}:" not in fault)
        assert first.startswith(f"fix: vLLM {version}: vllm-{version}-{TAG}.whl")
        assert second.startswith("fix: vLLM 0.8.3: conflict")

    def test_a_file_that_is_not_what_record_says(self, proven: Path, index: PackageIndex) -> None:
        index.add("0.8.2", {"a.py": A + b"\n"}, lies={"a.py": A})
        (found,) = faults(proven)
        assert found.endswith("vllm/a.py is not what RECORD says")

    def test_a_release_of_source_only(self, proven: Path, index: PackageIndex) -> None:
        index.add_source("0.8.2")
        assert faults(proven) == ["fix: vLLM 0.8.2: there is no wheel to prove it on"]

    def test_a_release_outside_the_range_that_it_fits(
        self, index: PackageIndex, folder: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": MOVED})
        write_catalog(folder, fix())
        assert faults(folder) == [
            f"fix: vLLM 0.9.0: fix-0.patch fits outside >=0.8,<0.9, {NO_PROBE}"
        ]

    @pytest.mark.parametrize(
        ("outside", "said"),
        [
            (A, "present: a10 is 10"),
            (A + b"a10 = 7\n", "unknown: a10 is 7"),
            (A + b"1/0\n", "unknown: it died of ZeroDivisionError: division by zero"),
            (ELSEWHERE, ""),
        ],
    )
    def test_a_probe_decides_whether_it_is_needed_there(
        self, index: PackageIndex, folder: Path, outside: bytes, said: str
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": outside})
        write_catalog(folder, fix(probe=PROBE))
        fault = "fix: vLLM 0.9.0: fix-0.patch fits outside >=0.8,<0.9, and its probe says "
        assert faults(folder) == ([fault + said] if said else [])

    def test_what_is_required_counts_outside_the_range_as_well(
        self, index: PackageIndex, folder: Path
    ) -> None:
        """There too the diff may fit only on top of it."""
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": A})
        below = patch(a09="77")
        above = diff("a.py", changed(A, a09="77"), changed(A, a09="77", a10="99"))
        write_catalog(
            folder,
            entry("below", below, affects=">=0.8"),
            fix(text=above, requires=["below"]),
        )
        (found,) = faults(folder)
        assert found.startswith("fix: vLLM 0.9.0: fix-0.patch fits outside >=0.8,<0.9")

    def test_each_variant_is_tried_outside(self, index: PackageIndex, folder: Path) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.8.1", {"b.py": B})
        index.add("0.9.0", {"b.py": B})
        write_catalog(
            folder, fix(variants=[(">=0.8,<0.8.1", FIX), (">=0.8.1,<0.9", patch(b03="9"))])
        )
        (found,) = faults(folder)
        assert found.startswith("fix: vLLM 0.9.0: fix-1.patch fits outside")

    def test_parts_that_the_entry_leaves_out_are_left_out_outside_too(
        self, index: PackageIndex, folder: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        index.add("0.9.0", {"a.py": A})
        text = FIX + diff("x", b"1\n", b"2\n", name="benchmarks-of-ours/x")
        write_catalog(folder, fix(text=text, skip=["benchmarks-of-ours/**"]))
        (found,) = faults(folder)
        assert found.startswith("fix: vLLM 0.9.0: fix-0.patch fits outside")

    @pytest.mark.parametrize(
        ("release", "said"),
        [
            (A + b"a10 = 99\n", "absent: a10 is 99; and with the patch absent: a10 is 99"),
            (A + b"a10 = 10\n", "present: a10 is 10; and with the patch present: a10 is 10"),
            (A + b"a10 += 1\n", "unknown: a10 is 11; and with the patch unknown: a10 is 100"),
            (A + b"if a10 == 10: a10 = 7\n", "unknown: a10 is 7; and with the patch absent: a10"),
            (A + b"if a10 == 99: a10 = 7\n", "present: a10 is 10; and with the patch unknown: a10"),
        ],
    )
    def test_a_probe_that_does_not_show_it(
        self, index: PackageIndex, folder: Path, release: bytes, said: str
    ) -> None:
        index.add("0.8.0", {"a.py": release})
        write_catalog(folder, fix(probe=PROBE))
        (found,) = faults(folder)
        assert found.startswith(f"fix: vLLM 0.8.0: its probe says {said}")

    def test_wheels_of_one_release_with_different_files(
        self, proven: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add("0.8.0", {"a.py": A, "other.py": b""}, tag=ARM)
        assert faults(proven) == []
        monkeypatch.setattr("vllm_patcher.releases.index._FRESH", 0)
        index.add("0.8.1", {"a.py": A}, tag=ARM)
        index.add("0.8.1", {"b.py": A}, tag=f"z{ARM}")
        assert faults(proven) == [
            f"fix: vLLM 0.8.1: vllm/a.py is not the same in vllm-0.8.1-{TAG}.whl"
            f" and vllm-0.8.1-{tag}.whl"
            for tag in (ARM, f"z{ARM}")
        ]

    def test_another_wheel_that_can_not_be_read(self, proven: Path, index: PackageIndex) -> None:
        index.add("0.8.0", {"a.py": A, "other.py": b""}, tag=ARM, trouble="404")
        (found,) = faults(proven)
        assert found.startswith(f"fix: vLLM 0.8.0: vllm-0.8.0-{ARM}.whl can't be read")

    def test_default_patches_that_can_not_go_in_together(
        self, index: PackageIndex, folder: Path
    ) -> None:
        index.add("0.8.0", {"a.py": A})
        both = [
            entry(name, patch(a10=value), affects=">=0.8,<0.9")
            for name, value in (("one", "98"), ("two", "99"))
        ]
        write_catalog(folder, *both)
        (fault,) = faults(folder)
        assert fault.startswith("two: vLLM 0.8.0: with all others: conflict: ")
        # What is brought in only by its name is in nobody's way.
        write_catalog(folder, both[0], {**both[1], "default": False})
        assert faults(folder) == []
        write_catalog(
            folder,
            entry("a", patch(a10="9"), affects=">=0.8,<0.9", conflicts=["b"]),
            entry("b", patch(a20="9"), affects=">=0.8,<0.9"),
        )
        (fault,) = faults(folder)
        assert "with all others: blocked: conflicts with a" in fault

    def test_a_variant_that_no_release_is_in(self, proven: Path) -> None:
        variants = [(">=0.8,<0.8.5", FIX), (">=0.8.5,<0.9", FIX)]
        write_catalog(proven, fix(affects=">=0.8,<0.9", variants=variants))
        assert faults(proven) == ["fix: no release is in >=0.8.5,<0.9"]

    def test_a_release_that_is_affected_and_left_out_though_it_fits(self, proven: Path) -> None:
        write_catalog(proven, fix(variants=[(">=0.8.1,<0.9", FIX)]))
        assert faults(proven) == [
            f"fix: vLLM 0.8.0: fix-0.patch fits where no variant is for it, {NO_PROBE}"
        ]

    def test_the_hint_asks_the_same_index(self, proven: Path, index: PackageIndex) -> None:
        options = ("--index-url", index.url, "--catalog", str(proven), "--no-builtin")
        assert run("fit", "--lock", *options).code == 0
        (proven / "lock.json").write_text('{"schema": 1, "patches": {}}\n')
        hint = run("fit", "--check", *options).err.splitlines()[-1]
        assert hint.startswith(f"hint: vllm-patch fit --lock --index-url {index.url} --catalog")

    def test_all_faults_are_listed(self, index: PackageIndex, folder: Path) -> None:
        index.add("0.8.0", {"a.py": A[:40], "b.py": B[:40]})
        index.add("0.8.1", {}, trouble="404")
        write_catalog(folder, fix(), entry("other", patch(b03="9"), affects=">=0.8,<0.9"))
        assert [one[:17] for one in faults(folder)] == [
            *("fix: vLLM 0.8.0: ", "fix: vLLM 0.8.1: "),
            *("other: vLLM 0.8.0", "other: vLLM 0.8.1"),
        ]

    @pytest.mark.usefixtures("index")
    def test_no_list_of_releases(self, folder: Path) -> None:
        write_catalog(folder, fix())
        ran = check(folder)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == "error: the package index has no release of vllm\n"


class TestTheLock:
    def test_it_is_what_the_wheels_say(self, proven: Path) -> None:
        ran = run("fit", "--lock", "--catalog", proven)
        assert (ran.code, ran.err) == (0, f"note: {proven}/lock.json is written\n")
        assert lock(proven) == {
            "schema": 1,
            "patches": {
                "fix": {
                    "0.8.0": {"a.py": {"before": sha256(A), "after": sha256(FIXED)}},
                    "0.8.1": {
                        "a.py": {
                            "before": sha256(MOVED),
                            "after": sha256(MOVED.replace(b"a10 = 10", b"a10 = 99")),
                        }
                    },
                }
            },
        }
        assert catalogs.load(str(proven)).lock.is_released("a.py", MOVED)
        assert faults(proven) == []
        assert not list(proven.glob("*.part"))

    def test_the_same_wheels_give_the_same_bytes(
        self, proven: Path, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("fit", "--lock", "--catalog", proven)
        before = (proven / "lock.json").read_bytes()
        mark = (proven / "lock.json").stat().st_mtime_ns
        again = run("fit", "--lock", "--catalog", proven)
        assert (again.code, again.err) == (0, "")
        assert (proven / "lock.json").stat().st_mtime_ns == mark
        (proven / "lock.json").unlink()
        index.files.reverse()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        run("fit", "--lock", "--catalog", proven)
        assert (proven / "lock.json").read_bytes() == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text.replace(b"0.8.0", b"0.8.9"),
            lambda text: text.replace(sha256(A).encode(), sha256(b"").encode()),
            lambda text: text.replace(b"a.py", b"b.py"),
            lambda text: text + b"\n",
        ],
        ids=["release", "digest", "path", "form"],
    )
    def test_one_that_is_not_is_a_fault(self, proven: Path, change: Any) -> None:
        run("fit", "--lock", "--catalog", proven)
        path = proven / "lock.json"
        right = path.read_bytes()
        path.write_bytes(change(right))
        assert path.read_bytes() != right
        assert faults(proven) == [f"{path} is not what the released wheels say"]
        hint = check(proven).err.splitlines()[-1]
        assert hint == f"hint: vllm-patch fit --lock --catalog {proven}"
        assert run(*hint.split()[2:]).code == 0
        assert path.read_bytes() == right

    def test_a_new_release_makes_it_old(
        self, proven: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("fit", "--lock", "--catalog", proven)
        index.add("0.8.2", {"a.py": A})
        monkeypatch.setattr("vllm_patcher.releases.index._FRESH", 0)
        assert faults(proven) == [f"{proven}/lock.json is not what the released wheels say"]

    def test_each_old_one_is_told(self, proven: Path, tmp_path: Path) -> None:
        second = write_catalog(tmp_path / "second", {**fix(), "id": "other"})
        folders = [proven, second]
        for folder in folders:
            (folder / "lock.json").write_text('{"schema": 1, "patches": {}}')
        old = "lock.json is not what the released wheels say"
        assert faults(*folders) == [f"{folder}/{old}" for folder in folders]

    def test_a_damaged_one(self, proven: Path) -> None:
        (proven / "lock.json").write_bytes(b"{")
        ran = check(proven)
        assert ran.code == 3
        assert "not JSON" in ran.err
        assert run("fit", "--lock", "--catalog", proven).code == 0
        assert faults(proven) == []

    def test_nothing_is_taken_from_it(self, index: PackageIndex, folder: Path) -> None:
        """A listed digest may settle where a hunk goes; the proof must settle it without."""
        index.add("0.8.0", {"a.py": A})
        text = b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -5,0 +6 @@\n+x = 1\n"
        write_catalog(folder, fix(text=text))
        change = {"before": sha256(A), "after": sha256(A)}
        document = {"schema": 1, "patches": {"fix": {"0.8.0": {"a.py": change}}}}
        (folder / "lock.json").write_text(json.dumps(document))
        assert states_of_fit(folder) == ["exact"]
        (found,) = faults(folder)
        assert found.startswith("fix: vLLM 0.8.0: conflict: vllm/a.py")

    def test_it_stays_if_there_are_faults(self, proven: Path, index: PackageIndex) -> None:
        index.add("0.8.2", {"a.py": A[:40]})
        (proven / "lock.json").write_bytes(b"old")
        ran = run("fit", "--lock", "--catalog", proven)
        assert ran.code == 3
        assert "hint" not in ran.err
        assert (proven / "lock.json").read_bytes() == b"old"

    def test_several_catalogs_are_written_together_or_not_at_all(
        self, proven: Path, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add("0.9.1", {"b.py": B})
        other = write_catalog(tmp_path / "other", entry("other", patch(b03="9"), affects=">=0.9.1"))
        assert faults(proven, other, verb="--lock") == []
        assert lock(proven)["patches"].keys() == {"fix"}
        assert lock(other)["patches"].keys() == {"other"}
        before = _bytes(proven, other)
        monkeypatch.setattr("vllm_patcher.releases.index._FRESH", 0)
        index.add("0.9.2", {"b.py": B[:40]})
        index.add("0.8.2", {"a.py": A})  # this alone would make the first lock another
        (found,) = faults(proven, other, verb="--lock")
        assert found.startswith("other: vLLM 0.9.2: conflict")
        assert _bytes(proven, other) == before

    def test_a_folder_that_can_not_be_written(
        self, proven: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Each part has a name of its own, and root may write anywhere: the disk is made to refuse.
        def full(source: str, target: str) -> None:
            if target.endswith("lock.json"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
            real(source, target)

        real = os.replace
        monkeypatch.setattr(os, "replace", full)
        ran = run("fit", "--lock", "--catalog", proven)
        assert (ran.code, "lock.json: No space left on device" in ran.err) == (3, True)
        assert not list(proven.glob("*.part"))


def _bytes(*folders: Path) -> Mapping[Path, bytes]:
    return {folder: (folder / "lock.json").read_bytes() for folder in folders}


def states_of_fit(folder: Path) -> list[str]:
    ran = run("fit", "fix", "--catalog", folder, "--no-builtin", "--json")
    return [one["verdict"] for one in ran.json["fits"][0]["releases"]]
