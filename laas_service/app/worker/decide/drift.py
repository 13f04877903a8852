# SPDX-License-Identifier: Apache-2.0

"""Drift: what differs between the record and Nova or the switches, and what to do about it; pure.

Two depths. The drift check costs one request to Nova and one to the subnet manager, whatever
the number of hosts, and finds what others did to aggregates and switches. Reconciling also asks
placement about every host, and touches every aggregate.

A difference is counted and told once, until it is gone or another one. Each kind is one function
that compares and returns a ``Difference``, or None if all is as recorded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from laas_service.app import lifecycle
from laas_service.app.handovers import difference_of_handovers, handover_of, managed_hosts
from laas_service.app.lifecycle import HANDED_OVER, LIVE, State
from laas_service.app.ports.compute import Handover, ObservedAggregates
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, kind_of_loss
from laas_service.app.wording import reasons
from laas_service.app.worker import instructions as do
from laas_service.app.worker.instructions import ActFor, Call, Log, Steps
from laas_service.app.worker.memory import DriftMemory
from laas_service.app.worker.round import Round
from laas_service.domain.errors import ConcurrentUpdate, Conflict, LaasError, NotFound, Unavailable
from laas_service.domain.wording import listed
from laas_service.messages import Applied

Found = tuple[DriftMemory, list[str]]
"""The next memory, and the findings."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as recorded."""

    kind: Drift
    subject: str
    """What it is about: the id of an allocation, else words for what differs in the fabric."""
    fabric: str
    detail: str
    """A sentence that does not name the subject."""
    repair: Call | None = None
    """An effect; None: the service cannot put it right."""
    record: AllocationRecord | None = None
    """The active allocation that waits until this is repaired."""

    @property
    def about(self) -> tuple[Drift, str]:
        """The same for the same thing, however it differs."""
        return self.kind, self.subject

    @property
    def sentence(self) -> str:
        """The sentence that is recorded for the fabric and told to others."""
        return self._in_words(self.kind.facts.sentence)

    @property
    def finding(self) -> str:
        """The sentence that is logged."""
        return self._in_words(self.kind.facts.logged)

    def _in_words(self, template: str) -> str:
        return template.format(subject=self.subject, fabric=self.fabric, detail=self.detail)


# -- Nova ---------------------------------------------------------------------------------


def hosts_difference(
    fabric: FabricRecord, record: AllocationRecord, observed: Handover | None
) -> Difference | None:
    """The hosts of an active allocation against what is handed over."""
    handover = handover_of(fabric, record)
    detail = difference_of_handovers(handover, observed)
    if detail is None:
        return None
    return Difference(
        Drift.HOSTS, record.id, fabric.id, detail, do.hand_over.asked(handover), record
    )


def leftover_difference(
    record: AllocationRecord | None, handover: Handover, fabric: str
) -> Difference | None:
    """An aggregate that belongs to no active allocation; None while its allocation lives.

    ``record`` is None if the allocation was never recorded: the service cannot know then whether
    it may take the hosts back.
    """
    id = handover.allocation_id
    if record is None:
        detail = f"hosts are handed over to allocation {id}, which is not recorded"
        return Difference(Drift.LEFTOVER, id, fabric, detail)
    if record.state in LIVE:
        return None
    detail = f"allocation {id} is released, but hosts are still handed over"
    return Difference(Drift.LEFTOVER, id, fabric, detail, do.take_back.asked(handover))


def foreign_project_difference(record: AllocationRecord, handover: Handover) -> Difference | None:
    """An aggregate that admits another project to the hosts of an allocation in ``error``.

    The hosts of an active allocation are handed over again (``hosts_difference``); the steps of
    other states correct its aggregate themselves.
    """
    if record.state is not State.ERROR or handover.project_id == record.project_id:
        return None
    detail = f"hosts are handed over to project {handover.project_id!r}"
    return Difference(Drift.HOSTS, record.id, record.fabric, detail, do.fence.asked(record.id))


