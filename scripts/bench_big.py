"""How vllm-patch grows with a diff, beside git and GNU patch.

Run it with `make bench`. A diff of 200 files with 50 hunks each (13 MB), one of half of it, and a
source file of 50 MB; each contender starts from the same tree in every round, and the median
counts. The aims: at most 12 times GNU patch, at most 2.2 times as long for twice as much.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from demo import Place

ROUNDS = 5
FILES = 200
HUNKS = 50  # a file
BIG_LINES = 530_000  # of 96 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A tree and a diff for it."""

    name: str
    folder: str

    @property
    def diff(self) -> str:
        """The path of the diff."""
        return os.path.join(self.folder, "big.patch")

    @property
    def size(self) -> int:
        """The bytes of the diff."""
        return os.path.getsize(self.diff)

    def fresh(self) -> str:
        """Lay the tree anew as an install, and return its site-packages."""
        site = os.path.join(self.folder, "site")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(os.path.join(self.folder, "a"), site)
        info = os.path.join(site, "vllm-0.11.0.dist-info")
        os.mkdir(info)
        with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
            file.write("Metadata-Version: 2.1\nName: vllm\nVersion: 0.11.0\n")
        with open(os.path.join(info, "RECORD"), "w", encoding="utf-8") as file:
            for name in sorted(os.listdir(os.path.join(site, "vllm"))):
                with open(os.path.join(site, "vllm", name), "rb") as source:
                    digest = base64.urlsafe_b64encode(hashlib.sha256(source.read()).digest())
                file.write(f"vllm/{name},sha256={digest.decode().rstrip('=')},\n")
        return site


def line(chance: random.Random, length: int) -> str:
    """Return one line of Python that no other is equal to."""
    filler = "".join(chance.choices("abcdefghijklmnop ", k=length))
    return f"x{chance.randrange(10**9)} = '{filler}'\n"


def many(folder: str, files: int) -> Case:
    """Make a diff of many files and hunks."""
    chance = random.Random(1)  # noqa: S311 - the same each time is what is wanted
    for number in range(files):
        old = [line(chance, 140) for _ in range(HUNKS * 20)]
        new = list(old)
        for hunk in range(HUNKS):
            new[hunk * 20 + 10] = line(chance, 140)
        write(folder, "a", f"f{number}.py", "".join(old))
        write(folder, "b", f"f{number}.py", "".join(new))
    return compared(f"{files} files, {files * HUNKS} hunks", folder)


def long(folder: str) -> Case:
    """Make a diff of one line of a very long file."""
    chance = random.Random(2)  # noqa: S311 - the same each time is what is wanted
    lines = [line(chance, 80) for _ in range(BIG_LINES)]
    write(folder, "a", "long.py", "".join(lines))
    lines[BIG_LINES // 2] = "changed = 1\n"
    write(folder, "b", "long.py", "".join(lines))
    return compared("one hunk in a file of 50 MB", folder)


def write(folder: str, side: str, name: str, text: str) -> None:
    """Write a file of one side's package."""
    package = os.path.join(folder, side, "vllm")
    os.makedirs(package, exist_ok=True)
    for path, data in ((name, text), ("__init__.py", "")):
        with open(os.path.join(package, path), "w", encoding="utf-8") as file:
            file.write(data)


def compared(name: str, folder: str) -> Case:
    """Write the diff of both sides, as git does."""
    case = Case(name=name, folder=folder)
    command = [
        "git",
        "diff",
        "--no-index",
        "--no-color",
        "--src-prefix=",
        "--dst-prefix=",
        "a",
        "b",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    with open(case.diff, "wb") as file:
        file.write(done.stdout)
    return case


def timed(command: list[str], folder: str, environ: dict[str, str]) -> float:
    """Run a command and return its seconds."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}\n{done.stderr.decode()}")
    return seconds


def measure(place: Place, case: Case) -> dict[str, float]:
    """Return the median seconds of each contender."""
    tool = os.path.join(place.bin, "vllm-patch")
    names = ("git apply", "patch", "vllm-patch apply")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            site = case.fresh()
            environ = place.environ() | {"GIT_CEILING_DIRECTORIES": case.folder}
            commands = {
                "git apply": ["git", "apply", "-p1", case.diff],
                "patch": ["patch", "-s", "-p1", "-i", case.diff],
                "vllm-patch apply": [tool, "apply", "--site-packages", site, case.diff],
            }
            seconds[name].append(timed(commands[name], site, environ))
    return {name: statistics.median(all_of_it) for name, all_of_it in seconds.items()}


def big(place: Place) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'':32}      MB  {'git apply':>10}  {'patch':>10}  vllm-patch  ratio to patch"]
    medians = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, make in enumerate(
            (lambda f: many(f, FILES // 2), lambda f: many(f, FILES), long)
        ):
            case = make(os.path.join(scratch, str(number)))
            found = measure(place, case)
            ours, theirs = found["vllm-patch apply"], found["patch"]
            medians.append(ours)
            lines.append(
                f"{case.name:32}  {case.size / 1e6:6.1f}  {found['git apply'] * 1e3:7.0f} ms"
                f"  {theirs * 1e3:7.0f} ms  {ours * 1e3:7.0f} ms  {ours / theirs:14.1f}"
            )
    lines.append(f"twice the hunks take {medians[1] / medians[0]:.2f} times as long")
    return lines


def main() -> int:
    """Print the table for the environment that `make bench` has made."""
    folder = sys.argv[1]
    print("\n".join(big(Place(folder=folder, site=""))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
