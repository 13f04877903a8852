# SPDX-License-Identifier: Apache-2.0

"""Fat-trees: whether the default tables and the policies can serve a cabling.

A cabling is a fat-tree that the service can serve if all of this holds for its recovered levels:

1. Tree cables: at most one cable in four (``ASTRAY``) between switches is *astray*. The others
   are links, or parallel to links: they lead from a leaf to an L2 switch of its pod, or from an
   L2 switch to a spine of its column.
2. Leaves: two leaves with adapters that the cabling connects have a switch above both of them,
   over links alone. Packets between them go up and then down.
3. Adapters above the leaves: there are no more of them than on leaves, and each leaf reaches
   them up and then down. Here any cable to a higher level counts.
4. The default tables have a path for every pair of adapters that the cabling connects.

Uneven leaves, missing and parallel cables, directors, single cables astray, subnet managers on
spines and parts of the fabric without a cable between them are all allowed. SHARP aggregation
nodes inside switches do not count as adapters.

Each part is necessary. Without 2 or 3, a path turns from down to up, and paths that turn anywhere
can wait for each other in a circle; the default tables turn at the pivot alone
(``laas_service.domain.routing.fabric_tables``). Without 1, most of what was built could never be
allocated: a full mesh contains a tree, and wastes half of its cables.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Cable, Inventory, PortRef
from laas_service.domain.routing.default_tables import DefaultRoutes
from laas_service.domain.shared_plane import NO_PLANE
from laas_service.domain.topology import Topology

ASTRAY = 4
"""A tree has at most one cable in ``ASTRAY`` outside the tree. Single wrong cables stay below
that even in a fabric of four switches; a triangle, the smallest full mesh, has one in three."""

SHOWN = 3
"""Cables that a breach names at most, and pairs of switches whose paths are searched for them."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a cabling is no fat-tree."""

    text: str
    """What is wrong, for operators."""

    cables: tuple[tuple[str, str], ...]
    """The two ends of the first cables that break the property, as ``name[guid] port N``."""

    def __str__(self) -> str:
        return f"{self.text}: " + "; ".join(f"{a} - {b}" for a, b in self.cables)


def breaches(topology: Topology, inventory: Inventory) -> list[Breach]:
    """Why the cabling is no fat-tree that the service can serve; empty if it is one."""
    cabling = _Cabling(inventory)
    return [
        *cabling.astray_cables(),
        *cabling.leaves_apart(),
        *cabling.adapters_above(),
    ] or list(cabling.unreached(topology))


