# SPDX-License-Identifier: Apache-2.0

"""The costs of free hosts, and bounds on the cost of a placement."""

from heapq import merge
from itertools import accumulate
from math import inf

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import bits


class HostCosts:
    """What the free hosts of a fabric cost, by leaf group, pod and shape."""

    def __init__(self, fabric: LedgerView) -> None:
        self._fabric = fabric
        self._by_cost: dict[int, list[tuple[int, int]]] = {}
        self._group_sums: dict[int, list[int]] = {}
        self._pod_sums: dict[int, list[int]] = {}
        self._leaf_sums: dict[int, list[int]] = {}

    def of(self, group: int, hosts: int) -> int:
        """The cost of the ``hosts`` cheapest free hosts of a group, which has as many."""
        if group not in self._group_sums:
            self._hosts_by_cost(group)
        return self._group_sums[group][hosts]

    def cheapest(self, group: int, hosts: int) -> int:
        """The mask of the ``hosts`` cheapest free hosts of a group."""
        return sum(1 << position for _, position in self._hosts_by_cost(group)[:hosts])

    def pod_bound(self, pod: int, hosts: int) -> int:
        """The cost of the ``hosts`` cheapest free hosts of a pod, on any of its leaves."""
        if pod not in self._pod_sums:
            width = self._fabric.topology.groups_per_pod
            groups = range(pod * width, (pod + 1) * width)
            by_cost = merge(*(self._hosts_by_cost(group) for group in groups))
            self._pod_sums[pod] = [0, *accumulate(cost for cost, _ in by_cost)]
        return self._pod_sums[pod][hosts]

    def shape_bound(self, shape: Shape) -> float:
        """The cost of the cheapest leaves of a shape, in any pods; infinite if there are none."""
        leaves = shape.pods * shape.leaves + shape.remainder_leaves
        full = self._cheapest_leaves(shape.hosts)
        rest = self._cheapest_leaves(shape.remainder_hosts) if shape.remainder_hosts else [0, 0]
        return full[leaves] + rest[1] if leaves < len(full) and len(rest) > 1 else inf

    def _hosts_by_cost(self, group: int) -> list[tuple[int, int]]:
        """(cost, position) of the free hosts of a group, the cheapest first."""
        if group not in self._by_cost:
            topology, features = self._fabric.topology, self._fabric.features
            by_cost = []
            for position in bits(self._fabric.free_hosts[group]):
                host = topology.host_at(group, position)
                by_cost.append((features.of(host).cost if host is not None else 0, position))
            self._by_cost[group] = sorted(by_cost)
            self._group_sums[group] = [0, *accumulate(cost for cost, _ in self._by_cost[group])]
        return self._by_cost[group]

    def _cheapest_leaves(self, hosts: int) -> list[int]:
        """At index n, the cost of the n cheapest leaves with ``hosts`` hosts on each."""
        if hosts not in self._leaf_sums:
            groups = range(self._fabric.topology.groups)
            costs = sorted(
                self._group_sums[group][hosts]
                for group in groups
                if len(self._hosts_by_cost(group)) >= hosts
            )
            self._leaf_sums[hosts] = [0, *accumulate(costs)]
        return self._leaf_sums[hosts]
