# SPDX-License-Identifier: Apache-2.0

"""Judge of clusters on routed hosts: the snapshot's tables, walked, and flows by networkx.

Nothing here uses the ledger, the search or the routes of ``domain.sharing``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import networkx as nx
import numpy as np

from laas_service.domain.routing.tenant_tables import tenant_tables
from laas_service.domain.topology import LeafLink


class Judge:
    """Pairs of hosts by directed link, from the tables by index."""

    def __init__(self, topology, allocation, failed=()):
        self.topology, self.hosts = topology, allocation.hosts(topology)
        tables = tenant_tables(topology, allocation, failed)
        self._loads = {}
        self.pairs = defaultdict(set)
        """(switch, entry) -> (source, destination) of all packets that leave there."""
        for source in self.hosts:
            for target in self.hosts:
                if source != target:
                    self.pairs["from", source].add((source, target))
                    for step in walked(topology, tables, source, target):
                        self.pairs[step].add((source, target))

    def loads(self, counts):
        """Directed link -> the maximum flow of a cluster with ``counts[host]`` units."""
        key = frozenset((host, units) for host, units in counts.items() if units)
        if key not in self._loads:
            flows = ((link, maximum_flow(counts, pairs)) for link, pairs in self.pairs.items())
            self._loads[key] = {link: flow for link, flow in flows if flow}
        return self._loads[key]

    def over(self, links):
        """The pairs whose route crosses one of the links between switches."""
        names = set()
        for link in links:
            p, lower, up = link
            leaf = isinstance(link, LeafLink)
            cables = self.topology.tree.cables[0 if leaf else 1]
            down = f"down:{lower if leaf else p}" + (f"/{up % cables}" if cables > 1 else "")
            upper = f"l2:{p}:{up // cables}" if leaf else f"spine:{lower}:{up // cables}"
            names |= {(f"{'leaf' if leaf else 'l2'}:{p}:{lower}", f"up:{up}"), (upper, down)}
        return {pair for name in names | {("lost", "")} for pair in self.pairs[name]}

    def promised(self, clusters):
        """Directed link -> bandwidth that the (counts, bandwidth) clusters can put there."""
        total: defaultdict[str, Fraction] = defaultdict(Fraction)
        for counts, bandwidth in clusters:
            for link, load in self.loads(counts).items():
                total[link] += load * Fraction(bandwidth)
        return total

    def footprint(self, counts):
        """Units on the smaller side of each host, leaf and pod, added up."""
        m1, m2, _ = self.topology.tree.m
        total = 0
        for width in (1, m1, m1 * m2):
            below: defaultdict[int, int] = defaultdict(int)
            for host, units in counts.items():
                below[host // width] += units
            total += sum(min(n, sum(counts.values()) - n) for n in below.values())
        return total


def walked(topology, tables, source, target) -> Iterator[tuple[str, str]]:
    """(switch, entry) of every hop of a packet; ("lost", "") where there is no entry."""
    tree = topology.tree
    pod, leaf, _ = topology.ports_of(source)[0]
    at = f"leaf:{pod}:{leaf}"
    for _ in range(9):
        entry = tables.get(at, {}).get(str(target))
        if entry is None:
            yield "lost", ""
            return
        yield (at, "host " + str(target)) if entry == "host" else (at, entry)
        if entry == "host":
            return
        kind, first, second = at.split(":")
        action, number = entry.split(":")
        number = number.split("/")[0]
        if action == "up":
            above = int(number) // tree.cables[0 if kind == "leaf" else 1]
            at = f"l2:{first}:{above}" if kind == "leaf" else f"spine:{second}:{above}"
        elif kind == "l2":
            at = f"leaf:{first}:{number}"
        else:
            at = f"l2:{number}:{first}"
    raise AssertionError(f"a packet from {source} to {target} goes round")


def maximum_flow(counts, pairs) -> int:
    """Senders to receivers over the pairs, each with its units."""
    graph: nx.DiGraph[object] = nx.DiGraph()
    for a, b in pairs:
        if counts.get(a) and counts.get(b):
            graph.add_edge("all", ("sends", a), capacity=counts[a])
            graph.add_edge(("sends", a), ("receives", b))
            graph.add_edge(("receives", b), "every", capacity=counts[b])
    return int(nx.maximum_flow_value(graph, "all", "every")) if graph else 0


def worst_traffic(demands, pairs):
    """By draw: the most traffic of the pairs if each host sends and receives up to its demand.

    ``demands[host]`` has one amount for each draw. It is the least cut: for the best set of
    senders, the demands of the others and of all that the set sends to.
    """
    receivers: defaultdict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        if a in demands and b in demands:
            receivers[a].add(b)
    groups: defaultdict[frozenset[int], Any] = defaultdict(float)
    for a, targets in receivers.items():
        groups[frozenset(targets)] += demands[a]
    cuts = []
    for inside in product((False, True), repeat=len(groups)):
        reached = {b for targets, kept in zip(groups, inside, strict=True) if kept for b in targets}
        others = (d for d, kept in zip(groups.values(), inside, strict=True) if not kept)
        cuts.append(sum(others) + sum(demands[b] for b in reached))
    return np.min(cuts, axis=0)
