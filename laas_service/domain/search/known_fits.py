# SPDX-License-Identifier: Apache-2.0

"""Placements that earlier searches found where everything free is as it was then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.shapes import Placement

Known = dict[int, Placement]
"""The first placement that a search found, by its size."""


@dataclass(slots=True)
class _InPods:
    """Placements on full leaf groups of several pods, and what a search for them reads."""

    full: int
    """The leaf groups all of whose hosts are free."""
    lanes: list[int]
    """The spine uplinks."""
    pods: list[int]
    """The pods with such groups, ascending."""
    counts: list[int]
    """By pod, how many of them it has."""
    order: list[int] = field(default_factory=list)
    """These pods as ``ordered`` put them."""
    known: Known = field(default_factory=dict)

    def ordered(self, free: Sequence[int]) -> list[int]:
        """The pods as a search sorts them (``PodView.with_leaves``)."""
        order = sorted(self.pods, key=free.__getitem__)
        order.sort(key=self.counts.__getitem__)
        return order


@dataclass(slots=True)
class KnownFits:
    """The first placements by place, for requests without wishes; kept with some ledgers.

    EASY asks again and again for requests that it does not start, because they would delay the
    head of the queue. Where a placement is always taken, this would only cost. So searches use
    it only with a ledger that has one (``reader_cache``). Each place is kept with all that a
    search there reads, so that no change needs to be reported, and whichever ledgers of one
    fabric share the object.
    """

    _in_pod: dict[int, tuple[tuple[Sequence[int], Sequence[int]], Known]] = field(
        default_factory=dict, compare=False
    )
    """By pod; its free hosts and uplinks, and placements on two or more of its leaf groups."""
    _in_pods: _InPods | None = field(default=None, compare=False)

    @staticmethod
    def kept_with(fabric: LedgerView) -> KnownFits | None:
        """That of a ledger, if it has one."""
        known = fabric.reader_caches.get(KnownFits)
        assert known is None or isinstance(known, KnownFits)
        return known

    def in_pod(self, fabric: LedgerView, pod: int) -> Known:
        """Those by hosts on several leaf groups of a pod; the caller adds what it finds."""
        width = fabric.topology.groups_per_pod
        groups = slice(pod * width, (pod + 1) * width)
        state = fabric.free_hosts[groups], fabric.free_uplinks[groups]
        entry = self._in_pod.get(pod)
        if entry is None or entry[0] != state:
            entry = self._in_pod[pod] = state, {}
        return entry[1]

    def in_several_pods(self, fabric: LedgerView) -> Known:
        """Those by leaves on full leaf groups without a remainder; the caller adds what it finds.

        No leaf group of the fabric misses an uplink (``Ledger.odd_groups``). Of the free hosts
        the search reads in which order they put pods with equally many full leaf groups.
        """
        full, lanes, free = fabric.groups_by_free[-1], fabric.free_lanes, fabric.pod_free_hosts
        entry = self._in_pods
        if (
            entry is not None
            and entry.full == full
            and entry.lanes == lanes
            and entry.ordered(free) == entry.order
        ):
            return entry.known
        counts = [groups[-1].bit_count() for groups in fabric.pod_groups_by_free]
        pods = [pod for pod, count in enumerate(counts) if count]
        entry = self._in_pods = _InPods(full, list(lanes), pods, counts)
        entry.order = entry.ordered(free)
        return entry.known

    def copy(self) -> KnownFits:
        return self

    def __reduce__(self) -> tuple[type[KnownFits], tuple[()]]:
        return KnownFits, ()
