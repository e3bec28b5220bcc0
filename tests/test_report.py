"""Reports and errors as text and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from scenes import entry, make_scene, patch, write_catalog
from vllm_patcher import assess, document, operations, report, visible
from vllm_patcher.errors import Conflict, InvalidPatch, VllmPatchError
from vllm_patcher.probes import Probe
from vllm_patcher.request import Request
from vllm_patcher.results import FileStatus, Refused, Report
from vllm_patcher.states import FAILING, SATISFYING, Reason

if TYPE_CHECKING:
    from scenes import Scene

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "docs" / "report.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    write_catalog(tmp_path / "catalog", entry("one", patch(a05="50")))
    return make_scene(tmp_path)


@pytest.fixture
def plain(scene: Scene) -> Report:
    """A report of one patch that is not in; tests change what they are about."""
    catalog = str(scene.root / "catalog")
    asked = Request(catalogs=(catalog,), builtin=False, site_packages=str(scene.site))
    return operations.verify(asked)


def with_one(plain: Report, **changes: Any) -> Report:
    (one,) = plain.patches
    return plain.replaced(patches=(one.replaced(**changes),))


def lines(found: Report, **options: Any) -> list[str]:
    """The lines below the first, which says which vLLM it is."""
    return list(report.text(found, **options))[1:]


def test_it_begins_with_which_vllm_it_is(plain: Report) -> None:
    first = next(report.text(plain))
    assert first == f"vllm 0.11.0  {plain.install.package}"
    nameless = plain.replaced(version="", install=plain.install.replaced(version=""))
    assert next(report.text(nameless)).startswith("vllm (no version)  ")


def test_where_names_other_copies_and_what_is_odd(plain: Report) -> None:
    other, note = "/y/vllm  0.9.2: not imported", "--python was not asked"
    install = plain.install.replaced(others=(other,), notes=(note,))
    shown = list(report.install_text(install, plain.version))
    assert shown[-2:] == [f"other      {other}", f"note       {note}"]


def test_an_assumed_version_is_never_shown_as_the_real_one(plain: Report) -> None:
    first = next(report.text(plain.replaced(version="0.12.0")))
    assert first.startswith("vllm 0.12.0 (assumed; it is 0.11.0)  ")


@pytest.mark.parametrize("state", sorted(SATISFYING | FAILING | {"unsupported"}))
def test_a_line_a_patch_with_one_coloured_word(plain: Report, state: str) -> None:
    seen: list[tuple[str, str]] = []

    def style(text: str, color: str) -> str:
        seen.append((text, color))
        return f"<{text}>"

    found = with_one(plain, state=state)
    assert lines(found, style=style) == [f"one {'.' * 28} <{state}>"]
    ((word, color),) = seen
    expected = "red" if state in FAILING else "green"
    assert (word, color) == (
        state,
        {"present": "yellow", "unsupported": "yellow"}.get(state, expected),
    )


def test_the_words_stand_in_one_column(plain: Report) -> None:
    (one,) = plain.patches
    found = plain.replaced(patches=(one, one.replaced(id="i" * 40)))
    assert lines(found) == [f"one {'.' * 41} not-applied", f"{'i' * 40} .... not-applied"]


def test_a_reason_has_its_place_and_the_lines(plain: Report) -> None:
    why = Reason(what="no place", path="a.py", line=7, expected=b"  x\n", found=None)
    found = with_one(
        plain, state="conflict", reasons=(why, Reason(what="other"), Reason("x", "b.py"))
    )
    assert lines(found)[1:] == [
        "  vllm/a.py:7  no place",
        "      expected    x",
        "      found     (end of file)",
        "  other",
        "  vllm/b.py  x",
    ]


def test_what_is_clean_needs_no_words(plain: Report) -> None:
    assert len(lines(with_one(plain, state="applied"))) == 1
    odd = with_one(plain, state="applied", reasons=(Reason(what="x, which is in, does the same"),))
    assert lines(odd)[-1] == "  x, which is in, does the same"


def test_moved_hunks_and_digests_are_for_the_verbose(plain: Report) -> None:
    found = with_one(plain, files={"a.py": (0, 3, -2), "b.py": ()})
    before, after = plain.files[0].before, plain.files[0].after
    assert len(lines(found)) == 1
    assert lines(found, verbose=True)[1:] == [
        "  vllm/a.py  hunk 2 moved +3 lines, hunk 3 moved -2 lines",
        "  vllm/b.py",
        f"vllm/a.py  pristine  sha256 {before}",
        f"vllm/a.py  would become  sha256 {after}",
    ]
    assert f"vllm/a.py  became  sha256 {after}" in lines(found.replaced(wrote=True), verbose=True)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("pristine", ""),
        ("patched", ""),
        ("unrecorded", ""),
        ("modified", "vllm/a.py  modified: it is not what was released plus known patches"),
        ("missing", "vllm/a.py  missing: it was released and is not there"),
    ],
)
def test_a_file_that_is_not_clean_is_told(plain: Report, state: str, said: str) -> None:
    file = FileStatus(path="a.py", state=state, before=None, after=None, patches=())
    assert lines(plain.replaced(files=(file,)))[1:] == ([said] if said else [])


def test_a_modified_file_is_told_once(plain: Report) -> None:
    file = FileStatus(path="a.py", state="modified", before=None, after=None, patches=())
    found = with_one(plain, state="conflict", reasons=(Reason(what="no place", path="a.py"),))
    assert lines(found.replaced(files=(file,)))[1:] == ["  vllm/a.py  no place"]


@pytest.mark.parametrize(
    ("answer", "line", "shown"),
    [
        ("absent", "fault absent: five lives", "fault absent: five lives"),
        ("absent", "all is well", "fault absent: all is well"),
        ("present", "fault present: KeyError", "fault present: KeyError"),
        ("present", "oh", "fault present: oh"),
        ("unknown", "can't tell: no gpu", "can't tell: no gpu"),
        ("unknown", "no gpu", "can't tell: no gpu"),
        ("present", "fault absent: a lie", "fault present: fault absent: a lie"),
    ],
)
def test_what_a_probe_says_is_said_once(plain: Report, answer: str, line: str, shown: str) -> None:
    found = with_one(plain, probe=Probe(answer=answer, line=line))
    assert lines(found)[1:] == [f"  probe: {shown}"]


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"verb": "apply", "wrote": True}, "restart running vLLM processes"),
        ({"verb": "revert", "wrote": True}, "restart running vLLM processes"),
        (
            {"verb": "apply", "wrote": True, "edits": ()},
            "no source was changed: what is in is recorded now, and no old bytecode hides it",
        ),
        ({"verb": "apply", "edits": ()}, "nothing had to be changed"),
        ({"verb": "revert", "edits": ()}, "nothing to revert"),
        ({"verb": "preview"}, "nothing was written; 1 file would be changed:"),
        ({"verb": "preview", "edits": ()}, "nothing was written; no files would be changed"),
        ({"verb": "apply", "patches": (), "edits": ()}, "nothing to do for vLLM 0.11.0"),
        ({"verb": "verify", "patches": (), "edits": ()}, "nothing to do for vLLM 0.11.0"),
        ({"verb": "preview", "patches": (), "edits": ()}, "nothing to do for vLLM 0.11.0"),
        (
            {"verb": "apply", "patches": (), "edits": (), "version": ""},
            "nothing to do for vLLM of unknown version",
        ),
        ({"verb": "verify", "passed_over": 1}, "1 patch is not needed for this version"),
        ({"verb": "verify", "passed_over": 2}, "2 patches are not needed for this version"),
    ],
)
def test_how_it_ended(plain: Report, changes: dict[str, Any], last: str) -> None:
    assert lines(plain.replaced(**changes))[-1] == last
    assert last not in lines(plain.replaced(**changes), refused=True)


def test_all_was_in_already(plain: Report) -> None:
    found = with_one(plain, state="applied").replaced(verb="apply", edits=())
    assert lines(found)[-1] == "nothing was changed: all was in already"


def test_what_was_reverted_is_called_so(plain: Report) -> None:
    found = with_one(plain, state="not-applied", was="applied").replaced(verb="revert", wrote=True)
    assert lines(found)[0].endswith(" reverted")
    assert lines(with_one(plain).replaced(verb="revert"))[0].endswith(" not-applied")


def test_bytecode_and_shadows_are_told_unless_they_are_errors(plain: Report) -> None:
    found = plain.replaced(verb="status", hiding=("/p/a.pyc",), shadowing=("/p/a.so",))
    assert lines(found)[1:] == [
        "/p/a.pyc: old bytecode that Python would run in place of the patched source",
        "/p/a.so: Python takes this before the patched source",
    ]
    assert len(lines(found.replaced(verb="verify"))) == 1


def test_what_is_unsupported_is_a_warning_unless_it_fails(plain: Report) -> None:
    why = (Reason(what="no variant for vLLM 0.11.0"),)
    found = with_one(plain, state="unsupported", fails=False, reasons=why)
    assert list(report.warnings(found)) == ["one is unsupported: no variant for vLLM 0.11.0"]
    assert list(report.warnings(with_one(found, fails=True))) == []
    both = found.replaced(patches=(*found.patches, found.patches[0].replaced(id="two")))
    said = "one, two are unsupported: no variant for vLLM 0.11.0"
    assert list(report.warnings(both)) == [said]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"x = 1\n", "x = 1"),
        (b"\tx\n", "\\tx"),
        (b"x\r\n", "x\\r"),
        (b"x  \n", "x\N{MIDDLE DOT}\N{MIDDLE DOT}"),
        (b"x", "x  (no newline at the end)"),
        (b"caf\xc3\xa9\n", "caf\u00e9"),
        (b"caf\xe9\n", "caf\\xe9"),
        (b"\x1b[31m\n", "\\u001b[31m"),
        (b"a\xe2\x80\xaeb\n", "a\\u202eb"),
        (b"x" * 201 + b"\n", "x" * 200 + "\N{HORIZONTAL ELLIPSIS}"),
        (b"\n", ""),
    ],
)
def test_what_can_not_be_seen_is_made_visible(line: bytes, shown: str) -> None:
    assert visible.line(line) == shown


def test_an_error_is_what_facts_and_hint() -> None:
    error = InvalidPatch("it is bad", facts=["here", "there"], hint="vllm-patch list")
    assert list(report.error_text(error)) == [
        "error: it is bad",
        "  here",
        "  there",
        "hint: vllm-patch list",
    ]
    assert list(report.error_text(VllmPatchError("bad"), style=lambda t, c: f"<{c} {t}>")) == [
        "<red error>: bad"
    ]
    shown = report.error_text(error, hint=lambda hint: f"{hint} --catalog x")
    assert list(shown)[-1] == "hint: vllm-patch list --catalog x"


def test_a_refusal_says_what_its_report_does_not(plain: Report) -> None:
    found = with_one(plain, state="conflict", reasons=(Reason(what="no place"),))
    error = Refused(
        "1 of 2 patches can't be applied; nothing was changed",
        errors=[
            Conflict("one is conflict", facts=["no place"], patch="one"),
            Conflict("it would not compile", facts=["vllm/a.py:3"]),
            Conflict("it has no home", patch="two"),
        ],
        report=found,
        hint="do this",
    )
    assert list(report.error_text(error)) == [
        "error: it would not compile",
        "  vllm/a.py:3",
        "error: it has no home",
        "error: 1 of 2 patches can't be applied; nothing was changed",
        "hint: do this",
    ]
    body = document.of_report("apply", None, error)
    assert [(one["code"], one["patch"]) for one in body["errors"]] == [
        ("conflict", "one"),
        ("conflict", None),
        ("conflict", "two"),
    ]
    assert body["patches"][0]["reasons"][0]["what"] == "no place"


@pytest.mark.parametrize(("ids", "total", "said"), [(["x"], 1, "x"), (["x"], 3, "1 of 3 patches")])
def test_how_many(ids: list[str], total: int, said: str) -> None:
    assert assess.counted(ids, total) == said


def test_all_failures_are_told_at_once(plain: Report) -> None:
    (one,) = plain.patches
    file = FileStatus(path="a.py", state="missing", before=None, after=None, patches=())
    found = assess.judged(
        plain.replaced(
            patches=(one, one.replaced(id="b", fails=False, probe=Probe("present", "oh"))),
            files=(file,),
            hiding=("/p/a.pyc",),
            shadowing=("/p/a.so",),
            strict=True,
        )
    )
    assert [failure.code for failure in found.failures] == [
        "patch-not-in",
        "stale-bytecode",
        "shadowed-source",
        "probe-failed",
        "modified-file",
    ]
    assert not found.ok


class TestJson:
    def test_the_schema_is_one(self) -> None:
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_a_report(self, plain: Report) -> None:
        body = document.of_report("verify", plain)
        jsonschema.validate(body, SCHEMA)
        assert (body["schema"], body["verb"], body["ok"]) == (1, "verify", False)
        assert [error["code"] for error in body["errors"]] == ["patch-not-in"]
        assert document.of_report("status", plain)["ok"]

    def test_every_field_filled(self, plain: Report) -> None:
        reasons = (
            Reason("x", "a.py", 3, b"e\n", b"f\n"),
            Reason("y"),
            Reason("z", "b.py", 1, b"e"),
        )
        probe = Probe("unknown", "no gpu")
        found = with_one(plain, reasons=reasons, probe=probe, files={"a.py": (0, -3)})
        found = found.replaced(hiding=("x",), shadowing=("y",), notes=("z",))
        body = document.of_report("apply", found, diff=b"caf\xe9")
        jsonschema.validate(body, SCHEMA)
        assert body["diff"] == "caf\\xe9"
        assert body["patches"][0]["reasons"][0] == {
            "what": "x",
            "path": "a.py",
            "line": 3,
            "expected": "e",
            "found": "f",
        }
        assert body["patches"][0]["reasons"][2]["found"] is None
        assert body["patches"][0]["files"] == [{"path": "a.py", "offsets": [0, -3]}]
        assert body["patches"][0]["probe"] == {"fault": "unknown", "says": "no gpu"}

    def test_an_error_alone(self) -> None:
        error = InvalidPatch("bad", facts=["x:1"], hint="vllm-patch list", patch="one")
        body = document.of_report("apply", None, error, hint=str.upper)
        jsonschema.validate(body, SCHEMA)
        assert body == {
            "schema": 1,
            "verb": "apply",
            "ok": False,
            "host": os.uname().nodename,
            "errors": [
                {
                    "code": "invalid-patch",
                    "what": "bad",
                    "facts": ["x:1"],
                    "hint": "VLLM-PATCH LIST",
                    "patch": "one",
                }
            ],
        }

    def test_no_key_goes_unchecked(self, plain: Report) -> None:
        body = document.of_report("verify", plain)
        for changed in ({**body, "more": 1}, {k: v for k, v in body.items() if k != "files"}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(changed, SCHEMA)

    def test_states_are_those_of_the_program(self) -> None:
        known = SCHEMA["$defs"]["patch"]["properties"]["state"]["enum"]
        assert set(known) == SATISFYING | FAILING | {"unsupported"}
