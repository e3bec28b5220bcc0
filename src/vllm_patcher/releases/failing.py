"""Errors of the libraries that talk to an index, as errors of ours.

Always true here: what the libraries raise over what they were sent becomes a NotReleased without
anybody's password in it; what our own lines raise is a bug and stays one.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_patcher.errors import NoReaderOfReleases, NotReleased

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTRA = "pip install 'vllm-patcher[releases]'"
_LONGEST = 300


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Make an error of ours of all that may go wrong between here and an index."""
    try:
        yield
    except ImportError as error:
        what = f"released wheels can't be read without {error.name}"
        raise NoReaderOfReleases(what, hint=_EXTRA) from error
    except KeyError as error:
        raise NotReleased(what, facts=[str(error.args[0]) if error.args else ""]) from error
    except Exception as error:
        if not _is_ours(error):
            raise NotReleased(what, facts=[_line(error)]) from error
        raise


def _is_ours(error: Exception) -> bool:
    """Say whether it comes from a line of this package, and not from below.

    What an index may send is anything, and of what a zip or a page of any bytes makes them raise
    the libraries promise nothing.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return str(name).partition(".")[0] == __name__.partition(".")[0]


def _line(error: Exception) -> str:
    """One line of what a library says, without the passwords that an address may hold."""
    said = re.sub(r"//[^/@\s]*@", "//***@", " ".join(str(error).split()))
    return f"{type(error).__name__}: {said}"[:_LONGEST]
