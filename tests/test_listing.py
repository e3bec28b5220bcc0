"""The catalog as lists and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scenes import entry, patch, write_catalog
from vllm_patcher import catalog, listing
from vllm_patcher.digests import sha256
from vllm_patcher.errors import UnsupportedVersion

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_patcher.manifest import Patch

OLD, NEW = patch(a05="50"), patch(a05="55")


@pytest.fixture
def patches(tmp_path: Path) -> tuple[Patch, ...]:
    folder = write_catalog(
        tmp_path,
        entry("one", patch(a05="50")),
        entry(
            "two-of-them", b"", affects=">=0.9", variants=[(">=0.9,<0.10", OLD), (">=0.11", NEW)]
        ),
        entry("three", patch(b05="5"), affects="<0.9", kind="wrong-result", default=False),
    )
    return catalog.load(str(folder)).patches


def lines(patches: tuple[Patch, ...], release: str | None) -> list[str]:
    return list(listing.text(listing.rows(patches, release), release))


def test_two_lines_a_patch(patches: tuple[Patch, ...]) -> None:
    assert lines(patches, None) == [
        " 1  one          crash         >=0.8.0,<0.11.1",
        "    What one is for",
        " 2  two-of-them  crash         >=0.9",
        "    What two-of-them is for",
        " 3  three        wrong-result  <0.9  if named",
        "    What three is for",
    ]


def test_am_i_affected(patches: tuple[Patch, ...]) -> None:
    assert lines(patches, "0.10.2")[::2] == [
        " 1  one          crash         affected",
        " 2  two-of-them  crash         affected, no diff",
        " 3  three        wrong-result  not affected  if named",
        "vLLM 0.10.2 is affected by 2 of 3",
    ]


@pytest.mark.parametrize(
    ("release", "answers"),
    [
        ("0.11.0", ["affected", "affected", "not-affected"]),
        ("0.11.0+cu129", ["affected", "affected", "not-affected"]),
        ("0.11.0.post2", ["affected", "affected", "not-affected"]),
        ("0.10.2", ["affected", "affected-no-diff", "not-affected"]),
        ("0.12.0", ["not-affected", "affected", "not-affected"]),
        ("0.11.1rc2.dev191+g80e945298", ["by-files", "by-files", "not-affected"]),
    ],
)
def test_what_a_patch_is_to_a_release(
    patches: tuple[Patch, ...], release: str, answers: list[str]
) -> None:
    rows = listing.rows(patches, release)
    assert [row.answer for row in rows] == answers
    assert [
        one["answer"] for one in listing.document(rows, release, [], None)["catalog"]
    ] == answers


def test_a_build_between_releases_is_told_apart(patches: tuple[Patch, ...]) -> None:
    (*_, last) = lines(patches, "0.11.1rc1")
    assert last == "vLLM 0.11.1rc1 is affected by 0 of 3; its files decide about 2"


@pytest.mark.parametrize("release", ["", "dev", "0.11.O", "0.1.dev1+gabc"])
def test_a_version_that_says_nothing_gets_no_answer(
    patches: tuple[Patch, ...], release: str
) -> None:
    with pytest.raises(UnsupportedVersion, match="says nothing about the code"):
        listing.rows(patches, release)


def test_an_empty_catalog_is_said() -> None:
    assert list(listing.text([], None)) == ["the catalog is empty"]
    assert list(listing.text([], "0.11.0")) == ["the catalog is empty"]


def test_an_entry_has_all_that_is_filled_in(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "cve": ["CVE-2025-12345", "CVE-2025-54321"],
        "note": "First.\nSecond.\n",
        "default": False,
        "probe": "",
        "skip": ["docs/**"],
    }
    write_catalog(tmp_path, entry("one", OLD, **more))
    (one,) = catalog.load(str(tmp_path)).patches
    assert list(listing.entry_text(listing.entry(one, None))) == [
        "id          one",
        "title       What one is for",
        "kind        crash",
        "affects     >=0.8.0,<0.11.1",
        "default     no, only if named",
        "cve         CVE-2025-12345",
        "            CVE-2025-54321",
        "references  https://example.org/1",
        f"probe       {tmp_path}/one.py",
        f"sha256      {sha256(OLD)}  >=0.8.0,<0.11.1",
        "skip        docs/**",
        "note        First.",
        "            Second.",
    ]


def test_an_entry_has_all_diffs_or_the_one_for_a_release(patches: tuple[Patch, ...]) -> None:
    two = patches[1]
    assert listing.entry(two, None).diffs == ((">=0.9,<0.10", OLD), (">=0.11", NEW))
    assert listing.entry(two, "0.9.2").diffs == ((">=0.9,<0.10", OLD),)
    with pytest.raises(UnsupportedVersion, match=r"no diff for vLLM 0\.10\.2") as caught:
        listing.entry(two, "0.10.2")
    assert caught.value.facts == ("it has one for >=0.9,<0.10", "it has one for >=0.11")


def test_only_the_diff_must_be_one_diff(patches: tuple[Patch, ...]) -> None:
    two = patches[1]
    assert listing.only_diff("two", listing.entry(two, "0.11.0")) == NEW
    with pytest.raises(UnsupportedVersion, match="2 diffs, each for other versions") as caught:
        listing.only_diff("two", listing.entry(two, None))
    assert caught.value.hint == "add --for VERSION"