class _Cabling:
    """Switches and cables; sets of switches are masks, with one bit for each switch."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._bit = {s.guid: 1 << n for n, s in enumerate(inventory.switches)}
        self._level = {s.guid: s.level for s in inventory.switches}
        self._leaves = set(inventory.leaf_guids)
        self._joined = {(c.lower.guid, c.upper.guid) for c in inventory.cables if c.link}
        self._neighbors = grouped(
            (near.guid, (far.guid, cable)) for near, (far, cable) in inventory.far_ends.items()
        )
        self._adapters = [e for e in inventory.endpoints if "Aggregation Node" not in e.name]
        self._bearing = {e.at.guid for e in self._adapters}

    def astray_cables(self) -> Iterator[Breach]:
        astray = [cable for cable in self._inventory.cables if not self._in_tree(cable)]
        cables = len(self._inventory.cables)
        if ASTRAY * len(astray) > cables:
            yield Breach(
                f"{len(astray)} of {cables} cables between switches lie outside the tree "
                f"(a tree has at most one in {ASTRAY})",
                self._ends(astray),
            )

    def leaves_apart(self) -> Iterator[Breach]:
        """Pairs of leaves with adapters, connected, and without a common switch above."""
        leaves = self._mask(self._bearing & self._leaves)
        tree = [c for c in self._inventory.cables if self._in_tree(c)]
        yield from self._apart("leaves", self._unmet(tree, leaves, leaves))

    def adapters_above(self) -> Iterator[Breach]:
        """Adapters above the leaves: too many, or not reached up and then down."""
        above = [e for e in self._adapters if e.at.guid not in self._leaves]
        if 2 * len(above) > len(self._adapters):
            yield Breach(
                f"{len(above)} of {len(self._adapters)} adapters are above the leaves "
                "(a tree has most of them on leaves)",
                tuple((self._port(e.at), f"{e.name}[{e.guid:#018x}]") for e in above[:SHOWN]),
            )
        leaves = self._mask(self._bearing & self._leaves)
        managers = set(self._inventory.managers)  # they have routes of their own, see unreached
        served = {e.at.guid for e in self._adapters if e not in managers}
        upper = self._mask(served - self._leaves)
        climbing = [
            c
            for c in self._inventory.cables
            if self._level[c.lower.guid] < self._level[c.upper.guid]
        ]
        kind = "a leaf and a switch with adapters above the leaves"
        yield from self._apart(kind, self._unmet(climbing, leaves, upper))

    def unreached(self, topology: Topology) -> Iterator[Breach]:
        """Pairs of adapters without a path in the default tables."""
        routes = DefaultRoutes(self._inventory, frozenset(), topology.tree, NO_PLANE)
        cut = routes.unreached(routes.rows())
        if cut is not None:
            far = cut.endpoint.at
            yield Breach(
                f"the default tables leave {cut.pairs} pair(s) of adapters without a path, "
                f"the first from {self._switch(cut.switch)} to the adapter at {self._port(far)}",
                self._ends(self._breaking(cut.switch, self._path(cut.switch, far.guid))),
            )

    def _in_tree(self, cable: Cable) -> bool:
        return (cable.lower.guid, cable.upper.guid) in self._joined

    def _mask(self, guids: Iterable[int]) -> int:
        return sum(self._bit[guid] for guid in guids)

    def _unmet(self, cables: Iterable[Cable], sources: int, targets: int) -> list[tuple[int, int]]:
        """Pairs of connected switches without a path up and then down over ``cables``."""
        up = grouped((cable.lower.guid, cable.upper.guid) for cable in cables)
        ascending = sorted(self._level, key=lambda guid: (self._level[guid], guid))
        below = dict(self._bit)
        for guid in ascending:
            for upper in up[guid]:
                below[upper] |= below[guid]
        met: dict[int, int] = {}
        for guid in reversed(ascending):
            met[guid] = below[guid]
            for upper in up[guid]:
                met[guid] |= met[upper]
        return [
            (source, target)
            for part in self._parts()
            for wanted in [self._mask(part) & targets]
            for source in part
            if self._bit[source] & sources
            for missing in [wanted & ~met[source]]
            if missing
            for target in part
            if self._bit[target] & missing
        ]

    def _parts(self) -> Iterator[list[int]]:
        """The switches that cables connect, part by part, each ascending by level and GUID."""
        left = dict.fromkeys(sorted(self._level, key=lambda guid: (self._level[guid], guid)))
        while left:
            first = next(iter(left))
            reached = {first, *self._tree_from(first)}
            yield [guid for guid in left if guid in reached]
            left = {guid: None for guid in left if guid not in reached}

    def _apart(self, kind: str, pairs: list[tuple[int, int]]) -> Iterator[Breach]:
        if pairs:
            a, b = pairs[0]
            once = {frozenset(pair) for pair in pairs}
            cables = {
                cable: None
                for pair in islice(pairs, SHOWN)
                for cable in self._breaking(pair[0], self._path(*pair))
            }
            yield Breach(
                f"{len(once)} pair(s) of {kind} are connected, but by no path that goes up and "
                f"then down, the first of them {self._switch(a)} and {self._switch(b)}",
                self._ends(cables),
            )

    def _breaking(self, switch: int, path: Iterable[Cable]) -> Iterator[Cable]:
        """The cables of a path that are astray, or at which it goes up after it went down."""
        down = False
        for cable in path:
            far = cable.upper.guid if cable.lower.guid == switch else cable.lower.guid
            climbs = self._level[far] > self._level[switch]
            if not self._in_tree(cable) or (climbs and down):
                yield cable
            down |= self._level[far] < self._level[switch]
            switch = far

    def _path(self, source: int, target: int) -> Iterator[Cable]:
        """A shortest path over any cables; the switches are connected."""
        towards = self._tree_from(target)
        while source != target:
            cable = towards[source]
            yield cable
            source = cable.upper.guid if cable.lower.guid == source else cable.lower.guid

    def _tree_from(self, root: int) -> Mapping[int, Cable]:
        """By switch connected to ``root``, the first cable of a shortest path to it."""
        towards: dict[int, Cable] = {}
        waiting = deque([root])
        while waiting:
            guid = waiting.popleft()
            for far, cable in self._neighbors[guid]:
                if far != root and far not in towards:
                    towards[far] = cable
                    waiting.append(far)
        return towards

    def _switch(self, guid: int) -> str:
        return f"{self._inventory.switch_of_guid[guid].name}[{guid:#018x}]"

    def _port(self, end: PortRef) -> str:
        return f"{self._switch(end.guid)} port {end.port}"

    def _ends(self, cables: Iterable[Cable]) -> tuple[tuple[str, str], ...]:
        return tuple((self._port(c.lower), self._port(c.upper)) for c in islice(cables, SHOWN))
