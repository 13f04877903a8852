# SPDX-License-Identifier: Apache-2.0

"""Leases: which worker converges which fabric, and fencing of writes by workers that lost one."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import ColumnElement, Engine, bindparam, delete, func, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import retrying, rows_changed, translated, write_transaction
from laas_service.adapters.db.types import Clock
from laas_service.app.records import Lease
from laas_service.domain.errors import ConcurrentUpdate, LeaseLost

_TABLE = models.LeaseRow

_HOLDER = (
    select(_TABLE.token, _TABLE.owner).where(_TABLE.fabric == bindparam("fabric")).with_for_update()
)


def guard(session: Session, lease: Lease) -> None:
    """Keep the lease from being taken before this transaction ends. Raises: LeaseLost.

    An expired lease is valid until another worker takes it, because until then no other
    holder's work could be undone.
    """
    row = session.execute(_HOLDER, {"fabric": lease.fabric}).one_or_none()
    if row is None or (row.token, row.owner) != (lease.token, lease.owner):
        raise _lost(lease)


class SqlLeases:
    """``app.ports.leases.Leases``; ``clock`` is the database's, or a test's.

    Leases of dead owners (``gone``) are free immediately. So are those that end later than
    ``longest`` seconds from now: the clock was set back since. Fencing makes that safe.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        gone: Callable[[str], bool] = lambda owner: False,
        clock: Callable[[], ColumnElement[datetime]] = Clock,
        longest: float = 86_400.0,
    ) -> None:
        self._longest = timedelta(seconds=longest)
        self._engine = engine
        self._gone = gone
        self._clock = clock

    @retrying().wraps
    def enrol(self, owner: str, seconds: float) -> int:
        table = models.WorkerRow
        with write_transaction(self._engine) as session:
            now = self._now(session)
            until = now + timedelta(seconds=seconds)
            present = update(table).where(table.id == owner).values(expires_at=until)
            try:
                if not rows_changed(session, present):
                    session.execute(insert(table).values(id=owner, expires_at=until))
            except DBDuplicateEntry as error:
                raise ConcurrentUpdate("another thread of this worker was faster") from error
            for id, expires_at in session.execute(select(table.id, table.expires_at)).all():
                if self._has_expired(expires_at, now) or self._gone(id):
                    session.execute(delete(table).where(table.id == id))
            return session.scalars(select(func.count()).select_from(table)).one()

    def withdraw(self, owner: str) -> None:
        with write_transaction(self._engine) as session:
            session.execute(delete(models.WorkerRow).where(models.WorkerRow.id == owner))

    def free(self) -> list[str]:
        fabric = models.FabricRow.id
        query = select(fabric, _TABLE, self._clock())
        query = query.select_from(models.FabricRow).outerjoin(_TABLE, _TABLE.fabric == fabric)
        with translated(), Session(self._engine) as session:
            rows = session.execute(query)
            return sorted(id for id, row, now in rows if self._is_free(row, now))

    def _now(self, session: Session) -> datetime:
        return session.scalars(select(self._clock())).one()

    def take(self, fabric: str, owner: str, seconds: float) -> Lease | None:
        try:
            return self._take(fabric, owner, seconds)
        except DBDuplicateEntry:
            return None  # another worker inserted the fabric's first lease

    def _take(self, fabric: str, owner: str, seconds: float) -> Lease | None:
        with write_transaction(self._engine) as session:
            query = select(_TABLE).where(_TABLE.fabric == fabric).with_for_update()
            row = session.scalar(query)
            now = self._now(session)
            if row is None:
                row = models.LeaseRow(fabric=fabric, token=0, stuck=0)
                session.add(row)
            elif not self._is_free(row, now):
                return None
            row.token += 1
            row.owner = owner
            row.waits_for = None
            row.expires_at = now + timedelta(seconds=seconds)
            return Lease(fabric, owner, row.token)

    def _is_free(self, row: models.LeaseRow | None, now: datetime) -> bool:
        if row is None or row.owner is None or self._has_expired(row.expires_at, now):
            return True
        return self._gone(row.owner)

    def _has_expired(self, until: datetime, now: datetime) -> bool:
        return not now < until <= now + self._longest

    def renew(self, lease: Lease, seconds: float, waits_for: str | None = None) -> None:
        with write_transaction(self._engine) as session:
            until = self._now(session) + timedelta(seconds=seconds)
            renewed = _held(lease).values(expires_at=until, waits_for=waits_for)
            if not rows_changed(session, renewed):
                raise _lost(lease)

    def give_back(self, lease: Lease) -> None:
        with write_transaction(self._engine) as session:
            session.execute(_held(lease).values(owner=None))

    def give_up(self, lease: Lease) -> None:
        with write_transaction(self._engine) as session:
            session.execute(_held(lease).values(owner=None, stuck=_TABLE.stuck + 1))


def _held(lease: Lease) -> Any:
    """An update of the lease's row that matches only while this holder has it."""
    mine = (_TABLE.fabric == lease.fabric, _TABLE.token == lease.token)
    return update(_TABLE).where(*mine, _TABLE.owner == lease.owner)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"fabric {lease.fabric} was taken over from {lease.owner}")
