# SPDX-License-Identifier: Apache-2.0

"""Re-import: new topology and inventory, and all numbers of hosts and links, in one transaction."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import claims, component_words, models, recorded_faults
from laas_service.adapters.db.allocation_rows import ALLOCATIONS, record_of, write
from laas_service.adapters.db.apart import refuse_shared
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions, locked_generation, read_record
from laas_service.adapters.documents import (
    allocation_document,
    allocation_from,
    inventory_document,
    mending_document,
    mending_from,
    topology_document,
)
from laas_service.app.lifecycle import LIVE, Mending
from laas_service.domain.errors import ConcurrentUpdate
from laas_service.domain.inventory import Inventory
from laas_service.domain.moves.mend import Joined
from laas_service.domain.reimport import Layout, Renumbering


@dataclass
class Reimports:
    """The only writer of a fabric's topology and inventory."""

    transactions: Transactions
    ledgers: LedgerCache

    def reimport(
        self,
        fabric_id: str,
        generation: int,
        before: Layout,
        after: Layout,
        news: Mapping[str, str] | None = None,
    ) -> int:
        """Record ``after`` instead of ``before``; returns the fabric's generation.

        Owners keep the same hosts and links. ``news`` has reasons for histories, by allocation.
        ``ConcurrentUpdate`` unless the fabric is at that generation; ``ManagedElsewhere`` if
        another fabric has a switch or port that is new here.
        """
        try:
            with self.transactions.writing("reimport") as session:
                if locked_generation(session, fabric_id) != generation:
                    raise ConcurrentUpdate(
                        f"fabric {fabric_id!r} is past generation {generation}: review it again"
                    )
                if _more(before.inventory, after.inventory):
                    refuse_shared(session, fabric_id, after.inventory)
                numbers = Renumbering.between(before, after)
                _renumber_owners(session, fabric_id, numbers)
                _renumber_states(session, fabric_id, numbers)
                advanced = self.transactions.advance(
                    session, fabric_id, {"layout": generation + 1}, routes=True
                )
                session.execute(
                    update(models.FabricRow)
                    .where(models.FabricRow.id == fabric_id)
                    .values(
                        topology=topology_document(after.topology),
                        inventory=inventory_document(after.inventory),
                        layout=advanced,
                    )
                )
                fabric = self.ledgers.record(session, fabric_id)
                # Switches that operators failed may have other links and hosts now.
                component_words.settle(session, fabric)
                recorded_faults.update_records(self.transactions, session, fabric)
                inventory = after.inventory
                text = f"now {len(inventory.host_names)} hosts and {len(inventory.cables)} cables"
                self.transactions.announce(session, fabric_id, "reimported", text)
                for id, text in (news or {}).items():
                    self.transactions.record_event(
                        session, id, read_record(session, id).state, text
                    )
                return advanced
        except BaseException:
            self.ledgers.forget(fabric_id)  # it may have cached uncommitted changes
            raise


def _more(before: Inventory, after: Inventory) -> bool:
    """Whether a switch or port is new."""

    def guids(inventory: Inventory) -> set[int]:
        return {s.guid for s in inventory.switches} | {e.guid for e in inventory.endpoints}

    return bool(guids(after) - guids(before))


def _renumber_owners(session: Session, fabric_id: str, numbers: Renumbering) -> None:
    """Renumber placements and claims, those of a container before those inside.

    New versions make every reader of a record read it again.
    """
    table = models.AllocationRow
    is_placed = models.PlacementPart.placed.is_not(None)
    of_fabric = ALLOCATIONS.where(table.fabric == fabric_id, is_placed)
    held = session.execute(
        of_fabric.order_by(table.sequence).with_for_update(of=models.AllocationRow)
    ).all()
    for shared in (models.SharedLinkRow, models.SharedHostRow):  # nobody has a slot: ``effects``
        session.execute(delete(shared).where(shared.fabric == fabric_id))
    for row in reversed(held):
        for claim in (models.HostClaimRow, models.LinkClaimRow):
            session.execute(delete(claim).where(claim.allocation == row.id))
    for row in held:
        placed = numbers.allocation(allocation_from(row.placed))
        leaving = row.leaving and numbers.allocation(allocation_from(row.leaving))
        bridge = row.bridge and numbers.allocation(allocation_from(row.bridge))
        mending = row.mending and _mending(mending_from(row.mending), numbers)
        everything = placed
        for other in filter(None, (leaving, bridge, mending and mending.links.held)):
            everything = everything.joined(other)
        session.execute(update(table).where(table.id == row.id).values(version=table.version + 1))
        values = {
            "placed": allocation_document(placed),
            "leaving": leaving and allocation_document(leaving),
            "bridge": bridge and allocation_document(bridge),
            "mending": mending and mending_document(mending),
            "announced": None,
            "moves_at": None,
            "faults": row.faults and _faults(row.faults, numbers),
        }
        write(session, row.id, values, record_of(row))
        claims.take(session, fabric_id, everything, numbers.after)
    _renumber_constraints(session, fabric_id, numbers)


def _mending(mending: Mending, numbers: Renumbering) -> Mending:
    links, renumbered = mending.links, numbers.allocation
    bridge = links.bridge and renumbered(links.bridge)
    return replace(mending, links=Joined(renumbered(links.old), renumbered(links.new), bridge))


def _faults(document: Any, numbers: Renumbering) -> dict[str, Any]:
    """The document of faults with new numbers of hosts; links keep their names."""
    return {**document, "hosts": [numbers.hosts[host] for host in document["hosts"]]}


def _renumber_constraints(session: Session, fabric_id: str, numbers: Renumbering) -> None:
    """Renumber the hosts to avoid, of requests that are not released."""
    table, terms, hosts = models.AllocationRow, models.TermsPart, numbers.hosts
    rows = session.execute(
        select(table.id, terms.constraints)
        .join(terms, terms.allocation == table.id)
        .where(
            table.fabric == fabric_id,
            terms.constraints.is_not(None),
            table.state.in_([state.value for state in LIVE]),
        )
    ).all()
    for row in rows:
        avoided = row.constraints.get("avoid_hosts", [])
        renumbered = sorted(hosts[host] for host in avoided if host in hosts)
        if renumbered != avoided:
            document = {**row.constraints, "avoid_hosts": renumbered}
            write(session, row.id, {"constraints": document})


def _renumber_states(session: Session, fabric_id: str, numbers: Renumbering) -> None:
    """Renumber states and features of hosts and links that still exist."""
    state, feature, link = models.HostStateRow, models.HostFeatureRow, models.LinkStateRow
    tables: tuple[tuple[Any, str, Callable[[int], int | None]], ...] = (
        (state, "host", numbers.hosts.get),
        (feature, "host", numbers.hosts.get),
        (link, "link", numbers.link_id),
    )
    for table, key, renumbered in tables:
        for row in _taken_out(session, fabric_id, table):
            number = renumbered(row[key])
            if number is not None:
                session.execute(insert(table).values({**row, key: number}))


def _taken_out(session: Session, fabric_id: str, table: Any) -> Iterable[dict[str, Any]]:
    """The rows of a fabric; the table has none of them any more."""
    rows = session.execute(select(table.__table__).where(table.fabric == fabric_id)).all()
    session.execute(delete(table).where(table.fabric == fabric_id))
    return [dict(row._mapping) for row in rows]
