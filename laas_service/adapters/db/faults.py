# SPDX-License-Identifier: Apache-2.0

"""The observation of fabrics: memory, mode, alarm, news, and what it records of links."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import bindparam, exists, or_, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import component_words, models
from laas_service.adapters.db.components import StoredComponents
from laas_service.adapters.db.compute_hosts import ComputeHosts
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.port_counters import PortCounters
from laas_service.adapters.db.transactions import Transactions
from laas_service.app.records import (
    Acknowledgement,
    FabricRecord,
    HostState,
    LinkState,
    News,
    Observation,
    Source,
)
from laas_service.domain.errors import NotFound
from laas_service.domain.faults.memory import (
    NOTHING_SEEN,
    FaultMemory,
    acknowledge,
)
from laas_service.domain.faults.observation import Mode, OperatorStates, ReadingOutcome
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.topology import Link
from laas_service.messages import Initiator

KEPT_NEWS = 100
"""The newest news of a fabric that are kept."""

WITHHELD = "its switch is not confirmed, and may forward by old tables"
"""The evidence for a link that is drained by observation."""

_MODE = (
    select(models.ObservationRow.mode)
    .select_from(models.FabricRow)
    .outerjoin(models.ObservationRow, models.ObservationRow.fabric == models.FabricRow.id)
    .where(models.FabricRow.id == bindparam("fabric"))
)

_SEEN = (
    select(
        models.ObservationRow,
        exists().where(models.SwitchStateRow.fabric == models.FabricRow.id),
        exists().where(
            models.LinkStateRow.fabric == models.FabricRow.id,
            models.LinkStateRow.operator == LinkState.FAILED.value,
        ),
        exists().where(
            models.HostStateRow.fabric == models.FabricRow.id,
            models.HostStateRow.leaves.is_not(None),
        ),
        exists().where(
            models.PortCountersRow.fabric == models.FabricRow.id,
            or_(
                models.PortCountersRow.pending.is_(True), models.PortCountersRow.erroneous.is_(True)
            ),
        ),
    )
    .select_from(models.FabricRow)
    .outerjoin(models.ObservationRow, models.ObservationRow.fabric == models.FabricRow.id)
    .where(models.FabricRow.id == bindparam("fabric"))
)
"""The row of a fabric, and whether there are words of operators on switches, links and leaves, and
port counters to look at: each is read only then."""


@dataclass
class StoredFaults(ComputeHosts, PortCounters):
    """Records readings and the states they lead to, and the mode that operators choose."""

    transactions: Transactions
    ledgers: LedgerCache
    components: StoredComponents

    def observation(self, fabric_id: str) -> Observation:
        with self.transactions.reading() as session:
            return read_observation(session, self.ledgers.record(session, fabric_id))

    def mode(self, fabric_id: str) -> Mode | None:
        with self.transactions.reading() as session:
            row = session.execute(_MODE, {"fabric": fabric_id}).one_or_none()
        if row is None:
            raise NotFound("fabric", fabric_id)
        return Mode(row.mode) if row.mode else None

    @retrying().wraps
    def judged(
        self,
        fabric_id: str,
        reading: FabricReading,
        judge: Callable[[Observation], ReadingOutcome],
        seconds: float,
        known: Observation | None = None,
    ) -> ReadingOutcome:
        before = known or self.observation(fabric_id)
        judgement = judge(before)
        if not _to_write(before, judgement, seconds):
            return judgement
        with self.transactions.writing("observe") as session:
            fabric = self.components.locked(session, fabric_id)
            before = read_observation(session, fabric)
            judgement = judge(before)
            row = _row(session, fabric_id)
            row.memory = judgement.memory
            row.read_at = datetime.fromtimestamp(reading.at, UTC)
            row.observer = _observer(reading, fabric)
            news = [News(self.transactions.now(), text) for text in judgement.news]
            row.news = (*row.news, *news)[-KEPT_NEWS:]
            for text in judgement.news:
                self.transactions.announce(session, fabric_id, "observation.news", text)
            if judgement.raised and judgement.alarm is not None:
                self.transactions.announce(
                    session, fabric_id, "observation.alarm", judgement.alarm.text
                )
            if judgement.cleared and before.memory.alarm is not None:
                text = f"ended: {before.memory.alarm.text}"
                self.transactions.announce(session, fabric_id, "observation.cleared", text)
            hosts, links = self._record_observed(session, fabric, judgement.memory)
            changes = component_words.settle(session, fabric, hosts=hosts, links=links)
            closed = _close(session, fabric, judgement.memory.closed)
            self.components.record_changes(
                session, fabric, changes, None, source=Source.OBSERVED, routes=closed
            )
            return judgement

    def _record_observed(
        self, session: Session, fabric: FabricRecord, memory: FaultMemory
    ) -> tuple[list[int], list[Link]]:
        """Record the hosts and links that the memory holds as failed or withheld, and no others.

        Returns those whose observed state changes.
        """
        topology, now = fabric.topology, self.transactions.now()
        hosts = {
            number: word
            for number, word in _said_of_hosts(memory).items()
            if 0 <= number < topology.hosts and number not in topology.absent_hosts
        }
        links = {
            topology.tree.link_id(link): word
            for link, word in _said_of_links(memory, now).items()
            if topology.tree.has_link(link) and link not in topology.absent_links
        }
        changed_hosts = _record(session, fabric, models.HostStateRow, "host", hosts)
        changed_links = _record(session, fabric, models.LinkStateRow, "link", links)
        return changed_hosts, [topology.tree.link_at(number) for number in changed_links]

    @retrying().wraps
    def set_mode(self, fabric_id: str, mode: Mode | None, *, by: Initiator | None = None) -> None:
        with self.transactions.writing("set observation mode") as session:
            self.components.locked(session, fabric_id)
            row = _row(session, fabric_id)
            if row.mode == Mode.FROZEN.value and mode is not Mode.FROZEN:
                _try_again(session, fabric_id)
            row.mode, row.mode_since = mode and mode.value, self.transactions.now()
            row.mode_by = by

    @retrying().wraps
    def acknowledge_alarm(self, fabric_id: str, *, by: Initiator | None = None) -> None:
        with self.transactions.writing("acknowledge alarm") as session:
            self.components.locked(session, fabric_id)
            row = _row(session, fabric_id)
            alarm = row.memory.alarm
            if alarm is not None:
                row.memory = acknowledge(row.memory)
                row.acknowledged = Acknowledgement(self.transactions.now(), alarm.text, by)


def _to_write(before: Observation, judgement: ReadingOutcome, seconds: float) -> bool:
    """Whether a judgement says something new, or the recorded time of a reading is old."""
    old, new = before.memory, judgement.memory
    if judgement.news or judgement.raised or judgement.cleared or judgement.changes:
        return True
    if replace(old, at=None) != replace(new, at=None):
        return True
    return new.at is not None and (old.at is None or new.at - old.at >= seconds)


def _try_again(session: Session, fabric_id: str) -> None:
    """Make the steps due that wait, for example for a fabric to be released."""
    table = models.AllocationRow
    session.execute(
        update(table)
        .where(table.fabric == fabric_id, table.due_at.is_not(None))
        .values(due_at=None, failures=0, version=table.version + 1)
    )


class _Word(NamedTuple):
    """What observation says of a host or link."""

    state: str
    since: datetime
    evidence: str


def _record(
    session: Session, fabric: FabricRecord, table: Any, key: str, said: Mapping[int, _Word]
) -> list[int]:
    """Record what is said of hosts or links, by number; those whose observed state changes."""
    rows = component_words.rows_of(session, fabric.id, table, key, None)
    changed = []
    for number in sorted(said.keys() | rows.keys()):
        row, word = rows.get(number), said.get(number)
        if word is not None and row is not None and row.observed == word.state:
            row.evidence = word.evidence
            continue
        if word is None and (row is None or row.observed is None):
            continue
        if row is None:
            row = table(fabric=fabric.id, state=component_words.UP, **{key: number})
            session.add(row)
        row.observed, row.observed_since, row.evidence = word or (None, None, None)
        changed.append(number)
    return changed


def _close(session: Session, fabric: FabricRecord, links: Collection[Link]) -> bool:
    """Record the links over which no table may lead; whether they change."""
    closed = {fabric.topology.tree.link_id(link) for link in links}
    rows = component_words.rows_of(session, fabric.id, models.LinkStateRow, "link", None)
    changed = [row for number, row in rows.items() if row.moved != (number in closed)]
    for row in changed:
        row.moved = not row.moved
    return bool(changed)


def _said_of_links(memory: FaultMemory, now: datetime) -> dict[Link, _Word]:
    """What observation records of links."""
    said = dict.fromkeys(memory.withheld, _Word(LinkState.DRAINED.value, now, WITHHELD))
    for link in memory.marked:
        entry = memory.links[link]
        said[link] = _Word(LinkState.FAILED.value, _time(entry.since), entry.evidence)
    return said


def _said_of_hosts(memory: FaultMemory) -> dict[int, _Word]:
    """What observation records of hosts, by number."""
    failed, drained = HostState.FAILED.value, HostState.DRAINED.value
    return {
        number: _Word(failed if host.failed else drained, _time(host.since), host.evidence)
        for number, host in memory.withheld_hosts.items()
    }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _row(session: Session, fabric_id: str) -> models.ObservationRow:
    """The row of a fabric, locked; a new one if it has none. The fabric must be locked."""
    table = models.ObservationRow
    row = session.scalar(select(table).where(table.fabric == fabric_id).with_for_update())
    if row is None:
        row = table(fabric=fabric_id, memory=NOTHING_SEEN, news=())
        session.add(row)
    return row


def read_observation(session: Session, fabric: FabricRecord) -> Observation:
    """What is remembered of the faults of a fabric."""
    row, switches, links, hosts, counted = session.execute(_SEEN, {"fabric": fabric.id}).one()
    words = component_words.switch_words(session, fabric) if switches else {}
    operator = OperatorStates(
        _failed_links(session, fabric) if links else frozenset(),
        _drained_leaves(session, fabric) | words.keys() if hosts else frozenset(words),
    )
    repaired = frozenset(guid for guid, word in words.items() if word.repaired_at is not None)
    if row is None:
        return Observation(operator=operator, repaired=repaired, counted=bool(counted))
    return Observation(
        Mode(row.mode) if row.mode else None,
        row.memory,
        row.news,
        row.read_at,
        row.observer,
        operator,
        row.mode_since,
        row.mode_by,
        row.acknowledged,
        repaired,
        bool(counted),
    )


def _failed_links(session: Session, fabric: FabricRecord) -> frozenset[Link]:
    """The links that operators said have failed."""
    table, failed = models.LinkStateRow, LinkState.FAILED.value
    query = select(table.link).where(table.fabric == fabric.id, table.operator == failed)
    return frozenset(map(fabric.topology.tree.link_at, session.scalars(query)))


def _drained_leaves(session: Session, fabric: FabricRecord) -> frozenset[int]:
    """The GUIDs of leaves that operators drained; a leaf is drained if hosts are with it."""
    table = models.HostStateRow
    query = select(table.leaves).where(table.fabric == fabric.id, table.leaves.is_not(None))
    return frozenset(int(guid, 16) for guids in session.scalars(query) for guid in guids or ())


def _observer(reading: FabricReading, fabric: FabricRecord) -> str | None:
    """The name of the port that a reading was made through."""
    if reading.observer is None:
        return None
    guid, port = reading.observer
    for endpoint in fabric.inventory.endpoints:
        if endpoint.guid == guid:
            return f"{endpoint.name} port {port}"
    return f"{guid:#018x} port {port}"
