"""Many answers folded into one: who agrees, who is odd, and what that comes to."""

from __future__ import annotations

import cProfile
import time
from pathlib import Path
from typing import Any

import pytest

from vllm_patcher.cli import shell
from vllm_patcher.cluster import nodes, table
from vllm_patcher.cluster.folding import Answer, fold
from vllm_patcher.cluster.nodes import DIED, JOINED, NOT_ASKED, TIMED_OUT, Node
from vllm_patcher.report import error_text

DOCS = Path(__file__).parent.parent / "docs"
BACK = "to take that back, on all nodes and where it was so before:"
MOST_GROWTH = 2.2  # for twice as many


def report(
    verb: str = "verify",
    *,
    version: str = "0.11.0",
    states: dict[str, str] | None = None,
    digest: str = "d1",
    was: str | None = None,
    errors: tuple[str, ...] = (),
    wrote: bool = False,
) -> dict[str, Any]:
    """What a host answers; ``errors`` are codes."""
    states = {"one": "applied"} if states is None else states
    hints = {"patch-not-in": "vllm-patch apply"}
    return {
        "verb": verb,
        "ok": not errors,
        "install": {"name": "vllm", "installed_version": version, "package": "/site/vllm"},
        "patches": [
            {
                "id": name,
                "state": state,
                "was": was or state,
                "reasons": [],
                "probe": None,
                "adhoc": False,
            }
            for name, state in states.items()
        ],
        "files": [{"path": "a.py", "sha256_before": digest, "sha256_after": f"after {digest}"}],
        "wrote": wrote,
        "edits": ["a.py"] if wrote else [],
        "notes": [],
        "errors": [error(code, "why", hint=hints.get(code)) for code in errors],
    }


def error(code: str, *facts: str, hint: str | None = None) -> dict[str, Any]:
    return {"code": code, "what": f"what {code} is", "facts": [*facts], "hint": hint}


def nothing(code: str = "no-vllm", verb: str = "verify") -> dict[str, Any]:
    """What a host answers that could not look at a vLLM."""
    return {"verb": verb, "ok": False, "errors": [error(code)]}


def node(number: int, answer: dict[str, Any] | None = None, **more: Any) -> Node:
    return Node(
        id=f"id{number}", address=f"10.0.0.{number}", host=f"gpu-{number}", report=answer, **more
    )


def lines(answer: Answer, **more: Any) -> list[str]:
    return list(table.text(answer, **more))


def facts(answer: Answer) -> dict[str, list[str]]:
    """The facts of each error, by its code."""
    return {error.code: list(error.facts) for error in answer.errors}


NOT_IN: dict[str, Any] = {
    "states": {"one": "not-applied"},
    "errors": ("patch-not-in",),
    "digest": "d0",
}


def test_all_the_same() -> None:
    answer = fold("verify", [node(n, report()) for n in range(1, 17)])
    assert (answer.code, answer.errors) == (0, ())
    assert lines(answer) == ["10.0.0.1 gpu-1, 10.0.0.2 gpu-2 and 14 more  vllm 0.11.0  1 applied"]
    assert len(lines(answer, verbose=True)) == 1 + 16 + 1


def test_names_are_sorted_as_people_do() -> None:
    answer = fold("verify", [node(n, report()) for n in (10, 2, 1)])
    assert [each.host for each in answer.groups[0].nodes] == ["gpu-1", "gpu-2", "gpu-10"]


def test_the_odd_one_comes_first_with_its_patches() -> None:
    everyone = [node(1, report()), node(2, report()), node(3, report(**NOT_IN))]
    answer = fold("verify", everyone)
    assert answer.code == 1
    assert lines(answer) == [
        "10.0.0.3 gpu-3                  vllm 0.11.0  1 not-applied",
        "  one ............................ not-applied",
        "10.0.0.1 gpu-1, 10.0.0.2 gpu-2  vllm 0.11.0  1 applied",
    ]
    (found,) = answer.errors
    assert (found.what, found.facts) == (
        "1 of 3 nodes is not as asked",
        ("10.0.0.3 gpu-3: 1 not-applied",),
    )
    assert found.hint == "vllm-patch apply"


def test_the_page_shows_what_is_printed() -> None:
    ids = ("lora-finish-request", "lora-waiting-leak")
    good, bad = (dict.fromkeys(ids, word) for word in ("applied", "not-applied"))
    everyone = [node(n, report(states=good)) for n in range(1, 17)]
    everyone[6] = node(7, report(states=bad, errors=("patch-not-in",)))
    answer = fold("verify", everyone)
    shown = [*lines(answer), *error_text(answer.errors[0], hint=lambda hint: f"{hint} --ray")]
    page = (DOCS / "cluster.md").read_text(encoding="utf-8")
    assert "```text\n" + "\n".join(shown) + "\n```\n" in page


