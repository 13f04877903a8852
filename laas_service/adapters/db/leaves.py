# SPDX-License-Identifier: Apache-2.0

"""Draining a whole leaf, and taking that back: one transaction, host by host."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, outbox
from laas_service.adapters.db.component_states import ComponentStates
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.transactions import locked_generation, new_id
from laas_service.app import notifications
from laas_service.app.records import FabricRecord, HostState
from laas_service.app.views import leaf as leaf_view
from laas_service.messages import Initiator

UP, DRAINED = HostState.UP, HostState.DRAINED


class Leaves(ComponentStates):
    """A host that is drained for its leaves' sake remembers which; NULL is for its own."""

    @retrying().wraps
    def set_leaf_state(
        self, fabric_id: str, leaf: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        with self._writing("set leaf state") as session:
            locked_generation(session, fabric_id)
            fabric = self._ledgers.record(session, fabric_id)
            hosts = leaf_view.hosts_on(fabric, leaf)
            step = self._drain if state is DRAINED else self._undrain
            for host in step(session, fabric_id, hosts, f"{leaf:#018x}"):
                self._advance(session, fabric_id, {"host": host, "state": state.value})
                if self._announces:
                    self._tell_host(session, fabric, host, state, by)
            return self._ledgers.record(session, fabric_id).generation

    def _drain(
        self, session: Session, fabric_id: str, hosts: tuple[int, ...], leaf: str
    ) -> list[int]:
        """The hosts that were up, drained; what is down for another reason keeps it."""
        known = _states(session, fabric_id, hosts)
        for row in known.values():
            if row.leaves is not None and leaf not in row.leaves:
                row.leaves = [*row.leaves, leaf]
        up = [host for host in hosts if host not in known]
        for host in up:
            row = models.HostState(fabric=fabric_id, host=host, state=DRAINED.value, leaves=[leaf])
            session.add(row)
        return up

    def _undrain(
        self, session: Session, fabric_id: str, hosts: tuple[int, ...], leaf: str
    ) -> list[int]:
        """The hosts that nothing but this leaf kept drained, up again."""
        up = []
        for host, row in _states(session, fabric_id, hosts).items():
            if row.leaves == [leaf]:
                session.delete(row)
                up.append(host)
            elif row.leaves is not None and leaf in row.leaves:
                row.leaves = [other for other in row.leaves if other != leaf]
        return up

    def _tell_host(
        self,
        session: Session,
        fabric: FabricRecord,
        host: int,
        state: HostState,
        by: Initiator | None,
    ) -> None:
        notification = notifications.part_changed(
            new_id(),
            fabric.id,
            host=fabric.inventory.host_names[host],
            old=UP if state is DRAINED else DRAINED,
            new=state,
            at=self._now(),
            by=by,
        )
        outbox.put(session, notification)


def _states(
    session: Session, fabric_id: str, hosts: tuple[int, ...]
) -> dict[int, models.HostState]:
    """Those of the hosts that are not up."""
    table = models.HostState
    rows = session.scalars(
        select(table)
        .where(table.fabric == fabric_id, table.host.in_(hosts))
        .order_by(table.host)
        .with_for_update()
    )
    return {row.host: row for row in rows}
