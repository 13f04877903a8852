# SPDX-License-Identifier: Apache-2.0

"""Every legal placement on a small tree, by trying all numbers of hosts on all leaves.

Written from the conditions of the papers (Jigsaw, section 3.2 and section 4; LaaS, Theorem 2
and section 3) with sets of numbers and ``itertools``; shares no code with the planner. Hosts
of a leaf are interchangeable, so a placement is a number of hosts for each leaf, with uplinks
and spine uplinks. A leaf is ``(pod, leaf)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import Topology, bits

Leaf = tuple[int, int]
Counts = dict[Leaf, int]
Spines = dict[tuple[int, int, int], set[int]]


def divided_up(amount: int, taper: int) -> int:
    return math.ceil(amount / taper)


def subsets(items, size):
    return itertools.combinations(sorted(items), size)


@dataclass
class Free:
    """What is free: hosts of a leaf by number, links of a leaf by plane, of an L2 by plane."""

    hosts: dict[Leaf, int]
    up: dict[Leaf, list[set[int]]]
    spines: dict[tuple[int, int, int], set[int]]
    """By (pod, plane, l2)."""

    def without(self, counts: Counts, links: Links | None) -> Free:
        hosts = {leaf: count - counts.get(leaf, 0) for leaf, count in self.hosts.items()}
        if links is None:
            return Free(hosts, self.up, self.spines)
        up = {
            leaf: [free - taken for free, taken in zip(planes, links.up[leaf], strict=True)]
            if leaf in links.up
            else planes
            for leaf, planes in self.up.items()
        }
        spines = {at: free - links.spines.get(at, set()) for at, free in self.spines.items()}
        return Free(hosts, up, spines)

    def plus(self, counts: Counts, links: Links) -> Free:
        hosts = {leaf: count + counts.get(leaf, 0) for leaf, count in self.hosts.items()}
        up = {
            leaf: [free | own for free, own in zip(planes, links.up[leaf], strict=True)]
            if leaf in links.up
            else planes
            for leaf, planes in self.up.items()
        }
        spines = {at: free | links.spines.get(at, set()) for at, free in self.spines.items()}
        return Free(hosts, up, spines)


@dataclass
class Links:
    """The links of a placement, as in ``Free``."""

    up: dict[Leaf, list[set[int]]]
    spines: dict[tuple[int, int, int], set[int]]


class Naive:
    """The conditions of one topology."""

    def __init__(self, topology: Topology) -> None:
        tree = topology.tree
        self.topology = topology
        self.m1, self.m2, self.m3 = topology.hosts_per_group, topology.groups_per_pod, topology.pods
        self.leaf_taper = math.ceil(tree.m[0] / tree.w[1])
        self.spine_taper = math.ceil(tree.m[1] * tree.cables[0] / tree.w[2]) if tree.w[2] else 1
        self.planes = range(max(topology.plane_of_rail) + 1)
        self.rails = [topology.plane_of_rail.count(plane) for plane in self.planes]
        self.l2, self.cables = tree.w[1] // tree.cables[0], tree.cables[0]
        self.leaves = list(itertools.product(range(self.m3), range(self.m2)))

    def free(self, fabric: Ledger) -> Free:
        tree = self.topology.tree
        spines = fabric.free_spines
        return Free(
            {leaf: fabric.free_hosts[n].bit_count() for n, leaf in enumerate(self.leaves)},
            {
                leaf: [
                    set(bits(fabric.free_uplinks[n] >> plane * tree.w[1] & (1 << tree.w[1]) - 1))
                    for plane in self.planes
                ]
                for n, leaf in enumerate(self.leaves)
            },
            {
                (pod, plane, i): set(bits(spines[(pod * len(self.planes) + plane) * self.l2 + i]))
                for pod in range(self.m3)
                for plane in self.planes
                for i in range(self.l2)
            },
        )

    def held(self, allocation: Allocation) -> tuple[Counts, Links]:
        width = self.topology.tree.w[1]
        counts, up, spines = {}, {}, {}
        for group, hosts, uplinks in allocation.groups:
            leaf = self.leaves[group]
            counts[leaf] = hosts.bit_count()
            up[leaf] = [
                set(bits(uplinks >> plane * width & (1 << width) - 1)) for plane in self.planes
            ]
        for pod, column, uplinks in allocation.columns:
            plane, i = divmod(column, self.l2)
            spines[pod, plane, i] = set(bits(uplinks))
        return counts, Links(up, spines)

    # -- hosts ----------------------------------------------------------------

    def counts(self, policy: str, n: int, least: Counts, most: Counts) -> Iterator[Counts]:
        """The numbers of hosts on leaves that a policy allows for ``n``, within bounds."""
        sizes = {n}
        if policy in ("laas", "simple"):
            sizes.add(-(-n // self.m1) * self.m1)
        if policy == "simple":
            sizes.add(-(-n // (self.m1 * self.m2)) * self.m1 * self.m2)
        for size in sorted(sizes):
            for full in range(1, self.m1 + 1):
                for counts in self._vectors(size, full, least, most):
                    if self._allowed(policy, n, counts):
                        yield counts

    def _vectors(self, size: int, full: int, least: Counts, most: Counts) -> Iterator[Counts]:
        """At most one leaf with fewer than ``full`` hosts, all others with none or so many."""
        leaves, rest = divmod(size, full)
        roomy = [leaf for leaf in self.leaves if most[leaf] >= full >= least.get(leaf, 0)]
        must = {leaf for leaf, count in least.items() if count}
        for chosen in subsets(roomy, leaves):
            left = must - set(chosen)
            if not rest:
                if not left:
                    yield dict.fromkeys(chosen, full)
                continue
            for leaf in left or set(self.leaves) - set(chosen):
                fits = most[leaf] >= rest >= least.get(leaf, 0)
                if leaves and left <= {leaf} and fits:
                    yield {**dict.fromkeys(chosen, full), leaf: rest}

    def _allowed(self, policy: str, n: int, counts: Counts) -> bool:
        size, full = sum(counts.values()), max(counts.values())
        pods: dict[int, list[int]] = {}
        for (pod, _), count in counts.items():
            pods.setdefault(pod, []).append(count)
        if policy == "simple":
            if n <= self.m1:
                return len(counts) == 1 and size == n
            if set(counts.values()) != {self.m1}:
                return False
            if n <= self.m1 * self.m2:
                return len(pods) == 1 and size == -(-n // self.m1) * self.m1
            whole = self.m1 * self.m2
            return size == -(-n // whole) * whole and all(len(p) == self.m2 for p in pods.values())
        if len(pods) == 1:
            return size == n
        if policy == "laas" and set(counts.values()) != {self.m1}:
            return False
        if policy == "laas" and size != -(-n // self.m1) * self.m1:
            return False
        if policy != "laas" and size != n:
            return False
        if policy == "jigsaw" and full != self.m1:
            return False
        sums = sorted(sum(p) for p in pods.values())
        if any(total != sums[-1] for total in sums[1:]):
            return False
        if any(count < full for count in counts.values()):
            smallest = min(pods.values(), key=sum)
            return sums[0] < sums[-1] and min(smallest) < full
        return True

    # -- links ----------------------------------------------------------------

    def links(self, free: Free, counts: Counts) -> Iterator[Links]:
        """Every set of free links that the conditions allow for these hosts."""
        full = max(counts.values())
        small = [leaf for leaf in counts if counts[leaf] < full]
        whole = [leaf for leaf in counts if counts[leaf] == full]
        if len(counts) == 1:
            width = [int(full > 1 and rails > 1) for rails in self.rails]
        else:
            width = [divided_up(full, self.leaf_taper)] * len(self.planes)
        rest = divided_up(counts[small[0]], self.leaf_taper) if small else 0
        common = [set.intersection(*(free.up[leaf][p] for leaf in whole)) for p in self.planes]
        for choice in itertools.product(*(subsets(common[p], width[p]) for p in self.planes)):
            parts: Iterable[tuple[tuple[int, ...], ...]] = [()]
            if small:
                own = [set(choice[p]) & free.up[small[0]][p] for p in self.planes]
                parts = itertools.product(*(subsets(up, rest) for up in own))
            for part in parts:
                up = {leaf: [set(c) for c in choice] for leaf in whole}
                if small:
                    up[small[0]] = [set(c) for c in part]
                for spines in self._spines(free, counts, up):
                    yield Links(up, spines)

    def _spines(
        self, free: Free, counts: Counts, up: dict[Leaf, list[set[int]]]
    ) -> Iterator[Spines]:
        pods = sorted({pod for pod, _ in counts})
        if len(pods) == 1:
            yield {}
            return
        sizes = {p: sum(c for leaf, c in counts.items() if leaf[0] == p) for p in pods}
        largest = max(sizes.values())
        alike = [pod for pod in pods if sizes[pod] == largest]
        last = [pod for pod in pods if sizes[pod] < largest]
        per_l2 = []
        for p, i in itertools.product(self.planes, range(self.l2)):
            bundle = set(range(i * self.cables, (i + 1) * self.cables))
            flows = {
                pod: sum(len(bundle & up[leaf][p]) for leaf in up if leaf[0] == pod) * self.rails[p]
                for pod in pods
            }
            need = divided_up(flows[alike[0]], self.spine_taper)
            common = set.intersection(*(free.spines[pod, p, i] for pod in alike))
            options = []
            for chosen in subsets(common, need):
                if not last:
                    options.append({(pod, p, i): set(chosen) for pod in alike})
                    continue
                below = divided_up(flows[last[0]], self.spine_taper)
                for some in subsets(set(chosen) & free.spines[last[0], p, i], below):
                    option = {(pod, p, i): set(chosen) for pod in alike}
                    options.append({**option, (last[0], p, i): set(some)})
            per_l2.append(options)
        for combination in itertools.product(*per_l2):
            yield {at: spines for option in combination for at, spines in option.items()}

    def fits(self, policy: str, n: int, free: Free) -> bool:
        return any(
            next(self.links(free, counts), None) is not None
            for counts in self.counts(policy, n, {}, free.hosts)
        )
