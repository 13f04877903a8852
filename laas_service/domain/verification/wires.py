# SPDX-License-Identifier: Apache-2.0

"""Follows forwarding tables over the cabling, from a switch to a destination."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef


class CableStep(NamedTuple):
    """A cable on a path, and whether the path follows it upwards."""

    cable: Cable
    up: bool


class Wires:
    """The cabling of a fabric and the forwarding tables of its switches.

    ``tables``: switch GUID -> destination GUID -> out port, 0 for the switch itself.
    """

    def __init__(self, inventory: Inventory, tables: Mapping[int, Mapping[int, int]]) -> None:
        self.inventory = inventory
        self.tables = tables
        self.endpoints: dict[int, Endpoint] = {e.guid: e for e in inventory.endpoints}
        self._endpoint_of_port = {e.at: e for e in inventory.endpoints}
        self._far_ends = inventory.far_ends

    def walk(
        self, start: int, destination: int, known: Collection[int] = ()
    ) -> tuple[list[CableStep], str | None]:
        """Follow the tables from the switch ``start`` to a destination (GUIDs).

        Returns the cables passed, and a sentence about why the path does not arrive (None if
        it does). The walk ends early at a switch of ``known``, whose path is known to arrive.
        """
        path: list[CableStep] = []
        visited = {start}
        switch = start
        while switch not in known:
            port = self.tables.get(switch, {}).get(destination)
            if port is None:
                return path, f"{self._name(switch)} has no entry"
            out = PortRef(switch, port)
            if port == 0 or out in self._endpoint_of_port:
                end = switch if port == 0 else self._endpoint_of_port[out].guid
                return path, None if end == destination else f"it arrives at {self._name(end)}"
            if out not in self._far_ends:
                return path, f"port {port} of {self._name(switch)} leads nowhere"
            far, cable = self._far_ends[out]
            path.append(CableStep(cable, out == cable.lower))
            if far.guid in visited:
                return path, f"it comes to {self._name(far.guid)} twice"
            visited.add(far.guid)
            switch = far.guid
        return path, None

    def passed(self, path: Sequence[CableStep]) -> Iterator[PortRef]:
        """The ports through which a path enters the switches on its way."""
        return (cable.upper if up else cable.lower for cable, up in path)

    def next_hops(self, destination: int) -> Iterator[tuple[PortRef, PortRef]]:
        """(out port, port at its far end) of every switch that forwards over a cable."""
        for switch, row in self.tables.items():
            port = row.get(destination)
            if port is not None and PortRef(switch, port) in self._far_ends:
                yield PortRef(switch, port), self._far_ends[PortRef(switch, port)][0]

    def _name(self, guid: int) -> str:
        if guid in self.endpoints:
            return f"port {guid:#018x} of {self.endpoints[guid].name}"
        switch = self.inventory.switch_of_guid.get(guid)
        return f"switch {guid:#018x}" + (f" ({switch.name})" if switch else "")
