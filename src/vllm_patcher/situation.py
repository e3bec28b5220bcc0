"""All that one plan is made from, as one value.

Always true here: nothing is decided; what was found is found once, when the value is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_patcher.values import Value

from .explain import Compiler, compile_error
from .identify import identify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .identify import Found, Pristine
    from .known import Known
    from .stack import Tree


class Situation(Value):
    """All a plan is made from.

    ``series`` gives the order of ids and holds every one. ``known`` holds every text, ``receipt``
    those the receipt lists; ``wanted`` gives their ``in`` or ``out``. ``compile_error`` asks the
    Python that the files are for. ``keeps_receipt`` is false if there is no place for one.
    """

    current: Tree
    found: Found
    known: tuple[Known, ...]
    receipt: tuple[Known, ...]
    wanted: Mapping[str, str]
    series: tuple[str, ...]
    pristine: Pristine
    compile_error: Compiler
    keeps_receipt: bool


def situation(
    *,
    current: Tree,
    known: Sequence[Known],
    receipt: Sequence[Known],
    wanted: Mapping[str, str],
    series: Sequence[str],
    pristine: Pristine,
    compile_error: Compiler = compile_error,
    keeps_receipt: bool = True,
) -> Situation:
    """Identify what is there and gather it with the rest a plan needs."""
    return Situation(
        current=current,
        found=identify(current, known, receipt, pristine),
        known=tuple(known),
        receipt=tuple(receipt),
        wanted=wanted,
        series=tuple(dict.fromkeys([*series, *(patch.id for patch in known)])),
        pristine=pristine,
        compile_error=compile_error,
        keeps_receipt=keeps_receipt,
    )
