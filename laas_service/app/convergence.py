# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Drives Nova and the subnet manager towards what is recorded, one safe step at a time.

Level-triggered: every look starts from the record and from what is observed, so
any step can be repeated, at any time, after any crash. The order of the steps is
what keeps the promises:

* allocate: routes confirmed in the switches, then hosts handed over, then ``active``;
* release: hosts fenced and empty and taken back, then routes withdrawn and
  confirmed, then the claims freed;
* a container: its hosts are nobody's, so they stay in the pool; who is inside is converged
  like anybody else;
* forced release: hosts fenced, then the network cut and confirmed, then hosts
  taken back when they are empty, then the claims freed;
* a change of placement (a repair): both placements claimed; the new routes laid beside
  the old ones and confirmed, then traffic switched and confirmed, then the old routes
  withdrawn and confirmed, then the old claims freed.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from laas_service.app.changes import next_phase
from laas_service.app.ports import Applied, Compute, Handover, Store, SubnetManager
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, State
from laas_service.app.repairs import mend
from laas_service.domain.degradation import Degraded
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    LaasError,
    LeaseLost,
    NotFound,
)

LOG = logging.getLogger(__name__)


class Action(enum.Enum):
    """What is done next for one allocation."""

    NOTHING = "nothing"
    PUBLISH = "publish routes"
    HAND_OVER = "hand over"
    TAKE_BACK = "take back"
    CUT_OFF = "cut off"
    FREE = "free"
    REPAIR = "repair"
    PROCEED = "proceed"


