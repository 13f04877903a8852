# SPDX-License-Identifier: Apache-2.0

"""Quotas of projects, checked in the transaction of the admission."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Engine, case, delete, func, insert, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.allocation_rows import ALLOCATIONS, CONTAINER, record_of, with_parts
from laas_service.adapters.db.engine import translated, write_transaction
from laas_service.adapters.db.transactions import utc_now
from laas_service.app.lifecycle import OVER, gets_other_hosts
from laas_service.app.records import MOVES_PERIOD, AllocationRecord, Limits, ProjectUsage
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import ConcurrentUpdate, NotFound, QuotaExceeded

FIX = "it may have {most}; release some, or ask an administrator for more"

_KNOWN = "quotas that were read"

ANY = -1
"""A quota of this number is no limit."""


def limits(session: Session, project_id: str, default: Limits) -> Limits:
    """The limits of the project: its own quota, and ``default`` where that has none.

    The row is read once in a session.
    """
    known: dict[str, models.QuotaRow | None] = session.info.setdefault(_KNOWN, {})
    if project_id not in known:
        known[project_id] = session.get(models.QuotaRow, project_id)
    row = known[project_id]
    if row is None:
        return default
    return Limits(
        hosts=_own(row.hosts, default.hosts),
        allocations=_own(row.allocations, default.allocations),
        moves=_own(row.moves, default.moves),
        slots=_own(row.slots, default.slots),
    )


def _own(own: int | None, default: int | None) -> int | None:
    if own is None:
        return default
    return None if own == ANY else own


def lock(session: Session, new: AllocationRequest, limits: Limits) -> None:
    """If anything limits the project, let no transaction admit on any fabric before this ends.

    It has to be the first statement of the transaction, so that reads after it are as fresh.
    All transactions lock the rows of fabrics in one order, so that there are no deadlocks.
    """
    if limits.admission or new.alone:
        lock_all(session)


def lock_all(session: Session) -> None:
    """Lock the rows of all fabrics, in one order."""
    table = models.FabricRow
    session.execute(select(table.generation).order_by(table.id).with_for_update()).all()


def check(session: Session, new: AllocationRequest, limits: Limits) -> None:
    """Return if the project stays within the limits.

    Raises:
        QuotaExceeded: it would not; names what there would be too many of.
    """
    if not limits.admission:
        return
    allocations, hosts, slots = _used(session, new.project_id)
    more = new.kind.uses(new.hosts, inside=new.parent is not None)
    if more.slots:
        _hold("slots", slots + more.slots, limits.slots)
    _hold("allocations", allocations + 1, limits.allocations)
    if more.hosts:
        _hold("hosts", hosts + more.hosts, limits.hosts)


def check_growth(session: Session, project_id: str, more: int, limits: Limits) -> None:
    """Return if the project stays within the limits with so many hosts more.

    Raises:
        QuotaExceeded: it would not.
    """
    if limits.hosts is not None:
        _hold("hosts", _used(session, project_id)[1] + more, limits.hosts)


def check_slots(session: Session, project_id: str, more: int, limits: Limits) -> None:
    """Return if the project stays within the limits with so many slots more.

    Raises:
        QuotaExceeded: it would not.
    """
    if limits.slots is not None:
        _hold("slots", _used(session, project_id)[2] + more, limits.slots)


def check_move(
    session: Session, record: AllocationRecord, to: Allocation, default: Limits, now: datetime
) -> None:
    """Return if the project's allocation may be moved there. Call ``lock_all`` before.

    Raises:
        QuotaExceeded: its project has had its moves.
    """
    most = limits(session, record.project_id, default).moves
    if most is None or record.placed is None or not gets_other_hosts(record.placed, to):
        return
    used = _moves(session, record.project_id, now, but=record.id)
    if used >= most:
        fix = f"its project may have {most} in 24 hours; wait, or override"
        raise QuotaExceeded("moves", used + 1, fix)


def count_move(session: Session, project_id: str, now: datetime) -> None:
    """Count a move to other hosts that begins; forget those that are too old to count."""
    table = models.BegunMoveRow
    session.execute(delete(table).where(table.at <= now - MOVES_PERIOD))
    session.execute(insert(table).values(project_id=project_id, at=now))


def _moves(session: Session, project_id: str, now: datetime, but: str = "") -> int:
    """The moves to other hosts that count, those announced included, ``but`` that of one id."""
    table, allocation = models.BegunMoveRow, models.AllocationRow
    begun = select(func.count()).where(
        table.project_id == project_id, table.at > now - MOVES_PERIOD
    )
    announced = ALLOCATIONS.where(
        allocation.project_id == project_id,
        models.MovePart.announced.is_not(None),
        allocation.id != but,
    )
    records = map(record_of, session.execute(announced))
    return session.scalars(begun).one() + sum(
        1
        for record in records
        if record.announced and record.placed and gets_other_hosts(record.placed, record.announced)
    )


def _used(session: Session, project_id: str) -> tuple[int, int, int]:
    """The allocations, hosts and slots of the project."""
    query = COUNTS.where(models.AllocationRow.project_id == project_id, LIVE)
    allocations, hosts, slots = session.execute(query).one()
    return allocations, int(hosts), int(slots)


def check_alone(session: Session, new: AllocationRequest) -> None:
    """Return if ``new`` may have other allocations beside it, or its project has none.

    Raises:
        ConcurrentUpdate: the project got one during the search.
    """
    if not new.alone:
        return
    table = models.AllocationRow
    others = select(func.count()).where(
        table.project_id == new.project_id, LIVE, table.kind != CONTAINER
    )
    if session.scalars(others).one():
        raise ConcurrentUpdate(f"project {new.project_id!r} got another allocation")


COUNTED = (
    func.count(),
    func.coalesce(
        func.sum(
            case((models.AllocationRow.parent.is_(None), models.AllocationRow.hosts), else_=0)
        ),
        0,
    ),
    func.coalesce(func.sum(models.SlotsPart.slots), 0),
)
"""Allocations, hosts and slots; hosts of allocations in a container count with the container."""

COUNTS = with_parts(select(*COUNTED).select_from(models.AllocationRow), models.SlotsPart)

LIVE: ColumnElement[bool] = models.AllocationRow.state.not_in([state.value for state in OVER])


def _hold(field: str, value: int, most: int | None) -> None:
    if most is not None and value > most:
        raise QuotaExceeded(field, value, FIX.format(most=most))


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of a project and its use; -1 is no limit, None the default limit."""

    project_id: str
    hosts: int | None
    allocations: int | None
    used_hosts: int = 0
    used_allocations: int = 0
    moves: int | None = None
    used_moves: int = 0
    slots: int | None = None
    used_slots: int = 0


