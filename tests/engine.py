"""Small worlds in memory for the engine: released files, patches made from them, and commands.

A `World` does to a tree in memory what a command does to an install on disk: it plans, and if
nothing stands against the plan it takes the target and writes the receipt. Diffs are made as
`diff -u` makes them and read by the real parser.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_patcher import diff, paths
from vllm_patcher.known import Known
from vllm_patcher.plan import plan_apply, plan_revert
from vllm_patcher.situation import situation
from vllm_patcher.states import BLOCKED, CONFLICT, Asked, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vllm_patcher.plan import Plan
    from vllm_patcher.situation import Situation
    from vllm_patcher.unit import Pristine

Files = dict[str, bytes | None]


def text(*lines: str) -> bytes:
    """Join lines, each ended by a newline."""
    return "".join(f"{line}\n" for line in lines).encode()


def numbered(count: int, *, word: str = "line") -> bytes:
    """Make a file whose lines all differ."""
    return text(*(f"{word} {number}" for number in range(1, count + 1)))


def edited(data: bytes, **changes: str | None) -> bytes:
    """Replace lines of a file: `l3="a\\nb"` puts two lines in place of the third, None none."""
    lines = data.decode().splitlines()
    for place in sorted((int(name[1:]) for name in changes), reverse=True):
        new = changes[f"l{place}"]
        lines[place - 1 : place] = [] if new is None else new.split("\n")
    return text(*lines)


def make_diff(
    before: Mapping[str, bytes | None], after: Mapping[str, bytes | None], *, context: int = 3
) -> bytes:
    """Write the diff between two trees as git does; None is no file."""
    return b"".join(
        _one(path, before.get(path), after.get(path), context)
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    )


def _one(path: str, old: bytes | None, new: bytes | None, context: int) -> bytes:
    names = [f"a/vllm/{path}".encode(), f"b/vllm/{path}".encode()]
    head = [b"diff --git " + names[0] + b" " + names[1] + b"\n"]
    if old is None:
        head.append(b"new file mode 100644\n")
    if new is None:
        head.append(b"deleted file mode 100644\n")
    body = difflib.diff_bytes(
        difflib.unified_diff,
        (old or b"").splitlines(keepends=True),
        (new or b"").splitlines(keepends=True),
        b"/dev/null" if old is None else names[0],
        b"/dev/null" if new is None else names[1],
        n=context,
        lineterm=b"\n",
    )
    ends = b"\\ No newline at end of file\n"
    return b"".join(
        [*head, *(line if line.endswith(b"\n") else line + b"\n" + ends for line in body)]
    )


def rename(old: str, new: str, hunks: bytes = b"") -> bytes:
    """Write a diff that renames a file; `hunks` is what a diff of its contents says."""
    head = f"diff --git a/vllm/{old} b/vllm/{new}\nrename from vllm/{old}\nrename to vllm/{new}\n"
    names = f"--- a/vllm/{old}\n+++ b/vllm/{new}\n" if hunks else ""
    return (head + names).encode() + hunks


def known(
    name: str,
    data: bytes,
    *,
    requires: Iterable[str] = (),
    listed: Mapping[str, frozenset[str]] | None = None,
) -> Known:
    """Read a diff whose names all hold the package's."""
    parsed = diff.parse(data, name=name)
    resolved = paths.resolve(parsed, name=name, exists=lambda _path: True)
    return Known(id=name, text=data, parts=resolved.parts, requires=requires, listed=listed)


def in_a(name: str, hunks: str) -> Known:
    """Read hunks for a.py as a patch."""
    return known(name, f"--- a/vllm/a.py\n+++ b/vllm/a.py\n{hunks}".encode())


def repeating() -> tuple[Files, Known]:
    """Make a file with equal blocks, and a patch that leaves a place it would fit again."""
    block = ("same 1", "same 2", "same 3")
    base: Files = {"a.py": text(*block, "x", *block, "x", *block)}
    hunk = "@@ -2,6 +2,7 @@\n same 2\n same 3\n x\n+y\n same 1\n same 2\n same 3\n"
    return base, in_a("dup", hunk)


def changing(
    name: str,
    before: Mapping[str, bytes | None],
    *,
    requires: Iterable[str] = (),
    context: int = 3,
    **files: bytes | None,
) -> Known:
    """Make the patch that brings files of a tree to new contents; `a=b"…"` is the file a.py."""
    after = {**before, **{f"{stem}.py": data for stem, data in files.items()}}
    return known(name, make_diff(before, after, context=context), requires=requires)


def inverse(name: str, patch: Known, before: Mapping[str, bytes | None]) -> Known:
    """Make the patch that takes another one back, which was made for these files."""
    after = {**before, **put(before, patch)}
    return known(name, make_diff(after, before))


