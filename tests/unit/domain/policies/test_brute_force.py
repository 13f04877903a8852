# SPDX-License-Identifier: Apache-2.0

"""Every size on small trees: the policies against a naive search of all combinations.

The search below is written from the papers' conditions (Jigsaw, section 3.2 and
section 4; LaaS, Theorem 2 and section 3; the corrections are in the policies'
docstrings) with nothing but ``itertools``. It decides whether a placement exists;
the judge of ``laas_service.domain.verification`` checks the placement that a
policy proposes.
"""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Port, Topology, Xgft
from laas_service.domain.verification import (
    isolation_violations,
    permutation_violations,
    random_permutation,
    shape_violations,
)
from tests.unit.domain.policies.states import noisy_fabric


def rails(tree: Xgft, planes: int) -> Topology:
    """Two rails: leaves 2g and 2g+1 of a pod form a group, or leaf g of pods 2p and 2p+1."""
    ports = []
    for pod, leaf in itertools.product(range(tree.m[2]), range(tree.m[1])):
        if planes == 1 and leaf % 2 == 0:
            ends = (pod, leaf), (pod, leaf + 1)
        elif planes == 2 and pod % 2 == 0:
            ends = (pod, leaf), (pod + 1, leaf)
        else:
            continue
        ports += [tuple(Port(*end, k) for end in ends) for k in range(tree.m[0])]
    return Topology(tree, rails=2, host_ports=tuple(ports))


TREES = {
    "two levels": Topology(Xgft((3, 4, 1), (1, 3, 0))),
    "six leaves": Topology(Xgft((3, 6, 1), (1, 3, 0))),
    "three levels": Topology(Xgft((2, 3, 3), (1, 2, 3))),
    "four pods": Topology(Xgft((1, 3, 4), (1, 1, 3))),
    "wide leaves": Topology(Xgft((3, 2, 3), (1, 3, 2))),
    "more uplinks than hosts": Topology(Xgft((2, 2, 3), (1, 3, 3))),
    "two spare uplinks": Topology(Xgft((2, 2, 3), (1, 4, 2))),
    "tapered leaves": Topology(Xgft((4, 2, 3), (1, 2, 2))),
    "tapered spines": Topology(Xgft((2, 4, 3), (1, 2, 2))),
    "tapered, with a spare uplink": Topology(Xgft((4, 3, 3), (1, 3, 2))),
    "parallel cables": Topology(Xgft((4, 2, 3), (1, 4, 4), (2, 2))),
    "parallel cables, one spare": Topology(Xgft((3, 2, 3), (1, 4, 4), (2, 1))),
    "rails in one pod": rails(Xgft((2, 4, 3), (1, 2, 4)), 1),
    "rails in planes": rails(Xgft((2, 2, 4), (1, 2, 2)), 2),
    "tapered rails": rails(Xgft((4, 4, 3), (1, 2, 2)), 1),
}
STATES = 60


def subsets(items, size):
    return itertools.combinations(sorted(items), size)


def divided_up(amount, taper):
    return math.ceil(amount / taper)