def test_other_errors_than_a_patch_that_is_not_in_are_told() -> None:
    stale = report(errors=("stale-bytecode",))
    assert lines(fold("verify", [node(1, stale)]))[1:] == ["  what stale-bytecode is", "  why"]


@pytest.mark.parametrize(
    ("other", "fact"),
    [
        ({"version": "0.10.2", "digest": "d2"}, "vllm 0.10.2"),
        ({"digest": "d2"}, "vllm/a.py"),
        ({"states": {"one": "upstream"}}, "one upstream"),
    ],
)
def test_nodes_that_are_as_asked_and_yet_differ(other: dict[str, Any], fact: str) -> None:
    everyone = [node(1, report()), node(2, report()), node(3, report(**other))]
    answer = fold("verify", everyone)
    assert answer.code == 1
    assert facts(answer) == {
        "nodes-differ": [f"10.0.0.3 gpu-3: {fact}; 10.0.0.1 gpu-1: vllm 0.11.0"]
    }


def test_verify_compares_what_is_there_and_apply_what_it_has_made() -> None:
    """What verify calls after is what apply would make."""
    one, other = report(), report()
    other["files"][0]["sha256_after"] = "after d9"
    assert fold("verify", [node(1, one), node(2, other)]).code == 0
    for each in (one, other):
        each["verb"] = "apply"
    assert fold("apply", [node(1, one), node(2, other)]).code == 3  # 1 is an answer of verify


@pytest.mark.parametrize("fate", [DIED, TIMED_OUT, JOINED])
def test_a_node_without_an_answer(fate: str) -> None:
    answer = fold("verify", [node(1, report()), node(2, fate=fate, why="so it is")])
    assert answer.code == 3
    assert facts(answer) == {"node-silent": [f"10.0.0.2 gpu-2: {fate}: so it is"]}
    assert lines(answer)[0].startswith("10.0.0.2 gpu-2  -            " + fate)


def test_codes_are_the_exit_codes_of_the_command_line() -> None:
    codes = (nodes.AS_ASKED, nodes.IS_NOT, nodes.WRONG_CALL, nodes.CANT_TELL)
    exits = (shell.EXIT_OK, shell.EXIT_FAILED, shell.EXIT_USAGE, shell.EXIT_REFUSED)
    assert codes == exits


def test_no_node_at_all() -> None:
    answer = fold("verify", [])
    assert (answer.code, list(facts(answer))) == (3, ["node-silent"])


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_what_could_not_be_done_is_no_answer_of_no(verb: str) -> None:
    refused = report(verb, states={"one": "conflict"}, errors=("conflict",))
    answer = fold(verb, [node(1, refused)])
    assert answer.code == 3
    assert answer.errors[0].facts == ("10.0.0.1 gpu-1: what conflict is",)


class TestWithoutVllm:
    def test_it_is_named(self) -> None:
        answer = fold("verify", [node(1, nothing()), node(2, report())])
        assert answer.code == 3
        (found,) = answer.errors
        assert "--skip-without-vllm" in found.facts[-1]
        assert found.hint is None  # apply would not help

    def test_it_is_allowed_and_counted(self) -> None:
        everyone = [node(1, nothing()), node(2, report())]
        answer = fold("verify", everyone, skip_without_vllm=True)
        assert (answer.code, answer.errors) == (0, ())
        assert lines(answer) == [
            "10.0.0.1 gpu-1  -            skipped: no vLLM",
            "10.0.0.2 gpu-2  vllm 0.11.0  1 applied",
            "1 of 2 nodes without a vLLM, which is allowed",
        ]

    def test_not_that_none_has_one(self) -> None:
        answer = fold("verify", [node(1, nothing()), node(2, nothing())], skip_without_vllm=True)
        assert answer.code == 3

    def test_one_that_can_not_be_used_is_not_allowed(self) -> None:
        everyone = [node(1, nothing("unusable-vllm")), node(2, report())]
        assert fold("verify", everyone, skip_without_vllm=True).code == 3


def test_what_was_done_on_some_comes_with_the_ways_on_and_back() -> None:
    done = report("apply", was="not-applied", wrote=True)
    failed = nothing("write-failed", "apply")
    everyone = [node(1, done), node(2, failed)]
    answer = fold("apply", everyone, hint=lambda hint: f"{hint} --ray", again="AGAIN")
    assert (answer.code, answer.wrote) == (3, True)
    half = answer.errors[1]
    assert (half.code, half.hint) == ("half-done", None)
    assert half.facts == (
        "10.0.0.1 gpu-1: 1 applied",
        "to finish it: AGAIN",
        f"{BACK} vllm-patch revert one --ray",
    )
    assert lines(answer)[-1] == "restart running vLLM processes"


