# SPDX-License-Identifier: Apache-2.0

"""Observations of workers: leases, the generation in the switches, drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import rows_changed
from laas_service.adapters.db.transactions import Transactions, locked_generation
from laas_service.app.records import Drift, Holding
from laas_service.messages import Applied


class Observations(Transactions):
    """Observations of the worker that converges a fabric, recorded for all processes."""

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        table, generation = models.Lease, applied.generation
        with self._writing("note applied") as session:
            query = select(table).where(table.fabric == fabric_id)
            row = session.scalar(query.with_for_update())
            if row is None:
                return
            previous, confirmed = row.applied, row.confirmed or 0
            row.applied, row.problem, row.seen_at = generation, applied.problem, self._now()
            if generation is None:
                return
            row.confirmed = max(generation, confirmed)
            wanted = self._ledgers.record(session, fabric_id).routes_generation
            if generation > confirmed:
                self._announce(session, fabric_id, "routes.applied", f"generation {generation}")
            elif previous != generation == wanted:
                text = f"the switches run generation {generation} again"
                self._count_repaired(session, fabric_id, Drift.ROUTES, text)

    def holding(self, fabric_id: str) -> Holding:
        self.fabric(fabric_id)
        with self._reading() as session:
            row = session.scalar(select(models.Lease).where(models.Lease.fabric == fabric_id))
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
        )

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.Drift
        latest = {"detail": detail, "at": self._now()}
        with self._writing("note drift") as session:
            locked_generation(session, fabric_id)
            row_of_kind = (table.fabric == fabric_id, table.kind == kind.value)
            if not rows_changed(
                session, update(table).where(*row_of_kind).values(found=table.found + 1, **latest)
            ):
                row = {"fabric": fabric_id, "kind": kind.value, "found": 1, **latest}
                session.execute(insert(table).values(**row))
            self._announce(session, fabric_id, "drift.found", detail, kind)

    def note_repaired(self, fabric_id: str, kind: Drift, detail: str) -> None:
        with self._writing("note repaired") as session:
            self._count_repaired(session, fabric_id, kind, detail)

    def _count_repaired(self, session: Session, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.Drift
        row_of_kind = (table.fabric == fabric_id, table.kind == kind.value)
        session.execute(update(table).where(*row_of_kind).values(repaired=table.repaired + 1))
        self._announce(session, fabric_id, "drift.repaired", detail, kind)

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        return self._counts(fabric_id, models.Drift.found)

    def repaired(self, fabric_id: str) -> Mapping[Drift, int]:
        return self._counts(fabric_id, models.Drift.repaired)

    def _counts(self, fabric_id: str, column: Any) -> Mapping[Drift, int]:
        table = models.Drift
        with self._reading() as session:
            query = select(table.kind, column).where(table.fabric == fabric_id)
            return {Drift(kind): count for kind, count in session.execute(query)}
