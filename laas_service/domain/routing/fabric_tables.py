# SPDX-License-Identifier: Apache-2.0

"""Forwarding tables of the whole fabric: the default entries, with every tenant's over them.

A switch has one entry for each destination, whoever sends, so isolation depends on
which link each switch uses towards each destination:

* towards a port of a tenant, the switches of the tenant's partition use the tenant's
  links (``tenant_tables``);
* all other entries follow D-mod-k on the physical tree (``default_tables``), and leave it where
  an owned cable lies ahead and another way crosses fewer (``ways``): towards idle hosts, subnet
  manager, storage and every switch's own LID, and at the switches outside a partition towards
  its tenant.

Where a *common plane* is withheld from tenants, the default entries use its links alone
as far as they reach, so an owned link carries packets of its owner only. A destination
that the plane does not reach, because a cable of it is missing or has failed, is reached
over any other links. So is a switch outside the plane, by its own LID.

Every path of a tenant, and nearly every other path, goes up and then down, so there is
neither a loop nor a credit loop. Where no such path exists (between two spines, or past
a missing cable), the path leads over one chosen leaf, the *pivot*, or over a switch above
it. Only there may a path turn from down to up. No path from below the pivot's own
switches comes back to the pivot, so no cycle of dependencies closes. Where a spine stands
above several L2 switches of every leaf (directors), this argument fails. Services and subnet
managers then have routes with other turns that close no cycle (``service_routes``); other such
pairs have no route, and only management traffic between switches needs one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import NotFound
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Inventory
from laas_service.domain.routing.default_tables import (
    NO_ROUTE,
    Computed,
    DefaultRoutes,
)
from laas_service.domain.routing.tenant_tables import CompactedTree, NamedLink, tenant_ports
from laas_service.domain.routing.ways import OwnedRows, Tenant, TenantPorts
from laas_service.domain.topology import Link, Topology, link_name


class _Key(NamedTuple):
    """What the entries of one placement depend on, besides the hardware and the faults."""

    allocation: Allocation
    shaped: bool
    """As in ``CompactedTree``."""

    alone: bool
    """Whether it is all that its tenant holds."""


class _TenantEntries(NamedTuple):
    """Entries of one switch towards a tenant's ports on one leaf."""

    positions: Sequence[int]
    """Where the ports stand in ``ForwardingTables.destinations``."""

    ports: Sequence[int]
    """The out port for each of them, or ``NO_ROUTE``."""

    arrives: bool = False
    """Whether the entries reach the ports over working links."""


@dataclass(frozen=True)
class ForwardingTables:
    """The out port of every switch towards every destination."""

    destinations: tuple[int, ...]
    """Port GUIDs of channel adapters and node GUIDs of switches, in a fixed order: switch by
    switch, first the adapters attached to it, then the switch itself."""

    rows: dict[int, bytes]
    """By GUID of the switch, ascending: its port towards each destination, in their order.
    0 is the switch itself; ``NO_ROUTE`` means that it has no entry."""

    cache: _RenderCache | None = field(default=None, repr=False, compare=False)
    """What the next call of ``forwarding_tables`` can reuse."""

    @cached_property
    def own_entries(self) -> NDArray[np.bool_]:
        """By row and destination, whether the entry is one of the tenant of that port.

        Raises:
            ValueError: the tables were read, and not computed.
        """
        if self.cache is None:
            raise ValueError("tables that were read do not say which entries are a tenant's own")
        own = np.zeros((len(self.rows), len(self.destinations)), bool)
        for row, guid in enumerate(self.rows):
            own[row, self.cache.by_switch[guid].positions] = True
        return own

    @cached_property
    def crossing(self) -> dict[int, NDArray[np.intp]]:
        """By GUID of a switch, the positions of destinations towards which its packets may cross an
        owned cable that is not the destination's.

        Raises:
            ValueError: the tables were read, and not computed.
        """
        if self.cache is None:
            raise ValueError("tables that were read do not say whose cables lie ahead")
        owned = self.cache.owned
        return {guid: owned.crossing(n) for n, guid in enumerate(self.cache.defaults.guids)}

    @cached_property
    def index(self) -> dict[int, int]:
        """GUID -> its position in ``destinations``."""
        return {guid: i for i, guid in enumerate(self.destinations)}

    def port(self, switch: int, destination: int) -> int | None:
        """The out port of a switch towards a GUID; None if it has no entry."""
        port = self.rows[switch][self.index[destination]]
        return None if port == NO_ROUTE else port