def test_nodes_that_had_it_before_agree_with_those_that_have_it_now() -> None:
    """As do two that see one copy: only one of them has written it."""
    done = report("apply", was="not-applied", wrote=True)
    answer = fold("apply", [node(1, report("apply")), node(2, done)])
    assert (answer.code, answer.errors, len(answer.groups)) == (0, (), 1)
    failed = nothing("write-failed", "apply")
    half = fold("apply", [node(1, report("apply")), node(2, done), node(3, failed)]).errors[1]
    assert half.what.startswith("1 of 3 nodes is changed")
    assert half.facts[0] == "10.0.0.2 gpu-2: 1 applied"


def test_the_way_back_names_what_any_node_has_changed() -> None:
    def done(was: dict[str, str]) -> dict[str, Any]:
        answer = report("apply", states={"one": "applied", "two": "applied"}, wrote=True)
        for each in answer["patches"]:
            each["was"] = was.get(each["id"], "applied")
        return answer

    failed = node(3, nothing("write-failed", "apply"))
    first, second = done({"one": "not-applied"}), done({"two": "partial"})
    half = fold("apply", [node(1, first), node(2, second), failed], again="AGAIN").errors[1]
    assert half.facts[-1].endswith("vllm-patch revert one two")
    # A node where nothing but bytecode was put right has nothing to take back.
    half = fold("apply", [node(1, done({})), failed], again="AGAIN").errors[1]
    assert half.facts == ("10.0.0.1 gpu-1: 2 applied", "to finish it: AGAIN")


@pytest.mark.parametrize(("edits", "restart"), [([], False), (["a.py"], True)])
def test_who_has_changed_no_source_need_not_restart(edits: list[str], *, restart: bool) -> None:
    done = {**report("apply", wrote=True), "edits": edits}
    assert ("restart" in lines(fold("apply", [node(1, done)]))[-1]) is restart


def test_what_is_not_yet_alike_may_become_so() -> None:
    """A rehearsal finds one node patched and the other not, and both can be."""
    everyone = [
        node(1, report("apply"), rehearsed=True),
        node(2, report("apply", states={"one": "not-applied"}, digest="d0"), rehearsed=True),
    ]
    assert fold("apply", everyone).code == 0
    refused = [*everyone, node(3, nothing("conflict", "apply"), rehearsed=True)]
    assert list(facts(fold("apply", refused))) == ["node-not-as-asked"]


def test_what_was_begun_and_never_answered_may_be_changed() -> None:
    everyone = [node(n, fate=DIED) for n in (1, 2)]
    (silent, half) = fold("apply", everyone, again="AGAIN").errors
    assert silent.what == "2 of 2 nodes are without an answer"
    assert half.what == "2 of 2 nodes are perhaps changed"
    assert half.facts[-1] == "to finish it: AGAIN"
    done = [*everyone, node(3, report("apply", was="not-applied", wrote=True))]
    what = "1 of 3 nodes is changed, and 2 of 3 nodes are perhaps changed"
    assert fold("apply", done).errors[1].what == what


@pytest.mark.parametrize(
    ("verb", "other"),
    [
        ("verify", {"fate": DIED}),
        ("apply", {"fate": DIED, "rehearsed": True}),
        ("apply", {"fate": NOT_ASKED}),
        ("apply", {"fate": JOINED}),
    ],
)
def test_who_was_not_told_to_write_has_not(verb: str, other: dict[str, Any]) -> None:
    errors = fold(verb, [node(1, **other)]).errors
    assert [error.code for error in errors] == ["node-silent"]
    untouched = errors[0].what.endswith("; nothing was changed on any")
    assert untouched is bool(other.get("rehearsed"))


def test_what_is_wrong_is_said_where_each_state_is_right() -> None:
    stale = report(errors=("stale-bytecode",))
    assert node(1, stale).said == "what stale-bytecode is"
    both = report(**{**NOT_IN, "errors": ("patch-not-in", "stale-bytecode")})
    assert node(1, both).said == "1 not-applied"


def test_faults_that_differ_are_told_apart() -> None:
    first, second = report(errors=("stale-bytecode",)), report(errors=("stale-bytecode",))
    second["errors"][0]["facts"] = ["another"]
    answer = fold("verify", [node(1, first), node(2, second)])
    assert len(answer.groups) == 2
    third = report()
    third["patches"][0]["probe"] = {"fault": "unknown", "says": "no torch"}
    assert len(fold("verify", [node(1, report()), node(2, third)]).groups) == 2


def test_what_a_probe_says_is_shown() -> None:
    shown = report(errors=("probe-failed",))
    shown["patches"][0]["probe"] = {"fault": "present", "says": "it raised"}
    assert "    probe: fault present: it raised" in lines(fold("verify", [node(1, shown)]))


