# SPDX-License-Identifier: Apache-2.0

"""The store in a relational database: every decision is one transaction."""

import copy
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

from sqlalchemy import Engine

from laas_service.adapters.db import schema
from laas_service.adapters.db.admissions import StoredAdmissions
from laas_service.adapters.db.allocations import StoredAllocations
from laas_service.adapters.db.components import StoredComponents
from laas_service.adapters.db.concurrency.arrival_order import ProcessOrder, ThreadOrder
from laas_service.adapters.db.concurrency.decider import Decider
from laas_service.adapters.db.concurrency.priority_locks import PriorityLocks
from laas_service.adapters.db.fabrics import StoredFabrics
from laas_service.adapters.db.faults import StoredFaults
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.observations import StoredObservations
from laas_service.adapters.db.placement_changes import StoredPlacementChanges
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.rounds import Rounds
from laas_service.adapters.db.sharing import slot_claims
from laas_service.adapters.db.snapshots import Snapshots
from laas_service.adapters.db.transactions import (
    KEEP_DELTAS,
    KEEP_EVENTS,
    Transactions,
    nowhere,
    utc_now,
)
from laas_service.adapters.db.write_check import WriteCheck
from laas_service.app.ports.snapshots import Snapshot
from laas_service.app.records import Lease, Limits, Recorded
from laas_service.app.requests import AllocationRequest
from laas_service.messages import PKEYS


class SqlStore:
    """``app.ports.store.Store``, on SQLite, PostgreSQL or MariaDB; safe to share between threads.

    Each part lies in the module of its name. Options as for ``Transactions``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        now: Callable[[], datetime] = utc_now,
        at: Callable[[str], None] = nowhere,
        keep_deltas: int = KEEP_DELTAS,
        announce: bool = False,
        pkeys: range = PKEYS,
        keep_events: int = KEEP_EVENTS,
    ) -> None:
        self._engine, self._writes = engine, WriteCheck(engine)
        self._ledgers, self._priority = LedgerCache(), PriorityLocks(engine)
        self._threads, self._processes = ThreadOrder(), ProcessOrder(engine)
        self._compose(
            Transactions(
                engine, now, at, keep_deltas, announce, pkeys, keep_events, slot_rows=slot_claims
            )
        )

    def under(self, lease: Lease) -> Self:
        """See ``app.ports.store.Store.under``; the cache is shared."""
        held = copy.copy(self)
        held._compose(self._transactions.under(lease))
        return held

    def _compose(self, transactions: Transactions) -> None:
        """Make the parts."""
        self._transactions, ledgers = transactions, self._ledgers
        self.fabrics = StoredFabrics(transactions, ledgers)
        self._decider = Decider(
            transactions,
            ledgers,
            self._priority,
            self._threads,
            self._processes,
            self.fabrics.settle,
        )
        self.admissions = StoredAdmissions(transactions, self._decider)
        self.allocations = StoredAllocations(transactions)
        self.components = StoredComponents(transactions, ledgers)
        self.faults = StoredFaults(
            transactions=transactions, ledgers=ledgers, components=self.components
        )
        self.observations = StoredObservations(transactions, ledgers)
        self.placement_changes = StoredPlacementChanges(transactions, ledgers, self._decider)
        self._rounds = Rounds(transactions, ledgers)
        self._snapshots = Snapshots(transactions, ledgers, self.fabrics.settle)
        self.quotas = SqlQuotas(self._engine, transactions.now)

    def round(self, fabric_id: str, now: datetime, *, longest: timedelta, faulty: bool) -> Recorded:
        """See ``app.ports.store.Store``."""
        return self._rounds.read(fabric_id, now, longest=longest, faulty=faulty)

    def snapshot(
        self, asked: AllocationRequest, project_id: str, default: str | None, limits: Limits
    ) -> Snapshot:
        """See ``app.ports.store.Store``."""
        return self._snapshots.read(asked, project_id, default, limits)

    def check(self) -> None:
        """See ``app.ports.store.Store``."""
        with self._transactions.reading() as session:
            schema.check(session.connection())

    def check_writes(self) -> None:
        """See ``app.ports.store.Store``."""
        self._writes()
