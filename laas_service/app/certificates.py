# SPDX-License-Identifier: Apache-2.0

"""Certificates of isolation: what an allocation owns, and what the switches were read to run.

The tables in a certificate are those of the generation that was read back from the switches and
compared byte by byte. Of a generation that is not confirmed, and of switches that did not answer,
it has no table, and says so. It names no other tenant.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laas_service.app.lookup import Lookup
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Caller, Holding
from laas_service.app.requests import Envelope, Runtime
from laas_service.app.views.traffic import tenant_traffic
from laas_service.domain.crossed_links import CrossedLinks, crossed_links
from laas_service.domain.errors import Conflict
from laas_service.domain.inventory import Endpoint, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.messages import ConfirmedBy, FabricState, TenantRoute

FORM = "laas-certificate/1"

NOBODY, OWN, SWITCH, SERVICE, OTHER = range(5)
"""Kinds of destinations, by LID. Hosts of other tenants and free ones are alike: ``OTHER``."""

COUNTED = ("injected", "delivered", "leaf_up", "leaf_down")

_READ = (ConfirmedBy.SWITCHES, ConfirmedBy.AGENT)


class Certificates:
    """Makes certificates of allocations."""

    def __init__(self, store: Store, lookup: Lookup, runtime: Runtime) -> None:
        self._store, self._lookup, self._runtime = store, lookup, runtime
        self._tables: dict[str, tuple[FabricState, ForwardingTables]] = {}

    def certificate(self, caller: Caller, id: str, nonce: str | None) -> Envelope:
        """A certificate of the present generation, signed now.

        Raises:
            NotFound: there is no allocation of this id that the caller may see.
            Conflict: it has no hosts and links of its own; or nothing can sign here.
        """
        record = self._lookup.allocation(caller, id)
        state = self._store.fabrics.routed(record.fabric)
        route = next((t for t in state.tenants if t.allocation.id == id), None)
        if route is None or not route.allocation.isolated:
            fix = "certificates are for allocations that hold hosts and links of their own"
            raise Conflict(f"{record.name!r} has no certificate: {fix}")
        fabric, ledger = self._store.fabrics.with_ledger(record.fabric)
        found = self._store.faults.counter_findings(record.fabric)
        counted = tenant_traffic(found, [record])
        statement = _Statement(
            record,
            state,
            route,
            self._tables_of(state),
            self._store.observations.holding(record.fabric),
            crossed_links(ledger, fabric.inventory),
            dict(counted[0].bytes) if counted else {},
        )
        now = int(self._runtime.clock().timestamp())
        return self._runtime.sign({**statement.document(), "nonce": nonce, "issued_at": now})

    def _tables_of(self, state: FabricState) -> ForwardingTables:
        known, last = self._tables.get(state.fabric, (None, None))
        if last is None or known != state:
            last = forwarding_tables(
                state.topology,
                state.inventory,
                [placement for tenant in state.tenants for placement in tenant.placements],
                state.failed_links,
                last,
                state.shared_plane,
                state.moved_links,
                state.reserved_links,
            )
            self._tables[state.fabric] = state, last
        return last


@dataclass
class _Statement:
    """What a certificate says of one allocation, besides its time and nonce."""

    record: AllocationRecord
    state: FabricState
    route: TenantRoute
    tables: ForwardingTables
    holding: Holding
    crossed: CrossedLinks
    counted: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        holding, record = self.holding, self.record
        times = [at for at in (holding.seen_at, holding.compared_at) if at is not None]
        by = holding.applied_by or ConfirmedBy.NOBODY
        entries = {switch: self._entries(switch) for switch in self._switches}
        rails = self.state.topology.rails
        return {
            "form": FORM,
            "allocation": {
                "id": record.id,
                "name": record.name,
                "project": record.project_id,
                "hosts": record.hosts,
            },
            "fabric": self.state.fabric,
            "generation": {"wanted": self.state.generation, "read": holding.applied},
            "read": {
                "by": by.value,
                "at": int(max(times).timestamp()) if times and self._confirmed else None,
            },
            "hosts": self._hosts(),
            "cables": [
                {"lower": _place(lower), "upper": _place(upper)} for lower, upper in self._cables
            ],
            "destinations": b64encode(self._kinds.tobytes()).decode(),
            "switches": [
                {
                    "guid": _guid(switch),
                    "entries": None if row is None else b64encode(row.tobytes()).decode(),
                }
                for switch, row in entries.items()
            ],
            "crossing": [
                crossing
                for switch, row in entries.items()
                if row is not None
                for crossing in self._crossing(switch, row)
            ],
            "keys": {
                "read": self._keys_read,
                "by_rail": [f"{self.route.key(rail):#06x}" for rail in range(rails)],
            },
            "counters": {place: self.counted.get(place) for place in COUNTED},
            "not_read": list(self._not_read()),
        }

    @property
    def _confirmed(self) -> bool:
        """Whether the tables of this very generation were read and compared."""
        holding = self.holding
        return holding.applied == self.state.generation and holding.applied_by in _READ

    @property
    def _keys_read(self) -> bool:
        """Whether the keys of all ports that answer were read and compared with the partitions.

        The master is only known where they were read, and no generation with other keys is
        confirmed.
        """
        return self._confirmed and self.holding.running.master is not None

    def _not_read(self) -> Iterator[str]:
        if not self._confirmed:
            yield f"tables of generation {self.state.generation}"
        if not self._keys_read:
            yield "partition keys of ports"

    @cached_property
    def _endpoints(self) -> dict[tuple[int, int], Endpoint]:
        """Its ports by host and rail."""
        ports, topology = self.state.inventory.endpoint_of_port, self.state.topology
        hosts = self.route.held.hosts(topology)
        return {(h, rail): ports[h, rail] for h in hosts for rail in range(topology.rails)}

    def _hosts(self) -> list[dict[str, Any]]:
        topology, inventory = self.state.topology, self.state.inventory
        placements = [self.route.allocation, self.route.beside]
        of = [set() if p is None else {*p.hosts(topology)} for p in placements]
        return [
            {
                "name": inventory.host_names[host],
                "placements": [number for number, hosts in enumerate(of) if host in hosts],
                "ports": [
                    {
                        **_place(endpoint.at),
                        "guid": _guid(endpoint.guid),
                        "lid": inventory.lids[endpoint.guid],
                        "rail": rail,
                    }
                    for rail in range(topology.rails)
                    for endpoint in [self._endpoints[host, rail]]
                ],
            }
            for host in self.route.held.hosts(topology)
        ]

    @cached_property
    def _cables(self) -> list[tuple[PortRef, PortRef]]:
        known = self.state.inventory.cable_of_link
        links = self.route.held.links(self.state.topology)
        return [(known[link].lower, known[link].upper) for link in links if link in known]

    @cached_property
    def _owned(self) -> set[PortRef]:
        """All ports of switches that it owns."""
        return {e.at for e in self._endpoints.values()}.union(*map(set, self._cables))

    @property
    def _switches(self) -> list[int]:
        return sorted({guid for guid, _ in self._owned})

    @cached_property
    def _kinds(self) -> NDArray[np.uint8]:
        """The kind of each destination, by LID."""
        inventory = self.state.inventory
        lids = inventory.lids
        kinds = np.zeros(max(lids[guid] for guid in self.tables.destinations) + 1, np.uint8)
        kinds[[lids[switch.guid] for switch in inventory.switches]] = SWITCH
        for endpoint in inventory.endpoints:
            kinds[lids[endpoint.guid]] = SERVICE if endpoint.host is None else OTHER
        kinds[[lids[endpoint.guid] for endpoint in self._endpoints.values()]] = OWN
        return kinds

    def _entries(self, switch: int) -> NDArray[np.uint8] | None:
        """The port of a switch by LID, if the allocation owns it; None if it was not read."""
        if not self._confirmed or switch in (*self.holding.without, *self.holding.unconfirmed):
            return None
        lids = self.state.inventory.lids
        entries = np.full(len(self._kinds), NO_ROUTE, np.uint8)
        row = np.frombuffer(self.tables.rows[switch], np.uint8)
        owned = [port for guid, port in self._owned if guid == switch]
        places = np.array([lids[guid] for guid in self.tables.destinations], np.intp)
        entries[places] = np.where(np.isin(row, owned), row, NO_ROUTE)
        return entries

    def _crossing(self, switch: int, entries: NDArray[np.uint8]) -> Iterator[dict[str, Any]]:
        """Its ports by which addresses of others are reached, and why nobody is disturbed, or is.

        Towards these addresses its own hosts, and nobody else, may send over a switch all of
        whose cables it owns. Of other switches, ``crossed_links`` knows the pairs that may talk and
        whose way leads here.
        """
        others = entries[(entries != NO_ROUTE) & (self._kinds != OWN)]
        ends, link_of = self.state.inventory.far_ends, self._link_of_end
        cabled = {end for end in ends if end.guid == switch}
        cabled |= {e.at for e in self.state.inventory.endpoints if e.at.guid == switch}
        alone = cabled <= self._owned
        hosts = entries[(entries != NO_ROUTE) & (self._kinds == OTHER)]
        for port in np.unique(others).tolist():
            link = link_of.get(PortRef(switch, port))
            pairs = self.crossed.links.get(link, 0) if link is not None else 0
            quiet = "own_senders" if alone else "nobody_sends"
            yield {
                **_place(PortRef(switch, port)),
                "destinations": int((others == port).sum()),
                "hosts": int((hosts == port).sum()),
                "pairs": pairs,
                "why": "no_other_way" if pairs else quiet,
            }

    @cached_property
    def _link_of_end(self) -> dict[PortRef, Any]:
        known = self.state.inventory.cable_of_link
        return {
            end: link
            for link in self.route.held.links(self.state.topology)
            if link in known
            for end in (known[link].lower, known[link].upper)
        }


def _guid(guid: int) -> str:
    return f"{guid:#018x}"


def _place(end: PortRef) -> dict[str, Any]:
    return {"switch": _guid(end.guid), "port": end.port}
