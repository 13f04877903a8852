# SPDX-License-Identifier: Apache-2.0

"""What a fabric's hosts and links are like: up or not, traits and cost, withheld from tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import faults, models, outbox
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.transactions import FEW, Transactions, locked_generation, new_id
from laas_service.adapters.documents import plane_document
from laas_service.app import notifications
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.domain.errors import NotFound
from laas_service.domain.features import PLAIN, HostChange, HostFeatures
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link, link_name
from laas_service.messages import Initiator, Notification


class ComponentStates(Transactions):
    """The states of hosts and links, and what follows for who holds them."""

    @retrying().wraps
    def set_host_state(
        self, fabric_id: str, host: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        fabric = self.fabric(fabric_id)
        topology = fabric.topology
        if not 0 <= host < topology.hosts or host in topology.absent_hosts:
            raise NotFound("host", host)
        table = models.HostState

        def told(old: str) -> Notification:
            return notifications.part_changed(
                new_id(),
                fabric_id,
                host=fabric.inventory.host_names[host] or str(host),
                old=HostState(old),
                new=state,
                at=self._now(),
                by=by,
            )

        return self._set_state(
            fabric_id,
            {"host": host, "state": state.value},
            state.value,
            select(table).where(table.fabric == fabric_id, table.host == host),
            table(fabric=fabric_id, host=host, state=state.value),
            told,
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

        def told(old: str) -> Notification:
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
            told,
            by,
            routes=True,
        )

    def _set_state(
        self,
        fabric_id: str,
        change: dict[str, Any],
        state: str,
        query: Select[Any],
        row: models.HostState | models.LinkState,
        told: Callable[[str], Notification],
        by: Initiator | None,
        *,
        routes: bool = False,
    ) -> int:
        """Keep a row for what is not up; the same state again is no change.

        ``told`` is what others are told of it, given the state before; ``by`` is who asked.
        """
        with self._writing("set state") as session:
            locked_generation(session, fabric_id)  # first, as everybody does: no deadlocks
            present = session.scalar(query.with_for_update())
            old = present.state if present else "up"
            if isinstance(present, models.HostState):
                present.leaves = None  # from now on it is as it is for its own sake
            if state == old:
                return self._ledgers.record(session, fabric_id).generation
            if self._announces:
                outbox.put(session, told(old))
            if present is None:
                session.add(row)
            elif state == "up":
                session.delete(present)
            else:
                present.state = state
            session.flush()
            generation = self._advance(session, fabric_id, change, routes=routes)
            self._note(session, self._ledgers.record(session, fabric_id), by)
            return generation

    def note_faults(self, fabric_id: str) -> list[str]:
        fabric = self.fabric(fabric_id)
        with self._reading() as session:
            if not faults.misnoted(session, fabric):
                return []
        with self._writing("note faults") as session:
            locked_generation(session, fabric_id)
            return self._note(session, fabric)

    def _note(
        self, session: Session, fabric: FabricRecord, by: Initiator | None = None
    ) -> list[str]:
        noted = faults.note(session, fabric, self._now())
        for id, (state, news) in noted.items():
            self._tell(session, id, state, news, by)
        return list(noted)

    @retrying().wraps
    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        topology = self.fabric(fabric_id).topology
        for host in changes:
            if not 0 <= host < topology.hosts or host in topology.absent_hosts:
                raise NotFound("host", host)
        table = models.HostFeature
        here = table.fabric == fabric_id
        with self._writing("describe hosts") as session:
            locked_generation(session, fabric_id)
            query = select(table).where(here)
            if len(changes) <= FEW:
                query = query.where(table.host.in_(changes))
            before = {
                row.host: HostFeatures(frozenset(row.traits), row.cost)
                for row in session.scalars(query)
            }
            news = {host: changes[host].of(before.get(host, PLAIN)) for host in sorted(changes)}
            news = {host: one for host, one in news.items() if one != before.get(host, PLAIN)}
            if not news:
                return self._ledgers.record(session, fabric_id).generation
            for some in _batched(sorted(before.keys() & news)):
                session.execute(delete(table).where(here, table.host.in_(some)))
            rows = [
                {"fabric": fabric_id, "host": h, "traits": sorted(one.traits), "cost": one.cost}
                for h, one in news.items()
                if one != PLAIN
            ]
            if rows:
                session.execute(insert(table), rows)
            change = [[h, sorted(one.traits), one.cost] for h, one in news.items()]
            return self._advance(session, fabric_id, {"features": change})

    @retrying().wraps
    def set_shared_plane(self, fabric_id: str, plane: SharedPlane) -> int:
        self.fabric(fabric_id)
        with self._writing("set shared plane") as session:
            locked_generation(session, fabric_id)
            ledger = self._ledgers.caught_up(session, fabric_id)
            if ledger.fabric.shared_plane == plane:
                return ledger.generation
            ledger.fabric.copy().withhold(plane)  # raises if a tenant is in the way
            document = plane_document(plane)
            table = models.Fabric
            session.execute(
                update(table).where(table.id == fabric_id).values(shared_plane=document)
            )
            return self._advance(session, fabric_id, {"shared_plane": document}, routes=True)


def _batched(hosts: list[int]) -> Iterator[list[int]]:
    """``FEW`` at a time: databases bound the parameters of a statement."""
    for first in range(0, len(hosts), FEW):
        yield hosts[first : first + FEW]
