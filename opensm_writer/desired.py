# SPDX-License-Identifier: Apache-2.0

"""What the subnet manager is to know, as values: tables, partitions, routing chains.

Everything is derived from one ``FabricState`` and nothing else. ``files`` turns
these values into text, ``reader`` turns the text into equal values again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput, LimitExceeded, NotFound
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import Link
from laas_service.messages import FabricState

MAX_LID = 0xBFFF
MAX_PKEY = 0x7FFE
"""The highest partition key of a tenant; 0x7fff is the default partition."""

BLOCK = 64
"""LIDs in one block of a forwarding table."""

MAX_TOPOLOGIES = 50
MAX_STEPS = 50
MAX_STEP_ID = 100
MAX_RULE = 250
"""Rules of a port group stay below this: the vendor's headers have a 256-byte constant."""

PLANE_SWITCHES, PLANE_ADAPTERS = "laas.plane-sw", "laas.plane-hca"
"""Names that no allocation's group has: those begin with ``laas-``."""

SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition key (15 bits) and the port GUIDs of its full members, ascending."""

    name: str
    pkey: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Ports by GUID, ascending: an adapter's port with (), a switch with its port numbers."""

    name: str
    ports: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class SubTopology:
    """A part of the fabric that is routed by itself; both groups by name. ``id`` 1..50."""

    id: int
    switches: str
    adapters: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a routing chain; topology 0 is the whole fabric. ``id`` 1..100."""

    id: int
    engine: str
    topology: int
    config: str


@dataclass(frozen=True, slots=True)
class Chains:
    """Routing chains of the vendor's OpenSM; ``lists`` are GUID lists by file name."""

    groups: tuple[PortGroup, ...]
    topologies: tuple[SubTopology, ...]
    steps: tuple[Step, ...]
    lists: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """All values of one generation. ``chains`` is None where ``chains_omitted`` says why."""

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
        """Brings the ports of a row of the tables into the order of ``lids``."""
        return picker([self.tables.index[guid] for guid in self.lids])

    def row_by_lid(self, switch: int) -> bytes:
        """A switch's ports by LID, ``NO_ROUTE`` in between, up to the last that has a port."""
        none = bytes([NO_ROUTE])
        return self._spread(self.tables.rows[switch] + none).rstrip(none)

    @cached_property
    def _spread(self) -> Callable[[bytes], bytes]:
        """From a row with ``NO_ROUTE`` behind it to ports by LID."""
        places = [-1] * (max(self.lids.values()) + 1)
        for guid, lid in self.lids.items():
            places[lid] = self.tables.index[guid]
        return picker(places)


def picker(places: Sequence[int]) -> Callable[[bytes], bytes]:
    """A function that picks the bytes at some places; made once, as picking is done often."""
    if len(places) < 2:
        return lambda row: bytes(row[place] for place in places)
    pick = itemgetter(*places)
    return lambda row: bytes(pick(row))


def plan(state: FabricState, before: Plan | None = None) -> Plan:
    """The values for a state; ``before``, an earlier plan of the fabric, only saves time.

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
        [a for tenant in state.tenants for a in (tenant.beside, tenant.allocation) if a],
        state.failed_links,
        before.tables if before is not None else None,
        state.shared_plane,
    )
    omitted = None
    planned = None
    try:
        planned = chains(state)
    except LimitExceeded as error:
        omitted = str(error)
    return Plan(state, tables, partitions(state), planned, omitted)


def partitions(state: FabricState) -> tuple[Partition, ...]:
    """One partition a tenant, by ascending key.

    Raises:
        InvalidInput: a key is out of range or used twice.
    """
    seen: dict[int, str] = {}
    found = []
    for tenant in state.tenants:
        name = tenant.allocation.id
        if not 1 <= tenant.pkey <= MAX_PKEY:
            raise InvalidInput(f"pkey of {name}", tenant.pkey, "keys are 0x0001..0x7ffe")
        if seen.setdefault(tenant.pkey, name) != name:
            raise InvalidInput(f"pkey of {name}", tenant.pkey, f"{seen[tenant.pkey]} has it")
        found.append(Partition(group_name(name), tenant.pkey, tenant_ports(state, tenant.held)))
    return tuple(sorted(found, key=lambda partition: partition.pkey))


def tenant_ports(state: FabricState, allocation: Allocation) -> tuple[int, ...]:
    """Port GUIDs of a tenant's hosts, all rails, ascending."""
    endpoints = state.inventory.endpoint_of_port
    return tuple(
        sorted(
            endpoints[host, rail].guid
            for host in allocation.hosts(state.topology)
            for rail in range(state.topology.rails)
        )
    )


def group_name(allocation_id: str, kind: str = "") -> str:
    """A name no subnet manager has reserved (``Default``, anything that begins with ``ALL``)."""
    return f"laas-{allocation_id}{kind}"


