"""Questions about versions, answered the same way by every release of packaging.

A string is always parsed here before it is compared: older releases of packaging raise on a
string that is no version, newer ones call it outside every range. A local part
(``+cu129``) never decides anything. A build between two releases is never judged by its
number alone, since nobody can tell from it which commits it holds.

Plain releases against plain bounds are compared as tuples, so that the usual run does not
pay for importing packaging; the tests hold that shortcut to packaging's answers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from vllm_patcher.errors import InvalidCatalog, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

_NUMBERS = r"([0-9]{1,9}(?:\.[0-9]{1,9})*)"
_PLAIN_VERSION = re.compile(
    _NUMBERS + r"(?:\.post([0-9]{1,9}))?(?:\+[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)*)?"
)
_PLAIN_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>)\s*" + _NUMBERS)
_NO_POST = -1
_NO_END = (10**9,)  # behind all that _NUMBERS can be

_Clause = tuple[str, tuple[int, ...]]


def parse(raw: str) -> Version | None:
    """Return the version that RAW names, or None if RAW says nothing about the code.

    That is: not PEP 440, empty, all zeros (a build without tags or metadata), or the
    ``0.1.dev…`` that setuptools-scm makes up in a clone without tags.
    """
    from packaging.version import Version

    try:
        version = Version(raw)
    except ValueError:  # InvalidVersion, and int() on thousands of digits
        return None
    if not any(version.release):
        return None
    if version.is_devrelease and _trimmed(version.release) == (0, 1):
        return None
    return version


def check_assumed(raw: str) -> None:
    """Raise UnsupportedVersion if RAW, to be assumed, says nothing (see :func:`parse`)."""
    if parse(raw) is None:
        raise UnsupportedVersion(
            f"--assume-version {raw!r} is not the version of a release",
            hint="--assume-version 0.11.0",
        )


def check_asked(raw: str) -> None:
    """Raise UnsupportedVersion if RAW, asked about, says nothing (see :func:`parse`)."""
    if parse(raw) is None:
        raise UnsupportedVersion(
            f"the version {raw!r} says nothing about the code",
            hint="name a release, such as 0.11.0, or run vllm-patch status where that vLLM is",
        )


def specifier(text: str) -> SpecifierSet:
    """Parse TEXT as PEP 440 version specifiers.

    Raises InvalidCatalog if it is malformed or empty, or if it uses ``===`` or a local
    part: both would compare what is ignored everywhere else.
    """
    problem = _problem(text)
    if problem:
        raise InvalidCatalog(
            f"{text!r} is not a usable version specifier",
            facts=[problem],
            hint="write PEP 440 specifiers, such as '>=0.8.0,<0.11.1'",
        )
    return _parsed(text)


def is_release(raw: str) -> bool:
    """Tell whether RAW is the version of a release: no pre-release, no development build."""
    version = parse(raw)
    return version is not None and not version.is_prerelease


def names_of(raw: str) -> frozenset[str]:
    """Return what RAW may be called in a list of releases: no local part, perhaps no post-part."""
    version = parse(raw)
    if version is None or version.is_prerelease:
        return frozenset()
    return frozenset({version.public, version.base_version})


def ordered(raws: Iterable[str]) -> list[str]:
    """Put versions of releases in order, the oldest first."""
    from packaging.version import Version

    return sorted(raws, key=Version)


def claim(fitting: Collection[str], releases: Sequence[str]) -> str:
    """Return a specifier that holds for FITTING and for no other of RELEASES, "" if none fits.

    RELEASES are all there are, in order. Beyond the last it claims post-releases only.
    """
    places = [place for place, release in enumerate(releases) if release in fitting]
    if not places:
        return ""
    first, last = places[0], places[-1]
    end = releases[last + 1] if last + 1 < len(releases) else _behind_all(releases[last])
    holes = [release for release in releases[first:last] if release not in fitting]
    return ",".join([f">={releases[first]}", f"<{end}", *(f"!={release}" for release in holes)])


def _behind_all(release: str) -> str:
    version = parse(release)
    numbers = version.release if version is not None else (0,)
    epoch = f"{version.epoch}!" if version is not None and version.epoch else ""
    padded = (*numbers, *(0 for _ in range(3 - len(numbers))))
    return epoch + _dotted((*padded[:-1], padded[-1] + 1))


def check(text: str) -> None:
    """Raise InvalidCatalog unless TEXT is a specifier that :func:`specifier` accepts.

    Cheaper than that function where TEXT is plain.
    """
    if _clauses(text) is None:
        specifier(text)


def judge(raw: str, specifier: str) -> str:
    """Say how the version RAW stands to SPECIFIER: "in", "out", "edge" or "unknown".

    "unknown": RAW says nothing (see :func:`parse`). "edge": RAW is a pre-release or a
    development build, and its release is inside the range or at one of its ends, so that
    only its files can tell. Raises InvalidCatalog on a bad specifier.
    """
    clauses = _clauses(specifier)
    match = _PLAIN_VERSION.fullmatch(raw)
    if clauses is not None and match:
        return _judge_plain(match, clauses)
    return _judge_full(raw, specifier)


def is_empty(text: str) -> bool:
    """Tell whether no release can be in a specifier that is plain; any other may be for builds."""
    span, clauses = _span(text), _clauses(text)
    if span:
        return span[0] >= span[1]
    if clauses is None or len(clauses) == 1:
        return False
    return not any(judge(sample, text) == "in" for sample in _samples(text))


def overlap(a: str, b: str) -> bool:
    """Tell whether some release is in both specifiers. Raises InvalidCatalog on a bad one."""
    one, other = _span(a), _span(b)
    if one and other:
        return max(one[0], other[0]) < min(one[1], other[1])
    return any(judge(sample, a) == judge(sample, b) == "in" for sample in _samples(a, b))


def within(inner: str, outer: str) -> bool:
    """Tell whether each release of INNER is in OUTER. Raises InvalidCatalog on a bad one."""
    small, large = _span(inner), _span(outer)
    if small and large:
        return small[0] >= small[1] or (large[0] <= small[0] and small[1] <= large[1])
    return all(
        judge(sample, outer) == "in"
        for sample in _samples(inner, outer)
        if judge(sample, inner) == "in"
    )


def _judge_plain(match: re.Match[str], clauses: tuple[_Clause, ...]) -> str:
    release = _numbers(match[1])
    if not release:
        return "unknown"
    post = _NO_POST if match[2] is None else int(match[2])
    return "in" if all(_meets(release, post, clause) for clause in clauses) else "out"


def _meets(release: tuple[int, ...], post: int, clause: _Clause) -> bool:
    """Compare one release with one plain clause. Both sides have no zeros at their ends."""
    operator, bound = clause
    if operator == ">=":
        return release >= bound
    if operator == "<":
        return release < bound
    if operator == ">":  # PEP 440: the post-releases of the bound are left out as well
        return release > bound
    if operator == "<=":
        return release < bound or (release == bound and post == _NO_POST)
    equal = release == bound and post == _NO_POST
    return equal if operator == "==" else not equal


def _judge_full(raw: str, text: str) -> str:
    ranges = specifier(text)
    version = parse(raw)
    if version is None:
        return "unknown"
    if not version.is_prerelease:
        return "in" if _contains(ranges, version.public) else "out"
    # The base version is what a pre-release leads to, or what a post-release stands on.
    leads_to = [version.base_version]
    if version.post is not None:
        leads_to.append(f"{version.base_version}.post{version.post}")
    if any(_contains(ranges, base) for base in leads_to):
        return "edge"
    return "edge" if _trimmed(version.release) in _edges(ranges, version.epoch) else "out"


def _contains(ranges: SpecifierSet, text: str) -> bool:
    from packaging.version import Version

    return ranges.contains(Version(text), prereleases=True)


def _edges(ranges: SpecifierSet, epoch: int) -> set[tuple[int, ...]]:
    """Collect the releases at which a clause begins or ends, the implied ones too."""
    edges = set()
    for operator, bound, prefix in _bounds(ranges):
        if bound.epoch != epoch:
            continue
        edges.add(_trimmed(bound.release))
        if prefix:
            edges.add(_next(bound.release))
        elif operator == "~=":
            edges.add(_next(bound.release[:-1]))
    return edges


def _samples(*texts: str) -> set[str]:
    """Pick releases such that specifiers which agree on all of them agree on every release.

    What a specifier answers can change only at one of its bounds, at a post-release of one,
    right behind those, or at the next number of a shortened bound (``==0.8.*``, ``~=0.8.1``).
    """
    bounds = [bound for text in texts for _, bound, _ in _bounds(specifier(text))]
    # Padded so far, ".1" comes right behind the post-releases and before any other bound.
    depth = max(len(bound.release) for bound in bounds) + 1
    picked = {_behind("0!", (0,), depth)}
    for bound in bounds:
        epoch = f"{bound.epoch}!"
        starts = [bound.release, (0,), *_increments(bound.release)]
        picked.update(_behind(epoch, start, depth) for start in starts)
        picked.update(epoch + _dotted(start) for start in starts)
        post = -1 if bound.post is None else bound.post
        for near in {0, max(post - 1, 0), max(post, 0), post + 1, 999_999_999}:
            picked.add(f"{bound.base_version}.post{near}")
    return {sample.removeprefix("0!") for sample in picked}


def _behind(epoch: str, release: tuple[int, ...], depth: int) -> str:
    return f"{epoch}{_dotted(release)}{'.0' * (depth - len(release))}.1"


def _increments(release: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for length in range(1, len(release) + 1):
        yield (*release[: length - 1], release[length - 1] + 1)


def _bounds(ranges: SpecifierSet) -> Iterator[tuple[str, Version, bool]]:
    """Yield each clause's operator, its version, and whether it ends in ``.*``."""
    from packaging.version import Version

    for clause in ranges:
        prefix = clause.version.endswith(".*")
        yield clause.operator, Version(clause.version.removesuffix(".*")), prefix


