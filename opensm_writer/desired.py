# SPDX-License-Identifier: Apache-2.0

"""Desired configuration of a subnet manager, as values: tables, partitions, routing chains.

Everything is derived from one ``FabricState``. ``render`` turns these values into text, and
``parse`` turns the text into equal values.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput, LimitExceeded, NotFound
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.tenancy import SharedHosts
from laas_service.domain.topology import Link
from laas_service.messages import PKEYS, FabricState

MAX_LID = 0xBFFF
MAX_PORT = 254
BLOCK = 64
"""LIDs in one block of a forwarding table."""

MAX_TOPOLOGIES = 50
MAX_STEPS = 50
MAX_STEP_ID = 100
MAX_RULE = 250
"""A rule of a port group has fewer bytes: the vendor's headers have a 256-byte constant."""

PLANE_SWITCHES, PLANE_ADAPTERS = "laas.plane-sw", "laas.plane-hca"
"""Group names of the common plane. Names of allocations' groups begin with ``laas-``."""

SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition key (15 bits) and the port GUIDs of its full members, ascending."""

    name: str
    pkey: int
    members: tuple[int, ...]
    shared: bool = False
    """Whether its hosts are shared by several tenants, and may have a lane of their own."""


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Ports by GUID, ascending: an adapter's port with (), a switch with its port numbers."""

    name: str
    ports: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class SubTopology:
    """A part of the fabric that a step routes separately; groups by name. ``id`` is 1..50."""

    id: int
    switches: str
    adapters: str


@dataclass(frozen=True, slots=True)
class RoutingStep:
    """One step of a routing chain; topology 0 is the whole fabric. ``id`` is 1..100."""

    id: int
    engine: str
    topology: int
    config: str


@dataclass(frozen=True, slots=True)
class Chains:
    """Routing chains of the vendor's OpenSM; ``lists`` are GUID lists by file name."""

    groups: tuple[PortGroup, ...]
    topologies: tuple[SubTopology, ...]
    steps: tuple[RoutingStep, ...]
    lists: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class SubnetConfiguration:
    """All values of one generation. If ``chains`` is None, ``chains_omitted`` is the reason."""

    state: FabricState
    tables: ForwardingTables
    partitions: tuple[Partition, ...]
    chains: Chains | None
    chains_omitted: str | None

    @cached_property
    def lids(self) -> dict[int, int]:
        """GUID -> LID of every destination of the tables, by ascending LID."""
        pinned = self.state.inventory.lids
        return dict(sorted(((g, pinned[g]) for g in self.tables.destinations), key=lambda p: p[1]))

    @cached_property
    def by_lid(self) -> Callable[[bytes], bytes]:
        """A function that puts the ports of a row of the tables into the order of ``lids``."""
        return picker([self.tables.index[guid] for guid in self.lids])

    def row_by_lid(self, switch: int) -> bytes:
        """Ports of a switch by LID, ``NO_ROUTE`` for none, up to the last LID that has a port."""
        no_route = bytes([NO_ROUTE])
        return self._spread(self.tables.rows[switch] + no_route).rstrip(no_route)

    @cached_property
    def _spread(self) -> Callable[[bytes], bytes]:
        """A function from a row with ``NO_ROUTE`` appended to ports by LID."""
        places = [-1] * (max(self.lids.values()) + 1)
        for guid, lid in self.lids.items():
            places[lid] = self.tables.index[guid]
        return picker(places)


def picker(places: Sequence[int]) -> Callable[[bytes], bytes]:
    """A function that returns the bytes at the given positions of a row; -1 is the last one."""
    index = np.array(places, np.intp)
    return lambda row: np.frombuffer(row, np.uint8)[index].tobytes()


def subnet_configuration(
    state: FabricState, previous: SubnetConfiguration | None = None, *, enforcement: str = "file"
) -> SubnetConfiguration:
    """The values for a state. ``previous``, an earlier result for the fabric, only saves time.

    ``enforcement`` is that of ``render.Settings``: with ``chains`` these join old and new hosts of
    a tenant that moves; else nobody routes by them, and agents of earlier releases accept them.

    Raises:
        InvalidInput: LIDs or partition keys that no subnet manager would accept, or
            an id that cannot be a file name.
        NotFound: an allocation holds a link or a host that the inventory lacks.
    """
    _check_names(state)
    _check_lids(state.inventory)
    tables = forwarding_tables(
        state.topology,
        state.inventory,
        [placement for tenant in state.tenants for placement in tenant.placements],
        state.failed_links,
        previous.tables if previous is not None else None,
        state.shared_plane,
        state.moved_links,
        state.reserved_links,
    )
    routing_chains, omitted = None, None
    try:
        routing_chains = chains(state, moves=enforcement == "chains")
    except LimitExceeded as error:
        omitted = str(error)
    return SubnetConfiguration(state, tables, partitions(state), routing_chains, omitted)


