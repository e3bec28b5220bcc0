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


#: For each shell: the file that it reads first, what stands there, and how it is started.
SHELLS = {
    "bash": ("rc", "PS1='$ '", "bash --noprofile --rcfile rc"),
    # As root compinit asks who owns what it reads, unless it is told not to.
    "zsh": (".zshrc", "PS1='$ '\nautoload -Uz compinit && compinit -u -D", "zsh --no-globalrcs"),
    "fish": ("rc", "function fish_prompt; echo '$ '; end", "fish --no-config -C '. ./rc'"),
}


class Terminal:
    """One terminal of so many columns with a shell in it, in a folder."""

    def __init__(self, folder: Path, columns: int, shell: str = "bash") -> None:
        self._socket = str(folder / "tmux")
        name, text, started = SHELLS[shell]
        (folder / name).write_text(f"{text}\n")
        size = ["-x", str(columns), "-y", str(_LINES)]
        environ = scenes.environ(
            PATH=f"{folder / 'bin'}:{os.environ['PATH']}",
            HISTFILE="",
            LC_ALL="C.UTF-8",
            ZDOTDIR=str(folder),
        )
        for name in ("NO_COLOR", "FORCE_COLOR", "TMUX"):
            environ.pop(name, None)
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, "-c", str(folder), started],
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

    def text(self) -> str:
        """Return what is shown, without colours."""
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True
        )
        return done.stdout

    def until(self, holds: Callable[[str], bool]) -> str:
        """Return the screen, without colours, as soon as something is true of it."""
        end = time.monotonic() + _SECONDS
        while not holds(shown := self.text()):
            assert time.monotonic() < end, shown
            time.sleep(0.05)
        return shown

    def run(self, command: str) -> str:
        """Run a command on a clear screen; return what it leaves there."""
        done = shlex.join([*self._tmux, "wait-for", "-S", "done"])
        Path(self._socket).with_name("run").write_text(f"clear\n{command}\n{done}\n")
        self.keys(". ./run", "Enter")
        subprocess.run([*self._tmux, "wait-for", "done"], check=True, timeout=_SECONDS)
        self.until(lambda screen: screen.rstrip().endswith("$"))
        return self.screen().rstrip().removesuffix("$")

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
    tool.with_name("vllm-patcher").symlink_to(tool)
    return folder


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    """Give what opens a terminal of so many columns, with a shell or with bash."""
    opened: list[Terminal] = []

    def opens(columns: int, shell: str = "bash") -> Terminal:
        if not shutil.which(shell):
            pytest.skip(f"{shell} is not here")
        opened.append(Terminal(folder, columns, shell))
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


SOURCED = {
    # As `vllm-patch completion --help` says.
    "bash": 'eval "$(vllm-patch completion bash)"',
    "zsh": 'eval "$(vllm-patch completion zsh)"',
    "fish": "vllm-patch completion fish | source",
}
COMPLETED = {
    "vllm-patch apply lora-w": "vllm-patch apply lora-waiting-leak",
    "vllm-patch apply my-f": "vllm-patch apply my-fix.patch",
    "vllm-patch verify my-c": "vllm-patch verify my-catalog/",
    "vllm-patcher revert --json my-f": "vllm-patcher revert --json my-fix.patch",
    "vllm-patch apply --catalog my-": "vllm-patch apply --catalog my-catalog/",
    "vllm-patcher list --site-packages=my-": "vllm-patcher list --site-packages=my-catalog/",
    "vllm-patch where --python my-f": "vllm-patch where --python my-fix.patch",
    "vllm-patch check my-f": "vllm-patch check my-fix.patch",
    "vllm-patcher merge-reports my-f": "vllm-patcher merge-reports my-fix.patch",
    "vllm-patcher sta": "vllm-patcher status",
}


def shows(*parts: str) -> Callable[[str], bool]:
    """What is true of a screen that shows all of these."""
    return lambda screen: all(part in screen for part in parts)


@pytest.mark.builtin
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(shell: str, folder: Path, terminal: Callable[..., Terminal]) -> None:
    (folder / "my-catalog").mkdir()
    for name in ("my-fix.patch", "lora-fix.patch"):
        (folder / name).touch()
    opened = terminal(100, shell)
    opened.run(SOURCED[shell])
    for typed, completed in COMPLETED.items():
        opened.keys(typed, "Tab")
        opened.until(shows(f"$ {completed}"))
        opened.keys("C-u")
    opened.keys("vllm-patch apply lora-", "Tab", "Tab")
    opened.until(shows("lora-finish-request", "lora-waiting-leak", "lora-fix.patch"))
