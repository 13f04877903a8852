# SPDX-License-Identifier: Apache-2.0

"""Which requests on domains fit, by trying every set of hosts; no masks and no policy code."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

import networkx as nx

from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from tests.unit.domain.policies.test_brute_force import Naive

Named = dict[str, list[int]]
"""Hosts of each domain of one kind."""

WHOLE, EACH, WITHIN, SPREAD, ALONE = "domains", "per_domain", "within", "spread", "exclusive"


def some_domains(fabric: Ledger, rng: Random) -> Named:
    """Domains of one kind: parts of leaves, leaves, groups of leaves, or any hosts at all."""
    topology = fabric.topology
    hosts = [host for host in range(topology.hosts) if host not in topology.absent_hosts]
    slots = topology.hosts_per_group
    kind = rng.choice(("part", "leaf", "leaves", "straddling", "any"))
    if kind == "any":
        size = rng.randint(2, 4)
        rng.shuffle(hosts)
    elif kind == "straddling":
        size = rng.randint(2, slots + 2)
    else:
        size = {"part": max(1, slots // 2), "leaf": slots, "leaves": 2 * slots}[kind]
        hosts.sort(key=topology.place_of)
    named = {f"d{i // size}": hosts[i : i + size] for i in range(0, len(hosts), size)}
    if rng.random() < 0.3:
        named.pop(rng.choice(sorted(named)))
    return named


def described(fabric: Ledger, kinds: dict[str, Named]) -> None:
    of: dict[int, list[tuple[str, str]]] = {}
    for kind, named in sorted(kinds.items()):
        for name, hosts in named.items():
            for host in hosts:
                of.setdefault(host, []).append((kind, name))
    fabric.describe_hosts({host: HostFeatures(domains=tuple(d)) for host, d in of.items()})


class Every:
    """Every set of free hosts that has a form, and whether a policy may place it."""

    def __init__(self, fabric: Ledger, named: Named) -> None:
        self.fabric = fabric
        self.named = named
        topology = fabric.topology
        owned = {h for a in fabric.allocations.values() for h in a.hosts(topology)}
        down = fabric.failed_hosts | fabric.drained_hosts | topology.absent_hosts
        self.owned = owned
        self.free = [h for h in range(topology.hosts) if h not in owned and h not in down]
        self.group = {host: topology.place_of(host)[0] for host in self.free}
        self.placed = cache(self._placed)

    def unused(self) -> Every:
        """The same without the domains in which somebody has a host."""
        used = {h for hosts in self.named.values() if self.owned.intersection(hosts) for h in hosts}
        other = Every(self.fabric, self.named)
        other.free = [host for host in self.free if host not in used]
        return other

    def inside(self, name: str) -> Every:
        """The same on the hosts of one domain."""
        other = Every(self.fabric, self.named)
        other.free = [host for host in self.free if host in self.named[name]]
        return other

    def _placed(self, policy: str, counts: tuple[tuple[int, int], ...], hosts: int) -> bool:
        """Whether ``hosts`` hosts fit where each leaf group has so many of the free ones."""
        left = self.fabric.copy()
        by_group = dict.fromkeys(self.group.values(), 0) | dict(counts)
        for host in self.free:
            if by_group[self.group[host]]:
                by_group[self.group[host]] -= 1
            else:
                left.fail_host(host)
        for host in self.group:
            if host not in self.free:
                left.fail_host(host)
        if policy == "baseline":
            return left.free_host_count >= hosts
        return bool(Naive(left).fits(policy, hosts))

    def _counts(self, hosts: Collection[int]) -> tuple[tuple[int, int], ...]:
        groups = [self.group[host] for host in hosts]
        return tuple(sorted((group, groups.count(group)) for group in set(groups)))

    def anywhere(self, policy: str, hosts: int) -> bool:
        return self.placed(policy, self._counts(self.free), hosts)

    def whole(self, policy: str, count: int, hosts: int | None) -> bool:
        whole = [named for named in self.named.values() if set(named) <= set(self.free)]
        unions = ([h for named in some for h in named] for some in combinations(whole, count))
        seen = {self._counts(union) for union in unions if hosts in (None, len(union))}
        return any(self.placed(policy, c, sum(n for _, n in c)) for c in seen)

    def each(self, policy: str, per_domain: int, hosts: int) -> bool:
        count, rest = divmod(hosts, per_domain)
        if rest:
            return False
        parts = [
            {self._counts(part) for part in combinations(set(named) & set(self.free), per_domain)}
            for named in self.named.values()
        ]
        seen = set()
        for some in combinations([part for part in parts if part], count):
            for chosen in product(*some):
                total: dict[int, int] = {}
                for group, number in (cell for cells in chosen for cell in cells):
                    total[group] = total.get(group, 0) + number
                seen.add(tuple(sorted(total.items())))
        return any(self.placed(policy, counts, hosts) for counts in seen)

    def within(self, policy: str, hosts: int) -> bool:
        return any(self.inside(name).anywhere(policy, hosts) for name in self.named)

    def spread(self, policy: str, least: int, hosts: int) -> bool:
        return any(
            self._reached(dict(counts)) >= least and self.placed(policy, counts, hosts)
            for counts in self._vectors(hosts)
        )

    def _vectors(self, hosts: int) -> Iterator[tuple[tuple[int, int], ...]]:
        """Numbers of hosts by leaf group, all alike but one, as every legal shape has them."""
        free = dict(self._counts(self.free))
        for numbers in product(*(range(n + 1) for n in free.values())):
            used = [number for number in numbers if number]
            if sum(numbers) == hosts and sum(n != max(used) for n in used) <= 1:
                yield tuple((g, n) for g, n in zip(free, numbers, strict=True) if n)

    def _reached(self, counts: dict[int, int]) -> int:
        """The most domains that so many hosts of each leaf group can lie in."""
        graph: Any = nx.DiGraph()
        graph.add_node("from")
        graph.add_node("to")
        for group, number in counts.items():
            graph.add_edge("from", ("group", group), capacity=number)
        for name, hosts in self.named.items():
            graph.add_edge(("domain", name), "to", capacity=1)
            for host in set(hosts) & set(self.free):
                graph.add_edge(("group", self.group[host]), ("domain", name), capacity=1)
        return int(nx.maximum_flow_value(graph, "from", "to"))