def partitions(state: FabricState) -> tuple[Partition, ...]:
    """The partitions of each tenant, by ascending key: one, or several with a part of its rails.

    Raises:
        InvalidInput: a key is out of range or used twice.
    """
    owners: dict[int, str] = {}
    result = []
    for tenant in state.tenants:
        name = tenant.allocation.id
        rails = grouped((tenant.key(rail), rail) for rail in range(state.topology.rails))
        for number, (pkey, joined) in enumerate(rails.items()):
            if pkey not in PKEYS:
                raise InvalidInput(f"pkey of {name}", pkey, "keys are 0x0001..0x7ffe")
            if owners.setdefault(pkey, name) != name:
                raise InvalidInput(f"pkey of {name}", pkey, f"{owners[pkey]} has it")
            members = tenant_ports(state, tenant.held, joined)
            shared = isinstance(tenant.allocation.kind, SharedHosts)
            result.append(Partition(partition_name(name, number), pkey, members, shared))
    return tuple(sorted(result, key=lambda partition: partition.pkey))


def with_virtual_ports(
    partitions: Iterable[Partition], virtual_guids: Mapping[int, tuple[int, ...]]
) -> tuple[Partition, ...]:
    """The partitions with the virtual ports of their members; members ascend."""

    def listed(port: int) -> tuple[int, ...]:
        return (port, *virtual_guids.get(port, ()))

    return tuple(
        replace(p, members=tuple(sorted(guid for port in p.members for guid in listed(port))))
        for p in partitions
    )


def tenant_ports(
    state: FabricState, allocation: Allocation, rails: Iterable[int] | None = None
) -> tuple[int, ...]:
    """Port GUIDs of a tenant's hosts on these rails (None: all), ascending."""
    endpoints = state.inventory.endpoint_of_port
    hosts = allocation.hosts(state.topology)
    chosen = range(state.topology.rails) if rails is None else rails
    return tuple(sorted(endpoints[host, rail].guid for rail in chosen for host in hosts))


def partition_name(allocation_id: str, number: int = 0) -> str:
    """The name of a tenant's partition; ``number`` counts those of its rails from 0."""
    return f"{group_name(allocation_id)}/{number}" if number else group_name(allocation_id)


def group_name(allocation_id: str, kind: str = "") -> str:
    """A name that OpenSM has not reserved (``Default``, names that begin with ``ALL``)."""
    return f"laas-{allocation_id}{kind}"


def chains(state: FabricState, *, moves: bool = True) -> Chains:
    """Routing chains: a base step, a step for the common plane if any, one for each tenant.

    The base step routes the whole fabric. The step of the plane routes every adapter whose
    switch has a link of the plane; the base step routes the others. A tenant under one leaf has
    no links and gets no step, because the base step keeps its traffic inside the leaf.

    With ``moves`` the step of a tenant whose hosts change has both placements and the bridge.
    These need not be a fat-tree: some L2 switches may have no spine above them. So its engine is
    ``minhop``; where links join two hosts upwards, then downwards, no way between them is shorter.

    Raises:
        LimitExceeded: there are more tenants with links than the vendor's tables hold.
    """
    routed = {
        tenant.allocation.id: tenant.chained if moves else tenant.allocation
        for tenant in state.tenants
    }
    engines = {
        t.allocation.id: "ftree" if routed[t.allocation.id] == t.allocation else "minhop"
        for t in state.tenants
    }
    tenants = [a for a in routed.values() if any(a.links(state.topology))]
    plane = _plane_ports(state) if state.shared_plane.l2 else None
    if plane is not None and not plane.adapters:  # its links failed, and groups need a rule
        plane = None
    first = 1 if plane is None else 2
    room = min(MAX_TOPOLOGIES, MAX_STEPS - 1, MAX_STEP_ID - 1) + 1 - first
    if len(tenants) > room:
        raise LimitExceeded(
            f"routing chains hold {room} tenants with links, there are {len(tenants)}; "
            "use the file engine (lfts), which has no such limit"
        )
    groups, topologies = [], []
    steps = [RoutingStep(1, "updn", 0, "base.conf")]
    lists = {"base.roots": _top_switches(state.inventory)}
    if plane is not None:
        groups += [PortGroup(PLANE_SWITCHES, plane.switches)]
        groups += [PortGroup(PLANE_ADAPTERS, tuple((guid, ()) for guid in plane.adapters))]
        topologies.append(SubTopology(1, PLANE_SWITCHES, PLANE_ADAPTERS))
        steps.append(RoutingStep(2, "updn", 1, "plane.conf"))
        lists["plane.roots"] = plane.roots
    for number, allocation in enumerate(tenants, first):
        switches = group_name(allocation.id, "-sw")
        adapters = group_name(allocation.id, "-hca")
        guids = tenant_ports(state, allocation)
        groups.append(PortGroup(switches, _switch_ports(state, allocation)))
        groups.append(PortGroup(adapters, tuple((guid, ()) for guid in guids)))
        topologies.append(SubTopology(number, switches, adapters))
        engine = engines[allocation.id]
        steps.append(RoutingStep(number + 1, engine, number, f"engines/{allocation.id}.conf"))
        if engine == "ftree":
            lists[f"engines/{allocation.id}.roots"] = _roots(state, allocation)
            lists[f"engines/{allocation.id}.cn"] = guids
    return Chains(tuple(groups), tuple(topologies), tuple(steps), lists)


