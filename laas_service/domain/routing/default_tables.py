# SPDX-License-Identifier: Apache-2.0

"""Default forwarding tables while no cable is held: D-mod-k on the physical tree.

``laas_service.domain.routing.fabric_tables`` says what these entries promise, and ``ways`` which of
them change for owned cables. All destinations are handled at once: sets of switches are masks,
rows are arrays.

Source: Zahavi, CCIT report 776.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.routing.service_routes import ServiceRoutes
from laas_service.domain.routing.ways import Flags, Part, Places, Ways
from laas_service.domain.topology import Link, Xgft

NO_ROUTE = 255
"""Stands for "no entry" in a row; never written to a switch."""

Row = NDArray[np.uint8]
"""A switch's ports, one for each destination."""


class _Neighbor(NamedTuple):
    """The switch at the other end of a cable, by number, and the own port."""

    switch: int
    port: int


class _Tier(NamedTuple):
    """Cables that may be used together: the neighbors below and above each switch."""

    down: Sequence[Sequence[_Neighbor]]
    up: Sequence[Sequence[_Neighbor]]


class _Destinations(NamedTuple):
    """LIDs to be reached, as arrays of equal length."""

    switch: NDArray[np.intp]
    """The number of the switch that each is attached to, or is."""

    rank: NDArray[np.intp]
    """The place of that switch in its level."""

    position: NDArray[np.intp]
    """The place of the destination among those of its switch, from 0; -1: the switch itself, which
    so takes the last port."""

    def selected(self, mask: NDArray[np.bool_]) -> _Destinations:
        return _Destinations(*(column[mask] for column in self))


Choices = list[tuple[int, tuple[int, ...]]]
"""Disjoint masks of switches, each with the ports that share the entries towards them."""


class _Inputs(NamedTuple):
    """What the choices of a switch in one sweep follow from."""

    neighbors: Sequence[_Neighbor]
    reach: Sequence[int]
    """Of each neighbor, the mask of the switches that it reaches."""

    known: int
    """The mask of those that the switch reaches already."""


class Entries(NamedTuple):
    """The entries of a switch that lead up and then down, and what they were made from."""

    inputs: Sequence[_Inputs]
    choices: Sequence[Choices]
    """Both by tier, first of those that lead down, then of those that lead up."""

    row: Row


Computed = dict[int | None, list[Entries]]
"""Entries by switch: towards all destinations (None, and ``ALL_REGULAR`` without a plane), and
towards a switch by its number."""

ALL_REGULAR = -1


class Need(Enum):
    """What a path between two adapters is for."""

    SERVICE = "a host for tenants, and a service or subnet manager"
    TENANTS = "hosts for tenants; needed by tenants that own no links"
    SERVICES = "services"


def _need(one: Endpoint, other: Endpoint) -> Need:
    tenants = sum(endpoint.host is not None for endpoint in (one, other))
    return (Need.SERVICES, Need.SERVICE, Need.TENANTS)[tenants]


class Unreached(NamedTuple):
    """Pairs of adapters that cables connect and the default tables do not."""

    pairs: int
    """Ordered pairs of adapters, at least 1."""

    switch: int
    """GUID of the first switch with such an adapter and without an entry."""

    endpoint: Endpoint
    """The first adapter for which that switch has no entry."""


