"""Answers for a CI service: workflow commands of GitHub, and Markdown for a job's summary.

Always true here: a report or an error goes in, lines come out, and none of what a file or a
diff holds can begin a command or a tag of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vllm_patcher import visible
from vllm_patcher.inspection import Problems
from vllm_patcher.report import as_it_is, headline, warnings
from vllm_patcher.results import PatchNotIn, Refused
from vllm_patcher.visible import in_markdown

if TYPE_CHECKING:
    from vllm_patcher.errors import VllmPatchError
    from vllm_patcher.report import Hint
    from vllm_patcher.results import Outcome, Report
    from vllm_patcher.states import Reason

#: A fact that says where: ``FILE:LINE: text``, or ``FOLDER/FILE: text``.
_PLACED = r"(?P<file>[^:\n]+):(?:(?P<line>[0-9]+):)? (?P<text>.+)"


def github(
    report: Report, *, failed: bool, hint: Hint = as_it_is, about: str = ""
) -> Iterator[str]:
    """Yield a workflow command for each thing that is wrong, and none for what is right.

    ``failed`` says that the verb answers no; the failures of the report are the reasons. ``about``
    is put before what has no place in a file: which of several installs it is about.
    """
    for line in warnings(report):
        yield _command("warning", about + line)
    for failure in report.failures if failed else ():
        yield from _failure(report, failure, hint, about)
    for outcome in report.patches if failed else ():
        if outcome.fails:
            yield from _places(report, outcome)


def github_error(error: VllmPatchError, *, hint: Hint = as_it_is, about: str = "") -> Iterator[str]:
    """Yield a workflow command for each reason of a refusal, at its place if it has one."""
    if isinstance(error, Problems):
        for item in error.errors:
            yield from _located(item, hint, about)
        return
    if not isinstance(error, Refused):
        yield from _located(error, hint, about)
        return
    facts = [item.what for item in error.errors]
    yield _command("error", _message(about + error.what, facts, error.hint, hint))
    placed: set[str] = set()
    for item in error.errors:
        lines = [
            line
            for outcome in error.report.patches
            if outcome.id == item.patch and item.patch not in placed
            for line in _places(error.report, outcome)
        ]
        if lines:
            placed.add(item.patch)
        elif item.patch not in placed:
            lines = list(_located(item, hint, about))
        yield from lines


def markdown(report: Report, *, failed: bool, hint: Hint = as_it_is) -> Iterator[str]:
    """Yield a table of states, and what is wrong; a blank line ends each part."""
    yield f"**{in_markdown(headline(report.install, report.version))}**"
    yield ""
    if report.patches:
        yield "| patch | state | why |"
        yield "|---|---|---|"
        yield from (_row(outcome) for outcome in report.patches)
    else:
        yield f"Nothing to do for vLLM {in_markdown(report.version or 'of unknown version')}."
    yield ""
    if report.passed_over:
        yield f"Not needed for this version: {report.passed_over}."
        yield ""
    for failure in report.failures if failed else ():
        yield from _item(failure, hint)


def markdown_error(
    error: VllmPatchError, *, hint: Hint = as_it_is, about: str = ""
) -> Iterator[str]:
    """Yield what was found, if anything was, and why it was refused."""
    if isinstance(error, Refused):
        yield from markdown(error.report, failed=False)
        known = {outcome.id for outcome in error.report.patches if outcome.reasons}
        for item in error.errors:
            if item.patch not in known:
                yield from _item(item, hint)
        yield from _item(error, hint, facts=False)
    else:
        yield from _item(error, hint, about=about)


def _failure(report: Report, failure: VllmPatchError, hint: Hint, about: str) -> Iterator[str]:
    if isinstance(failure, PatchNotIn):
        facts = [f"{item.id}: {item.state}" for item in report.patches if item.fails]
        yield _command("error", _message(about + failure.what, facts, failure.hint, hint))
    else:
        yield from _located(failure, hint, about)


def _places(report: Report, outcome: Outcome) -> Iterator[str]:
    for reason in outcome.reasons:
        file = f"{report.install.package}/{reason.path}" if reason.path else ""
        message = "\n".join([reason.text, *_sides(reason)])
        title = f"{outcome.id}: {outcome.state}"
        yield _command("error", message, file=file, line=reason.line, title=title)


def _sides(reason: Reason) -> Iterator[str]:
    if reason.expected is not None:
        yield f"expected  {visible.line(reason.expected)}"
        yield f"found     {visible.line(reason.found)}"


def _located(error: VllmPatchError, hint: Hint, about: str) -> Iterator[str]:
    """One command for each fact that names a place; one for all the others."""
    facts = []
    for fact in error.facts:
        match = re.fullmatch(_PLACED, fact)
        if match and (match["line"] or "/" in match["file"]):
            line = int(match["line"] or 0)
            text = match["text"]
            yield _command("error", text, file=match["file"], line=line, title=error.what)
        else:
            facts.append(fact)
    if facts or error.hint or not error.facts:
        message = _message(about + error.what, facts, error.hint, hint)
        yield _command("error", message, title=error.patch)


def _message(what: str, facts: list[str], advice: str | None, hint: Hint) -> str:
    return "\n".join([what, *facts, *([f"hint: {hint(advice)}"] if advice else [])])


def _command(name: str, message: str, *, file: str = "", line: int = 0, title: str = "") -> str:
    """Write one command, escaped by the rules of the runner that reads it.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
    """
    values = (("file", file), ("line", str(line or "")), ("title", title or "vllm-patch"))
    properties = ",".join(f"{key}={_property(value)}" for key, value in values if value)
    return f"::{name} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _row(outcome: Outcome) -> str:
    why = [reason.text for reason in outcome.reasons]
    if outcome.probe is not None:
        why.append(f"probe: {outcome.probe.line}")
    state = f"**{outcome.state}**" if outcome.fails else outcome.state
    return f"| {in_markdown(outcome.id)} | {state} | {in_markdown('; '.join(why))} |"


def _item(
    error: VllmPatchError, hint: Hint, *, facts: bool = True, about: str = ""
) -> Iterator[str]:
    yield f"- error: {in_markdown(about + error.what)}"
    yield from (f"    - {in_markdown(fact)}" for fact in (error.facts if facts else ()))
    if error.hint:
        yield f"    - hint: {in_markdown(hint(error.hint))}"
    yield ""
