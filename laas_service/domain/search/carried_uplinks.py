# SPDX-License-Identifier: Apache-2.0

"""The uplinks that spine uplinks carry, if so many leaves of a pod use each uplink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from laas_service.domain.lanes import with_at_least
from laas_service.domain.topology import Topology

MOST_KNOWN = 4096
"""The most sets of columns whose uplinks are kept."""


class Carried:
    """The uplinks that spine uplinks carry, if so many leaves of a pod use each uplink."""

    def __init__(self, topology: Topology, leaves: int) -> None:
        taper = topology.taper[1]
        self._columns = topology.columns
        self._lane = lane = topology.lane
        needs = tuple([-(-leaves * column.rails // taper) for column in topology.columns])
        self.marked: Callable[[int], int] = lambda lanes: 0
        """Marks the highest bit of every lane in which such spine uplinks carry an uplink."""
        if max(needs) < 1 << lane - 1:
            self.marked = with_at_least(needs, lane)
        self.fields = [
            (column.number * lane, (1 << lane) - 1, need)
            for column, need in zip(topology.columns, needs, strict=True)
        ]
        """By lane, where it starts, its mask, and how many spine uplinks it needs."""
        self._uplinks: dict[int, int] = {}
        self._above: dict[int, int] = {}

    def by(self, lanes: int) -> int:
        """The uplinks that such spine uplinks (``LedgerView.free_lanes``) carry."""
        marked = self.marked(lanes)
        uplinks = self._uplinks.get(marked)
        if uplinks is None:
            if len(self._uplinks) >= MOST_KNOWN:
                self._uplinks.clear()
            uplinks = self._uplinks[marked] = sum(
                column.bundle
                for column in self._columns
                if marked >> column.number * self._lane + self._lane - 1 & 1
            )
        return uplinks

    def filled(self, marked: int) -> int:
        """The lanes that are ``marked``, with all their bits."""
        return (marked << 1) - (marked >> self._lane - 1)

    def above(self, uplinks: int) -> int:
        """The lanes of all spine uplinks above these uplinks."""
        lanes = self._above.get(uplinks)
        if lanes is None:
            if len(self._above) >= MOST_KNOWN:
                self._above.clear()
            lanes = self._above[uplinks] = sum(
                (1 << self._lane) - 1 << column.number * self._lane
                for column in self._columns
                if column.bundle & uplinks
            )
        return lanes


@dataclass(slots=True)
class CarriedUplinks:
    """``Carried`` by number of leaves; kept with a ledger (``reader_cache``)."""

    _by_leaves: dict[int, Carried] = field(default_factory=dict, compare=False)

    def of(self, topology: Topology, leaves: int) -> Carried:
        """What spine uplinks carry of so many leaves."""
        carried = self._by_leaves.get(leaves)
        if carried is None:
            carried = self._by_leaves[leaves] = Carried(topology, leaves)
        return carried

    def copy(self) -> CarriedUplinks:
        return self  # what is kept is true of any ledger of the topology

    def __reduce__(self) -> tuple[type[CarriedUplinks], tuple[()]]:
        return CarriedUplinks, ()  # functions cannot be pickled, and are made again
