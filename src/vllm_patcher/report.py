"""Reports as text for people.

Always true here: a report or an error goes in, lines come out; nothing is printed. There is a
line a patch with one coloured word, and details only where something is not clean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from vllm_patcher import visible
from vllm_patcher.probes import ABSENT, CANT_RUN, SHOWN
from vllm_patcher.results import MISSING, MODIFIED, Outcome, Refused, Report
from vllm_patcher.states import (
    APPLIED,
    BLOCKED,
    CONFLICT,
    FAILING,
    NOT_APPLIED,
    PRESENT,
    SATISFYING,
    UNSUPPORTED,
    Reason,
)

if TYPE_CHECKING:
    from vllm_patcher.errors import VllmPatchError
    from vllm_patcher.install import Install

#: Takes a text and the name of a colour.
Style = Callable[[str, str], str]
#: Takes the hint of an error and makes it one for the command line at hand.
Hint = Callable[[str], str]

_WIDTH = 32
_REVERTED = "reverted"
_COLORS = {
    **dict.fromkeys(SATISFYING, "green"),
    **dict.fromkeys(FAILING, "red"),
    PRESENT: "yellow",
    UNSUPPORTED: "yellow",
    _REVERTED: "green",
}
#: In these states a patch is refused, and its reasons stand below it.
_EXPLAINED = frozenset({CONFLICT, BLOCKED, UNSUPPORTED, PRESENT})
_FILE_WORDS = {
    MODIFIED: "modified: it is not what was released plus known patches",
    MISSING: "missing: it was released and is not there",
}
_PROBE_WORDS = {ABSENT: "fault absent", SHOWN: "fault present", CANT_RUN: "can't tell"}


def color_of(word: str) -> str:
    """The colour of a state's word; a newer release may know more of them."""
    return _COLORS.get(word, "yellow")


def plain(text: str, _color: str) -> str:
    """Leave a text uncoloured."""
    return text


def as_it_is(hint: str) -> str:
    """Leave a hint as the library gives it."""
    return hint


def text(
    report: Report,
    *,
    style: Style = plain,
    verbose: bool = False,
    refused: bool = False,
    columns: int = 10**6,
) -> Iterator[str]:
    """Yield the lines of a report; ``refused`` leaves out what says how the verb ended.

    Where the terminal has so few ``columns`` leaders get shorter, or a state its own line.
    """
    yield headline(report.install, report.version)
    words = {outcome.id: _word(report, outcome) for outcome in report.patches}
    width = max([_WIDTH, *(len(name) + 5 for name in words)])
    width = min([width, *(columns - len(word) - 1 for word in words.values())])
    for outcome in report.patches:
        word = words[outcome.id]
        leader = dotted(outcome.id, width)
        if len(leader) + 1 + len(word) > columns:
            yield outcome.id
            leader = " "
        yield f"{leader} {style(word, color_of(word))}"
        yield from _below(outcome, verbose=verbose)
    yield from _files(report, verbose=verbose)
    if report.verb != "verify":  # which says so as an error
        for path in report.hiding:
            yield f"{path}: old bytecode that Python would run in place of the patched source"
        for path in report.shadowing:
            yield f"{path}: Python takes this before the patched source"
    if not refused:
        yield from _closing(report)


def warnings(report: Report) -> Iterator[str]:
    """Yield what must be said although the verb does not fail because of it."""
    unsupported: dict[str, list[str]] = {}
    for outcome in report.patches:
        if outcome.state == UNSUPPORTED and not outcome.fails:
            why = "; ".join(reason.what for reason in outcome.reasons) or "nobody knows why"
            unsupported.setdefault(why, []).append(outcome.id)
    for why, ids in unsupported.items():
        yield f"{', '.join(ids)} {'is' if len(ids) == 1 else 'are'} unsupported: {why}"


def headline(install: Install, version: str) -> str:
    """Say which vLLM it is, in one line."""
    said = version or "(no version)"
    if version != install.version:
        said += f" (assumed; it is {install.version or 'without a version'})"
    return f"{install.name or 'vllm'} {said}  {install.package}"


def install_text(install: Install, version: str) -> Iterator[str]:
    """Say which vLLM it is, how it was found, and what else was seen."""
    source = f"from {install.version_source or 'nowhere'}"
    if version != install.version:
        source = f"assumed; it is {install.version or 'none'} {source}"
    yield headline(install, version)
    yield f"found by   {install.found_by}"
    yield f"dist-info  {install.dist_info or 'none'}"
    yield f"version    {source}"
    yield f"python     {install.python or 'none known'}"
    if install.editable:
        yield f"editable   {install.editable}"
    yield from (f"other      {other}" for other in install.others)
    yield from (f"note       {note}" for note in install.notes)


