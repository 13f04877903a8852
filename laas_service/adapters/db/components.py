# SPDX-License-Identifier: Apache-2.0

"""States of hosts, links and switches; features of hosts; the common plane.

Which faults follow for allocations, and how they are recorded, is in ``recorded_faults``.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import component_words, models, recorded_faults
from laas_service.adapters.db.component_words import Changes
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.ledger_cache import stored_features
from laas_service.adapters.db.port_counters import dismiss_errors
from laas_service.adapters.db.transactions import (
    FEW,
    batches,
    locked_generation,
)
from laas_service.adapters.db.virtual_ports import VirtualPorts
from laas_service.adapters.documents import plane_document
from laas_service.app import notifications
from laas_service.app.notifications import PartChange
from laas_service.app.records import (
    FabricRecord,
    HostState,
    LinkState,
    Source,
    SwitchState,
    Words,
)
from laas_service.app.views import leaf as leaf_view
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import NotFound
from laas_service.domain.faults.memory import release
from laas_service.domain.features import PLAIN, HostChange
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.messages import Initiator

UP, DRAINED = HostState.UP, HostState.DRAINED


@dataclass
class StoredComponents(VirtualPorts):
    """Changes of states and features, and the faults of allocations that follow.

    A table has rows only for hosts, links and switches of which something is said, see
    ``component_words``. A host that is drained with its leaf records the leaves (several, if it
    has several rails); NULL if that was said of the host itself.
    """

    @retrying().wraps
    def set_host_state(
        self,
        fabric_id: str,
        host: int,
        state: HostState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        table, word = models.HostStateRow, None if state is UP else state.value
        with self.transactions.writing("set state") as session:
            fabric = self.locked(session, fabric_id)
            _check_host(fabric.topology, host)
            row = component_words.rows_of(session, fabric_id, table, "host", [host]).get(host)
            if row is None:
                row = table(fabric=fabric_id, host=host, state=UP.value)
                session.add(row)
            row.leaves = None  # from now on the state is the host's own
            component_words.say(row, word, self.transactions.now(), by, reason)
            changes = component_words.settle(session, fabric, hosts=[host], links=[])
            return self.record_changes(session, fabric, changes, by, reason or "")

    @retrying().wraps
    def set_link_state(
        self,
        fabric_id: str,
        link: Link,
        state: LinkState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        table, word = models.LinkStateRow, None if state is LinkState.UP else state.value
        with self.transactions.writing("set state") as session:
            fabric = self.locked(session, fabric_id)
            if not fabric.topology.tree.has_link(link) or link in fabric.topology.absent_links:
                raise NotFound("link", link_name(link))
            number = fabric.topology.tree.link_id(link)
            row = component_words.rows_of(session, fabric_id, table, "link", [number]).get(number)
            if row is None:
                row = table(fabric=fabric_id, link=number, state=LinkState.UP.value)
                session.add(row)
            component_words.say(row, word, self.transactions.now(), by, reason)
            if word is None and row.observed is not None:
                _release(session, fabric_id, link)
            if word is None:
                dismiss_errors(session, fabric, link)
            changes = component_words.settle(session, fabric, hosts=[], links=[link])
            return self.record_changes(session, fabric, changes, by, reason or "")

    @retrying().wraps
    def set_switch_state(
        self,
        fabric_id: str,
        guid: int,
        state: SwitchState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        table, name = models.SwitchStateRow, f"{guid:#018x}"
        with self.transactions.writing("set switch state") as session:
            fabric = self.locked(session, fabric_id)
            if guid not in fabric.inventory.switch_of_guid:
                raise NotFound("switch", name)
            row = session.scalar(select(table).where(table.fabric == fabric_id, table.guid == name))
            if row is None and state is SwitchState.UP:
                return fabric.generation
            if row is not None and row.repaired_at is None and row.state == state.value:
                row.reason = reason or row.reason
                return fabric.generation
            if row is None:
                row = table(fabric=fabric_id, guid=name)
                session.add(row)
            elif state is SwitchState.UP and row.repaired_at is not None:
                return fabric.generation
            now = self.transactions.now()
            row.said_by, row.reason = by, reason
            if state is SwitchState.UP:
                row.repaired_at = now
            else:
                row.state, row.since, row.repaired_at = state.value, now, None
            session.flush()
            why = f"switch {fabric.inventory.switch_of_guid[guid].name} set to {state.value}"
            why += f": {reason}" if reason else ""
            # A new generation, so that what confirms it was read after the repair.
            repaired = state is SwitchState.UP
            return self._settle_switches(session, fabric, [guid], by, why, routes=repaired)

    @retrying().wraps
    def return_switches(self, fabric_id: str, guids: Collection[int]) -> int:
        table, names = models.SwitchStateRow, [f"{guid:#018x}" for guid in guids]
        with self.transactions.writing("return switches") as session:
            fabric = self.locked(session, fabric_id)
            query = select(table).where(table.fabric == fabric_id, table.repaired_at.is_not(None))
            returned = [row for row in session.scalars(query) if row.guid in names]
            for row in returned:
                session.delete(row)
            session.flush()
            known = [int(row.guid, 16) for row in returned]
            why = "the tables of the repaired switch are confirmed"
            return self._settle_switches(session, fabric, known, None, why)

    def _settle_switches(
        self,
        session: Session,
        fabric: FabricRecord,
        guids: Collection[int],
        by: Initiator | None,
        why: str,
        *,
        routes: bool = False,
    ) -> int:
        """Settle all hosts and links of these switches, and record what changes."""
        changes = component_words.settle(
            session,
            fabric,
            hosts={host for guid in guids for host in leaf_view.hosts_on(fabric, guid)},
            links=component_words.links_of(fabric, guids).keys(),
        )
        return self.record_changes(session, fabric, changes, by, why, routes=routes)

    def words(self, fabric_id: str) -> Words:
        with self.transactions.reading() as session:
            return component_words.words(session, self.ledgers.record(session, fabric_id))

    def locked(self, session: Session, fabric_id: str) -> FabricRecord:
        """The fabric, which does not change before this transaction ends. Raises: NotFound.

        Every transaction locks it first, so that there are no deadlocks.
        """
        return self.ledgers.locked(session, fabric_id)

    def record_changes(
        self,
        session: Session,
        fabric: FabricRecord,
        changes: Changes,
        by: Initiator | None,
        why: str = "",
        source: Source = Source.OPERATOR,
        routes: bool = False,
    ) -> int:
        """Record changed states as one generation, which is returned; notify of each.

        With ``routes`` the routes change although no state may.
        """
        changed = [PartChange(host, *states) for host, states in changes.hosts.items()]
        changed += [PartChange(link, *states) for link, states in changes.links.items()]
        for change in changed:
            self.transactions.notify(
                session,
                functools.partial(
                    notifications.part_changed,
                    fabric=fabric,
                    change=change,
                    at=self.transactions.now(),
                    by=by,
                    source=source,
                    why=why,
                ),
            )
        generation = fabric.generation
        if changed or routes:
            delta: dict[str, Any] = {
                "hosts": [[host, new.value] for host, (_, new) in changes.hosts.items()],
                "links": [[link_name(link), new.value] for link, (_, new) in changes.links.items()],
            }
            generation = self.transactions.advance(
                session, fabric.id, delta, routes=changes.routes or routes
            )
        recorded_faults.update_records(self.transactions, session, fabric, by)
        return generation

    # -- faults of allocations ----------------------------------------------------

    def note_faults(self, fabric_id: str) -> list[str]:
        with self.transactions.reading() as session:
            if not recorded_faults.outdated(session, self.ledgers.record(session, fabric_id)):
                return []
        with self.transactions.writing("note faults") as session:
            fabric = self.locked(session, fabric_id)
            return recorded_faults.update_records(self.transactions, session, fabric)

    # -- leaves ---------------------------------------------------------------------

    @retrying().wraps
    def set_leaf_state(
        self,
        fabric_id: str,
        leaf: int,
        state: HostState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        with self.transactions.writing("set leaf state") as session:
            fabric = self.locked(session, fabric_id)
            hosts, name = leaf_view.hosts_on(fabric, leaf), f"{leaf:#018x}"
            rows = component_words.rows_of(session, fabric_id, models.HostStateRow, "host", hosts)
            if state is DRAINED:
                self._drain(session, fabric_id, hosts, rows, name, (by, reason))
            else:
                _undrain(rows, name)
            changes = component_words.settle(session, fabric, hosts=hosts, links=[])
            return self.record_changes(session, fabric, changes, by, reason or "")

    def _drain(
        self,
        session: Session,
        fabric_id: str,
        hosts: Collection[int],
        rows: Mapping[int, models.HostStateRow],
        leaf: str,
        said: tuple[Initiator | None, str | None],
    ) -> None:
        """Drain the hosts with this leaf; those of which something else is said keep that."""
        for host in hosts:
            row = rows.get(host)
            if row is None:
                row = models.HostStateRow(fabric=fabric_id, host=host, state=UP.value)
                session.add(row)
            if row.operator is None:
                component_words.say(row, DRAINED.value, self.transactions.now(), *said)
                row.leaves = [leaf]
            elif row.leaves is not None and leaf not in row.leaves:
                row.reason = said[1] or row.reason
                row.leaves = [*row.leaves, leaf]

    # -- features and the common plane ------------------------------------------------

    @retrying().wraps
    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        table = models.HostFeatureRow
        in_fabric = table.fabric == fabric_id
        with self.transactions.writing("describe hosts") as session:
            fabric = self.locked(session, fabric_id)
            for host in changes:
                _check_host(fabric.topology, host)
            query = select(table).where(in_fabric)
            if len(changes) <= FEW:
                query = query.where(table.host.in_(changes))
            recorded = {
                row.host: stored_features(row.traits, row.cost, row.domains)
                for row in session.scalars(query)
            }
            described = {
                host: features
                for host in sorted(changes)
                if (features := changes[host].of(recorded.get(host, PLAIN)))
                != recorded.get(host, PLAIN)
            }
            if not described:
                return fabric.generation
            for hosts in batches(sorted(recorded.keys() & described)):
                session.execute(delete(table).where(in_fabric, table.host.in_(hosts)))
            rows = [
                {
                    "fabric": fabric_id,
                    "host": host,
                    "traits": sorted(features.traits),
                    "cost": features.cost,
                    "domains": dict(features.domains) or None,
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
            domains = [[host, dict(of.domains)] for host, of in described.items() if of.domains]
            change = {"features": delta} | ({"domains": domains} if domains else {})
            return self.transactions.advance(session, fabric_id, change)

    @retrying().wraps
    def set_shared_plane(self, fabric_id: str, plane: CommonPlane) -> int:
        with self.transactions.writing("set common plane") as session:
            locked_generation(session, fabric_id)
            cached = self.ledgers.caught_up(session, fabric_id)
            if cached.ledger.shared_plane == plane:
                return cached.generation
            cached.ledger.copy().withhold(plane)  # raises Conflict if a tenant has a link of it
            document = plane_document(plane)
            table = models.FabricRow
            session.execute(
                update(table).where(table.id == fabric_id).values(shared_plane=document)
            )
            return self.transactions.advance(
                session, fabric_id, {"shared_plane": document}, routes=True
            )


def _check_host(topology: Topology, host: int) -> None:
    """Return if the fabric has the host. Raises: NotFound."""
    if not 0 <= host < topology.hosts or host in topology.absent_hosts:
        raise NotFound("host", host)


def _undrain(rows: Mapping[int, models.HostStateRow], leaf: str) -> None:
    """Undrain the hosts that are drained with this leaf alone."""
    for row in rows.values():
        if row.leaves == [leaf]:
            row.operator = row.operator_since = row.operator_by = row.leaves = None
            row.reason = None
        elif row.leaves is not None and leaf in row.leaves:
            row.leaves = [other for other in row.leaves if other != leaf]


def _release(session: Session, fabric_id: str, link: Link) -> None:
    """End the quarantine of a link; it is usable once a reading says that it is up."""
    table = models.ObservationRow
    row = session.scalar(select(table).where(table.fabric == fabric_id).with_for_update())
    if row is not None:
        row.memory = release(row.memory, [link])