def pool_difference(fabric: FabricRecord, missing: Collection[str]) -> Difference | None:
    """Hosts that have left the pool (``missing``, by name)."""
    if not missing:
        return None
    names = tuple(sorted(missing))
    detail = f"hosts are no longer in the pool, free ones accept any project: {listed(names)}"
    return Difference(Drift.POOL, f"hosts of {fabric.id}", fabric.id, detail, do.pool.asked(names))


def opened_difference(fabric: FabricRecord, opened: Mapping[str, str]) -> Difference | None:
    """Hosts that aggregates of others open to projects: ``opened``, aggregates by host."""
    hosts = managed_hosts(fabric)
    shown = sorted(f"{host} by {name}" for host, name in opened.items() if host in hosts)
    if not shown:
        return None
    detail = f"other aggregates open hosts: {listed(shown)}"
    return Difference(Drift.POOL, opened_subject(fabric), fabric.id, detail)


def opened_subject(fabric: FabricRecord) -> str:
    return f"opened hosts of {fabric.id}"


# -- switches -----------------------------------------------------------------------------


def routes_difference(fabric: FabricRecord, applied: Applied) -> Difference:
    """Routes that were confirmed and are no longer, or the keys or the master that go with them."""
    instead = applied.problem or f"generation {applied.generation} is applied"
    detail = f"generation {fabric.routes_generation} is no longer confirmed: {instead}"
    subject = f"routes of {fabric.id}"
    return Difference(kind_of_loss(applied), subject, fabric.id, detail, do.publish.asked())


# -- comparisons --------------------------------------------------------------------------


def reconcile(round: Round, memory: DriftMemory) -> Steps[Found]:
    """Compare all that is recorded with all that is observed; act, and return the findings.

    Active allocations are handed over again in any case: this changes nothing where all is
    well, and repairs schedulers that lost a message.
    """
    comparison = _Comparison(round, memory)
    yield from comparison.take_over()
    yield from comparison.compare_handovers()
    return comparison.found


def take_over(round: Round, memory: DriftMemory) -> Steps[Found]:
    """Put the fabric's free hosts into the pool, and publish its newest routes.

    Without ``repair`` routes that the switches ran and lost are left alone.
    """
    comparison = _Comparison(round, memory)
    yield from comparison.take_over()
    return comparison.found


def check(round: Round, memory: DriftMemory) -> Steps[Found]:
    """Compare what costs little to observe; act on what is new, and return the findings.

    Lost routes are believed only if two checks in a row see them: OpenSM may be starting,
    or sweep by itself. Wrong partition keys and another master are believed at once.
    """
    comparison = _Comparison(round, memory)
    yield from comparison.check()
    return comparison.found


