# SPDX-License-Identifier: Apache-2.0

"""A topology and its inventory, as an import recognised them, by place in the tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.topology import Topology

Row = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The topology, the inventory, and the switches by place.

    ``leaves`` and ``l2s`` have a row of GUIDs for each pod, ``spines`` one for each L2 index;
    0 is an empty place.
    """

    topology: Topology
    inventory: Inventory

    @cached_property
    def leaves(self) -> tuple[Row, ...]:
        return rows(self.inventory.leaf_guids, self.topology.tree.m[1])

    @cached_property
    def l2s(self) -> tuple[Row, ...]:
        l2s = rows(self.inventory.l2_guids, self.topology.tree.l2_per_pod)
        return l2s or ((),) * self.topology.tree.m[2]

    @cached_property
    def spines(self) -> tuple[Row, ...]:
        tree = self.topology.tree
        spines = rows(self.inventory.spine_guids, tree.spines_per_group)
        return spines or ((),) * tree.l2_per_pod

    @cached_property
    def ends(self) -> dict[int, frozenset[Hashable]]:
        """By switch GUID, the other ends of its cables: a replacement switch has the same."""
        ends_of: dict[int, set[Hashable]] = defaultdict(set)
        for cable in self.inventory.cables:
            ends_of[cable.lower.guid].add(cable.upper)
            ends_of[cable.upper.guid].add(cable.lower)
        for endpoint in self.inventory.endpoints:
            ends_of[endpoint.at.guid].add(endpoint.guid)
        return {guid: frozenset(ends) for guid, ends in ends_of.items()}

    @cached_property
    def host_endpoints(self) -> dict[int, tuple[Endpoint, ...]]:
        """The ports of each host in the order of rails."""
        by_host: dict[int, dict[int, Endpoint]] = defaultdict(dict)
        for (host, rail), endpoint in self.inventory.endpoint_of_port.items():
            by_host[host][rail] = endpoint
        return {h: tuple(by[rail] for rail in sorted(by)) for h, by in sorted(by_host.items())}

    def hosts(self) -> Iterator[int]:
        """Numbers of the hosts that are present."""
        absent = self.topology.absent_hosts
        names = enumerate(self.inventory.host_names)
        return (host for host, name in names if name and host not in absent)

    @cached_property
    def place_of_leaf(self) -> dict[int, tuple[int, int]]:
        """GUID -> (pod, leaf)."""
        return places(self.leaves)


def rows(guids: Sequence[int], width: int) -> tuple[Row, ...]:
    """The GUIDs in rows of ``width``; () if the width is 0."""
    if not width:
        return ()
    return tuple(tuple(guids[n : n + width]) for n in range(0, len(guids), width))


def places(rows: Sequence[Row]) -> dict[int, tuple[int, int]]:
    """GUID -> (row, index), the first one where there are several."""
    place_of: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        for index, guid in enumerate(row):
            if guid:
                place_of.setdefault(guid, (number, index))
    return place_of
