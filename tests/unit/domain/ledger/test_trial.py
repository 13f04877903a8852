# SPDX-License-Identifier: Apache-2.0

"""Trials on the ledger itself are undone completely: indices, generations, reader caches."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit, largest_fit
from laas_service.domain.allocation import Allocation, GroupShare, Request
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.ledger.shared_links import SharedLedger
from laas_service.domain.policies import POLICIES
from tests.unit.domain.policies.test_brute_force import TREES

VERBS = ("allocate", "release", "fail", "drain", "repair", "cut", "mend", "learn", "say")
STEPS = st.lists(
    st.tuples(st.sampled_from(VERBS), st.integers(0, 999), st.sampled_from(sorted(POLICIES))),
    max_size=25,
)


def everything(fabric: Ledger) -> dict[str, object]:
    """All attributes but the topology, which does not change, and the order of allocations."""
    kept = {name: getattr(fabric, name) for name in fields(type(fabric)) if name != "topology"}
    return deepcopy({**kept, "allocations": list(fabric.allocations.items())})


def fields(kind: type[Ledger]) -> list[str]:
    return [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]


@pytest.mark.parametrize("kind", [Ledger, SharedLedger])
def test_each_field_is_copied_and_undone_in_one_way(kind):
    by_way = [*kind.SHORT, *kind.LONG, *kind.REPLACED, *kind.FIXED]
    assert sorted([*by_way, "pod_groups_by_free", "undo"]) == sorted(fields(kind))
    assert not hasattr(kind(TREES["three levels"]), "__dict__")


def play(fabric: Ledger, steps, prefix: str) -> None:
    topology = fabric.topology
    links = topology.tree.leaf_links + topology.tree.spine_links
    for number, (verb, choice, policy) in enumerate(steps):
        host, link = choice % topology.hosts, topology.tree.link_at(choice % links)
        if verb == "allocate":
            admit(POLICIES[policy](), fabric, Request(f"{prefix}{number}", 1 + choice % 11))
        elif verb == "release" and fabric.allocations:
            fabric.release(sorted(fabric.allocations)[choice % len(fabric.allocations)])
        elif verb == "learn":
            largest_fit(POLICIES[policy](), fabric, topology.hosts)
        elif verb == "say":
            fabric.describe_hosts({host: HostFeatures(cost=choice)})
        elif verb in ("fail", "drain", "repair"):
            getattr(fabric, f"{verb}_host")(host)
        elif verb in ("cut", "mend"):
            {"cut": fabric.fail_link, "mend": fabric.repair_link}[verb](link)


@example(
    tree="tapered rails",
    before=[],
    outer=[("allocate", 228, "laas"), ("cut", 35, "baseline"), ("allocate", 30, "lc")],
    inner=[("allocate", 202, "jigsaw"), ("learn", 0, "lc")],
    after=[],
)
@settings(max_examples=200, deadline=None)
@given(tree=st.sampled_from(sorted(TREES)), before=STEPS, outer=STEPS, inner=STEPS, after=STEPS)
def test_any_trial_leaves_everything_as_it_was(tree, before, outer, inner, after):
    fabric = Ledger(TREES[tree])
    play(fabric, before, "a")
    known = everything(fabric)
    with fabric.trial():
        play(fabric, outer, "b")
        halfway = everything(fabric)
        with fabric.trial():
            play(fabric, inner, "c")
        assert everything(fabric) | {"undo": None} == halfway | {"undo": None}
        copy = fabric.copy()
    assert everything(fabric) == known
    straight = Ledger(TREES[tree])
    play(straight, before, "a")
    play(straight, outer, "b")
    assert copy.state() == straight.state()  # a ledger in a trial behaves as usual
    play(fabric, after, "d")
    again = Ledger(TREES[tree])
    play(again, before, "a")
    play(again, after, "d")
    assert everything(fabric) == everything(again)  # the trial leaves no trace


def test_a_trial_that_fails_is_undone_too():
    fabric = Ledger(TREES["three levels"])
    first = admit(POLICIES["jigsaw"](), fabric, Request("first", 5))
    assert isinstance(first, Allocation)
    known = everything(fabric)

    def twice() -> None:
        with fabric.trial():
            fabric.release("first")
            fabric.claim(first)
            fabric.claim(first)

    with pytest.raises(DoubleClaim):
        twice()
    assert everything(fabric) == known
    fabric.release("first")
    assert fabric.state() == Ledger(TREES["three levels"]).state()


@settings(max_examples=30, deadline=None)
@given(steps=STEPS, hosts=st.integers(1, 12), policy=st.sampled_from(sorted(POLICIES)))
def test_what_is_taken_in_a_block_is_as_if_claimed_and_free_again_afterwards(steps, hosts, policy):
    fabric = Ledger(TREES["three levels"])
    play(fabric, steps, "t")
    request = Request("new", hosts)
    newcomer = POLICIES[policy]().propose(fabric, request)
    if not isinstance(newcomer, Allocation):
        return
    claimed, before = fabric.copy(), everything(fabric)
    claimed.claim(newcomer)
    with fabric.taking(newcomer):
        for name in sorted(POLICIES):
            for size in (1, 3, 5, 8):
                answers = [
                    POLICIES[name]().propose(each, Request("other", size))
                    for each in (fabric, claimed)
                ]
                assert answers[0] == answers[1]
        with pytest.raises(DoubleClaim), fabric.taking(newcomer):
            pass
    assert everything(fabric) == before


def test_shares_of_links_are_not_taken_in_a_block():
    fabric = SharedLedger(TREES["three levels"])
    share = Allocation("a", 1, "lc-s", (GroupShare(0, 1, 1),), bandwidth=100_000)
    with pytest.raises(ValueError, match="owner"):
        fabric.taking(share)