def _below(outcome: Outcome, *, verbose: bool) -> Iterator[str]:
    for reason in outcome.reasons:
        yield from _reason(reason)
    if verbose:
        for path, offsets in outcome.files.items():
            moved = [f"hunk {n} moved {by:+} lines" for n, by in enumerate(offsets, 1) if by]
            yield "  ".join([f"  vllm/{path}", *([", ".join(moved)] if moved else [])])
    if outcome.probe is not None:
        yield f"  {probe_line(outcome.probe.answer, outcome.probe.line)}"


def probe_line(answer: str, said: str) -> str:
    """Tell what a probe found, and what it said."""
    word = _PROBE_WORDS.get(answer, answer)
    # Many a probe begins with these words itself.
    return f"probe: {said if said.startswith(word) else f'{word}: {said}'}"


def _word(report: Report, outcome: Outcome) -> str:
    gone = report.verb == "revert" and outcome.state == NOT_APPLIED
    return _REVERTED if gone and outcome.was != NOT_APPLIED else outcome.state


def dotted(name: str, width: int = _WIDTH) -> str:
    """A name and its leader of dots."""
    return f"{name} {'.' * max(3, width - len(name) - 1)}"


def _files(report: Report, *, verbose: bool) -> Iterator[str]:
    explained = {reason.path for outcome in report.patches for reason in outcome.reasons}
    for file in report.files:
        path = f"vllm/{file.path}"
        if file.state == MISSING or (file.state == MODIFIED and file.path not in explained):
            yield f"{path}  {_FILE_WORDS[file.state]}"
        if verbose:
            yield f"{path}  {file.state}  sha256 {file.before or 'none'}"
            if file.before != file.after:
                became = "became" if report.wrote else "would become"
                yield f"{path}  {became}  sha256 {file.after or 'none'}"


def _reason(reason: Reason) -> Iterator[str]:
    yield f"  {reason.where}  {reason.what}" if reason.path else f"  {reason.what}"
    if reason.expected is not None:
        yield f"      expected  {visible.line(reason.expected)}"
        yield f"      found     {visible.line(reason.found)}"


def _closing(report: Report) -> Iterator[str]:
    if report.verb in ("apply", "verify", "preview") and not report.patches:
        yield f"nothing to do for vLLM {report.version or 'of unknown version'}"
    if report.if_named:
        yield f"only if named: {', '.join(report.if_named)}"
    if report.passed_over and report.verb != "revert":
        patches = "1 patch is" if report.passed_over == 1 else f"{report.passed_over} patches are"
        yield f"{patches} not needed for this version"
    if report.verb in ("apply", "revert"):
        yield from _done(report)
    elif report.verb == "preview" and report.patches:
        count = len(report.edits)
        files = f"{count or 'no'} file{'' if count == 1 else 's'}"
        yield f"nothing was written; {files} would be changed{':' if count else ''}"


def _done(report: Report) -> Iterator[str]:
    if report.wrote and report.edits:
        yield "restart running vLLM processes"
    elif report.wrote:
        yield "no source was changed: what is in is recorded now, and no old bytecode hides it"
    elif report.verb == "revert":
        yield "nothing to revert"
    elif report.patches:
        was_in = all(outcome.state in (APPLIED, PRESENT) for outcome in report.patches)
        yield "nothing was changed: all was in already" if was_in else "nothing had to be changed"


def error_text(
    error: VllmPatchError, *, style: Style = plain, hint: Hint = as_it_is, about: str = ""
) -> Iterator[str]:
    """Yield the lines of an error: what, indented facts, one hint.

    ``about`` is put before what: which of several installs it is about.
    """
    word = style("error", "red")
    if isinstance(error, Refused):
        for inner in _unexplained(error):
            yield f"{word}: {about}{inner.what}"
            yield from (f"  {fact}" for fact in inner.facts)
    yield f"{word}: {about}{error.what}"
    if not isinstance(error, Refused):
        yield from (f"  {fact}" for fact in error.facts)
    if error.hint:
        yield f"hint: {hint(error.hint)}"


def _unexplained(refused: Refused) -> Iterable[VllmPatchError]:
    """The errors of a refusal that the report does not show below a patch already."""
    explained = {item.id for item in refused.report.patches if item.state in _EXPLAINED}
    return [error for error in refused.errors if error.patch not in explained]