class DefaultRoutes:
    """All switches and cables, and the default entries over them.

    Switches are numbered by level, within a level first those outside the regular tree,
    then by GUID. Every cable leads up from the lower number to the higher one, so
    ascending order goes up even where cables join switches of one level.

    ``earlier`` only saves time: ``computed`` for the same hardware and plane with other faults.
    """

    def __init__(
        self,
        inventory: Inventory,
        failed: frozenset[Link],
        tree: Xgft,
        plane: CommonPlane,
        earlier: Computed | None = None,
    ) -> None:
        self._earlier = earlier or {}
        self.computed: Computed = {}
        """Empty before ``rows``."""
        self._inventory = inventory
        regular = {*inventory.leaf_guids, *inventory.l2_guids, *inventory.spine_guids}
        self._switches = sorted(
            inventory.switches, key=lambda s: (s.level, s.guid in regular, s.guid)
        )
        self.number = {switch.guid: n for n, switch in enumerate(self._switches)}
        """By GUID of a switch."""
        self._parallel = tree.cables[0]
        self._preferred = [
            cable.link is not None and plane.carries(tree, cable.link) for cable in inventory.cables
        ]
        self._plane_apart = False
        """Whether the first tier has the plane alone, and the next all regular cables."""
        self._kept: dict[int, Flags] = {}
        self._tiers = self._make_tiers(inventory, failed)
        any_failed = any(cable.link in failed for cable in inventory.cables)
        self._working_tiers = self._tiers[:-1] if any_failed else self._tiers
        attached = grouped((e.at.guid, (e.at.port, e.guid)) for e in inventory.endpoints)
        self._own: list[tuple[int, bytes]] = []
        """For each switch the index of its first destination, and its entries to its own."""
        destinations: list[int] = []
        for switch in self._switches:
            adapters = sorted(attached[switch.guid])
            self._own.append((len(destinations), bytes([*(port for port, _ in adapters), 0])))
            destinations += [guid for _, guid in adapters]
            destinations.append(switch.guid)
        self.destinations = tuple(destinations)

    def _make_tiers(self, inventory: Inventory, failed: frozenset[Link]) -> list[_Tier]:
        """Tiers of cables, each with all cables of those before it.

        Working regular cables of the plane (without a plane: all); then all working regular
        ones; then irregular ones; then failed ones.
        """
        ranked: list[list[tuple[tuple[int, ...], _Neighbor, _Neighbor]]] = [[], [], [], []]
        for cable, preferred in zip(inventory.cables, self._preferred, strict=True):
            lower, upper = cable.lower, cable.upper
            if self.number[lower.guid] > self.number[upper.guid]:
                lower, upper = upper, lower
            order = (cable.link[2] if cable.link else 1 << 16, lower.port)
            up, down = (
                _Neighbor(self.number[upper.guid], lower.port),
                _Neighbor(self.number[lower.guid], upper.port),
            )
            rank = 2 if cable.link is None else 3 if cable.link in failed else 1
            ranked[0 if rank == 1 and preferred else rank].append((order, up, down))
        self._plane_apart = bool(ranked[1])
        tiers: list[_Tier] = []
        usable: list[tuple[tuple[int, ...], _Neighbor, _Neighbor]] = []
        for cables in ranked:
            if tiers and not cables:
                continue
            usable = sorted(usable + cables)
            downs: list[list[_Neighbor]] = [[] for _ in self._switches]
            ups: list[list[_Neighbor]] = [[] for _ in self._switches]
            for _, up, down in usable:
                ups[down.switch].append(up)
                downs[up.switch].append(down)
            tiers.append(_Tier(downs, ups))
        return tiers

    def rows(self) -> dict[int, bytes]:
        """The ports towards ``destinations``, by GUID of the switch.

        Up and then down where that is possible; else over the pivot; else over any cables,
        failed ones included.
        """
        destinations = self._all_destinations()
        everywhere = self._earlier.get(None, ())
        entries, reached = self._entries(destinations, self._working_tiers, everywhere)
        self.computed[None] = entries
        rows = [each.row.copy() for each in entries]
        for row, (first, own) in zip(rows, self._own, strict=True):
            row[first : first + len(own)] = np.frombuffer(own, np.uint8)
        missing = self._missing(rows)
        if missing.any() and (pivot := self._pivot(reached)) is not None:
            self._route_over_pivot(pivot, rows)
            missing = self._missing(rows)
        if missing.any():
            over_any, _ = self._entries(destinations.selected(missing), self._tiers)
            for row, fallback in zip(rows, over_any, strict=True):
                row[missing] = np.where(row[missing] == NO_ROUTE, fallback.row, row[missing])
        self._reach_services(rows)
        by_guid = {s.guid: row.tobytes() for s, row in zip(self._switches, rows, strict=True)}
        return dict(sorted(by_guid.items()))

    def _missing(self, rows: Iterable[Row]) -> NDArray[np.bool_]:
        """For each destination, whether a switch has no entry to it."""
        missing = np.zeros(len(self.destinations), bool)
        for row in rows:
            missing |= row == NO_ROUTE
        return missing

    def _reach_services(self, rows: Sequence[Row]) -> None:
        """Add routes to and from services where there are none.

        Known subnet managers need them to and from everything, other services to and from
        adapters: those of tenants first.
        """
        index = {guid: place for place, guid in enumerate(self.destinations)}
        home = self._all_destinations().switch.tolist()
        inventory = self._inventory
        managers = [index[e.guid] for e in inventory.managers]
        services = sorted(index[e.guid] for e in inventory.service_endpoints)
        tenants = sorted(index[e.guid] for e in inventory.endpoints if e.host is not None)
        switches = sorted(index[guid] for guid in self.number)
        rest = sorted({*index.values()}.difference(tenants, services, switches))
        steps: list[tuple[Sequence[int], Sequence[int], Sequence[int], bool]] = [
            (managers, range(len(rows)), [*tenants, *services, *rest, *switches], False),
            (services, sorted({home[tenant] for tenant in tenants}), tenants, True),
            (services, sorted({home[service] for service in services}), services, True),
        ]
        routes: ServiceRoutes | None = None
        for sources, starts, destinations, at_hubs in steps:
            homes = sorted({home[source] for source in sources})
            lacks = any((rows[n][list(sources)] == NO_ROUTE).any() for n in starts) or any(
                (rows[n][list(destinations)] == NO_ROUTE).any() for n in homes
            )
            if sources and lacks:
                routes = routes or self._service_routes(rows, home, set(tenants))
                hubs = routes.hubs(sorted({home[tenant] for tenant in tenants})) if at_hubs else []
                routes.add(sources, starts, destinations, hubs)
        if routes is not None:
            self._kept = self._turning(rows)

    def _turning(self, rows: Sequence[Row]) -> dict[int, Flags]:
        """By switch, the destinations that it sends up after a neighbor has sent them down."""
        turning: dict[int, Flags] = {}
        for upper, neighbors in enumerate(self._tiers[-1].down):
            for lower, port in neighbors:
                ups = [up.port for up in self._tiers[-1].up[lower]]
                turned = (rows[upper] == port) & np.isin(rows[lower], ups)
                if turned.any():
                    turning[lower] = turning.get(lower, turned) | turned
        return turning

    def ways(self, rows: Mapping[int, bytes]) -> Ways:
        """All ways, from ``rows``, the result of the method of that name.

        The plane decides among ways, and not about them.
        """
        tiers = self._working_tiers[1 if self._plane_apart else 0 :]
        if self._plane_apart:
            earlier = self._earlier.get(ALL_REGULAR, ())
            everywhere, _ = self._entries(self._all_destinations(), tiers, earlier)
            self.computed[ALL_REGULAR] = everywhere
        else:
            everywhere = self.computed[None]
        parts: list[Part] = []
        for step in range(2 * len(tiers)):
            tier, order = tiers[step // 2], range(len(self._switches))
            neighbors, order = (tier.up, order[::-1]) if step % 2 else (tier.down, order)
            for number in order:
                if groups := everywhere[number].choices[step]:
                    parts.append(_part(number, neighbors[number], groups, len(self._switches)))
        off_plane = np.zeros((len(self._switches), 256), np.int16)
        for cable, preferred in zip(self._inventory.cables, self._preferred, strict=True):
            for end in cable.lower, cable.upper:
                off_plane[self.number[end.guid], end.port] = not preferred
        return Ways(
            parts,
            off_plane,
            self._all_destinations().switch,
            [np.frombuffer(rows[switch.guid], np.uint8) for switch in self._switches],
            self._kept,
        )

    def _service_routes(
        self, rows: Sequence[Row], home: Sequence[int], tenants: set[int]
    ) -> ServiceRoutes:
        _, reached = self._entries(self._all_destinations(), self._tiers)
        tier = self._working_tiers[-1]
        ports = [
            {n.switch: n.port for n in reversed([*up, *down])}
            for up, down in zip(tier.up, tier.down, strict=True)
        ]
        far = [
            {n.port: n.switch for n in (*up, *down)}
            for up, down in zip(self._tiers[-1].up, self._tiers[-1].down, strict=True)
        ]
        return ServiceRoutes(rows, ports, far, home, tenants, reached)

    def unreached(self, rows: Mapping[int, bytes]) -> dict[Need, Unreached]:
        """What ``rows`` leave without a path although working cables connect it, by need.

        Looks for missing entries: an entry leads on to the switch that it was derived from, so
        only a missing one ends a path. Aggregation nodes and switches themselves do not count:
        only management needs them.
        """
        endpoints = self._inventory.endpoints
        adapters = grouped((e.at.guid, e) for e in endpoints if "Aggregation Node" not in e.name)
        lacking = [switch for switch in adapters if NO_ROUTE in rows[switch]]
        if not lacking:
            return {}
        part = self._connected_parts()
        index = {guid: i for i, guid in enumerate(self.destinations)}
        pairs: Counter[Need] = Counter()
        first: dict[Need, tuple[int, Endpoint]] = {}
        for switch in lacking:
            row = rows[switch]
            for far, far_adapters in adapters.items():
                if part[self.number[far]] == part[self.number[switch]]:
                    for endpoint in far_adapters:
                        if row[index[endpoint.guid]] == NO_ROUTE:
                            needs = Counter(_need(own, endpoint) for own in adapters[switch])
                            pairs += needs
                            first |= dict.fromkeys(needs, (switch, endpoint)) | first
        return {need: Unreached(count, *first[need]) for need, count in pairs.items()}

    def _connected_parts(self) -> list[int]:
        """For each switch by number, the lowest number of those that working cables connect."""
        part = list(range(len(self._switches)))
        for number, neighbors in enumerate(self._working_tiers[-1].down):
            for neighbor in neighbors:
                one, other = sorted((part[number], part[neighbor.switch]))
                if one != other:
                    part = [one if each == other else each for each in part]
        return part

    def _all_destinations(self) -> _Destinations:
        in_level: dict[int, int] = defaultdict(int)
        numbers: list[int] = []
        ranks: list[int] = []
        positions: list[int] = []
        for number, (switch, (_, own)) in enumerate(zip(self._switches, self._own, strict=True)):
            numbers += [number] * len(own)
            ranks += [in_level[switch.level]] * len(own)
            positions += [*range(len(own) - 1), -1]
            in_level[switch.level] += 1
        columns = (numbers, ranks, positions)
        return _Destinations(*(np.array(column, np.intp) for column in columns))

    def _route_over_pivot(self, pivot: int, rows: Sequence[Row]) -> None:
        """Send a packet for which a switch has no entry to the pivot, if the pivot has one."""
        zero = np.zeros(1, np.intp)
        pivot_itself = _Destinations(zero + pivot, zero, zero)
        earlier = self._earlier.get(pivot, ())
        to_pivot, _ = self._entries(pivot_itself, self._working_tiers, earlier)
        self.computed[pivot] = to_pivot
        onward = rows[pivot] != NO_ROUTE
        for row, entries in zip(rows, to_pivot, strict=True):
            row[onward & (row == NO_ROUTE)] = entries.row[0]

    def _pivot(self, reached: Sequence[int]) -> int | None:
        """The leaf that most switches reach, of those with a tree above; None without such.

        ``reached[n]`` is the mask of switches that switch n reaches.
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
            below = {neighbor.switch for neighbor in self._tiers[-1].down[number]} & above
            if below:
                above.add(number)
            if len(below) > 1:
                return False
        return True

    def _entries(
        self,
        destinations: _Destinations,
        tiers: Sequence[_Tier],
        earlier: Sequence[Entries] = (),
    ) -> tuple[list[Entries], list[int]]:
        """The entries of each switch, and the mask of the switches that it reaches.

        Digits: up at level 1 the destination's position, higher up the rank of its switch
        (with parallel cables rank * cables + position % cables); down, where there is a
        choice, rank + position. ``earlier`` are entries towards the same destinations: choices and
        entries that follow from the same inputs are used again.
        """
        down = [0] * len(self._switches)
        for number in set(destinations.switch.tolist()):
            down[number] = 1 << number
        reached = list(down)
        inputs: list[list[_Inputs]] = [[] for _ in self._switches]
        choices: list[list[Choices]] = [[] for _ in self._switches]

        def chosen(number: int, neighbors: Sequence[_Neighbor], reach: Sequence[int]) -> Choices:
            step = len(inputs[number])
            given = _Inputs(neighbors, [reach[n.switch] for n in neighbors], reached[number])
            known = earlier[number] if earlier else None
            if known is not None and known.inputs[step : step + 1] == [given]:
                groups = known.choices[step]
            else:
                groups = _targets_by_ports(given)
            inputs[number].append(given)
            choices[number].append(groups)
            return groups

        for tier in tiers:
            for number, neighbors in enumerate(tier.down):
                groups = chosen(number, neighbors, down)
                new = sum(targets for targets, _ in groups)
                down[number] |= new
                reached[number] |= new
            for number in range(len(self._switches) - 1, -1, -1):
                groups = chosen(number, tier.up[number], reached)
                reached[number] |= sum(targets for targets, _ in groups)
        up_digit = destinations.rank * self._parallel + destinations.position % self._parallel
        down_digit = destinations.rank + destinations.position
        entries = []
        for number, made in enumerate(choices):
            if earlier and earlier[number].choices == made:
                entries.append(Entries(inputs[number], made, earlier[number].row))
                continue
            row = np.full(len(destinations.switch), NO_ROUTE, np.uint8)
            up = destinations.position if self._switches[number].level == 1 else up_digit
            for step, groups in enumerate(made):
                digit = up if step % 2 else down_digit
                _write(row, destinations.switch, digit, groups, len(down))
            entries.append(Entries(inputs[number], made, row))
        return entries, reached


def _part(switch: int, neighbors: Sequence[_Neighbor], groups: Choices, switches: int) -> Part:
    """The ways of a switch in one step: ``groups`` are its choices among ``neighbors``."""
    targets = sum(mask for mask, _ in groups)
    members = _members(targets, switches)
    place = np.full(switches, -1, np.int16)
    place[members] = np.arange(len(members))
    used = {port for _, ports in groups for port in ports}
    behind = {neighbor.port: neighbor.switch for neighbor in neighbors if neighbor.port in used}
    ports = sorted(used, key=list(behind).index)
    leads: Flags | None = None
    if len(groups) > 1 or len(groups[0][1]) < len(ports):
        leads = np.zeros((len(ports), len(members)), bool)
        for mask, some in groups:
            which = np.array([ports.index(port) for port in some], np.intp)
            leads[np.ix_(which, place[_members(mask, switches)].astype(np.intp))] = True
    far = np.array([behind[port] for port in ports], np.intp)
    return Part(switch, place, np.array(ports, np.intp), far, leads)


def _members(mask: int, switches: int) -> Places:
    """The numbers of the switches of a mask, ascending."""
    packed = np.frombuffer(mask.to_bytes(switches // 8 + 1, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little")[:switches].nonzero()[0]


def _targets_by_ports(given: _Inputs) -> Choices:
    """Target switches beyond the known ones that neighbors reach, with all ports."""
    by_ports: dict[tuple[int, ...], int] = {}
    for neighbor, reach in zip(given.neighbors, given.reach, strict=True):
        left = reach & ~given.known
        split: dict[tuple[int, ...], int] = {}
        for ports, targets in by_ports.items():
            both = targets & left
            if both:
                split[*ports, neighbor.port] = both
            if both != targets:
                split[ports] = targets ^ both
            left ^= both
        if left:
            split[neighbor.port,] = left
        by_ports = split
    return [(targets, ports) for ports, targets in by_ports.items()]


def _write(
    row: Row,
    switch_of: NDArray[np.intp],
    digit: NDArray[np.intp],
    groups: Choices,
    switches: int,
) -> None:
    """Write each group's ports to the entries of its targets, ``digit`` modulo their number."""
    if not groups:
        return
    group_of = np.full(switches, -1, np.intp)
    choices = np.array([len(ports) for _, ports in groups], np.intp)
    ports_of = np.zeros((len(groups), max(choices)), np.uint8)
    for number, (targets, ports) in enumerate(groups):
        group_of[_members(targets, switches)] = number
        ports_of[number, : len(ports)] = ports
    group = group_of[switch_of]
    (entries,) = (group >= 0).nonzero()
    group = group[entries]
    row[entries] = ports_of[group, digit[entries] % choices[group]]
