# SPDX-License-Identifier: Apache-2.0

"""The outbox: notifications are written with the change they tell of, and deleted when sent."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Engine, delete, or_, select, update
from sqlalchemy.orm import Session

from laas_service import messages
from laas_service.adapters.db import models
from laas_service.adapters.db.engine import (
    insert_rows,
    rows_changed,
    translated,
    write_transaction,
)
from laas_service.domain.errors import ConcurrentUpdate
from laas_service.messages import Notification

_TABLE = models.NotificationRow


def put(session: Session, notification: Notification) -> None:
    """Record a notification in the transaction of the change."""
    insert_rows(session, _TABLE, {"document": messages.document(notification)})


class SqlOutbox:
    """``app.ports.outbox.Outbox``; any number of processes share one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(
        self, now: datetime, until: datetime, limit: int = 100
    ) -> Sequence[tuple[int, Notification]]:
        with translated(), Session(self._engine) as session:
            rows = session.execute(
                select(_TABLE.id, _TABLE.document, _TABLE.taken_until)
                .order_by(_TABLE.id)
                .limit(limit)
            ).all()
        beyond = until + (until - now)  # nobody reserves for so long: the clock was set back since
        if not rows or any(r.taken_until and now < r.taken_until <= beyond for r in rows):
            return []
        try:
            self._reserve([row.id for row in rows], now, until, beyond)
        except ConcurrentUpdate:
            return []
        return [(row.id, messages.read(Notification, row.document)) for row in rows]

    def _reserve(
        self, numbers: Collection[int], now: datetime, until: datetime, beyond: datetime
    ) -> None:
        """Reserve all of them or none, so that two processes never send them out of order."""
        taken = _TABLE.taken_until
        free = or_(taken.is_(None), taken <= now, taken > beyond)
        step = update(_TABLE).where(_TABLE.id.in_(numbers), free).values(taken_until=until)
        with write_transaction(self._engine) as session:
            if rows_changed(session, step) != len(numbers):
                raise ConcurrentUpdate("another notifier was faster")

    def done(self, number: int) -> None:
        with write_transaction(self._engine) as session:
            session.execute(delete(_TABLE).where(_TABLE.id == number))

    def put_back(self, numbers: Collection[int]) -> None:
        with write_transaction(self._engine) as session:
            session.execute(update(_TABLE).where(_TABLE.id.in_(numbers)).values(taken_until=None))
