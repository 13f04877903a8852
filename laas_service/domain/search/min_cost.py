# SPDX-License-Identifier: Apache-2.0

"""The cheapest placement: all shapes a policy allows, at all levels, by what the hosts cost.

LaaS (ANCS'16) section 5 would order the search by cost and try all divisors; this
goes through every block of leaves and pods that could be the answer. Links cost
nothing. In a fixed set of leaves the cheapest free hosts are taken, as hosts of a leaf
are interchangeable; in a block (rows that share enough links) the cheapest rows, as
any of them share at least as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from heapq import merge
from itertools import accumulate, islice
from math import inf
from operator import and_

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Request, Shape
from laas_service.domain.constraints import Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import Wanted, blocks
from laas_service.domain.search.multi_pod import AcrossPods
from laas_service.domain.search.one_pod import Search
from laas_service.domain.search.shapes import Placement, pod_shapes
from laas_service.domain.topology import bits

PATIENCE = 8
"""How many times the work of an ordinary search it takes to look at everything."""


def search_for(
    fabric: LedgerView, policy: str, request: Request, work: int, variant: str = ""
) -> Search:
    """The search that a request asks for."""
    wish = request.constraints
    if wish is None or not wish.cheapest:
        return Search(fabric, policy, request, work, variant)
    return Cheapest(fabric, policy, request, work * PATIENCE, variant)


class Prices:
    """What free hosts cost, by leaf group."""

    def __init__(self, fabric: LedgerView) -> None:
        self._fabric = fabric
        self._slots: dict[int, list[tuple[int, int]]] = {}
        self._sums: dict[int, list[int]] = {}
        self._pods: dict[int, list[int]] = {}
        self._leaves: dict[int, list[int]] = {}

    def _by_cost(self, group: int) -> list[tuple[int, int]]:
        """(cost, slot) of a group's free hosts, the cheapest first."""
        if group not in self._slots:
            topology, features = self._fabric.topology, self._fabric.features
            found = []
            for slot in bits(self._fabric.free_hosts[group]):
                host = topology.host_at(group, slot)
                found.append((features.of(host).cost if host is not None else 0, slot))
            self._slots[group] = sorted(found)
            self._sums[group] = [0, *accumulate(cost for cost, _ in self._slots[group])]
        return self._slots[group]

    def of(self, group: int, hosts: int) -> int:
        """The least that so many free hosts of a group cost together."""
        if group not in self._sums:
            self._by_cost(group)
        return self._sums[group][hosts]

    def cheapest(self, group: int, hosts: int) -> int:
        """The mask of these hosts."""
        return sum(1 << slot for _, slot in self._by_cost(group)[:hosts])

    def at_least(self, pod: int, hosts: int) -> int:
        """A bound: what so many hosts of a pod cost on whatever leaves."""
        if pod not in self._pods:
            width = self._fabric.topology.groups_per_pod
            rows = (self._by_cost(group) for group in range(pod * width, (pod + 1) * width))
            self._pods[pod] = [0, *accumulate(cost for cost, _ in merge(*rows))]
        return self._pods[pod][hosts]

    def of_shape(self, shape: Shape) -> float:
        """A bound: what the leaves of a shape cost, wherever they are."""
        full = shape.pods * shape.leaves + shape.remainder_leaves
        rows = self._of_leaves(shape.hosts)
        rest = self._of_leaves(shape.remainder_hosts) if shape.remainder_hosts else [0, 0]
        return rows[full] + rest[1] if full < len(rows) and len(rest) > 1 else inf

    def _of_leaves(self, hosts: int) -> list[int]:
        """What the cheapest leaves cost together, by how many; so many hosts on each."""
        if hosts not in self._leaves:
            groups = range(self._fabric.topology.groups)
            rows = sorted(
                self._sums[group][hosts] for group in groups if len(self._by_cost(group)) >= hosts
            )
            self._leaves[hosts] = [0, *accumulate(rows)]
        return self._leaves[hosts]


