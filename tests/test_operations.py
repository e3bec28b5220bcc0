"""The verbs as functions: what they return, what they raise, and what is on disk afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import shlex
import shutil
import subprocess
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import difftools
from fakes import make_install
from scenes import (
    FILES,
    STATS,
    STATS_TEXT,
    changed,
    diff,
    entry,
    make_scene,
    patch,
    run,
    write_catalog,
)
from vllm_patcher import locking, operations, results, survey, transaction
from vllm_patcher.advice import IN_THE_WAY, OTHER_HAND
from vllm_patcher.errors import InvalidPatch, NotInstalled, UnknownPatch, VllmPatchError
from vllm_patcher.request import AdHoc, Request
from vllm_patcher.results import Refused, Report
from vllm_patcher.tree import writing
from vllm_patcher.tree.reading import ReadTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scenes import Scene

ONE = entry("one", patch(a05="50"))
TWO = entry("two", patch(b05="50"))
PROBE = "raise SystemExit(1)"
WITH_ONE = changed(FILES["a.py"], a05="50")
FIX = AdHoc(id="fix", text=patch(a15="150"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    write_catalog(tmp_path / "catalog", ONE, TWO)
    return make_scene(tmp_path)


def request(scene: Scene, *patches: str | AdHoc, **more: Any) -> Request:
    given = {"builtin": False, "catalogs": (str(scene.root / "catalog"),), **more}
    return Request(patches=patches, site_packages=str(scene.site), **given)


def states(report: Report) -> dict[str, str]:
    return {outcome.id: outcome.state for outcome in report.patches}


def refused(caught: pytest.ExceptionInfo[Refused]) -> list[tuple[str, str, str]]:
    """What a refusal says: the code, the patch and the first fact, or else what, of each error."""
    return [
        (error.code, error.patch, error.facts[0] if error.patch and error.facts else error.what)
        for error in caught.value.errors
    ]


class TestApply:
    def test_it_brings_all_in(self, scene: Scene) -> None:
        report = operations.apply(request(scene))
        assert states(report) == {"one": "applied", "two": "applied"}
        assert [outcome.was for outcome in report.patches] == ["not-applied", "not-applied"]
        assert report.wrote
        assert report.ok
        assert (scene.package / "a.py").read_bytes() == WITH_ONE
        assert scene.receipt.is_file()

    def test_again_it_does_nothing(self, scene: Scene) -> None:
        operations.apply(request(scene))
        before = scene.everything()
        report = operations.apply(request(scene))
        assert states(report) == {"one": "applied", "two": "applied"}
        assert (report.wrote, report.edits) == (False, ())
        assert scene.everything() == before

    def test_all_or_nothing_and_all_reasons(self, scene: Scene) -> None:
        for path in FILES:
            (scene.package / path).write_bytes(FILES[path].replace(b"5 = 5", b"5 = five"))
        before = scene.everything()
        with pytest.raises(Refused, match=r"2 of 3 patches can't be applied; nothing") as caught:
            operations.apply(request(scene, "one", "two", FIX))
        assert [(code, name) for code, name, _ in refused(caught)] == [
            ("conflict", "one"),
            ("conflict", "two"),
        ]
        assert caught.value.hint == "take the other change back, or reinstall this vLLM"
        assert states(caught.value.report)["fix"] == "not-applied"
        assert scene.everything() == before

    def test_where_there_is_one_patch_it_is_named(self, scene: Scene) -> None:
        (scene.package / "a.py").write_bytes(FILES["a.py"].replace(b"5 = 5", b"5 = five"))
        with pytest.raises(Refused, match=r"^one can't be applied; nothing was changed; one is"):
            operations.apply(request(scene, "one"))

    def test_what_is_required_comes_with_it(self, tmp_path: Path) -> None:
        write_catalog(
            tmp_path / "catalog",
            entry("base", patch(a05="50"), default=False),
            entry("middle", patch(a10="50"), requires=["base"], default=False),
            entry("top", patch(a15="50"), requires=["middle"], default=False),
        )
        scene = make_scene(tmp_path)
        assert operations.apply(request(scene)).patches == ()
        report = operations.apply(request(scene, "top"))
        assert states(report) == dict.fromkeys(["base", "middle", "top"], "applied")
        assert [outcome.named for outcome in report.patches] == [False, False, True]

    def test_without_names_what_was_applied_before_is_looked_after(self, scene: Scene) -> None:
        operations.apply(request(scene, FIX))
        (scene.package / "a.py").write_bytes(FILES["a.py"])
        report = operations.apply(request(scene))
        assert states(report) == {"one": "applied", "two": "applied", "fix": "applied"}

    def test_a_conflicting_patch_stands_in_its_way(self, tmp_path: Path) -> None:
        write_catalog(
            tmp_path / "catalog",
            entry("one", patch(a05="50")),
            entry("other", patch(b05="50"), conflicts=["one"], default=False),
            entry("third", patch(b15="50"), requires=["other"], default=False),
        )
        scene = make_scene(tmp_path)
        operations.apply(request(scene))
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, "third"))
        assert refused(caught) == [
            ("conflict", "other", "conflicts with one, which is in"),
            ("conflict", "third", "requires other, which is blocked"),
        ]
        assert [error.hint for error in caught.value.errors] == [
            "vllm-patch revert one",
            "vllm-patch status",
        ]

    def test_it_adopts_what_another_tool_has_put_in(self, scene: Scene) -> None:
        (scene.package / "a.py").write_bytes(WITH_ONE)
        report = operations.apply(request(scene, "one"))
        assert states(report) == {"one": "applied"}
        assert (report.wrote, report.edits) == (True, ())
        operations.revert(request(scene))
        assert (scene.package / "a.py").read_bytes() == FILES["a.py"]

    def test_a_result_that_does_not_compile_is_refused(self, scene: Scene) -> None:
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, AdHoc(id="x", text=patch(a05="("))))
        assert refused(caught) == [
            ("conflict", "", "the patched file would not compile: '(' was never closed")
        ]
        assert caught.value.what == "x can't be applied; nothing was changed"

    def test_a_file_that_python_would_never_read_is_refused(self, scene: Scene) -> None:
        (scene.package / "a.abi3.so").write_bytes(b"")
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene))
        assert refused(caught) == [
            ("unsafe-path", "one", f"{scene.package}/a.abi3.so is taken before it"),
        ]

    def test_without_a_dist_info_a_diff_has_no_home(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, dist_info=False)
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, FIX))
        assert refused(caught) == [
            ("unusable-vllm", "fix", "fix can't be kept track of: this vLLM has no dist-info")
        ]
        with pytest.raises(Refused, match="without a dist-info, nothing would show that one is in"):
            operations.apply(request(scene, "one", assume_version="0.11.0"))

    def test_exact(self, scene: Scene) -> None:
        moved = patch(a05="50").replace(b"@@ -2,7 +2,7 @@", b"@@ -1,7 +1,7 @@")
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, AdHoc(id="x", text=moved)), exact=True)
        assert refused(caught) == [("conflict", "", "--exact: a hunk of x moved +1 lines")]
        (scene.package / "b.py").write_bytes(FILES["b.py"] + b"# more\n")
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene), exact=True)
        assert refused(caught) == [("conflict", "", "--exact: the file is not proven by RECORD")]
        assert caught.value.hint == OTHER_HAND
        assert operations.apply(request(scene, "one"), exact=True).wrote

    def test_one_reason_for_two_patches_is_said_once(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE, entry("two", patch(a15="50")))
        scene = make_scene(tmp_path, record=False)
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene), exact=True)
        assert len(caught.value.errors) == 1


class TestVersions:
    @pytest.mark.parametrize("names", [(), ("one",)])
    def test_one_that_says_nothing_is_refused(self, tmp_path: Path, names: tuple[str, ...]) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, version="0.1.dev1+gabc")
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, *names))
        ((code, name, _),) = refused(caught)
        assert (code, name) == ("unsupported-version", "one")
        assert caught.value.hint is not None
        assert "--assume-version" in caught.value.hint
        assert operations.apply(request(scene, *names, assume_version="0.11.0")).wrote

    def test_it_is_refused_although_a_diff_is_in(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, version="0.1.dev1+gabc")
        operations.apply(request(scene, FIX))
        with pytest.raises(Refused):
            operations.apply(request(scene))

    def test_others_are_passed_over_and_counted(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE, entry("new", patch(b05="1"), affects=">=0.12"))
        report = operations.apply(request(make_scene(tmp_path)))
        assert states(report) == {"one": "applied"}
        assert report.passed_over == 1

    def test_one_that_is_named_and_not_needed_is_success(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, version="0.12.0")
        report = operations.apply(request(scene, "one"))
        assert states(report) == {"one": "not-needed"}
        assert report.patches[0].reasons[0].what == "vLLM 0.12.0 is outside >=0.8.0,<0.11.1"
        assert operations.verify(request(scene, "one")).ok
        assert not report.wrote

    def test_one_that_is_upstream_is_success_and_stays(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, files={"a.py": WITH_ONE})
        before = scene.everything()
        for verb in (operations.apply, operations.verify, operations.revert):
            report = verb(request(scene, "one"))
            assert states(report) == {"one": "upstream"}
            assert report.ok
        assert scene.everything() == before

    def test_no_diff_for_this_version(self, tmp_path: Path) -> None:
        write_catalog(
            tmp_path / "catalog",
            entry("one", b"", variants=[(">=0.8.0,<0.11", ONE["variants"][0][1])]),
        )
        scene = make_scene(tmp_path)
        report = operations.verify(request(scene))
        assert (states(report), report.ok) == ({"one": "unsupported"}, True)
        assert not operations.verify(request(scene), strict=True).ok
        assert not operations.verify(request(scene, "one")).ok
        assert not operations.apply(request(scene)).wrote
        with pytest.raises(Refused) as caught:
            operations.apply(request(scene, "one"))
        assert caught.value.hint == "vllm-patch show one"


class TestPreview:
    def test_it_says_what_apply_would_do_and_writes_nothing(self, scene: Scene) -> None:
        before = scene.everything()
        report = operations.preview(request(scene, "one"))
        assert scene.everything() == before
        assert states(report) == {"one": "not-applied"}
        assert [(edit.path, edit.after) for edit in report.edits] == [("a.py", WITH_ONE)]
        assert not report.wrote

    def test_it_raises_what_apply_would(self, scene: Scene) -> None:
        with pytest.raises(Refused):
            operations.preview(request(scene, AdHoc(id="x", text=patch(a05="("))))


class TestVerify:
    def test_it_says_no_and_yes(self, scene: Scene) -> None:
        report = operations.verify(request(scene))
        assert not report.ok
        assert [failure.what for failure in report.failures] == ["2 of 2 patches are not applied"]
        operations.apply(request(scene))
        assert operations.verify(request(scene)).ok

    def test_it_looks_at_all_that_was_applied_besides_the_named(self, scene: Scene) -> None:
        operations.apply(request(scene, FIX))
        report = operations.verify(request(scene, "one"))
        assert states(report) == {"one": "not-applied", "fix": "applied"}

    @pytest.mark.parametrize(
        ("damage", "state"),
        [
            ({"a.py": FILES["a.py"]}, "partial"),
            ({"a.py": FILES["a.py"], "b.py": FILES["b.py"]}, "not-applied"),
            ({"a.py": WITH_ONE.replace(b"50", b"51")}, "conflict"),
            ({"a.py": None}, "conflict"),
        ],
    )
    def test_what_was_applied_and_is_no_longer_whole(
        self, tmp_path: Path, damage: dict[str, bytes | None], state: str
    ) -> None:
        write_catalog(tmp_path / "catalog", entry("both", patch(a05="50", b05="50")))
        scene = make_scene(tmp_path)
        operations.apply(request(scene))
        for path, data in damage.items():
            if data is None:
                (scene.package / path).unlink()
            else:
                (scene.package / path).write_bytes(data)
        report = operations.verify(request(scene))
        assert states(report) == {"both": state}
        assert not report.ok
        other_hand = "take the other change back, or reinstall this vLLM"
        hint = other_hand if state == "conflict" else "vllm-patch apply"
        assert report.failures[0].hint == hint

    def test_bytecode_of_what_is_there_anyhow_may_hide_it_too(self, tmp_path: Path) -> None:
        """Somebody else has put the change in and edited the file: `present`, and yet not run."""
        write_catalog(tmp_path / "catalog", entry("one", patch(a05="50")))
        scene = make_scene(tmp_path)
        source = scene.package / "a.py"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        pyc = py_compile.compile(str(source), invalidation_mode=mode, doraise=True)
        source.write_bytes(changed(FILES["a.py"], a05="50") + b"# mine\n")
        report = operations.verify(request(scene))
        assert (states(report), report.ok, report.hiding) == ({"one": "present"}, False, (pyc,))
        operations.apply(request(scene))
        assert not os.path.exists(str(pyc))
        assert operations.verify(request(scene)).ok

    def test_what_a_killed_run_was_taking_out_is_looked_at_too(self, tmp_path: Path) -> None:
        scene = make_scene(tmp_path)
        both = AdHoc(id="both", text=patch(a05="50", b05="50"))
        asked = Request(site_packages=str(scene.site), builtin=False)
        operations.apply(asked.replaced(patches=(both,)))
        body = json.loads(scene.receipt.read_text())
        body["patches"][0]["wanted"] = "out"
        scene.receipt.write_text(json.dumps(body))
        (scene.package / "a.py").write_bytes(FILES["a.py"])
        report = operations.verify(asked)
        assert (states(report), report.ok) == ({"both": "partial"}, False)

    def test_another_revision(self, scene: Scene) -> None:
        operations.apply(request(scene))
        write_catalog(scene.root / "catalog", entry("one", patch(a05="51")), TWO)
        assert states(operations.verify(request(scene))) == {"one": "outdated", "two": "applied"}
        operations.apply(request(scene))
        assert (scene.package / "a.py").read_bytes() == changed(FILES["a.py"], a05="51")
        assert operations.verify(request(scene)).ok

    def test_old_bytecode_that_would_run(self, scene: Scene) -> None:
        source = scene.package / "a.py"
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compiled = py_compile.compile(str(source), doraise=True, invalidation_mode=unchecked)
        assert compiled is not None
        old = source.with_name("old.pyc")
        shutil.copy(compiled, old)
        operations.apply(request(scene))
        os.makedirs(os.path.dirname(compiled), exist_ok=True)
        shutil.move(old, compiled)
        report = operations.verify(request(scene))
        assert [failure.code for failure in report.failures] == ["stale-bytecode"]
        assert report.failures[0].facts == (compiled,)
        report = operations.apply(request(scene))
        assert (report.wrote, report.edits, report.hiding) == (True, (), ())
        assert operations.verify(request(scene)).ok

    def test_a_file_that_python_takes_before_it(self, scene: Scene) -> None:
        operations.apply(request(scene))
        (scene.package / "a.abi3.so").write_bytes(b"")
        report = operations.verify(request(scene))
        assert [failure.code for failure in report.failures] == ["shadowed-source"]
        # Nothing is to be done, and it would be of no use.
        with pytest.raises(Refused, match=r"Python would never read vllm/a\.py") as caught:
            operations.apply(request(scene))
        assert caught.value.hint == IN_THE_WAY
        # Who asks for others in other files is not held up by it.
        operations.apply(request(scene, AdHoc(id="other", text=patch(b15="7"))))
        # What has gone out is hidden by nothing.
        assert operations.revert(request(scene, "one")).shadowing == ()

    def test_a_package_that_gives_way_to_a_module(self, tmp_path: Path) -> None:
        write_catalog(tmp_path / "catalog", ONE)
        scene = make_scene(tmp_path, files={"sub/__init__.py": b"x = 1\n"})
        before = scene.everything()
        one = AdHoc(id="one-1", text=diff("sub/__init__.py", b"x = 1\n", None))
        two = AdHoc(id="two-2", text=diff("sub.py", None, b"x = 2\n"))
        with pytest.raises(Refused, match="sub is taken before it"):
            operations.apply(request(scene, two))
        operations.apply(request(scene, one, two))
        assert operations.verify(request(scene, one, two)).ok
        with pytest.raises(Refused, match=r"vllm/sub/__init__\.py, which is to be there"):
            operations.revert(request(scene, "one-1"))
        operations.revert(request(scene))
        assert scene.everything() == before
        whole = AdHoc(id="whole", text=one.text + two.text)
        operations.apply(request(scene, whole))
        assert operations.verify(request(scene, whole)).ok

    def test_a_package_that_another_patch_makes_beside_it(self, scene: Scene) -> None:
        operations.apply(request(scene))
        inner = AdHoc(id="inner", text=diff("a/__init__.py", None, b"x = 1\n"))
        with pytest.raises(Refused, match=r"vllm/a/__init__\.py, which is to be there"):
            operations.apply(request(scene, inner))
        operations.revert(request(scene))
        with pytest.raises(Refused, match=r"vllm/a/__init__\.py, which is to be there"):
            operations.apply(request(scene, "one", inner))

    def test_strict_wants_every_file_proven(self, scene: Scene) -> None:
        (scene.package / "a.py").write_bytes(FILES["a.py"] + b"# more\n")
        operations.apply(request(scene))
        assert operations.verify(request(scene)).ok
        report = operations.verify(request(scene), strict=True)
        assert [(one.code, one.facts) for one in report.failures] == [
            ("modified-file", (f"{scene.package}/a.py: modified",))
        ]

    def test_it_works_without_the_right_to_write(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        operations.apply(request(scene))

        def locked(*_: object, **__: object) -> None:
            raise AssertionError("verify takes no lock")

        monkeypatch.setattr(locking, "locked", locked)
        monkeypatch.setattr(transaction, "commit", locked)
        monkeypatch.setattr(writing, "Tree", locked)
        assert operations.verify(request(scene)).ok
        assert operations.status(request(scene)).ok
        assert operations.preview(request(scene)).ok
        assert operations.changes(request(scene)).edits
        with pytest.raises(AssertionError, match="takes no lock"):
            operations.revert(request(scene))

    def test_a_shared_file_that_nothing_explains_may_be_in_the_cache(self, scene: Scene) -> None:
        target = scene.package / "a.py"
        target.write_bytes(FILES["a.py"] + b"# more\n")
        assert operations.verify(request(scene)).notes == ()
        os.link(target, scene.root / "in-the-cache")
        (note,) = operations.verify(request(scene)).notes
        assert str(target) in note
        assert "uv cache clean vllm" in note


class TestProbe:
    def catalog(self, scene: Scene, source: str, **more: Any) -> None:
        write_catalog(scene.root / "catalog", {**ONE, "probe": source, **more}, TWO)

    @pytest.mark.parametrize(
        ("source", "answer", "what"),
        [
            ("", "absent", None),
            ("exit(1)", "present", "the probe of one finds the fault"),
            ("exit(77)", "unknown", "the probe of one can't tell"),
        ],
    )
    def test_what_it_says_counts(
        self, scene: Scene, source: str, answer: str, what: str | None
    ) -> None:
        self.catalog(scene, source)
        operations.apply(request(scene))
        assert operations.verify(request(scene)).ok
        report = operations.verify(request(scene), probe=True)
        one, two = report.patches
        assert one.probe is not None
        assert one.probe.answer == answer
        assert two.probe is None
        assert [failure.what for failure in report.failures] == ([what] if what else [])

    def test_it_runs_too_where_the_patch_is_not_in(self, scene: Scene) -> None:
        self.catalog(scene, "exit(1)")
        report = operations.verify(request(scene, "one"), probe=True)
        assert report.patches[0].probe is not None
        assert [failure.what for failure in report.failures] == ["one is not applied"]

    def test_it_runs_only_when_asked_for(self, scene: Scene, tmp_path: Path) -> None:
        trace = tmp_path / "trace"
        self.catalog(scene, f"open({str(trace)!r}, 'w')")
        operations.apply(request(scene))
        operations.verify(request(scene))
        assert not trace.exists()
        operations.verify(request(scene), probe=True)
        assert trace.exists()

    def test_the_interpreter_of_the_install_runs_it(self, scene: Scene, tmp_path: Path) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\necho $#: $5 from $0\n")
        python.chmod(0o755)
        self.catalog(scene, "")
        site = tmp_path / "lib" / "python3.11" / "site-packages"
        site.parent.mkdir(parents=True)
        scene.site.rename(site)
        report = operations.verify(request(scene).replaced(site_packages=str(site)), probe=True)
        assert report.patches[0].probe is not None
        assert str(python) in report.patches[0].probe.line

    def test_the_two_of_the_built_in_catalog(self, scene: Scene) -> None:
        built_in = Request(site_packages=str(scene.site))
        answers = []
        for names in ([], ["lora-finish-request"], ["lora-waiting-leak"]):
            if names:
                operations.apply(built_in.replaced(patches=tuple(names)))
            report = operations.verify(built_in, probe=True)
            answers.append([item.probe.answer for item in report.patches if item.probe])
        assert answers == [["present", "present"], ["absent", "present"], ["absent", "absent"]]


def test_what_one_diff_brought_for_several_patches_is_there_for_each(tmp_path: Path) -> None:
    """The second, moved by the first and with a twin above it, could not come out by its text."""
    block = b"def %s():\n    begin()\n    run()\n    end()\n\n\n"
    old = b"".join(block % name for name in (b"f", b"g"))
    head, tail = old[: len(old) // 2], old[len(old) // 2 :]
    first = b"import os\n\n" + old
    second = head + tail.replace(b"run", b"walk")
    both = b"import os\n\n" + second
    write_catalog(
        tmp_path / "catalog",
        entry("first", diff("twins.py", old, first)),
        entry("second", diff("twins.py", old, second)),
    )
    scene = make_scene(tmp_path, files={"twins.py": old})
    operations.apply(request(scene, AdHoc(id="all", text=diff("twins.py", old, both))))
    for report in (operations.verify(request(scene)), operations.apply(request(scene))):
        assert states(report) == dict.fromkeys(("first", "second", "all"), "applied")
        assert not report.wrote
    assert states(operations.revert(request(scene, "first"))) == {"first": "not-applied"}
    operations.revert(request(scene))
    assert (scene.package / "twins.py").read_bytes() == old


def test_what_does_not_fit_beside_what_is_in_is_no_job_for_apply(scene: Scene) -> None:
    hotfix = AdHoc(id="hotfix", text=patch(a05="55"))
    operations.apply(request(scene, hotfix))
    report = operations.verify(request(scene, "one"))
    assert states(report) == {"one": "conflict", "hotfix": "applied"}
    assert report.failures[0].hint == "vllm-patch revert hotfix"
    with pytest.raises(Refused) as caught:
        operations.apply(request(scene, "one"))
    assert caught.value.hint == "vllm-patch revert hotfix"
    assert "it fits this vLLM, but not beside hotfix" in str(caught.value)


def test_what_lies_between_is_laid_too_before_a_patch_is_in_the_way(tmp_path: Path) -> None:
    """x comes first and touches one file of o, which builds on w in the other."""
    with_w = changed(FILES["b.py"], b05="50")
    over = diff("a.py", FILES["a.py"], changed(FILES["a.py"], a15="50"))
    over += diff("b.py", with_w, changed(FILES["b.py"], b05="51"))
    write_catalog(
        tmp_path / "catalog",
        entry("x", patch(a05="50")),
        entry("w", patch(b05="50")),
        entry("o", over, requires=["w"]),
    )
    scene = make_scene(tmp_path)
    operations.apply(request(scene, "o"))
    assert states(operations.apply(request(scene))) == dict.fromkeys(("x", "w", "o"), "applied")


def test_what_comes_with_others_counts_for_what_requires_it_or_conflicts(tmp_path: Path) -> None:
    both = (entry("a", patch(a05="50")), entry("x", patch(a05="50")))
    folder = write_catalog(tmp_path / "catalog", *both, entry("z", patch(a15="5"), requires=["x"]))
    scene = make_scene(tmp_path)
    expected = dict.fromkeys(("a", "x", "z"), "applied")
    assert states(operations.apply(request(scene))) == expected
    assert operations.verify(request(scene)).ok
    operations.revert(request(scene))
    write_catalog(folder, *both, entry("c", patch(a15="5"), conflicts=["x"]))
    with pytest.raises(Refused, match="conflicts with x, which is to go in"):
        operations.apply(request(scene))


def test_what_others_undo_is_not_said_to_be_in(scene: Scene) -> None:
    """As a glob names them: what takes a line out comes before what puts it in."""
    debug = changed(FILES["a.py"], a05="50").replace(b"a17", b"a = 0\na17")
    fix = AdHoc(id="fix", text=diff("a.py", FILES["a.py"], debug))
    second = AdHoc(id="fix-2", text=diff("a.py", debug, debug.replace(b"a = 0\n", b"")))
    before = scene.everything()
    with pytest.raises(Refused) as caught:
        operations.apply(request(scene, second, fix))
    what = "fix-2, now upstream, would be not-applied once the others are in"
    assert refused(caught) == [("conflict", "", what)]
    assert caught.value.hint == "name it after the others, or leave it out"
    assert scene.everything() == before
    operations.apply(request(scene, fix, second))
    assert operations.verify(request(scene, second, fix)).ok
    assert not operations.apply(request(scene, second, fix)).wrote


def test_of_two_equal_ones_none_is_said_to_be_in_that_a_third_would_hide(scene: Scene) -> None:
    base = changed(FILES["a.py"], a05="50")
    one, two = (
        AdHoc(id=name, text=diff("a.py", FILES["a.py"], base)) for name in ("one-1", "two-2")
    )
    three = AdHoc(id="three", text=diff("a.py", base, base.replace(b"a06", b"a = 0\na06")))
    with pytest.raises(Refused, match="two-2, now not-applied, would be conflict once the others"):
        operations.apply(request(scene, one, two, three))
    operations.apply(request(scene, one, three))
    assert operations.verify(request(scene, one, three)).ok


@pytest.mark.parametrize("where", ["the release", "a changed file"])
def test_what_is_there_anyhow_is_in_no_conflict(tmp_path: Path, where: str) -> None:
    q, p = entry("q", patch(a05="50")), entry("p", patch(b05="50"), conflicts=["q"])
    for order in ((p, q), (q, p)):
        write_catalog(tmp_path / "catalog", *order)
        scene = make_scene(tmp_path, files={"a.py": changed(FILES["a.py"], a05="50")})
        if where == "a changed file":
            (scene.package / "a.py").write_bytes(changed(FILES["a.py"], a05="50", a15="5"))
        there = "upstream" if where == "the release" else "present"
        for verb in (operations.apply, operations.verify, operations.apply):
            report = verb(request(scene, "p", "q"))
            assert states(report) == {"p": "applied", "q": there}
            assert report.ok
        shutil.rmtree(scene.site)


def test_who_only_looks_compiles_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands against a plan is worked out for those who carry it out."""

    def asked(_sources: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(survey, "objections", asked)
    for verb in (operations.verify, operations.status):
        assert states(verb(request(scene)))["one"] == "not-applied"
    with pytest.raises(AssertionError, match="compiled"):
        operations.apply(request(scene))


def test_verify_looks_again_where_another_run_wrote_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt was read before, the files after: of one of two patches nobody knew."""
    one, two = (AdHoc(id=name, text=patch(**{name: "7"})) for name in ("a05", "a15"))
    read = ReadTree.read
    times = count()

    def meanwhile(tree: ReadTree, path: str) -> bytes | None:
        if path == "a.py" and next(times) == 0:
            operations.apply(request(scene, one, two))
        return read(tree, path)

    monkeypatch.setattr(ReadTree, "read", meanwhile)
    report = operations.verify(request(scene, one))
    assert states(report) == {"a05": "applied", "a15": "applied"}


@pytest.mark.parametrize("more", [{}, {"b15": "7"}])
def test_what_stands_in_for_a_requirement_is_required(tmp_path: Path, more: dict[str, str]) -> None:
    both = entry("a", patch(a05="50")), entry("b", patch(b05="50"), requires=["a"])
    write_catalog(tmp_path / "catalog", *both)
    scene = make_scene(tmp_path)
    mine = AdHoc(id="mine", text=patch(a05="50", **more))
    operations.apply(request(scene, mine))
    assert states(operations.apply(request(scene, "b")))["a"] == "applied"
    with pytest.raises(Refused, match="b requires it"):
        operations.revert(request(scene, "mine"))
    assert not operations.revert(request(scene, "a")).wrote
    # What is in the same file and does something else is nobody's requirement.
    operations.apply(request(scene, AdHoc(id="other", text=patch(a15="7"))))
    operations.revert(request(scene, "other"))
    operations.revert(request(scene, "mine"), with_dependents=True)
    assert (scene.package / "b.py").read_bytes() == FILES["b.py"]


def test_a_newer_catalog_knows_better_what_is_required(tmp_path: Path) -> None:
    a, b = entry("a", patch(a05="50")), entry("b", patch(b05="50"))
    folder = write_catalog(tmp_path / "catalog", a, b)
    scene = make_scene(tmp_path)
    operations.apply(request(scene))
    write_catalog(folder, a, {**b, "requires": ["a"]})
    for _ in range(2):  # and the receipt says so then
        with pytest.raises(Refused, match="b requires it"):
            operations.revert(request(scene, "a"))
        operations.apply(request(scene))
    write_catalog(folder, a, b)
    operations.revert(request(scene, "a"))


def test_a_diff_that_a_catalog_has_by_now_is_the_catalogs(tmp_path: Path) -> None:
    folder = write_catalog(tmp_path / "catalog", entry("a", patch(a05="50")))
    scene = make_scene(tmp_path)
    operations.apply(request(scene, AdHoc(id="b", text=patch(b05="50"))))
    write_catalog(folder, entry("b", patch(b05="50")))
    operations.apply(request(scene))
    write_catalog(folder, entry("b", patch(b05="51")))
    assert states(operations.verify(request(scene)))["b"] == "outdated"
    assert states(operations.apply(request(scene)))["b"] == "applied"
    assert (scene.package / "b.py").read_bytes() == changed(FILES["b.py"], b05="51")


def test_what_a_patch_by_hand_requires_comes_at_once(tmp_path: Path) -> None:
    write_catalog(
        tmp_path / "catalog",
        entry("a", patch(a05="50"), default=False),
        entry("b", patch(b05="50"), requires=["a"], default=False),
    )
    scene = make_scene(tmp_path)
    (scene.package / "b.py").write_bytes(changed(FILES["b.py"], b05="50"))
    assert states(operations.verify(request(scene))) == {"a": "not-applied", "b": "applied"}
    assert states(operations.apply(request(scene))) == {"a": "applied", "b": "applied"}
    assert operations.verify(request(scene)).ok


def test_what_is_there_already_does_not_come_with_others(tmp_path: Path) -> None:
    a, old = entry("a", patch(a05="50")), entry("y", patch(a15="50"))
    folder = write_catalog(tmp_path / "catalog", a, old)
    scene = make_scene(tmp_path)
    operations.apply(request(scene))
    write_catalog(folder, a, entry("y", patch(a15="51")), entry("x", patch(a05="50")))
    report = operations.verify(request(scene))
    assert states(report) == {"a": "applied", "y": "outdated", "x": "applied"}


@pytest.mark.parametrize("verb", [operations.apply, operations.revert])
def test_a_rename_of_a_changed_file_that_was_cut_off_is_finished(
    tmp_path: Path, verb: Callable[[Request], Report]
) -> None:
    """The old name is there still, as it was released: the first patch never wrote to it."""
    moved = changed(FILES["a.py"], a15="50")
    names = b"diff --git a/vllm/a.py b/vllm/c.py\nrename from vllm/a.py\nrename to vllm/c.py\n"
    hunks = diff("a.py", FILES["a.py"], moved).partition(b"@@")
    rename = names + b"--- a/vllm/a.py\n+++ b/vllm/c.py\n@@" + hunks[2]
    write_catalog(tmp_path / "catalog", ONE, entry("rename", rename))
    scene = make_scene(tmp_path)
    before = scene.everything()
    operations.apply(request(scene))
    applied = scene.everything()
    (scene.package / "a.py").write_bytes(FILES["a.py"])
    verb(request(scene))
    assert scene.everything() == (applied if verb is operations.apply else before)


def test_what_a_patch_for_other_versions_requires_is_not_brought_in(tmp_path: Path) -> None:
    shy = entry("shy", patch(a05="50"), default=False)
    later = entry("later", patch(b05="50"), requires=["shy"], affects=">=0.12")
    write_catalog(tmp_path / "catalog", shy, later)
    scene = make_scene(tmp_path)
    assert not operations.apply(request(scene)).wrote
    assert operations.verify(request(scene)).ok


def test_what_was_applied_before_and_is_gone_is_named_in_the_hint(scene: Scene) -> None:
    operations.apply(request(scene))
    (scene.package / "b.py").write_bytes(FILES["b.py"])
    report = operations.verify(request(scene, "one"))
    assert report.failures[0].hint == "vllm-patch apply two"


def test_what_stands_upon_an_old_revision_is_the_one_to_take_out(tmp_path: Path) -> None:
    folder = write_catalog(tmp_path / "catalog", ONE)
    scene = make_scene(tmp_path)
    operations.apply(request(scene))
    own = AdHoc(id="own", text=diff("a.py", WITH_ONE, changed(FILES["a.py"], a05="51")))
    operations.apply(request(scene, own))
    write_catalog(folder, entry("one", patch(a05="52")))
    with pytest.raises(Refused) as caught:
        operations.apply(request(scene))
    assert caught.value.hint == "vllm-patch revert own"


def test_what_is_named_is_judged_beside_what_is_in(tmp_path: Path) -> None:
    """And not beside what another revision of the catalog would bring."""
    folder = write_catalog(tmp_path / "catalog", ONE)
    scene = make_scene(tmp_path)
    operations.apply(request(scene))
    write_catalog(folder, entry("one", patch(a05="52")))
    same = AdHoc(id="same", text=patch(a05="50"))
    assert states(operations.apply(request(scene, same))) == {"same": "applied"}
    report = operations.verify(request(scene, same))
    assert states(report) == {"same": "applied", "one": "outdated"}
    # Where a patch of the receipt was put back by hand, it is in nobody's way.
    (scene.package / "a.py").write_bytes(FILES["a.py"])
    beside = AdHoc(id="beside", text=patch(a06="7"))
    assert states(operations.verify(request(scene, beside)))["beside"] == "not-applied"
    assert states(operations.apply(request(scene, beside)))["beside"] == "applied"


def test_of_two_alternatives_status_says_that_each_fits(tmp_path: Path) -> None:
    shy = entry("shy", patch(a05="51"), default=False)
    with_shy = changed(FILES["a.py"], a05="51")
    text = diff("a.py", with_shy, changed(FILES["a.py"], a05="51", a06="7"))
    upon = entry("upon", text, default=False)
    write_catalog(tmp_path / "catalog", shy, {**upon, "requires": ["shy"]}, ONE)
    scene = make_scene(tmp_path)
    fitting = dict.fromkeys(("shy", "upon", "one"), "not-applied")
    assert states(operations.status(request(scene))) == fitting
    operations.apply(request(scene, "one"))
    found = states(operations.status(request(scene)))
    assert (found["one"], found["shy"]) == ("applied", "conflict")


class TestAnIdThatACatalogHasGotSince:
    """A diff was applied under an id, and then a catalog came that has a patch of that id."""

    MINE = AdHoc(id="one", text=patch(b10="7"))

    @pytest.fixture
    def own(self, tmp_path: Path) -> Scene:
        write_catalog(tmp_path / "catalog", TWO)
        scene = make_scene(tmp_path)
        operations.apply(request(scene, self.MINE))
        assert operations.verify(request(scene, self.MINE)).ok is True
        return scene

    def test_nobody_can_tell_which_is_meant(self, own: Scene) -> None:
        write_catalog(own.root / "catalog", ONE, TWO)
        before = own.everything()
        report = operations.verify(request(own))
        assert (report.ok, states(report)["one"]) == (False, "conflict")
        assert report.failures[0].hint == "vllm-patch revert one"
        for named in ((), ("one",)):
            with pytest.raises(Refused) as caught:
                operations.apply(request(own, *named))
            assert caught.value.hint == "vllm-patch revert one"
        with pytest.raises(InvalidPatch, match="known with another text"):
            operations.verify(request(own, self.MINE))
        assert own.everything() == before
        operations.revert(request(own, "one"))
        assert states(operations.apply(request(own))) == {"one": "applied", "two": "applied"}

    def test_it_is_the_users_where_the_catalogs_is_not_for_this_version(self, own: Scene) -> None:
        write_catalog(own.root / "catalog", {**ONE, "affects": "<0.8", "probe": PROBE}, TWO)
        for named in ((), ("one",), (self.MINE,)):
            report = operations.verify(request(own, *named), probe=True)
            mine = next(item for item in report.patches if item.id == "one")
            assert (mine.state, mine.adhoc, mine.title, mine.probe) == ("applied", True, "", None)
        (own.package / "b.py").write_bytes(FILES["b.py"])
        for named in ((), ("one",), (self.MINE,)):
            report = operations.verify(request(own, *named))
            assert states(report)["one"] == "not-applied"
            assert not report.ok
        operations.apply(request(own))
        assert b"b10 = 7" in (own.package / "b.py").read_bytes()


def test_without_record_nothing_is_said_to_have_been_released(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog", ONE)
    scene = make_scene(tmp_path)
    record = scene.info / "RECORD"
    record.unlink()
    new = AdHoc(id="new", text=diff("new.py", None, b"x = 1\n"))
    report = operations.apply(request(scene, new))
    assert {file.path: file.state for file in report.files} == {"new.py": "unrecorded"}
    assert operations.verify(request(scene, new), strict=True).ok


def test_what_comes_only_if_named_is_told_where_nothing_was_named(tmp_path: Path) -> None:
    write_catalog(
        tmp_path / "catalog",
        ONE,
        entry("shy", patch(a15="5"), default=False),
        entry("old", patch(b15="5"), default=False, affects="<0.8"),
    )
    scene = make_scene(tmp_path)
    for verb in (operations.verify, operations.preview, operations.apply):
        assert verb(request(scene)).if_named == ("shy",)
        assert verb(request(scene, "one")).if_named == ()
        assert verb(request(scene, kinds=("leak",))).if_named == ()
    assert operations.status(request(scene)).if_named == ()
    operations.apply(request(scene, "shy"))
    assert operations.verify(request(scene)).if_named == ()


class TestRevert:
    def test_all_that_is_in_goes_out_to_the_byte(self, scene: Scene) -> None:
        before = scene.everything()
        operations.apply(request(scene, "one", "two", FIX))
        report = operations.revert(request(scene))
        assert states(report) == dict.fromkeys(["one", "two", "fix"], "not-applied")
        assert {outcome.was for outcome in report.patches} == {"applied"}
        assert report.wrote
        assert scene.everything() == before

    def test_one_of_several(self, scene: Scene) -> None:
        operations.apply(request(scene, "one", "two", FIX))
        operations.revert(request(scene, "fix"))
        assert (scene.package / "a.py").read_bytes() == WITH_ONE
        assert operations.verify(request(scene)).ok

    def test_what_is_not_in_is_success(self, scene: Scene) -> None:
        report = operations.revert(request(scene, "one"))
        assert states(report) == {"one": "not-applied"}
        assert not report.wrote
        assert operations.revert(request(scene)).patches == ()

    def test_what_others_require_stays_unless_they_go_too(self, tmp_path: Path) -> None:
        top = entry("top", patch(a15="50"), requires=["one"])
        write_catalog(tmp_path / "catalog", ONE, top)
        scene = make_scene(tmp_path)
        before = scene.everything()
        operations.apply(request(scene))
        with pytest.raises(Refused) as caught:
            operations.revert(request(scene, "one"))
        assert refused(caught) == [("conflict", "one", "top requires it")]
        assert caught.value.hint == "vllm-patch revert --with-dependents one"
        operations.revert(request(scene, "one"), with_dependents=True)
        assert scene.everything() == before

    @pytest.mark.parametrize("name", ["it's", "my fix"])
    def test_an_odd_name_can_be_pasted(self, tmp_path: Path, name: str) -> None:
        top = entry("top", patch(a15="50"), requires=["one"])
        folder = write_catalog(tmp_path / "catalog", ONE, top)
        scene = make_scene(tmp_path)
        before = scene.everything()
        fix = scene.diff_file(f"{name}.patch", patch(b10="7"))
        options = ("--no-builtin", "--catalog", folder)
        assert scene.run("apply", "one", "top", fix, *options).code == 0
        blocked = scene.run("revert", "one", name, *options)
        assert (blocked.code, "Traceback" in blocked.err) == (3, False)
        hint = blocked.err.rpartition("hint: ")[2]
        assert run(*shlex.split(hint)[1:]).code == 0
        assert scene.everything() == before

    def test_what_nobody_can_prove_stays(self, scene: Scene) -> None:
        both = changed(WITH_ONE, a20="7")
        (scene.package / "a.py").write_bytes(both)
        assert states(operations.verify(request(scene, "one"))) == {"one": "present"}
        assert operations.revert(request(scene)).patches == ()
        with pytest.raises(Refused) as caught:
            operations.revert(request(scene, "one"))
        assert caught.value.report.patches[0].state == "present"
        assert (scene.package / "a.py").read_bytes() == both

    def test_a_line_of_ours_that_another_hand_has_changed(self, scene: Scene) -> None:
        operations.apply(request(scene))
        (scene.package / "a.py").write_bytes(WITH_ONE.replace(b"50", b"51"))
        before = scene.everything()
        with pytest.raises(Refused) as caught:
            operations.revert(request(scene))
        assert refused(caught) == [
            ("conflict", "one", "vllm/a.py: the file was changed by another hand")
        ]
        assert scene.everything() == before

    def test_a_catalog_that_is_gone_is_not_needed(self, scene: Scene) -> None:
        before = scene.everything()
        operations.apply(request(scene))
        operations.revert(request(scene, catalogs=()))
        assert scene.everything() == before


class TestStatus:
    def test_every_patch_has_a_state(self, tmp_path: Path) -> None:
        write_catalog(
            tmp_path / "catalog",
            *(ONE, TWO, entry("new", patch(b15="1"), affects=">=0.12")),
            entry("extra", patch(b10="1"), default=False),
        )
        scene = make_scene(tmp_path)
        operations.apply(request(scene, "one", FIX))
        report = operations.status(request(scene))
        assert states(report) == {
            "one": "applied",
            "two": "not-applied",
            "new": "not-needed",
            "extra": "not-applied",
            "fix": "applied",
        }
        assert [outcome.adhoc for outcome in report.patches] == [False] * 4 + [True]

    def test_every_file_has_one_too(self, tmp_path: Path) -> None:
        files = {f"{name}.py": FILES["a.py"] for name in "cdef"}
        extra = [diff(path, FILES["a.py"], WITH_ONE) for path in [*files, "g.py"]]
        write_catalog(tmp_path / "catalog", ONE, TWO, entry("rest", b"".join(extra)))
        scene = make_scene(tmp_path, files={**files, "g.py": FILES["a.py"]})
        operations.apply(request(scene, "one"))
        (scene.package / "c.py").write_bytes(b"another hand\n")
        (scene.package / "d.py").unlink()
        record = scene.info / "RECORD"
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if "vllm/e.py" not in line))
        found = {file.path: file.state for file in operations.status(request(scene)).files}
        assert found == {
            "a.py": results.PATCHED,
            "b.py": results.PRISTINE,
            "c.py": results.MODIFIED,
            "d.py": results.MISSING,
            "e.py": results.UNRECORDED,
            "f.py": results.PRISTINE,
            "g.py": results.PRISTINE,
        }


class TestChoice:
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Scene:
        write_catalog(
            tmp_path / "catalog",
            entry("leak", patch(a05="1"), kind="leak"),
            entry(
                "hole", patch(a10="1"), kind="security", cve=["CVE-2025-11111", "CVE-2025-22222"]
            ),
            entry("quiet", patch(a15="1"), kind="security", cve="CVE-2025-33333", default=False),
        )
        return make_scene(tmp_path)

    @pytest.mark.parametrize(
        ("chosen", "ids"),
        [
            ({}, ["leak", "hole"]),
            ({"kinds": ("leak",)}, ["leak"]),
            ({"kinds": ("security",)}, ["hole"]),
            ({"kinds": ("leak", "security")}, ["leak", "hole"]),
            ({"kinds": ("compat",)}, []),
            ({"cves": ("CVE-2025-22222",)}, ["hole"]),
            ({"cves": ("CVE-2025-33333",)}, ["quiet"]),
            ({"cves": ("CVE-2025-11111",), "kinds": ("leak",)}, []),
        ],
    )
    def test_kinds_and_cves(self, scene: Scene, chosen: dict[str, Any], ids: list[str]) -> None:
        report = operations.verify(request(scene, **chosen))
        assert [outcome.id for outcome in report.patches] == ids
        assert all(outcome.named for outcome in report.patches) is (bool(chosen) or not ids)

    def test_a_cve_that_no_patch_is_for(self, scene: Scene) -> None:
        with pytest.raises(UnknownPatch, match="no patch for CVE-2025-99999"):
            operations.verify(request(scene, cves=("CVE-2025-11111", "CVE-2025-99999")))


def test_changes_are_those_that_would_take_the_patches_out(scene: Scene) -> None:
    operations.apply(request(scene, "one", "two", FIX))
    everything = operations.changes(request(scene))
    assert {edit.path: edit.after for edit in everything.edits} == FILES
    (edit,) = operations.changes(request(scene, "fix")).edits
    assert edit.after == WITH_ONE
    assert not everything.wrote


def test_the_text_that_was_applied_can_be_had(scene: Scene) -> None:
    operations.apply(request(scene, FIX))
    assert operations.applied_text(request(scene), "fix") == FIX.text
    assert operations.applied_text(request(scene), "nope") is None


def test_there_is_no_vllm(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled):
        operations.locate(Request(site_packages=str(tmp_path)))


@pytest.mark.parametrize(
    "verb",
    [
        operations.preview,
        operations.verify,
        operations.status,
        operations.changes,
        operations.apply,
        operations.revert,
    ],
)
def test_what_can_not_be_used_is_raised_by_every_verb(scene: Scene, verb: Any) -> None:
    with pytest.raises(VllmPatchError) as caught:
        verb(request(scene, "nope"))
    assert caught.value.code == "unknown-patch" or verb is operations.status


def test_gnu_patch_and_the_catalog_agree(scene: Scene) -> None:
    difftools.need("patch")
    from vllm_patcher import catalog

    first = catalog.load(catalog.builtin_folder()).patches[0]
    subprocess.run(
        ["patch", "-p2", "--silent", "--no-backup-if-mismatch"],
        input=first.diff_bytes(first.variants[0]),
        cwd=scene.package,
        check=True,
    )
    built_in = Request(site_packages=str(scene.site))
    assert states(operations.status(built_in))[first.id] == "applied"
    assert not operations.apply(built_in.replaced(patches=(first.id,))).edits
    operations.revert(built_in)
    assert (scene.package / STATS).read_bytes() == STATS_TEXT


def test_read_only_verbs_are_given_no_tree_that_writes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[type[ReadTree]] = []
    init = ReadTree.__init__

    def noted(self: ReadTree, root: str) -> None:
        made.append(type(self))
        init(self, root)

    monkeypatch.setattr(ReadTree, "__init__", noted)
    for verb in (operations.preview, operations.verify, operations.status, operations.changes):
        verb(request(scene))
    assert set(made) == {ReadTree}


class TestEditable:
    """A source tree is patched only where the user says so; the rest needs no leave."""

    def make(self, tmp_path: Path) -> Path:
        tree = tmp_path / "checkout"
        tree.mkdir()
        (tree / "pyproject.toml").write_bytes(b"")
        site = tmp_path / "site"
        site.mkdir()
        make_install(tree, files={"__init__.py": b"", "one.py": b"a = 1\n"}, dist_info=False)
        (site / "vllm").symlink_to(tree / "vllm")
        return site

    def test_apply_asks_for_leave(self, tmp_path: Path) -> None:
        site = self.make(tmp_path)
        asked = Request(site_packages=str(site), builtin=False)
        with pytest.raises(NotInstalled) as caught:
            operations.apply(asked)
        assert "--allow-editable" in str(caught.value.hint)
        operations.apply(asked.replaced(allow_editable=True))

    @pytest.mark.parametrize(
        "verb", [operations.verify, operations.status, operations.revert, operations.changes]
    )
    def test_the_other_verbs_do_not(
        self, tmp_path: Path, verb: Callable[[Request], Report]
    ) -> None:
        report = verb(Request(site_packages=str(self.make(tmp_path)), builtin=False))
        assert report.install.editable


class TestLater:
    """What was applied stays known when the disk around it has changed."""

    def bare(self, tmp_path: Path, **files: bytes) -> Path:
        make_install(tmp_path / "site", files={"__init__.py": b"", **files})
        return tmp_path / "site"

    def asked(self, site: Path, *patches: str | AdHoc) -> Request:
        return Request(patches=patches, site_packages=str(site), builtin=False)

    def test_names_are_not_told_anew_from_the_changed_disk(self, tmp_path: Path) -> None:
        """The first diff's file is renamed by the second: its name no longer leads anywhere."""
        site = self.bare(tmp_path, **{"engine/old.py": b"a = 1\n"})
        makes = AdHoc(
            id="makes",
            text=b"--- /dev/null\n+++ b/engine/new.py\n@@ -0,0 +1 @@\n+n = 1\n"
            b"--- a/engine/old.py\n+++ b/engine/old.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        )
        renames = AdHoc(
            id="renames",
            text=b"diff --git a/engine/new.py b/engine/ren.py\nsimilarity index 100%\n"
            b"rename from engine/new.py\nrename to engine/ren.py\n",
        )
        for patch_ in (makes, renames):
            operations.apply(self.asked(site, patch_))
        assert (site / "vllm/engine/ren.py").read_bytes() == b"n = 1\n"
        assert operations.verify(self.asked(site)).ok
        operations.revert(self.asked(site))
        assert sorted(path.name for path in (site / "vllm/engine").iterdir()) == ["old.py"]

    def test_a_file_left_beside_it_changes_nothing(self, tmp_path: Path) -> None:
        site = self.bare(tmp_path, **{"foo.py": b"a = 1\n"})
        fix = AdHoc(
            id="fix",
            text=b"--- vllm/foo.py.orig\n+++ vllm/foo.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        )
        operations.apply(self.asked(site, fix))
        (site / "vllm/foo.py.orig").write_bytes(b"a = 1\n")
        assert operations.verify(self.asked(site)).ok
        operations.revert(self.asked(site))
        assert (site / "vllm/foo.py").read_bytes() == b"a = 1\n"

    def test_a_module_may_become_a_package(self, tmp_path: Path) -> None:
        site = self.bare(tmp_path, **{"foo.py": b"a = 1\n"})
        fix = AdHoc(
            id="fix",
            text=b"diff --git a/vllm/foo.py b/vllm/foo/__init__.py\nsimilarity index 100%\n"
            b"rename from vllm/foo.py\nrename to vllm/foo/__init__.py\n",
        )
        assert operations.apply(self.asked(site, fix)).shadowing == ()
        assert operations.verify(self.asked(site)).ok

    def test_the_owner_stays_who_was_patched(self, tmp_path: Path) -> None:
        """Of two that list the same files, the patched one would lose its lead by the patch."""
        site = self.bare(tmp_path, **{"foo.py": b"a = 1\n"})
        first = next(site.glob("*.dist-info"))
        other = site / "acme-1.0.dist-info"
        shutil.copytree(first, other)
        lines = (first / "RECORD").read_text().splitlines(keepends=True)
        changed_ = [line for line in lines if not line.startswith("vllm/foo.py")]
        (other / "RECORD").write_text("".join([*changed_, "vllm/foo.py,sha256=AAAA,6\n"]))
        fix = AdHoc(
            id="fix",
            text=b"--- a/vllm/foo.py\n+++ b/vllm/foo.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        )
        assert operations.apply(self.asked(site, fix)).install.dist_info == str(first)
        assert operations.verify(self.asked(site)).install.dist_info == str(first)
        operations.revert(self.asked(site))
        assert (site / "vllm/foo.py").read_bytes() == b"a = 1\n"

    def test_a_renamed_file_keeps_its_mode_both_ways(self, tmp_path: Path) -> None:
        site = self.bare(tmp_path, **{"tools/run.py": b"a = 1\n"})
        (site / "vllm/tools/run.py").chmod(0o755)
        fix = AdHoc(
            id="fix",
            text=b"diff --git a/vllm/tools/run.py b/vllm/bin/go.py\nsimilarity index 100%\n"
            b"rename from vllm/tools/run.py\nrename to vllm/bin/go.py\n",
        )
        operations.apply(self.asked(site, fix))
        assert (site / "vllm/bin/go.py").stat().st_mode & 0o777 == 0o755
        operations.revert(self.asked(site))
        assert (site / "vllm/tools/run.py").stat().st_mode & 0o777 == 0o755

    def test_the_python_of_the_install_judges_its_syntax(self, tmp_path: Path) -> None:
        """A stand-in for another version: it takes what this one refuses, and refuses a 3."""
        site = self.bare(tmp_path, **{"foo.py": b"a = 1\n"})
        there = tmp_path / "python"
        says = """if grep -q 3; then echo '[[1, "no such number"]]'; else echo '[null]'; fi"""
        there.write_text(f"#!/bin/sh\nread sizes\n{says}\n")
        there.chmod(0o755)

        def apply(new: bytes) -> Report:
            text = b"--- a/vllm/foo.py\n+++ b/vllm/foo.py\n@@ -1 +1 @@\n-a = 1\n+%s\n" % new
            asked = self.asked(site, AdHoc(id="fix", text=text))
            return operations.apply(asked.replaced(python=str(there)))

        with pytest.raises(Refused) as caught:
            apply(b"a = 3")
        assert "would not compile: no such number" in caught.value.errors[0].what
        assert apply(b"a = = 2").wrote


@pytest.mark.parametrize("listed", [True, False])
def test_without_a_dist_info_only_what_can_come_out_goes_in(tmp_path: Path, listed: bool) -> None:
    """What a patch makes is no released file, so nothing would show from whom it is."""
    made = entry("made", patch(a05="50") + diff("new.py", None, b"x = 1\n"))
    folder = write_catalog(tmp_path / "catalog", entry("one", patch(b05="50")), made)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    lock = {
        "one": {"b.py": {"before": digests["b.py"], "after": None}},
        "made": {
            "a.py": {"before": digests["a.py"], "after": None},
            "new.py": {"before": None, "after": None},
        },
    }
    if listed:
        patches = {name: {"0.11.0": files} for name, files in lock.items()}
        (folder / "lock.json").write_text(json.dumps({"schema": 1, "patches": patches}))
    scene = make_scene(tmp_path, dist_info=False)
    before = scene.everything()
    with pytest.raises(Refused, match="without a dist-info, nothing would show that made is in"):
        operations.apply(request(scene, "made", assume_version="0.11.0"))
    asked = request(scene, "one", assume_version="0.11.0")
    if not listed:
        with pytest.raises(Refused, match="without a dist-info, nothing would show that one is in"):
            operations.apply(asked)
    else:
        operations.apply(asked)
        operations.revert(asked)
    assert scene.everything() == before


def test_without_a_home_for_the_receipt_what_is_in_must_show(tmp_path: Path) -> None:
    """A source tree with an edit: whatever goes in could not be told from the edit."""
    first = entry("one", patch(a05="50"))
    over = diff("a.py", changed(FILES["a.py"], a05="50"), changed(FILES["a.py"], a05="51"))
    write_catalog(tmp_path / "catalog", first, entry("two", over, requires=["one"]))
    scene = make_scene(tmp_path, dist_info=False)
    edited = FILES["a.py"] + b"# edited\n"
    (scene.package / "a.py").write_bytes(edited)
    with pytest.raises(Refused) as caught:
        operations.apply(request(scene, assume_version="0.11.0"))
    (error,) = caught.value.errors
    assert error.what == "without a dist-info, nothing would show that one and two are in"
    assert error.hint == "install vllm with pip or uv, so that it has a dist-info"
    assert (scene.package / "a.py").read_bytes() == edited
