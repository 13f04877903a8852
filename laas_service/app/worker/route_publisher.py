# SPDX-License-Identifier: Apache-2.0

"""Publishes the routes of one fabric, and reads back what its switches run."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.app.records import FabricRecord, Stamped
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.round import RoutesSeen, WorkerRules
from laas_service.domain.errors import LaasError, LeaseLost
from laas_service.domain.faults.observation import Mode
from laas_service.messages import Applied, Span, Standing

LOG = logging.getLogger(__name__)

FROZEN: Stamped = 0, ""
"""No generation: stands for routes that were not published because the fabric was frozen."""


@dataclass(frozen=True, slots=True)
class _Published:
    routes: Stamped
    at: datetime


@dataclass(slots=True)
class _Spent:
    """Seconds of a publication and of the readings until it is ``confirmed``."""

    generation: int
    seconds: dict[Span, float] = field(default_factory=dict)
    confirmed: bool = False


@dataclass(slots=True)
class RoutePublisher:
    """One worker's view of the subnet manager; remembers what it read and what it published.

    "Newest routes" are those of the recorded ``routes_generation``, as last read.
    """

    store: Store
    subnet_manager: SubnetManager
    fabric: str
    rules: WorkerRules
    hooks: Hooks

    _newest: Stamped = field(default=FROZEN, init=False)
    _outdated: bool = field(default=False, init=False)  # newer routes may be recorded
    _taken_over: Stamped | None = field(default=None, init=False)  # or published last
    _published: _Published | None = field(default=None, init=False)
    _spent: _Spent | None = field(default=None, init=False)  # by the last publication
    _applied: Applied | None = field(default=None, init=False)  # as read in this round
    _recorded: Applied | None = field(default=None, init=False)  # as recorded last
    _unread: bool = field(default=False, init=False)  # published, and not read back since
    _standing: Standing | None = field(default=None, init=False)  # of the last publication
    _asked_standing: bool = field(default=False, init=False)

    def begin_round(self) -> None:
        """From now on the switches are asked again what they run."""
        self._applied = None

    def see(self, fabric: FabricRecord) -> None:
        """The record of the fabric was read: it tells the newest routes."""
        self._newest = fabric.routes_generation, fabric.routes_stamp
        self._outdated = False

    def changed_since(self, generation: int | None = None) -> None:
        """Newer routes may have been recorded since, of this generation if it is known."""
        if generation is None or generation > self._newest[0]:
            self._outdated = True

    @property
    def has_taken_over(self) -> bool:
        """Whether ``take_over`` was called, or routes were published."""
        return self._taken_over is not None

    def take_over(self) -> None:
        """From now on changes of the fabric's routes are published."""
        self._taken_over = self._newest

    @property
    def has_changed(self) -> bool:
        """Whether the newest routes are others than those published last, or taken over."""
        if self._outdated:
            self.see(self.store.fabrics.get(self.fabric))
        return self._taken_over not in (None, self._newest)

    def runs_newest(self) -> bool:
        """Whether the switches run the newest routes."""
        return self.applied().generation == self._newest[0]

    def can_be_confirmed(self, generation: int) -> bool:
        """False if routes of this generation were certainly never published."""
        last = self._taken_over or FROZEN
        return last == FROZEN or last[0] >= generation

    def applied(self) -> Applied:
        """What the switches run, read once a round and after each publication.

        A generation that is not in the database's past (the database went back) counts as none,
        and the fabric goes forward above it. The answer is recorded for other processes, unless the
        switches lost the newest routes: ``record_loss`` records that.
        """
        if self._applied is None:
            self._unread = False
            begun = self.hooks.clock()
            applied = self.subnet_manager.applied(self.fabric)
            self._count_reading(applied, self.hooks.clock() - begun)
            if applied.generation is not None:
                where = f"the switches run generation {applied.generation}"
                if self._goes_forward((applied.generation, applied.stamp), where):
                    applied = Applied(None, f"{where}, which the database does not have")
            self._applied = applied
            if not self._has_lost(applied):
                self._record(applied)
        return self._applied

    def standing(self) -> Standing | None:
        """Routes of the last publication that stand already; None once that was read back.

        The switches are asked once.
        """
        if not self._unread or self._published is None:
            return None
        if not self._asked_standing:
            self._asked_standing, begun = True, self.hooks.clock()
            try:
                self._standing = self.subnet_manager.standing(self.fabric)
            except LaasError as error:
                LOG.warning("fabric %s: %s", self.fabric, error)
            if self._spent is not None:
                self._spent.seconds[Span.READ_BACK] = self.hooks.clock() - begun
        stand = self._standing
        published, _ = self._published.routes
        return stand if stand is not None and stand.generation == published else None

    def spent(self, generation: int) -> Mapping[Span, float]:
        """Seconds of the publication that brought routes of this generation to the switches.

        Empty if that was not the last one, or another worker made it.
        """
        last = self._spent
        return last.seconds if last is not None and last.generation >= generation else {}

    def _count_reading(self, applied: Applied, seconds: float) -> None:
        """Count a reading after the last publication, until that is confirmed.

        Where an agent tells its own time, that counts instead.
        """
        last, generation = self._spent, applied.generation
        if last is None or last.confirmed:
            return
        last.seconds[Span.READ_BACK] = last.seconds.get(Span.READ_BACK, 0.0) + seconds
        last.confirmed = generation is not None and generation >= last.generation
        if last.confirmed:
            last.seconds.update(applied.spent)

    def _goes_forward(self, routes: Stamped, where: str) -> bool:
        """Whether a generation is of another past of the database, which goes on above it then."""
        if routes == self._newest and routes[1]:
            return False
        if self.store.fabrics.in_past(self.fabric, *routes):
            return False
        if not self.store.fabrics.go_forward(self.fabric, *routes, where):
            return False
        self.see(self.store.fabrics.get(self.fabric))
        return True

    def prepared(self) -> bool:
        """Whether ``applied`` would not wait for tables; if not, ask again in a later round."""
        return self.subnet_manager.prepared(self.fabric)

    def _has_lost(self, applied: Applied) -> bool:
        """Whether the switches ran the newest routes when last recorded, and no longer do."""
        newest, _ = self._newest
        return applied.generation != newest and self._last_recorded().generation == newest

    def record_loss(self, applied: Applied) -> None:
        """Record what the switches run instead; the newest routes may be published at once."""
        self._record(applied)
        self._published = None

    def seen(self) -> RoutesSeen:
        """What became of the newest routes."""
        applied = self.applied()
        holding = self.store.observations.holding
        ever = self.runs_newest() or holding(self.fabric).confirmed == self._newest[0]
        return RoutesSeen(applied, self._has_lost(applied), ever)

    def read_back(self) -> None:
        """Read what the switches run if routes were published and not read back yet."""
        if self._unread:
            try:
                self.applied()
            except LaasError as error:
                LOG.warning("fabric %s: %s", self.fabric, error)

    def _record(self, applied: Applied) -> None:
        """Records only what differs from the last record."""
        if self._recorded != applied:
            self.store.observations.note_applied(self.fabric, applied)
            self._recorded = applied

    def _last_recorded(self) -> Applied:
        """What was recorded last, by this worker or the one before it."""
        return self._recorded or self.store.observations.holding(self.fabric).shown

    def publish(self) -> str | None:
        """Publish the newest routes of all tenants; returns what went wrong, None if nothing.

        Routes that were published within ``apply_timeout`` are not published again: OpenSM
        starts over each time that it reads its files.
        """
        try:
            last, now = self._published, self.hooks.now()
            oldest = now - timedelta(seconds=self.rules.pace.apply_timeout)
            recent = last.routes if last is not None and oldest < last.at <= now else None
            found = self.store.fabrics.to_publish(self.fabric, recent)
            if self._is_frozen(found.mode):
                self._taken_over = FROZEN
                return "the fabric is frozen: no routes are published"
            on_disk = self.subnet_manager.on_disk(self.fabric)
            if on_disk and self._goes_forward(on_disk, f"generation {on_disk[0]} is published"):
                found = self.store.fabrics.to_publish(self.fabric, recent)
            self._newest = self._taken_over = found.routes
            self._outdated = False
            if found.state is not None and found.routes != recent:
                spent = _Spent(found.state.generation)
                publish = partial(self.subnet_manager.publish, found.state)
                spent.seconds.update(self.hooks.effect("publish", publish))
                self._spent, self._published = spent, _Published(found.routes, now)
                self._unread, self._asked_standing, self._standing = True, False, None
            self._applied = None
        except LeaseLost:
            raise
        except LaasError as error:
            return str(error)
        except Exception as error:
            LOG.exception("fabric %s: routes could not be published", self.fabric)
            return f"unexpected {type(error).__name__}: {error}"
        return None

    def _is_frozen(self, chosen: Mode | None) -> bool:
        """Whether nothing of the fabric's routes may change, as an operator chose last."""
        faults = self.rules.faults
        return faults is not None and (chosen or faults.mode) is Mode.FROZEN
