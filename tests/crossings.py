# SPDX-License-Identifier: Apache-2.0

"""Judge of default entries: which owned cables packets cross, and how few any path would cross.

It shares nothing with the routing. It walks the entries of the switches, tries every path that goes
up and then down, and builds the graphs of which a cycle is a loop or a deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Link, Topology

Rows = Mapping[int, Mapping[int, int]]
"""By GUID of a switch, its port towards each destination."""


@dataclass
class Found:
    """Pairs are of a switch with adapters and a port of an adapter that it has to reach."""

    pairs: int = 0
    crossing: int = 0
    """Pairs whose packets cross an owned cable, other than one of the tenant they go to."""
    above: int = 0
    """Pairs that cross more of them than the best path that goes up and then down."""
    wrong: list[str] = field(default_factory=list)
    """Pairs that cross more than the best path that goes down as soon as it can."""
    lost: int = 0
    """Pairs that do not arrive although working cables lead up and then down. From a tenant's leaf
    to its own ports there need be no route: where no link of the tenant joins them."""


class Judge:
    """Cables and owners of a fabric. Failed links carry nothing."""

    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        allocations: Iterable[Allocation],
        failed: Collection[Link] = (),
    ) -> None:
        self.inventory = inventory
        self._level = {switch.guid: switch.level for switch in inventory.switches}
        self._far = inventory.far_ends
        self._hung = {endpoint.at: endpoint.guid for endpoint in inventory.endpoints}
        self._failed = set(failed)
        self._owner: dict[Link, str] = {}
        self._owner_of_host: dict[int, str] = {}
        self.degraded: set[str] = set()
        for allocation in allocations:
            links = set(allocation.links(topology))
            self._owner |= dict.fromkeys(links, allocation.id)
            if not self._failed.isdisjoint(links):
                self.degraded.add(allocation.id)
            self._owner_of_host |= dict.fromkeys(allocation.hosts(topology), allocation.id)
        self._leaves: dict[str | None, set[int]] = defaultdict(set)
        for endpoint in inventory.endpoints:
            if (owner := self.owner_of(endpoint)) is not None:
                self._leaves[owner].add(endpoint.at.guid)
        self._ups: dict[int, list[tuple[int, Cable]]] = defaultdict(list)
        self._downs: dict[int, list[tuple[int, Cable]]] = defaultdict(list)
        for cable in inventory.cables:
            if cable.link is not None and cable.link not in self._failed:
                self._ups[cable.lower.guid].append((cable.upper.guid, cable))
                self._downs[cable.upper.guid].append((cable.lower.guid, cable))

    def owner_of(self, endpoint: Endpoint) -> str | None:
        return None if endpoint.host is None else self._owner_of_host.get(endpoint.host)

    def is_foreign(self, cable: Cable, owner: str | None) -> bool:
        """Whether a cable belongs to somebody else than the owner."""
        return cable.link in self._owner and self._owner[cable.link] != owner

    def found(self, rows: Rows) -> Found:
        """All pairs, judged. Pairs that are nowhere joined upwards, then downwards are left out."""
        found = Found()
        attached = {endpoint.at.guid for endpoint in self.inventory.endpoints}
        least: dict[tuple[int, int, str | None], tuple[int | None, int | None]] = {}
        for target in self.inventory.endpoints:
            owner, home = self.owner_of(target), target.at.guid
            for start in attached - {home}:
                key = (start, home, owner)
                if key not in least:
                    least[key] = (
                        self._least(start, home, owner, False, False),
                        self._least(start, home, owner, False, True),
                    )
                best, rule = least[key]
                if best is None or rule is None:
                    continue
                found.pairs += 1
                path = self.walk(rows, start, target)
                if path is None:
                    found.lost += owner not in self.degraded and start not in self._leaves[owner]
                    continue
                crossed = sum(self.is_foreign(cable, owner) for cable in path)
                found.crossing += crossed > 0
                if owner not in self.degraded:
                    found.above += crossed > best
                    if crossed != rule:
                        found.wrong.append(
                            f"{start:#x} to {target.guid:#x} of {owner}: {crossed}, not {rule}"
                        )
        return found

    def walk(self, rows: Rows, start: int, target: Endpoint) -> list[Cable] | None:
        """The cables to a port; None if packets do not arrive or turn from down to up."""
        path: list[Cable] = []
        switch, descended = start, False
        while len(path) < 8:
            port = rows[switch].get(target.guid)
            if port is None:
                return None
            out = PortRef(switch, port)
            if out in self._hung:
                return path if self._hung[out] == target.guid else None
            far, cable = self._far[out]
            up = self._level[far.guid] > self._level[switch]
            if cable.link in self._failed or (up and descended):
                return None
            descended = not up
            path.append(cable)
            switch = far.guid
        return None

    def _least(
        self, switch: int, home: int, owner: str | None, descended: bool, soon: bool
    ) -> int | None:
        """The fewest foreign cables on any path; ``soon``: that goes down as soon as it can."""
        if switch == home:
            return 0
        ways = list(self._downs[switch])
        if not descended and not (soon and self._leads_down(switch, home)):
            ways += self._ups[switch]
        costs = []
        for far, cable in ways:
            down = self._level[far] < self._level[switch]
            rest = self._least(far, home, owner, down, soon)
            if rest is not None:
                costs.append(rest + self.is_foreign(cable, owner))
        return min(costs, default=None)

    def cheapest(self, start: int, target: Endpoint) -> set[int]:
        """The ports with the fewest foreign cables ahead, down as soon as a way leads down."""
        owner, home = self.owner_of(target), target.at.guid
        costs: dict[int, int] = {}
        down = self._leads_down(start, home)
        for far, cable in self._downs[start] if down else self._ups[start]:
            rest = self._least(far, home, owner, down, True)
            if rest is not None:
                near = cable.lower if cable.lower.guid == start else cable.upper
                costs[near.port] = rest + self.is_foreign(cable, owner)
        return {port for port, cost in costs.items() if cost == min(costs.values())}

    def _leads_down(self, switch: int, home: int) -> bool:
        return any(far == home or self._leads_down(far, home) for far, _ in self._downs[switch])

    def loops(self, *several: Rows) -> list[int]:
        """Destinations towards which a packet may go round in some mixture of the tables."""
        looping = []
        for target in self._destinations(several):
            onward = defaultdict(set)
            for rows in several:
                for switch, out in self._outs(rows, target):
                    onward[switch].add(self._far[out][0].guid)
            if not _acyclic(onward):
                looping.append(target)
        return looping

    def turns(self, rows: Rows) -> set[tuple[int, int, int, int]]:
        """Where packets come down and go up again: the three switches, and the destination."""
        found = set()
        for target in self._destinations([rows]):
            onward = {switch: self._far[out][0].guid for switch, out in self._outs(rows, target)}
            for upper, lower in onward.items():
                above = onward.get(lower, lower)
                if self._level[lower] < min(self._level[upper], self._level[above]):
                    found.add((upper, lower, above, target))
        return found

    def deadlocks(self, *several: Rows) -> bool:
        """Whether buffers may wait for each other in a circle, in some mixture of the tables."""
        waits: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        for target in self._destinations(several):
            outs: dict[int, set[PortRef]] = defaultdict(set)
            for rows in several:
                for switch, out in self._outs(rows, target):
                    outs[switch].add(out)
            for ports in list(outs.values()):
                for out in ports:
                    waits[out].update(outs.get(self._far[out][0].guid, ()))
        return not _acyclic(waits)

    def _destinations(self, several: Iterable[Rows]) -> set[int]:
        return {target for rows in several for row in rows.values() for target in row}

    def _outs(self, rows: Rows, target: int) -> Iterable[tuple[int, PortRef]]:
        for switch, row in rows.items():
            port = row.get(target)
            if port and PortRef(switch, port) in self._far:
                yield switch, PortRef(switch, port)


def _acyclic(
    graph: Mapping[int, set[int]] | Mapping[tuple[int, int], set[tuple[int, int]]],
) -> bool:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True
