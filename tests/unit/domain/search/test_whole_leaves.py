# SPDX-License-Identifier: Apache-2.0

"""Full leaves of several pods: a greedy choice says what a search says, or that it cannot tell."""

from __future__ import annotations

from collections import Counter
from random import Random

from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.search.multi_pod import in_several_pods
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement
from laas_service.domain.search.whole_leaves import Unplaced, WholeLeaves
from laas_service.domain.topology import SpineLink, Topology, Xgft

TREES = (
    Xgft((2, 3, 5), (1, 2, 4)),
    Xgft((1, 3, 6), (1, 1, 3)),
    Xgft((4, 3, 4), (1, 2, 2)),  # tapered
    Xgft((2, 3, 4), (1, 3, 3)),  # leaves have an uplink to spare
)


def ragged(tree: Xgft, rng: Random) -> Ledger:
    """A fabric with failed hosts and spine uplinks; no leaf misses an uplink."""
    fabric, hosts, links = Ledger(Topology(tree)), rng.uniform(0, 0.4), rng.uniform(0, 0.7)
    for host in range(fabric.topology.hosts):
        if rng.random() < hosts:
            fabric.fail_host(host)
    for pod in range(tree.m[2]):
        for column in range(tree.w[1]):
            for spine in range(tree.w[2]):
                if rng.random() < links:
                    fabric.fail_link(SpineLink(pod, column, spine))
    return fabric


def first_found(fabric: Ledger, leaves: int) -> Placement | None:
    """What a search finds first that knows nothing from before."""
    request = Request("x", leaves * fabric.topology.hosts_per_group)
    search = Search(fabric, "laas", request, 60_000)
    return next(in_several_pods(search, leaves, 0), None)


def test_it_is_what_a_search_finds_first():
    told = Counter[str]()
    for seed in range(400):
        rng = Random(seed)
        fabric = ragged(rng.choice(TREES), rng)
        for leaves in range(2, fabric.groups_by_free[-1].bit_count() + 1):
            fabric.reader_caches.clear()
            answer = WholeLeaves.of(fabric).place(leaves)
            found = first_found(fabric, leaves)
            if isinstance(answer, Placement):
                assert answer == found
                told[
                    "placed, with a remainder pod" if answer.shape.remainder_leaves else "placed"
                ] += 1
            else:
                assert answer is Unplaced.UNKNOWN or found is None
                told[f"{answer.value}, {'placed' if found else 'refused'}"] += 1
    assert told["placed"] > 100
    assert told["placed, with a remainder pod"] > 100
    assert told["none, refused"] > 100
    assert 10 < told["unknown, placed"] < told["placed"]  # most are answered without a search


def test_the_order_of_pods_is_kept_only_by_numbers_that_sort_alike():
    fabric = Ledger(Topology(TREES[0]))
    fabric.fail_host(0)
    view = WholeLeaves.of(fabric)
    assert view.pods == [0, 1, 2, 3, 4]
    assert view.ordered_by(fabric.pod_free_hosts)
    assert view.ordered_by([6, 5, 5, 5, 6])
    assert not view.ordered_by([5, 6, 5, 5, 5])
