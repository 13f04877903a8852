# SPDX-License-Identifier: Apache-2.0

"""Part of a fabric as masks: which of its hosts and links a view contains."""

from __future__ import annotations

from dataclasses import dataclass
from operator import and_

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.lanes import side_by_side
from laas_service.domain.topology import Topology


@dataclass(frozen=True, slots=True)
class Masks:
    """Hosts and links of one topology as masks. ``&`` intersects two parts."""

    hosts: tuple[int, ...]
    """``hosts[g]``: mask of positions of leaf group g."""

    uplinks: tuple[int, ...]
    """``uplinks[g]``: mask of uplinks of leaf group g, one field of w2 bits a plane."""

    lanes: tuple[int, ...]
    """``lanes[pod]``: spine uplinks of a pod, as in ``Ledger.free_lanes``."""

    @classmethod
    def whole(cls, topology: Topology) -> Masks:
        """The whole fabric."""
        spines = [(1 << topology.tree.w[2]) - 1] * topology.columns_per_pod
        return cls(
            ((1 << topology.hosts_per_group) - 1,) * topology.groups,
            (sum(topology.plane_fields),) * topology.groups,
            (side_by_side(spines, topology.lane),) * topology.pods,
        )

    @classmethod
    def of(cls, topology: Topology, allocation: Allocation) -> Masks:
        """The hosts and links that an allocation holds."""
        hosts, uplinks = [0] * topology.groups, [0] * topology.groups
        pods = dict(allocation.spines_by_pod(topology))
        for share in allocation.groups:
            hosts[share.group], uplinks[share.group] = share.hosts, share.uplinks
        lanes = tuple(pods.get(pod, 0) for pod in range(topology.pods))
        return cls(tuple(hosts), tuple(uplinks), lanes)

    @classmethod
    def of_plane(cls, topology: Topology, plane: CommonPlane) -> Masks:
        """The links that a common plane withholds."""
        tree = topology.tree
        bundle = sum(((1 << tree.cables[0]) - 1) << l2 * tree.cables[0] for l2 in plane.l2)
        uplinks = sum(bundle << index * tree.w[1] for index in range(topology.planes))
        everything = (1 << tree.w[2]) - 1
        to_spines = sum(
            ((1 << tree.cables[1]) - 1) << spine * tree.cables[1] for spine in plane.spines
        )
        spines = [
            to_spines or (everything if column % tree.l2_per_pod in plane.l2 else 0)
            for column in range(topology.columns_per_pod)
        ]
        lanes = (side_by_side(spines, topology.lane),) * topology.pods
        return cls((0,) * topology.groups, (uplinks,) * topology.groups, lanes)

    def __and__(self, other: Masks) -> Masks:
        return Masks(
            tuple(map(and_, self.hosts, other.hosts)),
            tuple(map(and_, self.uplinks, other.uplinks)),
            tuple(map(and_, self.lanes, other.lanes)),
        )
