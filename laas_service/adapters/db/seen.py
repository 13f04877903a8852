# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What was seen outside: who converges a fabric, what its switches run, what had drifted."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import insert, select, update

from laas_service.adapters.db import models
from laas_service.adapters.db.base import Base, locked_generation
from laas_service.adapters.db.engine import matched
from laas_service.app.records import Drift, Holding
from laas_service.messages import Applied


class Seen(Base):
    """Notes of the worker that converges a fabric, for everybody to look at."""

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        table = models.Lease
        with self._writing("note applied") as session:
            session.execute(
                update(table)
                .where(table.fabric == fabric_id)
                .values(applied=applied.generation, problem=applied.problem, seen_at=self._now())
            )

    def holding(self, fabric_id: str) -> Holding:
        self.fabric(fabric_id)
        with self._reading() as session:
            row = session.scalar(select(models.Lease).where(models.Lease.fabric == fabric_id))
        if row is None:
            return Holding()
        until = row.expires_at if row.owner else None
        return Holding(row.owner, until, row.applied, row.problem, row.seen_at)

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.Drift
        news = {"detail": detail, "at": self._now()}
        with self._writing("note drift") as session:
            locked_generation(session, fabric_id)
            here = (table.fabric == fabric_id, table.kind == kind.value)
            if not matched(
                session, update(table).where(*here).values(found=table.found + 1, **news)
            ):
                row = {"fabric": fabric_id, "kind": kind.value, "found": 1, **news}
                session.execute(insert(table).values(**row))

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        table = models.Drift
        with self._reading() as session:
            rows = session.execute(
                select(table.kind, table.found).where(table.fabric == fabric_id)
            ).all()
        return {Drift(row.kind): row.found for row in rows}
