# SPDX-License-Identifier: Apache-2.0

"""The hosts of a fabric imported again: who stays keeps number, slots and the order of rails."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from laas_service.domain.inventory import Endpoint
from laas_service.domain.reimport.layout import Layout, Row, places
from laas_service.domain.topology import Port, Topology, Xgft

Place = tuple[int, int]
"""(pod, leaf)."""


@dataclass(frozen=True)
class Slotted:
    """The new hosts by their new numbers. On one rail a number is a place, so it is known when
    the tree is. ``ghosts`` are ports of hosts that are gone and whose number nobody took.
    """

    after: Layout
    rails: int
    at: Mapping[int, tuple[Port, ...]]
    rail_of: Mapping[int, tuple[int, ...]]
    number: Mapping[int, int]
    ghosts: Mapping[int, tuple[Port, ...]]
    m1: int

    @property
    def ports(self) -> tuple[tuple[Port, ...], ...]:
        if self.rails == 1:
            return ()
        found = {**{self.number[h]: ports for h, ports in self.at.items()}, **self.ghosts}
        return tuple(found[number] for number in range(len(found)))

    def absent(self, tree: Xgft) -> frozenset[int]:
        if self.rails > 1:
            return frozenset(self.ghosts)
        present = {self._slot(tree, port) for (port,) in self.at.values()}
        return frozenset(range(tree.m[0] * tree.leaves)) - present

    def _slot(self, tree: Xgft, port: Port) -> int:
        return tree.leaf_id(port.pod, port.leaf) * tree.m[0] + port.k

    def _number(self, topology: Topology, host: int) -> int:
        if self.rails > 1:
            return self.number[host]
        return self._slot(topology.tree, self.at[host][0])

    def names(self, topology: Topology) -> tuple[str, ...]:
        names = [""] * topology.hosts
        for host in self.at:
            names[self._number(topology, host)] = self.after.inventory.host_names[host]
        return tuple(names)

    def endpoints(self, topology: Topology) -> tuple[Endpoint, ...]:
        return tuple(self._endpoint(topology, one) for one in self.after.inventory.endpoints)

    def _endpoint(self, topology: Topology, one: Endpoint) -> Endpoint:
        if one.host is None:
            return one
        number = self._number(topology, one.host)
        return replace(one, host=number, rail=self.rail_of[one.host][one.rail])


def slotted(before: Layout, after: Layout, leaves: Sequence[Row]) -> Slotted:
    """The hosts of ``after`` on ``leaves``, which are in the old order."""
    place = places(leaves)
    stays = {new: old for old, new in matched_hosts(before, after).items()}
    leaves_of, rail_of = {}, {}
    orders = dict(_rail_orders(before.topology))
    for host, endpoints in after.host_endpoints.items():
        found = tuple(place[endpoint.at.guid] for endpoint in endpoints)
        order = orders.get(frozenset(found), found)
        leaves_of[host], rail_of[host] = order, tuple(order.index(leaf) for leaf in found)
    at = _ports(before.topology, leaves_of, stays)
    number, ghosts = _numbers(before.topology, at, stays)
    m1 = max(port.k + 1 for ports in (*at.values(), *ghosts.values()) for port in ports)
    m1 = max(m1, before.topology.tree.m[0])
    return Slotted(after, after.topology.rails, at, rail_of, number, ghosts, m1)


def matched_hosts(before: Layout, after: Layout) -> dict[int, int]:
    """Old number -> new number of the hosts that stay: by name, else by an adapter's GUID."""
    named = after.inventory.host_numbers
    found = {
        host: named[before.inventory.host_names[host]]
        for host in before.hosts()
        if before.inventory.host_names[host] in named
    }
    taken = set(found.values())
    renamed = {
        endpoint.guid: host
        for host, endpoints in after.host_endpoints.items()
        if host not in taken
        for endpoint in endpoints
    }
    for host in before.hosts():
        if host not in found:
            guids = (endpoint.guid for endpoint in before.host_endpoints.get(host, ()))
            new = next((renamed[guid] for guid in guids if guid in renamed), None)
            if new is not None and new not in taken:
                found[host] = new
                taken.add(new)
    return found


def _rail_orders(topology: Topology) -> Iterator[tuple[frozenset[Place], tuple[Place, ...]]]:
    for group in range(topology.groups):
        leaves = topology.leaves_of_group(group)
        order = tuple((leaf // topology.tree.m[1], leaf % topology.tree.m[1]) for leaf in leaves)
        yield frozenset(order), order


def _ports(
    old: Topology, leaves_of: Mapping[int, tuple[Place, ...]], stays: Mapping[int, int]
) -> dict[int, tuple[Port, ...]]:
    """The old slot on a leaf for who was there, the lowest that is free for others."""
    kept: dict[tuple[int, Place], int] = {}
    taken: dict[Place, set[int]] = defaultdict(set)
    for host, order in leaves_of.items():
        slots = {(p.pod, p.leaf): p.k for p in old.ports_of(stays[host])} if host in stays else {}
        for leaf in order:
            if leaf in slots:
                kept[host, leaf] = slots[leaf]
                taken[leaf].add(slots[leaf])
    found = {}
    for host, order in leaves_of.items():
        ports = []
        for leaf in order:
            k = kept.get((host, leaf))
            if k is None:
                k = next(k for k in itertools.count() if k not in taken[leaf])
                taken[leaf].add(k)
            ports.append(Port(*leaf, k))
        found[host] = tuple(ports)
    return found


def _numbers(
    old: Topology, at: Mapping[int, tuple[Port, ...]], stays: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, tuple[Port, ...]]]:
    """Numbers where hosts have several ports, and the ports of the ghosts.

    Who is new takes numbers that are free. A number that stays free keeps its ports, as
    an absent host, unless a group of leaves was taken apart; then later ones move up.
    """
    if old.rails == 1:
        return {}, {}
    number = dict(stays)
    free = (n for n in itertools.count() if n not in stays.values())
    for host in at:
        if host not in number:
            number[host] = next(free)
    used = {port for ports in at.values() for port in ports}
    groups = {frozenset((p.pod, p.leaf) for p in ports) for ports in at.values()}
    leaves = frozenset().union(*groups)
    ghosts = {}
    for gone in sorted(set(range(max(number.values()) + 1)) - set(number.values())):
        ports = old.host_ports[gone] if gone < len(old.host_ports) else ()
        group = frozenset((p.pod, p.leaf) for p in ports)
        fits = group in groups or not group & leaves
        if ports and fits and not used.intersection(ports):
            ghosts[gone] = ports
            used.update(ports)
            groups.add(group)
            leaves |= group
    order = sorted([*number.values(), *ghosts])
    dense = {n: i for i, n in enumerate(order)}
    return (
        {host: dense[n] for host, n in number.items()},
        {dense[n]: ports for n, ports in ghosts.items()},
    )
