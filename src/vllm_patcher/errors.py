"""What can go wrong, as types with fields.

Every error this package raises on purpose is a :class:`VllmPatchError`: one sentence that
says what, facts that say where, and a hint that can be pasted. Nothing here knows how an
error is printed. Anything else that escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

#: The hint where a file is there and this user may not read it.
AS_A_READER = "run vllm-patch as a user who may read the install"


def pasted(*words: str) -> str:
    """Write the words of a command as a hint that a shell reads as these words."""
    from shlex import join

    return join(words)


def like(word: str, known: Iterable[str]) -> list[str]:
    """Give the known words that a mistyped one may mean, the likeliest first."""
    from difflib import get_close_matches

    return get_close_matches(word, [*dict.fromkeys(known)], n=3)


class VllmPatchError(Exception):
    """The root of all refusals.

    ``what`` is one sentence without a final full stop, ``facts`` are lines of detail,
    ``hint`` is one command or one instruction, or None. ``patch`` is the id of the patch it is
    about, if it is about one. ``code`` is a stable kebab-case name for programs.
    """

    code: ClassVar[str] = "refused"

    def __init__(
        self,
        what: str,
        *,
        facts: Iterable[str] = (),
        hint: str | None = None,
        patch: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.facts = tuple(facts)
        self.hint = hint
        self.patch = patch


def of_system(error: OSError) -> VllmPatchError:
    """What the operating system refused, as an error of ours."""
    why = error.strerror or str(error)
    where = error.filename if isinstance(error.filename, str) else ""
    return VllmPatchError(f"{where}: {why}" if where else why)


class UnknownPatch(VllmPatchError):
    """A patch was named that no catalog, no file and no receipt knows."""

    code = "unknown-patch"


class NotInstalled(VllmPatchError):
    """There is no vLLM that can be worked on, or more than one and no telling which."""

    code = "unusable-vllm"


def may_not_read(path: str, error: OSError) -> NotInstalled:
    """The refusal to judge what this user may not see."""
    return NotInstalled(f"{path} can't be read: {error.strerror}", hint=AS_A_READER)


class NoVllm(NotInstalled):
    """There is no vLLM at all where one was looked for."""

    code = "no-vllm"


class NotReleased(VllmPatchError):
    """A released wheel, or the list of them, can't be read from the package index."""

    code = "unreadable-release"


class NoReaderOfReleases(NotReleased):
    """A library that reads them is missing, so it is the same with every release."""


class UnsupportedVersion(VllmPatchError):
    """The version of this vLLM says nothing, or no variant of the patch is for it."""

    code = "unsupported-version"


class InvalidCatalog(VllmPatchError):
    """A manifest, its lock or a file it names is wrong."""

    code = "invalid-catalog"


class InvalidConfig(VllmPatchError):
    """The file that says what a project wants is wrong, or not to be trusted."""

    code = "invalid-config"


class InvalidPatch(VllmPatchError):
    """A diff is malformed or asks for something that is never done."""

    code = "invalid-patch"


class InvalidReceipt(VllmPatchError):
    """The receipt in the dist-info can't be read; somebody else wrote it or it is damaged."""

    code = "invalid-receipt"


class InvalidRecord(VllmPatchError):
    """The RECORD of the distribution can't be read."""

    code = "invalid-record"


class Conflict(VllmPatchError):
    """A patch has no place, more than one, or stands against another patch."""

    code = "conflict"


class UnsafePath(VllmPatchError):
    """A path would lead out of the package or through something that is not a plain folder."""

    code = "unsafe-path"


class WriteFailed(VllmPatchError):
    """The file system refused a write; what had been written was rolled back."""

    code = "write-failed"


class NotPutBack(WriteFailed):
    """The file system refused a write, and then that files were put back."""

    code = "not-put-back"