def put(files: Mapping[str, bytes | None], *patches: Known) -> Files:
    """Put patches on files by hand."""
    from vllm_patcher.stack import Stack

    complete = {path: None for patch in patches for path in patch.paths}
    stack = Stack({**complete, **files})
    for patch in patches:
        problems = stack.put(patch)
        assert not problems, (patch.id, problems)
    return dict(stack.files)


def proof(released: Mapping[str, bytes | None]) -> Pristine:
    """Make what RECORD would say of released files."""
    return lambda path, data: released.get(path) == data


def nothing_proven(_path: str, _data: bytes | None) -> bool:
    """Answer for an install without RECORD."""
    return False


def refused(plan: Plan) -> bool:
    """Say whether a command would raise instead of writing."""
    return bool(plan.refusals) or any(f.state in (CONFLICT, BLOCKED) for f in plan.findings)


def words(plan: Plan) -> str:
    """Return all that a plan says, for searching."""
    reasons = [*plan.refusals, *(reason for f in plan.findings for reason in f.reasons)]
    return "\n".join(f"{reason.path} {reason.what}" for reason in reasons)


@dataclass(kw_only=True)
class World:
    """One install: `files` on disk, what was `released`, the `catalog`, and the receipt."""

    released: Files
    catalog: Sequence[Known]
    record: bool = True
    files: Files = field(default_factory=dict)
    receipt: list[tuple[Known, str]] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    """How a patch is asked about, if not by its one text."""

    def __post_init__(self) -> None:
        """Lay the released files where no others are given."""
        self.files = {**self.released, **self.files}

    @property
    def known(self) -> list[Known]:
        return list(dict.fromkeys([*self.catalog, *(patch for patch, _ in self.receipt)]))

    @property
    def here(self) -> Situation:
        everything = self.known
        current = {path: self.files.get(path) for patch in everything for path in patch.paths}
        return situation(
            current=current,
            known=everything,
            receipt=[patch for patch, _ in self.receipt],
            wanted={patch.id: wanted for patch, wanted in self.receipt},
            series=[patch.id for patch in everything],
            of_catalog=[patch.id for patch in self.catalog],
            pristine=proof(self.released) if self.record else nothing_proven,
        )

    def ask(self, name: str) -> Asked:
        if name in self.asked:
            return self.asked[name]
        patch = next(patch for patch in self.known if patch.id == name)
        return Asked(
            id=name, candidates=(patch,), requires=tuple(sorted(patch.requires)), named=True
        )

    def plan(self, *names: str, exact: bool = False) -> Plan:
        return plan_apply(self.here, [self.ask(name) for name in names], exact=exact)

    def plan_revert(self, *names: str, with_dependents: bool = False) -> Plan:
        return plan_revert(self.here, names or None, with_dependents=with_dependents)

    def apply(self, *names: str) -> Plan:
        """Apply patches; all or nothing."""
        return self._commit(self.plan(*names))

    def revert(self, *names: str, with_dependents: bool = False) -> Plan:
        """Revert patches, or all; all or nothing."""
        return self._commit(self.plan_revert(*names, with_dependents=with_dependents))

    def _commit(self, plan: Plan, *, files: int | None = None) -> Plan:
        if refused(plan):
            return plan
        going = {patch.id for patch in (*plan.goal, *plan.out)}
        rest = [(patch, wanted) for patch, wanted in self.receipt if patch.id not in going]
        self.receipt = self._in_order([*((patch, "in") for patch in plan.goal), *rest])
        for edit in plan.edits[:files]:
            self.files[edit.path] = edit.after
        return plan

    def interrupt(self, plan: Plan, *, files: int) -> None:
        """Carry a plan out, but be killed after so many files."""
        assert not refused(plan), words(plan)
        ids = {patch.id for patch in plan.goal}
        out = [(patch, "out") for patch in plan.out if patch.id not in ids]
        self._commit(plan, files=files)
        self.receipt = self._in_order([*self.receipt, *out])

    def _in_order(self, entries: Sequence[tuple[Known, str]]) -> list[tuple[Known, str]]:
        order = {name: place for place, name in enumerate(patch.id for patch in self.catalog)}
        return sorted(entries, key=lambda entry: order.get(entry[0].id, len(order)))

    def finding(self, name: str) -> Finding:
        """Judge one patch, as `verify` does."""
        (finding,) = self.plan(name).findings
        return finding

    def state(self, name: str) -> str:
        return self.finding(name).state

    def found(self) -> dict[str, bool]:
        """Name what was found: True if it is in whole, False if in part."""
        found = self.here.found
        whole = {patch.id: True for patch in found.patches}
        return {**whole, **{patch.id: False for patch in found.partial}}