class Cheapest(Search):
    """Notes what each step finds and answers None, so that a policy takes every step.

    ``answer`` gives the placement that costs least of all that are legal for the
    policy; among equals the first found, which has the fewest levels. If the budget
    runs out it is the cheapest found until then.
    """

    def __init__(
        self, fabric: LedgerView, policy: str, request: Request, work: int, variant: str = ""
    ) -> None:
        super().__init__(fabric, policy, request, work, variant)
        self.prices = Prices(fabric)
        self.least = inf
        self._best: Placement | None = None

    def note(self, placement: Placement) -> None:
        """Keep it if it is cheaper than all before, with the cheapest hosts of its leaves."""
        price = sum(self.prices.of(g, hosts.bit_count()) for g, hosts, _ in placement.groups)
        if price >= self.least:
            return
        shares = (
            GroupShare(g, self.prices.cheapest(g, hosts.bit_count()), uplinks)
            for g, hosts, uplinks in placement.groups
        )
        self.least, self._best = price, placement._replace(groups=tuple(shares))

    def answer(self, placement: Placement | None) -> Allocation | NoFit:
        return super().answer(placement or self._best)

    def in_one_group(self, hosts: int) -> Placement | None:
        if self.spread > 1:
            return None
        free = enumerate(self.fabric.free_hosts)
        roomy = [(mask.bit_count(), g) for g, mask in free if mask.bit_count() >= hosts]
        for _, _, group in sorted((self.prices.of(g, hosts), room, g) for room, g in roomy):
            uplinks = self._joining_uplinks(group) if hosts > 1 else 0
            if uplinks is not None:
                taken = self.prices.cheapest(group, hosts)
                share = GroupShare(group, taken, uplinks)
                self.note(Placement((share,), (), Shape(1, 1, hosts)))
                break
        return None

    def in_one_pod(self, hosts: int) -> Placement | None:
        if self.spread > 1 or self.within is Within.LEAF:
            return None
        shapes = pod_shapes(hosts, self.slots, self.groups, self.taper)
        by_bound = [(self.prices.at_least(p, hosts), p) for p in self._pods_with_room(hosts)]
        for bound, pod in sorted(by_bound):
            if bound < self.least:
                self._place_in_pod(pod, shapes)
        return None

    def _allowed(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """Without those that cannot be cheaper than what is known."""
        allowed = super()._allowed(shapes)
        return [shape for shape in allowed if self.prices.of_shape(shape) < self.least]

    def _two_level(self, pod: int, shape: Shape) -> Placement | None:
        """The cheapest leaves of each block, with each remainder leaf that goes with them."""
        uplinks, prices = self.fabric.free_uplinks, self.prices
        if max(prices.at_least(pod, shape.size), prices.of_shape(shape)) >= self.least:
            return None
        wide = self.wide(self.width(shape.hosts))
        rest_wide = self.wide(self.width(shape.remainder_hosts))
        groups = self.fabric.groups_with_room(pod, shape.hosts)
        rest: list[int] = []
        if shape.remainder_hosts:
            rest = self.fabric.groups_with_room(pod, shape.remainder_hosts)

        def met(common: int) -> bool:
            return wide(common) and (
                not rest or any(rest_wide(common & uplinks[group]) for group in rest)
            )

        needs = [(field, self.width(shape.hosts)) for field in self.planes]
        rows = [uplinks[group] for group in groups]
        for block, common in blocks(rows, Wanted(shape.leaves, needs, met), self.budget):
            full = sorted(
                (groups[row] for row in block), key=lambda g: (prices.of(g, shape.hosts), g)
            )
            if not rest:
                self.note(self._one_pod_placement(shape, full[: shape.leaves], common, None))
            for group in rest:
                others = [other for other in full if other != group][: shape.leaves]
                if len(others) == shape.leaves and rest_wide(common & uplinks[group]):
                    self.note(self._one_pod_placement(shape, others, common, group))
        return None

    def _seen_across(self, uplinks: int, hosts: int) -> AcrossPods:
        return _CheapAcross(self, uplinks, hosts)


class _CheapAcross(AcrossPods):
    """Notes the cheapest placement of each shape over several pods."""

    def __init__(self, search: Cheapest, uplinks: int, hosts: int) -> None:
        super().__init__(search.fabric, uplinks, search.budget, hosts, search.sharing)
        self._search = search
        self._prices = search.prices
        self._known: dict[int, tuple[list[int], dict[int, int]]] = {}
        self._ordered: dict[tuple[int, int, int], list[int]] = {}

    def place(self, shape: Shape) -> Placement | None:
        rows = [pod for pod in self.order if self.counts[pod] >= shape.leaves]
        if len(rows) < shape.pods or self._prices.of_shape(shape) >= self._search.least:
            return None
        for pods in self._pod_sets(rows, shape):
            cheap = sorted(pods, key=lambda pod: (self._price(pod, shape.leaves), pod))
            for rest in self._rests(shape):
                if not self.budget.spend(len(self.columns)):
                    return None
                full = [pod for pod in cheap if pod != rest][: shape.pods]
                price = sum(self._price(pod, shape.leaves) for pod in full)
                if rest is not None:
                    price += self._rest_price(rest, shape)
                if len(full) < shape.pods or price >= self._search.least:
                    continue
                common = [
                    reduce(and_, masks) for masks in zip(*map(self.spines, full), strict=True)
                ]
                if placement := self._with_remainder(shape, full, common, rest):
                    self._search.note(placement)
        return None

    def _rests(self, shape: Shape) -> Sequence[int | None]:
        """Pods that may be the remainder pod, None where the shape has none."""
        hosts = shape.remainder_leaves * shape.hosts + shape.remainder_hosts
        if not hosts:
            return [None]
        return [
            pod
            for pod in self.order
            if self.counts[pod] >= shape.remainder_leaves
            and self.fabric.pod_free_hosts[pod] >= hosts
        ]

    def place_in_two(self, shape: Shape) -> Placement | None:
        for rest in self._rests(shape):
            for pod in self.order:
                if rest is None or pod == rest or self.counts[pod] < shape.leaves:
                    continue
                if not self.budget.spend(2 * len(self.columns)):
                    return None
                below, own = self.spines(rest), self.spines(pod)
                common = [mask & other for mask, other in zip(below, own, strict=True)]
                if placement := self._with_leaf(shape, [pod], common, below, rest):
                    self._search.note(placement)
        return None

    def _by_price(self, groups: Iterable[int]) -> list[int]:
        return sorted(groups, key=lambda group: (self._prices.of(group, self.hosts), group))

    def _price(self, pod: int, leaves: int, without: int | None = None) -> float:
        """What the pod's cheapest full leaves cost, one of them left out."""
        if pod not in self._known:
            first = pod * self.groups
            rows = sorted(
                (self._prices.of(first + local, self.hosts), first + local)
                for local in bits(self.whole[pod])
            )
            places = {group: place for place, (_, group) in enumerate(rows)}
            self._known[pod] = [0, *accumulate(price for price, _ in rows)], places
        sums, places = self._known[pod]
        place = len(sums) if without is None else places.get(without, len(sums))
        if place >= leaves:
            return sums[leaves] if leaves < len(sums) else inf
        return sums[leaves + 1] - sums[place + 1] + sums[place] if leaves + 1 < len(sums) else inf

    def _rest_price(self, pod: int, shape: Shape) -> float:
        """What the remainder costs there, if links allow its cheapest leaves."""
        if not shape.remainder_hosts:
            return self._price(pod, shape.remainder_leaves)
        leaf = next(iter(self._remainder_leaves(shape, pod)), None)
        if leaf is None:
            return inf
        return self._prices.of(leaf, shape.remainder_hosts) + self._price(
            pod, shape.remainder_leaves, leaf
        )

    def _remainder_leaves(self, shape: Shape, pod: int) -> list[int]:
        """The same leaves, the cheapest first, with the full leaves beside it."""
        key = pod, shape.remainder_leaves, shape.remainder_hosts
        if key not in self._ordered:
            self._ordered[key] = sorted(
                super()._remainder_leaves(shape, pod),
                key=lambda leaf: (
                    self._prices.of(leaf, shape.remainder_hosts)
                    + self._price(pod, shape.remainder_leaves, leaf),
                    leaf,
                ),
            )
        return self._ordered[key]

    def _full_shares(self, whole: int, pod: int, count: int, uplinks: int) -> list[GroupShare]:
        """The cheapest whole groups of a pod."""
        groups = self._by_price(pod * self.groups + local for local in bits(whole))
        return [
            GroupShare(group, self._prices.cheapest(group, self.hosts), uplinks)
            for group in islice(groups, count)
        ]