def chains(state: FabricState) -> Chains:
    """A base step for the whole fabric, one for the shared plane if there is one, then a step
    for each tenant that has links.

    The plane's step holds every adapter whose switch has a link of the plane; what it does not
    reach stays with the base step. A tenant under one leaf gets no topology: the base step
    already keeps it there.

    Raises:
        LimitExceeded: more tenants with links than the vendor's tables hold.
    """
    tenants = [t.allocation for t in state.tenants if any(t.allocation.links(state.topology))]
    first = 2 if state.shared_plane.l2 else 1
    room = min(MAX_TOPOLOGIES, MAX_STEPS - 1, MAX_STEP_ID - 1) + 1 - first
    if len(tenants) > room:
        raise LimitExceeded(
            f"routing chains hold {room} tenants with links, there are {len(tenants)}; "
            "use the file engine (lfts), which has no such limit"
        )
    groups, topologies = [], []
    steps = [Step(1, "updn", 0, "base.conf")]
    lists = {"base.roots": _top(state.inventory)}
    if state.shared_plane.l2:
        shared = _shared(state)
        groups += [PortGroup(PLANE_SWITCHES, shared.switches)]
        groups += [PortGroup(PLANE_ADAPTERS, tuple((guid, ()) for guid in shared.adapters))]
        topologies.append(SubTopology(1, PLANE_SWITCHES, PLANE_ADAPTERS))
        steps.append(Step(2, "updn", 1, "plane.conf"))
        lists["plane.roots"] = shared.roots
    for number, allocation in enumerate(tenants, first):
        switches = group_name(allocation.id, "-sw")
        adapters = group_name(allocation.id, "-hca")
        guids = tenant_ports(state, allocation)
        groups.append(PortGroup(switches, _switch_ports(state, allocation)))
        groups.append(PortGroup(adapters, tuple((guid, ()) for guid in guids)))
        topologies.append(SubTopology(number, switches, adapters))
        steps.append(Step(number + 1, "ftree", number, f"engines/{allocation.id}.conf"))
        lists[f"engines/{allocation.id}.roots"] = _roots(state, allocation)
        lists[f"engines/{allocation.id}.cn"] = guids
    return Chains(tuple(groups), tuple(topologies), tuple(steps), lists)


class _Shared(NamedTuple):
    """The shared plane as ports: what its step routes, over what, from which roots."""

    switches: tuple[tuple[int, tuple[int, ...]], ...]
    adapters: tuple[int, ...]
    roots: tuple[int, ...]


def _shared(state: FabricState) -> _Shared:
    inventory, failed, plane = state.inventory, set(state.failed_links), state.shared_plane
    cables = [
        cable
        for link, cable in inventory.cable_of_link.items()
        if link not in failed and plane.holds(state.topology.tree, link)
    ]
    lower, upper = {cable.lower.guid for cable in cables}, {cable.upper.guid for cable in cables}
    joined = [e for e in inventory.endpoints if e.at.guid in lower | upper]
    ends = [end for cable in cables for end in (cable.lower, cable.upper)]
    return _Shared(
        _by_switch([*ends, *(e.at for e in joined)]),
        tuple(sorted(e.guid for e in joined)),
        tuple(sorted(upper - lower)),
    )


def _switch_ports(
    state: FabricState, allocation: Allocation
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Both ends of every cable of a tenant, and the ports its hosts are plugged into."""
    inventory = state.inventory
    ends: list[PortRef] = [
        inventory.endpoint_of_port[host, rail].at
        for host in allocation.hosts(state.topology)
        for rail in range(state.topology.rails)
    ]
    for link in allocation.links(state.topology):
        cable = inventory.cable_of_link[link]
        ends += [cable.lower, cable.upper]
    return _by_switch(ends)


def _by_switch(ends: Iterable[PortRef]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    ports: dict[int, set[int]] = defaultdict(set)
    for end in ends:
        ports[end.guid].add(end.port)
    return tuple((guid, tuple(sorted(ports[guid]))) for guid in sorted(ports))


def _roots(state: FabricState, allocation: Allocation) -> tuple[int, ...]:
    """The tenant's topmost switches: spines, or L2 switches where it has no spine."""
    cables = state.inventory.cable_of_link
    tops: list[Link] = [*allocation.spine_links(state.topology)]
    tops = tops or [*allocation.leaf_links(state.topology)]
    return tuple(sorted({cables[link].upper.guid for link in tops}))


def _top(inventory: Inventory) -> tuple[int, ...]:
    level = max(switch.level for switch in inventory.switches)
    return tuple(sorted(s.guid for s in inventory.switches if s.level == level))


def _check_names(state: FabricState) -> None:
    """Ids become names of files and groups; nothing in them may mean more than a name."""
    for field, name in (
        ("fabric", state.fabric),
        *(("allocation", tenant.allocation.id) for tenant in state.tenants),
    ):
        if not SAFE_NAME.fullmatch(name):
            raise InvalidInput(
                field, name, "use letters, digits, '.', '_' and '-', up to 100, not '.' first"
            )


def _check_lids(inventory: Inventory) -> None:
    """Every port and switch has a LID of its own, and none can lie beyond OpenSM's tables.

    An entry for a port that is gone is written at the LID the file gives, without a
    bounds check; it is inside as long as something of the topmost block is there.
    """
    wanted = [*(e.guid for e in inventory.endpoints), *(s.guid for s in inventory.switches)]
    missing = [guid for guid in wanted if guid not in inventory.lids]
    if missing:
        raise NotFound("LID of GUID", f"{missing[0]:#018x}")
    lids = [inventory.lids[guid] for guid in wanted]
    if len(set(lids)) != len(lids) or not all(1 <= lid <= MAX_LID for lid in lids):
        raise InvalidInput("lids", max(lids), f"LIDs are unique and lie in 1..{MAX_LID:#x}")
    top = max(lids)
    if top % BLOCK == 0:
        raise InvalidInput("lids", top, f"the highest LID may not be a multiple of {BLOCK}")
    rented = [inventory.lids[e.guid] for e in inventory.endpoints if e.host is not None]
    if any(lid // BLOCK == top // BLOCK for lid in rented):
        raise InvalidInput(
            "lids", top, f"the topmost block of {BLOCK} LIDs is for switches and services only"
        )


def guid_text(guid: int) -> str:
    return f"{guid:#018x}"
