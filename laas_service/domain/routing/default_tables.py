# SPDX-License-Identifier: Apache-2.0

"""Default forwarding tables: D-mod-k on the physical tree, whatever tenants hold.

For the promises see ``laas_service.domain.routing.tenant_tables``, whose default step this is. All
destinations are looked at together: sets of switches are masks, rows are arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.inventory import Inventory
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link, Xgft

NO_ROUTE = 255
"""Stands for "no entry" in a row; never written to a switch."""

Row = NDArray[np.uint8]
"""A switch's ports, one for each destination."""


class _Way(NamedTuple):
    """One end of a cable: the number of the switch at the other end, and the own port."""

    to: int
    port: int


class _Tier(NamedTuple):
    """Cables that may be used together: of each switch those that lead down, and up."""

    down: Sequence[Sequence[_Way]]
    up: Sequence[Sequence[_Way]]


class _Destinations(NamedTuple):
    """LIDs to be reached, as arrays of equal length.

    ``at`` is the number of the switch where each hangs, ``rank`` that switch's place in
    its level, ``turn`` counts the destinations of a switch from 0.
    """

    at: NDArray[np.intp]
    rank: NDArray[np.intp]
    turn: NDArray[np.intp]

    def some(self, which: NDArray[np.bool_]) -> _Destinations:
        return _Destinations(*(each[which] for each in self))


class DefaultRoutes:
    """All switches and cables, and the default step over them.

    Switches are numbered by level, within it first those that have no place in the
    regular tree, then by GUID; every cable leads up from the lower number, so that
    ascending and descending order are orders of height even where cables join
    switches of one level.
    """

    def __init__(
        self, inventory: Inventory, failed: frozenset[Link], tree: Xgft, plane: SharedPlane
    ) -> None:
        regular = {*inventory.leaf_guids, *inventory.l2_guids, *inventory.spine_guids}
        self._switches = sorted(
            inventory.switches, key=lambda s: (s.level, s.guid in regular, s.guid)
        )
        self._number = {switch.guid: n for n, switch in enumerate(self._switches)}
        self._parallel = tree.cables[0]
        self._preferred = [
            cable.link is not None and plane.carries(tree, cable.link) for cable in inventory.cables
        ]
        self._tiers = self._make_tiers(inventory, failed)
        broken = any(cable.link in failed for cable in inventory.cables)
        self._sound = self._tiers[:-1] if broken else self._tiers
        hanging: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for endpoint in inventory.endpoints:
            hanging[endpoint.at.guid].append((endpoint.at.port, endpoint.guid))
        self._own: list[tuple[int, bytes]] = []
        """Of each switch the place of its first destination, and its entries to its own."""
        found: list[int] = []
        for switch in self._switches:
            hung = sorted(hanging[switch.guid])
            self._own.append((len(found), bytes([*(port for port, _ in hung), 0])))
            found += [guid for _, guid in hung]
            found.append(switch.guid)
        self.destinations = tuple(found)

    def _make_tiers(self, inventory: Inventory, failed: frozenset[Link]) -> list[_Tier]:
        """Regular cables of the plane (of all, if there is none) that work; then all regular
        ones that work; then irregular ones too; then failed ones too."""
        ranked: list[list[tuple[tuple[int, ...], _Way, _Way]]] = [[], [], [], []]
        for cable, preferred in zip(inventory.cables, self._preferred, strict=True):
            lower, upper = cable.lower, cable.upper
            if self._number[lower.guid] > self._number[upper.guid]:
                lower, upper = upper, lower
            order = (cable.link[2] if cable.link else 1 << 16, lower.port)
            up, down = (
                _Way(self._number[upper.guid], lower.port),
                _Way(self._number[lower.guid], upper.port),
            )
            sound = 2 if cable.link is None else 3 if cable.link in failed else 1
            ranked[0 if sound == 1 and preferred else sound].append((order, up, down))
        tiers: list[_Tier] = []
        usable: list[tuple[tuple[int, ...], _Way, _Way]] = []
        for more in ranked:
            if tiers and not more:
                continue
            usable = sorted(usable + more)
            downs: list[list[_Way]] = [[] for _ in self._switches]
            ups: list[list[_Way]] = [[] for _ in self._switches]
            for _, up, down in usable:
                ups[down.to].append(up)
                downs[up.to].append(down)
            tiers.append(_Tier(downs, ups))
        return tiers

    def rows(self) -> dict[int, bytes]:
        """The ports towards ``destinations``, by GUID of the switch.

        Up and down where that is possible, else by the pivot, else as it comes.
        """
        all_of_them = self._all_destinations()
        rows, reached = self._ways_to(all_of_them, self._sound)
        for row, (place, own) in zip(rows, self._own, strict=True):
            row[place : place + len(own)] = np.frombuffer(own, np.uint8)
        pivot = self._pivot(reached)
        if pivot is not None:
            self._lead_over(pivot, rows)
        missing = np.zeros(len(self.destinations), bool)
        for row in rows:
            missing |= row == NO_ROUTE
        if missing.any():
            anyhow, _ = self._ways_to(all_of_them.some(missing), self._tiers)
            for row, otherwise in zip(rows, anyhow, strict=True):
                row[missing] = np.where(row[missing] == NO_ROUTE, otherwise, row[missing])
        by_guid = {s.guid: row.tobytes() for s, row in zip(self._switches, rows, strict=True)}
        return dict(sorted(by_guid.items()))

    def _all_destinations(self) -> _Destinations:
        in_level: dict[int, int] = defaultdict(int)
        at: list[int] = []
        rank: list[int] = []
        turn: list[int] = []
        for number, (switch, (_, own)) in enumerate(zip(self._switches, self._own, strict=True)):
            at += [number] * len(own)
            rank += [in_level[switch.level]] * len(own)
            turn += range(len(own))
            in_level[switch.level] += 1
        return _Destinations(*(np.array(each, np.intp) for each in (at, rank, turn)))

    def _lead_over(self, pivot: int, rows: Sequence[Row]) -> None:
        """Send what has no way to the pivot, if that has one."""
        place = np.zeros(1, np.intp)
        to_pivot, _ = self._ways_to(_Destinations(place + pivot, place, place), self._sound)
        onward = rows[pivot] != NO_ROUTE
        for row, (port,) in zip(rows, to_pivot, strict=True):
            row[onward & (row == NO_ROUTE)] = port

    def _pivot(self, reached: Sequence[int]) -> int | None:
        """The leaf that is reached by most of those above which no paths meet; None without such.

        ``reached`` has for every switch the leaves that it reaches.
        """
        best, most = None, 0
        for leaf, switch in enumerate(self._switches):
            if switch.level > 1 or most == len(self._switches):
                break
            if self._is_tree_above(leaf):
                reach = sum(mask >> leaf & 1 for mask in reached)
                if reach > most:
                    best, most = leaf, reach
        return best

    def _is_tree_above(self, leaf: int) -> bool:
        """Whether there is one way up from a leaf to each switch above it."""
        above = {leaf}
        for number in range(leaf + 1, len(self._switches)):
            ways = {way.to for way in self._tiers[-1].down[number]} & above
            if ways:
                above.add(number)
            if len(ways) > 1:
                return False
        return True

    def _ways_to(
        self, wanted: _Destinations, tiers: Sequence[_Tier]
    ) -> tuple[list[Row], list[int]]:
        """A row for each switch, and the switches that it reaches, as masks.

        Digits: up at level 1 the turn, higher up the rank of the target in its level
        (with parallel cables rank * cables + turn % cables), down where there is a
        choice rank + turn.
        """
        rows = [np.full(len(wanted.at), NO_ROUTE, np.uint8) for _ in self._switches]
        high = wanted.rank * self._parallel + wanted.turn % self._parallel
        low = wanted.rank + wanted.turn
        down = [0] * len(self._switches)
        for number in set(wanted.at.tolist()):
            down[number] = 1 << number
        reached = list(down)
        for tier in tiers:
            for number, ways in enumerate(tier.down):
                groups = _groups(ways, down, reached[number])
                _enter(rows[number], wanted.at, low, groups, len(down))
                new = sum(targets for targets, _ in groups)
                down[number] |= new
                reached[number] |= new
            for number in range(len(self._switches) - 1, -1, -1):
                digit = wanted.turn if self._switches[number].level == 1 else high
                groups = _groups(tier.up[number], reached, reached[number])
                _enter(rows[number], wanted.at, digit, groups, len(down))
                reached[number] |= sum(targets for targets, _ in groups)
        return rows, reached


