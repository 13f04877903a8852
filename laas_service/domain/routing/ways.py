# SPDX-License-Identifier: Apache-2.0

"""Default entries that keep off owned cables.

A cable that an allocation holds is *held*. Towards each switch a *way* of another switch is a port
that may lead on: down where a way down works, else up. So the direction follows from hardware and
faults alone, and no mixture of the tables of two sets of owners loops. Among its ways a switch
takes one with the fewest held cables ahead, up to the destination; among several one that stays on
the common plane, if there is one; among several of these

* the port that the switch would take if no cable were held (``default_tables``), if it is one;
* else the one with the highest weight, which depends on the destination and the way only
  (rendezvous hashing). So a way that joins the cheapest, or leaves them, moves no other entries.
  Towards a switch's own LID the last way weighs most, and its usual port is the last one, too.
  Few packets go there, and policies take the first links first, so these entries seldom change.

*Exact.* A path that goes up and then down consists of ways, unless it goes up where a way down
works. Where no spine stands above two L2 switches of one pod, such a detour leads back to the
switch that it left. So every switch then has the fewest held cables of all paths up and then down.

Towards the ports of a tenant, its own entries stay: at a switch that has some, nothing held is
ahead. Its own cables count as free there. A switch whose entry is a dead end is avoided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HELD = 2
"""The cost of a held cable; the last bit says that a way leaves the common plane."""

DEAD_END = 1 << 10
"""More than the cost of any way."""

NO_WAY = 1 << 13
"""More than the cost of a dead end."""

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]
Costs = NDArray[np.int16]


class Part(NamedTuple):
    """Ways of a switch in one direction, and the switches that they lead to."""

    switch: int
    place: NDArray[np.int16]
    """Of each switch its place among the targets, ascending; -1: it is not one."""

    ports: Places
    neighbors: Places
    """The switch behind each port."""

    leads: Flags | None
    """By port and target, whether the port leads there; None: each leads to each."""


@dataclass(frozen=True, eq=False)
class Ways:
    """All ways of a fabric: they follow from the hardware and the faults."""

    parts: Sequence[Part]
    """In the order in which costs follow from each other."""

    off_plane: NDArray[np.int16]
    """By switch and port: 1 if the cable is not for shared traffic, else 0."""

    home: Places
    """Of each destination the number of its switch."""

    rows: Sequence[NDArray[np.uint8]]
    """By switch, the ports that it takes towards each destination if no cable is held."""

    kept: Mapping[int, Flags] = field(default_factory=dict)
    """By switch, the destinations towards which its entry never changes, as further turns follow
    from it (``service_routes``)."""

    @cached_property
    def port_place(self) -> list[NDArray[np.int16]]:
        """By part, the place of each port number among its ports; -1: it is none of them."""
        places = []
        for part in self.parts:
            place = np.full(256, -1, np.int16)
            place[part.ports] = np.arange(len(part.ports))
            places.append(place)
        return places

    @cached_property
    def weights(self) -> dict[int, NDArray[np.uint16]]:
        """By number of ways: 1 + the weight of each way for each destination."""
        last = np.append(self.home[1:] != self.home[:-1], True)
        weights = {}
        for count in {len(part.ports) for part in self.parts}:
            weights[count] = _weights(count, len(self.home))
            weights[count][:, last] = np.arange(1, count + 1)[:, None]
        return weights


def _weights(ways: int, destinations: int) -> NDArray[np.uint16]:
    """Fixed numbers without a pattern (the finalizer of MurmurHash3), by way and destination."""
    mixed = np.arange(destinations, dtype=np.uint32) * np.uint32(0x9E3779B1)
    mixed = mixed + (np.arange(ways, dtype=np.uint32) * np.uint32(0x7FEB352D))[:, None]
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    return (mixed >> np.uint32(17)).astype(np.uint16) + np.uint16(1)


class Tenant(NamedTuple):
    """What the default entries have to know of a tenant."""

    held: frozenset[tuple[int, int]]
    """Both ends of its cables, as (switch, port)."""

    ports: Sequence[TenantPorts]


@dataclass(frozen=True, eq=False)
class TenantPorts:
    """Ports of one tenant on one leaf, and what the default entries towards them meet."""

    home: int
    """The number of the leaf."""

    positions: Sequence[int]
    """The ports, by their place among all destinations."""

    own: Mapping[int, bool]
    """The switches that have the tenant's entries: whether those reach the ports."""

    free: Sequence[tuple[int, int]] = ()
    """The tenant's cables at other switches, as (switch, port)."""


