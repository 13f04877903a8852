# SPDX-License-Identifier: Apache-2.0

"""Pairs of tenants whose moves may let a request fit, told from the numbers of free hosts alone.

Of n tenants there are n (n - 1) / 2 pairs, and most of them cannot help. Two moves one after the
other help in one of these ways:

* both tenants leave a pod, which has enough hosts then;
* one leaves the pod of the request, for the pod that the other one has left before;
* all hosts of enough leaf groups are free without the two, in pods where they make a shape.

Neither links nor the leaf groups of a pod on which its free hosts lie are looked at, so a pair may
be of no use; and now and then one that is left out would have helped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from laas_service.domain.allocation import Allocation
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Topology

Pair = tuple[Allocation, Allocation]


def helpful_pairs(fabric: LedgerView, tenants: Sequence[Allocation], hosts: int) -> list[Pair]:
    """The pairs of ``tenants`` that may help a request for so many hosts, the cheapest first.

    For policies that take full leaf groups in several pods (``TAKE_FULL_LEAVES``). The price of a
    pair is the number of hosts that the two leave.
    """
    search = _Pairs(fabric, tenants, hosts)
    search.in_one_pod()
    if hosts > fabric.topology.hosts_per_group:
        search.on_full_groups()
    prices = search.prices
    ordered = sorted(prices, key=lambda pair: (prices[pair], pair))
    return [(tenants[a], tenants[b]) for a, b in ordered]


class _Pairs:
    """Pairs as indices of ``tenants``, the lower one first."""

    def __init__(self, fabric: LedgerView, tenants: Sequence[Allocation], hosts: int) -> None:
        width, per_leaf = fabric.topology.groups_per_pod, fabric.topology.hosts_per_group
        self.prices: dict[tuple[int, int], int] = {}
        self._fabric = fabric
        self._hosts = hosts
        self._free = fabric.pod_free_hosts
        self._full = [bits[-1].bit_count() for bits in fabric.pod_groups_by_free]
        """By pod, the leaf groups all of whose hosts are free."""
        self._fullest = sorted(range(len(self._free)), key=lambda pod: -self._free[pod])
        self._counts: list[dict[int, int]] = []
        """Of each tenant, its hosts by leaf group."""
        self._in_pods: list[dict[int, int]] = []
        """Of each tenant, its hosts by pod."""
        self._leaves: list[dict[int, int]] = []
        """Of each tenant of more hosts than a leaf group has, its full leaf groups by pod."""
        self._of_pod: dict[int, list[int]] = {}
        """The tenants in each pod."""
        for number, tenant in enumerate(tenants):
            counts = {share.group: share.hosts.bit_count() for share in tenant.groups}
            pods, leaves = dict[int, int](), dict[int, int]()
            for group, count in counts.items():
                pod = group // width
                pods[pod] = pods.get(pod, 0) + count
                if count == per_leaf < tenant.size:
                    leaves[pod] = leaves.get(pod, 0) + 1
            self._counts.append(counts)
            self._in_pods.append(pods)
            self._leaves.append(leaves)
            for pod in pods:
                self._of_pod.setdefault(pod, []).append(number)

    def in_one_pod(self) -> None:
        """Pairs after which a pod has enough hosts, and both tenants may find hosts elsewhere."""
        for pod, members in self._of_pod.items():
            part = {number: self._in_pods[number][pod] for number in members}
            missing = self._hosts - self._free[pod]
            for a, b in combinations(members, 2):
                left = part[a] + part[b] - missing
                if left >= 0 and self._has_room(a, pod, left) and self._has_room(b, pod, left):
                    self._add(a, b, part[a] + part[b])
            for first in members:
                if part[first] >= missing:
                    self._follow(first, part[first], pod, part[first] - missing)

    def _add(self, a: int, b: int, price: int) -> None:
        pair = (a, b) if a < b else (b, a)
        if price < self.prices.get(pair, price + 1):
            self.prices[pair] = price

    def _has_room(self, number: int, pod: int, left: int) -> bool:
        """Whether a tenant may find hosts for those in a pod, of which ``left`` may stay there."""
        part = self._in_pods[number][pod]
        fullest = self._fullest
        elsewhere = self._free[fullest[fullest[0] == pod]] if len(fullest) > 1 else 0
        if part <= max(left, elsewhere):
            return True
        leaves = self._leaves[number].get(pod, 0)
        return 0 < leaves <= sum(self._full) - self._full[pod]

    def _follow(self, tenant: int, part: int, pod: int | None, left: int) -> None:
        """Add pairs with tenants of other pods whose places this one may have.

        ``part`` is the hosts that it leaves, of which ``left`` remain free. The others find hosts
        in their own pods or elsewhere.
        """
        for other, members in self._of_pod.items():
            if other == pod:
                continue
            missing = part - self._free[other]
            for number in members:
                theirs = self._in_pods[number][other]
                if (
                    number != tenant
                    and theirs >= missing
                    and (missing <= 0 or self._has_room(number, other, left))
                ):
                    self._add(tenant, number, part + theirs)

    def on_full_groups(self) -> None:
        """Pairs without whom pods have enough leaf groups all of whose hosts are free."""
        fabric, topology = self._fabric, self._fabric.topology
        per_leaf, width = topology.hosts_per_group, topology.groups_per_pod
        used = [per_leaf - mask.bit_count() for mask in fabric.free_hosts]
        gains = [
            [group for group, count in counts.items() if count == used[group]]
            for counts in self._counts
        ]
        together = dict[tuple[int, int], list[int]]()
        on_group = dict[int, list[int]]()
        for number, counts in enumerate(self._counts):
            for group, count in counts.items():
                if count < used[group]:
                    on_group.setdefault(group, []).append(number)
        for group, members in on_group.items():
            for a, b in combinations(members, 2):
                if self._counts[a][group] + self._counts[b][group] == used[group]:
                    together.setdefault((a, b), []).append(group)
        enough = _EnoughFullGroups(self._full, self._hosts, topology)
        alone = [enough([group // width for group in groups]) for groups in gains]
        gaining = [number for number, groups in enumerate(gains) if groups and not alone[number]]
        for a, b in {*combinations(gaining, 2), *together}:
            if not alone[a] and not alone[b]:
                groups = [*gains[a], *gains[b], *together.get((a, b), ())]
                if enough([group // width for group in groups]):
                    self._add(a, b, sum(used[group] for group in groups))
        for number, suffices in enumerate(alone):
            if suffices:
                self._follow(number, sum(used[group] for group in gains[number]), None, 0)


class _EnoughFullGroups:
    """Whether pods have enough leaf groups, all of whose hosts are free, for a shape.

    ``full`` says by pod how many there are.
    """

    def __init__(self, full: Sequence[int], hosts: int, topology: Topology) -> None:
        self._full, most = full, topology.groups_per_pod
        leaves = hosts // topology.hosts_per_group
        self._missing = leaves - sum(full)
        self._shapes = [(each, *divmod(leaves, each)) for each in range(1, min(leaves, most) + 1)]
        self._at_least = [sum(count >= groups for count in full) for groups in range(most + 1)]

    def __call__(self, more: Sequence[int]) -> bool:
        """``more``: the pods in which further groups become free, one entry for each."""
        if len(more) < self._missing:
            return False
        at_least, added = self._at_least.copy(), dict[int, int]()
        for pod in more:
            added[pod] = added.get(pod, 0) + 1
            at_least[self._full[pod] + added[pod]] += 1
        return any(
            at_least[each] >= pods and (not rest or at_least[rest] > pods)
            for each, pods, rest in self._shapes
        )
