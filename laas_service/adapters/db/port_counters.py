# SPDX-License-Identifier: Apache-2.0

"""Port counters: readings that come in, what is remembered of switches, and what is found.

A reading waits in the row of its switch until it is accounted; a newer one takes its place. That
loses nothing, because counters add up. What is remembered and the mark that the reading is
accounted are written in one transaction.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import select
from sqlalchemy.orm import Session
from tenacity import wait_random

from laas_service.adapters.db import models
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions
from laas_service.app.ports.faults import Account
from laas_service.app.records import FabricRecord
from laas_service.app.retries import retrying
from laas_service.domain.errors import ConcurrentUpdate
from laas_service.domain.faults.counters import Findings, Owners, SwitchCounters, dismissed
from laas_service.domain.tenancy import SharedHosts
from laas_service.domain.topology import Link

_TABLE = models.PortCountersRow

TRIES = 10
"""Attempts at a write; two first readings of a switch at the same time make one of them fail."""

BATCH = 16
"""Readings that one transaction accounts."""


@dataclass
class PortCounters:
    """The part of ``app.ports.faults.Faults`` that is about counters."""

    transactions: Transactions
    ledgers: LedgerCache

    def record_counters(self, fabric_id: str, readings: Iterable[SwitchCounters]) -> None:
        errors, pause = (ConcurrentUpdate, DBDuplicateEntry), wait_random(0, 0.1)
        repeated = retrying(*errors, attempts=TRIES, wait=pause)
        if fresh := sorted(readings, key=lambda reading: reading.guid):
            repeated(self._record, fabric_id, fresh)

    def _record(self, fabric_id: str, readings: Iterable[SwitchCounters]) -> None:
        with self.transactions.writing("record counters") as session:
            known = self.ledgers.record(session, fabric_id).inventory.switch_of_guid
            for reading in readings:
                if reading.guid not in known:
                    continue
                at = datetime.fromtimestamp(reading.at, UTC)
                row = _row(session, fabric_id, reading.guid)
                if row is None:
                    row = _TABLE(fabric=fabric_id, guid=_name(reading.guid), erroneous=False)
                    session.add(row)
                elif row.read_at >= at:
                    continue
                row.read_at, row.reading, row.pending = at, reading, True

    def account_counters(self, fabric_id: str, account: Account) -> bool:
        errors, pause = (ConcurrentUpdate,), wait_random(0, 0.1)
        repeated = retrying(*errors, attempts=TRIES, wait=pause)
        return repeated(self._account, fabric_id, account)

    def _account(self, fabric_id: str, account: Account) -> bool:
        due = _TABLE.fabric == fabric_id, _TABLE.pending.is_(True)
        with self.transactions.reading() as session:
            if session.scalar(select(_TABLE.guid).where(*due).limit(1)) is None:
                return False
            ledger = self.ledgers.caught_up(session, fabric_id).ledger
        sharing = frozenset(
            held.id for held in ledger.everybody() if isinstance(held.kind, SharedHosts)
        )
        owners = Owners(ledger.owners_of_links(), ledger.owners_of_hosts(), sharing)
        query = select(_TABLE).where(*due).order_by(_TABLE.guid).limit(BATCH)
        with self.transactions.writing("account counters") as session:
            rows = session.scalars(query.with_for_update()).all()
            for row in rows:
                before = row.findings
                row.memory, row.findings = account(row.memory, row.reading, owners)
                found = row.findings
                row.pending, row.erroneous = False, bool(found.errors)
                for text in _new(before, found):
                    self.transactions.announce(session, fabric_id, "observation.counters", text)
            return len(rows) == BATCH

    def counter_findings(self, fabric_id: str, *, errors_only: bool = False) -> list[Findings]:
        query = select(_TABLE.findings).where(
            _TABLE.fabric == fabric_id, _TABLE.findings.is_not(None)
        )
        if errors_only:
            query = query.where(_TABLE.erroneous.is_(True))
        with self.transactions.reading() as session:
            return list(session.scalars(query.order_by(_TABLE.guid)))


def dismiss_errors(session: Session, fabric: FabricRecord, link: Link) -> None:
    """Forget the errors at both ends of a link, which an operator called repaired."""
    cable = fabric.inventory.cable_of_link.get(link)
    for end in () if cable is None else sorted((cable.lower, cable.upper)):
        row = _row(session, fabric.id, end.guid)
        if row is None or row.memory is None or row.findings is None:
            continue
        row.memory = dismissed(row.memory, end.port)
        kept = tuple(error for error in row.findings.errors if error.end != end)
        row.findings = replace(row.findings, errors=kept)
        row.erroneous = bool(kept)


def _row(session: Session, fabric_id: str, guid: int) -> models.PortCountersRow | None:
    """The row of a switch, locked."""
    query = select(_TABLE).where(_TABLE.fabric == fabric_id, _TABLE.guid == _name(guid))
    return session.scalar(query.with_for_update())


def _name(guid: int) -> str:
    return f"{guid:#018x}"


def _new(before: Findings | None, found: Findings) -> list[str]:
    """What was not found at the last reading, in sentences."""
    errors = {(e.end, e.counter) for e in before.errors} if before is not None else set()
    foreign = {(f.owner, f.direction) for f in before.foreign} if before is not None else set()
    return [
        *(error.sentence for error in found.errors if (error.end, error.counter) not in errors),
        *(
            f"switch {_name(found.guid)}: {f.sentence}"
            for f in found.foreign
            if (f.owner, f.direction) not in foreign
        ),
    ]
