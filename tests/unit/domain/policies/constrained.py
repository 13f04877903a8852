# SPDX-License-Identifier: Apache-2.0

"""Checks of constraints by host numbers and ports; they use no masks and no policy code."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

from laas_service.domain.allocation import Allocation
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from tests.unit.domain.policies.test_brute_force import Naive, divided_up, subsets

TRAITS = ("gpu", "nvme")


def some_features(fabric: Ledger, rng: Random) -> dict[int, HostFeatures]:
    """Random traits and costs of all hosts; sometimes all hosts cost the same."""
    costs = rng.choice(((0,), (0, 1), (1, 2, 3, 5, 8, 13)))
    return {
        host: HostFeatures(
            frozenset(trait for trait in TRAITS if rng.random() < 0.7), rng.choice(costs)
        )
        for host in range(fabric.topology.hosts)
        if host not in fabric.topology.absent_hosts
    }


def pods_of(fabric: Ledger, host: int) -> tuple[int, ...]:
    return tuple(port.pod for port in fabric.topology.ports_of(host))


def leaves_of(fabric: Ledger, host: int) -> tuple[tuple[int, int], ...]:
    return tuple((port.pod, port.leaf) for port in fabric.topology.ports_of(host))


def acceptable(fabric: Ledger, wish: Constraints, host: int) -> bool:
    """Whether a host by itself meets the constraints."""
    known = fabric.features.hosts.get(host, HostFeatures())
    return (
        all(trait in known.traits for trait in wish.traits)
        and host not in wish.avoid_hosts
        and not any(pod in wish.avoid_pods for pod in pods_of(fabric, host))
        and (wish.max_host_cost is None or known.cost <= wish.max_host_cost)
    )


def broken(fabric: Ledger, wish: Constraints, answer: Allocation) -> list[str]:
    """Every constraint that the answer does not meet."""
    hosts = answer.hosts(fabric.topology)
    violations = [f"host {host}" for host in hosts if not acceptable(fabric, wish, host)]
    leaves = {leaves_of(fabric, host) for host in hosts}
    pods = {pods_of(fabric, host) for host in hosts}
    if wish.within is Within.LEAF and len(leaves) > 1:
        violations.append(f"{len(leaves)} leaves")
    if wish.within is Within.POD and len(pods) > 1:
        violations.append(f"{len(pods)} pods")
    if len(pods) < wish.least_pods:
        violations.append(f"only {len(pods)} pods")
    return violations


def price(fabric: Ledger, answer: Allocation) -> int:
    hosts = answer.hosts(fabric.topology)
    return sum(fabric.features.hosts.get(host, HostFeatures()).cost for host in hosts)


class Priced(Naive):
    """Costs of all legal placements that meet the constraints, by naive enumeration."""

    def __init__(self, fabric: Ledger, wish: Constraints) -> None:
        left = fabric.copy()
        for host in range(fabric.topology.hosts):
            if host not in fabric.topology.absent_hosts and not acceptable(fabric, wish, host):
                left.fail_host(host)
        super().__init__(left)
        self.wish = wish
        self.costs: list[list[list[int]]] = [
            [self._costs(left, pod * self.m2 + leaf) for leaf in range(self.m2)]
            for pod in range(self.m3)
        ]

    def _costs(self, fabric, group):
        free = [position for position in range(self.m1) if fabric.free_hosts[group] >> position & 1]
        hosts = [fabric.topology.host_at(group, position) for position in free]
        return [fabric.features.hosts.get(host, HostFeatures()).cost for host in hosts]

    def _least(self, pod, leaf, count):
        return min(map(sum, combinations(self.costs[pod][leaf], count)))

    def _leaf_prices(self, n):
        for pod, leaf in product(range(self.m3), range(self.m2)):
            joined = all(r == 1 or up for r, up in zip(self.rails, self.up[pod][leaf], strict=True))
            if self.hosts[pod][leaf] >= n and (n == 1 or joined):
                yield self._least(pod, leaf, n)

    def _pod_prices(self, n, sizes):
        for size in sizes:
            full, rest = divmod(n, size)
            for pod in range(self.m3):
                roomy = [leaf for leaf in range(self.m2) if self.hosts[pod][leaf] >= size]
                for chosen in subsets(roomy, full):
                    cost = sum(self._least(pod, leaf, size) for leaf in chosen)
                    if not rest:
                        if self._uplinks_fit(pod, chosen, size, 0):
                            yield cost
                        continue
                    for leaf in set(range(self.m2)) - set(chosen):
                        if self._with(pod, chosen, size, leaf, rest):
                            yield cost + self._least(pod, leaf, rest)

    def _with(self, pod, chosen, size, leaf, rest):
        """Whether these leaves and exactly this remainder leaf have the uplinks."""
        if self.hosts[pod][leaf] < rest:
            return False
        common = [set.intersection(*(self.up[pod][x][p] for x in chosen)) for p in self.planes]
        width, rest_width = divided_up(size, self.leaf_taper), divided_up(rest, self.leaf_taper)
        return any(
            all(len(self.up[pod][leaf][p] & set(choice[p])) >= rest_width for p in self.planes)
            for choice in product(*(subsets(up, width) for up in common))
        )

    def _tree_prices(self, leaves, rest, depths, size):
        width = divided_up(size, self.leaf_taper)
        choices = [list(subsets(range(self.l2 * self.cables), width)) for _ in self.planes]
        for depth in depths:
            alike, more = divmod(leaves, depth)
            spread = alike + (1 if more or rest else 0)
            if alike < 1 or spread < 2 or spread < self.wish.least_pods:
                continue
            for choice in product(*choices):
                uplinks = [set(c) for c in choice]
                yield from self._choice_prices(alike, depth, more, rest, uplinks, size)

    def _choice_prices(self, alike, depth, more, rest, uplinks, size):
        full = [self._full(pod, uplinks, size) for pod in range(self.m3)]
        roomy = [pod for pod in range(self.m3) if len(full[pod]) >= depth]
        for chosen in subsets(roomy, alike):
            if not self._spines_fit(chosen, None, uplinks, depth, 0, None):
                continue
            cost = sum(self._fullest(pod, full[pod], depth, size) for pod in chosen)
            if not more and not rest:
                yield cost
                continue
            for last in set(range(self.m3)) - set(chosen):
                yield from (
                    cost + extra
                    for extra in self._last_prices(
                        chosen, last, full[last], uplinks, depth, more, rest, size
                    )
                )

    def _fullest(self, pod, leaves, count, size):
        prices = [self._least(pod, leaf, size) for leaf in leaves]
        return min(map(sum, combinations(prices, count)))

    def _last_prices(self, chosen, last, full, uplinks, depth, more, rest, size):
        if not rest:
            if len(full) >= more and self._spines_fit(chosen, last, uplinks, depth, more, None):
                yield self._fullest(last, full, more, size)
            return
        width = divided_up(rest, self.leaf_taper)
        for leaf in range(self.m2):
            others = sorted(set(full) - {leaf})
            if self.hosts[last][leaf] < rest or len(others) < more:
                continue
            own = [uplinks[p] & self.up[last][leaf][p] for p in self.planes]
            if any(
                self._spines_fit(chosen, last, uplinks, depth, more, [set(x) for x in part])
                for part in product(*(subsets(up, width) for up in own))
            ):
                yield self._fullest(last, others, more, size) + self._least(last, leaf, rest)

    def prices(self, policy, n):
        """Costs of all legal placements, with the cheapest hosts of each set of leaves."""
        wish, pod, depths = self.wish, self.m1 * self.m2, range(self.m2, 0, -1)
        leaf_only, tree = wish.within is Within.LEAF, wish.within is None
        if policy == "simple":
            if n <= self.m1:
                yield from self._leaf_prices(n) if wish.spread == 1 else ()
            elif n <= pod:
                whole = -(-n // self.m1) * self.m1
                if wish.spread == 1 and not leaf_only:
                    yield from self._pod_prices(whole, [self.m1])
            elif tree:
                yield from self._tree_prices(-(-n // pod) * self.m2, 0, [self.m2], self.m1)
            return
        if wish.spread == 1:
            yield from self._leaf_prices(n)
            if not leaf_only:
                yield from self._pod_prices(n, range(min(n - 1, self.m1), 0, -1))
        if tree and policy == "lc":
            for size in range(1, min(n, self.m1) + 1):
                yield from self._tree_prices(n // size, n % size, depths, size)
        elif tree and policy == "laas":
            yield from self._tree_prices(-(-n // self.m1), 0, depths, self.m1)
        elif tree:
            yield from self._tree_prices(n // self.m1, n % self.m1, depths, self.m1)
