# SPDX-License-Identifier: Apache-2.0

"""Following the tables that the switches hold from one port to another over the cabling."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef


class Step(NamedTuple):
    cable: Cable
    up: bool


class Wires:
    """The cabling, and the tables that say where to go."""

    def __init__(self, inventory: Inventory, tables: Mapping[int, Mapping[int, int]]) -> None:
        self.inventory = inventory
        self.tables = tables
        self.endpoints: dict[int, Endpoint] = {e.guid: e for e in inventory.endpoints}
        self._hung = {e.at: e for e in inventory.endpoints}
        self._cable: dict[PortRef, tuple[Cable, PortRef, bool]] = {}
        for cable in inventory.cables:
            self._cable[cable.lower] = (cable, cable.upper, True)
            self._cable[cable.upper] = (cable, cable.lower, False)

    def walk(
        self, start: int, destination: int, known: Collection[int] = ()
    ) -> tuple[list[Step], str | None]:
        """The cables from a switch to a destination, and what went wrong on the way.

        At a switch that is ``known`` to lead there it ends.
        """
        path: list[Step] = []
        visited = {start}
        switch = start
        while True:
            if switch in known:
                return path, None
            port = self.tables.get(switch, {}).get(destination)
            if port is None:
                return path, f"{self._name(switch)} has no entry"
            if port == 0 or PortRef(switch, port) in self._hung:
                end = switch if port == 0 else self._hung[PortRef(switch, port)].guid
                wrong = None if end == destination else f"it arrives at {self._name(end)}"
                return path, wrong
            if PortRef(switch, port) not in self._cable:
                return path, f"port {port} of {self._name(switch)} leads nowhere"
            cable, far, up = self._cable[PortRef(switch, port)]
            path.append(Step(cable, up))
            if far.guid in visited:
                return path, f"it comes to {self._name(far.guid)} twice"
            visited.add(far.guid)
            switch = far.guid

    def passed(self, path: Sequence[Step]) -> Iterator[PortRef]:
        """The ports through which a path enters switch after switch."""
        return (cable.upper if up else cable.lower for cable, up in path)

    def next_hops(self, destination: int) -> Iterator[tuple[PortRef, PortRef]]:
        """For every switch with an entry over a cable: its out port, and where that leads."""
        for switch, row in self.tables.items():
            port = row.get(destination)
            if port is not None and PortRef(switch, port) in self._cable:
                yield PortRef(switch, port), self._cable[PortRef(switch, port)][1]

    def _name(self, guid: int) -> str:
        if guid in self.endpoints:
            return f"port {guid:#018x} of {self.endpoints[guid].name}"
        switch = self.inventory.switch_of_guid.get(guid)
        return f"switch {guid:#018x}" + (f" ({switch.name})" if switch else "")
