# SPDX-License-Identifier: Apache-2.0

"""States of hosts, leaves and links; features of hosts; the shared plane.

Which faults follow for allocations, and how they are recorded, is in ``recorded_faults``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, outbox, recorded_faults
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.transactions import (
    FEW,
    Transactions,
    batches,
    locked_generation,
    new_id,
)
from laas_service.adapters.documents import plane_document
from laas_service.app import notifications
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.app.views import leaf as leaf_view
from laas_service.domain.errors import NotFound
from laas_service.domain.features import PLAIN, HostChange, HostFeatures
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.messages import Initiator, Notification

UP, DRAINED = HostState.UP, HostState.DRAINED


class ComponentStates(Transactions):
    """Changes of states and features, and the faults of allocations that follow.

    A table has rows only for hosts and links that are not up. A host that is drained with its
    leaf records the leaves (several, if it has several rails); NULL if it is down by itself.
    """

    @retrying().wraps
    def set_host_state(
        self, fabric_id: str, host: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        fabric = self.fabric(fabric_id)
        _check_host(fabric.topology, host)
        table = models.HostState

        def notification(old: str) -> Notification:
            return self._host_changed(fabric, host, HostState(old), state, by)

        return self._set_state(
            fabric_id,
            {"host": host, "state": state.value},
            state.value,
            select(table).where(table.fabric == fabric_id, table.host == host),
            table(fabric=fabric_id, host=host, state=state.value),
            notification,
            by,
        )

    @retrying().wraps
    def set_link_state(
        self, fabric_id: str, link: Link, state: LinkState, *, by: Initiator | None = None
    ) -> int:
        topology = self.fabric(fabric_id).topology
        if not topology.tree.has_link(link) or link in topology.absent_links:
            raise NotFound("link", link_name(link))
        table, number = models.LinkState, topology.tree.link_id(link)

        def notification(old: str) -> Notification:
            return notifications.part_changed(
                new_id(),
                fabric_id,
                link=link_name(link),
                old=LinkState(old),
                new=state,
                at=self._now(),
                by=by,
            )

        return self._set_state(
            fabric_id,
            {"link": link_name(link), "state": state.value},
            state.value,
            select(table).where(table.fabric == fabric_id, table.link == number),
            table(fabric=fabric_id, link=number, state=state.value),
            notification,
            by,
            routes=True,
        )

    def _set_state(
        self,
        fabric_id: str,
        delta: dict[str, Any],
        state: str,
        query: Select[Any],
        row: models.HostState | models.LinkState,
        notification: Callable[[str], Notification],
        by: Initiator | None,
        *,
        routes: bool = False,
    ) -> int:
        """Record a state; returns the generation. The same state again changes nothing.

        ``notification`` makes the notification from the previous state; ``by`` is the initiator.
        """
        with self._writing("set state") as session:
            locked_generation(session, fabric_id)  # first in every transaction: no deadlocks
            present = session.scalar(query.with_for_update())
            previous_state = present.state if present else "up"
            if isinstance(present, models.HostState):
                present.leaves = None  # from now on the state is the host's own
            if state == previous_state:
                return self._ledgers.record(session, fabric_id).generation
            if self._announces:
                outbox.put(session, notification(previous_state))
            if present is None:
                session.add(row)
            elif state == "up":
                session.delete(present)
            else:
                present.state = state
            session.flush()
            generation = self._advance(session, fabric_id, delta, routes=routes)
            self._record_faults(session, self._ledgers.record(session, fabric_id), by)
            return generation

    def _host_changed(
        self,
        fabric: FabricRecord,
        host: int,
        old: HostState,
        new: HostState,
        by: Initiator | None,
    ) -> Notification:
        return notifications.part_changed(
            new_id(),
            fabric.id,
            host=fabric.inventory.host_names[host] or str(host),
            old=old,
            new=new,
            at=self._now(),
            by=by,
        )

    # -- faults of allocations ----------------------------------------------------

    def note_faults(self, fabric_id: str) -> list[str]:
        fabric = self.fabric(fabric_id)
        with self._reading() as session:
            if not recorded_faults.outdated(session, fabric):
                return []
        with self._writing("note faults") as session:
            locked_generation(session, fabric_id)
            return self._record_faults(session, fabric)

    def _record_faults(
        self, session: Session, fabric: FabricRecord, by: Initiator | None = None
    ) -> list[str]:
        """Ids of the allocations whose faults changed."""
        changed = recorded_faults.update_records(session, fabric, self._now())
        for id, (state, reason) in changed.items():
            self._record_event(session, id, state, reason, by)
        return list(changed)

    # -- leaves ---------------------------------------------------------------------

    @retrying().wraps
    def set_leaf_state(
        self, fabric_id: str, leaf: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        previous_state = UP if state is DRAINED else DRAINED
        with self._writing("set leaf state") as session:
            locked_generation(session, fabric_id)
            fabric = self._ledgers.record(session, fabric_id)
            hosts = leaf_view.hosts_on(fabric, leaf)
            change = _drain if state is DRAINED else _undrain
            for host in change(session, fabric_id, hosts, f"{leaf:#018x}"):
                self._advance(session, fabric_id, {"host": host, "state": state.value})
                if self._announces:
                    notification = self._host_changed(fabric, host, previous_state, state, by)
                    outbox.put(session, notification)
            return self._ledgers.record(session, fabric_id).generation

    # -- features and the shared plane ------------------------------------------------

    @retrying().wraps
    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        topology = self.fabric(fabric_id).topology
        for host in changes:
            _check_host(topology, host)
        table = models.HostFeature
        in_fabric = table.fabric == fabric_id
        with self._writing("describe hosts") as session:
            locked_generation(session, fabric_id)
            query = select(table).where(in_fabric)
            if len(changes) <= FEW:
                query = query.where(table.host.in_(changes))
            recorded = {
                row.host: HostFeatures(frozenset(row.traits), row.cost)
                for row in session.scalars(query)
            }
            described = {
                host: changes[host].of(recorded.get(host, PLAIN)) for host in sorted(changes)
            }
            described = {
                host: features
                for host, features in described.items()
                if features != recorded.get(host, PLAIN)
            }
            if not described:
                return self._ledgers.record(session, fabric_id).generation
            for hosts in batches(sorted(recorded.keys() & described)):
                session.execute(delete(table).where(in_fabric, table.host.in_(hosts)))
            rows = [
                {
                    "fabric": fabric_id,
                    "host": host,
                    "traits": sorted(features.traits),
                    "cost": features.cost,
                }
                for host, features in described.items()
                if features != PLAIN
            ]
            if rows:
                session.execute(insert(table), rows)
            delta = [
                [host, sorted(features.traits), features.cost]
                for host, features in described.items()
            ]
            return self._advance(session, fabric_id, {"features": delta})

    @retrying().wraps
    def set_shared_plane(self, fabric_id: str, plane: SharedPlane) -> int:
        self.fabric(fabric_id)
        with self._writing("set shared plane") as session:
            locked_generation(session, fabric_id)
            cached = self._ledgers.caught_up(session, fabric_id)
            if cached.ledger.shared_plane == plane:
                return cached.generation
            cached.ledger.copy().withhold(plane)  # raises Conflict if a tenant has a link of it
            document = plane_document(plane)
            table = models.Fabric
            session.execute(
                update(table).where(table.id == fabric_id).values(shared_plane=document)
            )
            return self._advance(session, fabric_id, {"shared_plane": document}, routes=True)


def _check_host(topology: Topology, host: int) -> None:
    """Return if the fabric has the host. Raises: NotFound."""
    if not 0 <= host < topology.hosts or host in topology.absent_hosts:
        raise NotFound("host", host)


def _drain(session: Session, fabric_id: str, hosts: tuple[int, ...], leaf: str) -> list[int]:
    """Drain the hosts that are up, and return them; others keep the state they are in."""
    rows = _rows_of_hosts(session, fabric_id, hosts)
    for row in rows.values():
        if row.leaves is not None and leaf not in row.leaves:
            row.leaves = [*row.leaves, leaf]
    up = [host for host in hosts if host not in rows]
    for host in up:
        session.add(
            models.HostState(fabric=fabric_id, host=host, state=DRAINED.value, leaves=[leaf])
        )
    return up


def _undrain(session: Session, fabric_id: str, hosts: tuple[int, ...], leaf: str) -> list[int]:
    """Undrain the hosts that are drained with this leaf alone, and return them."""
    up = []
    for host, row in _rows_of_hosts(session, fabric_id, hosts).items():
        if row.leaves == [leaf]:
            session.delete(row)
            up.append(host)
        elif row.leaves is not None and leaf in row.leaves:
            row.leaves = [other for other in row.leaves if other != leaf]
    return up


def _rows_of_hosts(
    session: Session, fabric_id: str, hosts: tuple[int, ...]
) -> dict[int, models.HostState]:
    """The rows, locked, of those of the hosts that are not up."""
    table = models.HostState
    rows = session.scalars(
        select(table)
        .where(table.fabric == fabric_id, table.host.in_(hosts))
        .order_by(table.host)
        .with_for_update()
    )
    return {row.host: row for row in rows}