class _Comparison:
    """One comparison of a fabric; collects the findings and the next memory."""

    def __init__(self, round: Round, memory: DriftMemory) -> None:
        self._round, self._fabric, self._memory = round, round.fabric, memory
        self._repair = round.rules.repair
        self._findings: list[str] = []
        self._known = dict(memory.known)
        self._suspected = memory.routes_suspected
        self._pool_asked, self._unpooled = memory.pool_asked, memory.unpooled

    @property
    def found(self) -> Found:
        """The next memory, and the findings."""
        next = DriftMemory(self._known, self._suspected, self._pool_asked, self._unpooled)
        return next, self._findings

    def _log(self, finding: str) -> Steps[None]:
        yield Log(finding)
        self._findings.append(finding)

    def take_over(self) -> Steps[None]:
        """The pool and the routes."""
        yield from do.note_faults(self._fabric.id)
        yield from self._pool()
        yield from do.take_over()
        yield from self._check_routes(at_once=True)

    def compare_handovers(self) -> Steps[None]:
        """All handovers, as the record has them and as compute has them."""
        try:
            observed = yield from do.handed_over()
        except LaasError as error:
            yield from self._log(str(error))
            return
        for record in (yield from do.allocations(HANDED_OVER)):
            yield from self._check_hosts(record.id, observed.get(record.id))
        for _, handover in sorted(observed.items()):
            if difference := (yield from self._of_others(handover)):
                yield from self._act(difference)
        yield from do.note_compared(self._fabric.id)

    def check(self) -> Steps[None]:
        """The drift check."""
        yield from self._check_routes(at_once=False)
        try:
            observed = yield from do.aggregates()
        except LaasError as error:
            yield from self._log(str(error))
            return
        yield from self._check_pool(observed)
        yield from self._check_allocations(observed)

    def _pool(self) -> Steps[None]:
        """Put all hosts into the pool; without ``repair`` only the first time."""
        subject = f"pool of {self._fabric.id}"
        if not self._repair and self._pool_asked:
            return
        self._pool_asked, self._unpooled = True, frozenset()
        try:
            yield from do.pool(sorted(managed_hosts(self._fabric)))
        except (Conflict, NotFound) as error:
            self._unpooled = None
            yield from self._act(Difference(Drift.POOL, subject, self._fabric.id, str(error)))
        except LaasError as error:
            self._unpooled = None
            yield from self._log(f"fabric {self._fabric.id}: {error}")
        else:
            self._known.pop((Drift.POOL, subject), None)

    def _check_pool(self, observed: ObservedAggregates) -> Steps[None]:
        """Hosts that have left the pool, or that an aggregate of others opens."""
        missing = managed_hosts(self._fabric) - observed.pooled
        left = missing - self._unpooled if self._unpooled is not None else frozenset()
        self._unpooled = missing
        if difference := pool_difference(self._fabric, left):
            self._known.pop(difference.about, None)  # other hosts, or the same ones once more
            yield from self._act(difference)
        difference = opened_difference(self._fabric, observed.opened)
        if difference is None:
            self._known.pop((Drift.POOL, opened_subject(self._fabric)), None)
        elif self._is_new(difference):
            yield from self._act(difference)

    def _check_allocations(self, observed: ObservedAggregates) -> Steps[None]:
        active = set()
        for record in (yield from do.allocations(HANDED_OVER)):
            active.add(record.id)
            if lifecycle.hands_over(record) or not self._round.hands_over(record):
                continue
            handover = observed.handed_over.get(record.id)
            if (yield from self._needs_attention(record, handover)):
                yield from self._check_hosts(record.id, handover)
        for id, handover in sorted(observed.handed_over.items()):
            if id in active or not _on(self._fabric, handover):
                continue
            difference = yield from self._of_others(handover, fenced=id in observed.fenced)
            if difference is not None and self._is_new(difference):
                yield from self._act(difference)
        for kind, id in [*self._known]:
            if kind is Drift.LEFTOVER and id not in observed.handed_over:
                del self._known[kind, id]

    def _needs_attention(self, record: AllocationRecord, observed: Handover | None) -> Steps[bool]:
        """Whether a difference is new, is due for another try, or was repaired by others."""
        difference = hosts_difference(self._fabric, record, observed)
        if difference is None:
            detail = self._known.pop((Drift.HOSTS, record.id), None)
            return detail is not None and record.error == detail
        if self._is_new(difference):
            return True
        now = yield from do.time()
        return self._repair and (record.next_try is None or record.next_try <= now)

    # -- one thing ----------------------------------------------------------------------

    def _check_routes(self, *, at_once: bool) -> Steps[None]:
        """Act on routes that the switches lost, and publish those that they do not run.

        Lost routes are published again with ``repair``, routes that the switches never ran only
        if ``at_once``.
        """
        try:
            seen = yield from do.routes_seen()
            certain = at_once or kind_of_loss(seen.applied).facts.certain
            suspected, self._suspected = certain or self._suspected, False
            if seen.applied.generation == self._fabric.routes_generation:
                return
            if seen.lost:
                if not suspected:
                    self._suspected = True
                    return
                difference = routes_difference(self._fabric, seen.applied)
                yield from do.record_loss(seen.applied)
                self._known.pop(difference.about, None)  # lost once more
                yield from self._act(difference)
                return
            publishes = self._repair if seen.ever_applied else at_once
            problem = (yield from do.publish()) if publishes else None
        except LaasError as error:
            problem = str(error)
        if problem:
            yield from self._log(f"fabric {self._fabric.id}: {problem}")

    def _check_hosts(self, id: str, observed: Handover | None) -> Steps[None]:
        """One active allocation against what is handed over."""
        record = yield from do.allocation(id)
        if record is None:
            raise NotFound("allocation", id)
        is_known = self._round.hands_over(record)
        if record.state not in HANDED_OVER or not is_known or lifecycle.hands_over(record):
            return
        yield ActFor(record.initiator)
        if difference := hosts_difference(self._fabric, record, observed):
            yield from self._act(difference)
        else:
            self._known.pop((Drift.HOSTS, id), None)
            yield from self._confirm_hosts(record)
        yield ActFor(None)

    def _confirm_hosts(self, record: AllocationRecord) -> Steps[None]:
        """Hand over again what is handed over; an error about it is over then."""
        try:
            yield from do.hand_over(handover_of(self._fabric, record))
            if record.error and lifecycle.is_at_rest(record):
                yield from _record_repair(record, record.error)
        except ConcurrentUpdate:
            return
        except LaasError as error:
            yield from do.wait(record, str(error))
            yield from self._log(f"allocation {record.id}: {error}")

    def _of_others(self, handover: Handover, *, fenced: bool = True) -> Steps[Difference | None]:
        """What is wrong with an aggregate that is of no active allocation of the fabric."""
        record = yield from do.allocation(handover.allocation_id)
        if record is not None:
            is_elsewhere = record.fabric != self._fabric.id
        else:
            known = (yield from do.other_hosts()) if handover.hosts else frozenset[str]()
            is_elsewhere = bool(handover.hosts) and known.issuperset(handover.hosts)
        if is_elsewhere:
            return None
        leftover = leftover_difference(record, handover, self._fabric.id)
        if leftover is not None or record is None or fenced:
            return leftover
        return foreign_project_difference(record, handover)

    # -- acting -------------------------------------------------------------------------

    def _is_new(self, difference: Difference) -> bool:
        return self._known.get(difference.about) != difference.detail

    def _act(self, difference: Difference) -> Steps[None]:
        """Count, tell and repair a difference, or let its allocation wait."""
        is_new, waits = self._is_new(difference), difference.record
        self._known[difference.about] = difference.detail
        if is_new:
            yield from do.note_drift(self._fabric.id, difference.kind, difference.sentence)
        if difference.repair is None or not self._repair:
            if is_new and waits is not None:
                yield from do.wait(waits, difference.detail)
            yield from self._log(difference.finding)
            return
        try:
            problem = yield difference.repair
            if problem:  # of a publication
                raise Unavailable(problem)
            if waits is not None:
                yield from _record_repair(waits, difference.detail)
        except ConcurrentUpdate:
            return
        except LaasError as error:
            if waits is not None:
                yield from do.wait(waits, str(error))
            yield from self._log(f"{difference.finding}; not repaired: {error}")
            return
        repaired = difference.repair.verb is not do.publish  # then once the switches run them
        if repaired:
            del self._known[difference.about]
            yield from do.note_repaired(self._fabric.id, difference.kind, difference.sentence)
        yield from self._log(f"{difference.finding}{'; repaired' if repaired else ''}")


def _record_repair(record: AllocationRecord, detail: str) -> Steps[None]:
    yield from do.transition(record, record.state, reasons.hosts_repaired_reason(detail))


def _on(fabric: FabricRecord, handover: Handover) -> bool:
    """Whether one of the hosts is in the fabric."""
    return not fabric.inventory.host_numbers.keys().isdisjoint(handover.hosts)
