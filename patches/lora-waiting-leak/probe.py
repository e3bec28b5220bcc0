"""Probe: does a LoRA request that has ended stay listed as waiting?

    PYTHON -I -B probe.py PACKAGE_DIR

Exits 0 if the fault is absent, 1 if it is present, 77 if that can't be told here, and says
why in one line. It lives through the stories of the probe of lora-finish-request, the patch
that this one requires, and looks at what is listed when they are over.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PATCHES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _judge(outcome: Any) -> str:
    """Tell what is wrong with the waiting requests, whether or not an error came first."""
    return (
        f"the count of waiting requests is off by {outcome.waiting:+d}" if outcome.waiting else ""
    )


if __name__ == "__main__":
    stories = runpy.run_path(os.path.join(_PATCHES, "lora-finish-request", "probe.py"))
    tell: Callable[..., int] = stories["tell"]
    sys.exit(tell(_judge, sys.argv[1:]))
