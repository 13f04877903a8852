# SPDX-License-Identifier: Apache-2.0


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
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

from laas_service.app.changes import next_phase
from laas_service.app.ports.allocations import PlacementChanges
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.log_context import ActingFor
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.app.records import AllocationRecord, FabricRecord, State
from laas_service.app.repairs import mend
from laas_service.app.worker.drift import Comparison, DriftStore, handover_of, looked_after
from laas_service.app.worker.route_publisher import RoutePublisher, RouteStore
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    LaasError,
    LeaseLost,
)
from laas_service.domain.faults.degradation import Degraded

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


class ConvergerStore(PlacementChanges, DriftStore, RouteStore, Protocol):
    """The recorded decisions, as convergence needs them."""


class Converger:
    """The steps, and the choice of the next one; one at a time, never two at once.

    ``at`` is called with a step's name before and after each effect outside (for
    fault injection). With ``repair`` False, drift is reported and left alone; with
    ``repair_links`` False, so are failed links of live allocations. A step that fails as
    nobody foresaw (a bug, or an answer that makes no sense) is tried ``park_after`` times;
    then its allocation is parked in ``error``, and the others go on. With ``fabric`` nothing
    but that fabric is looked at. ``hold`` is called before each effect outside and raises
    ``LeaseLost`` if it must not happen; that, and the same from the store, ends every method.
    What is done for an allocation is done inside ``acting_for`` of whoever asked for it.
    """

    def __init__(
        self,
        store: ConvergerStore,
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
        acting_for: ActingFor = lambda who: nullcontext(),
    ) -> None:
        self._store = store
        self._compute = compute
        self._now = now
        self._chance = chance
        self._pace = pace
        self._repair_links = repair_links
        self._at = at
        self._park_after = park_after
        self._fabric = fabric
        self._hold = hold
        self._acting_for = acting_for
        self._acts: dict[Action, Callable[[AllocationRecord], AllocationRecord]] = {
            Action.HAND_OVER: self._hand_over,
            Action.TAKE_BACK: self._take_back,
            Action.CUT_OFF: self._cut_off,
            Action.FREE: self._free,
            Action.REPAIR: self._mend,
            Action.PROCEED: self._proceed,
        }
        self._routes = RoutePublisher(
            store,
            subnet_manager,
            now=now,
            apply_timeout=pace.apply_timeout,
            effect=self._effect,
        )
        self._comparison = Comparison(
            store,
            compute,
            self._routes,
            repair=repair,
            fabric=fabric,
            now=now,
            effect=self._effect,
            postpone=self._postpone,
            acting_for=acting_for,
        )
        self._idle: set[str] = set()  # due, and nothing to be done: no reason for another round

    # -- driving --------------------------------------------------------------

    def run_once(self, limit: int = 100) -> int:
        """Take every step that is due; returns how many allocations had one.

        Raises:
            Unavailable: the store does not answer; nothing is lost.
        """
        for fabric in self._fabrics():
            if not self._routes.adopted(fabric.id):
                self._comparison.adopt(fabric)
        due = self._store.due(self._now(), limit, faulty=self._repair_links, fabric=self._fabric)
        self._idle.clear()
        self._drive(due)
        for fabric in self._fabrics():  # what no allocation waited for: a link's state
            if self._routes.changed(fabric) and (problem := self._routes.publish(fabric.id)):
                LOG.warning("fabric %s: %s", fabric.id, problem)
            self._routes.read_back(fabric.id)
        return len(set(due) - self._idle)

    def step(self, allocation_id: str) -> None:
        """Take every step of one allocation that can be taken now. ``NotFound``."""
        self._drive([self._store.allocation(allocation_id).id])

    def reconcile(self) -> list[str]:
        """Compare all that is recorded with all that is observed; see ``Comparison``."""
        return self._comparison.everything()

    def look(self) -> list[str]:
        """Compare what can be seen at little cost; see ``Comparison``."""
        return self._comparison.look()

    def _fabrics(self) -> list[FabricRecord]:
        return looked_after(self._store, self._fabric)

    def _drive(self, ids: Iterable[str]) -> None:
        """First what makes routes change, then one publication for all, then the rest.

        What changes routes several times waits for as many publications.
        """
        self._routes.forget()
        held_up = [record for record in map(self._walk, ids) if record]
        while held_up:
            problems = {
                fabric: self._routes.publish(fabric)
                for fabric in {record.fabric for record in held_up}
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
        record = self._store.allocation(id)
        with self._acting_for(record.initiator):
            return self._walk_from(record)

    def _walk_from(self, record: AllocationRecord) -> AllocationRecord | None:
        first, id = record, record.id
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
        with self._acting_for(record.initiator):
            LOG.warning("allocation %s (%s): %s", record.id, record.state.value, why)
        pause = self._pace.pause(record.failures, self._chance)
        self._store.postpone(record.id, self._now() + pause, why, version=record.version)

    def _effect(self, name: str, act: Callable[[], object]) -> None:
        self._hold()
        self._at(f"before {name}")
        act()
        self._at(f"after {name}")

    # -- routes ---------------------------------------------------------------

    def _confirmed(self, record: AllocationRecord) -> bool:
        if record.state is State.RELEASING and not record.handed_back:
            return False  # its routes are still to change, whatever is applied
        if record.state is State.ACTIVE and record.phase is None:
            return False  # nobody waits for them
        applied = self._routes.applied(record.fabric).generation
        return applied is not None and applied >= record.generation

    def _awaited(self, record: AllocationRecord) -> str:
        applied = self._routes.applied(record.fabric)
        text = f"waiting for the subnet manager to apply generation {record.generation}"
        return f"{text}: {applied.problem}" if applied.problem else text

    # -- hosts ----------------------------------------------------------------

    def _hand_over(self, record: AllocationRecord) -> AllocationRecord:
        if record.container:
            reason = "hosts stay in the pool, for allocations inside"
            return self._store.transition(record, State.ACTIVE, reason)
        handover = handover_of(self._store.fabric(record.fabric), record)
        self._effect("hand over", lambda: self._compute.hand_over(handover))
        return self._store.transition(record, State.ACTIVE, "routes confirmed, hosts handed over")

    def _take_back(self, record: AllocationRecord) -> AllocationRecord:
        if record.container:
            return self._store.hand_back(record)
        handover = handover_of(self._store.fabric(record.fabric), record)
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
            handover = handover_of(self._store.fabric(record.fabric), record)
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