class OwnedRows:
    """The default entries of all switches while some cables are held.

    ``reserved`` are the ends of cables that are held besides those of ``tenants``, as (switch,
    port). ``earlier`` only saves time: the entries of the same ``ways`` beside other owners.
    """

    def __init__(
        self,
        ways: Ways,
        tenants: Sequence[Tenant],
        reserved: Iterable[tuple[int, int]] = (),
        earlier: OwnedRows | None = None,
    ) -> None:
        self.ways = ways
        switches = len(ways.rows)
        self._held = np.zeros((switches, 256), np.int16)
        held = {*reserved}.union(*(tenant.held for tenant in tenants))
        self._held.reshape(-1)[[switch * 256 + port for switch, port in held]] = HELD
        self._ports = [ports for tenant in tenants for ports in tenant.ports]
        self._columns = np.array([*range(switches), *(p.home for p in self._ports)], np.intp)
        """Of each column of costs the switch that it leads to: of all, then of tenants' ports."""
        self._column_of = ways.home.copy()
        """Of each destination."""
        self._own: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        free: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for column, ports in enumerate(self._ports, switches):
            self._column_of[list(ports.positions)] = column
            for switch, arrives in ports.own.items():
                columns, costs = self._own[switch]
                columns.append(column)
                costs.append(0 if arrives else DEAD_END)
            for switch, port in ports.free:
                free[switch].append((port, column))
        self._free = {
            switch: (ports, columns)
            for switch, ends in free.items()
            for ports, columns in [np.array(ends, np.intp).T]
        }
        """By switch, ports with the columns towards which their cables count as free."""
        if earlier is not None and earlier.ways is not ways:
            earlier = None
        self._costs: Costs = np.full((switches, len(self._columns)), NO_WAY, np.int16)
        self._costs[np.arange(switches), np.arange(switches)] = 0
        self._changed = np.ones(self._costs.shape, bool)
        """By switch and column, whether the cost is not that of ``earlier``."""
        moved: Places | None = None
        if earlier is not None:
            (moved,) = self._take_over(earlier).nonzero()
        for column, home in enumerate(self._columns[switches:].tolist(), switches):
            self._costs[home, column] = 0
        self.rows: list[NDArray[np.uint8]] = [
            row if earlier is None else earlier.rows[switch] for switch, row in enumerate(ways.rows)
        ]
        self._copied = [False] * switches
        for number, part in enumerate(ways.parts):
            self._choose(number, part, earlier, moved)
        del self._changed

    def _take_over(self, earlier: OwnedRows) -> Flags:
        """Take costs over; returns the destinations that have another column."""
        switches = len(self.ways.rows)
        known = {id(ports): column for column, ports in enumerate(earlier._ports, switches)}
        before = [*range(switches), *(known.get(id(ports), -1) for ports in self._ports)]
        old = np.array(before, np.intp)
        same = old >= 0
        self._costs[:, same] = earlier._costs[:, old[same]]
        self._changed[:, same] = False
        new_column = np.full(earlier._costs.shape[1], -1, np.intp)
        new_column[old[same]] = same.nonzero()[0]
        return np.not_equal(new_column[earlier._column_of], self._column_of)

    def _choose(
        self, number: int, part: Part, earlier: OwnedRows | None, moved: Places | None
    ) -> None:
        """Costs and entries of a part, as far as they may have changed.

        ``moved`` are the destinations that had another column in ``earlier``.
        """
        switch, here = part.switch, (part.switch, part.ports)
        member = part.place[self._columns] >= 0
        if earlier is None or (self._held[here] != earlier._held[here]).any():
            stale = member
        else:
            stale = self._changed[part.neighbors].any(axis=0) & member
        (renewed,) = stale.nonzero()
        old = self._costs[switch, renewed]
        if len(renewed):
            via, best = self._via(number, part, renewed)
            self._costs[switch, renewed] = best
            self._write(number, part, renewed, via == best)
        if switch in self._own:
            own, costs = self._own[switch]
            self._costs[switch, own] = costs
        if earlier is not None:
            self._changed[switch, renewed] |= self._costs[switch, renewed] != old
        if moved is not None and len(moved):
            of = self._column_of[moved]
            left = moved[member[of] & ~stale[of]]
            if len(left):
                columns = np.unique(self._column_of[left])
                via, best = self._via(number, part, columns)
                self._write(number, part, columns, via == best, left)

    def _via(self, number: int, part: Part, columns: Places) -> tuple[Costs, Costs]:
        """The cost over each way towards these columns, which ascend, and the least."""
        switch, ports = part.switch, part.ports
        via = self._costs[part.neighbors[:, None], columns]
        via += self._held[switch, ports][:, None]
        if switch in self._free:
            free, towards = self._free[switch]
            way, at = self.ways.port_place[number][free], np.searchsorted(columns, towards)
            at[at == len(columns)] = 0
            known = (way >= 0) & (columns[at] == towards)
            via[way[known], at[known]] -= self._held[switch, free[known]]
        via |= self.ways.off_plane[switch, ports][:, None]
        if part.leads is not None:
            via[~part.leads[:, part.place[self._columns[columns]]]] = NO_WAY
        return via, via.min(axis=0, initial=NO_WAY)

    def _write(
        self,
        number: int,
        part: Part,
        columns: Places,
        cheapest: Flags,
        destinations: Places | None = None,
    ) -> None:
        """Write the entries towards the destinations of these columns."""
        ways, switch = self.ways, part.switch
        place = np.full(len(self._columns), -1, np.intp)
        place[columns] = np.arange(len(columns))
        if destinations is None:
            destinations = (place[self._column_of] >= 0).nonzero()[0]
        if switch in ways.kept:
            destinations = destinations[~ways.kept[switch][destinations]]
        at = place[self._column_of[destinations]]
        row = ways.rows[switch][destinations].copy()
        usual = ways.port_place[number][row]
        (dear,) = ((usual < 0) | ~cheapest[usual, at]).nonzero()
        if len(dear):
            weights = ways.weights[len(part.ports)][:, destinations[dear]]
            taken = (weights * cheapest[:, at[dear]]).argmax(axis=0)
            row[dear] = part.ports[taken]
        present = self.rows[switch]
        if not np.array_equal(present[destinations], row):
            if not self._copied[switch]:
                present = self.rows[switch] = present.copy()
                self._copied[switch] = True
            present[destinations] = row

    def crossing(self, switch: int) -> Places:
        """The destinations towards which packets of a switch may cross a held cable.

        There is one ahead on each way that goes up and then down, or no such way.
        """
        crossing: Flags = self._costs[switch, self._column_of] >= HELD
        if switch in self.ways.kept:
            crossing |= self.ways.kept[switch]
        return crossing.nonzero()[0]

    def costs(self, destinations: Sequence[int]) -> Costs:
        """The least cost from each switch (rows) to each of these destinations."""
        return self._costs[:, self._column_of[list(destinations)]]
