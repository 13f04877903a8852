# SPDX-License-Identifier: Apache-2.0

"""What is answered without a search is what a search answers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.search.misfits import NEVER, Misfits
from laas_service.domain.search.multi_pod import in_several_pods
from laas_service.domain.search.one_leaf import fullest_leaf_group, in_one_leaf_group
from laas_service.domain.search.one_pod import in_one_pod
from laas_service.domain.search.search import Search
from laas_service.domain.search.without_search import answer_without_search, first_pod
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft

TREES = (
    Xgft((2, 3, 4), (1, 2, 3)),
    Xgft((2, 4, 6), (1, 2, 4)),
    Xgft((4, 3, 5), (1, 4, 3)),
    Xgft((4, 3, 4), (1, 2, 2)),  # tapered
    Xgft((2, 3, 4), (1, 3, 3)),  # leaves have an uplink to spare
)


def searched(fabric: Ledger, policy: str, request: Request, leaves: int, rest: int):
    """What a search answers that knows nothing from before."""
    fresh = fabric.copy()
    fresh.reader_caches.clear()
    search = Search(fresh, policy, request, 60_000)
    steps = in_one_leaf_group, in_one_pod
    answer = search.answer(
        *(step(search, request.hosts) for step in steps), in_several_pods(search, leaves, rest)
    )
    assert not search.budget.exceeded
    return answer


def aged(tree: Xgft, policy: str, rng: Random) -> Ledger:
    """A fabric whose tenants have come and gone, at times with links that failed."""
    fabric = Ledger(Topology(tree))
    if rng.random() < 0.5:
        fabric.reader_cache(KnownFits)
    for number in range(60):
        admit(POLICIES[policy](), fabric, Request(str(number), rng.randint(1, 9)))
        if len(fabric.allocations) > 1 and rng.random() < 0.5:
            fabric.release(rng.choice(sorted(fabric.allocations)))
        if rng.random() < 0.02:
            fabric.fail_link(LeafLink(rng.randrange(4), rng.randrange(3), rng.randrange(2)))
        if rng.random() < 0.03:
            fabric.fail_link(SpineLink(rng.randrange(4), rng.randrange(2), rng.randrange(2)))
    for id in sorted(fabric.allocations):
        if rng.random() < 0.6:
            fabric.release(id)
    return fabric


@pytest.mark.parametrize("policy", ["laas", "jigsaw"])
def test_it_is_what_a_search_answers(policy):
    told = Counter[str]()
    for seed in range(100):
        rng = Random(seed)
        fabric = aged(rng.choice(TREES), policy, rng)
        slots = fabric.topology.hosts_per_group
        for hosts in range(1, fabric.free_host_count + 1):
            request = Request("x", hosts)
            if fullest_leaf_group(fabric, policy, request):
                continue
            leaves, rest = divmod(hosts, slots) if policy == "jigsaw" else (-(-hosts // slots), 0)
            answer = answer_without_search(fabric, policy, request, leaves, rest)
            if answer is None:
                POLICIES[policy]().propose(fabric, request)  # remembers the pods that do not fit
                answer = answer_without_search(fabric, policy, request, leaves, rest)
            if answer is None:
                told["nothing"] += 1
                continue
            assert answer == searched(fabric, policy, request, leaves, rest)
            if isinstance(answer, NoFit):
                told["refused"] += 1
            else:
                told["several pods" if answer.columns else "one pod"] += 1
    assert told["one pod"] > 100
    assert told["several pods"] > 100
    assert told["refused"] > 100


def test_a_refusal_is_remembered_like_that_of_a_search():
    """Four pods have one full leaf each, and no two of them a spine in common."""
    fabric = Ledger(Topology(Xgft((2, 2, 4), (1, 2, 4))))
    for pod in range(4):
        fabric.fail_host(4 * pod + 3)
        for spine in range(4):
            if spine != pod:
                fabric.fail_link(SpineLink(pod, 0, spine))
                fabric.fail_link(SpineLink(pod, 1, spine))
    hosts = 4
    assert first_pod(fabric, hosts) is None
    answer = answer_without_search(fabric, "laas", Request("x", hosts), 2, 0)
    assert isinstance(answer, NoFit)
    misfits = fabric.reader_cache(Misfits)
    assert misfits.smallest("laas", fabric.freed) == hosts
    assert misfits.in_several_pods(fabric) == hosts < NEVER


def test_the_first_pod_is_the_fullest_with_room_that_may_fit():
    fabric = Ledger(Topology(TREES[0]))
    laas = POLICIES["laas"]()
    for request in (Request("one", 2), Request("two", 1)):
        assert isinstance(admit(laas, fabric, request), Allocation)
    free = list(fabric.pod_free_hosts)
    assert free == [3, 6, 6, 6]
    assert first_pod(fabric, 3) == 0
    assert first_pod(fabric, 4) == 1
    assert first_pod(fabric, 7) is None
    fabric.reader_cache(Misfits).remember(0, fabric.pod_freed[0], 3)
    assert first_pod(fabric, 3) == 1


@pytest.mark.parametrize("policy", ["laas", "jigsaw"])
def test_a_remainder_pod_takes_spines_that_the_full_pods_have_too(policy):
    """The one pod with two free leaves has other spines than the pods with one."""
    fabric = Ledger(Topology(Xgft((2, 2, 4), (1, 2, 4))))
    for pod in range(4):
        for spine in (2, 3) if pod == 0 else (0, 1):
            for column in range(2):
                fabric.fail_link(SpineLink(pod, column, spine))
        if pod:
            fabric.drain_host(4 * pod)
    request = Request("x", 6)
    answer = answer_without_search(fabric, policy, request, 3, 0)
    assert isinstance(answer, Allocation)
    assert answer == searched(fabric, policy, request, 3, 0)
    fabric.claim(answer)
