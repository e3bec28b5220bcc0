"""Errors of the libraries that talk to an index, as errors of ours.

Always true here: what is foreseen becomes a NotReleased without anybody's password in it; what is
not is a bug and stays one.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_patcher.errors import NotReleased

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
        raise NotReleased(f"released wheels can't be read without {error.name}", hint=_EXTRA) from (
            error
        )
    except KeyError as error:
        raise NotReleased(what, facts=[str(error.args[0]) if error.args else ""]) from error
    except Exception as error:
        if _is_foreseen(error):
            raise NotReleased(what, facts=[_line(error)]) from error
        raise


def _is_foreseen(error: Exception) -> bool:
    if isinstance(error, (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)):
        return True
    # Errors of requests are OSErrors; these two raise others besides.
    return type(error).__module__.partition(".")[0] in {"urllib3", "remotezip", "pypi_simple"}


def _line(error: Exception) -> str:
    """One line of what a library says, without the passwords that an address may hold."""
    said = re.sub(r"//[^/@\s]*@", "//***@", " ".join(str(error).split()))
    return f"{type(error).__name__}: {said}"[:_LONGEST]
