# SPDX-License-Identifier: Apache-2.0

"""Tables to write between two others, so that no packet goes round in a mixture of them.

While OpenSM writes, some switches have old entries and others new ones. Owners that come or go turn
no entry round, but a fault does: the switch that has lost its way down sends a packet back to a
leaf, which still sends it up to that switch. No single write avoids this, so one set of entries is
missing in between. InfiniBand has no limit of hops.

The rule needs nothing but both tables and the cables. Old and new entries towards a destination
make one graph. Of its cycles either the old or the new of those entries that change are left out:
of one destination always the same, so that each mixture with the tables before and after has no
cycle. The side is chosen by which fewer switches with adapters lose their path.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.inventory import CableEnds
from laas_service.domain.routing.default_tables import NO_ROUTE

Rows = Mapping[int, bytes]
"""Switch GUID -> ports by LID."""

LONGEST = 16
"""More switches than any path has."""

_Entries = NDArray[np.intp]
"""Entries by switch and LID: number of the switch * number of LIDs + LID."""


def between(olds: Sequence[Rows], new: Rows, cables: Iterable[CableEnds]) -> dict[int, bytes]:
    """Rows to write before ``new``, of the switches where they differ from it.

    Each switch has its row of one of ``olds``, which do not loop by themselves. Empty if the new
    rows can be written at once.
    """
    graph = _Graph([*olds, new], cables)
    cyclic = graph.cyclic()
    if not len(cyclic):
        return {}
    return graph.rows_without(cyclic)


class _Graph:
    """Towards each LID, the switches as nodes and the entries of all tables as edges."""

    def __init__(self, several: Sequence[Rows], cables: Iterable[CableEnds]) -> None:
        self._guids = sorted(several[-1])
        number = {guid: n for n, guid in enumerate(self._guids)}
        self._width = max((len(row) for rows in several for row in rows.values()), default=0)
        self._ports = [self._matrix(rows) for rows in several]
        self._ahead = np.full((len(number), 256), -1, np.intp)
        self._attached = np.zeros(len(number), bool)
        for ends in cables:
            for near, far in (ends, ends[::-1]):
                if near.guid in number and far.guid in number:
                    self._ahead[number[near.guid], near.port] = number[far.guid]
                elif near.guid in number:
                    self._attached[number[near.guid]] = True

    def _matrix(self, rows: Rows) -> NDArray[np.uint8]:
        missing = bytes([NO_ROUTE])
        padded = (rows.get(guid, b"").ljust(self._width, missing) for guid in self._guids)
        return np.frombuffer(b"".join(padded), np.uint8).reshape(len(self._guids), self._width)

    def _onward(self, ports: NDArray[np.uint8], entries: _Entries) -> _Entries:
        """The entry that follows each of these; -1: the path ends, well or not."""
        switches, lids = np.divmod(entries, self._width)
        ahead = self._ahead[switches, ports[switches, lids]]
        following: _Entries = np.where(ahead < 0, -1, ahead * self._width + lids)
        return following

    def cyclic(self) -> _Entries:
        """The entries on cycles, and between two cycles; each has a table in which it leads on."""
        new, among = self._ports[-1], np.zeros(self._ports[-1].size, bool)
        different = np.zeros(new.shape, bool)
        for ports in self._ports[:-1]:
            different |= ports != new
        (ahead,) = different.reshape(-1).nonzero()
        while len(ahead):  # a cycle has an entry that changes
            among[ahead] = True
            onward = [self._onward(ports, ahead) for ports in self._ports]
            ahead = np.unique(np.concatenate(onward))
            ahead = ahead[ahead >= 0]
            ahead = ahead[~among[ahead]]
        (entries,) = among.nonzero()
        while len(entries):
            onward = [self._onward(ports, entries) for ports in self._ports]
            leads = np.any([(each >= 0) & among[each] for each in onward], axis=0)
            reached = np.unique(np.concatenate([each[each >= 0] for each in onward]))
            kept = leads & np.isin(entries, reached, assume_unique=True)
            if kept.all():
                break
            among[entries[~kept]] = False
            entries = entries[kept]
        return entries

    def rows_without(self, cyclic: _Entries) -> dict[int, bytes]:
        """The rows in between, of the switches where they differ from the new ones."""
        new = self._ports[-1]
        within = np.zeros(new.size, bool)
        within[cyclic] = True
        switches, lids = np.divmod(cyclic, self._width)
        inside = [self._is_within(ports, cyclic, within) for ports in self._ports]
        differs = np.all([p[switches, lids] != new[switches, lids] for p in self._ports[:-1]], 0)
        looping = np.unique(lids)
        left_out = {-1: cyclic[inside[-1] & differs]}
        if len(self._ports) == 2:
            left_out[0] = cyclic[inside[0] & differs]
        losses = np.array([self._losses(n, looping, out) for n, out in left_out.items()])
        chosen = losses.argmin(axis=0)
        made = new.copy()
        for which, (n, out) in enumerate(left_out.items()):
            columns = looping[chosen == which]
            made[:, columns] = self._ports[n][:, columns]
            out = out[np.isin(out % self._width, columns)]
            made.reshape(-1)[out] = NO_ROUTE
        missing = bytes([NO_ROUTE])
        return {
            guid: row.tobytes().rstrip(missing)
            for guid, row, wanted in zip(self._guids, made, new, strict=True)
            if not np.array_equal(row, wanted)
        }

    def _is_within(
        self, ports: NDArray[np.uint8], entries: _Entries, among: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        onward = self._onward(ports, entries)
        return (onward >= 0) & among[onward]

    def _losses(self, table: int, lids: _Entries, left_out: _Entries) -> NDArray[np.intp]:
        """For each LID, the switches with adapters whose path in a table has such an entry."""
        gone = np.zeros(self._ports[table].size + 1, bool)  # the last one stands for -1
        gone[left_out] = True
        (starts,) = self._attached.nonzero()
        entries = (starts[:, None] * self._width + lids).reshape(-1)
        lost = np.zeros(len(entries), bool)
        for _ in range(LONGEST):
            lost |= gone[entries]
            onward = self._onward(self._ports[table], np.maximum(entries, 0))
            entries = np.where(entries < 0, -1, onward)
        counts: NDArray[np.intp] = lost.reshape(len(starts), len(lids)).sum(axis=0)
        return counts
