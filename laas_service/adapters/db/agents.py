# SPDX-License-Identifier: Apache-2.0

"""Reports of agents beside OpenSM, and which agent of a fabric is active (one at most)."""

from collections.abc import Callable, Collection, Sized
from dataclasses import replace
from datetime import datetime

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

MOST = 32
"""Agents of one fabric: each name is a row, and a label of metrics, until an operator forgets it. A
standby that is silent may come back with the files that it had, so time alone deletes no row."""

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
                _check_room(fabric, name, rows)
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
            return Turn(active, _confirmed(rows.values()) != previous)

    def forget(self, fabric: str, name: str) -> None:
        standby = (_TABLE.fabric == fabric) & (_TABLE.name == name) & _TABLE.active.is_(None)
        with write_transaction(self._engine) as session:
            session.execute(delete(_TABLE).where(standby))

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


def _check_room(fabric: str, name: str, rows: Sized) -> None:
    """Raises: LimitExceeded, if there is no room for another agent."""
    if len(rows) >= MOST:
        raise LimitExceeded(
            f"fabric {fabric!r} has {MOST} agents, so {name!r} is refused; name those whose OpenSM "
            "is gone with 'laas manager forget', then the next report is taken"
        )


def _confirmed(rows: Collection[models.AgentRow]) -> tuple[object, ...] | None:
    """The part of the agents' reports that wakes a worker if it changes; None if none is active.

    Of a standby that is its set: parts are held until it has the one that frees them.
    """
    sets = sorted((row.name, row.published or 0) for row in rows if not row.active)
    for row in rows:
        if row.active:
            reading = row.reading and replace(row.reading, at=0.0)
            tables = row.generation, row.stamp, row.uncompared
            return row.name, row.condition, tables, row.running, reading, sets
    return None