class SqlQuotas:
    """Quotas of projects, for requests and for ``laas-manage``. Errors: ``Unavailable``."""

    def __init__(self, engine: Engine, now: Callable[[], datetime] = utc_now) -> None:
        self._engine = engine
        self._now = now

    def usage(self, project_id: str, default: Limits) -> ProjectUsage:
        """See ``app.ports.quotas.Quotas.usage``."""
        with translated(), Session(self._engine) as session:
            allocations, hosts, slots = _used(session, project_id)
            moves = _moves(session, project_id, self._now())
            own = limits(session, project_id, default)
            return ProjectUsage(project_id, own, hosts, allocations, moves, slots)

    def moves_left(self, project_ids: Collection[str], default: Limits) -> dict[str, int]:
        """See ``app.ports.quotas.Quotas.moves_left``."""
        now, left = self._now(), {}
        with translated(), Session(self._engine) as session:
            for id in project_ids:
                most = limits(session, id, default).moves
                if most is not None:
                    left[id] = max(0, most - _moves(session, id, now))
        return left

    def within_limits(self, new: AllocationRequest) -> None:
        """See ``app.ports.quotas.Quotas.within_limits``."""
        with translated(), Session(self._engine) as session:
            check(session, new, limits(session, new.project_id, new.limits))

    def may_grow(self, project_id: str, more: int, default: Limits) -> None:
        """See ``app.ports.quotas.Quotas.may_grow``."""
        with translated(), Session(self._engine) as session:
            check_growth(session, project_id, more, limits(session, project_id, default))

    def may_have_slots(self, project_id: str, more: int, default: Limits) -> None:
        """See ``app.ports.quotas.Quotas.may_have_slots``."""
        with translated(), Session(self._engine) as session:
            check_slots(session, project_id, more, limits(session, project_id, default))

    def all(self) -> list[Quota]:
        """Of projects that have a quota of their own or an allocation, by id."""
        table = models.AllocationRow
        usage = COUNTS.add_columns(table.project_id).where(LIVE).group_by(table.project_id)
        with translated(), Session(self._engine) as session:
            own = {row.project_id: row for row in session.scalars(select(models.QuotaRow))}
            counts = {
                id: (int(hosts), count, int(slots))
                for count, hosts, slots, id in session.execute(usage)
            }
            return [
                Quota(
                    id,
                    own[id].hosts if id in own else None,
                    own[id].allocations if id in own else None,
                    *counts.get(id, (0, 0, 0))[:2],
                    own[id].moves if id in own else None,
                    _moves(session, id, self._now()),
                    own[id].slots if id in own else None,
                    counts.get(id, (0, 0, 0))[2],
                )
                for id in sorted(own.keys() | counts.keys())
            ]

    def set(
        self,
        project_id: str,
        hosts: int | None,
        allocations: int | None,
        moves: int | None = None,
        slots: int | None = None,
    ) -> None:
        """Set the quota of a project; present allocations stay."""
        with write_transaction(self._engine) as session:
            session.merge(
                models.QuotaRow(
                    project_id=project_id,
                    hosts=hosts,
                    allocations=allocations,
                    moves=moves,
                    slots=slots,
                )
            )

    def unset(self, project_id: str) -> None:
        """Delete the quota of a project, so that the default applies. ``NotFound``."""
        with write_transaction(self._engine) as session:
            table = models.QuotaRow
            if session.get(table, project_id) is None:
                raise NotFound("quota of project", project_id)
            session.execute(delete(table).where(table.project_id == project_id))