def test_two_installs_of_each_host_are_compared_each_with_its_like() -> None:
    everyone = [
        Node(id=f"{host}{slot}", host=host, slot=slot, report=report(version=version))
        for host in ("a", "b")
        for slot, version in enumerate(("0.11.0", "0.10.2"))
    ]
    assert fold("verify", everyone).code == 0
    other = everyone[3].replaced(report=report(version="0.9.2"))
    assert fold("verify", [*everyone[:3], other]).code == 1


def test_states_that_one_has_and_the_other_has_not() -> None:
    more = report(states={"one": "applied", "two": "applied"})
    answer = fold("verify", [node(1, report()), node(2, report()), node(3, more)])
    assert facts(answer) == {
        "nodes-differ": ["10.0.0.3 gpu-3: two applied; 10.0.0.1 gpu-1: vllm 0.11.0"]
    }


def test_a_run_whose_command_is_not_known_gives_none() -> None:
    done = node(1, report("apply", was="not-applied", wrote=True))
    half = fold("apply", [done, node(2, nothing("conflict", "apply"))]).errors[1]
    assert half.facts == ("10.0.0.1 gpu-1: 1 applied",)


def test_a_diff_of_no_catalog_can_not_be_named_to_get_it_back() -> None:
    gone = report("revert", states={"fix": "not-applied"}, was="applied", wrote=True)
    gone["patches"][0]["adhoc"] = True
    nodes = [node(1, gone), node(2, fate=DIED)]
    assert "take that back" not in str(fold("revert", nodes, again="AGAIN").errors[1].facts)
    for each in gone["patches"]:
        each["adhoc"] = False
    assert fold("revert", nodes, again="AGAIN").errors[1].facts[-1].endswith("apply fix")


def test_what_could_not_be_put_back_is_perhaps_changed() -> None:
    everyone = [
        node(1, nothing("conflict", "apply"), rehearsed=True),
        node(2, nothing("not-put-back", "apply")),
    ]
    (wrong, half) = fold("apply", everyone).errors
    assert "nothing was changed" not in wrong.what
    assert half.what == "1 of 2 nodes is perhaps changed"


def test_who_was_probed_and_who_was_not_have_the_same_files() -> None:
    probed = report()
    probed["patches"][0]["probe"] = {"fault": "absent", "says": "ok"}
    assert fold("verify", [node(1, probed), node(2, report())]).code == 0


def test_a_name_that_nobody_knows_is_a_wrong_command() -> None:
    everyone = [node(n, nothing("unknown-patch")) for n in (1, 2)]
    answer = fold("verify", everyone)
    assert (answer.code, answer.errors[0].hint) == (2, None)


def test_notes_and_warnings_are_told_once() -> None:
    both, one = "as pyproject.toml says", "there are links"
    first = {**report(states={"one": "unsupported"}), "notes": [both, one]}
    first["patches"][0]["reasons"] = [{"what": "no variant", "path": None, "line": None}]
    second = {**report(states={"one": "unsupported"}), "notes": [both]}
    answer = fold("verify", [node(1, first), node(2, second)])
    assert list(table.notes(answer)) == [both, f"10.0.0.1 gpu-1: {one}"]
    assert list(table.warnings(answer)) == [
        "10.0.0.1 gpu-1: one is unsupported: no variant",
        "10.0.0.2 gpu-2: one is unsupported: nobody knows why",
    ]
    failing = report(states={"one": "unsupported"}, errors=("patch-not-in",))
    assert list(table.warnings(fold("verify", [node(1, failing)]))) == []


def test_a_node_that_has_it_already_was_not_changed() -> None:
    everyone = [node(1, report("apply")), node(2, nothing("write-failed", "apply"))]
    assert list(facts(fold("apply", everyone))) == ["node-not-as-asked"]


def test_nothing_to_do_is_said() -> None:
    assert node(1, report(states={})).said == "nothing to do"


def test_two_hundred_reports() -> None:
    """And half of them odd, each in its own way."""

    def work(count: int) -> Answer:
        odd = [node(n, report(digest=f"d{n}", errors=("modified",))) for n in range(count // 2)]
        return fold("verify", [*odd, *(node(n, report()) for n in range(count // 2, count))])

    begin = time.process_time()
    answer = work(200)
    assert len(table.document(answer)["nodes"]) == 200
    assert len(lines(answer)) >= 101
    assert time.process_time() - begin < 1  # a few milliseconds, and an hour at the square of it
    counts = []
    for count in (200, 400):
        profile = cProfile.Profile()
        profile.enable()
        lines(work(count))
        profile.disable()
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[1] / counts[0] <= MOST_GROWTH