def forwarding_tables(
    topology: Topology,
    inventory: Inventory,
    allocations: Iterable[Allocation],
    failed_links: Collection[Link] = (),
    previous: ForwardingTables | None = None,
    plane: CommonPlane = NO_PLANE,
    closed_links: Collection[Link] = (),
    reserved_links: Collection[Link] = (),
) -> ForwardingTables:
    """Tables for the whole fabric; the same input gives the same tables.

    The default entries keep off the links that ``allocations`` hold and off ``reserved_links``,
    which others hold that have no tables; then they prefer the links of ``plane``.

    A failed link is used only where no other link leads on. The default entries then
    prefer any other cable, and a tenant's entries any other link of the tenant, never
    one of another owner: a tenant that a fault cuts off stays cut off until it is placed
    anew. A tenant's own entries towards its ports depend on that tenant and the faults, not
    on the other tenants. The rails of an isolated tenant may not be joined by its
    links (their planes meet above its partition). Its leaves then have no route from one
    rail to another, as it would lead over links of others. The exception is a switch with a
    subnet manager, which needs a route to every port.

    No entry leads over ``closed_links``, which are failed ones whose ends are linked elsewhere:
    where they were the last way, there is no entry.

    If several allocations are placements of one tenant, the entries of the later ones are used, and
    those of the earlier ones where the later have none. The first of three is everything that the
    tenant holds: its links join hosts of the other two, in any shape. Of six, the first three are
    such placements on other links. A leaf that they do not join to a port of the tenant has no
    route there, unless a subnet manager is on it.

    ``previous`` only saves time: the tables of an earlier state of the fabric. While the
    hardware is the same, entries are computed only for new tenants and for those with a link
    whose fault began or ended, default entries only where the cost of a way changes, and a row
    that does not change is the very same object.

    Raises:
        NotFound: an allocation holds a link or a host that the inventory lacks.
    """
    made_from = topology, inventory, frozenset(failed_links), plane, frozenset(closed_links)
    cache = previous.cache if previous is not None else None
    if cache is not None and not cache.defaults.is_of(topology, inventory, plane):
        cache = None
    if cache is not None and cache.defaults.made_from == made_from:
        defaults = cache.defaults
    else:
        defaults = _DefaultTables(*made_from, cache.defaults if cache is not None else None)
    tenants = grouped((allocation.id, allocation) for allocation in allocations)
    keys = {
        id: [
            _Key(each, shaped=n % 3 > 0 or len(placements) < 3, alone=len(placements) == 1)
            for n, each in enumerate(placements)
        ]
        for id, placements in tenants.items()
    }
    known = cache.by_tenant if cache is not None else {}
    if cache is not None and (changed := defaults.other_faults(cache.defaults)):
        known = {k: known[k] for k in known if changed.isdisjoint(k.allocation.links(topology))}
    by_tenant = {
        key: known.get(key) or list(defaults.tenant_entries(key))
        for keys_of_tenant in keys.values()
        for key in keys_of_tenant
    }
    unchanged = cache if cache is not None and defaults is cache.defaults else None
    known_owners = unchanged.owners if unchanged is not None else {}
    owners = {
        several: known_owners.get(several) or defaults.owner(several, by_tenant)
        for keys_of_tenant in keys.values()
        for several in [tuple(keys_of_tenant)]
    }
    reserved = frozenset(reserved_links)
    held = owners.keys(), reserved
    if unchanged is not None and held == (unchanged.owners.keys(), unchanged.reserved):
        owned = unchanged.owned
    else:
        earlier = unchanged.owned if unchanged is not None else None
        owned = defaults.owned_rows(owners.values(), reserved, earlier)
    default_rows = dict(zip(defaults.guids, owned.rows, strict=True))
    changes: dict[int, list[_TenantEntries]] = {guid: [] for guid in defaults.rows}
    for entries_of_tenant in by_tenant.values():
        for switch, entries in entries_of_tenant:
            changes[switch].append(entries)
    for id, placements in tenants.items():
        if len(placements) > 1 and placements[0].isolated:
            entries_of_all = [entry for key in keys[id] for entry in by_tenant[key]]
            for switch, entries in defaults.parted_entries(placements, entries_of_all):
                changes[switch].append(entries)
    by_switch: dict[int, _OwnEntries] = {}
    rows: dict[int, bytes] = {}
    for guid, given in changes.items():
        known_own = cache.by_switch[guid] if cache is not None else None
        own = known_own if known_own and known_own.made_from == given else _OwnEntries.of(given)
        row, by_switch[guid] = own.over(default_rows[guid]), own
        old = previous.rows[guid] if previous is not None and cache is not None else None
        rows[guid] = old if old is not None and row == old else row
    return ForwardingTables(
        defaults.destinations,
        rows,
        _RenderCache(defaults, by_tenant, by_switch, owners, reserved, owned),
    )


