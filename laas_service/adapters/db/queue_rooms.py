# SPDX-License-Identifier: Apache-2.0

"""Plans that make room for the heads of queues, and what they announce and call off."""

from dataclasses import dataclass, replace
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, quotas
from laas_service.adapters.db.engine import rows_changed
from laas_service.adapters.db.placement_changes import NOT_ANNOUNCED
from laas_service.adapters.db.transactions import Transactions
from laas_service.adapters.documents import ROOM, allocation_document
from laas_service.app.lifecycle import check_changeable
from laas_service.app.ports.admissions import WithReason
from laas_service.app.records import NO_LIMITS, Limits, QueueRoom
from laas_service.domain.errors import ConcurrentUpdate


@dataclass
class QueueRooms:
    """The part of ``app.ports.admissions.Admissions`` for plans."""

    transactions: Transactions

    def room(self, fabric_id: str) -> QueueRoom | None:
        with self.transactions.reading() as session:
            row = session.get(models.QueueRoomRow, fabric_id)
            return None if row is None else replace(ROOM.read(row.document), version=row.version)

    def record_room(
        self,
        room: QueueRoom,
        *,
        announce: WithReason | None = None,
        call_off: WithReason | None = None,
        tell: WithReason | None = None,
        limits: Limits = NO_LIMITS,
    ) -> QueueRoom:
        if announce is not None:
            check_changeable(announce.record)
        with self.transactions.writing("make room") as session:
            if announce is not None:
                quotas.lock_all(session)
            self._replace(session, room)
            # A new generation, so that searches that did not see the plan lose their race.
            self.transactions.advance(session, room.fabric, {})
            if announce is not None:
                move, record = room.moves[room.made], announce.record
                quotas.check_move(session, record, move.to, limits, self.transactions.now())
                columns = {
                    "announced": allocation_document(move.to),
                    "moves_at": move.begins,
                    "move_forced": False,
                }
                self._tell(session, announce, **columns)
            if call_off is not None:
                self._tell(session, call_off, **NOT_ANNOUNCED)
            if tell is not None:
                self._tell(session, tell)
        return replace(room, version=room.version + 1)

    def _tell(self, session: Session, notice: WithReason, **columns: Any) -> None:
        record = notice.record
        self.transactions.update(session, record, record.state, notice.reason, **columns)

    def _replace(self, session: Session, room: QueueRoom) -> None:
        """Record the plan in place of the version before. Raises: ConcurrentUpdate."""
        table, values = models.QueueRoomRow, {"document": ROOM.write(room)}
        if room.version:
            step = update(table).where(table.fabric == room.fabric, table.version == room.version)
            if rows_changed(session, step.values(version=room.version + 1, **values)):
                return
        else:
            try:
                session.execute(insert(table).values(fabric=room.fabric, version=1, **values))
            except DBDuplicateEntry:
                pass
            else:
                return
        raise ConcurrentUpdate(f"the plan for the queue of {room.fabric!r} has changed")
