# SPDX-License-Identifier: Apache-2.0

"""Placements that earlier searches found where everything free is as it was then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.shapes import Placement
from laas_service.domain.search.whole_leaves import WholeLeaves

Known = dict[int, Placement]
"""The first placement that a search found, by its size."""


@dataclass(slots=True)
class InSeveralPods:
    """Placements on full leaf groups of several pods, and what a search for them reads."""

    groups: int
    """The leaf groups all of whose hosts are free."""
    free: list[int]
    """By pod, how many hosts are free; only the order in which they put the pods matters."""
    leaves: WholeLeaves
    placements: Known = field(default_factory=dict)
    """By their number of leaf groups."""

    def holds(self, fabric: LedgerView) -> bool:
        """Whether a search reads the same on the fabric as it is now."""
        free = fabric.pod_free_hosts
        if self.groups != fabric.groups_by_free[-1] or self.leaves.lanes != fabric.free_lanes:
            return False
        if self.free != free:
            if not self.leaves.ordered_by(free):
                return False
            self.free = list(free)
        return True

    @classmethod
    def of(cls, fabric: LedgerView) -> InSeveralPods:
        """What a search reads now, without placements."""
        free = list(fabric.pod_free_hosts)
        return cls(fabric.groups_by_free[-1], free, WholeLeaves.of(fabric))


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
    _in_pods: InSeveralPods | None = field(default=None, compare=False)

    @staticmethod
    def kept_with(fabric: LedgerView) -> KnownFits | None:
        """That of a ledger, if it has one."""
        known: KnownFits | None = fabric.reader_caches.get(KnownFits)
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

    def in_several_pods(self, fabric: LedgerView) -> InSeveralPods:
        """Those on full leaf groups without a remainder; the caller adds what it finds.

        No leaf group of the fabric misses an uplink (``Ledger.odd_groups``).
        """
        entry = self._in_pods
        if entry is None or not entry.holds(fabric):
            entry = self._in_pods = InSeveralPods.of(fabric)
        return entry

    def copy(self) -> KnownFits:
        return self

    def __reduce__(self) -> tuple[type[KnownFits], tuple[()]]:
        return KnownFits, ()
