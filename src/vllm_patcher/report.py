"""Reports as text for people and as JSON for programs.

Always true here: a report or an error goes in, lines come out; nothing is printed. Text is a
line a patch, one coloured word, and details only where something is not clean. The JSON is the
one of ``docs/report.schema.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .errors import VllmPatchError
from .install import Install
from .probes import ABSENT
from .results import Outcome, Refused, Report
from .states import (
    APPLIED,
    BLOCKED,
    CONFLICT,
    NOT_APPLIED,
    OUTDATED,
    PARTIAL,
    PRESENT,
    SATISFYING,
    UNSUPPORTED,
    Reason,
)

SCHEMA = 1

#: Takes a text and the name of a colour.
Style = Callable[[str, str], str]

_WIDTH = 32
_COLORS = {
    **dict.fromkeys(SATISFYING, "green"),
    **dict.fromkeys((NOT_APPLIED, PARTIAL, OUTDATED, CONFLICT, BLOCKED), "red"),
    PRESENT: "yellow",
    UNSUPPORTED: "yellow",
    "reverted": "green",
}
_NO_DETAILS = frozenset({APPLIED, NOT_APPLIED})


def plain(text: str, _color: str) -> str:
    """Leave a text uncoloured."""
    return text


def text(report: Report, *, style: Style = plain, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of a report."""
    yield headline(report.install, report.version)
    for outcome in report.patches:
        yield from _outcome(report, outcome, style, verbose=verbose)
    for path in report.hiding:
        yield f"{path}: stale bytecode hides the patched source"
    for path in report.shadowing:
        yield f"{path}: Python takes this before the patched source"
    if verbose:
        for file in report.files:
            yield f"{report.install.package}/{file.path}  {file.state}  {file.before or 'absent'}"
    yield from _closing(report)


def headline(install: Install, version: str) -> str:
    """Say which vLLM it is, in one line."""
    return f"{install.name or 'vllm'} {version or '(no version)'}  {install.package}"


def install_text(install: Install, version: str) -> Iterator[str]:
    """Say which vLLM it is, how it was found, and what else was seen."""
    yield headline(install, version)
    yield f"found by   {install.found_by}"
    yield f"dist-info  {install.dist_info or 'none'}"
    yield f"version    from {install.version_source or 'nowhere'}"
    yield f"python     {install.python or 'none known'}"
    if install.editable:
        yield f"editable   {install.editable}"
    yield from (f"other      {other}" for other in install.others)
    yield from (f"note       {note}" for note in install.notes)


def _outcome(report: Report, outcome: Outcome, style: Style, *, verbose: bool) -> Iterator[str]:
    word = _word(report, outcome)
    yield f"{dotted(outcome.id)} {style(word, _COLORS[word])}"
    if verbose or word not in _NO_DETAILS:
        for reason in outcome.reasons:
            yield from _reason(reason)
    if verbose:
        for path, offsets in outcome.files.items():
            moved = ", ".join(f"{offset:+}" for offset in offsets if offset)
            yield f"  vllm/{path}" + (f"  hunks moved by {moved} lines" if moved else "")
    if outcome.probe is not None:
        yield f"  probe: fault {outcome.probe.answer}: {outcome.probe.line}"


def _word(report: Report, outcome: Outcome) -> str:
    if report.verb == "revert" and report.wrote and outcome.state in (APPLIED, PARTIAL):
        return "reverted"
    return outcome.state


def dotted(name: str) -> str:
    """A name and its leader of dots."""
    return f"{name} {'.' * max(3, _WIDTH - len(name) - 1)}"


def _reason(reason: Reason) -> Iterator[str]:
    where = f"vllm/{reason.path}" if reason.path else ""
    if reason.line:
        where += f":{reason.line}"
    yield f"  {where}  {reason.what}" if where else f"  {reason.what}"
    if reason.expected is not None:
        yield f"      expected  {visible(reason.expected)}"
        found = "(end of file)" if reason.found is None else visible(reason.found)
        yield f"      found     {found}"


def visible(line: bytes) -> str:
    """A line of a file with what can't be seen made visible."""
    shown = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    ending = "" if line.endswith(b"\n") else "  (no newline at the end)"
    shown = shown.replace("\t", "\\t").replace("\r", "\\r").replace("\f", "\\f")
    body = shown.rstrip(" ")
    trailing = "\N{MIDDLE DOT}" * (len(shown) - len(body))
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in body) + trailing
    return (shown[:200] + "…" if len(shown) > 200 else shown) + ending


