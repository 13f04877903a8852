# SPDX-License-Identifier: Apache-2.0

"""The leaf groups of each pod as a search sees them, kept from one search to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import gt, or_
from typing import NamedTuple

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.matching import KonigBound, konig_bounds, sure_bounds
from laas_service.domain.topology import Topology, bits

UNLIMITED = 1 << 40
"""Units of work, more than any bound takes."""

MOST_SHARED = 64
"""The most sets of uplinks that leaves of one pod share and that are listed."""


class LeafRoom(NamedTuple):
    """The leaf groups of one pod by number in the pod."""

    hosts: list[int]
    """How many hosts of one tenant each can have."""
    uplinks: list[int]
    """The mask of the free uplinks of each."""


class PodLeaves:
    """The leaf groups of one pod by the number of one tenant's hosts that each can have.

    A leaf group can have as many hosts as are free on it and as its free uplinks carry. The
    object belongs to what is free in the pod, not to the pod: pods that look alike share one.
    """

    capacities: list[tuple[int, int]]
    """(Hosts that it can have, number in the pod) of the groups with free hosts, best fit first.

    A group's place in this list is its *rank*.
    """
    with_room: list[int]
    """``with_room[n]``: the bit set, by rank, of the leaf groups that can have n hosts."""
    counts: list[int]
    """``counts[n]``: the number of leaf groups that can have n hosts."""

    def __init__(self, topology: Topology, by_free: Sequence[int], uplinks: Sequence[int]) -> None:
        self.by_free = list(by_free)
        self.uplinks = list(uplinks)
        self._planes = topology.plane_fields
        self._taper = taper = topology.taper[0]
        self.capacities = [
            (min(free, taper * self.fewest_in_a_plane(uplinks[local])), local)
            for free, groups in enumerate(by_free[1:], 1)
            for local in bits(groups)
        ]
        exactly = [0] * (topology.hosts_per_group + 1)
        for rank, (capacity, _) in enumerate(self.capacities):
            exactly[capacity] |= 1 << rank
        self.with_room = list(accumulate(reversed(exactly), or_))[::-1]
        self.counts = list(map(int.bit_count, self.with_room))
        self._bounds: dict[int, tuple[list[KonigBound], int]] = {}
        self._sure: dict[tuple[int, int], int] = {}
        self._shared: dict[tuple[int, int], Sequence[int]] = {}
        self._digits: dict[int, list[int]] = {}
        self._closed: dict[int, list[tuple[int, int]] | None] = {}

    @cached_property
    def _roomiest(self) -> list[tuple[int, int]]:
        """(Hosts that it can have, mask of its free uplinks) of each group, most hosts first."""
        uplinks = self.uplinks
        return sorted([(room, uplinks[local]) for room, local in self.capacities], reverse=True)

    def fewest_in_a_plane(self, uplinks: int) -> int:
        """How many of these uplinks there are in each plane, at least."""
        if len(self._planes) == 1:
            return uplinks.bit_count()
        return min((uplinks & plane).bit_count() for plane in self._planes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodLeaves) and self.looks_like(other.by_free, other.uplinks)

    def looks_like(self, by_free: Sequence[int], uplinks: Sequence[int]) -> bool:
        """Whether a pod has the same free hosts and uplinks, leaf by leaf."""
        return self.uplinks == uplinks and self.by_free == by_free

    @cached_property
    def room(self) -> LeafRoom:
        """What each leaf group has free."""
        hosts = [0] * len(self.uplinks)
        for capacity, local in self.capacities:
            hosts[local] = capacity
        return LeafRoom(hosts, self.uplinks)

    def has_more_than(self, earlier: PodLeaves) -> bool:
        """Whether a leaf group can have more hosts than it could, or has more uplinks free."""
        room, before = self.room, earlier.room
        return any(map(gt, room.hosts, before.hosts)) or any(
            now & ~seen for now, seen in zip(room.uplinks, before.uplinks, strict=True)
        )

    @cached_property
    def by_uplink(self) -> list[int]:
        """For each uplink, the bit set, by rank, of the groups that have it free."""
        width = sum(self._planes).bit_length()
        if not self.capacities:
            return [0] * width
        uplinks = self.uplinks
        matrix = "".join([f"{uplinks[local]:0{width}b}" for _, local in reversed(self.capacities)])
        return [int(matrix[place::width], 2) for place in range(width - 1, -1, -1)]

    def surely_sharing(self, leaf_hosts: int, width: int) -> int:
        """A number of groups that is not above ``most_sharing``, without a matching."""
        key = self.counts[leaf_hosts], width
        if key not in self._sure:
            bounds = [bound for rows in self._rows(leaf_hosts) for bound in sure_bounds(rows)]
            self._sure[key] = min(key[0], *(bound.most_rows(width) for bound in bounds))
        return self._sure[key]

    def most_sharing(self, leaf_hosts: int, width: int) -> tuple[int, int]:
        """A bound on the groups with ``leaf_hosts`` hosts that share ``width`` uplinks a plane.

        The second number is the work that the bound takes when it is not known, in units of
        ``SearchBudget``.
        """
        count = self.counts[leaf_hosts]
        if count not in self._bounds:
            budget = SearchBudget(UNLIMITED)
            bounds = [
                bound for rows in self._rows(leaf_hosts) for bound in konig_bounds(rows, budget)
            ]
            self._bounds[count] = bounds, UNLIMITED - budget.left
        bounds, work = self._bounds[count]
        return min(count, *(bound.most_rows(width) for bound in bounds)), work

    def had_by(self, count: int, leaves: int) -> int:
        """The uplinks that ``leaves`` of the ``count`` roomiest groups have."""
        if count not in self._digits:
            self._digits[count] = bit_counts([uplinks for _, uplinks in self._roomiest[:count]])
        return counted_at_least(leaves, self._digits[count])

    def shared(self, count: int, leaves: int) -> Sequence[int]:
        """The largest sets of uplinks that ``leaves`` of the ``count`` roomiest groups share.

        ``count`` is one of ``counts``. Sets are left out that carry too few hosts for any number
        of hosts with which ``count`` groups have room. Where there are more than ``MOST_SHARED``
        sets of any number of groups, the answer is one set: all uplinks that so many groups have.
        """
        key = count, leaves
        if key not in self._shared:
            self._shared[key] = self._largest_shared(count, leaves)
        return self._shared[key]

    def _largest_shared(self, count: int, leaves: int) -> Sequence[int]:
        roomiest = self._roomiest
        rows = [uplinks for _, uplinks in roomiest[:count]]
        if leaves == 1:
            return largest(set(rows))
        if count not in self._closed:
            hosts = roomiest[count][0] + 1 if count < len(roomiest) else 1
            self._closed[count] = self._shared_by_any(rows, -(-hosts // self._taper))
        closed = self._closed[count]
        if closed is None:
            return (self.had_by(count, leaves),)
        return largest([mask for mask, sharing in closed if sharing >= leaves])

    def _shared_by_any(self, rows: Sequence[int], width: int) -> list[tuple[int, int]] | None:
        """What any of the rows share, if it is wide enough, and how many rows have it.

        None if there are too many such sets.
        """
        closed = set[int]()
        for row in set(rows):
            shared = {mask & row for mask in closed}
            closed.update([m for m in shared - closed if self.fewest_in_a_plane(m) >= width])
            closed.add(row)
            if len(closed) > MOST_SHARED:
                return None
        return [(mask, sum([not mask & ~row for row in rows])) for mask in closed]

    def _rows(self, leaf_hosts: int) -> list[tuple[int, ...]]:
        """By plane, the free uplinks of the groups with room; each has enough for the hosts."""
        uplinks = [self.uplinks[local] for room, local in self.capacities if room >= leaf_hosts]
        return [tuple([mask & plane for mask in uplinks]) for plane in self._planes]


def largest(masks: Iterable[int]) -> list[int]:
    """The masks that lie in no other one, the largest first."""
    found: list[int] = []
    for _, mask in sorted([(-mask.bit_count(), mask) for mask in masks]):
        for larger in found:
            if not mask & ~larger:
                break
        else:
            found.append(mask)
    return found


@dataclass(slots=True)
class LeavesOfPods:
    """The ``PodLeaves`` of all pods as they were last seen; kept with a ledger (``reader_cache``).

    The list is replaced, never changed, so that threads may share it.
    """

    _pods: tuple[PodLeaves, ...] = ()

    def copy(self) -> LeavesOfPods:
        return LeavesOfPods(self._pods)

    def now(self, fabric: LedgerView) -> tuple[PodLeaves, ...]:
        """The leaves of all pods as they are now. Only pods that changed are looked at."""
        topology, uplinks = fabric.topology, fabric.free_uplinks
        width, last = topology.groups_per_pod, self._pods
        pods, first = [], 0
        known: dict[tuple[tuple[int, ...], tuple[int, ...]], PodLeaves] = {}
        for pod, by_free in enumerate(fabric.pod_groups_by_free):
            of_pod = uplinks[first : first + width]
            first += width
            if last and last[pod].looks_like(by_free, of_pod):
                pods.append(last[pod])
                continue
            key = tuple(by_free), tuple(of_pod)
            if key not in known:
                known[key] = PodLeaves(topology, by_free, of_pod)
            pods.append(known[key])
        self._pods = tuple(pods)
        return self._pods
