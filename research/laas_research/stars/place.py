# SPDX-License-Identifier: Apache-2.0

"""Maps the units of a cube to hosts, leaf links and spine links of a fabric."""

from collections.abc import Collection, Iterable

from laas_research.stars.cube import Cube
from laas_research.stars.plan import Move
from laas_research.stars.units import Unit
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.errors import NotSupported
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology

NAME = "starcube"
"""The policy of allocations that are stars."""


class UnitMap:
    """The host and the links of each unit; the links follow from the unit's indices.

    Unit (i, j, k) has uplink i of leaf j in pod k, and above it spine link j of L2 switch i.
    With p parallel cables to an L2 switch, i counts cables, and the spine link is
    ``j * p + i % p``. At first host i has uplink i; a host whose uplink is missing gets an
    uplink whose host is missing. If a leaf has fewer uplinks than hosts, or a pod has fewer
    spines than leaves, the cube is trimmed. Absent and failed hosts and links make the cube
    incomplete.

    Raises:
        NotSupported: hosts have several rails.
    """

    def __init__(
        self,
        topology: Topology,
        failed_hosts: Collection[int] = (),
        failed_links: Collection[Link] = (),
    ) -> None:
        if topology.rails > 1:
            raise NotSupported(f"rails: {topology.rails}; hosts of a StarCube have one rail")
        tree = topology.tree
        self._topology = topology
        leaves = topology.groups_per_pod
        if tree.w[2]:
            leaves = min(leaves, tree.w[2] // tree.cables[0])
        self.sizes = (min(topology.hosts_per_group, tree.w[1]), leaves, topology.pods)
        """Sizes of the cube: L2 switches of a pod, leaves of a pod, pods."""
        self._slots: dict[Unit, int] = {}
        absent = {*topology.absent_links, *failed_links}
        for pod in range(self.sizes[2]):
            for leaf in range(self.sizes[1]):
                self._pair(leaf, pod, set(failed_hosts), absent)

    def _pair(self, leaf: int, pod: int, failed: set[int], absent: set[Link]) -> None:
        group = pod * self._topology.groups_per_pod + leaf
        present = self._topology.present_positions(group)
        hosts = [
            position
            for position in range(self._topology.hosts_per_group)
            if present >> position & 1 and self._topology.host_at(group, position) not in failed
        ]
        units = (Unit(i, leaf, pod) for i in range(self.sizes[0]))
        with_links = [unit for unit in units if absent.isdisjoint(self.links(unit))]
        paired = [unit for unit in with_links if unit.i in hosts]
        self._slots.update((unit, unit.i) for unit in paired)
        other_slots = [
            position for position in hosts if position not in {unit.i for unit in paired}
        ]
        unpaired = [unit for unit in with_links if unit not in paired]
        self._slots.update(zip(unpaired, other_slots, strict=False))

    def cube(self) -> Cube:
        """An empty ledger of these units; units without a host or a link are missing."""
        missing = (unit for unit in Cube(self.sizes).units() if unit not in self._slots)
        return Cube(self.sizes, missing)

    def host(self, unit: Unit) -> int:
        """The host of a unit.

        Raises:
            KeyError: the unit is missing.
        """
        group = unit.k * self._topology.groups_per_pod + unit.j
        host = self._topology.host_at(group, self._slots[unit])
        assert host is not None
        return host

    def links(self, unit: Unit) -> tuple[Link, ...]:
        """The links of a unit, from the leaf up; a tree without spines has leaf links only."""
        column, up = self._column(unit)
        tree, group = self._topology.tree, unit.k * self._topology.groups_per_pod + unit.j
        links: list[Link] = [
            LeafLink(*divmod(leaf, tree.m[1]), unit.i)
            for leaf in self._topology.leaves_of_group(group)
        ]
        if tree.w[2]:
            links.append(SpineLink(*self._topology.l2_of_column(unit.k, column), up))
        return tuple(links)

    def _column(self, unit: Unit) -> tuple[int, int]:
        cables = self._topology.tree.cables[0]
        return unit.i // cables, unit.j * cables + unit.i % cables

    def follow(self, move: Move) -> None:
        """Update the hosts after a move.

        After a move along a leaf the tenant's server is still on its host, so the two units
        swap their hosts. After another move the server is on the host of the target.
        """
        if not move.migrates:
            a, b = move.source, move.target
            self._slots[a], self._slots[b] = self._slots[b], self._slots[a]

    def allocation(self, tenant: str, units: Iterable[Unit]) -> Allocation:
        """A tenant's units as an allocation of hosts and links, to be verified and routed."""
        units = sorted(units)
        groups: dict[int, list[int]] = {}
        columns: dict[tuple[int, int], int] = {}
        for unit in units:
            group = unit.k * self._topology.groups_per_pod + unit.j
            masks = groups.setdefault(group, [0, 0])
            masks[0] |= 1 << self._slots[unit]
            masks[1] |= 1 << unit.i
            column, up = self._column(unit)
            if self._topology.tree.w[2]:
                columns[unit.k, column] = columns.get((unit.k, column), 0) | 1 << up
        return Allocation(
            tenant,
            len(units),
            NAME,
            tuple(GroupShare(group, *masks) for group, masks in sorted(groups.items())),
            tuple(ColumnShare(*at, mask) for at, mask in sorted(columns.items())),
        )
