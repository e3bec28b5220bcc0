"""Images are built: each Dockerfile that we show, as it is shown, and those that must fail."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

import images
from installers import FINISH, LEAK
from scenes import STATS, changed, diff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from images import Images, Layer

EXAMPLES = images.ROOT / "examples"
DOCKERFILES = sorted(path.name for path in EXAMPLES.glob("*Dockerfile"))
SCHEDULER = "v1/core/sched/scheduler.py"
SITE = "usr/local/lib/python3.11/dist-packages"
PATCHED = f"{SITE}/vllm/{STATS}"
INFO = f"{SITE}/vllm-0.11.0.dist-info"
EPOCH = "1700000000"
APPLIED = f"{FINISH} ............ applied\n{LEAK} .............. applied\n"
TOOLED = "tooled"

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


def shown() -> list[str]:
    text = (images.ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```dockerfile\n(.*?)```", text, flags=re.DOTALL)


def test_each_dockerfile_of_the_readme_is_in_an_example() -> None:
    examples = [(EXAMPLES / name).read_text(encoding="utf-8") for name in DOCKERFILES]
    assert shown()
    assert [text for text in shown() if not any(text in example for example in examples)] == []
    assert [one for one in examples if not any(text in one for text in shown())] == []


@pytest.mark.slow
def test_the_official_image_is_patched(builder: Images, tmp_path: Path) -> None:
    log = builder.built(EXAMPLES / "Dockerfile", "official", context=tmp_path)
    assert log.count(f"vllm 0.11.0  /{SITE}/vllm\n{APPLIED}") == 2, log
    # Any user can ask, also one whom the image does not know.
    assert builder.run("official", "vllm-patch", "verify", user="2000") == (
        f"vllm 0.11.0  /{SITE}/vllm\n{APPLIED}"
    )
    probed = builder.run("official", "vllm-patch", "verify", "--probe", user="2000:2000")
    assert probed.count("absent") == 2, probed
    assert builder.run("official", "python3", "-c", IMPORTS, f"/{PATCHED}") == "True\n"


@pytest.mark.slow
def test_a_diff_of_ones_own_is_brought_in(builder: Images, tmp_path: Path) -> None:
    before = builder.run(images.VLLM, "cat", f"/{SITE}/vllm/{SCHEDULER}").encode()
    after = before.replace(b"import itertools\n", b"import itertools  # ours\n")
    assert before != after
    (tmp_path / "fix-scheduler.patch").write_bytes(diff(SCHEDULER, before, after))
    log = builder.built(EXAMPLES / "own-diff.Dockerfile", "own-diff", context=tmp_path)
    assert log.count("fix-scheduler .................. applied\n") == 2, log
    assert builder.run("own-diff", "cat", f"/{SITE}/vllm/{SCHEDULER}").encode() == after
    # The text is kept with the install: nobody needs the file any more.
    builder.run("own-diff", "vllm-patch", "verify", "fix-scheduler", user="2000")
    reverted = 'vllm-patch revert && cat "$0"'
    said = builder.run("own-diff", "sh", "-c", reverted, f"/{SITE}/vllm/{SCHEDULER}")
    assert said.encode().endswith(before)


@pytest.mark.slow
def test_an_environment_is_patched_in_one_stage_and_serves_in_another(
    builder: Images, tmp_path: Path
) -> None:
    log = builder.built(EXAMPLES / "venv.Dockerfile", "venv", context=tmp_path)
    site = "/opt/.venv/lib/python3.11/site-packages"
    assert log.count(f"vllm 0.11.0  {site}/vllm\n{APPLIED}") == 2, log
    # uv compiled all of it, in the stage before; what would hide the patch has not come along.
    cached = builder.run("venv", "ls", f"{site}/vllm/v1/metrics/__pycache__")
    assert "loggers.cpython-311.pyc" in cached
    assert "stats.cpython-311.pyc" not in cached
    python = "/opt/.venv/bin/python"
    assert builder.run("venv", python, "-c", IMPORTS, f"{site}/vllm/{STATS}") == "True\n"
    probed = builder.run("venv", "/opt/.venv/bin/vllm-patch", "verify", "--probe")
    assert probed.count("absent") == 2, probed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instructions", "says"),
    [
        pytest.param(
            "COPY misfit.patch /tmp/\nRUN vllm-patch apply /tmp/misfit.patch",
            "error: misfit can't be applied; nothing was changed",
            id="a diff that does not fit",
        ),
        pytest.param(
            f"RUN sed -i 's/^Version: .*/Version: dev/' /{INFO}/METADATA"
            f" && echo >> /{PATCHED}\nRUN vllm-patch apply",
            "  the version 'dev' says nothing, and the files are not those of a listed release\n"
            "error: 2 of 2 patches can't be applied; nothing was changed\n",
            id="a version that says nothing",
        ),
        pytest.param(
            "USER 2000\nRUN vllm-patch apply",
            "hint: run vllm-patch where the image is built, as the user who owns the files",
            id="a user without rights",
        ),
    ],
)
def test_a_build_stops_where_a_patch_does_not_go_in(
    builder: Images, tooled: str, tmp_path: Path, instructions: str, says: str
) -> None:
    lines = b"".join(b"a%02d = %d\n" % (n, n) for n in range(1, 21))
    (tmp_path / "misfit.patch").write_bytes(diff(STATS, lines, changed(lines, a05="50")))
    ended = builder.build(f"FROM {tooled}\n{instructions}\n", "failed", context=tmp_path)
    assert ended.code == 3, ended.log
    assert says in ended.log
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
    dockerfile = f"FROM {tooled}\nARG SOURCE_DATE_EPOCH\nRUN vllm-patch apply\n"
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
