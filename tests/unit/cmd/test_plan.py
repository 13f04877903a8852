# SPDX-License-Identifier: Apache-2.0

"""The planner: requests, answers, and errors for invalid lines."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters.snapshot import fabric_from_snapshot, snapshot
from laas_service.cmd.plan import Planner, main
from laas_service.domain.allocation import Allocation, GroupShare, Shape
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from tests.unit.domain.verification.sound import FULL, RAILS, build


def planner(policy: str = "jigsaw") -> Planner:
    return Planner(Ledger(FULL), policy)


def ask(planner: Planner, *requests: object) -> list[dict[str, Any]]:
    lines = [x if isinstance(x, str) else json.dumps(x) for x in requests]
    answers: list[dict[str, Any]] = json.loads(json.dumps(list(planner.answers(lines))))
    return answers


def test_allocate_names_hosts_links_and_shape():
    (answer,) = ask(planner(), {"op": "allocate", "id": "t1", "hosts": 6, "note": "mine"})
    assert answer.pop("elapsed_us") > 0
    assert answer.pop("shape")["text"] == "1x(2x3)"
    assert answer == {
        "op": "allocate",
        "id": "t1",
        "note": "mine",
        "outcome": "allocated",
        "n": 6,
        "policy": "jigsaw",
        "hosts": [0, 1, 2, 3, 4, 5],
        "leaf_links": [[0, leaf, l2] for leaf in range(2) for l2 in range(3)],
        "spine_links": [],
        "contention_free": True,
        "worst_load": 1,
    }


def test_a_request_may_require_a_shape_without_contention():
    wish = {"contention_free": "require"}
    ask_for = Planner(Ledger(Topology(Xgft((5, 5, 1), (1, 5, 0)))), "jigsaw")
    taken, refused, preferred = ask(
        ask_for,
        {"op": "probe", "hosts": 23},
        {"op": "probe", "hosts": 23, "constraints": wish},
        {"op": "probe", "hosts": 23, "constraints": {"contention_free": "prefer"}},
    )
    assert (taken["outcome"], taken["contention_free"], taken["worst_load"]) == ("fits", False, 2)
    assert (refused["outcome"], refused["reason"]) == ("refused", "constraint")
    assert "contention_free (require)" in refused["detail"]
    assert preferred["contention_free"] is False
    (wrong,) = ask(ask_for, {"op": "probe", "hosts": 2, "constraints": {"contention_free": "yes"}})
    assert "constraints.contention_free: 'yes'" in wrong["detail"]


def test_links_of_who_requires_it_are_not_crossed_and_a_snapshot_keeps_that(tmp_path):
    """The last leaf of t1 has two free hosts, and one uplink for them."""
    wish, out, kept = {"undisturbed": "require"}, tmp_path / "answers", tmp_path / "state"

    def run(*requests, state):
        lines = tmp_path / "requests"
        lines.write_text("".join(json.dumps(request) + "\n" for request in requests))
        args = ["--requests", str(lines), "--output", str(out), "--format", "json"]
        assert main([*args, "--xgft", "3;3,4,2;1,3,3", state, str(kept)]) == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    taken, _, probed = run(
        {"op": "allocate", "id": "t1", "hosts": 4, "constraints": wish},
        {"op": "fail", "leaf_link": [0, 1, 1]},
        {"op": "probe", "hosts": 3},
        state="--snapshot",
    )
    assert taken["hosts"] == [0, 1, 2, 3]
    assert (probed["crossed_by"], probed["crossed_more"]) == (0, 0)
    assert json.loads(kept.read_text())["allocations"][0]["undisturbed"] is True
    narrow = {"avoid_hosts": list(range(9, 24))}
    refused, _, fits = run(
        {"op": "probe", "hosts": 4, "constraints": narrow},
        {"op": "release", "id": "t1"},
        {"op": "probe", "hosts": 4, "constraints": narrow},
        state="--state",
    )
    assert (refused["outcome"], refused["reason"]) == ("refused", "disturbs")
    assert fits["outcome"] == "fits"


def test_a_probe_changes_nothing():
    fabric = Ledger(FULL)
    before = fabric.state()
    (answer,) = ask(Planner(fabric, "jigsaw"), {"op": "probe", "hosts": 27})
    assert (answer["outcome"], answer["hosts"]) == ("fits", 27)
    assert fabric.state() == before


def test_a_refusal_has_a_reason_and_the_largest_size_that_fits():
    answers = ask(
        planner(),
        {"op": "allocate", "id": "t1", "hosts": 26},
        {"op": "allocate", "id": "t2", "hosts": 2},
        {"op": "probe", "hosts": 3},
        {"op": "allocate", "id": "t3", "hosts": 1},
    )
    assert [a["outcome"] for a in answers] == ["allocated", "refused", "refused", "allocated"]
    for answer in answers[1:3]:
        assert answer["reason"] == "too_few_hosts"
        assert answer["largest_fit"] == 1
        assert answer["detail"]
        assert answer["hosts"] in (2, 3)


def test_links_are_withheld_for_shared_traffic():
    answers = ask(
        planner(),
        {"op": "withhold", "l2": [0]},
        {"op": "allocate", "id": "t1", "hosts": 6},
        {"op": "withhold", "l2": [1]},
        {"op": "withhold", "l2": ["1"]},
        {"op": "withhold", "l2": [7]},
        {"op": "withhold"},
        {"op": "allocate", "id": "t2", "hosts": 18},
    )
    outcomes = ["ok", "allocated", "error", "error", "error", "ok", "allocated"]
    assert [a["outcome"] for a in answers] == outcomes
    assert {l2 for _, _, l2 in answers[1]["leaf_links"]} == {1, 2}
    assert answers[2]["reason"] == "conflict"
    assert [a["reason"] for a in answers[3:5]] == ["invalid_input"] * 2


def test_allocations_inside_a_container():
    inner = {"op": "allocate", "id": "x", "hosts": 3, "parent": "c"}
    answers = ask(
        planner(),
        {"op": "allocate", "id": "c", "hosts": 9, "container": True},
        inner,
        {"op": "probe", "hosts": 7, "parent": "c"},
        {"op": "probe", "hosts": 18},
        {"op": "release", "id": "c"},
        inner,
        {**inner, "id": "y", "parent": "x"},
        {**inner, "id": "y", "parent": 3},
        {**inner, "id": "y", "container": "yes"},
        {"op": "release", "id": "x"},
        {"op": "release", "id": "c"},
    )
    expected = ["allocated", "allocated", "refused", "fits", "error", "error", "error"]
    assert [a["outcome"] for a in answers] == [*expected, "error", "error", "released", "released"]
    assert set(answers[1]["hosts"]) < set(answers[0]["hosts"])
    assert answers[2]["largest_fit"] == 6
    reasons = ["conflict", "conflict", "not_found", "invalid_input", "invalid_input"]
    assert [a["reason"] for a in answers[4:9]] == reasons


def test_released_hosts_can_be_allocated_again():
    ops = [{"op": "allocate", "id": "t1", "hosts": 27}, {"op": "release", "id": "t1"}]
    answers = ask(planner(), *ops, *ops)
    assert [a["outcome"] for a in answers] == ["allocated", "released"] * 2


def test_a_failed_host_or_link_is_not_allocated_until_repaired():
    answers = ask(
        planner(),
        {"op": "fail", "host": 0},
        {"op": "probe", "hosts": 27},
        {"op": "repair", "host": 0},
        {"op": "fail", "leaf_link": [0, 0, 0]},
        {"op": "fail", "spine_link": [0, 0, 0]},
        {"op": "probe", "hosts": 27},
        {"op": "repair", "leaf_link": [0, 0, 0]},
        {"op": "repair", "spine_link": [0, 0, 0]},
        {"op": "probe", "hosts": 27},
    )
    outcomes = [a["outcome"] for a in answers]
    assert outcomes == ["ok", "refused", "ok", "ok", "ok", "refused", "ok", "ok", "fits"]


def test_a_request_may_name_its_policy():
    answers = ask(
        planner("baseline"),
        {"op": "allocate", "id": "a", "hosts": 4},
        {"op": "allocate", "id": "b", "hosts": 4, "policy": "simple"},
    )
    assert [len(a["hosts"]) for a in answers] == [4, 6]
    assert [a["policy"] for a in answers] == ["baseline", "simple"]
    assert answers[0]["shape"] is None


def described() -> Planner:
    """Hosts 9 to 17, all of pod 1, have a GPU; host 9 has a high cost."""
    fabric = Ledger(FULL)
    gpus = {host: HostFeatures(frozenset({"gpu"}), 2) for host in range(10, 18)}
    fabric.describe_hosts({**gpus, 9: HostFeatures(frozenset({"gpu"}), 9)})
    return Planner(fabric, "jigsaw")


def test_a_request_may_have_constraints():
    wish = {"traits": ["gpu"], "max_host_cost": 5}
    answers = ask(
        described(),
        {"op": "allocate", "id": "a", "hosts": 3, "constraints": wish},
        {"op": "probe", "hosts": 6, "constraints": wish},
        {"op": "allocate", "id": "b", "hosts": 2, "constraints": {"avoid_pods": [1, 2]}},
        {"op": "allocate", "id": "c", "hosts": 5, "constraints": {"spread": 3}, "policy": "lc"},
        {"op": "allocate", "id": "d", "hosts": 2, "constraints": {"cheapest": True}},
        {"op": "allocate", "id": "e", "hosts": 1, "constraints": None},
    )
    assert (answers[0]["hosts"], answers[0]["cost"]) == ([12, 13, 14], 6)
    assert (answers[1]["reason"], answers[1]["largest_fit"]) == ("constraint", 5)
    assert "constraint traits (gpu)" in answers[1]["detail"]
    assert set(answers[2]["hosts"]) <= set(range(9))
    assert {host // 9 for host in answers[3]["hosts"]} == {0, 1, 2}
    assert answers[4]["cost"] == 0
    assert answers[5]["outcome"] == "allocated"


def test_constraints_on_things_that_the_fabric_lacks_are_malformed():
    plan = described()
    answers = ask(
        plan,
        *(
            {"op": "probe", "hosts": 1, "constraints": wish}
            for wish in (
                {"traits": ["gpuu"]},
                {"avoid_hosts": [27]},
                {"avoid_pods": [3]},
                {"spread": 4},
                {"spread": 2, "within": "leaf"},
                {"colour": "blue"},
                "gpu",
            )
        ),
    )
    assert {answer["reason"] for answer in answers} == {"invalid_input"}
    assert plan.malformed == len(answers)
    assert "did you mean gpu?" in answers[0]["detail"]
    assert all("constraints" in answer["detail"] for answer in answers)


def test_room_is_made_for_a_request_with_its_constraints():
    plan = described()
    asked = {"op": "allocate", "hosts": 9, "constraints": {"within": "pod", "traits": ["gpu"]}}
    ask(plan, {"op": "allocate", "id": "a", "hosts": 1, "constraints": {"traits": ["gpu"]}})
    ask(plan, {"op": "allocate", "id": "b", "hosts": 9, "constraints": {"avoid_pods": [1]}})
    (answer,) = ask(plan, {**asked, "id": "c", "explain": True})
    assert answer["room"]["releases"] == ["a"]


def test_shares_of_links_up_to_the_cap():
    """The share is in the request, the answer and the snapshot."""
    fabric = SharedLedger(FULL)
    for host in (*range(9, 27), 6, 7, 8):
        fabric.fail_host(host)  # two leaves of three hosts are left
    plan = Planner(fabric, "lc-s")
    pairs = [{"op": "allocate", "id": str(n), "hosts": 2, "bandwidth": 0.4} for n in range(3)]
    fabric.fail_host(0)
    for l2 in (1, 2):
        ask(plan, {"op": "fail", "leaf_link": [0, 0, l2]})
    for host in (4, 5):
        ask(plan, {"op": "fail", "host": host})
    first = ask(plan, {"op": "allocate", "id": "a", "hosts": 3, "bandwidth": 0.5})
    assert first[0]["outcome"] == "refused"  # the two hosts of a leaf need two uplinks
    answers = ask(plan, pairs[0], {"op": "repair", "host": 4})
    assert answers[0]["bandwidth"] == 0.4
    bad = {"op": "probe", "hosts": 1}
    errors = ask(
        plan,
        {**bad, "bandwidth": 0.9},
        {**bad, "bandwidth": True},
        {**bad, "bandwidth": 0.2, "policy": "jigsaw"},
    )
    assert [answer["outcome"] for answer in errors] == ["error"] * 3
    assert "bandwidth: 0.9" in errors[0]["detail"]
    assert "only lc-s shares links" in errors[2]["detail"]
    document = snapshot(fabric)
    (entry,) = document["allocations"]
    assert entry["bandwidth"] == 0.4
    assert fabric_from_snapshot(json.loads(json.dumps(document))).state() == fabric.state()


def test_elapsed_time_covers_policy_and_ledger_only(monkeypatch):
    """The search for the largest fit comes after the measured time."""
    now = iter(range(0, 10**9, 1000))
    monkeypatch.setattr("laas_service.cmd.plan.perf_counter_ns", lambda: next(now))
    answers = ask(
        planner(), {"op": "probe", "hosts": 99}, {"op": "allocate", "id": "a", "hosts": 1}
    )
    assert [a["elapsed_us"] for a in answers] == [1.0, 1.0]


UNKNOWN: dict[str, tuple[dict[str, Any], str, str]] = {
    "release": ({"op": "release", "id": "nobody"}, "not_found", "there is no id 'nobody'"),
    "host": ({"op": "fail", "host": 27}, "not_found", "there is no host 27"),
    "negative host": ({"op": "fail", "host": -1}, "not_found", "there is no host -1"),
    "leaf link": ({"op": "repair", "leaf_link": [0, 3, 0]}, "not_found", "there is no leaf_link"),
    "spine link": ({"op": "fail", "spine_link": [0, 0, -1]}, "not_found", "there is no spine_link"),
    "resize": ({"op": "resize", "id": "t9", "hosts": 2}, "not_found", "there is no id 't9'"),
    "id in use": ({"op": "allocate", "id": "t1", "hosts": 1}, "conflict", "id: 't1' is taken"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_name_is_an_error_but_not_malformed(name):
    request, reason, words = UNKNOWN[name]
    plan = planner()
    ask(plan, {"op": "allocate", "id": "t1", "hosts": 1})
    (answer,) = ask(plan, request)
    assert (answer["outcome"], answer["reason"]) == ("error", reason)
    assert words in answer["detail"]
    assert request.items() <= answer.items()
    assert plan.malformed == 0


MALFORMED = {
    "no JSON": ("allocate t1 5", "line 1: request: 'allocate t1 5' is not valid; give one JSON"),
    "torn JSON": ('{"op": "probe", "hosts"', "request"),
    "no object": ("[1, 2]", "request: '[1, 2]'"),
    "no number JSON has": ('{"op": "probe", "hosts": NaN}', "NaN is no JSON number"),
    "a number too large": ('{"op": "probe", "hosts": 1e999}', "1e999 is no JSON number"),
    "too many digits": ('{"op": "probe", "hosts": ' + "9" * 5000 + "}", "request"),
    "too deep": ("[" * 100000, "request"),
    "no op": ({"hosts": 1}, "op: is missing"),
    "unknown op": ({"op": "grow"}, "op: 'grow' is not valid; use one of allocate, release"),
    "op of a wrong type": ({"op": ["probe"]}, "op: ['probe']"),
    "no hosts": ({"op": "probe"}, "hosts: is missing"),
    "hosts as text": ({"op": "probe", "hosts": "3"}, "hosts: '3'"),
    "hosts as a fraction": ({"op": "probe", "hosts": 3.0}, "hosts: 3.0"),
    "hosts that are true": ({"op": "probe", "hosts": True}, "hosts: True"),
    "no host at all": ({"op": "probe", "hosts": 0}, "hosts: 0 is not valid; give a whole number"),
    "no id": ({"op": "allocate", "hosts": 1}, "id: is missing"),
    "id as a number": ({"op": "release", "id": 5}, "id: 5"),
    "an empty id": ({"op": "allocate", "id": "", "hosts": 1}, "id: ''"),
    "unknown policy": ({"op": "probe", "hosts": 1, "policy": "best"}, "policy: 'best'"),
    "policy as null": ({"op": "probe", "hosts": 1, "policy": None}, "policy: is missing"),
    "nothing to fail": ({"op": "fail"}, "name exactly one"),
    "two to fail": ({"op": "fail", "host": 1, "leaf_link": [0, 0, 0]}, "name exactly one"),
    "resize without hosts": ({"op": "resize", "id": "t1"}, "hosts: is missing"),
    "resize to nothing": ({"op": "resize", "id": "t1", "hosts": 0}, "hosts: 0"),
    "resize of nobody": ({"op": "resize", "hosts": 3}, "id: is missing"),
    "room without moves": ({"op": "make-room", "hosts": 3}, "moves: is missing"),
    "room for nobody": ({"op": "make-room", "moves": 1}, "hosts: is missing"),
    "a negative number of moves": ({"op": "make-room", "hosts": 3, "moves": -1}, "moves: -1"),
    "apply as text": ({"op": "make-room", "hosts": 3, "moves": 1, "apply": "yes"}, "apply: 'yes'"),
    "host as text": ({"op": "fail", "host": "h1"}, "host: 'h1'"),
    "link of two": ({"op": "repair", "leaf_link": [0, 0]}, "leaf_link: [0, 0]"),
    "link of texts": ({"op": "fail", "spine_link": ["0", 0, 0]}, "[pod, l2, spine]"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_answered_and_the_run_goes_on(name):
    request, words = MALFORMED[name]
    plan = planner()
    answer, after = ask(plan, request, {"op": "probe", "hosts": 1})
    assert (answer["outcome"], answer["reason"]) == ("error", "invalid_input")
    assert words in answer["detail"]
    assert after["outcome"] == "fits"
    assert plan.malformed == 1


def test_blank_lines_are_ignored():
    assert ask(planner(), "", "   \n") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
WORTH_TRYING = st.sampled_from(["t1", "t2", 0, 1, 2, 5, 30, "jigsaw", [0, 0, 0], [1, 2, 0], None])
REQUESTS = st.dictionaries(
    st.sampled_from(["op", "id", "hosts", "policy", "host", "leaf_link", "spine_link", "outcome"]),
    WORTH_TRYING | JSON,
) | st.fixed_dictionaries(
    {
        "op": st.sampled_from(
            ["allocate", "release", "probe", "fail", "repair", "resize", "make-room", "sleep"]
        )
    },
    optional={
        "id": st.sampled_from(["t1", "t2", "t3"]) | JSON,
        "hosts": st.integers(1, 30) | JSON,
        "moves": st.integers(0, 2) | JSON,
        "apply": st.booleans() | JSON,
        "policy": st.sampled_from(sorted(POLICIES)),
        "host": st.integers(-1, 30),
        "leaf_link": st.lists(st.integers(-1, 3), min_size=2, max_size=4),
    },
)
LINES = st.text(max_size=40) | REQUESTS.map(json.dumps)


@settings(deadline=None)
@given(st.sampled_from([FULL, RAILS]), st.lists(LINES, max_size=12))
def test_no_line_stops_the_run(topology, lines):
    answers = list(Planner(Ledger(topology), "jigsaw").answers(lines))
    assert len(answers) == sum(bool(line.strip()) for line in lines)
    for answer in answers:
        json.dumps(answer, allow_nan=False)
        expected = ("allocated", "released", "fits", "refused", "ok", "error")
        assert answer["outcome"] in expected
        assert answer["elapsed_us"] >= 0
        if answer["outcome"] in ("refused", "error"):
            assert answer["reason"]
            assert answer["detail"]


def test_a_refusal_says_how_to_make_room_if_asked():
    told = {"releases": ["t1"], "undrain": [], "hosts": 27}
    _, plain, asked, wrong = ask(
        planner(),
        {"op": "allocate", "id": "t1", "hosts": 27},
        {"op": "probe", "hosts": 3},
        {"op": "allocate", "id": "t2", "hosts": 3, "explain": True},
        {"op": "probe", "hosts": 3, "explain": "yes"},
    )
    assert "room" not in plain
    assert asked["room"] == told
    assert wrong["reason"] == "invalid_input"
    fabric = Ledger(FULL)
    always = Planner(fabric, "jigsaw", explain=True)
    _, probed = ask(
        always, {"op": "allocate", "id": "t1", "hosts": 27}, {"op": "probe", "hosts": 3}
    )
    assert probed["room"] == told


def test_an_allocation_is_repaired_in_place():
    fabric = Ledger(FULL)
    fabric.claim(build(FULL, Shape(2, 2, 3), "t1"))
    fail = {"op": "fail", "spine_link": [0, 1, 1]}
    repair = {"op": "repair-allocation", "id": "t1"}
    answers = ask(Planner(fabric, "jigsaw"), repair, fail, repair, {"op": "release", "id": "t1"})
    assert [a["outcome"] for a in answers] == ["ok", "ok", "repaired", "released"]
    before, after = answers[0], answers[2]
    assert before["hosts"] == after["hosts"]
    assert before["leaf_links"] == after["leaf_links"]
    gone = [link for link in before["spine_links"] if link not in after["spine_links"]]
    assert gone == [[0, 1, 1], [1, 1, 1]]
    fabric.repair_link(SpineLink(0, 1, 1))
    assert fabric.state() == Ledger(FULL).state()


def test_a_repair_without_other_links_is_refused_with_what_has_failed():
    fabric = Ledger(FULL)
    fabric.claim(build(FULL, Shape(2, 2, 3), "t1"))
    before = fabric.state()
    fail, mend = ({"op": op, "leaf_link": [0, 1, 2]} for op in ("fail", "repair"))
    repair = {"op": "repair-allocation", "id": "t1"}
    answers = ask(Planner(fabric, "jigsaw"), fail, repair, mend, {**repair, "id": "t2"})
    assert [a["outcome"] for a in answers] == ["ok", "refused", "ok", "error"]
    assert answers[1]["reason"] == "not_repairable"
    assert "leaf 0/1 has 2 of 3 uplinks" in answers[1]["detail"]
    assert fabric.state() == before


def test_an_allocation_grows_around_its_hosts_and_shrinks_again():
    plan = planner()
    grow, shrink = ({"op": "resize", "id": "t1", "hosts": hosts} for hosts in (8, 2))
    allocated, grown, shrunk = ask(plan, {"op": "allocate", "id": "t1", "hosts": 5}, grow, shrink)
    assert [a["outcome"] for a in (grown, shrunk)] == ["resized", "resized"]
    assert (grown["n"], len(grown["hosts"]), shrunk["n"]) == (8, 8, 2)
    assert set(allocated["hosts"]) < set(grown["hosts"])
    assert set(shrunk["hosts"]) < set(grown["hosts"])
    assert (shrunk["leaf_links"], shrunk["spine_links"]) == ([], [])


def test_a_resize_is_refused_with_the_largest_size_in_place():
    plan = planner()
    first, second = ({"op": "allocate", "id": f"t{n}", "hosts": 5} for n in (1, 2))
    resize = {"op": "resize", "id": "t1", "hosts": 26}
    *_, refused = ask(plan, first, second, resize)
    assert (refused["outcome"], refused["reason"]) == ("refused", "too_few_hosts")
    assert refused["detail"] == "26 hosts asked; the allocation has 5 and 17 are free"
    (again,) = ask(plan, {**resize, "hosts": refused["largest_fit"]})
    assert again["outcome"] == "resized"
    assert refused["largest_fit"] > 5


def test_an_allocation_in_a_container_grows_within_it():
    plan = planner()
    requests = [
        {"op": "allocate", "id": "c", "hosts": 6, "container": True},
        {"op": "allocate", "id": "t1", "hosts": 2, "parent": "c"},
        {"op": "resize", "id": "t1", "hosts": 6},
        {"op": "resize", "id": "t1", "hosts": 7},
        {"op": "resize", "id": "c", "hosts": 7},
    ]
    container, _, grown, refused, busy = ask(plan, *requests)
    assert grown["hosts"] == container["hosts"]
    assert (refused["outcome"], refused["largest_fit"]) == ("refused", 6)
    assert (busy["outcome"], busy["reason"]) == ("error", "conflict")


def leaves_with_pairs() -> Planner:
    """Three leaves without uplinks: two hosts of a tenant on each, and one free."""
    fabric = Ledger(Topology(Xgft((3, 3, 1), (1, 3, 0))))
    for leaf, up in itertools.product(range(3), range(3)):
        fabric.fail_link(LeafLink(0, leaf, up))
    shape = Shape(1, 1, 1)
    for host in range(0, 9, 3):
        share = (GroupShare(host // 3, 0b1, 0),)
        fabric.claim(Allocation(f"t{host // 3}", 1, "jigsaw", share, (), shape))
    return Planner(fabric, "jigsaw")


def test_room_is_made_by_the_cheapest_move_and_only_if_asked_for():
    plan = leaves_with_pairs()
    room = {"op": "make-room", "hosts": 3, "moves": 1}
    probe = {"op": "probe", "hosts": 3}
    told, before, applied, after = ask(plan, room, probe, {**room, "apply": True}, probe)
    assert (told["outcome"], told["moved_hosts"], told["cut_off"]) == ("plan", 1, False)
    (move,) = told["moves"]
    assert move == {
        "id": "t0",
        "hosts": move["hosts"],
        "leaf_links": [],
        "spine_links": [],
        "shape": move["shape"],
        "contention_free": True,
        "worst_load": 1,
    }
    assert move["hosts"][0] > 2
    assert before["outcome"] == "refused"
    assert applied["moves"] == told["moves"]
    assert after["outcome"] == "fits"


def test_what_fits_needs_no_room_and_what_cannot_fit_is_refused():
    fits, refused, none = ask(
        leaves_with_pairs(),
        {"op": "make-room", "hosts": 2, "moves": 1},
        {"op": "make-room", "hosts": 6, "moves": 2},
        {"op": "make-room", "hosts": 3, "moves": 0},
    )
    assert (fits["outcome"], fits["moves"], fits["moved_hosts"]) == ("fits", [], 0)
    for answer, largest in ((refused, 2), (none, 2)):
        assert (answer["outcome"], answer["reason"]) == ("refused", "no_legal_shape")
        assert (answer["largest_fit"], answer["cut_off"]) == (largest, False)


def test_leaves_are_emptied_to_sleep_only_if_asked_for():
    plan = leaves_with_pairs()
    asked = {"op": "sleep", "moves": 2}
    told, again, applied, after = ask(plan, asked, asked, {**asked, "apply": True}, asked)
    assert (told["outcome"], told["moved_hosts"], told["cut_off"]) == ("plan", 2, False)
    assert again["moves"] == told["moves"] == applied["moves"]
    assert [len(told[when]["leaves"]) for when in ("unused_now", "unused_after")] == [0, 2]
    assert (after["outcome"], after["unused_now"]) == ("ok", told["unused_after"])


def test_the_page_of_the_final_state(tmp_path):
    """It shows the tenants that are left, and the last refusal with what would make room."""
    requests, page = tmp_path / "requests", tmp_path / "page.html"
    lines = [
        {"op": "allocate", "id": "kept", "hosts": 5},
        {"op": "allocate", "id": "gone", "hosts": 3},
        {"op": "release", "id": "gone"},
        {"op": "probe", "hosts": 27, "explain": True},
        {"op": "resize", "id": "kept", "hosts": 1000},
    ]
    requests.write_text("\n".join(map(json.dumps, lines)))
    words = ("--xgft", "3;3,3,3;1,3,3", "--requests", str(requests), "--html", str(page))
    assert main([*words, "--output", str(tmp_path / "answers")]) == 0
    data = page.read_text().partition('id="data">')[2].partition("</script>")[0]
    shown = json.loads(data)["map"]
    assert [tenant["id"] for tenant in shown["tenants"]] == ["kept"]
    assert shown["question"]["hosts"] == 27
    assert shown["question"]["releases"] == ["kept"]
    assert main([*words[:-1], str(tmp_path / "none" / "page.html"), "--output", "/dev/null"]) == 1
