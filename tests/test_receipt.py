"""A receipt comes back as it was written; what is damaged is refused with a way out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_patcher.errors import InvalidReceipt
from vllm_patcher.receipt import Entry, dump, is_id, load

PATH = "/site/vllm-0.11.0.dist-info/vllm-patcher.json"
ENTRY = Entry("lora-fix", b"--- a/x\n+++ b/x\n", requires=("base",), places=(("a.py",),))

# Names of files may hold any byte: those that are no UTF-8 are halves of surrogate pairs here.
NAMES = st.binary(min_size=1, max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PLAIN = st.characters(categories=["L", "N", "P"], exclude_characters="/")
IDS = st.text(PLAIN, max_size=8).map(lambda rest: f"x{rest}")
LISTS = st.lists(NAMES, max_size=3).map(tuple)
ENTRIES = st.builds(
    Entry,
    id=IDS,
    text=st.binary(max_size=40),
    wanted=st.sampled_from(["in", "out"]),
    requires=LISTS,
    places=st.lists(LISTS).map(tuple),
    adhoc=st.booleans(),
)


def document(**changes: Any) -> dict[str, Any]:
    """Give a receipt as JSON holds it, with one entry changed; None takes a key away."""
    whole: dict[str, Any] = json.loads(dump([ENTRY]))
    entry = {**whole["patches"][0], **changes}
    whole["patches"] = [{key: value for key, value in entry.items() if value is not None}]
    return whole


def refusal(data: bytes) -> InvalidReceipt:
    with pytest.raises(InvalidReceipt) as caught:
        load(data, path=PATH)
    assert caught.value.facts[0] == PATH
    assert caught.value.hint is not None
    return caught.value


@given(IDS)
def test_ids_are_ids(name: str) -> None:
    assert is_id(name)


@given(st.lists(ENTRIES, max_size=4, unique_by=lambda entry: (entry.id, entry.wanted)))
def test_what_is_written_is_read_again(entries: list[Entry]) -> None:
    data = dump(entries)
    assert load(data, path=PATH) == tuple(entries)
    assert dump(load(data, path=PATH)) == data


def test_no_receipt_is_no_entries() -> None:
    assert load(None, path=PATH) == ()


def test_a_receipt_is_readable_text_with_neither_time_nor_host() -> None:
    data = dump([ENTRY])
    assert data == dump([ENTRY])
    assert data.isascii()
    assert data.endswith(b"}\n")
    assert json.loads(data) == {
        "schema": 1,
        "patches": [
            {
                "id": "lora-fix",
                "wanted": "in",
                "diff": "--- a/x\n+++ b/x\n",
                "requires": ["base"],
                "places": [["a.py"]],
                "adhoc": False,
            }
        ],
    }


@pytest.mark.parametrize("text", [b"caf\xe9\n", b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_diff_that_is_not_utf8_is_kept_in_base64(text: bytes) -> None:
    data = dump([Entry("x", text)])
    assert "diff" not in json.loads(data)["patches"][0]
    assert load(data, path=PATH)[0].text == text


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfx\r\n", "caf\u00e9\u2028\0".encode(), b""])
def test_a_diff_in_utf8_is_kept_as_it_is(text: bytes) -> None:
    data = dump([Entry("x", text)])
    assert json.loads(data)["patches"][0]["diff"].encode() == text
    assert load(data, path=PATH)[0].text == text


def test_keys_that_may_be_left_out() -> None:
    less = document(requires=None, places=None, adhoc=None)
    (entry,) = load(json.dumps(less).encode(), path=PATH)
    assert entry == Entry("lora-fix", ENTRY.text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"{",
        b"\xff\xfe{",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{}",
        b'{"schema": 1}',
        b'{"schema": 1, "patches": null}',
        b'{"schema": 1, "patches": {"a": 1}}',
        b'{"schema": 1, "patches": [[]]}',
        b'{"schema": 1, "patches": ["x"]}',
        b'{"schema": "1", "patches": []}',
        b'{"schema": true, "patches": []}',
        b'{"schema": 0, "patches": []}',
        dump([ENTRY])[:-20],
        b"[" * 100_000,
        b'{"schema": 1, "patches": [' + b"9" * 5000 + b"]}",
    ],
)
def test_what_is_no_receipt_is_refused(data: bytes) -> None:
    assert "reinstall vllm" in (refusal(data).hint or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"id": ""},
        {"id": 1},
        {"id": "--python=/tmp/evil"},
        {"id": "a\nb"},
        {"wanted": None},
        {"wanted": "maybe"},
        {"wanted": True},
        {"diff": None},
        {"diff": 1},
        {"diff": "\udc80"},
        {"diff": None, "diff_base64": "no base64!"},
        {"diff": None, "diff_base64": "QQ"},
        {"requires": "base"},
        {"requires": [1]},
        {"places": "no"},
        {"places": [3]},
        {"adhoc": 0},
    ],
    ids=str,
)
def test_an_entry_that_is_damaged_is_refused(changes: dict[str, Any]) -> None:
    refusal(json.dumps(document(**changes)).encode())


def test_an_id_is_in_once() -> None:
    refusal(dump([ENTRY, ENTRY.replaced(text=b"another")]))


def test_an_id_may_go_out_in_one_revision_while_it_comes_in_in_another() -> None:
    entries = (ENTRY.replaced(wanted="out"), ENTRY.replaced(text=b"another"))
    assert load(dump(entries), path=PATH) == entries


def test_a_receipt_of_a_newer_program_says_so() -> None:
    error = refusal(b'{"schema": 2, "patches": "whatever"}')
    assert "newer" in error.facts[1]
    assert error.hint == "upgrade vllm-patcher"
