# SPDX-License-Identifier: Apache-2.0

"""Free hosts and links as masks, with the counts and bit sets that searches read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Protocol, Self, TypeVar

from laas_service.domain.lanes import apart, side_by_side
from laas_service.domain.topology import Topology

UndoStep = tuple[list[int] | None, int, int]
"""A list of masks (None for ``free_hosts``), an index of it, and the mask that stood there."""


class ReaderCache(Protocol):
    """Results that one kind of reader keeps with a ledger; a new one is empty."""

    def copy(self) -> Self:
        """A cache of its own with the same results."""


C = TypeVar("C", bound=ReaderCache)


class ReaderCaches(dict[type[ReaderCache], Any]):
    """The caches of all readers, each of the class that is its key; a copy has copies of them."""

    def copy(self) -> ReaderCaches:
        return ReaderCaches({kind: cache.copy() for kind, cache in self.items()})


class FreeMasks:
    """The free hosts and links, and counts and bit sets that follow from them.

    Readers use the lists directly, so that a search need not look at every leaf. All
    writes of ``free_hosts`` go through ``flip``, which keeps the counts up, and
    ``note`` comes before every write of another list, so that a trial can be undone.
    """

    __slots__ = (  # reading a slot is fast, however many fields there are
        "free_host_count",
        "free_hosts",
        "free_lanes",
        "free_uplinks",
        "freed",
        "freed_groups",
        "freed_spines",
        "groups_by_free",
        "pod_free_hosts",
        "pod_freed",
        "pod_groups_by_free",
        "reader_caches",
        "topology",
        "undo",
    )

    def __init__(self, topology: Topology) -> None:
        groups = range(topology.groups)
        uplinks = (1 << topology.tree.w[1] * topology.planes) - 1

        self.topology = topology

        self.free_hosts = [topology.present_positions(g) for g in groups]
        """``free_hosts[g]``: mask of the free positions of leaf group g."""

        self.free_uplinks = [uplinks if topology.leaves_of_group(g) else 0 for g in groups]
        """``free_uplinks[g]``: mask of the free uplinks of leaf group g, one field of w2 bits
        a plane; a bit is set only if the uplink is free on every rail of the plane."""

        spines = [(1 << topology.tree.w[2]) - 1] * topology.columns_per_pod
        self.free_lanes = [side_by_side(spines, topology.lane)] * topology.pods
        """``free_lanes[pod]``: the free spine uplinks of a pod as one integer with a lane of
        ``topology.lane`` bits for each column (``lanes``)."""

        self.groups_by_free: list[int]
        """``groups_by_free[n]``: bit set of the leaf groups with exactly n free hosts."""

        self.pod_groups_by_free: list[list[int]]
        """``pod_groups_by_free[pod][n]``: the same for one pod, by number in the pod."""

        self.free_host_count: int
        """How many hosts are free."""

        self.pod_free_hosts: list[int]
        """``pod_free_hosts[pod]``: how many hosts of the pod are free."""

        self.freed = 0
        """Generation: advances whenever a host or link becomes free. A request that does not fit
        now does not fit before this changes, whatever is claimed or fails."""

        self.pod_freed = [0] * topology.pods
        """``pod_freed[pod]``: the same for the hosts and leaf uplinks of one pod."""

        self.freed_groups = [0] * (topology.hosts_per_group + 1)
        """``freed_groups[n]``: the generation ``freed`` when last a host or uplink became free of
        a leaf group that has n free hosts since."""

        self.freed_spines = 0
        """The generation ``freed`` when last a spine uplink became free."""

        self.reader_caches = ReaderCaches()
        """The objects that readers keep with this ledger (``reader_cache``), one of each kind."""

        self.undo: list[UndoStep] | None = None
        """Changes that the innermost trial has to put back, in order; None outside of trials."""

        self.count_free_hosts()

    def count_free_hosts(self) -> None:
        """Count the free hosts once; ``flip`` keeps the counts afterwards."""
        topology = self.topology
        sizes = range(topology.hosts_per_group + 1)
        self.groups_by_free = [0 for _ in sizes]
        self.pod_groups_by_free = [[0 for _ in sizes] for _ in range(topology.pods)]
        self.pod_free_hosts = [0] * topology.pods
        for group, mask in enumerate(self.free_hosts):
            count = mask.bit_count()
            pod, local = divmod(group, topology.groups_per_pod)
            self.groups_by_free[count] |= 1 << group
            self.pod_groups_by_free[pod][count] |= 1 << local
            self.pod_free_hosts[pod] += count
        self.free_host_count = sum(self.pod_free_hosts)

    @property
    def free_spines(self) -> tuple[int, ...]:
        """``free_spines[pod * columns_per_pod + c]``: mask of w3 bits, the free uplinks of the
        L2 switch at column c. Made of ``free_lanes`` whenever it is read."""
        width, lane = self.topology.columns_per_pod, self.topology.lane
        return tuple(chain.from_iterable(apart(lanes, width, lane) for lanes in self.free_lanes))

    def set_free_hosts(self, group: int, mask: int) -> None:
        """Write the mask of a leaf group's free positions, and the counts that follow from it."""
        self.flip(((group, self.free_hosts[group] ^ mask, 0),))

    def flip(self, shares: Iterable[tuple[int, int, int]]) -> None:
        """Make free positions and uplinks of leaf groups taken, and taken ones free.

        The shares are (group, mask of positions, mask of uplinks). The counts of free hosts follow.
        """
        free_hosts, free_uplinks, undo = self.free_hosts, self.free_uplinks, self.undo
        width = self.topology.groups_per_pod
        # The groups of one pod whose masks change alike are counted together.
        was = now = first = end = groups = 0
        for group, hosts, uplinks in shares:
            mask = free_hosts[group]
            if undo is not None:
                undo += (None, group, mask), (free_uplinks, group, free_uplinks[group])
            if uplinks:
                free_uplinks[group] ^= uplinks
            free_hosts[group] = flipped = mask ^ hosts
            if mask == was and flipped == now and first <= group < end:
                groups |= 1 << group - first
                continue
            if was != now:
                self._recount(first, groups, was.bit_count(), now.bit_count())
            was, now = mask, flipped
            first = group - group % width
            end, groups = first + width, 1 << group - first
        if was != now:
            self._recount(first, groups, was.bit_count(), now.bit_count())

    def _recount(self, first: int, groups: int, before: int, after: int) -> None:
        """Leaf groups of a pod had ``before`` free hosts and have ``after``.

        ``groups`` is their bit set by number in the pod, ``first`` the pod's first group.
        """
        if before == after:
            return
        pod, in_all = first // self.topology.groups_per_pod, groups << first
        by_free, of_pod = self.groups_by_free, self.pod_groups_by_free[pod]
        by_free[before] ^= in_all
        by_free[after] ^= in_all
        of_pod[before] ^= groups
        of_pod[after] ^= groups
        change = groups.bit_count() * (after - before)
        self.pod_free_hosts[pod] += change
        self.free_host_count += change

    def note(self, masks: list[int], index: int) -> None:
        """Keep a mask that is about to change, if this is a trial."""
        if self.undo is not None:
            self.undo.append((masks, index, masks[index]))

    def mark_freed(self, groups: Collection[int]) -> None:
        """Hosts or uplinks of these leaf groups, ascending, have become free."""
        freed = self.freed = self.freed + 1
        width, free_hosts, freed_groups = (
            self.topology.groups_per_pod,
            self.free_hosts,
            self.freed_groups,
        )
        pod_end = 0
        for group in groups:
            freed_groups[free_hosts[group].bit_count()] = freed
            if group >= pod_end:
                pod = group // width
                pod_end = (pod + 1) * width
                self.pod_freed[pod] += 1

    def mark_freed_spines(self) -> None:
        """Spine uplinks have become free."""
        self.freed += 1
        self.freed_spines = self.freed

    def last_freed(self, hosts: int) -> int:
        """The generation ``freed`` when last a placement in several pods could become possible.

        All its leaf groups have ``hosts`` or more hosts. It takes a leaf group with as many
        free, and spine uplinks.
        """
        last, of_groups = self.freed_spines, max(self.freed_groups[hosts:])
        return last if last > of_groups else of_groups

    def groups_with_room(self, pod: int, hosts: int) -> list[int]:
        """The pod's leaf groups with at least that many free hosts, the fullest first."""
        first, groups = pod * self.topology.groups_per_pod, []
        for members in self.pod_groups_by_free[pod][hosts:]:
            while members:
                low = members & -members
                groups.append(first + low.bit_length() - 1)
                members ^= low
        return groups

    def reader_cache(self, kind: type[C]) -> C:
        """The object of this kind that readers keep with this ledger, made empty if missing.

        A copy of the ledger has a copy of it; a trial puts back what it was. A reader tells
        by ``freed`` and ``pod_freed`` whether an entry still holds. Threads may share it.
        """
        cache: C | None = self.reader_caches.get(kind)
        return self.reader_caches.setdefault(kind, kind()) if cache is None else cache
