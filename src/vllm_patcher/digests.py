"""SHA-256 as manifests, locks and reports write it: 64 hex digits in lower case."""

from __future__ import annotations

import hashlib

_DIGITS = "0123456789abcdef"
_LENGTH = 64


def sha256(data: bytes) -> str:
    """Return the digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def of_file(data: bytes | None) -> str | None:
    """Return the digest of what a file holds; None where there is no file."""
    return None if data is None else sha256(data)


def is_sha256(text: str) -> bool:
    """Tell whether a text is a digest as it is written here."""
    return len(text) == _LENGTH and not text.strip(_DIGITS)
