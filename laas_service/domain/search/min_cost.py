# SPDX-License-Identifier: Apache-2.0

"""The preference for cheap hosts: the placement whose hosts cost least together.

LaaS (ANCS'16), section 5, proposes to order the search by cost and to try all divisors. This
preference goes through every biclique of leaves and of pods that may contain the answer, at
all levels and for all shapes that the policy allows. Links cost nothing. The free hosts of a
leaf are interchangeable, so the cheapest ones are taken. The rows of a biclique are
interchangeable, too, as any of them share at least its bits, so the cheapest rows are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf

from laas_service.domain.allocation import GroupShare, Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.host_costs import HostCosts
from laas_service.domain.search.pod_sets import pod_sets
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.preference import PodChoice, pods_with_room
from laas_service.domain.search.shapes import Placement
from laas_service.domain.topology import bits

WORK_FACTOR = 8
"""Budget of a search for the cheapest placement, as a multiple of an ordinary search's."""


class MinCost:
    """Takes the placement of least cost; among equals the first, which has the fewest levels.

    If the budget runs out, that is the cheapest placement found so far.
    """

    def __init__(self, fabric: LedgerView) -> None:
        self.costs = HostCosts(fabric)
        self._fabric = fabric
        self.least = inf
        """The cost of the cheapest placement found so far."""

    def choose(self, placements: Iterator[Placement]) -> Placement | None:
        cheapest = None
        for placement in placements:
            cost = sum(self.costs.of(g, hosts.bit_count()) for g, hosts, _ in placement.groups)
            if cost < self.least:
                self.least, cheapest = cost, placement
        return cheapest

    def leaf_groups(self, hosts: int) -> Iterator[int]:
        """Groups with room, the cheapest for ``hosts`` hosts first; of equals the fullest."""
        counts = enumerate(mask.bit_count() for mask in self._fabric.free_hosts)
        roomy = [(free, group) for group, free in counts if free >= hosts]
        by_cost = sorted((self.costs.of(group, hosts), free, group) for free, group in roomy)
        return (group for _, _, group in by_cost)

    def shares(self, groups: Iterable[int], hosts: int, uplinks: int) -> list[GroupShare]:
        cheapest = self.costs.cheapest
        return [GroupShare(group, cheapest(group, hosts), uplinks) for group in groups]

    def pods(self, hosts: int) -> Iterator[int]:
        """Pods with room, the lowest bound on the cost first, while it is below ``least``."""
        pods = pods_with_room(self._fabric, hosts)
        for bound, pod in sorted((self.costs.pod_bound(pod, hosts), pod) for pod in pods):
            if bound < self.least:
                yield pod

    def may_improve(self, shape: Shape, pod: int | None = None) -> bool:
        if pod is not None and self.costs.pod_bound(pod, shape.size) >= self.least:
            return False
        return self.costs.shape_bound(shape) < self.least

    def improving(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        return [shape for shape in shapes if self.may_improve(shape)]

    def ordered(self, groups: list[int], hosts: int) -> list[int]:
        return sorted(groups, key=lambda group: (self.costs.of(group, hosts), group))

    def pod_preference(self, view: PodView) -> MinCostPods:
        return MinCostPods(view, self)


class MinCostPods:
    """Takes the cheapest pods of each set, the cheapest remainder leaf and full leaves."""

    def __init__(self, view: PodView, preference: MinCost) -> None:
        self._view = view
        self._preference = preference
        self._costs = preference.costs
        self._leaf_costs: dict[int, tuple[list[int], dict[int, int]]] = {}
        self._remainder_leaves: dict[tuple[int, int, int], list[int]] = {}

    def pod_choices(self, shape: Shape) -> Iterator[PodChoice]:
        """Only choices that cost less than the cheapest placement so far."""
        view = self._view
        pods = view.pods_with(shape.leaves)
        if len(pods) < shape.pods or not self._preference.may_improve(shape):
            return
        remainder_pods: Sequence[int | None] = [None]
        if shape.remainder_leaves or shape.remainder_hosts:
            remainder_pods = self.remainder_pods(shape)
        for pod_set in pod_sets(view, pods, shape):
            by_cost = sorted(pod_set, key=lambda pod: (self._cost(pod, shape.leaves), pod))
            for remainder_pod in remainder_pods:
                if not view.budget.spend(len(view.columns)):
                    return
                full_pods = [pod for pod in by_cost if pod != remainder_pod][: shape.pods]
                if len(full_pods) < shape.pods:
                    continue
                cost = sum(self._cost(pod, shape.leaves) for pod in full_pods)
                if remainder_pod is not None:
                    cost += self._remainder_cost(remainder_pod, shape)
                if cost < self._preference.least:
                    yield full_pods, remainder_pod

    def remainder_pods(self, shape: Shape) -> list[int]:
        """The pods with enough fitting groups and enough free hosts in all."""
        view, hosts = self._view, shape.remainder_leaves * shape.hosts + shape.remainder_hosts
        free = view.fabric.pod_free_hosts
        return [pod for pod in view.pods_with(shape.remainder_leaves) if free[pod] >= hosts]

    def remainder_leaves(self, shape: Shape, pod: int) -> list[int]:
        """Ordered by the cost of the remainder leaf and of the full leaves beside it."""
        key = pod, shape.remainder_leaves, shape.remainder_hosts
        if key not in self._remainder_leaves:
            self._remainder_leaves[key] = sorted(
                self._view.remainder_leaves(shape, pod),
                key=lambda leaf: (self._cost_with_remainder(pod, shape, leaf), leaf),
            )
        return self._remainder_leaves[key]

    def full_leaves(self, pod: int, fitting: int, count: int) -> list[int]:
        first = pod * self._view.groups_per_pod
        groups = [first + local for local in bits(fitting)]
        return self._preference.ordered(groups, self._view.leaf_hosts)[:count]

    def _cost(self, pod: int, leaves: int, without: int | None = None) -> float:
        """The cost of the ``leaves`` cheapest fitting groups of a pod.

        ``without`` is a leaf group that is not among them. Infinite if there are too few.
        """
        if pod not in self._leaf_costs:
            first = pod * self._view.groups_per_pod
            by_cost = sorted(
                (self._costs.of(first + local, self._view.leaf_hosts), first + local)
                for local in bits(self._view.fitting[pod])
            )
            places = {group: place for place, (_, group) in enumerate(by_cost)}
            self._leaf_costs[pod] = [0, *accumulate(cost for cost, _ in by_cost)], places
        sums, places = self._leaf_costs[pod]
        place = len(sums) if without is None else places.get(without, len(sums))
        if place >= leaves:
            return sums[leaves] if leaves < len(sums) else inf
        return sums[leaves + 1] - sums[place + 1] + sums[place] if leaves + 1 < len(sums) else inf

    def _remainder_cost(self, pod: int, shape: Shape) -> float:
        """The least cost of the shape's remainder in a pod; links are not checked."""
        if not shape.remainder_hosts:
            return self._cost(pod, shape.remainder_leaves)
        leaves = self.remainder_leaves(shape, pod)
        return self._cost_with_remainder(pod, shape, leaves[0]) if leaves else inf

    def _cost_with_remainder(self, pod: int, shape: Shape, leaf: int) -> float:
        """The cost of a remainder leaf and of the cheapest full leaves beside it."""
        beside = self._cost(pod, shape.remainder_leaves, leaf)
        return self._costs.of(leaf, shape.remainder_hosts) + beside
