# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Compares what is recorded with what is observed, repairs what others changed, and reports it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from laas_service.app.ports import Applied, Compute, Handover, Store
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, State
from laas_service.app.routes import Effect, Routes
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    LaasError,
    LeaseLost,
    NotFound,
)

LOG = logging.getLogger(__name__)


class Comparison:
    """What others did to the fabrics of one worker.

    With ``repair`` False, drift is reported and left alone. With ``fabric`` nothing but that
    fabric is looked at. ``postpone`` notes why an allocation has to wait.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        routes: Routes,
        *,
        repair: bool,
        fabric: str | None,
        effect: Effect,
        postpone: Callable[[AllocationRecord, str], None],
    ) -> None:
        self._store = store
        self._compute = compute
        self._routes = routes
        self._repair = repair
        self._fabric = fabric
        self._effect = effect
        self._postpone = postpone

    def everything(self) -> list[str]:
        """Compare all that is recorded with all that is observed; repair, and report.

        Active allocations are handed over again in any case: it changes nothing
        where all is well, and heals schedulers that lost a message.
        """
        self._routes.forget()
        findings = [
            text
            for fabric in looked_after(self._store, self._fabric)
            for text in self.adopt(fabric)
        ]
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
        """The fabric's free hosts accept nobody, and its newest routes are published."""
        present = set(range(fabric.topology.hosts)) - fabric.topology.absent_hosts
        names = [fabric.inventory.host_names[host] for host in sorted(present)]
        findings = []
        self._store.note_faults(fabric.id)
        try:
            self._effect("pool", lambda: self._compute.pool([name for name in names if name]))
        except LeaseLost:
            raise
        except LaasError as error:
            findings.append(f"fabric {fabric.id}: {error}")
            if isinstance(error, Conflict | NotFound):
                self._store.note_drift(fabric.id, Drift.POOL, str(error))
        self._routes.adopt(fabric)
        try:
            before = self._store.holding(fabric.id).applied
            applied = self._routes.applied(fabric.id)
            current = applied.generation == fabric.routes_generation
            if not current and before == fabric.routes_generation:
                findings.append(self._lost(fabric, applied))
            problem = None if current else self._routes.publish(fabric.id)
        except LeaseLost:
            raise
        except LaasError as error:
            problem = str(error)
        if problem:
            findings.append(f"fabric {fabric.id}: {problem}")
        return self._reported(findings)

    def _lost(self, fabric: FabricRecord, applied: Applied) -> str:
        """The switches ran what is wanted, and do so no more: another subnet manager, another
        engine, an older set of files, an entry changed by hand. It is published again."""
        instead = applied.problem or f"generation {applied.generation} is applied"
        lost = f"the switches no longer run generation {fabric.routes_generation}: {instead}"
        self._store.note_drift(fabric.id, Drift.ROUTES, lost)
        return f"fabric {fabric.id}: {lost}"

    def _all(self, state: State) -> Iterator[AllocationRecord]:
        """Every allocation in a state, a page at a time."""
        marker = None
        while page := self._store.allocations(fabric=self._fabric, states=[state], marker=marker):
            yield from page
            marker = page[-1].id

    def _compare(self, id: str, observed: Handover | None) -> list[str]:
        """One active allocation against what is handed over."""
        record = self._store.allocation(id)
        if record.state is not State.ACTIVE or record.container:
            return []
        handover = handover_of(self._store.fabric(record.fabric), record)
        drift = difference(handover, observed)
        if drift:
            self._store.note_drift(record.fabric, Drift.HOSTS, f"allocation {id}: {drift}")
        try:
            if drift and not self._repair:
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
        return self._reported([f"allocation {id}: {drift}; repaired"]) if drift else []

    def _leftover(self, id: str, handover: Handover) -> list[str]:
        """An aggregate whose allocation is over goes; one we never knew is only reported."""
        try:
            record = self._store.allocation(id)
            if record.state is not State.RELEASED or self._fabric not in (None, record.fabric):
                return []
            found = f"allocation {id} is released, but hosts are still handed over"
            if self._repair:
                self._effect("take back", lambda: self._compute.take_back(handover))
        except NotFound:
            if self._elsewhere(handover):
                return []
            found = f"hosts are handed over to allocation {id}, which is not recorded"
        except LeaseLost:
            raise
        except LaasError as error:
            found = f"allocation {id} is released, but hosts are still handed over: {error}"
        for fabric in looked_after(self._store, self._fabric):
            if self._fabric is not None or {*handover.hosts} & fabric.inventory.host_numbers.keys():
                self._store.note_drift(fabric.id, Drift.LEFTOVER, found)
        return self._reported([found])

    def _elsewhere(self, handover: Handover) -> bool:
        """Whether all these hosts are those of other fabrics than the one looked at."""
        if self._fabric is None or not handover.hosts:
            return False
        others = [f.inventory for f in self._store.fabrics() if f.id != self._fabric]
        return all(any(host in one.host_numbers for one in others) for host in handover.hosts)

    def _reported(self, findings: list[str]) -> list[str]:
        for finding in findings:
            LOG.warning("%s", finding)
        return findings


def looked_after(store: Store, fabric: str | None) -> list[FabricRecord]:
    """That fabric, or all of them. ``NotFound``."""
    return store.fabrics() if fabric is None else [store.fabric(fabric)]


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
