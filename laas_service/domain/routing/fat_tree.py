# SPDX-License-Identifier: Apache-2.0

"""Fat-trees: whether the default tables and the policies can serve a cabling.

A cabling is a fat-tree that the service can serve if all of this holds for its recovered levels:

1. Tree cables: at most one cable in four (``ASTRAY``) between switches is *astray*. The others
   are links, or parallel to links: they lead from a leaf to an L2 switch of its pod, or from an
   L2 switch to a spine of its column. Cables of switches that have services below them and no
   place in the tree do not count.
2. Leaves: two leaves of a pod with tenants' hosts have a switch above both of them, over links
   alone. Packets between them go up and then down. A leaf has links, or no cables.
3. Adapters above the leaves: there are no more of them than on leaves. If they are one in three
   (``MANY``) or more, each leaf reaches them and every other leaf that is connected up and then
   down. Adapters that the operator named as services do not count.
4. The default tables have a path between each tenants' host and every service that the cabling
   connects to it, both ways. Known subnet managers reach all adapters and are reached by them.

Services anywhere, uneven leaves, missing and parallel cables, directors, single cables astray and
parts of the fabric without a cable between them are all allowed. Pairs of services have a path
wherever one closes no cycle (``laas_service.domain.routing.service_routes``). SHARP aggregation
nodes inside switches do not count as adapters.

Each part is necessary. Without 2 or 4, a tenant's path turns from down to up, and paths that turn
anywhere can wait for each other in a circle. Without 1, most of what was built could never be
allocated: a full mesh contains a tree, and wastes half of its cables. Without 3, half of the hosts
of a torus or a hypercube would be services.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from laas_service.domain.common_plane import NO_PLANE
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Cable, Inventory, PortRef
from laas_service.domain.routing.default_tables import DefaultRoutes, Need, Unreached
from laas_service.domain.topology import Topology

ASTRAY = 4
"""A tree has at most one cable in ``ASTRAY`` outside the tree. Single wrong cables stay below
that even in a fabric of four switches; a triangle, the smallest full mesh, has one in three."""

MANY = 3
"""Adapters above the leaves are many if they are at least one in ``MANY``."""

SHOWN = 3
"""Cables that a breach names at most, and pairs of switches whose paths are searched for them."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which a cabling is no fat-tree."""

    text: str
    """What is wrong, for operators."""

    cables: tuple[tuple[str, str], ...]
    """The two ends of the first cables that break the property, as ``name[guid] port N``."""

    fix: str
    """What an operator can do about it."""

    def __str__(self) -> str:
        return f"{self.text}: " + "; ".join(f"{a} - {b}" for a, b in self.cables)


CHECK = (
    "If these cables are wrong, lead each from a leaf to an L2 switch of its pod, or from an L2 "
    "switch to a spine; if the switches form a mesh, torus, hypercube or dragonfly, no cable will "
    "make them a tree, and most of them cannot be allocated"
)
NAME_SERVICES = (
    "If the hosts above the leaves are services, name them with --exclude; if they are for "
    "tenants, plug them into leaves"
)
JOIN = (
    "Connect the two leaves to a common switch above both, or keep the hosts of one of them out "
    "with --exclude"
)
MOVE = "Plug the adapter into a leaf, or replace the missing cables next to its switch"


class Judgement:
    """Whether a cabling is a fat-tree that the service can serve, and what it cannot reach.

    ``services`` are port GUIDs of adapters that are known to be no tenants' hosts.
    """

    def __init__(
        self, topology: Topology, inventory: Inventory, services: Collection[int] = ()
    ) -> None:
        self._cabling = _Cabling(topology, inventory, services)

    @cached_property
    def breaches(self) -> list[Breach]:
        """Why it is no fat-tree; empty if it is one."""
        cabling = self._cabling
        found = [*cabling.astray_cables(), *cabling.leaves_apart(), *cabling.adapters_above()]
        return found or [cabling.breach(cut) for cut in self._cut(Need.SERVICE)]

    @cached_property
    def tables(self) -> DefaultRoutes:
        return self._cabling.routes()

    @cached_property
    def rows(self) -> Mapping[int, bytes]:
        """The default entries, by GUID of the switch; see ``DefaultRoutes.rows``."""
        return self.tables.rows()

    @cached_property
    def without_path(self) -> list[str]:
        """Pairs of adapters that cables connect, and the default tables do not; a line for each
        need."""
        texts = {
            Need.SERVICE: "a host for tenants and a service, which cannot communicate",
            Need.TENANTS: "hosts for tenants; only tenants that own no links can get both",
            Need.SERVICES: "services",
        }
        return [
            f"{cut.pairs} pair(s) of {text}; the first from {self._cabling.switch(cut.switch)} to "
            f"{cut.endpoint.name} at {self._cabling.port(cut.endpoint.at)}"
            for need, text in texts.items()
            for cut in self._cut(need)
        ]

    def _cut(self, need: Need) -> list[Unreached]:
        unreached = self.tables.unreached(self.rows)
        return [unreached[need]] if need in unreached else []


