# SPDX-License-Identifier: Apache-2.0

"""The judge: where packets really go, by the tables in the switches and the cables as they are.

It knows the cables that the test cut, moved and connected, and shares no code with the service
but the values that name ports and links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Link, Topology

Rows = Mapping[int, bytes]
"""Switch GUID -> out ports by LID, as read from the switches."""

NO_ENTRY = 255


class Wiring:
    """The cables of a simulated fabric as they are now.

    ``far`` maps each switch port with a working cable to the port at its other end. An adapter's
    end is its port GUID with port 0.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.far: dict[PortRef, PortRef] = {}
        self.recorded: dict[PortRef, PortRef] = {}
        for cable in inventory.cables:
            self.recorded |= {cable.lower: cable.upper, cable.upper: cable.lower}
        self.recorded |= {end.at: PortRef(end.guid, 0) for end in inventory.endpoints}
        self.far |= self.recorded

    def cut(self, port: PortRef) -> None:
        """Disconnect a switch port, at both ends."""
        other = self.far.pop(port, None)
        if other is not None:
            self.far.pop(other, None)

    def connect(self, first: PortRef, second: PortRef) -> None:
        """Connect a switch port with another one, or with an adapter."""
        self.far[first] = second
        if second.port:
            self.far[second] = first

    def mend(self, port: PortRef) -> None:
        """Connect a port as recorded, if both ends are free."""
        other = self.recorded[port]
        if port not in self.far and other not in self.far:
            self.connect(port, other)

    def ports(self, switch: int) -> list[PortRef]:
        """The ports of a switch that have a recorded cable."""
        return sorted(port for port in self.recorded if port.guid == switch)

    def works(self, cable: Cable) -> bool:
        return self.far.get(cable.lower) == cable.upper


@dataclass(frozen=True)
class Pairs:
    """Ordered pairs of ports on one rail of one tenant, whose hosts are both connected."""

    walked: int = 0
    lost: int = 0
    """Pairs whose packets do not arrive."""
    foreign: int = 0
    """Pairs whose packets cross a cable that is no link of their tenant, arriving or not."""
    examples: tuple[str, ...] = ()
    """Some of the foreign pairs."""


class Judge:
    """Walks all pairs of tenants over tables and cables."""

    def __init__(self, topology: Topology, inventory: Inventory) -> None:
        self._topology, self._inventory = topology, inventory
        self._link_of = {
            frozenset((cable.lower, cable.upper)): cable.link
            for cable in inventory.cables
            if cable.link is not None
        }

    def pairs(
        self, rows: Rows, wiring: Wiring, tenants: Collection[tuple[Allocation, Collection[Link]]]
    ) -> Pairs:
        """Walk the pairs of tenants; each with the links that are its own."""
        walked = lost = foreign = 0
        examples: list[str] = []
        far = dict(wiring.far)
        for tenant, links in tenants:
            own = frozenset(links)
            for leaf, target, count in self._pairs(tenant, far):
                arrives, strange = self._walk(rows, far, leaf, target, own)
                walked += count
                lost += 0 if arrives else count
                foreign += count if strange else 0
                if strange and len(examples) < 5:
                    examples.append(f"{tenant.id}: {leaf:#x} to {target.name}: {strange}")
        return Pairs(walked, lost, foreign, tuple(examples))

    def _pairs(
        self, tenant: Allocation, far: Mapping[PortRef, PortRef]
    ) -> Iterator[tuple[int, Endpoint, int]]:
        """A leaf, a target, and how many ports on the leaf send to it."""
        for rail in range(self._topology.rails):
            ports = [
                self._inventory.endpoint_of_port[host, rail]
                for host in tenant.hosts(self._topology)
            ]
            connected = [port for port in ports if far.get(port.at) == (port.guid, 0)]
            on_leaf: dict[int, int] = defaultdict(int)
            for port in connected:
                on_leaf[port.at.guid] += 1
            for target in connected:
                for leaf, senders in on_leaf.items():
                    count = senders - (leaf == target.at.guid)
                    if count:
                        yield leaf, target, count

    def _walk(
        self,
        rows: Rows,
        far: Mapping[PortRef, PortRef],
        switch: int,
        target: Endpoint,
        own: frozenset[Link],
    ) -> tuple[bool, str]:
        """Whether a packet arrives, and the first strange cable that it crosses, if any."""
        lid = self._inventory.lids[target.guid]
        strange = ""
        for _ in range(64):
            row = rows.get(switch, b"")
            port = row[lid] if lid < len(row) else NO_ENTRY
            here = PortRef(switch, port)
            there = far.get(here)
            if there is None:
                return False, strange
            if there.port == 0:
                return there.guid == target.guid, strange
            if self._link_of.get(frozenset((here, there))) not in own:
                strange = strange or f"{here.guid:#x}[{here.port}]-{there.guid:#x}[{there.port}]"
            switch = there.guid
        return False, strange
