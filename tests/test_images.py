"""Images are built: each Dockerfile that we show, as it is shown, and those that must fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import images
import scenes
from installers import FINISH, LEAK
from scenes import STATS, changed, diff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from images import Images, Layer

pytestmark = pytest.mark.builtin

EXAMPLES = images.ROOT / "examples"
DOCKERFILES = sorted(path.name for path in EXAMPLES.glob("*Dockerfile"))
SCHEDULER = "v1/core/sched/scheduler.py"
SITE = "usr/local/lib/python3.11/dist-packages"
PATCHED = f"{SITE}/vllm/{STATS}"
INFO = f"{SITE}/vllm-0.11.0.dist-info"
EPOCH = "1700000000"
TOOLED = "tooled"
RECIPES = (images.ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")

# Runs a command that may fail, and says how it ended.
ENDED = ("sh", "-c", '"$@"; echo "ended with $?"', "")

# What the interpreter runs when it imports the patched file is, byte for byte, what the file says.
IMPORTS = """\
import importlib.machinery, marshal, sys
loader = importlib.machinery.SourceFileLoader("stats", sys.argv[1])
runs = loader.get_code("stats")
says = compile(loader.get_data(sys.argv[1]), sys.argv[1], "exec", dont_inherit=True)
print(marshal.dumps(runs) == marshal.dumps(says))
"""


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Images to start from, in a store that goes with this file."""
    if why := images.lacks():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("images")
    try:
        made = images.stand_ins(folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        pytest.skip(f"what the images are made of can't be had: {said.strip().splitlines()[-1]}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def tooled(builder: Images, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The official image with vllm-patch in it, and nothing applied."""
    context = tmp_path_factory.mktemp("context")
    builder.built(f"FROM {images.VLLM}\nRUN pip install vllm-patcher\n", TOOLED, context=context)
    return TOOLED


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    """What the whole catalog has for this vLLM, unless it has to be named."""
    entries = scenes.run("list", "--for", "0.11.0", "--json").json["catalog"]
    found = [one["id"] for one in entries if one["default"] and one["answer"] == "affected"]
    assert {FINISH, LEAK} <= set(found)
    return found


def applied(log: str) -> list[str]:
    """The patches that a log says are applied, in order."""
    return re.findall(r"^\s*(\S+) \.+ applied$", log, flags=re.MULTILINE)


def context_of(folder: Path, *names: str) -> Path:
    """Make a build context of files of the examples."""
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(EXAMPLES / name, folder)
    return folder


def shown() -> list[str]:
    text = (images.ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```dockerfile\n(.*?)```", text, flags=re.DOTALL)


def test_each_dockerfile_of_the_readme_is_in_an_example() -> None:
    examples = {name: (EXAMPLES / name).read_text(encoding="utf-8") for name in DOCKERFILES}
    assert shown()
    assert [text for text in shown() if not any(text in one for one in examples.values())] == []
    # What the README does not show, the recipes tell of.
    assert [
        name
        for name, one in examples.items()
        if not any(text in one for text in shown()) and f"`{name}`" not in RECIPES
    ] == []


@pytest.mark.slow
def test_the_official_image_is_patched(builder: Images, tmp_path: Path, wanted: list[str]) -> None:
    log = builder.built(EXAMPLES / "Dockerfile", "official", context=tmp_path)
    assert log.count(f"vllm 0.11.0  /{SITE}/vllm\n") == 2, log
    assert applied(log) == wanted * 2
    # Any user can ask, also one whom the image does not know.
    assert applied(builder.run("official", "vllm-patch", "verify", user="2000")) == wanted
    probed = builder.run("official", "vllm-patch", "verify", "--probe", user="2000:2000")
    assert probed.count("probe: fault absent") == len(wanted), probed
    assert builder.run("official", "python3", "-c", IMPORTS, f"/{PATCHED}") == "True\n"


@pytest.mark.slow
def test_a_diff_of_ones_own_is_brought_in(builder: Images, tmp_path: Path) -> None:
    before = builder.run(images.VLLM, "cat", f"/{SITE}/vllm/{SCHEDULER}")
    context = context_of(tmp_path, "fix-scheduler.patch")
    log = builder.built(EXAMPLES / "own-diff.Dockerfile", "own-diff", context=context)
    assert applied(log) == ["fix-scheduler"] * 2, log
    after = builder.run("own-diff", "cat", f"/{SITE}/vllm/{SCHEDULER}")
    assert "req_index -= 1" in set(map(str.strip, after.splitlines()))
    assert after != before
    # The text is kept with the install: nobody needs the file any more.
    builder.run("own-diff", "vllm-patch", "verify", "fix-scheduler", user="2000")
    reverted = 'vllm-patch revert && cat "$0"'
    said = builder.run("own-diff", "sh", "-c", reverted, f"/{SITE}/vllm/{SCHEDULER}")
    assert said.endswith(before)


@pytest.mark.slow
def test_an_upgrade_after_a_diff_of_ones_own_stops_the_build(
    builder: Images, tmp_path: Path
) -> None:
    """This is why the diff is named to verify as well: the receipt goes with the patch."""
    context = context_of(tmp_path, "fix-scheduler.patch")
    first, last = (EXAMPLES / "own-diff.Dockerfile").read_text().rstrip().split(" && ")
    assert last == "vllm-patch verify /tmp/fix-scheduler.patch"
    again = f"{first}\nRUN pip install --force-reinstall vllm==0.11.0\nRUN "
    lost = builder.build(f"{again}{last}\n", "lost", context=context)
    assert lost.code == 1, lost.log
    assert "error: fix-scheduler is not applied" in lost.log
    # Without the name nobody would know.
    silent = f"{again}vllm-patch verify --no-builtin\n"
    builder.built(silent, "silent", context=context)


@pytest.mark.slow
def test_a_pull_request_is_brought_in(builder: Images, tmp_path: Path) -> None:
    context = context_of(tmp_path, "pr-12345.diff")
    log = builder.built(EXAMPLES / "pull-request.Dockerfile", "pull-request", context=context)
    assert applied(log) == ["pr-12345"] * 2, log
    left_out = "tests/v1/core/test_scheduling_policy.py is outside the package, left out"
    assert left_out in log
    after = builder.run("pull-request", "cat", f"/{SITE}/vllm/{SCHEDULER}")
    assert "self.policy = SchedulingPolicy(self.scheduler_config.policy)" in after
    # Neither the diff nor the tests it brings are in the image; an empty file may be, where the
    # diff was mounted.
    searched = f"find /tmp -type f -size +0; find /{SITE} -name 'test_sched*'"
    assert builder.run("pull-request", "sh", "-c", searched) == ""


@pytest.mark.slow
def test_a_build_needs_no_network(builder: Images, tmp_path: Path, wanted: list[str]) -> None:
    # The image to start from here finds wheels without being told, and must not.
    bare = f"FROM {images.VLLM}\nRUN rm -r /opt/wheels /etc/pip.conf /etc/uv\n"
    builder.built(bare, "bare", context=tmp_path)
    (tmp_path / "wheelhouse").mkdir()
    options = ("--from", "bare")
    dockerfile = EXAMPLES / "offline.Dockerfile"
    empty = builder.build(dockerfile, "empty", *options, context=tmp_path, offline=True)
    assert "No matching distribution found for vllm-patcher" in empty.log
    images.wheelhouse(tmp_path / "wheelhouse", *images.NEEDED)
    log = builder.built(dockerfile, "offline", *options, context=tmp_path, offline=True)
    assert applied(log) == wanted * 2, log
    # What was mounted is in no layer.
    assert builder.run("offline", "sh", "-c", "ls -A /wheelhouse 2>/dev/null || :") == ""


@pytest.mark.slow
def test_a_server_without_rights_starts_only_if_its_vllm_is_patched(
    builder: Images, tmp_path: Path, wanted: list[str]
) -> None:
    context = context_of(tmp_path, "entrypoint.sh")
    builder.built(EXAMPLES / "non-root.Dockerfile", "non-root", context=context)
    user, command = builder.started_as("non-root")
    assert (user, command[1:]) == ("2000", ["vllm", "serve"])
    (context / "vllm").write_text('#!/bin/sh\necho "uid $(id -u) serves: $*"\n')
    stand_in = "USER root\nCOPY --chmod=755 vllm /usr/local/bin/\n"
    builder.built(f"FROM non-root\n{stand_in}", "serving", context=context)
    # What an image's entry point is given is behind it.
    served = builder.run("serving", *command, "a model", "--port", "1", user=user)
    assert "uid 2000 serves: serve a model --port 1\n" in served
    builder.built(f"FROM serving\nRUN vllm-patch revert {LEAK}\n", "lacking", context=context)
    ended = builder.run("lacking", *ENDED, *command, user=user)
    assert "ended with 1\n" in ended
    assert f"error: 1 of {len(wanted)} patches is not applied\n" in ended
    assert "serves" not in ended


@pytest.mark.slow
def test_the_lines_for_areal_build(builder: Images, tmp_path: Path) -> None:
    page = (EXAMPLES / "areal.md").read_text(encoding="utf-8")
    made, checked = re.findall(r"```dockerfile\n(.*?)```", page, flags=re.DOTALL)
    dockerfile = (
        f"FROM {images.PLAIN} AS build\nRUN pip install uv\nENV UV_COMPILE_BYTECODE=1\n"
        f"RUN uv venv /opt/.venv && uv pip install --python /opt/.venv vllm==0.11.0\n{made}"
        f"FROM {images.PLAIN}\nCOPY --from=build /opt/.venv /opt/.venv\n{checked}"
    )
    log = builder.built(dockerfile, "areal", context=tmp_path)
    assert applied(log) == [FINISH, LEAK] * 2, log
    site = "/opt/.venv/lib/python3.11/site-packages"
    python = "/opt/.venv/bin/python"
    assert builder.run("areal", python, "-c", IMPORTS, f"{site}/vllm/{STATS}") == "True\n"


@pytest.mark.slow
def test_an_init_container_patches_the_copy_that_serves(
    builder: Images, tmp_path: Path, wanted: list[str]
) -> None:
    yaml = pytest.importorskip("yaml")
    pod = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())["spec"]["template"]["spec"]
    (patching,), (serving,) = pod["initContainers"], pod["containers"]
    assert patching["image"] == serving["image"] == images.VLLM
    (volume,) = {one["name"] for one in pod["volumes"]}
    shared = tmp_path / "shared"
    shared.mkdir()

    def options(container: dict[str, Any]) -> list[str]:
        (mount,) = container["volumeMounts"]
        assert mount["name"] == volume
        mode = "ro" if mount.get("readOnly") else "rw"
        variables = [f"{one['name']}={one['value']}" for one in container.get("env", ())]
        named = [word for variable in variables for word in ("--env", variable)]
        return ["--volume", f"{shared}:{mount['mountPath']}:{mode}", *named]

    command = [*patching["command"], *patching["args"]]
    # Kubernetes starts it again in the same pod, if it has to.
    for _ in range(2):
        said = builder.run(images.VLLM, *command, options=options(patching))
        assert applied(said) == wanted * 2, said
        assert said.count("probe: fault absent") == len(wanted), said
    # What the console script would import, and what it reads there.
    code = "from importlib.util import find_spec; print(find_spec('vllm').origin)"
    own = options(serving)
    origin = builder.run(serving["image"], "python3", "-c", code, options=own).strip()
    assert origin == "/patched/vllm/__init__.py"
    patched = f"/patched/vllm/{STATS}"
    imported = builder.run(serving["image"], "python3", "-c", IMPORTS, patched, options=own)
    assert imported == "True\n"
    touched = builder.run(serving["image"], *ENDED, "touch", patched, options=own)
    assert "Read-only file system" in touched
    # And a patch that does not go in keeps the pod from starting.
    edited = f"sed -i s/running_requests.remove/running_requests.discard/ /{PATCHED}"
    changed_image = [*patching["command"], f"{edited}\n{patching['args'][0]}"]
    ended = builder.run(images.VLLM, *ENDED, *changed_image, options=options(patching))
    assert "nothing was changed" in ended
    assert ended.count("ended with 3\n") == 1, ended


@pytest.mark.slow
def test_the_workflow_builds_an_image_and_verifies_in_it(builder: Images, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text())
    builder.docker(tmp_path / "bin")
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    checkout = tmp_path / "checkout"
    shutil.copytree(EXAMPLES, checkout / "examples")

    def ran(step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            check=False,
            cwd=checkout,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    taken, build, verify = workflow["jobs"]["image"]["steps"]
    assert taken["uses"].startswith("actions/checkout@")
    built = ran(build)
    assert (built.returncode, applied(built.stdout)) == (0, ["fix-scheduler"] * 2), built.stdout
    verified = ran(verify)
    assert (verified.returncode, applied(verified.stdout)) == (0, ["fix-scheduler"])
    lost = "FROM vllm-patched\nRUN pip install --force-reinstall vllm==0.11.0\n"
    builder.built(lost, "vllm-patched", context=tmp_path)
    assert ran(verify).returncode == 2


@pytest.mark.slow
def test_an_environment_is_patched_in_one_stage_and_serves_in_another(
    builder: Images, tmp_path: Path, wanted: list[str]
) -> None:
    log = builder.built(EXAMPLES / "venv.Dockerfile", "venv", context=tmp_path)
    site = "/opt/.venv/lib/python3.11/site-packages"
    assert log.count(f"vllm 0.11.0  {site}/vllm\n") == 2, log
    assert applied(log) == wanted * 2
    # uv compiled all of it, in the stage before; what would hide the patch has not come along.
    cached = builder.run("venv", "ls", f"{site}/vllm/v1/metrics/__pycache__")
    assert "reader.cpython-311.pyc" in cached
    assert "stats.cpython-311.pyc" not in cached
    python = "/opt/.venv/bin/python"
    assert builder.run("venv", python, "-c", IMPORTS, f"{site}/vllm/{STATS}") == "True\n"
    probed = builder.run("venv", "/opt/.venv/bin/vllm-patch", "verify", "--probe")
    assert probed.count("probe: fault absent") == len(wanted), probed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instructions", "says"),
    [
        pytest.param(
            "COPY misfit.patch /tmp/\nRUN vllm-patch apply /tmp/misfit.patch",
            ["error: misfit can't be applied; nothing was changed\n"],
            id="a diff that does not fit",
        ),
        pytest.param(
            f"RUN sed -i 's/^Version: .*/Version: dev/' /{INFO}/METADATA"
            f" && echo >> /{PATCHED}\nRUN vllm-patch apply {FINISH} {LEAK}",
            [
                (
                    "  the version 'dev' says nothing, "
                    "and no release that is listed for it has these files\n"
                ),
                "error: 2 of 2 patches can't be applied; nothing was changed\n",
            ],
            id="a version that says nothing",
        ),
        pytest.param(
            "USER 2000\nRUN vllm-patch apply",
            ["hint: run vllm-patch where the image is built, as the user who owns the files"],
            id="a user without rights",
        ),
    ],
)
def test_a_build_stops_where_a_patch_does_not_go_in(
    builder: Images, tooled: str, tmp_path: Path, instructions: str, says: list[str]
) -> None:
    """A builder passes on standard output and error by two ways, so either may come first."""
    lines = b"".join(b"a%02d = %d\n" % (n, n) for n in range(1, 21))
    (tmp_path / "misfit.patch").write_bytes(diff(STATS, lines, changed(lines, a05="50")))
    ended = builder.build(f"FROM {tooled}\n{instructions}\n", "failed", context=tmp_path)
    assert ended.code == 3, ended.log
    for line in says:
        assert line in ended.log
    assert "exit status 3" in ended.log


@pytest.mark.slow
def test_two_builds_give_the_same_layer(builder: Images, tooled: str, tmp_path: Path) -> None:
    """The builder sets the times of all files: then nothing else may differ."""
    digests = []
    for tag in ("first", "second"):
        options = ("--from", tooled, "--timestamp", EPOCH)
        builder.built(EXAMPLES / "Dockerfile", tag, *options, context=tmp_path)
        digests.append(builder.digest(tag, "vllm-patch apply"))
    assert digests[0] == digests[1]


@pytest.fixture(scope="module")
def dated(builder: Images, tooled: str, tmp_path_factory: pytest.TempPathFactory) -> list[Layer]:
    """The layers of two builds that leave times as they are, but tell the program the date."""
    dockerfile = f"FROM {tooled}\nARG SOURCE_DATE_EPOCH\nRUN vllm-patch apply {FINISH} {LEAK}\n"
    layers = []
    for tag in ("third", "fourth"):
        options = ("--build-arg", f"SOURCE_DATE_EPOCH={EPOCH}")
        builder.built(dockerfile, tag, *options, context=tmp_path_factory.mktemp("context"))
        layers.append(builder.layer(tag, "vllm-patch apply"))
    return layers


def looks(layer: Layer, *, folders: bool) -> dict[str, tuple[object, ...]]:
    """Mode, owner, time and bytes of all that is in vLLM's folder.

    The builder says itself when a file of the layer below went, and what is not in that folder is
    the builder's too.
    """
    return {
        one.name: (one.mode, one.uid, one.gid, one.mtime, layer.data.get(one.name))
        for one in layer.members
        if one.name.startswith(f"{SITE}/") and "/.wh." not in one.name
        if one.isdir() is folders
    }


@pytest.mark.slow
def test_the_layer_holds_what_was_changed_and_no_more(dated: list[Layer]) -> None:
    assert dated[0].data.keys() == {
        PATCHED,
        f"{INFO}/RECORD",
        f"{INFO}/vllm-patcher.json",
        # A note that the file is gone: it would have hidden the patch.
        f"{SITE}/vllm/v1/metrics/__pycache__/.wh.stats.cpython-311.pyc",
    }


@pytest.mark.slow
def test_files_are_dated_as_asked_for(dated: list[Layer]) -> None:
    first, second = (looks(layer, folders=False) for layer in dated)
    assert first.keys() == {PATCHED, f"{INFO}/RECORD", f"{INFO}/vllm-patcher.json"}
    assert first == second
    assert first[f"{INFO}/vllm-patcher.json"][3] == int(EPOCH)


# FOR THE LEAD: tree/ is another helper's. When it dates the folders it has changed, this passes.
@pytest.mark.slow
def test_folders_are_dated_as_asked_for(dated: list[Layer]) -> None:
    first, second = (looks(layer, folders=True) for layer in dated)
    assert {f"{SITE}/vllm/v1/metrics", INFO} <= first.keys()
    assert first == second
