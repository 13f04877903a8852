# SPDX-License-Identifier: Apache-2.0


"""What one allocation holds, switch by switch and rail by rail, from its hosts and links."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import Link, Topology

WHOLE_LINKS = frozenset({"simple", "laas", "jigsaw", "lc", "lc-s", "starcube"})
"""Policies with whole links of their own, or equal shares of links, in shapes of full bandwidth."""


class LeafPlace(NamedTuple):
    """Where a leaf switch stands; ``leaf`` is local to the pod."""

    pod: int
    leaf: int


class L2Place(NamedTuple):
    """Where an L2 switch stands; ``l2`` is local to the pod."""

    pod: int
    l2: int


@dataclass
class Rail:
    """One rail of an allocation: its hosts and its uplinks by leaf."""

    hosts: dict[LeafPlace, list[int]] = field(default_factory=lambda: defaultdict(list))
    uplinks: dict[LeafPlace, set[int]] = field(default_factory=lambda: defaultdict(set))

    def leaves_by_pod(self) -> dict[int, list[LeafPlace]]:
        """The leaves that hold hosts, most hosts first."""
        found: dict[int, list[LeafPlace]] = defaultdict(list)
        for place in sorted(self.hosts, key=lambda place: (-len(self.hosts[place]), place)):
            found[place.pod].append(place)
        return found


class Partition:
    """The virtual fat-tree of an allocation.

    ``rails[r]`` is its part on rail r; ``spines[place]`` the uplinks of the L2 switch
    there, which the rails of a plane share; ``strangers`` are its links on leaves
    and in pods where it has no host.
    """

    def __init__(self, topology: Topology, allocation: Allocation) -> None:
        self.rails = [Rail() for _ in range(topology.rails)]
        self.spines: dict[L2Place, set[int]] = defaultdict(set)
        rail_of_leaf: dict[LeafPlace, Rail] = {}
        for host in allocation.hosts(topology):
            for rail, port in zip(self.rails, topology.ports_of(host), strict=True):
                place = LeafPlace(port.pod, port.leaf)
                rail.hosts[place].append(host)
                rail_of_leaf[place] = rail
        pods = {place.pod for place in rail_of_leaf}
        self.strangers: list[Link] = []
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
        """Rails by plane: those of one plane share their L2 switches."""
        return [
            [rail for rail, of in enumerate(topology.plane_of_rail) if of == plane]
            for plane in range(topology.planes)
        ]