def _problem(text: str) -> str:
    from packaging.specifiers import InvalidSpecifier

    try:
        ranges = _parsed(text)
        bounds = [] if "===" in text else list(_bounds(ranges))
    except InvalidSpecifier as error:
        return str(error)
    except ValueError:  # int() on thousands of digits
        return "a number in it is too long"
    if "===" in text:
        return "=== compares strings, not versions"
    if not bounds:
        return "it is empty, which would mean every release"
    if any(bound.local for _, bound, _ in bounds):
        return "a local part (+…) never decides, so it can't be asked for"
    return ""


@lru_cache(maxsize=256)
def _parsed(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


@lru_cache(maxsize=256)
def _clauses(text: str) -> tuple[_Clause, ...] | None:
    """Return the clauses of a specifier that is all plain, else None."""
    clauses = []
    for part in text.split(","):
        match = _PLAIN_CLAUSE.fullmatch(part.strip())
        if not match:
            return None
        clauses.append((match[1], _numbers(match[2])))
    return tuple(clauses)


@lru_cache(maxsize=256)
def _span(text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return where a specifier that is all ``>=`` and ``<`` begins, and where it ends."""
    clauses = _clauses(text)
    if clauses is None or any(operator not in {">=", "<"} for operator, _ in clauses):
        return None
    low = max((bound for operator, bound in clauses if operator == ">="), default=())
    high = min((bound for operator, bound in clauses if operator == "<"), default=_NO_END)
    return low, high


def _numbers(text: str) -> tuple[int, ...]:
    return _trimmed(tuple(int(number) for number in text.split(".")))


def _trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    """Drop zeros at the end: 0.11 and 0.11.0 are one release."""
    end = len(release)
    while end and release[end - 1] == 0:
        end -= 1
    return release[:end]


def _next(release: tuple[int, ...]) -> tuple[int, ...]:
    return _trimmed((*release[:-1], release[-1] + 1))


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
