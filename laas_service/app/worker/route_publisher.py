# SPDX-License-Identifier: Apache-2.0


"""What the switches of a fabric run, and what is published for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from laas_service.app.ports.fabrics import FabricReader
from laas_service.app.ports.observations import Observations
from laas_service.app.ports.subnet_manager import DesiredState, SubnetManager
from laas_service.app.records import Drift, FabricRecord
from laas_service.domain.errors import LaasError, LeaseLost
from laas_service.messages import Applied

LOG = logging.getLogger(__name__)

Effect = Callable[[str, Callable[[], object]], None]
"""Does something outside, by its name; raises ``LeaseLost`` if it must not happen."""


@dataclass(frozen=True, slots=True)
class _Published:
    generation: int
    at: datetime


class RouteStore(FabricReader, Observations, DesiredState, Protocol):
    """The recorded routes and observations, as their publication needs them."""


class RoutePublisher:
    """One worker's view of the subnet manager; remembers what it saw and what it published.

    The same routes are published again after ``apply_timeout`` seconds.
    """

    def __init__(
        self,
        store: RouteStore,
        subnet_manager: SubnetManager,
        *,
        now: Callable[[], datetime],
        apply_timeout: float,
        effect: Effect,
    ) -> None:
        self._store = store
        self._subnet_manager = subnet_manager
        self._now = now
        self._apply_timeout = timedelta(seconds=apply_timeout)
        self._effect = effect
        self._tried: dict[str, int] = {}  # fabric -> generation seen or published last
        self._published: dict[str, _Published] = {}
        self._seen: dict[str, Applied] = {}
        self._noted: dict[str, Applied] = {}
        self._unread: set[str] = set()  # published, and not read back since

    def forget(self) -> None:
        """A new round begins: what the switches run has to be asked for again."""
        self._seen.clear()

    def adopted(self, fabric_id: str) -> bool:
        """Whether ``adopt`` was called for it."""
        return fabric_id in self._tried

    def adopt(self, fabric: FabricRecord) -> None:
        """From now on what changes its routes is published."""
        self._tried[fabric.id] = fabric.routes_generation

    def changed(self, fabric: FabricRecord) -> bool:
        """Whether its routes have changed since they were last published, or adopted."""
        return self._tried.get(fabric.id) not in (None, fabric.routes_generation)

    def applied(self, fabric_id: str) -> Applied:
        """What the switches are seen to run, asked once a round and after publishing.

        A generation that was never recorded (a database from a backup) is none of ours. It is
        noted for others to look at, unless the switches had what is wanted and lost it: that
        is settled by ``lose``.
        """
        if fabric_id not in self._seen:
            self._unread.discard(fabric_id)
            applied = self._subnet_manager.applied(fabric_id)
            fabric = self._store.fabric(fabric_id)
            wanted = fabric.routes_generation
            if applied.generation is not None and applied.generation > wanted:
                applied = Applied(
                    None, f"generation {applied.generation} is applied, {wanted} is recorded"
                )
            self._seen[fabric_id] = applied
            if not self.lost(fabric, applied):
                self._note(fabric_id, applied)
        return self._seen[fabric_id]

    def lost(self, fabric: FabricRecord, applied: Applied) -> bool:
        """Whether the switches were seen to run what is wanted now, and run something else."""
        wanted = fabric.routes_generation
        return applied.generation != wanted and self._last(fabric.id).generation == wanted

    def lose(self, fabric: FabricRecord, applied: Applied) -> str:
        """Count that it is lost, and tell; may be published again at once. What is lost."""
        instead = applied.problem or f"generation {applied.generation} is applied"
        text = f"the switches no longer run generation {fabric.routes_generation}: {instead}"
        self._store.note_drift(fabric.id, Drift.ROUTES, text)
        self._note(fabric.id, applied)
        self._published.pop(fabric.id, None)
        return text

    def had(self, fabric: FabricRecord) -> bool:
        """Whether the switches have ever run what is wanted now."""
        return self._store.holding(fabric.id).confirmed == fabric.routes_generation

    def read_back(self, fabric_id: str) -> None:
        """See what became of what was published, if nobody has asked for it yet."""
        if fabric_id in self._unread:
            try:
                self.applied(fabric_id)
            except LeaseLost:
                raise
            except LaasError as error:
                LOG.warning("fabric %s: %s", fabric_id, error)

    def _note(self, fabric_id: str, applied: Applied) -> None:
        """What is as it was is not written again."""
        if self._noted.get(fabric_id) != applied:
            self._store.note_applied(fabric_id, applied)
            self._noted[fabric_id] = applied

    def _last(self, fabric_id: str) -> Applied:
        """What was noted last, by this worker or the one before it."""
        if fabric_id in self._noted:
            return self._noted[fabric_id]
        holding = self._store.holding(fabric_id)
        return Applied(holding.applied, holding.problem)

    def publish(self, fabric_id: str) -> str | None:
        """Publish the newest routes, for everybody; says what went wrong.

        What was published a short while ago is not published again: each time
        OpenSM is told, it starts over.
        """
        try:
            state = self._store.routed(fabric_id)
            self._tried[fabric_id] = state.generation
            last = self._published.get(fabric_id)
            fresh = self._now() - self._apply_timeout
            if last is None or last.generation != state.generation or last.at <= fresh:
                self._effect("publish", lambda: self._subnet_manager.publish(state))
                self._published[fabric_id] = _Published(state.generation, self._now())
                self._unread.add(fabric_id)
            self._seen.pop(fabric_id, None)
        except LeaseLost:
            raise
        except LaasError as error:
            return str(error)
        except Exception as error:
            LOG.exception("fabric %s: routes could not be published", fabric_id)
            return f"unexpected {type(error).__name__}: {error}"
        return None
