"""Hold back an interrupt while something is done that must not be torn.

Always true here: no interrupt is lost, and none is raised but where it is asked for or at the end.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT; what is given raises KeyboardInterrupt if one has come.

    Python interrupts its main thread only, so in any other there is nothing to hold back.
    """
    came: list[tuple[int, Any]] = []

    def raise_if_one_came() -> None:
        if came:
            raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and callable(handler)):
        yield raise_if_one_came
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield raise_if_one_came
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