def _groups(
    ways: Iterable[_Way], reach: Sequence[int], known: int
) -> list[tuple[int, tuple[int, ...]]]:
    """Targets beyond ``known`` that some ways reach: disjoint masks, each with all its ports."""
    found: dict[tuple[int, ...], int] = {}
    for way in ways:
        left = reach[way.to] & ~known
        split: dict[tuple[int, ...], int] = {}
        for ports, targets in found.items():
            both = targets & left
            if both:
                split[*ports, way.port] = both
            if both != targets:
                split[ports] = targets ^ both
            left ^= both
        if left:
            split[way.port,] = left
        found = split
    return [(targets, ports) for ports, targets in found.items()]


def _enter(
    row: Row,
    at: NDArray[np.intp],
    digit: NDArray[np.intp],
    groups: Sequence[tuple[int, tuple[int, ...]]],
    switches: int,
) -> None:
    """Write each group's ports to the entries of its targets, ``digit`` modulo their number."""
    if not groups:
        return
    group_of = np.full(switches, -1, np.intp)
    choices = np.array([len(ports) for _, ports in groups], np.intp)
    ports_of = np.zeros((len(groups), max(choices)), np.uint8)
    for number, (targets, ports) in enumerate(groups):
        packed = np.frombuffer(targets.to_bytes(switches // 8 + 1, "little"), np.uint8)
        group_of[np.unpackbits(packed, bitorder="little")[:switches].view(bool)] = number
        ports_of[number, : len(ports)] = ports
    group = group_of[at]
    (places,) = (group >= 0).nonzero()
    group = group[places]
    row[places] = ports_of[group, digit[places] % choices[group]]
