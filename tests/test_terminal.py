"""What stands on the screen of a real terminal: narrow and wide, coloured, and while completing.

The screens in tests/data/terminal are what tmux shows, with colours as ``{green}``. What goes to
a log is in the transcripts of test_cli.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scenes
from test_cli import REWRITE, lay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data" / "terminal"
_LINES = 90
_SECONDS = 10.0
_COLORS = {"31": "red", "32": "green", "33": "yellow", "39": "default", "0": "default"}
_MINE = "--no-builtin --catalog catalog --site-packages site"

SCREENS = {
    "status-80": (80, f"vllm-patch status {_MINE}"),
    "status-40": (40, f"vllm-patch status {_MINE}"),
    "status-no-color": (80, f"NO_COLOR=1 vllm-patch status {_MINE}"),
    "verify-80": (80, f"vllm-patch verify {_MINE}"),
    "verify-40": (40, f"vllm-patch verify {_MINE}"),
    "apply-80": (80, f"vllm-patch apply one {_MINE}"),
    "unsupported-80": (80, f"vllm-patch verify old --assume-version dev {_MINE}"),
    "builtin-narrow": (44, "vllm-patch status --site-packages site"),
    "list-80": (80, "vllm-patch list --site-packages site"),
    "list-50": (50, "vllm-patch list --site-packages site"),
}


class Terminal:
    """One terminal of so many columns with bash in it, in a folder."""

    def __init__(self, folder: Path, columns: int) -> None:
        self._socket = str(folder / "tmux")
        (folder / "rc").write_text("PS1='$ '\n")
        bash = "bash --noprofile --rcfile rc"
        size = ["-x", str(columns), "-y", str(_LINES)]
        environ = scenes.environ(
            PATH=f"{folder / 'bin'}:{os.environ['PATH']}", HISTFILE="", LC_ALL="C.UTF-8"
        )
        for name in ("NO_COLOR", "FORCE_COLOR", "TMUX"):
            environ.pop(name, None)
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, "-c", str(folder), bash],
            check=True,
            env=environ,
        )

    @property
    def _tmux(self) -> list[str]:
        return ["tmux", "-f", "/dev/null", "-S", self._socket]

    def keys(self, *keys: str) -> None:
        """Type."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def screen(self) -> str:
        """Return what is shown, colours as ``{green}``."""
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True
        )
        shown = re.sub(r"\x1b\[([0-9;]*)m", lambda found: f"{{{_COLORS[found[1]]}}}", done.stdout)
        return shown.rstrip("\n") + "\n"

    def until(self, holds: Callable[[str], bool]) -> str:
        """Return the screen as soon as something is true of it."""
        end = time.monotonic() + _SECONDS
        while not holds(shown := self.screen()):
            assert time.monotonic() < end, shown
            time.sleep(0.05)
        return shown

    def run(self, command: str) -> str:
        """Run a command on a clear screen; return what it leaves there."""
        done = shlex.join([*self._tmux, "wait-for", "-S", "done"])
        Path(self._socket).with_name("run").write_text(f"clear\n{command}\n{done}\n")
        self.keys(". ./run", "Enter")
        subprocess.run([*self._tmux, "wait-for", "done"], check=True, timeout=_SECONDS)
        shown = self.until(lambda screen: screen.rstrip().endswith("$"))
        return shown.rstrip().removesuffix("$")

    def end(self) -> None:
        """End it, and bash with it."""
        subprocess.run([*self._tmux, "kill-server"], check=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder with what the transcripts work on, and a `vllm-patch` that is this code.

    Its path is short and as long each time: that is how lines come to be broken.
    """
    if not shutil.which("tmux"):
        pytest.skip("tmux is not here")
    with tempfile.TemporaryDirectory(prefix="v", dir="/tmp") as made:
        yield laid(Path(made))


def laid(folder: Path) -> Path:
    """Lay it."""
    lay(folder, "0.11.0")
    tool = folder / "bin" / "vllm-patch"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vllm_patcher "$@"\n')
    tool.chmod(0o755)
    return folder


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[[int], Terminal]]:
    """Give what opens a terminal of so many columns."""
    opened: list[Terminal] = []

    def opens(columns: int) -> Terminal:
        opened.append(Terminal(folder, columns))
        return opened[-1]

    yield opens
    for each in opened:
        each.end()


@pytest.mark.builtin
@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str, folder: Path, terminal: Callable[[int], Terminal]) -> None:
    columns, command = SCREENS[name]
    shown = terminal(columns).run(command).replace(str(folder), "ROOT")
    path = DATA / f"{name}.txt"
    if os.environ.get(REWRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.builtin
def test_bash_completes_a_patch(terminal: Callable[[int], Terminal]) -> None:
    opened = terminal(80)
    opened.run('eval "$(vllm-patch completion bash)"')
    opened.keys("vllm-patch apply lora-f", "Tab")
    opened.until(lambda screen: "vllm-patch apply lora-finish-request" in screen)
    opened.keys("C-u")
    opened.keys("vllm-patch show lora-", "Tab", "Tab")
    shown = opened.until(lambda screen: "lora-waiting-leak" in screen)
    assert "lora-finish-request" in shown
