# SPDX-License-Identifier: Apache-2.0

"""A topology and its inventory, as an import recognised them, by place in the tree."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, Inventory, PortRef
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
        ends: list[tuple[PortRef, Hashable]] = [
            *((near, far) for near, (far, _) in self.inventory.far_ends.items()),
            *((endpoint.at, endpoint.guid) for endpoint in self.inventory.endpoints),
        ]
        by_switch = grouped((near.guid, far) for near, far in ends)
        return {guid: frozenset(far_ends) for guid, far_ends in by_switch.items()}

    @cached_property
    def host_endpoints(self) -> dict[int, tuple[Endpoint, ...]]:
        """The ports of each host in the order of rails."""
        in_order = sorted(self.inventory.endpoint_of_port.items())
        by_host = grouped((host, endpoint) for (host, _), endpoint in in_order)
        return {host: tuple(endpoints) for host, endpoints in by_host.items()}

    def hosts(self) -> Iterator[int]:
        """Numbers of the hosts that are present."""
        absent = self.topology.absent_hosts
        names = enumerate(self.inventory.host_names)
        return (host for host, name in names if name and host not in absent)

    @cached_property
    def places_of_switch(self) -> dict[int, list[tuple[str, int, int]]]:
        """GUID -> all its places in the tree: "leaf", "l2" or "spine", row, index."""
        kinds = (("leaf", self.leaves), ("l2", self.l2s), ("spine", self.spines))
        return grouped(
            (guid, (kind, number, index))
            for kind, rows in kinds
            for number, row in enumerate(rows)
            for index, guid in enumerate(row)
            if guid
        )

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
