"""The receipt: which patches were put into this install, with their texts.

Always true here: a receipt helps to find things out and is never believed; it holds no time and
no host, so that equal images get equal receipts. It is the file ``vllm-patcher.json`` in the
dist-info folder; diffs are kept as text, or in base64 where they are not UTF-8. One id is there
once, or twice while one revision of a patch takes the place of another: one in, one out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from vllm_patcher.errors import InvalidReceipt
from vllm_patcher.values import Value

NAME = "vllm-patcher.json"
_SCHEMA = 1


class Entry(Value):
    """One patch of the receipt.

    ``text`` is the diff as it was given. ``wanted`` is ``in`` or ``out``: which way the run that
    wrote it was going. ``places`` says for each file of the diff which path of the package it was
    taken for: the path, the path and that of its source for a rename, or nothing for a file that
    was left out. It is kept because names are told by what is on disk, and that changes.
    ``requires`` is what was known to be required, ``adhoc`` is true for a diff of no catalog.
    """

    id: str
    text: bytes
    wanted: str = "in"
    requires: tuple[str, ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    adhoc: bool = False


def is_id(text: str) -> bool:
    """Say whether a text can be the id of a patch: shown, typed, and taken for nothing else."""
    plain = text.isprintable() and text == text.strip() and "/" not in text
    return bool(text) and plain and not text.startswith(("-", "."))


def dump(entries: Sequence[Entry]) -> bytes:
    """Write a receipt; the order of the entries is the order the patches are applied in."""
    patches = [
        {
            "id": entry.id,
            "wanted": entry.wanted,
            **_encode(entry.text),
            "requires": list(entry.requires),
            "places": [list(place) for place in entry.places],
            "adhoc": entry.adhoc,
        }
        for entry in entries
    ]
    document = {"schema": _SCHEMA, "patches": patches}
    return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"


def load(data: bytes | None, *, path: str) -> tuple[Entry, ...]:
    """Read a receipt (None: there is none). Raises InvalidReceipt, which names ``path``."""
    if data is None:
        return ()
    try:
        document = json.loads(data)
        if _number(document["schema"]) > _SCHEMA:
            raise _invalid(path, "a newer vllm-patch wrote it", hint="upgrade vllm-patcher")
        if document["schema"] != _SCHEMA:
            raise ValueError(f"schema {document['schema']!r} is unknown")
        entries = tuple(_entry(item) for item in document["patches"])
        if len({(entry.id, entry.wanted) for entry in entries}) != len(entries):
            raise ValueError("an id occurs twice")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "reinstall vllm, or delete the receipt if you know what is applied"
        raise _invalid(path, f"{type(error).__name__}: {error}", hint=hint) from error
    return entries


def _invalid(path: str, why: str, *, hint: str) -> InvalidReceipt:
    return InvalidReceipt("the receipt can't be read", facts=[path, why], hint=hint)


def _entry(item: dict[str, object]) -> Entry:
    entry = Entry(
        id=_text(item["id"]),
        text=_decode(item),
        wanted=_text(item["wanted"]),
        requires=_texts(item.get("requires", [])),
        places=tuple(_texts(place) for place in _list(item.get("places", []))),
        adhoc=_flag(item.get("adhoc", False)),
    )
    if not is_id(entry.id):
        raise ValueError(f"{entry.id!r} can't be an id")
    if entry.wanted not in ("in", "out"):
        raise ValueError(f"entry {entry.id!r} is neither in nor out")
    return entry


def _encode(text: bytes) -> dict[str, str]:
    try:
        return {"diff": text.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"diff_base64": b64encode(text).decode()}


def _decode(item: dict[str, object]) -> bytes:
    if "diff" in item:
        return _text(item["diff"]).encode()
    from base64 import b64decode

    return b64decode(_text(item["diff_base64"]), validate=True)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
