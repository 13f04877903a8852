# SPDX-License-Identifier: Apache-2.0

"""What is known without a search agrees with a search on the fabric at the shadow time."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.queue import Discipline, EasyQueue
from laas_service.domain.admission.vetoes import Vetoes
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.topology import Topology, Xgft

TREES = (
    Xgft((2, 3, 4), (1, 2, 3)),  # 4 pods of 3 leaves of 2 hosts
    Xgft((2, 4, 6), (1, 2, 4)),
    Xgft((4, 3, 4), (1, 2, 2)),  # tapered
)


def filled(tree: Xgft, policy: str, rng: Random) -> tuple[Ledger, list[str]]:
    """A fabric with tenants of mixed sizes, and their ids in random order."""
    fabric = Ledger(Topology(tree))
    for number in range(30):
        admit(POLICIES[policy](), fabric, Request(str(number), rng.randint(1, 9)))
    ids = sorted(fabric.allocations)
    rng.shuffle(ids)
    return fabric, ids


@pytest.mark.parametrize("policy", ["laas", "jigsaw", "baseline"])
def test_what_is_known_is_what_a_search_finds(policy):
    asked = POLICIES[policy]()
    outcomes = set[bool | str | None]()
    for seed in range(250):
        rng = Random(seed)
        present, ids = filled(rng.choice(TREES), policy, rng)
        leaving = rng.randint(1, len(ids) // 2)
        for id in ids[:leaving]:
            present.release(id)
        future = present.copy()
        for id in ids[leaving : leaving + len(ids) // 3]:
            future.release(id)
        head = Request("head", rng.randint(1, future.free_host_count))
        planned = asked.propose(future, head)
        if isinstance(planned, NoFit):
            continue
        present.reader_cache(KnownFits)
        vetoes = Vetoes(asked, head, future, moves=False)
        for step in range(12):
            request = Request(f"new{step}", rng.randint(1, 12))
            newcomer = asked.propose(present, request)
            if isinstance(newcomer, NoFit):
                continue
            with future.trial():
                future.claim(newcomer)
                beside = asked.propose(future, head)
            fits = isinstance(beside, Allocation)
            if request.hosts > vetoes.most_hosts(present):
                assert not fits, (seed, step)
                outcomes.add("too large")
            if vetoes.delays(present, request.hosts):
                assert not fits, (seed, step)
                outcomes.add("delays")
            taken = vetoes.taken(newcomer)
            known = vetoes.known(taken, newcomer, planned)
            assert known in (None, fits), (seed, step)
            outcomes.add(known)
            if fits and rng.random() < 0.5:
                present.claim(newcomer)
                future.claim(newcomer)
                assert isinstance(beside, Allocation)
                planned = beside
            elif not fits:
                vetoes.add(taken, newcomer, proven=True)
    by_search_alone = {False, None}  # what needs no links of its own never fits for sure
    every = {True, False, None, "too large", "delays"}
    assert outcomes == (by_search_alone if policy == "baseline" else every)


def test_a_request_that_takes_too_many_leaves_wherever_it_is_placed_is_not_asked_for():
    """The head needs 6 of 8 leaves of two hosts. Five more hosts would take three leaves."""

    class Counting:
        name, isolating, monotone = "laas", True, True
        asked: list[str]

        def __init__(self) -> None:
            self.asked = []

        def propose(self, fabric, request):
            self.asked.append(request.id)
            return POLICIES["laas"]().propose(fabric, request)

    policy = Counting()
    queue = EasyQueue(Ledger(Topology(Xgft((2, 2, 4), (1, 2, 2)))), policy, Discipline())
    for id, hosts, duration in (("a", 4, 10), ("b", 4, 10), ("head", 11, 5), ("c", 5, 99)):
        queue.submit(Request(id, hosts), duration)
    assert [allocation.id for allocation in queue.step(0)] == ["a", "b"]
    assert "c" not in policy.asked
    assert queue.reservation is not None
    assert queue.reservation.time == 10
