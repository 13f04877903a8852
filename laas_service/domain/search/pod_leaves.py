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
from laas_service.domain.search.bicliques import bits_of_at_least
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
        taper, _ = topology.taper
        self.capacities = [
            (min(free, taper * self._fewest_in_a_plane(uplinks[local])), local)
            for free, groups in enumerate(by_free[1:], 1)
            for local in bits(groups)
        ]
        exactly = [0] * (topology.slots + 1)
        for rank, (capacity, _) in enumerate(self.capacities):
            exactly[capacity] |= 1 << rank
        self.with_room = list(accumulate(reversed(exactly), or_))[::-1]
        self.counts = list(map(int.bit_count, self.with_room))
        self._bounds: dict[int, tuple[list[KonigBound], int]] = {}
        self._sure: dict[tuple[int, int], int] = {}
        self._shared: dict[tuple[int, int, int], Sequence[int]] = {}
        self._closed: dict[tuple[int, int], list[tuple[int, int]] | None] = {}

    def _fewest_in_a_plane(self, uplinks: int) -> int:
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

    def shared(self, leaf_hosts: int, width: int, leaves: int) -> Sequence[int]:
        """The largest sets of uplinks that ``leaves`` groups with ``leaf_hosts`` hosts share.

        Each has ``width`` uplinks in each plane. Where there are more than ``MOST_SHARED`` sets
        of any leaves, the answer is one set: all uplinks that so many groups have.
        """
        key = self.counts[leaf_hosts], width, leaves
        if key not in self._shared:
            self._shared[key] = self._largest_shared(leaf_hosts, width, leaves)
        return self._shared[key]

    def _largest_shared(self, leaf_hosts: int, width: int, leaves: int) -> Sequence[int]:
        rows = [self.uplinks[local] for room, local in self.capacities if room >= leaf_hosts]
        if leaves == 1:
            return _largest(set(rows))
        key = len(rows), width
        if key not in self._closed:
            self._closed[key] = self._shared_by_any(rows, width)
        closed = self._closed[key]
        if closed is None:
            return (bits_of_at_least(leaves, rows),)
        return _largest([mask for mask, sharing in closed if sharing >= leaves])

    def _shared_by_any(self, rows: Sequence[int], width: int) -> list[tuple[int, int]] | None:
        """What any of the rows share, if it is wide enough, and how many rows have it.

        None if there are too many such sets.
        """
        closed = set[int]()
        for row in set(rows):
            shared = {mask & row for mask in closed}
            closed.update([m for m in shared - closed if self._fewest_in_a_plane(m) >= width])
            closed.add(row)
            if len(closed) > MOST_SHARED:
                return None
        return [(mask, sum([not mask & ~row for row in rows])) for mask in closed]

    def _rows(self, leaf_hosts: int) -> list[tuple[int, ...]]:
        """By plane, the free uplinks of the groups with room; each has enough for the hosts."""
        uplinks = [self.uplinks[local] for room, local in self.capacities if room >= leaf_hosts]
        return [tuple([mask & plane for mask in uplinks]) for plane in self._planes]


def _largest(masks: Iterable[int]) -> list[int]:
    """The masks that lie in no other one, the largest first."""
    largest: list[int] = []
    for mask in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
        for larger in largest:
            if not mask & ~larger:
                break
        else:
            largest.append(mask)
    return largest


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
