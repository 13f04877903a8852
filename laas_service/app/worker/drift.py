# SPDX-License-Identifier: Apache-2.0


"""Compares what is recorded with what is observed, repairs what others changed, and reports it.

Two depths. A *look* costs one question to Nova and one to the subnet manager, however many
hosts there are, and finds what others did to aggregates and switches. Comparing *everything*
also asks placement about every host, and touches every aggregate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from laas_service.app.ports.allocations import AllocationReader, Transitions
from laas_service.app.ports.compute import Compute, Handover, Observed
from laas_service.app.ports.fabrics import ComponentStates, FabricReader
from laas_service.app.ports.log_context import ActingFor
from laas_service.app.ports.observations import Observations
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, State
from laas_service.app.worker.route_publisher import Effect, RoutePublisher
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    LaasError,
    LeaseLost,
    NotFound,
)
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


class DriftStore(
    AllocationReader, Transitions, FabricReader, ComponentStates, Observations, Protocol
):
    """The recorded decisions and observations, as the comparison needs them."""


class Comparison:
    """What others did to the fabrics of one worker.

    With ``repair`` False, drift is reported and left alone. With ``fabric`` nothing but that
    fabric is looked at. ``postpone`` notes why an allocation has to wait. What was found is
    counted and told once, until it is gone or different.
    """

    def __init__(
        self,
        store: DriftStore,
        compute: Compute,
        routes: RoutePublisher,
        *,
        repair: bool,
        fabric: str | None,
        now: Callable[[], datetime],
        effect: Effect,
        postpone: Callable[[AllocationRecord, str], None],
        acting_for: ActingFor,
    ) -> None:
        self._store = store
        self._compute = compute
        self._routes = routes
        self._repair = repair
        self._fabric = fabric
        self._now = now
        self._effect = effect
        self._postpone = postpone
        self._acting_for = acting_for
        self._known: dict[tuple[Drift, str], str] = {}  # what it is about -> what was found
        self._suspected: set[str] = set()  # fabrics whose routes seemed lost at the last look
        self._unpooled: dict[str, frozenset[str] | None] = {}  # None: not known which

    # -- everything -------------------------------------------------------------

    def everything(self) -> list[str]:
        """Compare all that is recorded with all that is observed; repair, and report.

        Active allocations are handed over again in any case: it changes nothing
        where all is well, and heals schedulers that lost a message.
        """
        self._routes.forget()
        findings = [text for fabric in self._fabrics() for text in self.adopt(fabric)]
        try:
            observed = self._compute.handed_over()
        except LaasError as error:
            return [*findings, str(error)]
        for record in self._all(State.ACTIVE):
            findings += self._compare(record.id, observed.get(record.id))
        for id, handover in sorted(observed.items()):
            findings += self._leftover(id, handover)
        return findings

    def adopt(self, fabric: FabricRecord) -> list[str]:
        """The fabric's free hosts accept nobody, and its newest routes are published.

        Without ``repair`` routes that the switches had and lost are left alone.
        """
        self._store.note_faults(fabric.id)
        findings = self._pool(fabric)
        self._routes.adopt(fabric)
        return self._reported([*findings, *self._compare_routes(fabric, at_once=True)])

    def _pool(self, fabric: FabricRecord) -> list[str]:
        about = (Drift.POOL, fabric.id)
        if not self._repair and fabric.id in self._unpooled:
            return []
        self._unpooled[fabric.id] = frozenset()
        try:
            self._effect("pool", lambda: self._compute.pool(sorted(managed(fabric))))
        except LeaseLost:
            raise
        except LaasError as error:
            self._unpooled[fabric.id] = None
            if isinstance(error, Conflict | NotFound):
                self._found(fabric.id, about, str(error))
            return [f"fabric {fabric.id}: {error}"]
        self._known.pop(about, None)
        return []

    # -- at little cost -----------------------------------------------------------

    def look(self) -> list[str]:
        """Find what can be seen at little cost; repair, and report what was not known.

        That the switches run something else is believed when two looks in a row say so:
        OpenSM may be starting, or sweep by itself.
        """
        self._routes.forget()
        fabrics = self._fabrics()
        findings = [t for fabric in fabrics for t in self._compare_routes(fabric, at_once=False)]
        try:
            observed = self._compute.observed()
        except LaasError as error:
            return self._reported([*findings, str(error)])
        self._reported(findings)
        for fabric in fabrics:
            findings += self._look_at_pool(fabric, observed)
            findings += self._look_at_tenants(fabric, observed)
        return findings

    def _look_at_pool(self, fabric: FabricRecord, observed: Observed) -> list[str]:
        """Hosts that are in the pool no more, or that somebody else's aggregate opens."""
        hosts = managed(fabric)
        missing, before = hosts - observed.pooled, self._unpooled.get(fabric.id, frozenset())
        self._unpooled[fabric.id] = missing
        lost = missing - before if before is not None else frozenset()
        text = _left(lost) if lost else None
        findings = []
        if text is not None:
            self._store.note_drift(fabric.id, Drift.POOL, text)
            findings.append(f"fabric {fabric.id}: {text}")
            findings += self._pool_again(fabric, lost, text) if self._repair else []
        opened = {host: name for host, name in observed.opened.items() if host in hosts}
        shown = [f"{host} by {name}" for host, name in opened.items()]
        text = f"other aggregates open hosts: {listed(sorted(shown))}" if opened else None
        if self._found(fabric.id, (Drift.POOL, f"opened {fabric.id}"), text):
            findings.append(f"fabric {fabric.id}: {text}")
        return self._reported(findings)

    def _pool_again(self, fabric: FabricRecord, hosts: frozenset[str], text: str) -> list[str]:
        try:
            self._effect("pool", lambda: self._compute.pool(sorted(hosts)))
        except LeaseLost:
            raise
        except LaasError as error:
            return [f"fabric {fabric.id}: {error}"]
        self._store.note_repaired(fabric.id, Drift.POOL, text)
        return []

    def _look_at_tenants(self, fabric: FabricRecord, observed: Observed) -> list[str]:
        findings, active = [], set()
        for record in self._all(State.ACTIVE, fabric.id):
            active.add(record.id)
            if self._differs(fabric, record, observed.handed_over.get(record.id)):
                findings += self._compare(record.id, observed.handed_over.get(record.id))
        for id, handover in sorted(observed.handed_over.items()):
            known = (Drift.LEFTOVER, id) in self._known
            here = {*handover.hosts} & fabric.inventory.host_numbers.keys()
            if id not in active and here and not known:
                findings += self._leftover(id, handover)
        for kind, id in [*self._known]:
            if kind is Drift.LEFTOVER and id not in observed.handed_over:
                del self._known[kind, id]
        return findings

    def _differs(
        self, fabric: FabricRecord, record: AllocationRecord, observed: Handover | None
    ) -> bool:
        """Whether there is something new, or something to be tried again."""
        if record.container:
            return False
        drift, about = difference(handover_of(fabric, record), observed), (Drift.HOSTS, record.id)
        if drift is None:
            known = self._known.pop(about, None)
            return known is not None and record.error == known  # others put it right
        if self._known.get(about) != drift:
            return True
        return self._repair and (record.next_try is None or record.next_try <= self._now())

    # -- routes -------------------------------------------------------------------

    def _compare_routes(self, fabric: FabricRecord, *, at_once: bool) -> list[str]:
        """Publish what the switches ran and lost, with ``repair``; at once also what is new."""
        findings = []
        problem = None
        try:
            applied = self._routes.applied(fabric.id)
            suspected = at_once or fabric.id in self._suspected
            self._suspected.discard(fabric.id)
            if applied.generation == fabric.routes_generation:
                return []
            if self._routes.lost(fabric, applied):
                if not suspected:
                    self._suspected.add(fabric.id)
                    return []
                findings.append(f"fabric {fabric.id}: {self._routes.lose(fabric, applied)}")
            if self._repair if self._routes.had(fabric) else at_once:
                problem = self._routes.publish(fabric.id)
        except LeaseLost:
            raise
        except LaasError as error:
            problem = str(error)
        return [*findings, f"fabric {fabric.id}: {problem}"] if problem else findings

    # -- hosts --------------------------------------------------------------------

    def _compare(self, id: str, observed: Handover | None) -> list[str]:
        """One active allocation against what is handed over."""
        record = self._store.allocation(id)
        if record.state is not State.ACTIVE or record.container:
            return []
        with self._acting_for(record.initiator):
            return self._compare_active(record, observed)

    def _compare_active(self, record: AllocationRecord, observed: Handover | None) -> list[str]:
        id = record.id
        about = (Drift.HOSTS, id)
        handover = handover_of(self._store.fabric(record.fabric), record)
        drift = difference(handover, observed)
        found = self._found(record.fabric, about, drift, f"allocation {id}: ")
        try:
            if drift and not self._repair:
                if found:
                    self._postpone(record, drift)
                return self._reported([f"allocation {id}: {drift}"])
            self._effect("hand over", lambda: self._compute.hand_over(handover))
            if drift or (record.error and not record.faults and not record.phase):
                self._store.transition(record, State.ACTIVE, f"repaired: {drift or record.error}")
        except ConcurrentUpdate:
            return []
        except LeaseLost:
            raise
        except LaasError as error:
            self._postpone(record, str(error))
            return self._reported([f"allocation {id}: {error}"])
        if drift is None:
            return []
        self._known.pop(about, None)
        self._store.note_repaired(record.fabric, Drift.HOSTS, f"allocation {id}: {drift}")
        return self._reported([f"allocation {id}: {drift}; repaired"])

    def _leftover(self, id: str, handover: Handover) -> list[str]:
        """An aggregate whose allocation is over goes; one we never knew is only reported."""
        gone = False
        try:
            record = self._store.allocation(id)
            if record.state is not State.RELEASED or self._fabric not in (None, record.fabric):
                return []
            found = f"allocation {id} is released, but hosts are still handed over"
            if self._repair:
                self._effect("take back", lambda: self._compute.take_back(handover))
                gone = True
        except NotFound:
            if self._elsewhere(handover):
                return []
            found = f"hosts are handed over to allocation {id}, which is not recorded"
        except LeaseLost:
            raise
        except LaasError as error:
            found = f"allocation {id} is released, but hosts are still handed over: {error}"
        about = (Drift.LEFTOVER, id)
        known = self._known.get(about) == found
        for fabric in self._fabrics():
            ours = {*handover.hosts} & fabric.inventory.host_numbers.keys()
            if (self._fabric is not None or ours) and not known:
                self._store.note_drift(fabric.id, Drift.LEFTOVER, found)
                if gone:
                    self._store.note_repaired(fabric.id, Drift.LEFTOVER, found)
        if gone:
            self._known.pop(about, None)
        else:
            self._known[about] = found
        return self._reported([found])

    def _elsewhere(self, handover: Handover) -> bool:
        """Whether all these hosts are those of other fabrics than the one looked at."""
        if self._fabric is None or not handover.hosts:
            return False
        others = [f.inventory for f in self._store.fabrics() if f.id != self._fabric]
        return all(any(host in one.host_numbers for one in others) for host in handover.hosts)

    # -- telling ------------------------------------------------------------------

    def _found(
        self, fabric: str, about: tuple[Drift, str], text: str | None, before: str = ""
    ) -> bool:
        """Count and tell what was not known; ``text`` None is that all is well."""
        if self._known.get(about) == text:
            return False
        if text is None:
            del self._known[about]
            return False
        self._known[about] = text
        self._store.note_drift(fabric, about[0], before + text)
        return True

    def _reported(self, findings: list[str]) -> list[str]:
        for finding in findings:
            LOG.warning("%s", finding)
        return findings

    def _fabrics(self) -> list[FabricRecord]:
        return looked_after(self._store, self._fabric)

    def _all(self, state: State, fabric: str | None = None) -> Iterator[AllocationRecord]:
        """Every allocation in a state, a page at a time."""
        fabric, marker = fabric or self._fabric, None
        while page := self._store.allocations(fabric=fabric, states=[state], marker=marker):
            yield from page
            marker = page[-1].id


