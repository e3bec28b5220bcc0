"""The command line: verbs, options, exit codes, output.

What an exit code or a stream is about is shown by processes of their own. The transcripts in
`data/cli` show what a user sees; VLLM_PATCHER_REWRITE=1 writes them anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import pkgutil
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import jsonschema
import pytest

import difftools
import scenes
import vllm_patcher
from fakes import folder_for_all
from scenes import (
    DATA,
    FILES,
    STATS_TEXT,
    Scene,
    changed,
    command,
    diff,
    entry,
    environ,
    make_scene,
    patch,
    process,
    run,
    write_catalog,
)
from vllm_patcher import __version__, cli, operations
from vllm_patcher.cli import hints, shell
from vllm_patcher.cli.common import Common

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scenes import Ran

VERBS = ("apply", "verify", "revert", "status", "list", "show", "diff", "where")
CHOOSING = "--id --skip-outside --kind --cve"
RAY = "--ray --ray-timeout --skip-without-vllm"
ALL_VERBS = (*VERBS, "check", "fit", "merge-reports", "completion")
IDS = ("lora-finish-request", "lora-waiting-leak")
SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "docs" / "report.schema.json").read_text(encoding="utf-8")
)
ONE, TWO = entry("one", patch(a05="50")), entry("two", patch(b05="50"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


def checked(ran: Ran) -> dict[str, Any]:
    """The JSON of a run, which is as the schema says."""
    jsonschema.validate(ran.json, SCHEMA)
    assert ran.json["ok"] is (ran.code == 0)
    return ran.json


def command_of(verb: str) -> click.Command:
    """The command of a verb, as the group gives it."""
    found = cli.vllm_patch.get_command(click.Context(cli.vllm_patch), verb)
    assert found is not None
    return found


def word(ran: Ran, name: str) -> str:
    """The state that is shown for a patch."""
    (found,) = re.findall(rf"^{re.escape(name)} \.+ (\S+)$", ran.out, re.MULTILINE)
    return str(found)


class TestExitCodes:
    def test_0_the_state_is_as_asked(self, scene: Scene) -> None:
        assert process("apply", *scene.at).code == 0
        assert process("verify", *scene.at).code == 0
        assert process("status", *scene.at).code == 0
        assert process("revert", *scene.at).code == 0
        assert process("revert", *scene.at).code == 0

    def test_1_it_is_not(self, scene: Scene) -> None:
        ran = process("verify", *scene.at)
        assert ran.code == 1
        assert "error: 2 of 2 patches are not applied" in ran.err
        assert process("status", *scene.at).code == 0

    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["apply", "--nonsense"],
            ["apply", "--format", "xml"],
            ["apply", "-"],
            ["apply", "a.patch", "b.patch", "--id", "x"],
            ["apply", "x", "--kind", "leak"],
            ["apply", "--kind", "nonsense"],
            ["verify", "--python", "a", "--python", "b", "--site-packages", "c"],
            ["show"],
            ["list", "extra"],
        ],
        ids=shlex.join,
    )
    def test_2_usage(self, arguments: list[str]) -> None:
        ran = process(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("Usage: vllm-patch")

    def test_2_an_unknown_id(self, scene: Scene) -> None:
        ran = process("apply", "lora-finish-requests", *scene.at)
        assert ran.code == 2
        assert "did you mean lora-finish-request?" in ran.err

    def test_2_no_verb_at_all(self) -> None:
        ran = process()
        assert (ran.code, ran.out) == (2, "")
        assert "verify" in ran.err

    def test_3_refused(self, scene: Scene) -> None:
        scene.stats.write_bytes(STATS_TEXT.replace(b"running_requests.remove(req", b"gone(req"))
        before = scene.everything()
        ran = process("apply", *scene.at)
        assert ran.code == 3
        assert "nothing was changed" in ran.err
        assert scene.everything() == before
        assert process("apply", "--dry-run", *scene.at).code == 3

    def test_3_no_vllm(self, tmp_path: Path) -> None:
        ran = process("apply", "--site-packages", tmp_path)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: ")

    def test_3_what_the_system_refuses(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", "/x/y")

        monkeypatch.setattr(operations, "survey", refuse)
        ran = scene.run("verify")
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == "error: /x/y: Permission denied\n"
        assert checked(scene.run("verify", "--json"))["errors"][0]["code"] == "refused"

    def test_3_what_click_can_not_open(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise click.FileError("x.patch", "it is gone")

        monkeypatch.setattr(operations, "verify", fail)
        ran = scene.run("verify")
        assert (ran.code, ran.out) == (3, "")
        assert "x.patch" in ran.err
        assert "it is gone" in ran.err

    def test_4_a_bug(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(operations, "verify", fail)
        ran = scene.run("verify")
        assert ran.code == 4
        assert "Traceback (most recent call last):" in ran.err
        assert f"this is a bug in vllm-patch {__version__}; please report it" in ran.err

    def test_130_interrupted_by_a_signal(self, scene: Scene, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        source = f"open({str(ready)!r}, 'w').close(); import time; time.sleep(600)"
        catalog = scene.catalog({**ONE, "probe": source})
        # A shell that runs this in the background ignores the signal, and children inherit that.
        heeding = (
            "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        verify = command("verify", "--probe", *catalog, *scene.at)
        running = subprocess.Popen(
            [sys.executable, "-c", heeding, *verify],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ(),
        )
        with running:
            while not ready.exists() and running.poll() is None:
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
        assert running.returncode == 130
        assert err.decode().strip() == "error: interrupted"

    def test_what_is_done_is_told_whatever_the_signal(self, scene: Scene) -> None:
        """The reader is slow, the change is made: Ctrl-C must not call it interrupted."""
        fix = scene.diff_file("fix.patch", patch(a05="50"))
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b" " * 65536)
        os.set_blocking(writer, True)
        running = subprocess.Popen(
            command("apply", "--no-builtin", fix, *scene.at), stdout=writer, env=environ()
        )
        os.close(writer)
        wanted = changed(FILES["a.py"], a05="50")
        while (scene.package / "a.py").read_bytes() != wanted and running.poll() is None:
            time.sleep(0.01)
        time.sleep(0.5)  # for what is left to do behind the file, and the first line
        running.send_signal(signal.SIGINT)
        with os.fdopen(reader, "rb") as stream:
            told = stream.read()
        assert running.wait(timeout=60) == 0
        assert b"fix ............................ applied" in told

    @pytest.mark.parametrize("verb", ALL_VERBS)
    def test_2_a_value_that_is_empty(self, verb: str) -> None:
        """An unset variable in a script. The current folder, or all, would be taken for it."""
        context = click.Context(command_of(verb))
        for param in context.command.params:
            if not getattr(param, "is_flag", False):
                option = [param.opts[-1]] if isinstance(param, click.Option) else []
                required = ["x"] if option and verb in {"show", "check", "merge-reports"} else []
                ran = run(verb, *required, *option, "")
                assert (ran.code, ran.out) == (2, "")
                assert ran.err.startswith(f"Usage: vllm-patch {verb} ")
                assert f"\nError: Invalid value for {param.get_error_hint(context)}: " in ran.err

    def test_2_a_value_that_is_empty_among_others(self, scene: Scene) -> None:
        ran = scene.run("verify", IDS[0], "")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith("Error: Invalid value for '[PATCH]...': it is empty\n")
        ran = scene.run("status", "--catalog", "a", "--catalog", "")
        assert ran.err.endswith("Error: Invalid value for '--catalog': it is empty\n")


class TestStreams:
    @pytest.mark.parametrize(
        ("arguments", "code"),
        [(["verify"], 1), (["status"], 0), (["apply", "--dry-run"], 0), (["verify", "--json"], 1)],
        ids=lambda value: shlex.join(value) if isinstance(value, list) else "",
    )
    @pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
    def test_a_closed_pipe_keeps_the_verdict(
        self, scene: Scene, arguments: list[str], code: int, *, both: bool
    ) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as closed:
            done = subprocess.run(
                command(*arguments, *scene.at),
                check=False,
                stdout=closed,
                stderr=subprocess.STDOUT if both else subprocess.PIPE,
                env=environ(),
            )
        assert done.returncode == code
        assert b"Traceback" not in (done.stderr or b"")
        assert b"Broken pipe" not in (done.stderr or b"")

    def test_a_pipe_that_ends_after_one_line(self, scene: Scene) -> None:
        line = shlex.join(command("verify", *scene.at))
        script = f"{line} 2>/dev/null | head -n 1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], check=True, capture_output=True, env=environ()
        )
        first, code = done.stdout.decode().splitlines()
        assert first.startswith("vllm 0.11.0")
        assert code == "1"

    @pytest.mark.parametrize("arguments", [["--help"], ["apply", "--help"], ["--version"]])
    def test_help_to_a_closed_pipe(self, arguments: list[str]) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as closed:
            done = subprocess.run(
                command(*arguments),
                check=False,
                stdout=closed,
                stderr=subprocess.PIPE,
                env=environ(),
            )
        assert (done.returncode, done.stderr) == (0, b"")

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["verify"], 1),
            (["status"], 3),
            (["diff"], 3),
            (["where"], 3),
            (["apply", "--dry-run"], 3),
            (["apply", "nope"], 2),
            (["apply"], 0),
        ],
        ids=lambda value: shlex.join(value) if isinstance(value, list) else "",
    )
    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
    def test_an_output_that_can_not_be_written_is_said(
        self, scene: Scene, arguments: list[str], code: int
    ) -> None:
        operations.apply(scene_request(scene, "lora-finish-request"))
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                command(*arguments, *scene.at),
                check=False,
                stdout=full,
                stderr=subprocess.PIPE,
                env=environ(),
            )
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        if arguments[-1] != "nope":
            assert b"error: standard output can't be written: No space left" in done.stderr

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
    def test_help_that_can_not_be_written(self) -> None:
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                command("--help"), check=False, stdout=full, stderr=subprocess.PIPE, env=environ()
            )
        assert done.returncode == 3
        assert done.stderr == b"error: No space left on device\n"

    @pytest.mark.parametrize(
        ("redirections", "code"), [(">&-", 1), (">&- 2>&-", 1), ("2>&-", 1), ("<&-", 1)]
    )
    def test_closed_streams(self, scene: Scene, redirections: str, code: int) -> None:
        line = shlex.join(command("verify", *scene.at))
        done = subprocess.run(
            ["bash", "-c", f"{line} {redirections}"],
            check=False,
            capture_output=True,
            env=environ(),
        )
        assert done.returncode == code
        assert b"Traceback" not in done.stderr

    def test_no_standard_input_to_read_a_diff_from(self, scene: Scene) -> None:
        line = shlex.join(command("apply", "-", "--id", "x", *scene.at))
        done = subprocess.run(
            ["bash", "-c", f"{line} <&-"], check=False, capture_output=True, env=environ()
        )
        assert done.returncode == 2
        assert b"standard input is closed" in done.stderr

    def test_results_and_diagnostics_go_apart(self, scene: Scene) -> None:
        ran = scene.run("verify")
        assert ran.out.startswith("vllm 0.11.0  ")
        assert ran.err.startswith("error: ")
        assert "error" not in ran.out

    def test_a_terminal_that_has_not_all_letters(self, scene: Scene) -> None:
        catalog = scene.catalog({**ONE, "title": "d\u00e9j\u00e0 \u2192 vu"})
        ran = process("list", *catalog, env=environ(PYTHONIOENCODING="ascii"))
        assert ran.code == 0
        assert ran.out.endswith("  d\\xe9j\\xe0 \\u2192 vu\n")

    def test_nothing_reaches_the_terminal_that_moves_it(self, tmp_path: Path) -> None:
        ran = run("where", "--site-packages", tmp_path / "\x1b]0;title\x07\r\x1b[2J")
        assert ran.code == 3
        assert "\\x1b]0;title\\x07\\x0d\\x1b[2J" in ran.err
        assert not set(ran.err) & {"\x1b", "\x07", "\r"}


class TestColor:
    @pytest.mark.parametrize(
        ("arguments", "environment", "colored"),
        [
            ([], {}, False),
            (["--color", "always"], {}, True),
            ([], {"FORCE_COLOR": "1"}, True),
            ([], {"FORCE_COLOR": ""}, False),
            ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
            (["--color", "always"], {"NO_COLOR": "1"}, True),
            (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        ],
    )
    def test_where_there_is_no_terminal(
        self,
        scene: Scene,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        environment: dict[str, str],
        *,
        colored: bool,
    ) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        ran = scene.run("verify", *arguments)
        assert ("\x1b[31mnot-applied\x1b[0m" in ran.out) is colored
        assert ("\x1b[31merror\x1b[0m: " in ran.err) is colored
        assert re.sub(r"\x1b\[[0-9;]*m", "", ran.out) == scene.run("verify", "--color", "never").out

    @pytest.mark.parametrize(
        ("environment", "colored"),
        [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
    )
    def test_on_a_terminal(
        self, scene: Scene, environment: dict[str, str], *, colored: bool
    ) -> None:
        main, end = pty.openpty()
        try:
            subprocess.run(
                command("verify", *scene.at),
                check=False,
                stdout=end,
                stderr=subprocess.DEVNULL,
                env=environ(TERM="xterm") | environment,
            )
            out = os.read(main, 100_000)
        finally:
            os.close(main)
            os.close(end)
        assert (b"\x1b[31mnot-applied" in out) is colored

    def test_json_has_none(self, scene: Scene) -> None:
        assert "\\u001b" not in scene.run("verify", "--json", "--color", "always").out


class TestQuietAndVerbose:
    def test_quiet_leaves_errors_and_exit_codes(self, scene: Scene) -> None:
        ran = scene.run("verify", "-q")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("error: 2 of 2 patches are not applied")
        assert scene.run("apply", "-q") == scenes.Ran(code=0, out="", err="")

    @pytest.mark.parametrize("verb", ["status", "diff", "where"])
    def test_quiet_means_quiet(self, scene: Scene, verb: str) -> None:
        scene.run("apply")
        assert scene.run(verb, "--quiet").out == ""
        assert run("list", "-q").out == run("show", IDS[0], "-q").out == ""

    def test_quiet_leaves_warnings(self, tmp_path: Path) -> None:
        scene = make_scene(tmp_path, version="dev")
        ran = scene.run("verify", "-q")
        assert ran.out == ""
        assert ran.err.startswith(
            "warning: lora-finish-request, lora-waiting-leak are unsupported: "
        )

    def test_quiet_leaves_what_json_was_asked_for(self, scene: Scene) -> None:
        assert checked(scene.run("verify", "-q", "--json"))

    def test_notes_are_for_people(self, scene: Scene) -> None:
        os.link(scene.stats, scene.root / "x")
        scene.stats.write_bytes(STATS_TEXT + b"# more\n")
        assert "note: " in scene.run("verify").err
        assert "note: " not in scene.run("verify", "-q").err
        ran = scene.run("verify", "--json")
        assert ran.err == ""
        assert checked(ran)["notes"]

    def test_verbose_has_files_and_digests(self, scene: Scene) -> None:
        out = scene.run("apply", "-v").out
        assert "  vllm/v1/metrics/stats.py  hunk 1 moved" in out
        assert re.search(r"vllm/v1/metrics/stats.py  pristine  sha256 [0-9a-f]{64}\n", out)
        assert re.search(r"vllm/v1/metrics/stats.py  became  sha256 [0-9a-f]{64}\n", out)


class TestJson:
    def test_every_verb_on_success_and_on_error(self, scene: Scene, tmp_path: Path) -> None:
        nothing = ("--site-packages", str(tmp_path / "nothing"))
        for verb in VERBS:
            names = [IDS[0]] if verb == "show" else []
            found = checked(run(verb, *names, "--json", *(() if verb == "list" else scene.at)))
            assert (found["schema"], found["verb"]) == (1, verb)
            if verb not in {"list", "show"}:
                failed = checked(run(verb, *names, "--format", "json", *nothing))
                assert failed["verb"] == verb
                assert [error["code"] for error in failed["errors"]] == ["no-vllm"]

    @pytest.mark.parametrize(
        ("arguments", "code", "error"),
        [
            (["show", "nope"], 2, "unknown-patch"),
            (["list", "--catalog", "/nope"], 3, "invalid-catalog"),
            (["list", "--for", "dev"], 3, "unsupported-version"),
            (["show", IDS[0], "--for", "0.12.0"], 3, "unsupported-version"),
        ],
        ids=lambda value: shlex.join(value) if isinstance(value, list) else "",
    )
    def test_errors_of_verbs_that_need_no_vllm(
        self, arguments: list[str], code: int, error: str
    ) -> None:
        ran = run(*arguments, "--json")
        assert ran.code == code
        assert checked(ran)["errors"][0]["code"] == error
        assert ran.err == ""

    def test_a_run_that_is_refused_has_both(self, scene: Scene) -> None:
        scene.stats.write_bytes(STATS_TEXT.replace(b"running_requests.remove(req", b"gone(req"))
        ran = scene.run("apply", "--json")
        found = checked(ran)
        assert ran.code == 3
        assert [one["code"] for one in found["errors"]] == ["conflict"] * len(found["errors"])
        assert {one["state"] for one in found["patches"]} <= {"conflict", "blocked"}
        assert found["wrote"] is False

    def test_a_change_has_before_and_after(self, scene: Scene) -> None:
        found = checked(scene.run("apply", "--json"))
        (file,) = found["files"]
        assert (file["state"], found["wrote"], found["edits"]) == (
            "pristine",
            True,
            ["v1/metrics/stats.py"],
        )
        assert [(one["was"], one["state"]) for one in found["patches"]] == [
            ("not-applied", "applied")
        ] * 2
        again = checked(scene.run("verify", "--json"))["files"][0]
        assert (again["state"], again["sha256_before"]) == ("patched", file["sha256_after"])
        gone = checked(scene.run("revert", "--json"))
        assert [(one["was"], one["state"]) for one in gone["patches"]] == [
            ("applied", "not-applied")
        ] * 2

    def test_diffs_are_in_it_where_they_are_the_answer(self, scene: Scene) -> None:
        would = checked(scene.run("apply", "--dry-run", "--json"))
        assert would["wrote"] is False
        scene.run("apply")
        assert checked(scene.run("diff", "--json"))["diff"] == would["diff"]
        assert "diff" not in checked(scene.run("verify", "--json"))

    def test_several_installs_are_a_line_each(self, tmp_path: Path) -> None:
        pythons = [option for name in "xy" for option in ("--python", tmp_path / name)]
        ran = run("verify", "--json", *pythons)
        found = [json.loads(line) for line in ran.out.splitlines()]
        for one in found:
            jsonschema.validate(one, SCHEMA)
        assert len(found) == 2

    def test_probes(self, scene: Scene) -> None:
        found = checked(scene.run("verify", "--probe", "--json"))
        assert [one["probe"]["fault"] for one in found["patches"]] == ["present", "present"]


class TestHelp:
    @pytest.mark.parametrize("verb", ALL_VERBS)
    def test_every_verb_and_option_is_explained(self, verb: str) -> None:
        ran = run(verb, "--help")
        assert (ran.code, ran.err) == (0, "")
        undocumented = [
            option.name
            for option in command_of(verb).params
            if isinstance(option, click.Option) and not option.help
        ]
        assert undocumented == []

    @pytest.mark.parametrize("verb", ALL_VERBS)
    def test_a_wrong_option_leads_to_the_help(self, verb: str) -> None:
        ran = run(verb, "--nonsense")
        # Older releases of click name the first of the two options.
        assert ran.code == 2
        assert re.search(f"Try 'vllm-patch {verb} (--help|-h)' for help", ran.err)

    def test_examples_stand_on_lines_of_their_own(self) -> None:
        assert (
            "\n  vllm-patch apply\n  vllm-patch apply lora-finish-request\n"
            in run("apply", "-h").out
        )
        assert "\n  In CI:            vllm-patch verify\n" in run("-h").out

    def test_a_verb_loads_no_other(self) -> None:
        code = (
            "import sys; from vllm_patcher import cli; cli.run(['list', '-q']); print(*sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environ()
        )
        loaded = {
            name for name in done.stdout.split() if name.startswith("vllm_patcher.cli.verbs.")
        }
        assert {name.rpartition(".")[2] for name in loaded} & set(VERBS) == {"list"}

    def test_the_verbs_are_listed_in_order(self) -> None:
        out = run("-h").out
        assert tuple(re.findall(r"^  ([a-z][a-z-]*) {2,}\S", out, re.MULTILINE)) == ALL_VERBS

    def test_a_terminal_of_80_columns_has_the_whole_of_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        lines = run("-h").out.partition("Commands:\n")[2].splitlines()
        assert [line for line in lines if not re.search(r"[^.]\.$", line)] == []
        assert len(lines) == len(ALL_VERBS)

    def test_the_version(self) -> None:
        assert process("--version").out == f"vllm-patch {__version__}\n"

    @pytest.mark.parametrize(
        ("verb", "expected"),
        [
            (
                "apply",
                f"--dry-run --exact {CHOOSING} --no-config --allow-editable {RAY} --keep-going",
            ),
            ("verify", f"--strict --probe {CHOOSING} --no-config {RAY}"),
            ("revert", f"--with-dependents --id --skip-outside {RAY} --keep-going"),
            ("show", "--diff --for"),
        ],
    )
    def test_the_options_are_those_of_the_design(self, verb: str, expected: str) -> None:
        common = "--python --site-packages --assume-version --catalog --no-builtin"
        show = "--format --json --color --quiet --verbose"
        known = {name for option in command_of(verb).params for name in option.opts}
        assert {name for name in known if name.startswith("--")} == set(
            f"{expected} {common} {show}".split()
        )


def listed(*arguments: str | Path) -> list[str]:
    """The ids that `list` gives."""
    return [patch["id"] for patch in run("list", *arguments, "--json").json["catalog"]]


class TestCatalogs:
    def test_named_beside_the_built_in_or_instead(self, scene: Scene) -> None:
        folder = write_catalog(scene.root / "c", ONE)
        assert listed("--catalog", folder) == [*IDS, "one"]
        assert listed("--catalog", folder, "--no-builtin") == ["one"]
        assert run("list", "--no-builtin").out == "the catalog is empty\n"

    def test_named_by_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = write_catalog(tmp_path / "1", ONE), write_catalog(tmp_path / "2", TWO)
        monkeypatch.setenv("VLLM_PATCH_CATALOG", f"{first}{os.pathsep}{second}")
        assert listed() == [*IDS, "one", "two"]
        # What is said on the command line counts.
        assert listed("--no-builtin", "--catalog", second) == ["two"]
        monkeypatch.setenv("VLLM_PATCH_CATALOG", "")
        assert listed() == [*IDS]

    def test_one_id_in_two(self, tmp_path: Path) -> None:
        folders = [write_catalog(tmp_path / name, ONE) for name in "xy"]
        ran = run("list", "--catalog", folders[0], "--catalog", folders[1])
        assert ran.code == 3
        assert f"{folders[1]}/manifest.toml: patch 'one': also in {folders[0]}" in ran.err

    def test_list_needs_no_vllm_and_no_lock(self, tmp_path: Path) -> None:
        folder = write_catalog(tmp_path / "c", ONE)
        (folder / "lock.json").write_text("{")
        assert run("list", "--no-builtin", "--catalog", folder).code == 0
        assert run("show", "one", "--no-builtin", "--catalog", folder).code == 0

    def test_am_i_affected(self) -> None:
        ran = run("list", "--for", "0.11.0+cu129")
        assert ran.out.endswith("vLLM 0.11.0+cu129 is affected by 2 of 2\n")
        assert run("list", "--for", "0.12.0").out.endswith("vLLM 0.12.0 is affected by 0 of 2\n")


class TestShow:
    def test_only_the_diff_is_the_diff_to_the_byte(self, scene: Scene) -> None:
        text = patch(a05="'caf\u00e9'").replace("\u00e9".encode(), b"\xe9")
        write_catalog(scene.root / "c", entry("latin", text))
        done = subprocess.run(
            command("show", "latin", "--diff", "--catalog", scene.root / "c"),
            check=True,
            capture_output=True,
            env=environ(),
        )
        assert done.stdout == text

    def test_several_diffs_need_a_version(self, tmp_path: Path) -> None:
        pair = [(">=0.8.0,<0.10", patch(a05="50")), (">=0.10,<0.11.1", patch(a05="51"))]
        catalog = ("--catalog", write_catalog(tmp_path, entry("x", b"", variants=pair)))
        assert run("show", "x", *catalog).out.count("diff for    ") == 2
        assert run("show", "x", "--for", "0.11.0", *catalog).out.count("diff for    ") == 1
        ran = run("show", "x", "--diff", *catalog)
        assert (ran.code, ran.out) == (3, "")
        assert run("show", "x", "--diff", "--for", "0.9.2", *catalog).out == pair[0][1].decode()
        here = make_scene(tmp_path / "other").run("show", "x", "--diff", *catalog)
        assert (here.out, here.err) == (
            pair[1][1].decode(),
            "note: the diff for vLLM 0.11.0\n",
        )

    def test_what_was_applied_is_shown_from_the_receipt(self, scene: Scene) -> None:
        fix = scene.diff_file("fix.patch", patch(a05="50"))
        scene.run("apply", fix)
        fix.unlink()
        assert scene.run("show", "fix", "--diff").out == patch(a05="50").decode()
        assert scene.run("show", "fix").out.startswith("diff as it was applied\ndiff --git ")
        assert checked(scene.run("show", "fix", "--json"))["entry"] is None

    def test_an_unknown_id_is_usage_with_and_without_a_vllm(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        assert scene.run("show", "nope").code == 2
        ran = run("show", "nope", "--site-packages", tmp_path / "nothing")
        assert ran.code == 2
        assert "there is no vllm in" in ran.err

    def test_what_may_be_meant_by_an_unknown_id(self, scene: Scene, tmp_path: Path) -> None:
        scene.run("apply", scene.diff_file("my-fix.patch", patch(a05="50")))
        assert f"\n  did you mean {IDS[0]}?\n" in scene.run("show", f"{IDS[0]}s").err
        assert "\n  did you mean my-fix?\n" in scene.run("show", "my-fixe").err
        ran = run("show", f"{IDS[0]}s", "--site-packages", tmp_path / "nothing")
        assert f"\n  did you mean {IDS[0]}?\n" in ran.err


class TestAdHoc:
    def test_by_file_then_by_stem_from_the_receipt_alone(self, scene: Scene) -> None:
        before = scene.everything()
        fix = scene.diff_file("fix.patch", patch(a05="50"))
        assert word(scene.run("verify", fix), "fix") == "not-applied"
        assert word(scene.run("apply", fix), "fix") == "applied"
        assert word(scene.run("verify", fix), "fix") == "applied"
        fix.unlink()
        assert scene.run("verify", "fix").code == 0
        assert word(scene.run("status"), "fix") == "applied"
        assert word(scene.run("verify"), "fix") == "applied"
        assert scene.run("diff", "fix").code == 0
        assert word(scene.run("revert", "fix"), "fix") == "reverted"
        assert scene.everything() == before

    def test_from_standard_input(self, scene: Scene) -> None:
        ran = process("apply", "-", "--id", "fix", *scene.at, input=patch(a05="50"))
        assert (ran.code, word(ran, "fix")) == (0, "applied")
        assert scene.run("verify", "fix").code == 0
        assert scene.run("verify", "-", "--id", "fix", stdin=patch(a05="50")).code == 0
        assert scene.run("revert", "-", "--id", "fix", stdin=patch(a05="50")).code == 0
        assert (scene.package / "a.py").read_bytes() == FILES["a.py"]

    def test_another_id_for_a_file(self, scene: Scene) -> None:
        fix = scene.diff_file("fix.patch", patch(a05="50"))
        assert word(scene.run("apply", fix, "--id", "mine"), "mine") == "applied"
        ran = scene.run("apply", scene.root / "nope.patch", "--id", "x")
        assert (ran.code, ran.err) == (
            3,
            f"error: {scene.root}/nope.patch can't be read: No such file or directory\n",
        )

    def test_an_id_gets_no_other(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        ran = scene.run("apply", "--id", "x", IDS[0])
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.endswith(f"Error: --id is for a diff file; {IDS[0]} is an id of a catalog\n")
        assert scene.run("verify", "--id", "x", "one", *scene.catalog(ONE)).code == 2
        # A file is meant, whatever it is called.
        scene.diff_file(IDS[0], patch(a05="50"))
        monkeypatch.chdir(scene.root)
        assert word(scene.run("apply", "--id", "x", IDS[0]), "x") == "applied"

    @pytest.mark.parametrize("name", ["fix.patch", "lora-finish-request.patch"])
    def test_a_known_id_with_another_text(self, scene: Scene, name: str) -> None:
        scene.run("apply", scene.diff_file("fix.patch", patch(a05="50")))
        ran = scene.run("apply", scene.diff_file(name, patch(a05="51")))
        assert ran.code == 3
        assert f"add --id {name.removesuffix('.patch')}-2" in ran.err
        assert ("hint: vllm-patch revert fix" in ran.err) is (name == "fix.patch")

    def test_the_same_diff_under_two_names_is_in(self, scene: Scene) -> None:
        for name in ("one.patch", "two.patch"):
            ran = scene.run("apply", scene.diff_file(name, patch(a05="50")))
            assert word(ran, name.removesuffix(".patch")) == "applied"
        assert scene.run("verify", "--no-builtin").code == 0

    def test_parts_outside_the_package(self, scene: Scene) -> None:
        more = diff("x", b"1\n", b"2\n", name="csrc/x.cu")
        fix = scene.diff_file("fix.patch", patch(a05="50") + more)
        ran = scene.run("apply", fix)
        assert ran.code == 3
        assert "--skip-outside" in ran.err
        ran = scene.run("apply", fix, "--skip-outside")
        assert ran.code == 0
        assert "note: fix: csrc/x.cu is outside the package, left out\n" in ran.err
        assert scene.run("verify", "fix") == scene.run("verify", fix, "--skip-outside")

    def test_all_that_is_bad_is_said_at_once(self, scene: Scene) -> None:
        bad = [
            scene.diff_file("bad.patch", b"no diff\n"),
            scene.diff_file("unsafe.patch", diff("x", b"1\n", b"2\n", name="vllm/../../x")),
        ]
        before = scene.everything()
        ran = scene.run("apply", *bad, "nope", IDS[0])
        assert ran.code == 3
        assert ran.err.startswith("error: 3 of the 4 named patches can't be used\n")
        for part in (f"{bad[0]}:1: ", "climbs out by '..'", "no patch 'nope'"):
            assert part in ran.err
        assert scene.everything() == before


class TestDiffs:
    def test_dry_run_writes_nothing_and_shows_the_diff(self, scene: Scene) -> None:
        before = scene.everything()
        ran = scene.run("apply", "--dry-run")
        assert scene.everything() == before
        assert ran.code == 0
        assert "+        lora_stats.waiting_requests.discard(req_state.request_id)\n" in ran.out
        scene.run("apply")
        assert scene.run("apply", "--dry-run").out.endswith("no files would be changed\n")

    @pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--silent"]])
    def test_other_tools_can_use_what_is_printed(self, scene: Scene, tool: list[str]) -> None:
        difftools.need(tool[0])
        text = (
            patch(a05="50")
            + diff("new.py", None, b"1\n2")
            + diff("v1/metrics/stats.py", STATS_TEXT, None)
        )
        before = {path: data for path, data in scene.everything().items() if path[:5] == "vllm/"}
        would = scene.run("apply", scene.diff_file("fix.patch", text), "--dry-run").out
        scene.run("apply", scene.root / "fix.patch")
        ran = scene.run("diff")
        assert would.endswith(ran.out)
        for reverse, given in ((["-R"], ran.out), ([], would), (["-R"], ran.out)):
            done = subprocess.run(
                [*tool, *reverse],
                input=given.encode(),
                cwd=scene.site,
                check=False,
                capture_output=True,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": str(scene.root)},
            )
            assert done.returncode == 0, done.stderr
        after = {path: data for path, data in scene.everything().items() if path[:5] == "vllm/"}
        assert after == before

    def test_nothing_is_in(self, scene: Scene) -> None:
        assert scene.run("diff") == scenes.Ran(code=0, out="", err="")

    def test_nothing_is_in_of_one_that_is_named(self, scene: Scene) -> None:
        catalog = scene.catalog(ONE, TWO)
        scene.run("apply", "two", *catalog)
        note = "one is not-applied: nothing of it is in"
        assert scene.run("diff", "one", *catalog) == scenes.Ran(
            code=0, out="", err=f"note: {note}\n"
        )
        assert scene.run("diff", "one", "-q", *catalog).err == ""
        assert checked(scene.run("diff", "one", "--json", *catalog))["notes"] == [note]
        assert scene.run("diff", "two", *catalog).err == ""

    def test_it_is_there_from_another_hand(self, scene: Scene) -> None:
        catalog = scene.catalog(ONE)
        (scene.package / "a.py").write_bytes(changed(FILES["a.py"], a05="50", a15="1"))
        ran = scene.run("diff", "one", *catalog)
        assert (ran.code, ran.out) == (0, "")
        why = "nothing proves that it was put in by vllm-patch; it stays"
        assert ran.err == f"note: one is present: {why}\n"


class TestChoosing:
    def test_what_was_asked_for_in_words(self, tmp_path: Path) -> None:
        scene = make_scene(tmp_path, version="0.12.0")
        ran = scene.run("apply", IDS[0])
        assert (ran.code, word(ran, IDS[0])) == (0, "not-needed")
        assert "  vLLM 0.12.0 is outside >=0.8.0,<0.11.1\n" in ran.out
        for verb in ("apply", "verify"):
            ran = scene.run(verb)
            assert (ran.code, ran.err) == (0, "")
            assert ran.out.splitlines()[1:] == [
                "nothing to do for vLLM 0.12.0",
                "2 patches are not needed for this version",
            ]

    @pytest.mark.parametrize("version", ["0.1.dev1+gabc", "dev", "0.0.0"])
    @pytest.mark.parametrize("names", [[], [IDS[0]]])
    def test_a_version_that_says_nothing(
        self, tmp_path: Path, version: str, names: list[str]
    ) -> None:
        scene = make_scene(tmp_path, version=version)
        ran = scene.run("apply", *names)
        assert ran.code == 3
        assert "--assume-version" in ran.err.splitlines()[-1]
        assert scene.run("apply", *names, "--assume-version", "0.11.0").code == 0
        assert scene.run("verify", IDS[0]).code == 0

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_version_to_assume_must_say_something(self, scene: Scene, verb: str) -> None:
        ran = scene.run(verb, *([IDS[0]] if verb == "show" else []), "--assume-version", "abc")
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: --assume-version 'abc' is not the version of a release\n")

    @pytest.mark.parametrize("verb", ["list", "show"])
    def test_so_must_one_that_is_asked_about(self, scene: Scene, verb: str) -> None:
        ran = scene.run(verb, *([IDS[0]] if verb == "show" else []), "--for", "abc")
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith("error: the version 'abc' says nothing about the code\n")

    def test_kinds_and_cves(self, scene: Scene) -> None:
        catalog = scene.catalog(
            {**ONE, "kind": "leak"}, {**TWO, "cve": "CVE-2025-12345", "default": False}
        )
        ran = scene.run("apply", "--kind", "leak", *catalog)
        assert (word(ran, "one"), "two" in ran.out) == ("applied", False)
        ran = scene.run("apply", "--cve", "cve-2025-12345", *catalog)
        assert word(ran, "two") == "applied"
        assert scene.run("verify", "--cve", "CVE-2025-1", *catalog).code == 2
        assert scene.run("verify", "--kind", "compat", "--kind", "leak", *catalog).code == 0

    def test_a_kind_leaves_the_other_default_patches_out(self, scene: Scene) -> None:
        catalog = scene.catalog({**ONE, "kind": "leak"}, {**TWO, "kind": "crash"})
        ran = scene.run("apply", "--kind", "leak", *catalog)
        assert (word(ran, "one"), "two" in ran.out) == ("applied", False)
        assert (scene.package / "b.py").read_bytes() == FILES["b.py"]

    def test_a_source_tree_with_leave(self, tmp_path: Path) -> None:
        scene = make_scene(tmp_path, dist_info=False)
        (scene.site / "setup.py").touch()
        more = (*scene.catalog(ONE), "--assume-version", "0.11.0")
        released = hashlib.sha256(FILES["a.py"]).hexdigest()
        lock = {"one": {"0.11.0": {"a.py": {"before": released, "after": None}}}}
        text = json.dumps({"schema": 1, "patches": lock})
        (tmp_path / "catalog" / "lock.json").write_text(text)
        refused = scene.run("apply", *more)
        assert (refused.code, "--allow-editable" in refused.err) == (3, True)
        assert word(scene.run("apply", *more, "--allow-editable"), "one") == "applied"
        fix = scene.diff_file("fix.patch", patch(b05="50"))
        refused = scene.run("apply", fix, *more, "--allow-editable")
        assert refused.err.endswith("hint: this is a source tree: let git apply the diff there\n")

    def test_strict(self, scene: Scene) -> None:
        scene.stats.write_bytes(STATS_TEXT + b"# more\n")
        scene.run("apply")
        assert scene.run("verify").code == 0
        ran = scene.run("verify", "--strict")
        assert ran.code == 1
        assert f"  {scene.stats}: modified\n" in ran.err

    def test_exact(self, scene: Scene) -> None:
        # The stand-in is no released file, and its hunks are elsewhere.
        ran = scene.run("apply", "--exact")
        assert ran.code == 3
        assert "error: --exact: a hunk of lora-finish-request moved -" in ran.err

    def test_dependents(self, scene: Scene) -> None:
        scene.run("apply")
        ran = scene.run("revert", IDS[0])
        assert ran.code == 3
        assert "  lora-waiting-leak requires it\n" in ran.out
        assert scene.run("revert", IDS[0], "--with-dependents").code == 0
        assert scene.stats.read_bytes() == STATS_TEXT


class TestSeveralInstalls:
    @pytest.fixture
    def environments(self, tmp_path: Path) -> tuple[Path, Path]:
        """Two environments with a vLLM each; the second is of a release without the fault."""
        folders = []
        for name, version in (("old", "0.11.0"), ("new", "0.12.0")):
            site = tmp_path / name / "lib" / "python3.11" / "site-packages"
            site.parent.mkdir(parents=True)
            make_scene(tmp_path / f"{name}-scene", version=version).site.rename(site)
            folders.append(tmp_path / name)
        return folders[0], folders[1]

    def test_each_in_turn_and_the_worst_code(self, environments: tuple[Path, Path]) -> None:
        old, new = environments
        for order in ((old, new), (new, old)):
            ran = run("verify", "--python", order[0], "--python", order[1])
            assert ran.code == 1
            assert ran.out.index(str(order[0])) < ran.out.index(str(order[1]))
        assert run("verify", "--python", new).code == 0

    def test_an_error_on_one_does_not_stop_the_next(
        self, environments: tuple[Path, Path], tmp_path: Path
    ) -> None:
        pythons = [tmp_path / "nothing", *environments]
        ran = run("apply", *(part for path in pythons for part in ("--python", path)))
        assert ran.code == 3
        assert word(ran, IDS[0]) == "applied"
        assert "nothing to do for vLLM 0.12.0" in ran.out

    def test_hints_are_for_the_one_at_hand(self, environments: tuple[Path, Path]) -> None:
        ran = run("verify", "--python", environments[0], "--python", environments[1])
        assert f"hint: vllm-patch apply --python {environments[0]}\n" in ran.err

    @pytest.mark.parametrize("quiet", [(), ("--quiet",)])
    def test_errors_and_warnings_say_which_one_they_are_about(
        self, environments: tuple[Path, Path], tmp_path: Path, quiet: tuple[str, ...]
    ) -> None:
        old, new = environments
        unsupported = entry("old", b"", variants=[(">=0.8.0,<0.9", patch(b07="1"))])
        catalog = ("--no-builtin", "--catalog", write_catalog(tmp_path / "own", unsupported, ONE))
        odd = tmp_path / "odd.patch"
        odd.write_bytes(patch(a05="50").replace(b" a06 = 6\n", b" a06 = 66\n"))
        none = tmp_path / "none"
        both = [part for path in (old, none, new) for part in ("--python", path)]
        said = [run("verify", *catalog, *both, *quiet), run("apply", odd, *catalog, *both, *quiet)]
        lines = [line for ran in said for line in ran.err.splitlines()]
        found = [line for line in lines if re.match("error|warning", line)]
        assert found == [
            f"warning: {old}: old is unsupported: no variant for vLLM 0.11.0",
            f"error: {old}: 1 of 2 patches is not applied",
            f"error: {none}: {none} is no Python interpreter",
            f"error: {old}: odd can't be applied; nothing was changed",
            f"error: {none}: {none} is no Python interpreter",
            f"error: {new}: odd can't be applied; nothing was changed",
        ]
        # Where there is one it need not be said.
        alone = run("verify", *catalog, "--python", old, *quiet).err
        assert "\nerror: 1 of 2 patches is not applied\n" in alone

    def test_annotations_say_which_one_they_are_about(
        self, environments: tuple[Path, Path], tmp_path: Path
    ) -> None:
        old, new = environments
        odd = tmp_path / "odd.patch"
        odd.write_bytes(patch(a05="50").replace(b" a06 = 6\n", b" a06 = 66\n"))
        both = [part for path in (old, tmp_path / "none", new) for part in ("--python", path)]
        for verb in ("verify", "apply"):
            out = run(verb, odd, "--no-builtin", *both, "--format", "github").out
            for line in out.splitlines():
                assert re.match(rf"::error (title=[\w-]+::|file=){re.escape(str(tmp_path))}/", line)
        out = run("verify", "--no-builtin", *both, "--format", "markdown").out
        assert re.search(r"^- error: \S+/none: \S+/none is no Python", out, re.MULTILINE)

    def test_the_real_interpreter_is_asked(self, tmp_path: Path) -> None:
        environment = tmp_path / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        (site,) = environment.glob("lib/python*/site-packages")
        site.rmdir()
        make_scene(tmp_path).site.rename(site)
        ran = process("where", "--python", environment)
        assert ran.code == 0
        assert f"python     {environment}/bin/python" in ran.out
        assert process("apply", "--python", environment / "bin" / "python").code == 0
        ran = process("verify", "--probe", env=environ(VIRTUAL_ENV=str(environment)))
        assert ran.code == 0
        assert ran.out.count("probe: fault absent") == 2


class TestHints:
    @pytest.mark.parametrize(
        ("options_", "hint", "made"),
        [
            ({}, "vllm-patch list", "vllm-patch list"),
            ({}, "add --id x", "add --id x"),
            (
                {"catalogs": ("my catalog",), "no_builtin": True, "site_packages": "s"},
                "vllm-patch show x",
                "vllm-patch show x --catalog 'my catalog' --no-builtin",
            ),
            (
                {"catalogs": ("c",), "site_packages": "s", "assume_version": "0.11.0"},
                "vllm-patch status",
                "vllm-patch status --catalog c --site-packages s --assume-version 0.11.0",
            ),
            (
                {"kinds": ("leak",), "cves": ("CVE-2025-1",), "skip_outside": True, "name": "x"},
                "vllm-patch apply",
                "vllm-patch apply --id x --skip-outside --kind leak --cve CVE-2025-1",
            ),
            (
                {"allow_editable": True, "kinds": ("leak",)},
                "vllm-patch revert --with-dependents x",
                "vllm-patch revert --with-dependents x",
            ),
            (
                {"allow_editable": True},
                "vllm-patch apply",
                "vllm-patch apply --allow-editable",
            ),
            ({"catalogs": ("c",)}, "vllm-patch where", "vllm-patch where"),
        ],
    )
    def test_options_are_added_that_the_command_needs(
        self, options_: dict[str, Any], hint: str, made: str
    ) -> None:
        call = hints.Call(verb="verify", options=Common(**options_))
        assert call.hint(hint) == made

    def test_this_command_again(self) -> None:
        call = hints.Call(
            verb="apply",
            options=Common(catalogs=("c",), site_packages="s", assume_version="0.11.0"),
            patches=("a b.patch",),
            flags=("--dry-run",),
        )
        assert call.hint("vllm-patch apply --site-packages t") == (
            "vllm-patch apply 'a b.patch' --dry-run --catalog c --assume-version 0.11.0"
            " --site-packages t"
        )

    def test_a_dry_run_is_never_followed_by_a_hint_to_apply(self, scene: Scene) -> None:
        ran = run("apply", "--dry-run", "--site-packages", scene.package)
        assert ran.err.endswith(f"hint: vllm-patch apply --dry-run --site-packages {scene.site}\n")

    def test_a_hint_works_when_it_is_pasted(self, scene: Scene) -> None:
        catalog = scene.catalog(ONE, TWO)
        fix = scene.diff_file("my fix.patch", patch(a15="7"))
        for arguments in ([fix], [fix, "one"], [], ["--kind", "crash"]):
            failed = scene.run("verify", *arguments, *catalog)
            assert failed.code == 1
            hint = failed.err.rpartition("hint: ")[2]
            assert run(*shlex.split(hint)[1:]).code == 0
            assert scene.run("verify", *arguments, *catalog).code == 0
            scene.run("revert")

    def test_so_does_one_about_a_file_that_looks_like_an_option(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene.diff_file("-x.patch", patch(a15="7"))
        monkeypatch.chdir(scene.root)
        options = ("--id", "foo", "--no-builtin", "--site-packages", scene.site)
        failed = run("verify", *options, "--", "-x.patch")
        assert failed.code == 1
        hint = failed.err.rpartition("hint: ")[2]
        assert run(*shlex.split(hint)[1:]).code == 0

    def test_no_config_stays(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        (scene.root / "vllm-patch.toml").write_text('patches = ["one"]')
        monkeypatch.chdir(scene.root)
        catalog = scene.catalog(ONE, TWO)
        failed = scene.run("verify", "--no-config", *catalog)
        hint = failed.err.rpartition("hint: ")[2]
        assert run(*shlex.split(hint)[1:]).code == 0
        assert scene.run("verify", "--no-config", *catalog).code == 0

    def test_so_does_one_that_says_which_install(self, scene: Scene) -> None:
        ran = run("verify", IDS[0], "--strict", "--site-packages", scene.package)
        assert ran.code == 3
        hint = ran.err.rpartition("hint: ")[2]
        assert "--strict" in hint
        assert run(*shlex.split(hint)[1:]).code == 1

    def test_and_one_that_reverts(self, scene: Scene) -> None:
        scene.run("apply")
        hint = scene.run("revert", IDS[0]).err.rpartition("hint: ")[2]
        assert run(*shlex.split(hint)[1:]).code == 0


class TestReadOnly:
    @pytest.fixture
    def scene(self) -> Iterator[Scene]:
        """An install that belongs to another user, where every user may look."""
        with folder_for_all() as folder:
            scene = make_scene(folder)
            folders = [path for path in scene.site.rglob("*") if path.is_dir()]
            for path in (scene.site, *folders):
                path.chmod(0o555)
            yield scene
            for path in (scene.site, *folders):
                path.chmod(0o755)

    def test_verify_works_and_apply_is_refused_whole(self, scene: Scene) -> None:
        # Not the built-in catalog: that user may have no way to the checkout it lies in.
        more = (
            *scene.catalog(entry("one", diff("v1/metrics/stats.py", STATS_TEXT, b""))),
            *scene.at,
        )
        before = scene.everything()
        ran = as_somebody("verify", *more)
        assert (ran.code, word(ran, "one")) == (1, "not-applied")
        ran = as_somebody("apply", *more)
        assert ran.code == 3
        assert "nothing was changed" in ran.err
        assert str(scene.stats.parent) in ran.err
        assert "Traceback" not in ran.err
        assert scene.everything() == before
        assert as_somebody("apply", "--dry-run", *more).code == 0


def as_somebody(*arguments: str) -> Ran:
    """Run the command line in a child of this process, as a user who is not root."""
    if os.geteuid() != 0:
        return run(*arguments)
    import_all()
    with tempfile.TemporaryFile() as out:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking where threads run
            pid = os.fork()
        if pid == 0:
            code = 99
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                ran = run(*arguments)
                os.write(out.fileno(), json.dumps([ran.out, ran.err]).encode())
                code = ran.code
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        shown = json.loads(out.read())
    return scenes.Ran(code=os.waitstatus_to_exitcode(status), out=shown[0], err=shown[1])


def import_all() -> None:
    """Import what any verb imports, for a user who may have no right to read it."""
    for module in pkgutil.walk_packages(vllm_patcher.__path__, "vllm_patcher."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    # And what those import in their functions.
    with tempfile.TemporaryDirectory() as folder:
        scene = make_scene(Path(folder))
        for verb in ("verify", "apply", "revert"):
            scene.run(verb, *scene.catalog(ONE))


def scene_request(scene: Scene, *names: str) -> Any:
    from vllm_patcher.request import Request

    return Request(patches=names, site_packages=str(scene.site))


def test_verify_starts_fast() -> None:
    """What costs is not imported: neither at the start nor for a plain verify."""
    heavy = ("pathlib", "tempfile", "subprocess", "importlib.metadata", "packaging", "inspect")
    code = (
        "import sys\n"
        "from vllm_patcher import cli\n"
        "cli.run(['verify', '--site-packages', sys.argv[1]])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    with tempfile.TemporaryDirectory() as folder:
        scene = make_scene(Path(folder))
        clean = subprocess.run(
            [sys.executable, "-c", "import click, sys; print(*sys.modules)"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        done = subprocess.run(
            [sys.executable, "-c", code, scene.site],
            check=True,
            capture_output=True,
            text=True,
            env=environ(),
        )
    imported = json.loads(done.stderr.splitlines()[-1].replace("'", '"'))
    assert [name for name in imported if name not in clean] == []


# Transcripts: what a user sees, command after command.

TRANSCRIPTS = sorted((DATA / "cli").glob("*.txt"))
REWRITE = "VLLM_PATCHER_REWRITE"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    told = "".join(retold(text.splitlines(), tmp_path))
    if os.environ.get(REWRITE):
        path.write_text(told, encoding="utf-8")
    assert told == text


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 5


def retold(lines: list[str], root: Path) -> Iterator[str]:
    """Run the commands of a transcript and tell it anew.

    `# vllm VERSION` lays an install into `site`, beside a catalog and some diffs; `$ ` begins a
    command, `[3]` is an exit code that is not 0, and ROOT stands for the folder.
    """
    for number, line in enumerate(lines):
        if line.startswith("# vllm "):
            lay(root, line.removeprefix("# vllm "))
            yield line + "\n"
        elif line.startswith("#"):
            yield line + "\n"
        elif line.startswith("$ "):
            yield ("\n" if number else "") + line + "\n"
            code, out = shown(line.removeprefix("$ "))
            host = f'"host": "{os.uname().nodename}"'
            yield out.replace(str(root), "ROOT").replace(host, '"host": "HOST"')
            yield f"[{code}]\n" if code else ""


def lay(root: Path, version: str) -> None:
    """Make what the transcripts work on."""
    scene = make_scene(root, version=version)
    write_catalog(
        root / "catalog",
        entry("one", patch(a05="50"), kind="leak"),
        entry("two", patch(a15="150", b15="150"), requires=["one"]),
        entry("rival", patch(b05="50"), conflicts=["one"], default=False),
        entry("old", patch(b10="10"), affects="<0.9", variants=[(None, patch(b10="100"))]),
    )
    write_catalog(root / "newer", entry("one", patch(a05="55"), kind="leak"))
    scene.diff_file("fix.patch", patch(a10="100"))
    scene.diff_file("other.patch", patch(a10="101"))
    scene.diff_file(
        "wrong.patch", patch(a10="100").replace(b"+1", b"+3").replace(b",7 @@", b",8 @@")
    )
    (root / "other").mkdir()
    (root / "other" / "fix.patch").write_bytes(patch(a10="102"))
    (root / "patched-a.py").write_bytes(changed(FILES["a.py"], a05="50"))


def shown(line: str) -> tuple[int, str]:
    """Run one command; return its exit code and all it prints, in order."""
    program, *arguments = shlex.split(line)
    if program != "vllm-patch":
        subprocess.run(["sh", "-c", line], check=True)
        return 0, ""
    with pytest.MonkeyPatch.context() as patched:
        out = scenes.stream()
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", out)
        code = cli.run(arguments)
    return code, scenes.text_of(out)


def test_the_exit_codes_are_a_contract() -> None:
    assert (
        shell.EXIT_OK,
        shell.EXIT_FAILED,
        shell.EXIT_USAGE,
        shell.EXIT_REFUSED,
        shell.EXIT_BUG,
        shell.EXIT_INTERRUPTED,
    ) == (0, 1, 2, 3, 4, 130)


def test_an_interrupt_while_modules_load() -> None:
    script = """if True:
        import builtins, signal
        from vllm_patcher.__main__ import main
        real = builtins.__import__
        def interrupted(name, *rest):
            if name == 'vllm_patcher.cli':
                signal.raise_signal(signal.SIGINT)
            return real(name, *rest)
        builtins.__import__ = interrupted
        main()
    """
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, check=False, env=scenes.environ())
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
