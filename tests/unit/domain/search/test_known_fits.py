# SPDX-License-Identifier: Apache-2.0

"""Known placements are those that a search would find now."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, GroupShare, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft

TREE = Topology(Xgft((2, 3, 4), (1, 3, 3)))  # 4 pods of 3 leaves of 2 hosts


def remembering() -> Ledger:
    ledger = Ledger(TREE)
    ledger.reader_cache(KnownFits)
    return ledger


def changed(ledger: Ledger, policy: str, what: tuple[str, int]) -> None:
    """Change one thing; numbers out of range are wrapped."""
    verb, number = what
    leaf = LeafLink(number % 4, number % 3, number % 2)
    spine = SpineLink(number % 4, number % 3, number % 2)
    if verb == "claim":
        id = next(id for id in map(str, range(99)) if id not in ledger.allocations)
        admit(POLICIES[policy](), ledger, Request(id, 1 + number % 9))
    elif verb == "release" and ledger.allocations:
        ledger.release(sorted(ledger.allocations)[number % len(ledger.allocations)])
    elif verb == "fail":
        ledger.fail_link(leaf if number % 2 else spine)
        ledger.fail_host(number % 24)
    elif verb == "repair":
        ledger.repair_link(leaf)
        ledger.repair_link(spine)
        ledger.repair_host(number % 24)


CHANGES = st.lists(
    st.tuples(st.sampled_from(("claim", "claim", "release", "fail", "repair")), st.integers(0, 99)),
    max_size=15,
)


@pytest.mark.parametrize("policy", ["laas", "jigsaw", "simple"])
@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, tried=CHANGES)
def test_an_answer_is_that_of_a_ledger_without_memory(policy, changes, tried):
    ledger = remembering()

    def ask():
        fresh = ledger.copy()
        fresh.reader_caches.clear()
        for hosts in range(1, 25):
            request = Request("x", hosts)
            answers = [POLICIES[policy]().propose(each, request) for each in (ledger, fresh)]
            assert answers[0] == answers[1]

    for what in changes:
        ask()
        changed(ledger, policy, what)
        copy = ledger.copy()
        with ledger.trial():
            for attempt in tried[:2]:
                changed(ledger, policy, attempt)
                ask()
        changed(copy, policy, what)
        POLICIES[policy]().propose(copy, Request("x", 9))
        ask()


def test_a_placement_is_searched_once_while_nothing_changes_there():
    ledger, laas = remembering(), POLICIES["laas"]()

    def groups(hosts: int) -> object:
        answer = laas.propose(ledger, Request("x", hosts))
        assert isinstance(answer, Allocation)
        return answer.groups

    known = groups(5), groups(9)
    assert groups(5) is known[0]
    assert groups(9) is known[1]
    ledger.claim(Allocation("one", 1, "baseline", (GroupShare(0, 1, 0),)))
    assert groups(5) is not known[0]
    assert groups(9) is not known[1]


def test_a_placement_in_several_pods_is_known_while_the_pods_keep_their_order():
    """Each pod has one full leaf, pod 1 one more host. Fuller pods come first."""
    ledger, laas = remembering(), POLICIES["laas"]()
    for group in range(12):
        if group % 3:
            hosts = 1 if group == 4 else 3
            ledger.claim(Allocation(f"{group}", 1, "baseline", (GroupShare(group, hosts, 0),)))

    def groups() -> list[int]:
        answer = laas.propose(ledger, Request("x", 4))
        assert isinstance(answer, Allocation)
        return [share.group for share in answer.groups]

    assert groups() == [0, 6]
    ledger.claim(Allocation("last", 1, "baseline", (GroupShare(4, 2, 0),)))
    assert groups() == [0, 3]


def test_only_a_ledger_that_has_known_placements_gets_more():
    ledger = Ledger(TREE)
    POLICIES["laas"]().propose(ledger, Request("x", 9))
    assert KnownFits.kept_with(ledger) is None


def test_a_saved_ledger_begins_with_nothing():
    ledger = remembering()
    POLICIES["laas"]().propose(ledger, Request("x", 9))
    known = ledger.reader_cache(KnownFits)
    assert known.in_several_pods(ledger).placements
    assert not pickle.loads(pickle.dumps(known)).in_several_pods(ledger).placements
