# SPDX-License-Identifier: Apache-2.0

"""Observations of workers: leases, the generation in the switches, drift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows, rows_changed
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions, locked_generation
from laas_service.app.records import Drift, FabricRecord, Holding, kind_of_loss
from laas_service.app.wording.reasons import CONFIRMATION
from laas_service.messages import (
    NOTHING_KNOWN,
    AgentReport,
    Applied,
    ConfirmedBy,
    seconds_by_span,
)

_ROUTES = select(models.FabricRow.routes_generation).where(models.FabricRow.id == bindparam("id"))
_LEASE = select(models.LeaseRow).where(models.LeaseRow.fabric == bindparam("fabric"))


def uncompared_document(seen: Applied | AgentReport) -> dict[str, list[int]] | None:
    """The document of the switches that were not compared; None if there are none."""
    if not seen.without and not seen.unconfirmed:
        return None
    return {"without": list(seen.without), "unconfirmed": list(seen.unconfirmed)}


def uncompared(
    document: Mapping[str, list[int]] | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The GUIDs ``without`` and ``unconfirmed`` in such a document."""
    if document is None:
        return (), ()
    return tuple(document["without"]), tuple(document["unconfirmed"])


@dataclass
class StoredObservations:
    """Observations of the worker that converges a fabric, recorded for all processes."""

    transactions: Transactions
    ledgers: LedgerCache

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        table, generation = models.LeaseRow, applied.generation
        with self.transactions.writing("note applied") as session:
            query = select(table).where(table.fabric == fabric_id)
            row = session.scalar(query.with_for_update())
            if row is None:
                return
            previous, confirmed = row.applied, row.confirmed or 0
            row.applied, row.problem, row.seen_at = (
                generation,
                applied.problem,
                self.transactions.now(),
            )
            row.uncompared = uncompared_document(applied)
            row.running = applied.running
            row.applied_by = None if generation is None else applied.by.value
            if previous is not None and generation != previous:
                row.lost = kind_of_loss(applied).value
            if generation is None:
                return
            row.confirmed = max(generation, confirmed)
            if generation > confirmed:
                detail = f"generation {generation} {CONFIRMATION[applied.by]}"
                self.transactions.announce(
                    session, fabric_id, "routes.applied", detail, confirmed_by=applied.by
                )
            elif previous != generation == session.scalar(_ROUTES, {"id": fabric_id}):
                text = f"generation {generation} {CONFIRMATION[applied.by]} again"
                kind = Drift(row.lost) if row.lost else Drift.ROUTES
                self._count_repaired(session, fabric_id, kind, text)

    def holding(self, fabric_id: str) -> Holding:
        with self.transactions.reading() as session:
            row = session.scalar(_LEASE, {"fabric": fabric_id})
            if row is None:
                self.ledgers.record(session, fabric_id)  # raises NotFound
        return as_holding(row)

    def fabric_and_holding(self, fabric_id: str) -> tuple[FabricRecord, Holding]:
        with self.transactions.reading() as session:
            fabric = self.ledgers.record(session, fabric_id)
            return fabric, as_holding(session.scalar(_LEASE, {"fabric": fabric_id}))

    def note_compared(self, fabric_id: str) -> None:
        table = models.LeaseRow
        step = update(table).where(table.fabric == fabric_id)
        with self.transactions.writing("note compared") as session:
            session.execute(step.values(compared_at=self.transactions.now()))

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.DriftRow
        latest = {"detail": detail, "at": self.transactions.now()}
        with self.transactions.writing("note drift") as session:
            locked_generation(session, fabric_id)
            row_of_kind = (table.fabric == fabric_id, table.kind == kind.value)
            if not rows_changed(
                session, update(table).where(*row_of_kind).values(found=table.found + 1, **latest)
            ):
                row = {"fabric": fabric_id, "kind": kind.value, "found": 1, **latest}
                insert_rows(session, table, row)
            self.transactions.announce(session, fabric_id, "drift.found", detail, kind)

    def note_repaired(self, fabric_id: str, kind: Drift, detail: str) -> None:
        with self.transactions.writing("note repaired") as session:
            self._count_repaired(session, fabric_id, kind, detail)

    def _count_repaired(self, session: Session, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.DriftRow
        row_of_kind = (table.fabric == fabric_id, table.kind == kind.value)
        session.execute(update(table).where(*row_of_kind).values(repaired=table.repaired + 1))
        self.transactions.announce(session, fabric_id, "drift.repaired", detail, kind)

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        return self._counts(fabric_id, models.DriftRow.found)

    def repaired(self, fabric_id: str) -> Mapping[Drift, int]:
        return self._counts(fabric_id, models.DriftRow.repaired)

    def _counts(self, fabric_id: str, column: Any) -> Mapping[Drift, int]:
        table = models.DriftRow
        with self.transactions.reading() as session:
            query = select(table.kind, column).where(table.fabric == fabric_id)
            return {Drift(kind): count for kind, count in session.execute(query)}


def as_holding(row: models.LeaseRow | None) -> Holding:
    """The holder of a lease: a worker, or none."""
    if row is None:
        return Holding()
    until = row.expires_at if row.owner else None
    return Holding(
        row.owner,
        until,
        row.applied,
        row.problem,
        row.seen_at,
        row.confirmed,
        row.token,
        row.stuck,
        *uncompared(row.uncompared),
        ConfirmedBy(row.applied_by) if row.applied_by else None,
        row.compared_at,
        row.waits_for if row.owner else None,
        row.running or NOTHING_KNOWN,
        row.activated,
        seconds_by_span(row.seconds),
    )
