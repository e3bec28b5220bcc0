"""The GitHub Action and the workflows: their steps are run as the runner would run them.

What GitHub itself does (fetch the action, evaluate expressions, draw annotations) is stood in for
by `Runner`: it gives each input to a step in the variable that the step names, and runs the
script with the same bash options.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import installers
import scenes
from installers import FINISH, LEAK
from scenes import entry, patch, write_catalog
from vllm_patcher import config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from installers import Environment

ROOT = Path(__file__).resolve().parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALL, RUN = ACTION["runs"]["steps"]
#: How GitHub runs a step whose shell is bash.
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
COMMAND = re.compile(r"::(\w+)(?: ([^:]*))?::(.*)")
#: The outputs where inputs are wrong.
NOTHING_RAN = {"ok": "false", "exit-code": "2", "json": ""}


def evaluated(text: str, inputs: Mapping[str, str]) -> str:
    """Evaluate the two kinds of expressions that action.yml has."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "github.action_path":
            return str(ROOT)
        assert name.startswith("inputs."), name
        return inputs[name.removeprefix("inputs.")]

    return re.sub(r"\$\{\{ (\S+) \}\}", value, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a step gave."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str

    @property
    def commands(self) -> list[tuple[str, dict[str, str], str]]:
        """The workflow commands in the log: name, properties, message."""
        return [parsed(line) for line in self.log.splitlines() if line.startswith("::")]


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner does."""
    match = COMMAND.fullmatch(line)
    assert match, line
    pairs = (pair.split("=", 1) for pair in (match[2] or "").split(",") if pair)
    return match[1], {key: unescaped(value) for key, value in pairs}, unescaped(match[3])


def unescaped(text: str) -> str:
    table = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
    return re.sub("|".join(table), lambda match: table[match[0]], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A job's machine: a workspace, the folder for temporary files, and a vLLM on PATH."""

    root: Path
    home: Environment
    env: dict[str, str] = field(default_factory=dict)

    def step(self, step: Mapping[str, Any], **given: str) -> Done:
        inputs = {name: item["default"] for name, item in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        script, outputs, summary = (self.root / name for name in ("step.sh", "outputs", "summary"))
        script.write_text(step["run"], encoding="utf-8")
        outputs.write_text("")
        summary.write_text("")
        clean = {
            key: value for key, value in os.environ.items() if key[:5] not in {"VIRTU", "CONDA"}
        }
        environment = {
            **clean,
            "PATH": os.pathsep.join([str(self.home.folder / "bin"), os.environ["PATH"]]),
            "RUNNER_TEMP": str(self.root / "temp"),
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_STEP_SUMMARY": str(summary),
            **{key: evaluated(value, inputs) for key, value in step["env"].items()},
            **self.env,
        }
        done = subprocess.run(
            [*BASH, script],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=self.root / "workspace",
        )
        return Done(
            code=done.returncode,
            log=done.stdout.decode(),
            outputs=read_outputs(outputs.read_text()),
            summary=summary.read_text(),
        )


def read_outputs(text: str) -> dict[str, str]:
    """Read the file of outputs as the runner does: `name=value`, or a block to a delimiter."""
    outputs: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, block, end = line.partition("<<")
        if block and "=" not in name:
            outputs[name] = "\n".join(iter(lines.__next__, end))
        else:
            name, _, outputs[name] = line.partition("=")
    return outputs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return installers.venv(tmp_path_factory.mktemp("home") / "an environment").install()


@pytest.fixture
def runner(tmp_path: Path, home: Environment) -> Runner:
    """Give a machine on which the step that installs has been: with this code, by PYTHONPATH."""
    (tmp_path / "workspace").mkdir()
    program = tmp_path / "temp" / "vllm-patch" / "bin" / "vllm-patch"
    program.parent.mkdir(parents=True)
    run = shlex.join([f"PYTHONPATH={scenes.SRC}", sys.executable, "-m", "vllm_patcher"])
    program.write_text(f'#!/bin/sh\nexec env {run} "$@"\n')
    program.chmod(0o755)
    (home.stats).write_bytes(scenes.STATS_TEXT)
    for receipt in home.site.glob("*.dist-info/vllm-patcher.json"):
        installers.tool("revert", "--python", home.python)
        assert not receipt.exists()
    return Runner(root=tmp_path, home=home)


def test_only_variables_take_inputs_into_a_script() -> None:
    for step in (INSTALL, RUN):
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    taken = re.findall(r"\$\{\{ inputs\.(\S+) \}\}", json.dumps([INSTALL["env"], RUN["env"]]))
    assert sorted(taken) == sorted(ACTION["inputs"])


def test_every_output_is_one_of_the_step(runner: Runner) -> None:
    written = runner.step(RUN).outputs.keys()
    for name, output in ACTION["outputs"].items():
        assert output["value"] == "${{ steps.run.outputs.%s }}" % name  # noqa: UP031 - braces
    assert written == ACTION["outputs"].keys()


class TestVerify:
    def test_what_is_missing_fails(self, runner: Runner) -> None:
        done = runner.step(RUN)
        assert done.code == 1
        assert (done.outputs["ok"], done.outputs["exit-code"]) == ("false", "1")
        document = json.loads(done.outputs["json"])
        assert {item["id"]: item["state"] for item in document["patches"]} == installers.UNFIXED
        ((name, properties, message),) = done.commands
        assert (name, properties) == ("error", {"title": "vllm-patch"})
        assert message.splitlines() == [
            "2 of 2 patches are not applied",
            f"{FINISH}: not-applied",
            f"{LEAK}: not-applied",
            "hint: vllm-patch apply",
        ]
        assert "### vllm-patch verify\n" in done.summary
        assert rf"| {FINISH} | **not-applied** |  |" in done.summary
        assert "- error: 2 of 2 patches are not applied" in done.summary

    def test_what_is_in_passes_in_silence(self, runner: Runner) -> None:
        applied = runner.step(RUN, command="apply")
        assert (applied.code, applied.outputs["ok"]) == (0, "true"), applied.log
        done = runner.step(RUN, python=f"{runner.home.folder}\n", probe="true", strict="true")
        assert (done.code, done.outputs["ok"], done.commands) == (0, "true", []), done.log
        assert f"| {FINISH} | applied | probe: " in done.summary
        assert done.summary.rstrip() in done.log

    def test_a_patch_by_its_path(self, runner: Runner) -> None:
        diff = runner.root / "workspace" / "it's mine.patch"
        diff.write_bytes(patch(a05="50"))
        named = f"{FINISH}\n\n  it's mine.patch  \n"
        document = json.loads(runner.step(RUN, patches=named).outputs["json"])
        assert [item["id"] for item in document["patches"]] == [FINISH, "it's mine"]

    def test_a_conflict_is_told_at_its_line(self, runner: Runner) -> None:
        text = patch(a05="50").replace(b" a06 = 6\n", b" a06 = 66%, or: so\n")
        (runner.root / "workspace" / "odd.patch").write_bytes(text)
        done = runner.step(RUN, patches="odd.patch")
        assert done.code == 1
        (_, (name, properties, message)) = done.commands
        assert name == "error"
        assert properties["file"] == str(runner.home.package / "a.py")
        assert int(properties["line"]) > 0
        assert properties["title"] == "odd: conflict"
        assert "expected  a06 = 66%, or: so\nfound     a06 = 6" in message
        assert "| odd | **conflict** | vllm/a.py:" in done.summary

    def test_a_catalog_in_place_of_the_built_in_one(self, runner: Runner) -> None:
        write_catalog(runner.root / "workspace" / "my own", entry("one", patch(a05="50")))
        done = runner.step(RUN, catalog="my own", builtin="false")
        document = json.loads(done.outputs["json"])
        assert [item["id"] for item in document["patches"]] == ["one"]

    def test_several_installs_give_a_line_each(self, runner: Runner) -> None:
        done = runner.step(RUN, python=f"{runner.home.folder}\n{runner.home.python}")
        first, second = map(json.loads, done.outputs["json"].splitlines())
        assert first["install"]["package"] == second["install"]["package"]
        assert done.summary.count("| patch | state | why |") == 2

    def test_no_vllm_is_refused(self, runner: Runner) -> None:
        empty = runner.root / "empty"
        empty.mkdir()
        done = runner.step(RUN, site_packages=str(empty))
        assert (done.code, done.outputs["ok"]) == (3, "false")
        assert done.commands[0][0] == "error"
        assert "- error: " in done.summary

    def test_a_bad_diff_is_told_at_its_line(self, runner: Runner) -> None:
        text = patch(a05="50").replace(b"-a05 = 5\n", b"")
        (runner.root / "workspace" / "bad.patch").write_bytes(text)
        done = runner.step(RUN, patches="bad.patch")
        assert done.code == 3
        name, properties, _ = done.commands[0]
        assert (name, properties["file"]) == ("error", "bad.patch")
        assert int(properties["line"]) > 1

    def test_an_unknown_patch(self, runner: Runner) -> None:
        done = runner.step(RUN, patches="nothing-known")
        assert (done.code, done.outputs["exit-code"]) == (2, "2")
        assert "nothing-known" in done.commands[0][2]


class TestApply:
    def test_a_conflict_is_refused_and_told_at_its_line(self, runner: Runner) -> None:
        before = installers.contents(runner.home.site)
        text = patch(b05="50").replace(b" b06 = 6\n", b" b06 = 66\n")
        (runner.root / "workspace" / "odd.patch").write_bytes(text)
        done = runner.step(RUN, command="apply", patches=f"{FINISH}\nodd.patch")
        assert done.code == 3
        placed = [command for command in done.commands if "file" in command[1]]
        ((_, properties, _),) = placed
        assert properties["file"] == str(runner.home.package / "b.py")
        assert "| odd | **conflict** |" in done.summary
        assert installers.contents(runner.home.site) == before

    @pytest.mark.parametrize("name", ["strict", "probe"])
    def test_what_only_verify_takes(self, runner: Runner, name: str) -> None:
        done = runner.step(RUN, command="apply", **{name: "true"})
        assert (done.code, done.outputs) == (2, NOTHING_RAN)
        ((kind, _, said),) = done.commands
        assert (kind, said) == ("error", "the inputs strict and probe are for verify")


class TestYesOrNo:
    """The inputs that take the words of the variables that :mod:`.config` reads."""

    @pytest.mark.parametrize("word", [*config.YES, "True", "YES", " true", "\ton \n"])
    def test_yes(self, runner: Runner, word: str) -> None:
        for name in ("strict", "probe"):
            # The quickest way to see that it counts.
            done = runner.step(RUN, command="apply", **{name: word})
            assert (done.code, len(done.commands)) == (2, 1)
            assert done.commands[0][2] == "the inputs strict and probe are for verify"

    @pytest.mark.parametrize("word", [*config.NO, "False", "NO", " off\n", "", " "])
    def test_no(self, runner: Runner, word: str) -> None:
        done = runner.step(RUN, command="apply", strict=word, probe=word, builtin=word)
        assert done.code == 0
        # Without a word the default counts, and that of `builtin` is yes.
        ids = {patch["id"] for patch in json.loads(done.outputs["json"])["patches"]}
        assert ids == (set() if word.strip() else installers.UNFIXED.keys())

    @pytest.mark.parametrize("name", ["builtin", "strict", "probe"])
    @pytest.mark.parametrize("word", ["ture", "2", "true\nfalse", "*", "1 | true"])
    def test_any_other_word_is_refused(self, runner: Runner, name: str, word: str) -> None:
        done = runner.step(RUN, **{name: word})
        assert (done.code, done.outputs) == (2, NOTHING_RAN)
        said = f"the input {name} is none of {', '.join(config.YES + config.NO)}"
        assert done.commands == [("error", {"title": "vllm-patch"}, said)]


SLY = (
    "$(touch {mark})",
    "`touch {mark}`",
    "'; touch {mark}; '",
    '"; touch {mark}; "',
    "--site-packages=/",
    "a\\\nb",
    "::add-mask::x",
    "*",
)


@pytest.mark.parametrize("name", sorted(ACTION["inputs"].keys() - {"version"}))
def test_nothing_in_an_input_is_run(runner: Runner, name: str) -> None:
    mark = runner.root / "mark"
    done = runner.step(RUN, **{name: "\n".join(SLY).format(mark=mark)})
    assert not mark.exists()
    assert done.code in {2, 3}, done.log
    assert {command[0] for command in done.commands} == {"error"}


@pytest.mark.parametrize("word", ["--strict", "--help", "-"])
def test_no_patch_is_taken_for_an_option(runner: Runner, word: str) -> None:
    done = runner.step(RUN, patches=word)
    assert done.code == 2
    assert f"'{word}'" in done.log if word != "-" else "--id NAME" in done.log


def test_nothing_in_the_version_is_run(runner: Runner) -> None:
    mark = runner.root / "mark"
    alone = Runner(root=runner.root, home=runner.home, env={"PIP_NO_INDEX": "1"})
    done = alone.step(INSTALL, version=" ".join(SLY).format(mark=mark))
    assert done.code != 0
    assert not mark.exists()


def test_a_word_that_is_no_verb(runner: Runner) -> None:
    done = runner.step(RUN, command="revert")
    assert (done.code, done.outputs) == (2, NOTHING_RAN)
    assert done.commands == [
        ("error", {"title": "vllm-patch"}, "the input command must be verify or apply")
    ]


@pytest.mark.slow
@pytest.mark.builtin
def test_the_whole_action(tmp_path: Path) -> None:
    """Pip installs it from the checkout; this needs a package index."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "temp").mkdir()
    home = installers.venv(tmp_path / "home").install()
    runner = Runner(root=tmp_path, home=home)
    for command in ("apply", "verify"):
        installed = runner.step(INSTALL)
        assert installed.code == 0, installed.log
        done = runner.step(RUN, command=command, patches=f"{FINISH}\n{LEAK}")
        assert (done.code, done.outputs["ok"]) == (0, "true"), done.log
    assert "vllm_patcher" not in {path.name for path in home.site.iterdir()}


WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))
    return found


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def test_these_are_the_workflows() -> None:
    assert sorted(WORKFLOWS) == ["release.yml", "test.yml"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_runs_is_there(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    ran = [shlex.split(step["run"]) for step in steps(name) if "run" in step]
    made = {words[1] for words in ran if words[0] == "make"}
    assert made
    assert made <= targets
    for words in ran:
        assert words[0] in {"make", "python", "test"} or os.access(ROOT / words[0], os.X_OK)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_actions_of_others_are_pinned(name: str) -> None:
    used = [step["uses"] for step in steps(name) if "uses" in step]
    assert used
    for one in used:
        assert one == "./" or re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", one), one


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_do_no_more_than_it_must(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}
    assert "secrets." not in WORKFLOWS[name].read_text(encoding="utf-8")
    for job in workflow(name)["jobs"].values():
        assert job["timeout-minutes"]


def test_the_matrix_is_what_is_supported() -> None:
    matrix = workflow("test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert matrix == ["3.10", "3.11", "3.12", "3.13"]
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={matrix[0]}"\n' in metadata


def test_the_workflow_uses_inputs_that_there_are() -> None:
    given = [step.get("with", {}) for step in steps("test.yml") if step.get("uses") == "./"]
    assert given
    for inputs in given:
        assert inputs.keys() <= ACTION["inputs"].keys()


def test_only_the_job_that_publishes_may() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "build"
    assert "permissions" not in jobs["build"]
    (last,) = jobs["publish"]["steps"][1:]
    assert last == {"uses": "pypa/gh-action-pypi-publish@release/v1"}
    # YAML 1.1 takes the key `on` for true.
    assert workflow("release.yml").get(True) == {"push": {"tags": ["v*"]}}  # type: ignore[call-overload]


def test_the_page_tells_of_the_inputs_and_outputs() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    table = page.partition("| input | meaning |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([a-z-]+)[`:]", table)) - {"verify", "apply", "true"}
    assert told == ACTION["inputs"].keys()
    outputs = page.partition("The outputs are ")[2].partition(".\n")[0]
    assert set(re.findall(r"`([a-z-]+)`", outputs)) - {"true", "false"} == ACTION["outputs"].keys()
    example = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert example[1]["with"].keys() <= ACTION["inputs"].keys()
