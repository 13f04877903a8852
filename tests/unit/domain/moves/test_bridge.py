# SPDX-License-Identifier: Apache-2.0

"""Bridges against all sets of free links on small trees; by cables and switches, not by masks."""

from __future__ import annotations

import os
from collections import Counter
from itertools import combinations, product
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, link_name
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

STATES = int(os.environ.get("LAAS_BRIDGE_STATES", "20"))
MOST_SETS = 3_000


class Naive:
    """The pairs of leaves to join, and whether links join them."""

    def __init__(self, fabric: Ledger, old: Allocation, new: Allocation) -> None:
        self.topology, self.tree = fabric.topology, fabric.topology.tree
        held = {*old.links(self.topology), *new.links(self.topology)}
        self.working = held - fabric.failed_links
        out = fabric.failed_links | fabric.drained_links | self.topology.absent_links
        taken = {*out, *fabric.owners_of_links(), *held}
        self.free = [x for x in self.tree.links() if taken.isdisjoint(self.with_rails(x))]
        self.pairs = {
            (self.leaf(a, rail), self.leaf(b, rail))
            for a, b in product(old.hosts(self.topology), new.hosts(self.topology))
            for rail in range(self.topology.rails)
        }

    def with_rails(self, link: Link) -> list[Link]:
        """The link, and those that a tenant has to take with it on the other rails of its plane."""
        leaf = link.pod * self.tree.m[1] + link[1]
        of_leaf = {
            x: g for g in range(self.topology.groups) for x in self.topology.leaves_of_group(g)
        }
        if isinstance(link, SpineLink) or leaf not in of_leaf:
            return [link]
        leaves = self.topology.leaves_of_group(of_leaf[leaf])
        places = [divmod(leaf, self.tree.m[1]) for leaf in leaves]
        return [LeafLink(*place, link.up) for place in places if place[0] == link.pod]

    def leaf(self, host: int, rail: int) -> tuple[int, int]:
        port = self.topology.ports_of(host)[rail]
        return port.pod, port.leaf

    def above(self, leaf, links) -> set[tuple[object, ...]]:
        """The L2 switches and spines that links lead up to."""
        l2s = {(x.pod, x.up // self.tree.cables[0]) for x in links if self._at(x, LeafLink, leaf)}
        spines = {
            ("spine", x.l2, x.up // self.tree.cables[1])
            for x in links
            if isinstance(x, SpineLink) and (x.pod, x.l2) in l2s
        }
        return l2s | spines

    def _at(self, link: Link, kind: type, leaf) -> bool:
        return isinstance(link, kind) and tuple(link[:2]) == leaf

    def joined(self, links) -> bool:
        above = {leaf: self.above(leaf, links) for pair in self.pairs for leaf in pair}
        return all(a == b or above[a] & above[b] for a, b in self.pairs)

    def over_one_l2(self) -> int | None:
        """The fewest free links that join all pairs over one L2 index and one spine."""
        apart = [p for p in self.pairs if not self._joins(p)]
        if not apart:
            return 0
        best = None
        spines = range(self.tree.spines_per_group or 1)
        for l2, spine in product(range(self.tree.l2_per_pod), spines):
            needed: list[list[Link]] = []
            for leaf in {leaf for pair in apart for leaf in pair}:
                cables = range(l2 * self.tree.cables[0], (l2 + 1) * self.tree.cables[0])
                needed.append([LeafLink(*leaf, up) for up in cables])
            for pod in {leaf[0] for a, b in apart if a[0] != b[0] for leaf in (a, b)}:
                cables = range(spine * self.tree.cables[1], (spine + 1) * self.tree.cables[1])
                needed.append([SpineLink(pod, l2, up) for up in cables])
            if all(self.working.union(self.free).intersection(links) for links in needed):
                cost = sum(not self.working.intersection(links) for links in needed)
                best = cost if best is None else min(best, cost)
        return best

    def _joins(self, pair) -> bool:
        a, b = pair
        return a == b or bool(self.above(a, self.working) & self.above(b, self.working))

    def fewest(self, below: int) -> int | None:
        """The fewest free links that join all pairs; None if that takes too many trials."""
        near = {leaf for pair in self.pairs for leaf in pair}
        pods = {pod for pod, _ in near}
        useful = [
            x for x in self.free if (x[:2] in near if isinstance(x, LeafLink) else x.pod in pods)
        ]
        tried = 0
        for count in range(below):
            for links in combinations(useful, count):
                tried += 1
                if tried > MOST_SETS:
                    return None
                if self.joined(self.working.union(links)):
                    return count
        return below


def placements(topology: Topology, rng: Random) -> tuple[Ledger, Allocation, Allocation] | None:
    """A fabric that holds a tenant, and another free placement for it, overlapping or not."""
    fabric = noisy_fabric(topology, rng)
    policy = POLICIES[rng.choice(("jigsaw", "laas", "lc"))]()
    most = max(1, fabric.free_host_count // 2)
    old = admit(policy, fabric, Request("t", rng.randint(1, most)))
    if isinstance(old, NoFit):
        return None
    view = fabric.copy()
    if rng.random() < 0.4:
        view.release("t")
        view.drain_host(rng.choice(old.hosts(topology)))
    new = policy.propose(view, Request("t", rng.randint(1, most)))
    if isinstance(new, NoFit):
        return None
    if topology.rails == 1 and old.columns and rng.random() < 0.3:
        fabric.fail_link(rng.choice(list(old.links(topology))))
    return fabric, old, new


@pytest.mark.parametrize("name", TREES)
def test_a_bridge_is_found_exactly_if_free_links_can_join_all_hosts(name):
    topology, rng, seen = TREES[name], Random(name), Counter[str]()
    for number in range(STATES):
        state = placements(topology, rng)
        if state is None:
            continue
        fabric, old, new = state
        if not (old.beyond(new).size and new.beyond(old).size):
            nothing = bridge(fabric, old, new)
            assert nothing is not None
            assert not [*nothing.links(topology)]
            continue
        before, naive = fabric.state(), Naive(*state)
        answer = bridge(fabric, old, new)
        assert fabric.state() == before
        where = f"state {number}: {old} to {new}: {answer}"
        assert (answer is not None) == naive.joined(naive.working.union(naive.free)), where
        seen["none" if answer is None else "some" if answer.groups or answer.columns else "no"] += 1
        if answer is None:
            continue
        links = set(answer.links(topology))
        assert not answer.hosts(topology)
        assert links <= set(naive.free), where
        assert naive.joined(naive.working | links), where
        if topology.rails == 1:
            for link in links:
                assert not naive.joined(naive.working | links - {link}), (
                    f"{where}: {link_name(link)}"
                )
            over_one = naive.over_one_l2()
            assert over_one is None or len(links) <= over_one, where
            least = naive.fewest(len(links))
            seen["unknown" if least is None else "least" if least == len(links) else "more"] += 1
    assert seen["some"]
    assert seen["more"] <= seen["least"] // 10
