# SPDX-License-Identifier: Apache-2.0

"""A topology with what stands behind it, by places: what an import recognised."""

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
    """GUIDs in ``leaves``, ``l2s`` (a row a pod) and ``spines`` (a row an L2 index); 0 is a
    place that nobody has."""

    topology: Topology
    inventory: Inventory

    @cached_property
    def leaves(self) -> tuple[Row, ...]:
        return rows(self.inventory.leaf_guids, self.topology.tree.m[1])

    @cached_property
    def l2s(self) -> tuple[Row, ...]:
        found = rows(self.inventory.l2_guids, self.topology.tree.l2_per_pod)
        return found or ((),) * self.topology.tree.m[2]

    @cached_property
    def spines(self) -> tuple[Row, ...]:
        tree = self.topology.tree
        found = rows(self.inventory.spine_guids, tree.spines_per_group)
        return found or ((),) * tree.l2_per_pod

    @cached_property
    def ends(self) -> dict[int, frozenset[Hashable]]:
        """By switch GUID: the other ends of its cables. A switch that takes another's place
        has them, too."""
        found: dict[int, set[Hashable]] = defaultdict(set)
        for cable in self.inventory.cables:
            found[cable.lower.guid].add(cable.upper)
            found[cable.upper.guid].add(cable.lower)
        for endpoint in self.inventory.endpoints:
            found[endpoint.at.guid].add(endpoint.guid)
        return {guid: frozenset(ends) for guid, ends in found.items()}

    @cached_property
    def host_endpoints(self) -> dict[int, tuple[Endpoint, ...]]:
        """By host: its ports in rail order."""
        found: dict[int, dict[int, Endpoint]] = defaultdict(dict)
        for (host, rail), endpoint in self.inventory.endpoint_of_port.items():
            found[host][rail] = endpoint
        return {h: tuple(by[rail] for rail in sorted(by)) for h, by in sorted(found.items())}

    def hosts(self) -> Iterator[int]:
        """Numbers of the hosts that are there."""
        absent = self.topology.absent_hosts
        names = enumerate(self.inventory.host_names)
        return (host for host, name in names if name and host not in absent)

    @cached_property
    def place_of_leaf(self) -> dict[int, tuple[int, int]]:
        """GUID -> (pod, leaf)."""
        return places(self.leaves)


def rows(guids: Sequence[int], width: int) -> tuple[Row, ...]:
    if not width:
        return ()
    return tuple(tuple(guids[n : n + width]) for n in range(0, len(guids), width))


def places(of: Sequence[Row]) -> dict[int, tuple[int, int]]:
    """GUID -> (row, index), the first one where there are several."""
    found: dict[int, tuple[int, int]] = {}
    for number, row in enumerate(of):
        for index, guid in enumerate(row):
            if guid:
                found.setdefault(guid, (number, index))
    return found
