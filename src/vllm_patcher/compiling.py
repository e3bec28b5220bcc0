"""Compile sources in silence, for the Python that they are for.

Always true here: nothing is run; the filters of warnings are as they were afterwards, whatever
other threads of this package compile at the same time; they belong to the whole process.
"""

from __future__ import annotations

import os
import sys
import warnings
from _thread import RLock
from typing import TYPE_CHECKING, Any

from vllm_patcher import process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

#: With more bytes than this a second process is worth its start.
_MUCH = 4_000_000
_TIMEOUT = 60.0  # seconds
_FILTERS = RLock()
# A fork waits for what is being compiled: its child would have a lock that nobody lets go, and
# filters that nobody puts back.
os.register_at_fork(
    before=_FILTERS.acquire,
    after_in_parent=_FILTERS.release,
    after_in_child=_FILTERS.release,
)

# Runs in CPython 3.8 and later: a JSON list of sizes, then the sources; and back, for each,
# nothing or a line and what is wrong there.
_ELSEWHERE = """
import json, sys, warnings
warnings.simplefilter('ignore')
read = sys.stdin.buffer
answers = []
for source in [read.read(size) for size in json.loads(read.readline())]:
    try:
        compile(source, '<patched>', 'exec', dont_inherit=True)
    except SyntaxError as error:
        answers.append([error.lineno or 0, error.msg])
    except (ValueError, RecursionError, MemoryError) as error:
        answers.append([0, type(error).__name__ + ' ' + str(error)])
    else:
        answers.append(None)
print(json.dumps(answers))
"""

# The same for pairs of bytecode and source: is the one of another text than the other? Nothing is
# answered about bytecode that this Python would not run.
_OF_OTHER_TEXT = """
import importlib.util, json, marshal, sys, warnings
warnings.simplefilter('ignore')
def bare(code):
    table = 'co_linetable' if hasattr(code, 'co_linetable') else 'co_lnotab'
    inner = [bare(one) if isinstance(one, type(code)) else one for one in code.co_consts]
    return code.replace(co_consts=tuple(inner), **{table: b''})
answers = []
for pyc, source, level in json.load(sys.stdin):
    try:
        with open(pyc, 'rb') as file:
            data = file.read()
        if data[:4] != importlib.util.MAGIC_NUMBER:
            answers.append(None)
            continue
        with open(source, 'rb') as file:
            fresh = compile(file.read(), source, 'exec', dont_inherit=True, optimize=level)
        answers.append(bare(marshal.loads(data[16:])) != bare(fresh))
    except (OSError, RecursionError, MemoryError):
        answers.append(False)
    except (SyntaxError, ValueError, EOFError, TypeError, AttributeError):
        answers.append(True)
print(json.dumps(answers))
"""


def is_own(python: str) -> bool:
    """Say whether an interpreter is the one that runs this."""
    return os.path.realpath(python) == os.path.realpath(sys.executable)


def code_of(source: bytes, *, name: str, optimize: int = -1) -> CodeType:
    """Compile a source; ``name`` is what the code calls its file. Raises what `compile` does."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code: CodeType = compile(source, name, "exec", dont_inherit=True, optimize=optimize)
        return code


def objections(sources: Sequence[bytes]) -> list[SyntaxError | None]:
    """Say of each source why it does not compile for the Python that runs this; None if it does.

    Much is shared with a second process, where there are two processors.
    """
    here: list[SyntaxError | None] = []
    half = len(sources) // 2 if _is_much(sources) else len(sources)
    if half < len(sources):
        mine = sources[:half]
        there = _asked(sys.executable, sources[half:], lambda: here.extend(map(_objection, mine)))
        if there is not None:
            return here + there
    # Alone, or the other did not answer.
    return here + [_objection(source) for source in sources[len(here) :]]


def objections_of(python: str, sources: Sequence[bytes]) -> list[SyntaxError | None]:
    """Ask another interpreter the same; of what it does not answer it has none."""
    if not sources:
        return []
    answers = _asked(python, sources)
    if answers is None and len(sources) > 1:
        # One source that it can't bear must not speak for the others.
        return [answer for source in sources for answer in objections_of(python, [source])]
    return answers or [None]


def of_other_text(python: str | None, pairs: Sequence[tuple[str, str, int]]) -> list[bool | None]:
    """Ask another interpreter which bytecode was made of what its source does not say now.

    A pair is the path of the bytecode, that of the source, and the level of optimisation. Of what
    it would not run, and if it does not answer, there is None.
    """
    import json

    answers = None
    if python and pairs and not is_own(python):
        answers = _answers(python, _OF_OTHER_TEXT, json.dumps(pairs).encode(), len(pairs))
    return [None] * len(pairs) if answers is None else answers


def _is_much(sources: Sequence[bytes]) -> bool:
    processors = os.cpu_count() or 1
    return processors > 1 and bool(sys.executable) and sum(map(len, sources)) > _MUCH


def _objection(source: bytes) -> SyntaxError | None:
    try:
        code_of(source, name="<patched>")
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))
    return None


def _asked(
    python: str, sources: Sequence[bytes], meanwhile: Callable[[], None] | None = None
) -> list[SyntaxError | None] | None:
    """Let another process compile; None if it does not answer."""
    import json

    sizes = json.dumps([len(source) for source in sources])
    data = b"".join([sizes.encode(), b"\n", *sources])
    answers = _answers(python, _ELSEWHERE, data, len(sources), meanwhile)
    if answers is None:
        return None
    return [None if answer is None else _error(*answer) for answer in answers]


def _answers(
    python: str,
    script: str,
    data: bytes,
    count: int,
    meanwhile: Callable[[], None] | None = None,
) -> list[Any] | None:
    """Run a script of the above in an interpreter; None unless it gives so many answers."""
    import json

    command = [python, "-I", "-S", "-B", "-c", script]
    try:
        ended = process.run(command, data=data, seconds=_TIMEOUT, meanwhile=meanwhile)
        answers = json.loads(ended.output) if ended is not None else []
    except (OSError, ValueError):
        return None
    return answers if len(answers) == count else None


def _error(line: int, what: str) -> SyntaxError:
    error = SyntaxError(what)
    error.lineno = line
    return error