def next_action(record: AllocationRecord, confirmed: bool, repairs: bool = True) -> Action:
    """The next safe step; ``confirmed`` says that its present routes are in the switches.

    With ``repairs`` links that have failed are replaced; those of a container stay, as
    others may be on them.
    """
    if record.state is State.ACTIVE and record.phase is not None:
        return Action.PROCEED if confirmed else Action.PUBLISH
    if record.state is State.ACTIVE and record.faults is not None:
        mends = repairs and record.faults.links and not record.container
        return Action.REPAIR if mends else Action.NOTHING
    if record.state is State.ALLOCATING:
        return Action.HAND_OVER if confirmed else Action.PUBLISH
    if record.state is not State.RELEASING:
        return Action.NOTHING
    if not record.handed_back:
        return Action.CUT_OFF if record.force else Action.TAKE_BACK
    return Action.FREE if confirmed else Action.PUBLISH


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait, in seconds.

    A step that failed or waits is tried again after ``first``, doubled each time
    up to ``last``; the same routes are published again after ``apply_timeout``.
    """

    first: float = 1.0
    last: float = 60.0
    apply_timeout: float = 120.0

    def pause(self, failures: int, chance: Random) -> timedelta:
        """The pause after ``failures`` earlier ones, shortened at random by up to half."""
        full = min(self.last, self.first * 2.0 ** min(failures, 30))
        return timedelta(seconds=full * chance.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class _Published:
    generation: int
    at: datetime


class Converger:
    """The steps, and the choice of the next one; one at a time, never two at once.

    ``at`` is called with a step's name before and after each effect outside (for
    fault injection). With ``repair`` False, drift is reported and left alone; with
    ``repair_links`` False, so are failed links of live allocations. A step that fails as
    nobody foresaw (a bug, or an answer that makes no sense) is tried ``park_after`` times;
    then its allocation is parked in ``error``, and the others go on. With ``fabric`` nothing
    but that fabric is looked at. ``hold`` is called before each effect outside and raises
    ``LeaseLost`` if it must not happen; that, and the same from the store, ends every method.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        subnet_manager: SubnetManager,
        *,
        now: Callable[[], datetime],
        chance: Random,
        pace: Pace = Pace(),
        repair: bool = True,
        repair_links: bool = True,
        at: Callable[[str], None] = lambda step: None,
        park_after: int = 5,
        fabric: str | None = None,
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._compute = compute
        self._subnet_manager = subnet_manager
        self._now = now
        self._chance = chance
        self._pace = pace
        self._repair = repair
        self._repair_links = repair_links
        self._at = at
        self._park_after = park_after
        self._fabric = fabric
        self._hold = hold
        self._acts: dict[Action, Callable[[AllocationRecord], AllocationRecord]] = {
            Action.HAND_OVER: self._hand_over,
            Action.TAKE_BACK: self._take_back,
            Action.CUT_OFF: self._cut_off,
            Action.FREE: self._free,
            Action.REPAIR: self._mend,
            Action.PROCEED: self._proceed,
        }
        self._tried: dict[str, int] = {}  # fabric -> generation seen or published last
        self._published: dict[str, _Published] = {}
        self._seen: dict[str, Applied] = {}
        self._noted: dict[str, Applied] = {}
        self._looked: dict[str, datetime] = {}  # fabric -> when to look there again
        self._idle: set[str] = set()  # due, and nothing to be done: no reason for another round

    # -- driving --------------------------------------------------------------

    def run_once(self, limit: int = 100) -> int:
        """Take every step that is due; returns how many allocations had one.

        Raises:
            Unavailable: the store does not answer; nothing is lost.
        """
        for fabric in self._fabrics():
            if fabric.id not in self._tried:
                self._adopt(fabric)
        due = self._store.due(self._now(), limit, faulty=self._repair_links, fabric=self._fabric)
        self._idle.clear()
        self._drive(due)
        for fabric in self._fabrics():  # what no allocation waited for: a link's state
            if self._tried.get(fabric.id) not in (None, fabric.routes_generation):
                self._reported([problem] if (problem := self._publish(fabric.id)) else [])
            self._look(fabric)
        return len(set(due) - self._idle)

    def step(self, allocation_id: str) -> None:
        """Take every step of one allocation that can be taken now. ``NotFound``."""
        self._drive([self._store.allocation(allocation_id).id])

    def _fabrics(self) -> list[FabricRecord]:
        return self._store.fabrics() if self._fabric is None else [self._store.fabric(self._fabric)]

    def _drive(self, ids: Iterable[str]) -> None:
        """First what makes routes change, then one publication for all, then the rest.

        What changes routes several times waits for as many publications.
        """
        self._seen.clear()
        held_up = [record for record in map(self._walk, ids) if record]
        while held_up:
            problems = {
                fabric: self._publish(fabric) for fabric in {record.fabric for record in held_up}
            }
            further = []
            for record in held_up:
                problem = problems[record.fabric]
                if problem is None:
                    waiting = self._walk(record.id)
                    if waiting is None:
                        continue
                    if waiting.generation > record.generation:
                        further.append(waiting)
                        continue
                    problem = self._awaited(record)
                self._postpone(record, problem)
            held_up = further

    def _walk(self, id: str) -> AllocationRecord | None:
        """Step until it is done, is postponed, or its routes hold it up (then its record)."""
        first = record = self._store.allocation(id)
        try:
            while True:
                action = next_action(record, self._confirmed(record), self._repair_links)
                if action is Action.NOTHING:
                    self._idle |= {id} if record is first else set()
                    return None
                if action is Action.PUBLISH:
                    return record
                record = self._acts[action](record)
        except ConcurrentUpdate:
            LOG.info("allocation %s changed meanwhile; its next step starts anew", id)
        except LeaseLost:
            raise
        except LaasError as error:
            self._postpone(record, str(error))
        except Exception as error:
            LOG.exception("allocation %s: unexpected error", id)
            self._poisoned(record, f"unexpected {type(error).__name__}: {error}")
        return None

    def _poisoned(self, record: AllocationRecord, why: str) -> None:
        """Try again, but not for ever: somebody has to look."""
        tries = record.failures + 1
        if tries < self._park_after:
            self._postpone(record, why)
            return
        reason = f"parked after {tries} tries of its step: {why}"
        try:
            self._store.transition(record, State.ERROR, reason, error=why)
        except ConcurrentUpdate:
            LOG.info("allocation %s changed meanwhile; its next step starts anew", record.id)
        else:
            LOG.error("allocation %s (%s): %s", record.id, record.state.value, reason)

    def _postpone(self, record: AllocationRecord, why: str) -> None:
        LOG.warning("allocation %s (%s): %s", record.id, record.state.value, why)
        pause = self._pace.pause(record.failures, self._chance)
        self._store.postpone(record.id, self._now() + pause, why)

    def _effect(self, name: str, act: Callable[[], object]) -> None:
        self._hold()
        self._at(f"before {name}")
        act()
        self._at(f"after {name}")

    # -- routes ---------------------------------------------------------------

    def _applied(self, fabric_id: str) -> Applied:
        """What the switches are seen to run, asked once a round and after publishing.

        A generation that was never recorded (a database from a backup) is none of ours.
        """
        if fabric_id not in self._seen:
            applied = self._subnet_manager.applied(fabric_id)
            wanted = self._store.fabric(fabric_id).routes_generation
            if applied.generation is not None and applied.generation > wanted:
                applied = Applied(
                    None, f"generation {applied.generation} is applied, {wanted} is recorded"
                )
            self._seen[fabric_id] = applied
            self._note(fabric_id, applied)
        return self._seen[fabric_id]

    def _look(self, fabric: FabricRecord) -> None:
        """See whether the switches run what is wanted, for others to look at, if they did not
        when that was seen last; now and then, as each look asks OpenSM."""
        noted = self._noted.get(fabric.id)
        if noted is not None and noted.generation == fabric.routes_generation:
            return
        next_look = self._looked.get(fabric.id, datetime.min.replace(tzinfo=UTC))
        if fabric.id not in self._seen and self._now() >= next_look:
            self._looked[fabric.id] = self._now() + timedelta(seconds=self._pace.last)
            try:
                self._applied(fabric.id)
            except LeaseLost:
                raise
            except LaasError as error:
                LOG.warning("fabric %s: %s", fabric.id, error)

    def _note(self, fabric_id: str, applied: Applied) -> None:
        """For others to look at; what is as it was is not written again."""
        if self._noted.get(fabric_id) != applied:
            self._store.note_applied(fabric_id, applied)
            self._noted[fabric_id] = applied

    def _confirmed(self, record: AllocationRecord) -> bool:
        if record.state is State.RELEASING and not record.handed_back:
            return False  # its routes are still to change, whatever is applied
        if record.state is State.ACTIVE and record.phase is None:
            return False  # nobody waits for them
        applied = self._applied(record.fabric).generation
        return applied is not None and applied >= record.generation

    def _publish(self, fabric_id: str) -> str | None:
        """Publish the newest routes, for everybody; says what went wrong.

        What was published a short while ago is not published again: each time
        OpenSM is told, it starts over.
        """
        try:
            state = self._store.routed(fabric_id)
            self._tried[fabric_id] = state.generation
            last = self._published.get(fabric_id)
            fresh = self._now() - timedelta(seconds=self._pace.apply_timeout)
            if last is None or last.generation != state.generation or last.at <= fresh:
                self._effect("publish", lambda: self._subnet_manager.publish(state))
                self._published[fabric_id] = _Published(state.generation, self._now())
            self._seen.pop(fabric_id, None)
        except LeaseLost:
            raise
        except LaasError as error:
            return str(error)
        except Exception as error:
            LOG.exception("fabric %s: routes could not be published", fabric_id)
            return f"unexpected {type(error).__name__}: {error}"
        return None

    def _awaited(self, record: AllocationRecord) -> str:
        applied = self._applied(record.fabric)
        text = f"waiting for the subnet manager to apply generation {record.generation}"
        return f"{text}: {applied.problem}" if applied.problem else text

    # -- hosts ----------------------------------------------------------------

    def _handover(self, record: AllocationRecord) -> Handover:
        fabric = self._store.fabric(record.fabric)
        hosts = record.placed.hosts(fabric.topology) if record.placed else ()
        names = tuple(fabric.inventory.host_names[host] for host in hosts)
        return Handover(record.id, record.project_id, names)

    def _hand_over(self, record: AllocationRecord) -> AllocationRecord:
        if record.container:
            reason = "hosts stay in the pool, for allocations inside"
            return self._store.transition(record, State.ACTIVE, reason)
        handover = self._handover(record)
        self._effect("hand over", lambda: self._compute.hand_over(handover))
        return self._store.transition(record, State.ACTIVE, "routes confirmed, hosts handed over")

    def _take_back(self, record: AllocationRecord) -> AllocationRecord:
        if record.container:
            return self._store.hand_back(record)
        handover = self._handover(record)
        self._effect("fence", lambda: self._compute.fence(record.id))
        self._effect("take back", lambda: self._compute.take_back(handover))
        return self._store.hand_back(record)

    def _cut_off(self, record: AllocationRecord) -> AllocationRecord:
        if record.container:
            return self._store.hand_back(record)
        self._effect("fence", lambda: self._compute.fence(record.id))
        return self._store.hand_back(record)

    def _free(self, record: AllocationRecord) -> AllocationRecord:
        if record.force and not record.container:
            handover = self._handover(record)
            self._effect("take back", lambda: self._compute.take_back(handover))
        return self._store.free(record, "hosts taken back, withdrawn routes confirmed")

    # -- placement ------------------------------------------------------------

    def _mend(self, record: AllocationRecord) -> AllocationRecord:
        """Raises: Conflict, which says what is degraded."""
        answer = mend(self._store, record)
        if isinstance(answer, Degraded):
            raise Conflict(f"degraded: {answer}")
        if answer is record:
            raise ConcurrentUpdate(f"the links of allocation {record.id!r} are up again")
        return answer

    def _proceed(self, record: AllocationRecord) -> AllocationRecord:
        reason = next_phase(self._store.fabric(record.fabric).topology, record)
        return self._store.proceed(record, reason)

    # -- comparing everything ---------------------------------------------------

    def reconcile(self) -> list[str]:
        """Compare all that is recorded with all that is observed; repair, and report.

        Active allocations are handed over again in any case: it changes nothing
        where all is well, and heals schedulers that lost a message.
        """
        self._seen.clear()
        findings = [text for fabric in self._fabrics() for text in self._adopt(fabric)]
        try:
            observed = self._compute.handed_over()
        except LaasError as error:
            return [*findings, str(error)]
        for record in self._all(State.ACTIVE):
            findings += self._compare(record.id, observed.get(record.id))
        for id, handover in sorted(observed.items()):
            findings += self._leftover(id, handover)
        return findings

    def _adopt(self, fabric: FabricRecord) -> list[str]:
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
        self._tried[fabric.id] = fabric.routes_generation
        try:
            before = self._store.holding(fabric.id).applied
            applied = self._applied(fabric.id)
            current = applied.generation == fabric.routes_generation
            if not current and before == fabric.routes_generation:
                findings.append(self._lost(fabric, applied))
            problem = None if current else self._publish(fabric.id)
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
        handover = self._handover(record)
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
        for fabric in self._fabrics():
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
