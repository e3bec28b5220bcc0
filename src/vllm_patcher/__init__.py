"""Apply, verify and revert versioned patches of an installed vLLM.

The verbs are functions that take a :class:`Request` and return a typed report; see
:mod:`vllm_patcher.operations`. They are imported at first use, so that importing this package
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_patcher.errors import VllmPatchError
    from vllm_patcher.operations import apply, changes, locate, preview, revert, status, verify
    from vllm_patcher.request import AdHoc, Request
    from vllm_patcher.results import Refused, Report

__version__ = "0.1.0"

__all__ = [
    "AdHoc",
    "Refused",
    "Report",
    "Request",
    "VllmPatchError",
    "apply",
    "changes",
    "locate",
    "preview",
    "revert",
    "status",
    "verify",
]

_HOME = {
    "AdHoc": "request",
    "Refused": "results",
    "Report": "results",
    "Request": "request",
    "VllmPatchError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'operations')}"), name)
