# SPDX-License-Identifier: Apache-2.0

"""What is remembered of compute hosts, and what it says of the hosts of a fabric."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import component_words, models
from laas_service.adapters.db.components import StoredComponents
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.transactions import Transactions
from laas_service.app.records import FabricRecord, HostState, Source
from laas_service.domain.compute_hosts import HostMemory, released
from laas_service.domain.errors import Conflict
from laas_service.messages import Initiator


@dataclass
class ComputeHosts:
    """The part of ``app.ports.faults.Faults`` that is about compute hosts."""

    transactions: Transactions
    components: StoredComponents

    def host_memory(self, fabric_id: str) -> HostMemory:
        with self.transactions.reading() as session:
            row = session.get(models.ComputeHostsRow, fabric_id)
            return HostMemory() if row is None else row.memory

    @retrying().wraps
    def judge_hosts(self, fabric_id: str, judge: Callable[[HostMemory], HostMemory]) -> HostMemory:
        with self.transactions.writing("observe hosts") as session:
            fabric = self.components.locked(session, fabric_id)
            before = _memory(session, fabric_id)
            memory = judge(before)
            if memory.alarm and not before.alarm:
                self.transactions.announce(session, fabric_id, "hosts.alarm", memory.alarm)
            if before.alarm and not memory.alarm:
                text = f"ended: {before.alarm}"
                self.transactions.announce(session, fabric_id, "hosts.cleared", text)
            self._write_hosts(session, fabric, memory, None)
            return memory

    @retrying().wraps
    def release_quarantine(self, fabric_id: str, host: str, *, by: Initiator | None = None) -> None:
        with self.transactions.writing("release quarantine") as session:
            fabric = self.components.locked(session, fabric_id)
            memory = _memory(session, fabric_id)
            if host not in memory.quarantine:
                raise Conflict(f"host {host!r} is not in quarantine")
            self._write_hosts(session, fabric, released(memory, host), by)

    def _write_hosts(
        self, session: Session, fabric: FabricRecord, memory: HostMemory, by: Initiator | None
    ) -> None:
        """Record the memory, and what it says of hosts; the fabric is locked."""
        table = models.HostStateRow
        kept = session.get(models.ComputeHostsRow, fabric.id)
        if kept is None:
            session.add(models.ComputeHostsRow(fabric=fabric.id, memory=memory))
        elif kept.memory != memory:
            kept.memory = memory
        numbers = fabric.inventory.host_numbers
        words = {
            numbers[name]: (HostState.DRAINED.value, datetime.fromtimestamp(since, UTC), why)
            for name, (since, why) in memory.withheld().items()
            if name in numbers
        }
        rows = component_words.rows_of(session, fabric.id, table, "host", None)
        changed = []
        for number in sorted(words.keys() | rows.keys()):
            row, word = rows.get(number), words.get(number, (None, None, None))
            if row is None:
                row = table(fabric=fabric.id, host=number, state=HostState.UP.value)
                session.add(row)
            if (row.nova, row.nova_evidence) != (word[0], word[2]):
                row.nova, row.nova_since, row.nova_evidence = word
                changed.append(number)
        if changed:
            session.flush()
            changes = component_words.settle(session, fabric, hosts=changed, links=[])
            self.components.record_changes(session, fabric, changes, by, source=Source.NOVA)


def _memory(session: Session, fabric_id: str) -> HostMemory:
    row = session.scalar(
        select(models.ComputeHostsRow)
        .where(models.ComputeHostsRow.fabric == fabric_id)
        .with_for_update()
    )
    return HostMemory() if row is None else row.memory
