# SPDX-License-Identifier: Apache-2.0

"""A fabric with faults, and what an observer on one of its hosts reads of it.

The model is the truth behind readings. It shares no code with the interpretation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from laas_service.adapters.fabric_import.generator import Description, Generated, generate
from laas_service.domain.faults.reading import EndReading, FabricReading, PortState
from laas_service.domain.inventory import Cable, PortRef
from laas_service.domain.topology import Link


@dataclass
class FaultyFabric:
    """A generated fabric; ``observer`` is the number of the endpoint that reads."""

    generated: Generated
    observer: int = 0
    cut: set[Cable] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    """GUIDs of switches without power."""
    silent: set[int] = field(default_factory=set)
    """GUIDs of switches that forward and do not answer."""
    hosts_off: set[int] = field(default_factory=set)
    observer_cut: bool = False
    exchanged: dict[PortRef, PortRef] = field(default_factory=dict)
    """Ends that are linked to other ports than the recorded ones."""

    @classmethod
    def of(cls, **values: object) -> FaultyFabric:
        return cls(generate(Description.model_validate(values)))

    def cable(self, link: Link) -> Cable:
        return self.generated.inventory.cable_of_link[link]

    def exchange(self, first: Link, second: Link) -> None:
        """Plug the cable of each into the upper port of the other one."""
        one, two = self.cable(first), self.cable(second)
        for lower, upper in ((one.lower, two.upper), (two.lower, one.upper)):
            self.exchanged |= {lower: upper, upper: lower}

    def works(self, link: Link) -> bool:
        """Whether packets can cross the link."""
        cable = self.cable(link)
        ends = {cable.lower.guid, cable.upper.guid}
        return cable not in self.cut and not ends & self.dead

    def reached(self) -> set[int]:
        """The switches that answer the observer."""
        start = self.generated.inventory.endpoints[self.observer].at.guid
        if self.observer_cut or start in self.dead | self.silent:
            return set()
        neighbours: dict[int, set[int]] = {}
        for cable in self.generated.inventory.cables:
            if cable not in self.cut:
                neighbours.setdefault(cable.lower.guid, set()).add(cable.upper.guid)
                neighbours.setdefault(cable.upper.guid, set()).add(cable.lower.guid)
        reached, queue = {start}, deque([start])
        while queue:
            new = neighbours.get(queue.popleft(), set()) - self.dead - self.silent - reached
            reached |= new
            queue.extend(new)
        return reached

    def read(self, at: float) -> FabricReading:
        inventory, reached = self.generated.inventory, self.reached()
        ends: list[EndReading] = []

        def add(end: PortRef, state: PortState) -> None:
            if state is not PortState.UP:
                ends.append(EndReading(end, state))

        for cable in inventory.cables:
            for end, other in ((cable.lower, cable.upper), (cable.upper, cable.lower)):
                if end.guid not in reached:
                    add(end, PortState.UNREAD)
                elif cable in self.cut or other.guid in self.dead:
                    add(end, PortState.DOWN)
                elif other.guid in self.silent:
                    add(end, PortState.SILENT)
                elif end in self.exchanged:
                    ends.append(EndReading(end, PortState.OTHER, self.exchanged[end]))
        observer = inventory.endpoints[self.observer]
        for number, endpoint in enumerate(inventory.endpoints):
            off = endpoint.host in self.hosts_off
            if endpoint.at.guid not in reached:
                add(endpoint.at, PortState.UNREAD)
            elif off:
                add(endpoint.at, PortState.DOWN)
            if number == self.observer and self.observer_cut:
                add(PortRef(endpoint.guid, 1), PortState.DOWN)
        return FabricReading(
            at, tuple(ends), PortRef(observer.guid, 1), len(reached) + 1, len(reached)
        )
