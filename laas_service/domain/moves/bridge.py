# SPDX-License-Identifier: Apache-2.0

"""A bridge: free links that join the old and the new hosts of a tenant while it moves.

The links of a placement join its own hosts. A packet between a host that only the old placement
has and one that only the new one has needs a path too. The links of both placements may serve it;
often one uplink for each leaf of one side is missing, and between pods two spine uplinks besides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import product

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Column, LeafLink, Topology, bits

Uplink = tuple[bool, int, int]
"""One bit of the masks of an allocation: whether it is a spine uplink, the number of the leaf group
or pod, and the bit (of a spine uplink in lanes)."""

Pair = tuple[int, int]
"""A leaf group with old hosts and one with new hosts."""


def bridge(fabric: LedgerView, old: Allocation, new: Allocation) -> Allocation | None:
    """Free links that join all hosts of both placements; without any if none are needed.

    None if there are no such links. ``fabric`` is the ledger that holds the tenant. The links of
    the placements count unless they have failed, others only if they are up and free. In each
    plane, no bridge that leads over one L2 index (and one spine of it) has fewer cables, and no
    link can be left out. A tenant whose policy owns no links needs none.
    """
    links = replace(new, requested=0, groups=(), columns=(), shape=None)
    if not old.isolated or not (old.beyond(new).size and new.beyond(old).size):
        return links
    search, chosen = _BridgeSearch(fabric, old, new), set[Uplink]()
    for plane in range(fabric.topology.planes):
        missing = search.missing(plane)
        if missing is None:
            return None
        chosen |= missing
    return _with(links, chosen, fabric.topology)


class _BridgeSearch:
    def __init__(self, fabric: LedgerView, old: Allocation, new: Allocation) -> None:
        self._topology = topology = fabric.topology
        self._free_uplinks, self._free_lanes = fabric.free_uplinks, fabric.free_lanes
        self._uplinks, self._lanes = [0] * topology.groups, [0] * topology.pods
        held = old.joined(new)
        for group, _, uplinks in held.groups:
            self._uplinks[group] = uplinks
        for pod, lanes in held.spines_by_pod(topology):
            self._lanes[pod] = lanes
        for link in fabric.failed_links:
            if isinstance(link, LeafLink):
                leaf = topology.group_of_leaf.get(topology.tree.leaf_id(link.pod, link.leaf))
                if leaf is not None:
                    plane = topology.plane_of_rail[leaf[1]]
                    self._uplinks[leaf[0]] &= ~(1 << plane * topology.tree.w[1] + link.up)
            elif (link.pod, link.l2) in topology.column_of_l2:
                at = topology.column_of_l2[link.pod, link.l2]
                pod, column = divmod(at, topology.columns_per_pod)
                self._lanes[pod] &= ~(1 << column * topology.lane + link.up)
        left, joined = (
            {share.group for share in one.groups if share.hosts}
            - {share.group for share in other.groups if share.hosts}
            for one, other in ((old, new), (new, old))
        )
        self._pairs = list(product(sorted(left), sorted(joined)))

    def missing(self, plane: int) -> set[Uplink] | None:
        """The uplinks of a plane that the bridge takes; None if no free ones join all pairs."""
        pairs = [pair for pair in self._pairs if not self._joined(plane, pair)]
        one_by_one = self._one_by_one(plane, pairs)
        if one_by_one is None:
            return None
        ways = [one_by_one, *self._ways(plane, pairs)]
        chosen = min(ways, key=lambda way: self._cables(plane, way))
        self._set(chosen, held=True)
        for uplink in sorted(chosen):
            self._set([uplink], held=False)
            if all(self._joined(plane, pair) for pair in pairs):
                chosen.remove(uplink)
            else:
                self._set([uplink], held=True)
        return chosen

    def _one_by_one(self, plane: int, pairs: Collection[Pair]) -> set[Uplink] | None:
        """The cheapest way for each pair in turn, which may use those of the pairs before."""
        chosen: set[Uplink] = set()
        for pair in pairs:
            ways = self._ways(plane, [pair])
            way = min(ways, key=lambda way: self._cables(plane, way), default=None)
            if way is None:
                return None
            self._set(way, held=True)
            chosen |= way
        self._set(chosen, held=False)
        return chosen

    def _joined(self, plane: int, pair: Pair) -> bool:
        """Whether the links that count as held join a pair."""
        return any(not way for way in self._ways(plane, [pair]))

    def _cables(self, plane: int, uplinks: Iterable[Uplink]) -> int:
        rails = self._topology.rails_in_plane(plane)
        return sum(1 if is_spine else rails for is_spine, _, _ in uplinks)

    def _ways(self, plane: int, pairs: Collection[Pair]) -> Iterator[set[Uplink]]:
        """For each L2 index and spine that can join all pairs, the uplinks that are not held."""
        width = self._topology.groups_per_pod
        groups = {group for pair in pairs for group in pair}
        pods = {
            group // width
            for pair in pairs
            if len({g // width for g in pair}) > 1
            for group in pair
        }
        for column in self._topology.columns:
            if column.plane != plane:
                continue
            leaves = self._to_l2(groups, column)
            if leaves is None:
                continue
            for spine in range(self._topology.tree.spines_per_group) if pods else ():
                spines = self._to_spine(pods, column, spine)
                if spines is not None:
                    yield leaves | spines
            if not pods:
                yield leaves

    def _to_l2(self, groups: Iterable[int], column: Column) -> set[Uplink] | None:
        missing = set()
        for group in groups:
            if not self._uplinks[group] & column.bundle:
                bit = next(bits(self._free_uplinks[group] & column.bundle), None)
                if bit is None:
                    return None
                missing.add((False, group, bit))
        return missing

    def _to_spine(self, pods: Iterable[int], column: Column, spine: int) -> set[Uplink] | None:
        cables = self._topology.tree.cables[1]
        first = column.number * self._topology.lane + spine * cables
        bundle = (1 << cables) - 1 << first
        missing = set()
        for pod in pods:
            if not self._lanes[pod] & bundle:
                bit = next(bits(self._free_lanes[pod] & bundle), None)
                if bit is None:
                    return None
                missing.add((True, pod, bit))
        return missing

    def _set(self, uplinks: Iterable[Uplink], *, held: bool) -> None:
        """Let uplinks that are free count as held, or no more."""
        for is_spine, number, bit in uplinks:
            masks = self._lanes if is_spine else self._uplinks
            masks[number] = masks[number] | 1 << bit if held else masks[number] & ~(1 << bit)


def _with(links: Allocation, chosen: Iterable[Uplink], topology: Topology) -> Allocation:
    groups: dict[int, int] = {}
    columns: dict[tuple[int, int], int] = {}
    for is_spine, number, bit in sorted(chosen):
        if is_spine:
            column, up = divmod(bit, topology.lane)
            columns[number, column] = columns.get((number, column), 0) | 1 << up
        else:
            groups[number] = groups.get(number, 0) | 1 << bit
    return replace(
        links,
        groups=tuple(GroupShare(group, 0, uplinks) for group, uplinks in groups.items()),
        columns=tuple(ColumnShare(*at, uplinks) for at, uplinks in columns.items()),
    )
