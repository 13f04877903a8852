# SPDX-License-Identifier: Apache-2.0

"""The desired state of a fabric: every tenant's routes, for the subnet manager."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, virtual_ports
from laas_service.adapters.db.allocation_rows import KINDS, with_parts
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions
from laas_service.adapters.documents import allocation_from, mending_from
from laas_service.app.lifecycle import Phase, WantedRoutes, routes
from laas_service.app.records import FabricRecord, LinkState, Stamped, ToPublish
from laas_service.domain.faults.observation import Mode
from laas_service.domain.routing.tenant_tables import reserved_links, routed_allocations
from laas_service.domain.tenancy import Slots
from laas_service.messages import FabricState, TenantRoute

_CHANGE = (
    *(models.ChangePart.leaving, models.ChangePart.phase),
    *(models.ChangePart.bridge, models.ChangePart.mending),
)
"""The columns of a change of placement."""


@dataclass
class DesiredState:
    """The state from which the files of a subnet manager are rendered."""

    transactions: Transactions
    ledgers: LedgerCache

    def routed(self, fabric_id: str) -> FabricState:
        with self.transactions.reading_one_state() as session:
            return self._state(session, self.ledgers.record(session, fabric_id))

    def to_publish(self, fabric_id: str, published: Stamped | None) -> ToPublish:
        with self.transactions.reading_one_state() as session:
            record, mode, same = self.ledgers.compared(session, fabric_id, published)
            state = None if same else self._state(session, record)
            routes = record.routes_generation, record.routes_stamp
            return ToPublish(routes, Mode(mode) if mode else None, state)

    def _state(self, session: Session, record: FabricRecord) -> FabricState:
        fabric_id = record.id
        table, down = models.AllocationRow, models.LinkStateRow
        held, change = models.PlacementPart, models.ChangePart
        columns = (held.placed, held.pkey, held.pkeys, *_CHANGE)
        rows = session.execute(
            with_parts(select(*columns).select_from(table), held, change).where(
                table.fabric == fabric_id,
                held.placed.is_not(None),
                table.kind != KINDS[Slots],  # they are reached over the routes of their hosts
                table.handed_back.is_(False),
            )
        )
        routes_of = {route.allocation.id: route for route in map(_route, rows)}
        placed = [route.allocation for route in routes_of.values()]
        tenants = [
            replace(routes_of[allocation.id], allocation=allocation)
            for allocation in routed_allocations(placed)
        ]
        failed = (down.fabric == fabric_id, down.state == LinkState.FAILED.value)
        query = select(down.link, down.moved).where(*failed).order_by(down.link)
        links = {row.link: row.moved for row in session.execute(query)}
        link_at = record.topology.tree.link_at
        return FabricState(
            record.id,
            record.routes_generation,
            record.topology,
            record.inventory,
            tuple(sorted(tenants, key=lambda tenant: tenant.allocation.id)),
            tuple(map(link_at, links)),
            record.shared_plane,
            tuple(link_at(link) for link, moved in links.items() if moved),
            reserved_links(record.topology, placed),
            record.routes_stamp,
            virtual_ports.recorded(session, fabric_id),
        )


def _route(row: Any) -> TenantRoute:
    """How a tenant is routed; while its placement changes, as its phase wants."""
    leaving, phase = row.leaving and allocation_from(row.leaving), row.phase and Phase(row.phase)
    bridge = row.bridge and allocation_from(row.bridge)
    mending = row.mending and mending_from(row.mending)
    wanted = routes(allocation_from(row.placed), leaving, phase, bridge, mending)
    pkeys = tuple(row.pkeys or ())
    route = _routed(wanted, row.pkey, pkeys)
    if wanted.beneath is None:
        return route
    return replace(route, beneath=_routed(wanted.beneath, row.pkey, pkeys))


def _routed(wanted: WantedRoutes, pkey: int, pkeys: tuple[int, ...]) -> TenantRoute:
    return TenantRoute(wanted.traffic, pkey, wanted.beside, pkeys, wanted.bridge)
