# SPDX-License-Identifier: Apache-2.0

"""Routes to and from subnet managers and services where the default tables have none.

From an adapter on an L2 switch or a spine, no path up and then down leads to other switches of
its level, nor from them to the adapter. Here such paths turn up again at a switch, if the turn
closes no cycle of channel dependencies: with all paths up and then down that any table may have,
and with the turns of the other entries. An entry that would close one is left out.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NO_ROUTE = 255
"""As in ``default_tables``."""

Row = NDArray[np.uint8]

Turn = tuple[int, int, int]
"""Switches by number: down from the first to the second, then up to the third."""


class AllowedTurns:
    """Turns from down to up that tables may have beside all paths up and then down.

    ``neighbors[n]`` are the switches at the cables of switch n; up leads to the higher number.
    """

    def __init__(self, neighbors: Sequence[Collection[int]], used: Iterable[Turn]) -> None:
        self._neighbors = neighbors
        self._accepted: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._rejected: set[Turn] = set()
        for before, switch, after in used:
            self._accepted[before, switch].add(after)

    def allow(self, turns: Iterable[Turn]) -> bool:
        """Accept all of these turns, unless one of them closes a cycle; then none."""
        fresh = [turn for turn in turns if not self.known([turn])]
        if not self._rejected.isdisjoint(fresh):
            return False
        for before, switch, after in fresh:
            self._accepted[before, switch].add(after)
        bad = next(filter(self._closes_cycle, fresh), None)
        if bad is None:
            return True
        for before, switch, after in fresh:
            self._accepted[before, switch].discard(after)
        if len(fresh) == 1:
            self._rejected.add(bad)
        return False

    def known(self, turns: Iterable[Turn]) -> bool:
        """Whether all of these turns are accepted."""
        return all(after in self._accepted.get((a, b), ()) for a, b, after in turns)

    def _closes_cycle(self, turn: Turn) -> bool:
        """Whether a packet's channels may lead from the end of the turn back to its beginning.

        Channels are pairs of switches. From a switch that is reached upwards all others follow
        but the one back; from one that is reached downwards, those down and accepted turns.
        """
        before, switch, after = turn
        goal, waiting, seen = (before, switch), [(switch, after)], {(switch, after)}
        from_below: dict[int, int | None] = {}  # the only switch that it is reached from, or None
        from_above: set[int] = set()
        while waiting:
            a, b = waiting.pop()
            if a > b:
                onward = [c for c in self._neighbors[b] if c < b] if b not in from_above else []
                from_above.add(b)
                onward += self._accepted.get((a, b), ())
            elif b not in from_below:
                onward = [c for c in self._neighbors[b] if c != a]
                from_below[b] = a
            else:
                only = from_below[b]
                onward = [only] if only is not None and only != a else []
                from_below[b] = None if onward else only
            for c in onward:
                if (b, c) == goal:
                    return True
                if (b, c) not in seen:
                    seen.add((b, c))
                    waiting.append((b, c))
        return False


@dataclass
class ServiceRoutes:
    """Adds missing entries to ``rows``, the entries of each switch by number.

    ``ports[n]`` are the working cables of switch n: the number of the switch at the other end,
    and the own port (the lowest of parallel ones). ``far[n]`` names the switch behind each port.
    ``home[d]`` is the switch of destination d. ``tenant`` has the destinations whose entries
    tenants' tables may replace. ``reached[n]`` is the mask of the switches to which a path from
    switch n goes up and then down.
    """

    rows: Sequence[Row]
    ports: Sequence[Mapping[int, int]]
    far: Sequence[Mapping[int, int]]
    home: Sequence[int]
    tenant: Collection[int]
    reached: Sequence[int]
    _turns: AllowedTurns = field(init=False)
    _part: dict[int, int] = field(init=False, default_factory=dict)
    """For each switch one of those that working cables join it to, the same for all of them."""

    def __post_init__(self) -> None:
        neighbors = [sorted(set(row.values())) for row in self.far]
        self._turns = AllowedTurns(neighbors, self._used())
        for switch in range(len(self.rows)):
            if switch not in self._part:
                self._part |= dict.fromkeys(self._distances([switch]), switch)

    def _used(self) -> set[Turn]:
        """The turns from down to up of the entries that there are."""
        used: set[Turn] = set()
        for a, cables in enumerate(self.far):
            for port, b in cables.items():
                if b < a:
                    onward = np.unique(self.rows[b][self.rows[a] == port])
                    ends = (self.far[b].get(int(out)) for out in onward)
                    used |= {(a, b, c) for c in ends if c is not None and c > b and c != a}
        return used

    def add(
        self,
        sources: Collection[int],
        starts: Sequence[int],
        destinations: Iterable[int],
        hubs: Sequence[int] = (),
    ) -> None:
        """Add routes to ``sources`` from the switches ``starts``, then back to ``destinations``.

        Sources and destinations are destinations by index. The routes back begin at the switches
        of the sources; they are added in the order of ``destinations``. New turns are made as near
        to ``hubs`` as possible, without hubs as near to the source, so that few are needed.
        """
        homes = sorted({self.home[source] for source in sources})
        near = self._distances(hubs or homes)
        for source in sorted(sources):
            if any(self.rows[start][source] == NO_ROUTE for start in starts):
                own = near if hubs else self._distances([self.home[source]])
                self._extend(source, starts, own)
        for destination in destinations:
            if any(self.rows[home][destination] == NO_ROUTE for home in homes):
                self._extend(destination, homes, near)

    def hubs(self, leaves: Iterable[int]) -> list[int]:
        """Of each part of the fabric, the leaf with the most neighbors."""
        hub: dict[int, int] = {}
        for leaf in leaves:
            best = hub.setdefault(self._part[leaf], leaf)
            if len(self.ports[leaf]) > len(self.ports[best]):
                hub[self._part[leaf]] = leaf
        return sorted(hub.values())

    def _distances(self, starts: Sequence[int]) -> Mapping[int, int]:
        distance = dict.fromkeys(starts, 0)
        waiting = deque(starts)
        while waiting:
            here = waiting.popleft()
            for there in self.ports[here]:
                if there not in distance:
                    distance[there] = distance[here] + 1
                    waiting.append(there)
        return distance

    def _extend(self, target: int, starts: Collection[int], near: Mapping[int, int]) -> None:
        """Add entries towards a destination until the starts have one, as far as possible.

        New turns are made where ``near`` is least.
        """
        new: dict[int, int] = {}
        part = self._part[self.home[target]]
        wanted = {n for n in starts if self._part[n] == part and self.rows[n][target] == NO_ROUTE}
        if not wanted:
            return
        open_switches = [
            n for n in near if self._part[n] == part and self.rows[n][target] == NO_ROUTE
        ]
        open_switches.sort(key=lambda n: (near[n], n))
        while wanted - new.keys():
            left = [n for n in open_switches if n not in new]
            steps = self._straight(target, left, new) or self._turned(target, left, new)
            if not steps:
                break
            new |= steps
        kept: set[int] = set()
        for start in wanted & new.keys():
            while start in new and start not in kept:
                kept.add(start)
                start = new[start]
        for switch in kept:
            self.rows[switch][target] = self.ports[switch][new[switch]]

    def _straight(self, target: int, left: Sequence[int], new: Mapping[int, int]) -> dict[int, int]:
        """Switches without an entry that reach one by turns that are accepted, and how."""
        steps = {}
        for switch in left:
            for neighbor in sorted(self.ports[switch]):
                turns = self._turns_at(target, switch, neighbor, new)
                if turns is not None and self._turns.known(turns):
                    steps[switch] = neighbor
                    break
        return steps

    def _turned(self, target: int, left: Sequence[int], new: Mapping[int, int]) -> dict[int, int]:
        """The first switch that reaches an entry by turns that close no cycle, and how."""
        for switch in left:
            for neighbor in sorted(self.ports[switch]):
                turns = self._turns_at(target, switch, neighbor, new)
                if turns is not None and self._turns.allow(turns):
                    return {switch: neighbor}
        return {}

    def _turns_at(
        self, target: int, switch: int, neighbor: int, new: Mapping[int, int]
    ) -> set[Turn] | None:
        """The turns of packets over a neighbour towards a destination; None: it has no entry.

        Where a tenant's table may replace the neighbour's entry, each way up from there counts
        that leads on up and then down.
        """
        if neighbor in new:
            onward = new[neighbor]
        elif self.rows[neighbor][target] == NO_ROUTE:
            return None
        else:
            port = int(self.rows[neighbor][target])
            onward = self.far[neighbor].get(port, neighbor)
        if onward == switch:
            return None
        if switch < neighbor or onward <= neighbor:
            return set()
        ups = {onward}
        if target in self.tenant:
            home = self.home[target]
            above = {n for n in self.far[neighbor].values() if n > neighbor} - {switch}
            ups |= {n for n in above if self.reached[n] >> home & 1}
        return {(switch, neighbor, up) for up in ups}
