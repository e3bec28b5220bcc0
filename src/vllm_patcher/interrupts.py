"""Hold back an interrupt while something is done that must not be torn.

Always true here: who handles interrupts is told of each, where it is asked for or at the end; what
that raises does not take the place of an error that is on its way already.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT; what is given hands on what has come, and raises what its handler does.

    Python interrupts its main thread only, so in any other there is nothing to hold back.
    """
    came: list[tuple[int, Any]] = []
    handler = signal.getsignal(signal.SIGINT)

    def hand_on() -> None:
        while came and callable(handler):
            handler(*came.pop(0))

    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and callable(handler)):
        yield hand_on
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield hand_on
    except BaseException:
        signal.signal(signal.SIGINT, handler)
        with suppress(BaseException):
            hand_on()
        raise
    signal.signal(signal.SIGINT, handler)
    hand_on()
