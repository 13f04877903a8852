# SPDX-License-Identifier: Apache-2.0

"""Reports of agents beside OpenSM, and which agent of a fabric is active (one at most)."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session
from tenacity import wait_random

from laas_service.adapters.db import models
from laas_service.adapters.db.clock import database_clock
from laas_service.adapters.db.engine import translated, write_transaction
from laas_service.adapters.db.observations import (
    uncompared,
    uncompared_document,
)
from laas_service.adapters.db.transactions import seconds_document
from laas_service.app.agent_registry import successor
from laas_service.app.ports.agents import Agent, Turn
from laas_service.app.retries import retrying
from laas_service.domain.errors import ConcurrentUpdate, LimitExceeded
from laas_service.messages import NOTHING_KNOWN, AgentReport, Condition, seconds_by_span

_TABLE = models.AgentRow

FORGOTTEN = timedelta(days=1)
"""The row of a standby is deleted after this time without a report."""

MOST = 32
"""Agents of one fabric: each name is a row, and a label of metrics, until it is forgotten."""

TRIES = 10
"""Attempts at a report; two first reports at the same time may make both fail."""


class SqlAgents:
    """``app.ports.agents.Agents``; ``clock`` is the database's, or a test's."""

    def __init__(
        self, engine: Engine, *, clock: Callable[[Session], datetime] = database_clock
    ) -> None:
        self._engine = engine
        self._clock = clock

    def report(self, fabric: str, name: str, seen: AgentReport, seconds: float) -> Turn:
        errors, pause = (ConcurrentUpdate, DBDuplicateEntry), wait_random(0, 0.1)
        repeated = retrying(*errors, attempts=TRIES, wait=pause)
        return repeated(self._report, fabric, name, seen, seconds)

    def _report(self, fabric: str, name: str, seen: AgentReport, seconds: float) -> Turn:
        with write_transaction(self._engine) as session:
            query = select(_TABLE).where(_TABLE.fabric == fabric).order_by(_TABLE.name)
            rows = {row.name: row for row in session.scalars(query.with_for_update())}
            now = self._clock(session)
            previous = _confirmed(rows.values())
            row = rows.get(name)
            if row is None:
                _make_room(session, fabric, name, rows, now - timedelta(seconds=seconds))
                row = rows[name] = models.AgentRow(fabric=fabric, name=name)
                session.add(row)
            row.condition, row.detail = seen.condition.value, seen.detail
            row.generation, row.published = seen.generation, seen.published
            row.stamp, row.published_stamp = seen.stamp or None, seen.published_stamp or None
            row.uncompared = uncompared_document(seen)
            row.running = seen.running
            row.spent = seconds_document(seen.spent)
            row.reading = seen.reading
            row.seen_at = now
            active = successor([_agent(row, now) for row in rows.values()], name, seconds)
            for row in rows.values():
                row.active = None if row.name != active else row.active
            session.flush()  # no agent is active for a moment: the database allows one at most
            rows[active].active = True
            session.execute(
                delete(_TABLE).where(
                    _TABLE.fabric == fabric,
                    _TABLE.active.is_(None),
                    _TABLE.seen_at <= now - FORGOTTEN,
                )
            )
            return Turn(active, _confirmed(rows.values()) != previous)

    def all(self, fabric: str) -> list[Agent]:
        query = select(_TABLE).where(_TABLE.fabric == fabric).order_by(_TABLE.name)
        with translated(), Session(self._engine) as session:
            rows = session.scalars(query).all()
            now = self._clock(session)
            return [_agent(row, now) for row in rows]


def _agent(row: models.AgentRow, now: datetime) -> Agent:
    seen = AgentReport(
        Condition(row.condition),
        row.detail,
        row.generation,
        row.published,
        *uncompared(row.uncompared),
        row.reading,
        stamp=row.stamp or "",
        published_stamp=row.published_stamp or "",
        running=row.running or NOTHING_KNOWN,
        spent=seconds_by_span(row.spent),
    )
    age = abs((now - row.seen_at).total_seconds())  # negative if the clock was set back since
    return Agent(row.name, bool(row.active), seen, row.seen_at, age)


def _make_room(
    session: Session, fabric: str, name: str, rows: dict[str, models.AgentRow], since: datetime
) -> None:
    """Forget the standby that was silent longest, if there is no room for another agent.

    Raises: LimitExceeded, if each of them reported after ``since``.
    """
    if len(rows) < MOST:
        return
    standby = [row for row in rows.values() if not row.active]
    silent = min(standby, key=lambda row: row.seen_at)
    if silent.seen_at > since:
        raise LimitExceeded(
            f"fabric {fabric!r} has {MOST} agents that report, so {name!r} is refused; stop "
            "laas-opensm-agent on a machine that needs none, then the next report takes its place"
        )
    session.delete(rows.pop(silent.name))
    session.flush()


def _confirmed(rows: Iterable[models.AgentRow]) -> tuple[object, ...] | None:
    """The part of the active agent's report that wakes a worker if it changes; None without one."""
    for row in rows:
        if row.active:
            reading = row.reading and replace(row.reading, at=0.0)
            tables = row.generation, row.stamp, row.uncompared
            return row.name, row.condition, tables, row.running, reading
    return None