class _PlanePorts(NamedTuple):
    """GUIDs and ports of the common plane's step."""

    switches: tuple[tuple[int, tuple[int, ...]], ...]  # GUID and ports of its links and adapters
    adapters: tuple[int, ...]  # GUIDs of the adapters that it routes
    roots: tuple[int, ...]  # GUIDs of its topmost switches


def _plane_ports(state: FabricState) -> _PlanePorts:
    inventory, failed, plane = state.inventory, set(state.failed_links), state.shared_plane
    cables = [
        cable
        for link, cable in inventory.cable_of_link.items()
        if link not in failed and plane.withholds(state.topology.tree, link)
    ]
    lower, upper = {cable.lower.guid for cable in cables}, {cable.upper.guid for cable in cables}
    attached = [e for e in inventory.endpoints if e.at.guid in lower | upper]
    ends = [end for cable in cables for end in (cable.lower, cable.upper)]
    return _PlanePorts(
        _by_switch([*ends, *(e.at for e in attached)]),
        tuple(sorted(e.guid for e in attached)),
        tuple(sorted(upper - lower)),
    )


def _switch_ports(
    state: FabricState, allocation: Allocation
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Both ends of every cable of a tenant that was not moved, and the ports of its hosts."""
    inventory = state.inventory
    ends: list[PortRef] = [
        inventory.endpoint_of_port[host, rail].at
        for host in allocation.hosts(state.topology)
        for rail in range(state.topology.rails)
    ]
    for link in set(allocation.links(state.topology)).difference(state.moved_links):
        cable = inventory.cable_of_link[link]
        ends += [cable.lower, cable.upper]
    return _by_switch(ends)


def _by_switch(ends: Iterable[PortRef]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    ports = grouped(sorted(set(ends)))
    return tuple((guid, tuple(numbers)) for guid, numbers in ports.items())


def _roots(state: FabricState, allocation: Allocation) -> tuple[int, ...]:
    """GUIDs of the tenant's topmost switches: its spines, or its L2 switches if it has none."""
    cables = state.inventory.cable_of_link
    tops: list[Link] = [*allocation.spine_links(state.topology)]
    tops = tops or [*allocation.leaf_links(state.topology)]
    return tuple(sorted({cables[link].upper.guid for link in tops}))


def _top_switches(inventory: Inventory) -> tuple[int, ...]:
    level = max(switch.level for switch in inventory.switches)
    return tuple(sorted(s.guid for s in inventory.switches if s.level == level))


def _check_names(state: FabricState) -> None:
    """Refuse ids with characters that have a meaning in paths or OpenSM's files."""
    for field, name in (
        ("fabric", state.fabric),
        *(("allocation", tenant.allocation.id) for tenant in state.tenants),
    ):
        if not SAFE_NAME.fullmatch(name):
            raise InvalidInput(
                field, name, "use letters, digits, '.', '_' and '-', up to 100, not '.' first"
            )


def _check_lids(inventory: Inventory) -> None:
    """Check that every port and switch has a LID of its own, inside OpenSM's tables.

    OpenSM writes the entry of an absent port at the LID in the file, without a bounds check.
    The entry is inside the table if a port or switch of the topmost block is present. Hosts may
    be absent, so that block has none.
    """
    guids = [*(e.guid for e in inventory.endpoints), *(s.guid for s in inventory.switches)]
    missing = [guid for guid in guids if guid not in inventory.lids]
    if missing:
        raise NotFound("LID of GUID", f"{missing[0]:#018x}")
    lids = [inventory.lids[guid] for guid in guids]
    if len(set(lids)) != len(lids) or not all(1 <= lid <= MAX_LID for lid in lids):
        raise InvalidInput("lids", max(lids), f"LIDs are unique and lie in 1..{MAX_LID:#x}")
    top = max(lids)
    if top % BLOCK == 0:
        raise InvalidInput("lids", top, f"the highest LID may not be a multiple of {BLOCK}")
    host_lids = [inventory.lids[e.guid] for e in inventory.endpoints if e.host is not None]
    if any(lid // BLOCK == top // BLOCK for lid in host_lids):
        raise InvalidInput(
            "lids", top, f"the topmost block of {BLOCK} LIDs is for switches and services only"
        )


def guid_text(guid: int) -> str:
    """``0x`` and 16 hexadecimal digits."""
    return f"{guid:#018x}"
