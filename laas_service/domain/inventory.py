# SPDX-License-Identifier: Apache-2.0

"""The inventory of a fabric: host names, GUIDs, switches, ports and cables; immutable."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.topology import Link

HOST_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,254}")
"""A name of a host that Nova accepts, and that is no option of a command."""

HOST_NAME_RULE = "a host's name has 1 to 255 of A-Z a-z 0-9 . _ -, without - in front"

_PLACEHOLDERS = {
    0: "drivers show it for a GUID that is not set",
    (1 << 64) - 1: "drivers show it for a GUID that is not set",
    0x000000FFFE000000: "it is made from an address of zeros, which is not set",
    0x020000FFFE000000: "it is made from an address of zeros, which is not set",
    0xFE80000000000000: "it is the prefix of a subnet",
}

_MULTICAST = 0xFF
"""The first byte of every multicast address (InfiniBand specification, volume 1, 4.1.1)."""


def not_a_guid(guid: int) -> str | None:
    """Why a number is no port's GUID; None if it may be one."""
    if not 0 <= guid < 1 << 64:
        return "a GUID has 64 bits"
    if guid in _PLACEHOLDERS:
        return _PLACEHOLDERS[guid]
    return "multicast addresses begin so" if guid >> 56 == _MULTICAST else None


class PortRef(NamedTuple):
    """One port of one switch: node GUID (64 bits) and port number (1..ports)."""

    guid: int
    port: int


ADAPTER_PORT = 0
"""The port number of an adapter's end of a cable; the inventory does not record its real one."""

CableEnds = tuple[PortRef, PortRef]
"""The two ends of a cable; see ``Inventory.cable_ends``."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; ``level`` 1 is a leaf, 2 an L2 switch, 3 a spine. ``ports`` excludes port 0."""

    guid: int
    name: str
    level: int
    ports: int


@dataclass(frozen=True, slots=True)
class Cable:
    """A switch-to-switch cable; ``link`` is None if it is not part of the regular tree."""

    lower: PortRef
    upper: PortRef
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A port of a channel adapter."""

    guid: int
    name: str
    at: PortRef
    """The switch port that it is plugged into."""
    host: int | None = None
    """The number of its host if tenants can have the host; None for all other ports (subnet
    manager, storage, aggregation nodes, hosts outside the tree)."""
    rail: int = 0
    """The rail of a host's port."""


@dataclass(frozen=True)
class Inventory:
    """The physical parts of a fabric, in a fixed order: equal fabrics have equal inventories."""

    host_names: tuple[str, ...]
    """By host number, the Nova host name; empty for a host number without a host."""
    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]
    endpoints: tuple[Endpoint, ...]
    leaf_guids: tuple[int, ...]
    """By leaf id (``Xgft.leaf_id``), the switch GUID; 0 if there is no switch."""
    l2_guids: tuple[int, ...]
    """By L2 id (``Xgft.l2_id``), the switch GUID; 0 if there is no switch."""
    spine_guids: tuple[int, ...]
    """By spine number, the switch GUID; 0 if there is no switch. Spines of the tree may share
    a physical switch."""
    lids: dict[int, int] = field(default_factory=dict, compare=True)
    """The LID (1..0xBFFF) pinned to each endpoint port GUID and switch GUID. Hosts have the
    lowest LIDs, then follow other endpoints, switches from the next multiple of 64 on, and
    known subnet manager ports. The highest LID is no multiple of 64. Empty for a fabric with
    more ports than a subnet has LIDs; such fabrics are only planned."""

    @cached_property
    def host_numbers(self) -> dict[str, int]:
        """The host number of each host name."""
        return {name: number for number, name in enumerate(self.host_names) if name}

    @cached_property
    def endpoint_of_port(self) -> dict[tuple[int, int], Endpoint]:
        """The endpoint of each (host number, rail)."""
        return {(e.host, e.rail): e for e in self.endpoints if e.host is not None}

    @cached_property
    def service_endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints that no tenant can have, without the aggregation nodes inside switches."""
        return tuple(
            e for e in self.endpoints if e.host is None and "Aggregation Node" not in e.name
        )

    @cached_property
    def managers(self) -> tuple[Endpoint, ...]:
        """Ports of known subnet managers: those with LIDs above the LIDs of all switches."""
        top = max((self.lids.get(switch.guid, 0) for switch in self.switches), default=0)
        return tuple(e for e in self.service_endpoints if self.lids.get(e.guid, 0) > top)

    @cached_property
    def cable_of_link(self) -> dict[Link, Cable]:
        """The cable of each link of the tree."""
        return {cable.link: cable for cable in self.cables if cable.link is not None}

    @cached_property
    def cable_ends(self) -> tuple[CableEnds, ...]:
        """The ends of all cables, ascending; also of those that are not part of the tree.

        Of a cable between switches the smaller end is first. The end at an adapter is second: its
        port GUID and ``ADAPTER_PORT``.
        """
        between = ((min(c.lower, c.upper), max(c.lower, c.upper)) for c in self.cables)
        to_adapters = ((e.at, PortRef(e.guid, ADAPTER_PORT)) for e in self.endpoints)
        return tuple(sorted((*between, *to_adapters)))

    @cached_property
    def far_ends(self) -> dict[PortRef, tuple[PortRef, Cable]]:
        """The port at the other end of each port with a cable, and the cable."""
        return {
            near: (far, cable)
            for cable in self.cables
            for near, far in ((cable.lower, cable.upper), (cable.upper, cable.lower))
        }

    @cached_property
    def switch_of_guid(self) -> dict[int, Switch]:
        """The switch of each node GUID."""
        return {switch.guid: switch for switch in self.switches}
