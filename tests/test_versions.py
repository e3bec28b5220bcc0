"""What a version string says, and how it stands to a range."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from vllm_patcher import versions
from vllm_patcher.errors import InvalidCatalog

RANGE = ">=0.8.0,<0.11.1"
# RANGE for every version in this file, in a form that the shortcut for plain bounds does not take.
LONG_WAY = "~=0.8,<0.11.1,!=0.9.7.*"

SEEN_IN_THE_FIELD = [
    # raw, how it stands to RANGE
    ("0.11.0", "in"),
    ("0.11.0+cu129", "in"),
    ("0.10.1.1+381074ae.nv25.9", "in"),
    ("0.20.1+cpu", "out"),
    ("0.25.1+empty", "out"),
    ("0.28.1+dtk2604.torch2110", "out"),
    ("0.11.0.post2", "in"),
    ("0.11.1rc2.dev191+g80e945298.precompiled", "edge"),
    ("0.19.1.dev0+g2a69949bd.d20260417.rocm713", "out"),
    ("0.1.dev1+g0e3bb543f", "unknown"),
    ("0.1.dev8666+g0e3bb543f", "unknown"),
    ("dev", "unknown"),
    ("0.0.0", "unknown"),
    ("0.11.0-custom", "unknown"),
    ("0.11.0_cu129", "unknown"),
]


@pytest.mark.parametrize(("raw", "standing"), SEEN_IN_THE_FIELD)
def test_strings_seen_in_the_field(raw: str, standing: str) -> None:
    assert versions.judge(raw, RANGE) == standing


@pytest.mark.parametrize(("raw", "standing"), SEEN_IN_THE_FIELD)
def test_a_range_that_is_not_plain_gets_the_same_answers(raw: str, standing: str) -> None:
    assert versions.judge(raw, LONG_WAY) == standing


@pytest.mark.parametrize(
    "release",
    [
        *("0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.8.4", "0.8.5", "0.8.5.post1", "0.9.0"),
        *("0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.1.1", "0.10.2", "0.11.0"),
    ],
)
def test_numbers_are_compared_as_numbers(release: str) -> None:
    assert versions.judge(release, RANGE) == "in"


@pytest.mark.parametrize(
    "release", ["0.7.3", "0.11.1", "0.11.1+cu129", "0.11.2", "1.0", "0.11.1.post1"]
)
def test_releases_out_of_the_range(release: str) -> None:
    assert versions.judge(release, RANGE) == "out"


@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", "dev", "unknown", "0.0", "0.0.0+unknown", "0.0.0.dev0", "0.0.post1.dev3+gabc"),
        *("0.1.dev0", "0.1.0.dev7", "0.11.0-custom", "0.11.0_cu129", "main", "9" * 5000),
    ],
)
def test_a_string_that_says_nothing_has_no_version(raw: str) -> None:
    assert versions.parse(raw) is None
    assert versions.judge(raw, RANGE) == "unknown"
    assert versions.judge(raw, LONG_WAY) == "unknown"


@pytest.mark.parametrize("raw", ["0.1.0", "0.1.1.dev4", "0.11.0", "0.1rc1", "v0.11.0"])
def test_a_string_that_says_something_has_one(raw: str) -> None:
    assert versions.parse(raw) == Version(raw)


@pytest.mark.parametrize(
    ("raw", "specifier", "standing"),
    [
        pytest.param("0.9.0rc1", RANGE, "edge", id="inside"),
        pytest.param("0.8.0rc2", RANGE, "edge", id="leads to the lower bound"),
        pytest.param("0.11.1rc1", RANGE, "edge", id="leads to the upper bound"),
        pytest.param("0.11.2.dev3", RANGE, "out", id="beyond"),
        pytest.param("0.7.4.dev1", RANGE, "out", id="before"),
        pytest.param("0.11.0.post1.dev2", RANGE, "edge", id="development of a post-release"),
        pytest.param("0.11.0.post1.dev2", ">=0.11.0.post1", "edge", id="leads to a post-release"),
        pytest.param("0.9.0rc1", "==0.8.*", "edge", id="the end that a prefix implies"),
        pytest.param("0.9.0rc1", "~=0.8.1", "edge", id="the end that ~= implies"),
        pytest.param("0.8.5rc1", "==0.8.*", "edge", id="inside a prefix"),
        pytest.param("0.9.1rc1", "==0.8.*", "out", id="behind a prefix"),
        pytest.param("0.10.0rc1", "~=0.8.1", "out", id="behind ~="),
        pytest.param("0.11.1rc1", ">=0.8.0,<0.11.1rc3", "edge", id="a bound that is one itself"),
        pytest.param("1!0.11.1rc1", RANGE, "out", id="another epoch"),
    ],
)
def test_builds_between_releases_are_left_to_the_files(
    raw: str, specifier: str, standing: str
) -> None:
    assert versions.judge(raw, specifier) == standing
    assert versions.judge(raw + "+g80e945298", specifier) == standing


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "0.8",
        "=0.8",
        ">=0.8 <0.9",
        ">=",
        ">=0.8.*",
        "===0.11.0",
        "==0.11.0+cu129",
        ">=" + "9" * 5000,
    ],
)
def test_a_bad_specifier_is_named(text: str) -> None:
    for question in (versions.specifier, versions.check):
        with pytest.raises(InvalidCatalog) as caught:
            question(text)
        assert repr(text) in caught.value.what
        assert caught.value.facts
    with pytest.raises(InvalidCatalog):
        versions.judge("0.11.0", text)


@pytest.mark.parametrize(
    "text", [">=0.8", ">= 0.8 , <1", "==0.8.*", "~=0.8.1", "!=0.9.0,>0.8rc1", ">=0.8,"]
)
def test_a_good_specifier_is_parsed(text: str) -> None:
    versions.check(text)
    assert versions.specifier(text) == SpecifierSet(text)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (">=0.8.0,<0.9", ">=0.9,<0.11.1", False),
        (">=0.8.0,<=0.9", ">=0.9,<0.11.1", True),
        (">0.9", "<=0.9", False),
        (">0.9", "==0.9.post1", False),  # PEP 440 keeps post-releases out of >
        (">=0.9", "==0.9.post1", True),
        ("==0.8.*", "<0.8", False),
        ("==0.8.*", "==0.8.5.post1", True),
        ("==0.8.*", ">=0.9", False),
        ("~=0.8.1", ">0.8.99,<0.9", True),
        ("~=0.8.1", "==0.8.0", False),
        ("!=0.9.0", "==0.9.0", False),
        ("!=0.9.0", "==0.9.0.post1", True),
        (">0.9.0,<0.9.0.0.1", ">=0.1", True),
        (">=0.9,<0.9", ">=0.1", False),
        ("<0.8", "<0.7", True),
        (">=1!0.1", "<0.8", False),
        (">0.9.post1,<0.9.post3", "==0.9.post2", True),
        (">=0.9", ">=0.10", True),
        (">=0.9,<0.8", ">=0.7,<0.10", False),
    ],
)
def test_overlap(a: str, b: str, *, expected: bool) -> None:
    assert versions.overlap(a, b) is expected
    assert versions.overlap(b, a) is expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        (">=0.8.0,<0.9", RANGE, True),
        (RANGE, RANGE, True),
        (">=0.8.0,<0.11.1.post1", RANGE, False),
        (">=0.7.9,<0.9", RANGE, False),
        ("==0.8.*", RANGE, True),
        ("==0.11.*", RANGE, False),
        ("~=0.10.1", RANGE, True),
        ("<0.9", RANGE, False),
        (">=0.8", RANGE, False),
        ("==0.11.0.post2", RANGE, True),
        ("<=0.11.0", "<0.11.0.post1", True),
        (">=0.8,<0.10", ">=0.8,<0.10,!=0.9.1", False),
    ],
)
def test_within(inner: str, outer: str, *, expected: bool) -> None:
    assert versions.within(inner, outer) is expected


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        (">=0.8,<0.8", True),
        (">=0.12,<0.11", True),
        (">0.12,<0.11", True),
        ("==0.8.0,!=0.8.0", True),
        ("==0.8.0", False),
        (">=0.8", False),
        (">=0.8,<0.8.1", False),
        ("==0.11.0rc1", False),
        (">=0.11.0rc1,<0.11.0", False),
        ("==0.8.*", False),
    ],
)
def test_a_range_in_which_there_can_be_no_release(text: str, empty: bool) -> None:
    assert versions.is_empty(text) is empty


def test_a_plain_question_does_not_import_packaging() -> None:
    source = os.path.dirname(os.path.dirname(versions.__file__))
    code = (
        f"import sys; sys.path.insert(0, {source!r}); from vllm_patcher import versions;"
        f"assert versions.judge('0.11.0.post2+cpu', {RANGE!r}) == 'in';"
        f"versions.check({RANGE!r});"
        "sys.exit('packaging' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


numbers = st.lists(st.integers(0, 3), min_size=1, max_size=4)
releases = numbers.map(lambda parts: ".".join(map(str, parts)))
posts = st.one_of(st.just(""), st.integers(0, 2).map(".post{}".format))
locals_ = st.sampled_from(["", "+cu129", "+381074ae.nv25.9"])
plain_versions = st.builds("{}{}{}".format, releases, posts, locals_)
plain_clauses = st.builds(
    "{}{}".format, st.sampled_from([">=", "<=", "==", "!=", "<", ">"]), releases
)
odd_clauses = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from([">=", "<=", "==", "<", ">"]), releases, posts),
    st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), releases),
    st.builds("~={}.{}".format, releases, st.integers(0, 3)),
    st.builds("{}{}rc1".format, st.sampled_from([">=", "<"]), releases),
)
plain_ranges = st.lists(plain_clauses, min_size=1, max_size=3).map(",".join)
ranges = st.lists(st.one_of(plain_clauses, odd_clauses), min_size=1, max_size=3).map(",".join)


@given(plain_versions, plain_ranges)
def test_the_shortcut_answers_as_packaging_does(raw: str, text: str) -> None:
    version = Version(raw)
    inside = SpecifierSet(text).contains(Version(version.public), prereleases=True)
    expected = "unknown" if not any(version.release) else ("in" if inside else "out")
    assert versions.judge(raw, text) == expected


spans = st.lists(
    st.builds("{}{}".format, st.sampled_from([">=", "<"]), releases), min_size=1, max_size=3
).map(",".join)


@given(spans, spans)
def test_the_shortcut_for_spans_answers_as_the_algebra_does(a: str, b: str) -> None:
    # A clause that changes nothing keeps the shortcut from being taken.
    assert versions.overlap(a, b) == versions.overlap(f"{a},!=9.9", b)
    assert versions.within(a, b) == versions.within(f"{a},!=9.9", b)


@given(ranges, ranges, st.lists(st.builds("{}{}".format, releases, posts), max_size=40))
def test_no_release_speaks_against_the_algebra(a: str, b: str, sample: list[str]) -> None:
    in_a = {raw for raw in sample if versions.judge(raw, a) == "in"}
    in_b = {raw for raw in sample if versions.judge(raw, b) == "in"}
    if not versions.overlap(a, b):
        assert not in_a & in_b
    if versions.within(a, b):
        assert in_a <= in_b


class TestClaim:
    """A claim holds for the releases that fit, and for no other of those there are."""

    @pytest.mark.parametrize(
        ("fitting", "releases", "claim"),
        [
            ("1!0.5", "1!0.5", ">=1!0.5,<1!0.5.1"),
            ("", "0.8.0 0.9.0", ""),
            ("0.8.0", "0.8.0", ">=0.8.0,<0.8.1"),
            ("0.8.0", "0.8.0 0.8.1", ">=0.8.0,<0.8.1"),
            ("0.8.0", "0.8.0 0.9.0", ">=0.8.0,<0.9.0"),
            ("0.8.0", "0.8.0 0.8.0.post1", ">=0.8.0,<0.8.0.post1"),
            ("0.8.0.post1", "0.8.0 0.8.0.post1", ">=0.8.0.post1,<0.8.1"),
            ("0.8.0 0.9.0", "0.7.0 0.8.0 0.8.1 0.8.2 0.9.0", ">=0.8.0,<0.9.1,!=0.8.1,!=0.8.2"),
            ("0.10.1.1", "0.10.1 0.10.1.1", ">=0.10.1.1,<0.10.1.2"),
            ("0.9", "0.9", ">=0.9,<0.9.1"),
            ("1", "0.9 1", ">=1,<1.0.1"),
        ],
    )
    def test_in_words(self, fitting: str, releases: str, claim: str) -> None:
        assert versions.claim(fitting.split(), releases.split()) == claim

    @given(
        st.dictionaries(
            st.builds(
                lambda numbers, post: Version(
                    ".".join(map(str, numbers)) + (f".post{post}" if post is not None else "")
                ),
                st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any),
                st.none() | st.integers(0, 2),
            ),
            st.booleans(),
            min_size=1,
            max_size=12,
        )
    )
    def test_packaging_finds_it_right(self, fits: dict[Version, bool]) -> None:
        releases = versions.ordered(map(str, fits))
        fitting = [release for release in releases if fits[Version(release)]]
        claim = versions.claim(fitting, releases)
        found = [one for one in releases if claim and SpecifierSet(claim).contains(one)]
        assert found == fitting
        assert [one for one in releases if claim and versions.judge(one, claim) == "in"] == fitting
        if claim:
            versions.check(claim)
            versions.specifier(claim)
            # Beyond the newest there are no releases to have looked at.
            numbers = Version(releases[-1]).release
            assert Version(f"{numbers[0] + 1}") not in SpecifierSet(claim)


@pytest.mark.parametrize(
    ("raw", "is_one"),
    [
        *(("0.11.0", True), ("0.11", True), ("0.8.5.post1", True), ("0.11.0+cpu", True)),
        *(("0.11.0rc1", False), ("0.11.0.dev1", False), ("0.11.0.post1.dev2", False)),
        *(("0.0.0", False), ("0.1.dev5", False), ("", False), ("new", False)),
    ],
)
def test_what_is_a_release(raw: str, is_one: bool) -> None:
    assert versions.is_release(raw) is is_one


def test_releases_are_ordered_as_versions() -> None:
    assert versions.ordered(["0.10.0", "0.9.0.post1", "0.9", "0.9.10", "0.9.2"]) == [
        *("0.9", "0.9.0.post1", "0.9.2", "0.9.10", "0.10.0")
    ]
