# SPDX-License-Identifier: Apache-2.0

"""Publishes the routes of fabrics, and reads back what their switches run."""

import logging
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.app.records import FabricRecord
from laas_service.domain.errors import LaasError, LeaseLost
from laas_service.messages import Applied, ConfirmedBy, Span

LOG = logging.getLogger(__name__)

Effect = Callable[[str, Callable[[], Mapping[Span, float]]], Mapping[Span, float]]
"""Takes an effect outside, given its name; raises ``LeaseLost`` if it must not happen."""


FROZEN = 0, ""
"""No generation: stands for routes that were not published because the fabric was frozen."""


@dataclass(frozen=True, slots=True)
class _Published:
    routes: tuple[int, str]
    at: datetime


@dataclass(slots=True)
class _Spent:
    """Seconds of a publication and of the readings until it is ``confirmed``."""

    generation: int
    seconds: dict[Span, float] = field(default_factory=dict)
    confirmed: bool = False


def _routes(fabric: FabricRecord) -> tuple[int, str]:
    """The generation of the newest routes, and its stamp."""
    return fabric.routes_generation, fabric.routes_stamp


class RoutePublisher:
    """One worker's view of the subnet manager; remembers what it read and what it published.

    The same routes are published again after ``apply_timeout`` seconds. "Newest routes" are
    those of the recorded ``routes_generation``. Nothing is published for a fabric that is
    ``frozen``.
    """

    def __init__(
        self,
        store: Store,
        subnet_manager: SubnetManager,
        *,
        now: Callable[[], datetime],
        apply_timeout: float,
        effect: Effect,
        frozen: Callable[[str], bool] = lambda fabric: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._subnet_manager = subnet_manager
        self._now = now
        self._apply_timeout = timedelta(seconds=apply_timeout)
        self._effect = effect
        self._frozen = frozen
        self._clock = clock
        self._spent: dict[str, _Spent] = {}  # by the last publication
        self._last_routes: dict[str, tuple[int, str]] = {}  # taken over, or published last
        self._published: dict[str, _Published] = {}
        self._applied: dict[str, Applied] = {}  # as read in this round
        self._recorded: dict[str, Applied] = {}  # as recorded last
        self._unread: set[str] = set()  # fabrics published and not read back since

    def begin_round(self) -> None:
        """From now on the switches are asked again what they run."""
        self._applied.clear()

    def has_taken_over(self, fabric_id: str) -> bool:
        """Whether ``take_over`` was called for the fabric, or its routes were published."""
        return fabric_id in self._last_routes

    def take_over(self, fabric: FabricRecord) -> None:
        """From now on changes of the fabric's routes are published."""
        self._last_routes[fabric.id] = _routes(fabric)

    def has_changed(self, fabric: FabricRecord) -> bool:
        """Whether its routes changed since they were last published, or taken over."""
        return self._last_routes.get(fabric.id) not in (None, _routes(fabric))

    def can_be_confirmed(self, fabric_id: str, generation: int) -> bool:
        """False if routes of this generation were certainly never published.

        The switches need not be read then: that is slow on a large fabric.
        """
        last = self._last_routes.get(fabric_id, FROZEN)
        return last == FROZEN or last[0] >= generation

    def applied(self, fabric_id: str) -> Applied:
        """What the switches run, read once a round and after each publication.

        A generation that is not in the database's past (the database went back) counts as none,
        and the fabric goes forward above it. The answer is recorded for other processes, unless the
        switches lost the newest routes: ``record_loss`` records that.
        """
        if fabric_id not in self._applied:
            self._unread.discard(fabric_id)
            begun = self._clock()
            applied = self._subnet_manager.applied(fabric_id)
            generation = applied.generation
            self._count_reading(fabric_id, applied, self._clock() - begun)
            if generation is not None:
                where = f"the switches run generation {generation}"
                if self._goes_forward(fabric_id, generation, applied.stamp, where):
                    applied = Applied(None, f"{where}, which the database does not have")
            fabric = self._store.fabrics.get(fabric_id)
            self._applied[fabric_id] = applied
            if not self.has_lost(fabric, applied):
                self._record(fabric_id, applied)
        return self._applied[fabric_id]

    def spent(self, fabric_id: str, generation: int) -> Mapping[Span, float]:
        """Seconds of the publication that brought routes of this generation to the switches.

        Empty if that was not the last one, or another worker made it.
        """
        last = self._spent.get(fabric_id)
        return last.seconds if last is not None and last.generation >= generation else {}

    def _count_reading(self, fabric_id: str, applied: Applied, seconds: float) -> None:
        """Count a reading after the last publication, until that is confirmed.

        Where an agent tells its own time, that counts instead.
        """
        last, generation = self._spent.get(fabric_id), applied.generation
        if last is None or last.confirmed:
            return
        last.seconds[Span.READ_BACK] = last.seconds.get(Span.READ_BACK, 0.0) + seconds
        last.confirmed = generation is not None and generation >= last.generation
        if last.confirmed:
            last.seconds.update(applied.spent)

    def _goes_forward(self, fabric_id: str, generation: int, stamp: str, where: str) -> bool:
        """Whether a generation is of another past of the database, which goes on above it then."""
        if self._store.fabrics.in_past(fabric_id, generation, stamp):
            return False
        return self._store.fabrics.go_forward(fabric_id, generation, stamp, where)

    def prepared(self, fabric_id: str) -> bool:
        """Whether ``applied`` would not wait for tables; if not, ask again in a later round."""
        return self._subnet_manager.prepared(fabric_id)

    def compared(self, fabric: FabricRecord, switches: Set[int]) -> frozenset[int]:
        """Those of these switches (GUIDs) that have the tables of a confirmed generation."""
        applied = self.applied(fabric.id)
        if applied.generation is None:
            return frozenset()
        return frozenset(switches).difference(applied.without, applied.unconfirmed)

    def has_lost(self, fabric: FabricRecord, applied: Applied) -> bool:
        """Whether the switches ran the newest routes when last recorded, and no longer do."""
        newest = fabric.routes_generation
        return applied.generation != newest and self._last_recorded(fabric.id).generation == newest

    def record_loss(self, fabric_id: str, applied: Applied) -> None:
        """Record what the switches run instead; the newest routes may be published at once."""
        self._record(fabric_id, applied)
        self._published.pop(fabric_id, None)

    def ever_applied(self, fabric: FabricRecord) -> bool:
        """Whether the switches have ever run the newest routes."""
        return self._store.observations.holding(fabric.id).confirmed == fabric.routes_generation

    def read_back(self, fabric_id: str) -> None:
        """Read what the switches run if routes were published and not read back yet."""
        if fabric_id in self._unread:
            try:
                self.applied(fabric_id)
            except LaasError as error:
                LOG.warning("fabric %s: %s", fabric_id, error)

    def _record(self, fabric_id: str, applied: Applied) -> None:
        """Records only what differs from the last record."""
        if self._recorded.get(fabric_id) != applied:
            self._store.observations.note_applied(fabric_id, applied)
            self._recorded[fabric_id] = applied

    def _last_recorded(self, fabric_id: str) -> Applied:
        """What was recorded last, by this worker or the one before it."""
        if fabric_id in self._recorded:
            return self._recorded[fabric_id]
        holding = self._store.observations.holding(fabric_id)
        return Applied(
            holding.applied,
            holding.problem,
            without=holding.without,
            unconfirmed=holding.unconfirmed,
            by=holding.applied_by or ConfirmedBy.NOBODY,
            running=holding.running,
        )

    def publish(self, fabric_id: str) -> str | None:
        """Publish the newest routes of all tenants; returns what went wrong, None if nothing.

        Routes that were published within ``apply_timeout`` are not published again: OpenSM
        starts over each time that it reads its files.
        """
        try:
            if self._frozen(fabric_id):
                self._last_routes[fabric_id] = FROZEN
                return "the fabric is frozen: no routes are published"
            if published := self._subnet_manager.on_disk(fabric_id):
                where = f"generation {published[0]} is published"
                self._goes_forward(fabric_id, *published, where)
            state = self._store.fabrics.routed(fabric_id)
            routes = state.generation, state.stamp
            self._last_routes[fabric_id] = routes
            last = self._published.get(fabric_id)
            now = self._now()
            oldest = now - self._apply_timeout
            if last is None or last.routes != routes or not oldest < last.at <= now:
                spent = _Spent(state.generation)
                spent.seconds.update(
                    self._effect("publish", lambda: self._subnet_manager.publish(state))
                )
                self._spent[fabric_id] = spent
                self._published[fabric_id] = _Published(routes, now)
                self._unread.add(fabric_id)
            self._applied.pop(fabric_id, None)
        except LeaseLost:
            raise
        except LaasError as error:
            return str(error)
        except Exception as error:
            LOG.exception("fabric %s: routes could not be published", fabric_id)
            return f"unexpected {type(error).__name__}: {error}"
        return None
