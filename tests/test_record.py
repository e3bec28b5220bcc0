"""RECORD is read as CSV is, and adding lines is undone to the byte."""

from __future__ import annotations

import csv
import hashlib
import io
import posixpath
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import record_line
from vllm_patcher.errors import InvalidRecord
from vllm_patcher.record import Record, add_lines, remove_lines

DATA = b"print()\n"

# Any text a RECORD can hold: no NUL, which no path has, and no half of a surrogate pair.
TEXT = st.text(
    st.one_of(
        st.sampled_from('",/. \r\n='),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"]),
    ),
    min_size=1,
    max_size=12,
).map(lambda text: text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))
DIGESTS = st.sampled_from(["", "sha256=abc", "md5=abc"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a RECORD in one quoting, with one line ending, in any order."""
    row = st.tuples(TEXT, DIGESTS, st.sampled_from(["", "12"]))
    rows = draw(st.lists(row, max_size=6, unique_by=lambda row: posixpath.normpath(row[0])))
    out = io.StringIO(newline="")
    ending = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    # Before Python 3.13 the writer quotes only the line ending it uses, not the other two.
    if draw(st.booleans()) and not any(set(row[0]) & {"\r", "\n"} for row in rows):
        csv.writer(out, lineterminator=ending).writerows(rows)
    else:
        csv.writer(out, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows(rows)
    text = out.getvalue() + ending * draw(st.integers(0, 2))
    if draw(st.booleans()) and text.endswith(ending):
        text = text[: -len(ending)]
    return text.encode("utf-8", "surrogateescape")


def test_digests_are_told_by_path() -> None:
    record = Record.parse(
        "\n".join(
            [
                record_line("vllm/a.py", DATA),
                record_line("vllm/b.py", DATA, algorithm="sha384"),
                record_line("vllm/c.py", DATA, algorithm="sha512"),
                "vllm-0.11.0.dist-info/RECORD,,",
                "",
            ]
        ).encode()
    )
    expected = urlsafe_b64encode(hashlib.sha256(DATA).digest()).decode().rstrip("=")
    assert record.digest("vllm/a.py") == ("sha256", expected)
    for name in "abc":
        assert record.matches(f"vllm/{name}.py", DATA) is True
        assert record.matches(f"vllm/{name}.py", DATA + b"#") is False
    assert list(record.paths())[-1] == "vllm-0.11.0.dist-info/RECORD"


@pytest.mark.parametrize("digest", ["", "md5=abc", "sha1=abc", "sha224=abc", "blake2b=abc"])
def test_a_line_that_proves_nothing_is_unrecorded(digest: str) -> None:
    record = Record.parse(f"vllm/a.py,{digest},8\n".encode())
    assert record.lists("vllm/a.py")
    assert record.digest("vllm/a.py") is None
    assert record.matches("vllm/a.py", DATA) is None
    assert record.listed_without_digest("vllm/a.py") is (digest == "")


def test_a_path_without_a_line_is_unrecorded() -> None:
    record = Record.parse(b"vllm/a.py,,\n")
    assert not record.lists("vllm/b.py")
    assert not record.listed_without_digest("vllm/b.py")
    assert record.digest("vllm/b.py") is None
    assert record.matches("vllm/b.py", DATA) is None


def test_padding_and_the_case_of_the_algorithm_do_not_matter() -> None:
    line = record_line("a", DATA).replace("sha256=", "SHA256=").replace(",8", "=,8")
    assert Record.parse(line.encode()).matches("a", DATA) is True


@pytest.mark.parametrize(
    "written",
    ["./vllm/a.py", "vllm/../vllm/a.py", "vllm//a.py", "vllm/./a.py", "../site/../vllm/a.py/.."],
)
def test_paths_are_joined_lexically(written: str) -> None:
    wanted = posixpath.normpath(written)
    record = Record.parse(f"{written},,\n".encode())
    assert list(record.paths()) == [wanted]
    assert record.lists(written)


def test_a_path_above_the_folder_keeps_its_dots() -> None:
    record = Record.parse(b"../../../bin/vllm,sha256=abc,1\n")
    assert record.digest("../../../bin/vllm") == ("sha256", "abc")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_quotes_and_line_endings(ending: str) -> None:
    data = ending.join(['"a,""b"".py",sha256=abc,1', "c.py,sha256=abc,", '"d\n.py",,', ""])
    assert list(Record.parse(data.encode()).paths()) == ['a,"b".py', "c.py", "d\n.py"]


def test_names_that_are_not_utf_8_survive() -> None:
    (path,) = Record.parse(b"vllm/caf\xe9.py,,\n").paths()
    assert path.encode("utf-8", "surrogateescape") == b"vllm/caf\xe9.py"


def test_a_line_end_of_unicode_ends_no_line() -> None:
    path = "vllm/a\u2028b\x85c\x0cd.py"
    assert list(Record.parse(f"{path},,\n".encode()).paths()) == [path]


def test_empty_and_blank() -> None:
    assert list(Record.parse(b"").paths()) == []
    assert list(Record.parse(b"\n\na,,\n\n").paths()) == ["a"]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        pytest.param(b"a,,\nb\n", 2, id="one field"),
        pytest.param(b"a,,\nb,,,\n", 2, id="four fields"),
        pytest.param(b'a,,\r\nb,,\r\n"c,,\r\n', 3, id="an open quote"),
        pytest.param(b'a,,\n"b"c,,\n', 2, id="text behind a quote"),
    ],
)
@pytest.mark.parametrize("work", [Record.parse, lambda data: add_lines(data, ["x"])])
def test_a_damaged_record_is_named_with_its_line(work: object, data: bytes, line: int) -> None:
    assert callable(work)
    with pytest.raises(InvalidRecord) as caught:
        work(data)
    assert caught.value.facts[0].startswith(f"RECORD:{line}: found ")


def test_a_complaint_uses_the_name_given() -> None:
    with pytest.raises(InvalidRecord, match="/site/RECORD is damaged"):
        Record.parse(b"x", name="/site/RECORD")


def test_a_digest_must_say_its_algorithm() -> None:
    with pytest.raises(InvalidRecord) as caught:
        Record.parse(b"a,abc,1\nb,def,1\n")
    assert len(caught.value.facts) == 2


def test_a_path_listed_twice() -> None:
    assert Record.parse(b"a,,\na,sha256=x,1\n").digest("a") == ("sha256", "x")
    assert Record.parse(b"a,sha256=x,1\na,,\n").digest("a") == ("sha256", "x")
    assert Record.parse(b"a,sha256=x,1\n./a,sha256=x,1\n").digest("a") == ("sha256", "x")
    with pytest.raises(InvalidRecord, match="damaged"):
        Record.parse(b"a,sha256=x,1\n./a,sha256=y,1\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"a,,\n", b"a,,\nx,,\n", id="at the end"),
        pytest.param(b"a,,\r\n", b"a,,\r\nx,,\r\n", id="in the file's line ending"),
        pytest.param(b"a,,\nb,,", b"a,,\nx,,\nb,,", id="before a last line that does not end"),
        pytest.param(b"a,,", b"x,,\na,,", id="one line that does not end"),
        pytest.param(b"", b"x,,\n", id="into nothing"),
        pytest.param(b"x,sha256=y,1\n", b"x,sha256=y,1\n", id="not what is listed"),
        pytest.param(b"./x,,\n", b"./x,,\n", id="not what is listed in another spelling"),
        pytest.param(b'"\n",,\r\n', b'"\n",,\r\nx,,\r\n', id="a quoted line ending is none"),
    ],
)
def test_add_lines(before: bytes, after: bytes) -> None:
    assert add_lines(before, ["x", "x"]) == after
    assert add_lines(after, ["x"]) == after


def test_an_added_path_is_quoted_where_needed() -> None:
    assert add_lines(b"", ['a,"b"', "c d"]) == b'"a,""b""",,\nc d,,\n'


def test_remove_lines_leaves_what_is_not_ours() -> None:
    data = b"x,sha256=y,1\nx,,2\n./x,,\nxx,,\n\ny,,\n"
    assert remove_lines(data, ["x"]) == data
    assert remove_lines(data, ["y"]) == data[: -len(b"y,,\n")]
    assert remove_lines(data, []) == data
    assert remove_lines(b'"x","",""\ny,,', ["x", "y"]) == b""


@given(records(), st.lists(TEXT, max_size=5))
def test_adding_is_undone_to_the_byte(data: bytes, paths: list[str]) -> None:
    listed = Record.parse(data)
    paths = [path for path in paths if not listed.lists(path)]
    added = add_lines(data, paths)
    again = Record.parse(added)
    assert all(again.listed_without_digest(path) for path in paths)
    assert add_lines(added, paths) == added
    assert remove_lines(added, paths) == data


@given(records())
def test_rows_are_those_of_the_csv_module(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    assert set(Record.parse(data).paths()) == {posixpath.normpath(row[0]) for row in rows}


@given(st.binary(max_size=20))
def test_a_sha256_is_given_in_hex(data: bytes) -> None:
    record = Record.parse(record_line("x", data).encode() + b"\n")
    assert record.sha256("x") == hashlib.sha256(data).hexdigest()
    assert record.sha256("y/../x") == record.sha256("x")
    assert record.sha256("y") == ""


@pytest.mark.parametrize(
    "line",
    [
        *("x,,", "x,md5=aaaa,1", record_line("x", DATA, algorithm="sha512")),
        *("x,sha256=é,1", "x,sha256=a,1", "x,sha256=\udcff,1"),
    ],
)
def test_what_is_no_sha256_gives_none(line: str) -> None:
    assert Record.parse(line.encode("utf-8", "surrogateescape")).sha256("x") == ""


def test_padding_and_case_of_the_algorithm_do_not_matter() -> None:
    digest = hashlib.sha256(DATA)
    padded = urlsafe_b64encode(digest.digest()).decode()
    assert Record.parse(f"x,SHA256={padded},1".encode()).sha256("x") == digest.hexdigest()
