# SPDX-License-Identifier: Apache-2.0

"""What stands behind the indices: host names, GUIDs, switch ports, cables; immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.topology import Link


class PortRef(NamedTuple):
    """One port of one switch: node GUID (64 bits) and port number (1..ports)."""

    guid: int
    port: int


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; ``level`` 1 is a leaf, 2 an L2 switch, 3 a spine. ``ports`` excludes port 0."""

    guid: int
    name: str
    level: int
    ports: int


@dataclass(frozen=True, slots=True)
class Cable:
    """A switch-to-switch cable; ``link`` is None where it is no part of the regular tree."""

    lower: PortRef
    upper: PortRef
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A channel adapter's port and where it is plugged in.

    ``host`` and ``rail`` are set for ports of hosts that are for tenants; the
    others (subnet manager, storage, aggregation nodes, odd hosts) have None.
    """

    guid: int
    name: str
    at: PortRef
    host: int | None = None
    rail: int = 0


@dataclass(frozen=True)
class Inventory:
    """Everything physical, in a fixed order: equal fabrics give equal inventories.

    ``host_names[h]`` is the Nova host name of host h ("" for a slot nobody has).
    ``lids`` pins a LID (1..0xBFFF) to every endpoint port GUID and switch GUID:
    hosts low, other endpoints above, then from a new block of 64 on the switches, and
    subnet manager ports (where known) on top, the highest LID no multiple of 64. It is
    empty for a fabric larger than a subnet, which only exists on paper.
    ``leaf_guids[leaf_id]`` and so on name the switch at each position of the
    tree, 0 where there is none; virtual spines may share a physical switch.
    """

    host_names: tuple[str, ...]
    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]
    endpoints: tuple[Endpoint, ...]
    leaf_guids: tuple[int, ...]
    l2_guids: tuple[int, ...]
    spine_guids: tuple[int, ...]
    lids: dict[int, int] = field(default_factory=dict, compare=True)

    @cached_property
    def host_numbers(self) -> dict[str, int]:
        """Host name -> host number."""
        return {name: number for number, name in enumerate(self.host_names) if name}

    @cached_property
    def endpoint_of_port(self) -> dict[tuple[int, int], Endpoint]:
        """(host, rail) -> its endpoint."""
        return {(e.host, e.rail): e for e in self.endpoints if e.host is not None}

    @cached_property
    def service_endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints that are no tenant's, without the aggregation nodes inside switches."""
        return tuple(
            e for e in self.endpoints if e.host is None and "Aggregation Node" not in e.name
        )

    @cached_property
    def cable_of_link(self) -> dict[Link, Cable]:
        return {cable.link: cable for cable in self.cables if cable.link is not None}

    @cached_property
    def switch_of_guid(self) -> dict[int, Switch]:
        return {switch.guid: switch for switch in self.switches}