def _closing(report: Report) -> Iterator[str]:
    if report.verb in ("apply", "verify", "preview") and not report.patches:
        yield f"nothing to do for vLLM {report.version}"
    if report.passed_over and report.verb != "revert":
        yield f"{report.passed_over} not needed for this version"
    if report.verb == "revert" and not report.wrote:
        yield "nothing to revert"
    if report.edits and report.wrote:
        yield "restart running vLLM processes"


def error_text(error: VllmPatchError, *, style: Style = plain) -> Iterator[str]:
    """Yield the lines of an error: what, indented facts, one hint."""
    if isinstance(error, Refused):
        for inner in error.errors:
            if not inner.patch and not error.what.startswith(inner.what):
                yield f"{style('error', 'red')}: {inner.what}"
                yield from (f"  {fact}" for fact in inner.facts)
    yield f"{style('error', 'red')}: {error.what}"
    facts = error.facts or (error.errors[0].facts if _alone(error) else ())
    yield from (f"  {fact}" for fact in facts)
    if error.hint:
        yield f"hint: {error.hint}"


def verdict(report: Report) -> VllmPatchError:
    """What `verify` says when its answer is no."""
    bad = [item.id for item in report.patches if item.state not in SATISFYING]
    total = len(report.patches)
    if bad:
        are = "is" if len(bad) == 1 else "are"
        what = f"{len(bad)} of {total} patches {are} not in as they should be"
        return VllmPatchError(what, hint="vllm-patch apply")
    if report.hiding:
        return VllmPatchError("stale bytecode hides a patch", hint="vllm-patch apply")
    if report.shadowing:
        return VllmPatchError("a patched source is never read")
    if any(item.probe is not None and item.probe.answer != ABSENT for item in report.patches):
        return VllmPatchError("a probe did not show that the fault is gone")
    return VllmPatchError("a file differs from what was released (--strict)")


def _alone(error: VllmPatchError) -> bool:
    return isinstance(error, Refused) and not error.errors[0].patch


def document(
    verb: str, report: Report | None, error: VllmPatchError | None = None
) -> dict[str, Any]:
    """Build the JSON of a report, of an error, or of an error with what was found."""
    if isinstance(error, Refused):
        report = error.report
    body: dict[str, Any] = {"schema": SCHEMA, "verb": verb, "ok": error is None}
    if report is not None:
        body["ok"] = report.ok and error is None
        body["install"] = install_document(report.install, report.version)
        body["patches"] = [_outcome_document(outcome) for outcome in report.patches]
        body["files"] = [
            {
                "path": file.path,
                "state": file.state,
                "sha256": file.before,
                "sha256_planned": file.after,
                "patches": list(file.patches),
            }
            for file in report.files
        ]
        body["changed"] = [edit.path for edit in report.edits]
        body["wrote"] = report.wrote
        body["hiding"] = list(report.hiding)
        body["shadowing"] = list(report.shadowing)
        body["not_needed"] = report.passed_over
        body["notes"] = list(report.notes)
    body["errors"] = [_error_document(item) for item in _flat(error)]
    return body


def _flat(error: VllmPatchError | None) -> Iterable[VllmPatchError]:
    if error is None:
        return ()
    return error.errors if isinstance(error, Refused) else (error,)


def _error_document(error: VllmPatchError) -> dict[str, Any]:
    return {
        "code": error.code,
        "what": error.what,
        "facts": list(error.facts),
        "hint": error.hint,
        "patch": error.patch or None,
    }


def install_document(install: Install, version: str) -> dict[str, Any]:
    """Build the JSON of an install."""
    return {
        "package": install.package,
        "version": version,
        "version_source": install.version_source,
        "name": install.name,
        "dist_info": install.dist_info,
        "python": install.python,
        "found_by": install.found_by,
        "editable": install.editable or None,
        "others": list(install.others),
    }


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    probe = outcome.probe
    return {
        "id": outcome.id,
        "title": outcome.title,
        "state": outcome.state,
        "was": outcome.was,
        "named": outcome.named,
        "reasons": [_reason_document(reason) for reason in outcome.reasons],
        "files": [
            {"path": path, "offsets": list(offsets)} for path, offsets in outcome.files.items()
        ],
        "probe": None if probe is None else {"fault": probe.answer, "says": probe.line},
    }


def _reason_document(reason: Reason) -> dict[str, Any]:
    return {
        "what": reason.what,
        "path": reason.path or None,
        "line": reason.line or None,
        "expected": None if reason.expected is None else visible(reason.expected),
        "found": None if reason.found is None else visible(reason.found),
    }