def looked_after(store: FabricReader, fabric: str | None) -> list[FabricRecord]:
    """That fabric, or all of them. ``NotFound``."""
    return store.fabrics() if fabric is None else [store.fabric(fabric)]


def managed(fabric: FabricRecord) -> frozenset[str]:
    """Nova's names of the hosts that have to be in the pool."""
    present = set(range(fabric.topology.hosts)) - fabric.topology.absent_hosts
    return frozenset(filter(None, (fabric.inventory.host_names[host] for host in present)))


def handover_of(fabric: FabricRecord, record: AllocationRecord) -> Handover:
    """An allocation of a fabric as compute sees it."""
    hosts = record.placed.hosts(fabric.topology) if record.placed else ()
    names = tuple(fabric.inventory.host_names[host] for host in hosts)
    return Handover(record.id, record.project_id, names)


def difference(wanted: Handover, observed: Handover | None) -> str | None:
    """What is not as recorded, in a sentence; None if all is."""
    if observed is None:
        return "nothing is handed over"
    if observed.project_id != wanted.project_id:
        return f"hosts are handed over to project {observed.project_id!r}"
    missing = sorted(set(wanted.hosts) - set(observed.hosts))
    foreign = sorted(set(observed.hosts) - set(wanted.hosts))
    parts = [
        f"{what}: {', '.join(hosts)}"
        for what, hosts in (("hosts not handed over", missing), ("hosts too many", foreign))
        if hosts
    ]
    return "; ".join(parts) or None


def _left(hosts: frozenset[str]) -> str:
    return f"hosts are in the pool no more, free ones accept anybody: {listed(sorted(hosts))}"
