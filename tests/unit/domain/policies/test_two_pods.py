# SPDX-License-Identifier: Apache-2.0

"""Jigsaw's extension to two pods whose remainder pod is larger, against all combinations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import (
    adversarial_permutations,
    isolation_violations,
    permutation_violations,
    random_permutation,
    shape_violations,
)
from tests.unit.domain.policies.states import lopsided_fabric
from tests.unit.domain.policies.test_brute_force import TREES, Naive, divided_up, subsets
from tests.unit.domain.verification.sound import inventory_of
from tests.walks import Walks

TWO_PODS = Jigsaw(two_pods=True)
STATES = 500


class NaiveTwo(Naive):
    """Whether a size fits in two pods, on spine uplinks for the flows of the smaller one."""

    def fits(self, policy, n):
        if super().fits(policy, n):
            return True
        leaves, rest = divmod(n, self.m1)
        width = divided_up(self.m1, self.leaf_taper)
        choices = [list(subsets(range(self.l2 * self.cables), width)) for _ in self.planes]
        return any(
            self._two_fit(few, leaves - few, rest, [set(c) for c in choice])
            for few in range(1, leaves // 2 + 1)
            if rest or leaves - few > few
            for choice in itertools.product(*choices)
        )

    def _two_fit(self, few, many, rest, uplinks):
        full = [self._full(pod, uplinks, self.m1) for pod in range(self.m3)]
        width = divided_up(rest, self.leaf_taper)
        for small, large in itertools.permutations(range(self.m3), 2):
            if len(full[small]) < few or not self._two_spines_fit(small, large, few, uplinks):
                continue
            if not rest and len(full[large]) >= many:
                return True
            for leaf in range(self.m2 if rest else 0):
                if len(set(full[large]) - {leaf}) < many or self.hosts[large][leaf] < rest:
                    continue
                own = [uplinks[p] & self.up[large][leaf][p] for p in self.planes]
                if all(len(up) >= width for up in own):
                    return True
        return False

    def _two_spines_fit(self, small, large, few, uplinks):
        for p, i in itertools.product(self.planes, range(self.l2)):
            bundle = set(range(i * self.cables, (i + 1) * self.cables))
            flows = len(bundle & uplinks[p]) * self.rails[p]
            both = self.spines[large][p][i] & self.spines[small][p][i]
            if len(both) < divided_up(flows * few, self.spine_taper):
                return False
        return True


@pytest.mark.parametrize(
    "name",
    [
        "three levels",
        "wide leaves",
        "more uplinks than hosts",
        "tapered leaves",
        "tapered spines",
        "parallel cables",
        "rails in one pod",
        "rails in planes",
    ],
)
def test_every_size_against_all_combinations(name):
    topology = TREES[name]
    rng = Random(name)
    gained = 0
    for number in range(STATES):
        fabric = lopsided_fabric(topology, rng)
        naive = NaiveTwo(fabric)
        fits = []
        for size in range(1, topology.hosts + 1):
            where = f"state {number}, {size} hosts"
            answer = TWO_PODS.propose(fabric, Request("t", size))
            placed = isinstance(answer, Allocation)
            fits.append(placed)
            assert placed == naive.fits("jigsaw", size), where
            if not isinstance(answer, Allocation) or answer.shape is None:
                continue
            if not answer.shape.extended:
                continue
            gained += 1
            assert answer.size == answer.shape.size == size
            assert not shape_violations(topology, answer), where
            assert not isolation_violations(topology, [answer, *fabric.allocations.values()])
            tried = adversarial_permutations(topology, answer)
            hosts = answer.hosts(topology)
            tried |= {f"random {n}": random_permutation(hosts, rng) for n in range(5)}
            assert not permutation_violations(topology, answer, tried), where
            fabric.claim(answer)
            fabric.release("t")
        assert fits == sorted(fits, reverse=True)
    assert gained > 5, gained


def uneven_fabric() -> Ledger:
    """Pod 0 has one leaf of three hosts; pod 1 two such leaves and one of two hosts."""
    fabric = Ledger(Topology(Xgft((3, 3, 2), (1, 3, 3))))
    for host in (*range(6), 17):
        fabric.fail_host(host)
    return fabric


def uneven_tenant() -> tuple[Topology, Allocation]:
    fabric = uneven_fabric()
    answer = TWO_PODS.propose(fabric, Request("t", 11))
    assert isinstance(answer, Allocation)
    return fabric.topology, answer


def test_it_is_off_unless_asked_for_and_remembers_for_itself():
    _, answer = uneven_tenant()
    assert str(answer.shape) == "1x(1x3)+(2x3+2)"
    fabric = uneven_fabric()
    assert isinstance(Jigsaw().propose(fabric, Request("t", 11)), NoFit)
    assert TWO_PODS.propose(fabric, Request("t", 11)) == answer


def test_the_tables_keep_it_on_its_own_links():
    topology, answer = uneven_tenant()
    inventory = inventory_of(topology)
    walks = Walks.over(inventory, forwarding_tables(topology, inventory, [answer]))
    walks.assert_isolated(topology, answer)
    walks.assert_reaches(switch.guid for switch in inventory.switches)


def test_the_judge_accepts_it_only_with_the_links_that_it_needs():
    topology, answer = uneven_tenant()
    assert not shape_violations(topology, answer)
    assert any("(3)" in text for text in shape_violations(topology, replace(answer, policy="lc")))
    without = [
        replace(answer, columns=tuple(c for c in answer.columns if c.column or c.pod != pod))
        for pod in (0, 1)
    ]
    last = answer.groups[-1]
    without.append(replace(answer, groups=(*answer.groups[:-1], last._replace(uplinks=0))))
    for broken in without:
        assert any("(1, 3)" in text for text in shape_violations(topology, broken))
