# SPDX-License-Identifier: Apache-2.0

"""A database that went back goes forward again, above every generation that was ever seen.

A database goes back if it fails over to a replica that lacks the last commits, or is restored to an
earlier time. Processes, switches and agents then know generations that it does not have. What the
database holds is the truth from then on; only its numbers move on, so that no number is given
twice, and every allocation waits until the routes of the present state are confirmed.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import generations, models
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.restore import LIFT, SEEN, lifted
from laas_service.adapters.db.transactions import Transactions, locked_generation
from laas_service.app.lifecycle import OVER, State

LOG = logging.getLogger(__name__)

REMEMBERED = timedelta(days=2)
"""For how long the database knows when a fabric went forward."""

MOST_TIMES = 100
"""The most times of going forward that the database keeps of a fabric, the newest."""


@dataclass
class GenerationRecovery:
    """Recognises generations of another past, and moves a fabric on above them."""

    transactions: Transactions
    ledgers: LedgerCache

    def in_past(self, fabric_id: str, generation: int, stamp: str) -> bool:
        """Whether a generation of routes is one that the database has or had."""
        with self.transactions.reading() as session:
            return generations.in_past(session, fabric_id, generation, stamp, routes=True)

    def settle(self, fabric_id: str) -> None:
        """If an older generation was read than before: go forward, unless the reader was late."""
        newest = self.ledgers.doubtful.pop(fabric_id, None)
        if newest is not None:
            seen = f"this process has read generation {newest[0]}"
            self._forward(fabric_id, *newest, seen, routes=False)

    def went_forward(self, fabric_id: str, since: timedelta) -> int:
        with self.transactions.reading() as session:
            return len(_recent(session, fabric_id, self.transactions.now() - since))

    def go_forward(self, fabric_id: str, generation: int, stamp: str, where: str) -> bool:
        """Move a fabric on above a generation of routes that was seen ``where``.

        Returns whether it did; False if the database has or had that generation.
        """
        return self._forward(fabric_id, generation, stamp, where, routes=True)

    def _forward(
        self, fabric_id: str, generation: int, stamp: str, where: str, *, routes: bool
    ) -> bool:
        with self.transactions.reading() as session:
            if generations.in_past(session, fabric_id, generation, stamp, routes=routes):
                return False
        with self.transactions.writing("go forward") as session:
            present = locked_generation(session, fabric_id)
            if generations.in_past(session, fabric_id, generation, stamp, routes=routes):
                return False
            beyond = lifted(max(present, generation), f"generation of {fabric_id}")
            detail = (
                f"the database went back: {where}, which it does not have; it was at generation "
                f"{present} and goes on at {beyond}; requests that it has lost are lost: release "
                "again what was released since, and clear the hosts of allocations that are not "
                "recorded (laas-status upgrade check lists them)"
            )
            self._move_on(session, fabric_id, beyond)
            self._tell(session, fabric_id, detail)
            self.transactions.announce(session, fabric_id, "went_back", detail)
        self.ledgers.forget(fabric_id)
        LOG.error("fabric %s: %s", fabric_id, detail)
        return True

    def _move_on(self, session: Session, fabric_id: str, beyond: int) -> None:
        fabric, allocation, lease = models.FabricRow, models.AllocationRow, models.LeaseRow
        delta, stamp = models.DeltaRow, generations.new_stamp()
        identity = generations.stored(beyond, stamp)
        numbers = dict.fromkeys(("generation", "routes_generation", "layout"), beyond)
        stamps = {"stamp": identity, "routes_stamp": identity}
        now = self.transactions.now()
        times = [*_recent(session, fabric_id, now - REMEMBERED), now][-MOST_TIMES:]
        went = {"went_forward": [time.isoformat() for time in times]}
        of_fabric = update(fabric).where(fabric.id == fabric_id)
        session.execute(of_fabric.values(**numbers, **stamps, **went))
        session.execute(delete(delta).where(delta.fabric == fabric_id))
        session.execute(
            insert(delta).values(fabric=fabric_id, generation=beyond, change={}, stamp=stamp)
        )
        session.execute(
            update(allocation)
            .where(allocation.fabric == fabric_id)
            .values(generation=beyond, version=allocation.version + LIFT, due_at=None)
        )
        seen = dict.fromkeys(SEEN - {"owner"})
        session.execute(update(lease).where(lease.fabric == fabric_id).values(**seen))

    def _tell(self, session: Session, fabric_id: str, detail: str) -> None:
        """Append an event to the history of every allocation that is not over."""
        table = models.AllocationRow
        over = [state.value for state in OVER]
        query = select(table.id, table.state).where(
            table.fabric == fabric_id, table.state.not_in(over)
        )
        for id, state in session.execute(query).all():
            self.transactions.record_event(session, id, State(state), detail)


def _recent(session: Session, fabric_id: str, since: datetime) -> list[datetime]:
    """When the fabric went forward after ``since``."""
    table = models.FabricRow
    times = session.scalar(select(table.went_forward).where(table.id == fabric_id)) or []
    return [time for time in map(datetime.fromisoformat, times) if time > since]