def breaches(
    topology: Topology, inventory: Inventory, services: Collection[int] = ()
) -> list[Breach]:
    """Why a cabling is no fat-tree that the service can serve; see ``Judgement``."""
    return Judgement(topology, inventory, services).breaches


class _Cabling:
    """Switches and cables; sets of switches are masks, with one bit for each switch."""

    def __init__(self, topology: Topology, inventory: Inventory, services: Collection[int]) -> None:
        self._topology = topology
        self._inventory = inventory
        self._bit = {s.guid: 1 << n for n, s in enumerate(inventory.switches)}
        self._level = {s.guid: s.level for s in inventory.switches}
        self._leaves = set(inventory.leaf_guids)
        self._pod = {leaf: n // topology.tree.m[1] for n, leaf in enumerate(inventory.leaf_guids)}
        self._joined = {(c.lower.guid, c.upper.guid) for c in inventory.cables if c.link}
        self._neighbors = grouped(
            (near.guid, (far.guid, cable)) for near, (far, cable) in inventory.far_ends.items()
        )
        self._adapters = [e for e in inventory.endpoints if "Aggregation Node" not in e.name]
        self._above = [
            e for e in self._adapters if self._level[e.at.guid] > 1 and e.guid not in services
        ]
        self._tenants = {e.at.guid for e in inventory.endpoints if e.host is not None}

    def astray_cables(self) -> Iterator[Breach]:
        counted = [cable for cable in self._inventory.cables if not self._of_services(cable)]
        astray = [cable for cable in counted if not self._in_tree(cable)]
        if ASTRAY * len(astray) > len(counted):
            yield Breach(
                f"{len(astray)} of {len(counted)} cables between switches lie outside the tree "
                f"(a tree has at most one in {ASTRAY})",
                self._ends(astray),
                CHECK,
            )

    def leaves_apart(self) -> Iterator[Breach]:
        """Pairs of leaves with tenants' hosts, connected, and without a common switch above.

        Unless many adapters are above the leaves, only leaves of one pod count, and leaves that no
        link joins to another. No tenant spans others, so they may be as far apart as two clusters.
        """
        leaves = self._mask(self._tenants)
        tree = [c for c in self._inventory.cables if self._in_tree(c)]
        apart = self._unmet(tree, leaves, leaves)
        if not self._many_above():
            alone = self._leaves - {c.lower.guid for c in tree}
            apart = [
                (a, b)
                for a, b in apart
                if self._pod[a] == self._pod[b] or not alone.isdisjoint((a, b))
            ]
        yield from self._apart("leaves", apart, NAME_SERVICES if self._many_above() else JOIN)

    def adapters_above(self) -> Iterator[Breach]:
        """Adapters above the leaves: too many, or many and not reached up and then down."""
        if 2 * len(self._above) > len(self._adapters):
            yield Breach(
                f"{len(self._above)} of {len(self._adapters)} adapters are above the leaves "
                "(a tree has most of them on leaves)",
                tuple((self.port(e.at), f"{e.name}[{e.guid:#018x}]") for e in self._above[:SHOWN]),
                NAME_SERVICES,
            )
        if self._many_above():
            climbing = [
                c
                for c in self._inventory.cables
                if self._level[c.lower.guid] < self._level[c.upper.guid]
            ]
            leaves, upper = self._mask(self._tenants), self._mask({e.at.guid for e in self._above})
            kind = "a leaf and a switch with adapters above the leaves"
            yield from self._apart(kind, self._unmet(climbing, leaves, upper), NAME_SERVICES)

    def _many_above(self) -> bool:
        return MANY * len(self._above) >= len(self._adapters)

    def routes(self) -> DefaultRoutes:
        return DefaultRoutes(self._inventory, frozenset(), self._topology.tree, NO_PLANE)

    def breach(self, cut: Unreached) -> Breach:
        """Pairs of tenants' hosts and services without a path in the default tables."""
        far = cut.endpoint.at
        return Breach(
            f"the default tables leave {cut.pairs} pair(s) of a tenants' host and a service "
            f"without a path, the first from {self.switch(cut.switch)} to the adapter at "
            f"{self.port(far)}",
            self._ends(self._breaking(cut.switch, self._path(cut.switch, far.guid))),
            MOVE,
        )

    def _of_services(self, cable: Cable) -> bool:
        """Whether the cable is at a switch of the lowest level that has no place in the tree."""
        ends = cable.lower.guid, cable.upper.guid
        return any(self._level[end] == 1 and end not in self._leaves for end in ends)

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

    def _apart(self, kind: str, pairs: list[tuple[int, int]], fix: str) -> Iterator[Breach]:
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
                f"then down, the first of them {self.switch(a)} and {self.switch(b)}",
                self._ends(cables),
                fix,
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

    def switch(self, guid: int) -> str:
        return f"{self._inventory.switch_of_guid[guid].name}[{guid:#018x}]"

    def port(self, end: PortRef) -> str:
        return f"{self.switch(end.guid)} port {end.port}"

    def _ends(self, cables: Iterable[Cable]) -> tuple[tuple[str, str], ...]:
        return tuple((self.port(c.lower), self.port(c.upper)) for c in islice(cables, SHOWN))
