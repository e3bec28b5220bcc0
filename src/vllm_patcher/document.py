"""Answers as JSON for programs.

Always true here: a report or an error goes in, one object comes out that
``docs/report.schema.json`` describes; ``ok`` in it is true where the exit code is 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vllm_patcher import visible
from vllm_patcher.report import as_it_is
from vllm_patcher.results import Refused
from vllm_patcher.schema import SCHEMA

if TYPE_CHECKING:
    from vllm_patcher.errors import VllmPatchError
    from vllm_patcher.install import Install
    from vllm_patcher.report import Hint
    from vllm_patcher.results import Outcome, Report
    from vllm_patcher.states import Reason


def of_report(
    verb: str,
    report: Report | None,
    error: VllmPatchError | None = None,
    *,
    hint: Hint = as_it_is,
    diff: bytes | None = None,
) -> dict[str, Any]:
    """Build the JSON of a report, of an error, or of an error with what was found.

    ``diff`` is the diff that belongs to the answer.
    """
    errors: Iterable[VllmPatchError] = ()
    if isinstance(error, Refused):
        report, errors = error.report, error.errors
    elif error is not None:
        errors = (error,)
    elif report is not None and verb == "verify":
        errors = report.failures
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "verb": verb,
        "ok": not errors,
        "host": os.uname().nodename,
    }
    if report is not None:
        body |= _report_document(report)
    if diff is not None:
        body["diff"] = diff.decode("utf-8", "backslashreplace")
    body["errors"] = [of_error(item, hint) for item in errors]
    return body


def _report_document(report: Report) -> dict[str, Any]:
    return {
        "install": _install_document(report.install, report.version),
        "patches": [_outcome_document(outcome) for outcome in report.patches],
        "files": [
            {
                "path": file.path,
                "state": file.state,
                "sha256_before": file.before,
                "sha256_after": file.after,
                "patches": list(file.patches),
            }
            for file in report.files
        ],
        "wrote": report.wrote,
        "edits": [edit.path for edit in report.edits],
        "hiding": list(report.hiding),
        "shadowing": list(report.shadowing),
        "not_needed": report.passed_over,
        "if_named": list(report.if_named),
        "notes": list(report.notes),
    }


def of_error(error: VllmPatchError, hint: Hint) -> dict[str, Any]:
    """Build the JSON of an error."""
    return {
        "code": error.code,
        "what": error.what,
        "facts": list(error.facts),
        "hint": None if error.hint is None else hint(error.hint),
        "patch": error.patch or None,
    }


def of_install(install: Install, version: str) -> dict[str, Any]:
    """Build the JSON of the answer of `where`."""
    return {
        "schema": SCHEMA,
        "verb": "where",
        "ok": True,
        "install": _install_document(install, version),
        "notes": list(install.notes),
        "errors": [],
    }


def _install_document(install: Install, version: str) -> dict[str, Any]:
    """Build the JSON of an install."""
    return {
        "package": install.package,
        "version": version,
        "installed_version": install.version,
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
        "adhoc": outcome.adhoc,
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
        "expected": None if reason.expected is None else visible.line(reason.expected),
        "found": None if reason.found is None else visible.line(reason.found),
    }
