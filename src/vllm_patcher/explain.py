"""Say in words an engineer can act on why a patch is refused.

Always true here: nothing is decided; what is said is found in the bytes that were looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher import visible
from vllm_patcher.hunks import nearest
from vllm_patcher.states import Reason

if TYPE_CHECKING:
    from vllm_patcher.diff import Hunk
    from vllm_patcher.hunks import Misfit, Nearest
    from vllm_patcher.known import Known
    from vllm_patcher.stack import Problem

#: With more hunks than this in one file nobody looks which of them are there.
_MANY_HUNKS = 100

_OTHER_ENDING = "differs in its line ending"

#: Kinds of reasons besides those of :class:`.hunks.Misfit`: the source would stop compiling, the
#: hunk is placed by nothing but a number, only the line ending differs, it fits without others.
NOT_COMPILING = "not-compiling"
NO_CONTEXT = "no-context"
LINE_ENDING = "line-ending"
BESIDE = "beside"
#: The id means two patches.
CLASH = "clash"


def describe(problem: Problem, patch: Known | None = None) -> Reason:
    """Say in words why a part has no place, with the nearest candidate.

    With its ``patch`` also which of its hunks are in the file already.
    """
    reason = _describe(problem)
    if not reason.misfit:
        reason = reason.replaced(misfit=problem.misfit.reason)
    half = _half_there(patch, problem) if patch is not None else ""
    return reason.replaced(what=f"{reason.what}; {half}") if half else reason


def _describe(problem: Problem) -> Reason:
    misfit = problem.misfit
    words = {
        "missing": "this release has no such file",
        "exists": "the file is to be created, and is there with other content",
        "differs": "the file is to be deleted, and its content differs",
    }
    if misfit.reason in words:
        return Reason(what=words[misfit.reason], path=problem.path)
    if misfit.reason == "ambiguous":
        places = ", ".join(str(line) for line in misfit.candidates[:8])
        what = f"hunk {misfit.number} fits at more than one place: lines {places}"
        return Reason(what=what, path=problem.path, line=misfit.expected)
    if misfit.reason == "elsewhere" and misfit.hunk is not None:
        return Reason(what=_elsewhere(misfit, misfit.hunk), path=problem.path, line=misfit.expected)
    return _describe_nowhere(problem, misfit)


def _half_there(patch: Known, problem: Problem) -> str:
    """Say which hunks of a patch are in a file already, if some are and some are not."""
    hunks = [
        hunk
        for part in patch.parts
        if (part.source or part.path) == problem.path
        for hunk in part.diff.hunks
    ]
    if len(hunks) > _MANY_HUNKS:
        return ""
    data = b"\n" + (problem.data or b"")
    there = [
        str(number)
        for number, hunk in enumerate(hunks, 1)
        # That lines are not there shows nothing about where they should not be.
        if hunk.added
        and b"\n" + b"".join(hunk.new) in data
        and b"\n" + b"".join(hunk.old) not in data
    ]
    if not there or len(there) == len(hunks):
        return ""
    hunks_are = "hunk" if len(there) == 1 else "hunks"
    return f"half of it is there: {hunks_are} {', '.join(there)} of {len(hunks)}"


def _elsewhere(misfit: Misfit, hunk: Hunk) -> str:
    places = ", ".join(str(line) for line in misfit.candidates[:8])
    where = (
        f"line {places}, which is" if len(misfit.candidates) == 1 else f"lines {places}, which are"
    )
    heading = visible.text(hunk.heading.decode(errors="backslashreplace"))
    return f"hunk {misfit.number} fits only at {where} not under '{heading}'"


def _describe_nowhere(problem: Problem, misfit: Misfit) -> Reason:
    what = f"hunk {misfit.number} has no place here"
    if misfit.hunk is not None and not misfit.hunk.old and problem.data:
        what = f"hunk {misfit.number} has no context, and nothing proves its line number"
        return Reason(what=what, path=problem.path, line=misfit.expected, misfit=NO_CONTEXT)
    near = nearest(problem.data or b"", misfit)
    if near is None:
        return Reason(what=what, path=problem.path, line=misfit.expected)
    what = f"{what}; nearest is line {near.line}"
    if not near.expected:
        end = "end" if near.index else "beginning"
        what = f"{what}, but it belongs at the {end} of the file"
        return Reason(what=what, path=problem.path, line=misfit.expected, found=near.found)
    differs = _difference(near)
    return Reason(
        what=f"{what}: line {near.index} {differs}",
        path=problem.path,
        line=misfit.expected,
        expected=near.expected,
        found=near.found,
        misfit=LINE_ENDING if differs == _OTHER_ENDING else "",
    )


def _difference(near: Nearest) -> str:
    if near.found is None:
        return "is not there"
    if near.found == near.expected + b"\n":
        return "ends in a newline"
    if near.found + b"\n" == near.expected:
        return "lacks its newline"
    if near.found.rstrip(b"\r\n") == near.expected.rstrip(b"\r\n"):
        return _OTHER_ENDING
    return "differs in blanks" if near.found.split() == near.expected.split() else "differs"


def upstream(patch: Known) -> Reason:
    """Say why a patch is not needed on a release that it fits in reverse."""
    added = any(hunk.added for part in patch.parts for hunk in part.diff.hunks)
    created = any(part.diff.change == "create" for part in patch.parts)
    if added or created:
        return Reason(what="this release has the change already")
    return Reason(what="the lines it takes out are not there")


def does_not_compile_any_more(path: str, error: SyntaxError) -> Reason:
    """Say where a Python source stops compiling that compiled before."""
    what = f"the patched file would not compile: {error.msg}"
    return Reason(what=what, path=path, line=error.lineno or 0, misfit=NOT_COMPILING)
