# SPDX-License-Identifier: Apache-2.0

"""Hosts of a re-import: a remaining host keeps its number, its positions and its order of rails."""

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
class PlacedHosts:
    """The hosts of ``after`` in their places. Hosts are keyed by their number in ``after``.

    On one rail the final number of a host is computed from its place and the sizes of the tree.
    """

    after: Layout
    rails: int

    at: Mapping[int, tuple[Port, ...]]
    """The ports of each host, in the order of rails."""

    rail_of: Mapping[int, tuple[int, ...]]
    """The rail here of each rail of a host in ``after``."""

    number: Mapping[int, int]
    """The final number of each host; empty on one rail."""

    vacant: Mapping[int, tuple[Port, ...]]
    """By final number, the ports of hosts that are gone and whose number no host took."""

    m1: int
    """Positions of hosts on a leaf."""

    @property
    def ports(self) -> tuple[tuple[Port, ...], ...]:
        """The ports of each host by final number; () on one rail."""
        if self.rails == 1:
            return ()
        by_number = {**{self.number[h]: ports for h, ports in self.at.items()}, **self.vacant}
        return tuple(by_number[number] for number in range(len(by_number)))

    def absent(self, tree: Xgft) -> frozenset[int]:
        """The final numbers of absent hosts."""
        if self.rails > 1:
            return frozenset(self.vacant)
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
        return tuple(self._endpoint(topology, e) for e in self.after.inventory.endpoints)

    def _endpoint(self, topology: Topology, endpoint: Endpoint) -> Endpoint:
        if endpoint.host is None:
            return endpoint
        number = self._number(topology, endpoint.host)
        return replace(endpoint, host=number, rail=self.rail_of[endpoint.host][endpoint.rail])


def placed_hosts(before: Layout, after: Layout, leaves: Sequence[Row]) -> PlacedHosts:
    """The hosts of ``after`` on ``leaves``, which are in the places of ``before``."""
    place = places(leaves)
    old_number = {new: old for old, new in matched_hosts(before, after).items()}
    leaves_of, rail_of = {}, {}
    orders = dict(_rail_orders(before.topology))
    for host, endpoints in after.host_endpoints.items():
        on = tuple(place[endpoint.at.guid] for endpoint in endpoints)
        order = orders.get(frozenset(on), on)
        leaves_of[host], rail_of[host] = order, tuple(order.index(leaf) for leaf in on)
    at = _ports(before.topology, leaves_of, old_number)
    number, vacant = _numbers(before.topology, at, old_number)
    m1 = max(port.k + 1 for ports in (*at.values(), *vacant.values()) for port in ports)
    m1 = max(m1, before.topology.tree.m[0])
    return PlacedHosts(after, after.topology.rails, at, rail_of, number, vacant, m1)


def matched_hosts(before: Layout, after: Layout) -> dict[int, int]:
    """Old number -> new number of the remaining hosts: by name, else by an adapter's GUID."""
    named = after.inventory.host_numbers
    matched = {
        host: named[before.inventory.host_names[host]]
        for host in before.hosts()
        if before.inventory.host_names[host] in named
    }
    taken = set(matched.values())
    renamed = {
        endpoint.guid: host
        for host, endpoints in after.host_endpoints.items()
        if host not in taken
        for endpoint in endpoints
    }
    for host in before.hosts():
        if host not in matched:
            guids = (endpoint.guid for endpoint in before.host_endpoints.get(host, ()))
            new = next((renamed[guid] for guid in guids if guid in renamed), None)
            if new is not None and new not in taken:
                matched[host] = new
                taken.add(new)
    return matched


def _rail_orders(topology: Topology) -> Iterator[tuple[frozenset[Place], tuple[Place, ...]]]:
    for group in range(topology.groups):
        leaves = topology.leaves_of_group(group)
        order = tuple((leaf // topology.tree.m[1], leaf % topology.tree.m[1]) for leaf in leaves)
        yield frozenset(order), order


def _ports(
    old: Topology, leaves_of: Mapping[int, tuple[Place, ...]], old_number: Mapping[int, int]
) -> dict[int, tuple[Port, ...]]:
    """The ports of each host: at its old position on a leaf, else at the lowest free one."""
    kept: dict[tuple[int, Place], int] = {}
    taken: dict[Place, set[int]] = defaultdict(set)
    for host, order in leaves_of.items():
        ports = old.ports_of(old_number[host]) if host in old_number else ()
        slots = {(port.pod, port.leaf): port.k for port in ports}
        for leaf in order:
            if leaf in slots:
                kept[host, leaf] = slots[leaf]
                taken[leaf].add(slots[leaf])
    ports_of = {}
    for host, order in leaves_of.items():
        new_ports = []
        for leaf in order:
            k = kept.get((host, leaf))
            if k is None:
                k = next(k for k in itertools.count() if k not in taken[leaf])
                taken[leaf].add(k)
            new_ports.append(Port(*leaf, k))
        ports_of[host] = tuple(new_ports)
    return ports_of


def _numbers(
    old: Topology, at: Mapping[int, tuple[Port, ...]], old_number: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, tuple[Port, ...]]]:
    """Final numbers where hosts have several ports, and the ports of vacant numbers.

    A new host takes a free number. A number that stays free keeps its ports as an absent
    host, unless its leaf group no longer exists; then later numbers move up.
    """
    if old.rails == 1:
        return {}, {}
    number = dict(old_number)
    free = (n for n in itertools.count() if n not in old_number.values())
    for host in at:
        if host not in number:
            number[host] = next(free)
    used = {port for ports in at.values() for port in ports}
    groups = {frozenset((p.pod, p.leaf) for p in ports) for ports in at.values()}
    leaves = frozenset().union(*groups)
    vacant = {}
    for gone in sorted(set(range(max(number.values()) + 1)) - set(number.values())):
        ports = old.host_ports[gone] if gone < len(old.host_ports) else ()
        group = frozenset((p.pod, p.leaf) for p in ports)
        fits = group in groups or not group & leaves
        if ports and fits and not used.intersection(ports):
            vacant[gone] = ports
            used.update(ports)
            groups.add(group)
            leaves |= group
    order = sorted([*number.values(), *vacant])
    dense = {n: i for i, n in enumerate(order)}
    return (
        {host: dense[n] for host, n in number.items()},
        {dense[n]: ports for n, ports in vacant.items()},
    )
