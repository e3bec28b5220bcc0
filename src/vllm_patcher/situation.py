"""All that one plan is made from, as one value.

Always true here: nothing is decided; what was found is found once, when the value is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vllm_patcher.compiling import objections
from vllm_patcher.identify import identify
from vllm_patcher.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_patcher.identify import Found
    from vllm_patcher.known import Known
    from vllm_patcher.stack import Tree
    from vllm_patcher.unit import Pristine

#: Says for each source why it does not compile, or None if it does.
Compiler = Callable[[Sequence[bytes]], "list[SyntaxError | None]"]


class Situation(Value):
    """All a plan is made from.

    ``series`` gives the order of ids and holds every one; ``of_catalog`` are those at its beginning
    whose place no receipt decides. ``known`` holds every text, ``receipt``
    those the receipt lists; ``wanted`` gives their ``in`` or ``out``. ``objections`` asks the
    Python that the files are for why each of some sources does not compile. ``keeps_receipt`` is
    false if there is no place for one.
    """

    current: Tree
    found: Found
    known: tuple[Known, ...]
    receipt: tuple[Known, ...]
    wanted: Mapping[str, str]
    series: tuple[str, ...]
    of_catalog: tuple[str, ...]
    pristine: Pristine
    objections: Compiler
    keeps_receipt: bool


def situation(
    *,
    current: Tree,
    known: Sequence[Known],
    receipt: Sequence[Known],
    wanted: Mapping[str, str],
    series: Sequence[str],
    pristine: Pristine,
    objections: Compiler = objections,
    keeps_receipt: bool = True,
    of_catalog: Sequence[str] = (),
) -> Situation:
    """Identify what is there and gather it with the rest a plan needs."""
    return Situation(
        current=current,
        found=identify(current, known, receipt, pristine),
        known=tuple(known),
        receipt=tuple(receipt),
        wanted=wanted,
        series=tuple(dict.fromkeys([*series, *(patch.id for patch in known)])),
        of_catalog=tuple(of_catalog),
        pristine=pristine,
        objections=objections,
        keeps_receipt=keeps_receipt,
    )