class Naive:
    """Whether a size fits, by trying everything. Sets of numbers, no masks."""

    def __init__(self, fabric: Ledger) -> None:
        topology, tree = fabric.topology, fabric.topology.tree
        self.m1, self.m2, self.m3 = topology.hosts_per_group, topology.groups_per_pod, topology.pods
        self.leaf_taper = math.ceil(tree.m[0] / tree.w[1])
        self.spine_taper = math.ceil(tree.m[1] * tree.cables[0] / tree.w[2]) if tree.w[2] else 1
        self.planes = range(max(topology.plane_of_rail) + 1)
        self.rails = [topology.plane_of_rail.count(plane) for plane in self.planes]
        self.l2 = tree.w[1] // tree.cables[0]
        self.cables = tree.cables[0]
        leaves = range(self.m2)
        self.hosts = [
            [fabric.free_hosts[pod * self.m2 + leaf].bit_count() for leaf in leaves]
            for pod in range(self.m3)
        ]
        self.up = [
            [
                [
                    {i for i in range(tree.w[1]) if mask >> plane * tree.w[1] + i & 1}
                    for plane in self.planes
                ]
                for mask in fabric.free_uplinks[pod * self.m2 : (pod + 1) * self.m2]
            ]
            for pod in range(self.m3)
        ]
        self.spines = [
            [
                [
                    {
                        j
                        for j in range(tree.w[2])
                        if fabric.free_spines[(pod * len(self.planes) + plane) * self.l2 + i] >> j
                        & 1
                    }
                    for i in range(self.l2)
                ]
                for plane in self.planes
            ]
            for pod in range(self.m3)
        ]

    def one_leaf(self, n):
        return any(
            self.hosts[pod][leaf] >= n
            and (
                n == 1
                or all(r == 1 or up for r, up in zip(self.rails, self.up[pod][leaf], strict=True))
            )
            for pod in range(self.m3)
            for leaf in range(self.m2)
        )

    def one_pod(self, n, sizes):
        """Q leaves of D and one of R hosts; S common to the Q, and R's uplinks within S."""
        for size in sizes:
            full, rest = divmod(n, size)
            for pod in range(self.m3):
                roomy = [leaf for leaf in range(self.m2) if self.hosts[pod][leaf] >= size]
                for chosen in subsets(roomy, full):
                    if self._uplinks_fit(pod, chosen, size, rest):
                        return True
        return False

    def _uplinks_fit(self, pod, chosen, size, rest):
        common = [
            set.intersection(*(self.up[pod][leaf][p] for leaf in chosen)) for p in self.planes
        ]
        width, rest_width = divided_up(size, self.leaf_taper), divided_up(rest, self.leaf_taper)
        others = [x for x in range(self.m2) if x not in chosen and self.hosts[pod][x] >= rest]
        for choice in itertools.product(*(subsets(up, width) for up in common)):
            if not rest or any(
                all(len(self.up[pod][x][p] & set(choice[p])) >= rest_width for p in self.planes)
                for x in others
            ):
                return True
        return False

    def pods(self, leaves, rest, depths, size=None):
        """T pods of L leaves of a size and a smaller remainder pod; all leaves use the same S."""
        size = size or self.m1
        width = divided_up(size, self.leaf_taper)
        choices = [list(subsets(range(self.l2 * self.cables), width)) for _ in self.planes]
        for depth in depths:
            alike, more = divmod(leaves, depth)
            if alike < 1 or (alike == 1 and not more and not rest):
                continue
            for choice in itertools.product(*choices):
                if self._pods_fit(alike, depth, more, rest, [set(c) for c in choice], size):
                    return True
        return False

    def _full(self, pod, uplinks, size):
        return [
            leaf
            for leaf in range(self.m2)
            if self.hosts[pod][leaf] >= size
            and all(uplinks[p] <= self.up[pod][leaf][p] for p in self.planes)
        ]

    def _pods_fit(self, alike, depth, more, rest, uplinks, size):
        full = [self._full(pod, uplinks, size) for pod in range(self.m3)]
        roomy = [pod for pod in range(self.m3) if len(full[pod]) >= depth]
        for chosen in subsets(roomy, alike):
            if not self._spines_fit(chosen, None, uplinks, depth, 0, None):
                continue
            if not more and not rest:
                return True
            for last in set(range(self.m3)) - set(chosen):
                if self._last_fits(chosen, last, full[last], uplinks, depth, more, rest):
                    return True
        return False

    def _last_fits(self, chosen, last, full, uplinks, depth, more, rest):
        if not rest:
            return len(full) >= more and self._spines_fit(chosen, last, uplinks, depth, more, None)
        width = divided_up(rest, self.leaf_taper)
        for leaf in range(self.m2):
            if self.hosts[last][leaf] < rest or len(set(full) - {leaf}) < more:
                continue
            own = [uplinks[p] & self.up[last][leaf][p] for p in self.planes]
            for part in itertools.product(*(subsets(up, width) for up in own)):
                if self._spines_fit(chosen, last, uplinks, depth, more, [set(x) for x in part]):
                    return True
        return False

    def _spines_fit(self, chosen, last, uplinks, depth, more, part):
        """At every L2 switch: S* common to full pods, the remainder pod's within it."""
        for p, i in itertools.product(self.planes, range(self.l2)):
            bundle = set(range(i * self.cables, (i + 1) * self.cables))
            flows = len(bundle & uplinks[p]) * self.rails[p]
            common = set.intersection(*(self.spines[pod][p][i] for pod in chosen))
            if len(common) < divided_up(flows * depth, self.spine_taper):
                return False
            if last is not None:
                extra = len(bundle & part[p]) * self.rails[p] if part else 0
                below = common & self.spines[last][p][i]
                if len(below) < divided_up(flows * more + extra, self.spine_taper):
                    return False
        return True

    def fits(self, policy, n):
        pod = self.m1 * self.m2
        if policy == "simple":
            if n <= self.m1:
                return self.one_leaf(n)
            if n <= pod:
                return self.one_pod(-(-n // self.m1) * self.m1, [self.m1])
            return self.pods(-(-n // pod) * self.m2, 0, [self.m2])
        if self.one_leaf(n) or self.one_pod(n, range(min(n - 1, self.m1), 0, -1)):
            return True
        depths = range(self.m2, 0, -1)
        if policy == "lc":
            return any(
                self.pods(n // size, n % size, depths, size)
                for size in range(1, min(n, self.m1) + 1)
            )
        if policy == "laas":
            return self.pods(-(-n // self.m1), 0, depths)
        return self.pods(n // self.m1, n % self.m1, depths)


@pytest.mark.parametrize("name", TREES)
def test_every_size_against_all_combinations(name):
    topology = TREES[name]
    rng = Random(name)
    fitted = refused = 0
    for number in range(STATES):
        fabric = noisy_fabric(topology, rng)
        naive = Naive(fabric)
        for policy in ("simple", "laas", "jigsaw", "lc"):
            for size in range(1, topology.hosts + 2):
                answer = POLICIES[policy]().propose(fabric, Request("t", size))
                placed = isinstance(answer, Allocation)
                where = f"state {number}, {policy}, {size} hosts: {answer}"
                assert placed == naive.fits(policy, size), where
                if isinstance(answer, Allocation):
                    assert not shape_violations(topology, answer), where
                    assert not isolation_violations(
                        topology, [answer, *fabric.allocations.values()]
                    ), where
                    if policy == "lc" and answer.columns:
                        tried = {"random": random_permutation(answer.hosts(topology), rng)}
                        assert not permutation_violations(topology, answer, tried), where
                    fabric.claim(answer)
                    fabric.release("t")
                fitted, refused = fitted + placed, refused + (not placed)
    assert min(fitted, refused) > STATES  # the random states have enough of both outcomes
