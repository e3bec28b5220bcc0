"""Compile a source in silence.

Always true here: the filters of warnings are as they were afterwards, whatever other threads of
this package compile at the same time; they belong to the whole process.
"""

from __future__ import annotations

import warnings
from _thread import allocate_lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

_FILTERS = allocate_lock()


def code_of(source: bytes, *, name: str, optimize: int = -1) -> CodeType:
    """Compile a source; ``name`` is what the code calls its file. Raises what `compile` does."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code: CodeType = compile(source, name, "exec", dont_inherit=True, optimize=optimize)
        return code
