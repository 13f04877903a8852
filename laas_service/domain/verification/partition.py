# SPDX-License-Identifier: Apache-2.0

"""An allocation's hosts and uplinks by rail, leaf and L2 switch."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from laas_service.domain.allocation import Allocation
from laas_service.domain.grouping import grouped
from laas_service.domain.topology import Link, Topology

WHOLE_LINKS = frozenset({"simple", "laas", "jigsaw", "lc", "lc-s", "starcube"})
"""Policies whose allocations own links, whole or in equal shares, in shapes of full bandwidth."""


class LeafPlace(NamedTuple):
    """Position of a leaf switch; ``leaf`` counts within the pod."""

    pod: int
    leaf: int


class L2Place(NamedTuple):
    """Position of an L2 switch; ``l2`` counts within the pod."""

    pod: int
    l2: int


@dataclass
class Rail:
    """One rail of an allocation: hosts and uplink indices by leaf."""

    hosts: dict[LeafPlace, list[int]] = field(default_factory=lambda: defaultdict(list))
    uplinks: dict[LeafPlace, set[int]] = field(default_factory=lambda: defaultdict(set))

    def leaves_by_pod(self) -> dict[int, list[LeafPlace]]:
        """Pod -> its leaves that hold hosts, those with most hosts first."""
        places = sorted(self.hosts, key=lambda place: (-len(self.hosts[place]), place))
        return grouped((place.pod, place) for place in places)


class TenantTree:
    """The virtual fat-tree of an allocation."""

    def __init__(self, topology: Topology, allocation: Allocation) -> None:
        self.rails = [Rail() for _ in range(topology.rails)]
        """By rail number."""
        self.spines: dict[L2Place, set[int]] = defaultdict(set)
        """Uplinks of each L2 switch, which the rails of a plane share."""
        rail_of_leaf: dict[LeafPlace, Rail] = {}
        for host in allocation.hosts(topology):
            for rail, port in zip(self.rails, topology.ports_of(host), strict=True):
                place = LeafPlace(port.pod, port.leaf)
                rail.hosts[place].append(host)
                rail_of_leaf[place] = rail
        pods = {place.pod for place in rail_of_leaf}
        self.strangers: list[Link] = []
        """Links on leaves and in pods where the allocation has no host."""
        for link in allocation.leaf_links(topology):
            place = LeafPlace(link.pod, link.leaf)
            if place in rail_of_leaf:
                rail_of_leaf[place].uplinks[place].add(link.up)
            else:
                self.strangers.append(link)
        for spine_link in allocation.spine_links(topology):
            if spine_link.pod in pods:
                self.spines[L2Place(spine_link.pod, spine_link.l2)].add(spine_link.up)
            else:
                self.strangers.append(spine_link)

    def planes(self, topology: Topology) -> list[list[int]]:
        """The rail numbers of each plane; the rails of a plane share their L2 switches."""
        return [
            [rail for rail, own_plane in enumerate(topology.plane_of_rail) if own_plane == plane]
            for plane in range(topology.planes)
        ]
