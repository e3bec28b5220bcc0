"""Verdicts of `fit` as text, Markdown and JSON.

Always true here: what :mod:`.fit` found goes in, lines or one object come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vllm_patcher.fit import AMBIGUOUS, BROKEN, EXACT, FITTING, MISSING, OFFSET, UNREADABLE
from vllm_patcher.report import dotted, plain
from vllm_patcher.schema import SCHEMA
from vllm_patcher.states import CONFLICT, NOT_NEEDED, UPSTREAM
from vllm_patcher.visible import in_markdown

if TYPE_CHECKING:
    from vllm_patcher.fit import Fit, Verdict
    from vllm_patcher.proof import Proof
    from vllm_patcher.report import Style


_WIDTH = 16
_PROOF_WIDTH = 40
_COLORS = {
    EXACT: "green",
    OFFSET: "green",
    UPSTREAM: "cyan",
    NOT_NEEDED: "cyan",
    AMBIGUOUS: "red",
    CONFLICT: "red",
    MISSING: "red",
    BROKEN: "red",
    UNREADABLE: "yellow",
}
_SHORT = {EXACT: "✓", OFFSET: "✓ offset", UPSTREAM: "upstream", NOT_NEEDED: "-"}


def text(found: Sequence[Fit], *, style: Style = plain) -> Iterator[str]:
    """Yield a block a patch: a line a release, and what the patch may claim."""
    for fit in found:
        yield fit.id
        for verdict in fit.verdicts:
            word = style(verdict.state, _COLORS.get(verdict.state, "yellow"))
            detail = _detail(verdict)
            yield f"{dotted(verdict.release, _WIDTH)} {word}" + (f"  {detail}" if detail else "")
        yield _closing(fit)


def _detail(verdict: Verdict) -> str:
    moved = [
        f"vllm/{path}: {', '.join(f'{lines:+}' for lines in offsets)}"
        for path, offsets in verdict.offsets.items()
        if any(offsets)
    ]
    yanked = ["yanked"] if verdict.yanked else []
    return "; ".join([*yanked, *([verdict.detail] if verdict.detail else []), *moved])


def _closing(fit: Fit) -> str:
    count = sum(verdict.state in FITTING for verdict in fit.verdicts)
    unread = sum(verdict.state == UNREADABLE for verdict in fit.verdicts)
    claim = f": {fit.claim}" if fit.claim else ""
    lacking = f" ({unread} could not be read)" if unread else ""
    return f"{fit.id} fits {count} of {len(fit.verdicts)} releases{lacking}{claim}"


def markdown(found: Sequence[Fit]) -> Iterator[str]:
    """Yield one table, a line a release and a column a patch, and what each may claim."""
    yield f"| vLLM | {' | '.join(fit.id for fit in found)} |"
    yield f"|---|{'---|' * len(found)}"
    for row in zip(*(fit.verdicts for fit in found), strict=True):
        cells = [_SHORT.get(verdict.state, verdict.state) for verdict in row]
        yield f"| {row[0].release} | {' | '.join(cells)} |"
    yield ""
    yield from (f"- {_closing(fit)}" for fit in found)


def document(found: Sequence[Fit]) -> dict[str, Any]:
    """Build the JSON of all verdicts."""
    return {
        "schema": SCHEMA,
        "verb": "fit",
        "ok": True,
        "fits": [
            {
                "id": fit.id,
                "claim": fit.claim or None,
                "releases": [
                    {
                        "release": verdict.release,
                        "verdict": verdict.state,
                        "fits": verdict.state in FITTING,
                        "detail": verdict.detail or None,
                        "offsets": {path: list(by) for path, by in verdict.offsets.items()},
                        "yanked": verdict.yanked,
                    }
                    for verdict in fit.verdicts
                ],
            }
            for fit in found
        ],
        "errors": [],
    }


def proof_text(proofs: Sequence[Proof], *, style: Style = plain) -> Iterator[str]:
    """Yield a line a patch: whether it is proven, and on how many releases."""
    for proof in proofs:
        word, more = _proven(proof)
        color = "red" if proof.faults else "green"
        yield f"{dotted(proof.id, _PROOF_WIDTH)} {style(word, color)}{more}"


def _proven(proof: Proof) -> tuple[str, str]:
    """What was found of a patch, and on how many releases."""
    count = len(proof.faults)
    if count:
        return f"not proven ({count} fault{'' if count == 1 else 's'})", ""
    lacking = len(proof.changes) - sum(one.shown for one in proof.tried)
    probe = f", {lacking} without a probe that shows it" if lacking else ""
    return "proven", f" on {len(proof.changes)} releases{probe}"


def proof_markdown(proofs: Sequence[Proof], faults: Sequence[str]) -> Iterator[str]:
    """Yield one table, a line a patch, and then all faults that were found."""
    yield "| patch | proof |"
    yield "|---|---|"
    for proof in proofs:
        word, more = _proven(proof)
        yield f"| {proof.id} | {f'**{word}**' if proof.faults else word}{more} |"
    yield ""
    yield from (f"- {in_markdown(fault)}" for fault in faults)


def proof_document(proofs: Sequence[Proof], faults: Sequence[str]) -> dict[str, Any]:
    """Build the JSON of a catalog's proofs; ``faults`` are all that was found."""
    return {
        "schema": SCHEMA,
        "verb": "fit",
        "ok": not faults,
        "proofs": [
            {
                "id": proof.id,
                "proven": not proof.faults,
                "releases": list(proof.changes),
                "shown": [one.release for one in proof.tried if one.shown],
            }
            for proof in proofs
        ],
        "faults": list(faults),
        "errors": [],
    }
