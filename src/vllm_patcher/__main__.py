"""The process of ``vllm-patch``, and of ``python -m vllm_patcher``: one short run."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # To look for cycles of garbage, while modules are imported most of all, and to take all of
    # them apart at the end, would take longer than most verbs.
    gc.disable()
    try:
        from vllm_patcher.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before `run` could answer for it
        code = 130
    for stream in (sys.stdout, sys.stderr):
        # What matters has been flushed, and answered for, where it was written.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