class _OwnEntries(NamedTuple):
    """The entries of one switch that are tenants' own; of several for a port the last counts."""

    made_from: Sequence[_TenantEntries]
    positions: NDArray[np.intp]
    ports: NDArray[np.uint8]

    @classmethod
    def of(cls, several: Sequence[_TenantEntries]) -> _OwnEntries:
        positions = [position for entries in several for position in entries.positions]
        ports = [port for entries in several for port in entries.ports]
        return cls(several, np.array(positions, np.intp), np.array(ports, np.uint8))

    def over(self, row: NDArray[np.uint8]) -> bytes:
        """The row with these entries in place of the default ones."""
        overwritten = row.copy()
        overwritten[self.positions] = self.ports
        return overwritten.tobytes()


class _DefaultTables:
    """The default entries of one state of hardware, faults and common plane."""

    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        failed: frozenset[Link],
        plane: CommonPlane,
        closed: frozenset[Link],
        previous: _DefaultTables | None,
    ) -> None:
        self.made_from = topology, inventory, failed, plane, closed
        self._topology = topology
        self._inventory = inventory
        self._failed = failed
        earlier = previous.computed if previous is not None else None
        routes = DefaultRoutes(inventory, failed, topology.tree, plane, earlier)
        self.destinations = routes.destinations
        self.rows = routes.rows()
        self.computed: Computed = routes.computed
        self._closed: dict[int, set[int]] = defaultdict(set)
        for link in closed:
            for end in inventory.cable_of_link[link].lower, inventory.cable_of_link[link].upper:
                self._closed[end.guid].add(end.port)
        for guid, ports in self._closed.items():
            self.rows[guid] = bytes(NO_ROUTE if p in ports else p for p in self.rows[guid])
        self._ways = routes.ways(self.rows)
        self._number = routes.number
        self.guids = sorted(routes.number, key=routes.number.__getitem__)
        """The switches in the order of ``OwnedRows.rows``."""
        self._index = {guid: i for i, guid in enumerate(routes.destinations)}
        self._manager_switches = _manager_switches(inventory)

    def is_of(self, topology: Topology, inventory: Inventory, plane: CommonPlane) -> bool:
        """Whether the tables are of this hardware and plane."""
        return (topology, inventory, plane) == (self._topology, self._inventory, self.made_from[3])

    def other_faults(self, earlier: _DefaultTables) -> frozenset[Link]:
        """The links that have failed, or are closed, in one of the two only."""
        _, _, failed, _, closed = self.made_from
        _, _, failed_before, _, closed_before = earlier.made_from
        return (failed ^ failed_before) | (closed ^ closed_before)

    def tenant_entries(self, key: _Key) -> Iterator[tuple[int, _TenantEntries]]:
        """The entries that differ from the default for a tenant's ports, each with its switch.

        A leaf with a subnet manager, unless it is one of the tenant's, keeps its default
        entries where the tenant's lead nowhere: the default leads round the fault.
        """
        allocation, shaped, alone = key
        partition = CompactedTree(
            self._topology, allocation, self._named_by_guid, self._failed, shaped=shaped
        )
        on_leaves = list(tenant_ports(self._topology, allocation))
        apart = allocation.isolated and alone
        leaf_guids = self._inventory.leaf_guids
        leaves = {leaf_guids[leaf] for leaf, _, _ in on_leaves}
        for leaf, rail, hosts in on_leaves:
            positions = [self._index[_port_guid(self._inventory, host, rail)] for host in hosts]
            joined = {leaf_guids[leaf]}
            for switch, ports, leads_on in partition.entries(leaf_guids[leaf], len(hosts)):
                joined.add(switch)
                if leads_on or switch in leaves or switch not in self._manager_switches:
                    if closed := self._closed.get(switch):
                        ports = [NO_ROUTE if port in closed else port for port in ports]
                    yield switch, _TenantEntries(positions, ports, leads_on)
            for from_leaf, from_rail, _ in on_leaves if apart else ():
                switch = leaf_guids[from_leaf]
                if from_rail != rail and switch not in joined | self._manager_switches:
                    yield switch, _TenantEntries(positions, [NO_ROUTE] * len(positions))

    def owner(
        self,
        keys: Sequence[_Key],
        by_tenant: Mapping[_Key, Iterable[tuple[int, _TenantEntries]]],
    ) -> Tenant:
        """What the default entries have to know of a tenant with these placements.

        Ports on one leaf are apart where not the same placements have them.
        """
        on_leaf: dict[tuple[int, tuple[int, ...]], dict[int, bool]] = defaultdict(dict)
        for n, key in enumerate(keys):
            for switch, entries in by_tenant[key]:
                on_leaf[n, tuple(entries.positions)][self._number[switch]] = entries.arrives
        parts = grouped((position, part) for part in on_leaf for position in part[1])
        together = grouped((tuple(several), position) for position, several in parts.items())
        held = frozenset(
            end for key in keys for end in self._ends(key.allocation.links(self._topology))
        )
        ports = []
        for several, positions in together.items():
            home = int(self._ways.home[positions[0]])
            own = {switch: arrives for part in several for switch, arrives in on_leaf[part].items()}
            free = sorted(end for end in held if end[0] not in own and end[0] != home)
            ports.append(TenantPorts(home, positions, own, free))
        return Tenant(held, ports)

    def owned_rows(
        self, owners: Iterable[Tenant], reserved: Iterable[Link], earlier: OwnedRows | None
    ) -> OwnedRows:
        """The default entries beside these tenants and reserved links."""
        return OwnedRows(self._ways, [*owners], self._ends(reserved), earlier)

    def _ends(self, links: Iterable[Link]) -> Iterator[tuple[int, int]]:
        """Both ends of each cable, as number of the switch and port."""
        for link in links:
            if (cable := self._inventory.cable_of_link.get(link)) is not None:
                for guid, port in (cable.lower, cable.upper):
                    yield self._number[guid], port

    def parted_entries(
        self,
        placements: Iterable[Allocation],
        entries: Iterable[tuple[int, _TenantEntries]],
    ) -> Iterator[tuple[int, _TenantEntries]]:
        """No routes between leaves and ports of a tenant that its links do not join.

        ``entries`` are those of all its placements.
        """
        known: dict[int, set[int]] = defaultdict(set)
        for switch, given in entries:
            known[switch].update(given.positions)
        ports: dict[int, set[int]] = defaultdict(set)
        for placement in placements:
            for leaf, rail, hosts in tenant_ports(self._topology, placement):
                guids = (_port_guid(self._inventory, host, rail) for host in hosts)
                leaf_guid = self._inventory.leaf_guids[leaf]
                ports[leaf_guid].update(self._index[guid] for guid in guids)
        everywhere = set().union(*ports.values())
        for switch in sorted(ports.keys() - self._manager_switches):
            parted = sorted(everywhere - known[switch] - ports[switch])
            if parted:
                yield switch, _TenantEntries(parted, [NO_ROUTE] * len(parted))

    def _named_by_guid(self, link: Link) -> NamedLink[int]:
        cable = self._inventory.cable_of_link.get(link)
        if cable is None:
            raise NotFound("cable", link_name(link))
        lower, upper = cable.lower, cable.upper
        return NamedLink(link, lower.guid, upper.guid, lower.port, upper.port)


@dataclass(frozen=True)
class _RenderCache:
    """Intermediate results of ``forwarding_tables``, reused for the next state."""

    defaults: _DefaultTables
    by_tenant: Mapping[_Key, list[tuple[int, _TenantEntries]]]
    by_switch: Mapping[int, _OwnEntries]
    owners: Mapping[tuple[_Key, ...], Tenant]
    """By the placements of a tenant."""

    reserved: frozenset[Link]
    owned: OwnedRows


def _manager_switches(inventory: Inventory) -> set[int]:
    """GUIDs of the switches with a subnet manager: traffic of others relies on their entries.

    If no manager is known, any adapter that is not for tenants may be one, except aggregation
    nodes inside switches.
    """
    return {endpoint.at.guid for endpoint in inventory.managers or inventory.service_endpoints}


def _port_guid(inventory: Inventory, host: int, rail: int) -> int:
    endpoint = inventory.endpoint_of_port.get((host, rail))
    if endpoint is None:
        raise NotFound("port of host", f"{host}/{rail}")
    return endpoint.guid
