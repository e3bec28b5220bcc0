"""How long vllm-patch takes on a real vLLM 0.11.0, beside a bare Python, git and patch.

Run it with `make bench`. Each command runs in every round, so that whatever else the machine
does falls on all of them; the median of the rounds counts, and what it is in terms of
`python -c "import click"`, the least that any program on click can take.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

import bench_big
from demo import ROOT, Failed, Place, make_place

ROUNDS = 21
UNIT = 'python -c "import click"'
PATCH = os.path.join(ROOT, "patches", "lora-finish-request", "all.patch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A command to be timed, and the state of the install that it is timed in."""

    name: str
    command: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that is run first and not timed."""
    inside: bool = False
    """It runs in site-packages, since its diff's names start there."""
    seconds: list[float] = field(default_factory=list)


def contenders(place: Place) -> list[Contender]:
    """Return what is timed, in the order in which each round goes through it."""
    python = os.path.join(place.bin, "python")
    tool = os.path.join(place.bin, "vllm-patch")
    apply = (tool, "apply")
    revert = (tool, "revert")
    found = [
        Contender(name="python -c pass", command=(python, "-c", "pass")),
        Contender(name=UNIT, command=(python, "-c", "import click")),
        Contender(name="vllm-patch --version", command=(tool, "--version")),
        Contender(name="vllm-patch verify", command=(tool, "verify"), before=apply),
        Contender(name="vllm-patch apply (nothing to do)", command=apply, before=apply),
        Contender(name="vllm-patch apply (each that fits)", command=apply, before=revert),
    ]
    # One patch each, since neither can check a series without applying it.
    rivals = (
        ("git apply --check", ("git", "apply", "--check", "-p1", PATCH)),
        ("patch --dry-run", ("patch", "--dry-run", "--force", "-F0", "-p1", "-i", PATCH)),
    )
    for name, command in rivals:
        if shutil.which(command[0]):
            shown = f"{name} (one patch)"
            found.append(Contender(name=shown, command=command, before=revert, inside=True))
        else:
            print(f"# {command[0]} is not here and is left out")
    return found


def run(place: Place, command: tuple[str, ...], *, folder: str) -> float:
    """Run a command in the folder and return the seconds it took."""
    # Inside another repository's folder git apply does nothing and says that all is well.
    ceiling = {"GIT_CEILING_DIRECTORIES": os.path.dirname(place.site)}
    environ = place.environ() | ceiling
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise Failed(f"{' '.join(command)} ended with {done.returncode}\n{said}")
    return seconds


def measure(place: Place, rounds: int) -> list[Contender]:
    """Time every contender in each of the rounds, after one that does not count."""
    all_of_them = contenders(place)
    for number in range(rounds + 1):
        for contender in all_of_them:
            if contender.before:
                run(place, contender.before, folder=place.folder)
            folder = place.site if contender.inside else place.folder
            seconds = run(place, contender.command, folder=folder)
            if number:
                contender.seconds.append(seconds)
    return all_of_them


def table(measured: list[Contender]) -> str:
    """Return one line per contender: median, fastest, and the ratio of medians to the unit's."""
    medians = {one.name: statistics.median(one.seconds) for one in measured}
    width = max(map(len, medians))
    lines = [f"{'':{width}}  median ms  fastest ms  ratio"]
    for one in measured:
        median, fastest = medians[one.name] * 1000, min(one.seconds) * 1000
        ratio = medians[one.name] / medians[UNIT]
        lines.append(f"{one.name:{width}}  {median:9.1f}  {fastest:10.1f}  {ratio:5.2f}")
    return "\n".join(lines)


def main() -> int:
    """Print the table and return an exit code."""
    try:
        place = make_place("bench")
        measured = measure(place, ROUNDS)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"\nPython {version}, {ROUNDS} rounds; ratio: to {UNIT}\n")
    print(table(measured))
    print("\n" + "\n".join(bench_big.big(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
