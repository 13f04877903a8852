# SPDX-License-Identifier: Apache-2.0

"""The leases of one worker: which fabrics it converges, and its share among the workers."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from laas_service.app.ports.leases import Leases
from laas_service.app.ports.store import Store
from laas_service.app.records import Lease
from laas_service.app.worker.converger import Converger
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.watchdog import Watchdog
from laas_service.domain.errors import LaasError, LeaseLost

LOG = logging.getLogger(__name__)


ConvergerFactory = Callable[[Store, str, Callable[[], None]], Converger]
"""Makes the converger of one fabric, given a store and what to call before each effect outside."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between comparisons of a fabric."""

    reconcile: float
    drift: float
    """Of drift checks, which take a tenth of the time at most."""


@dataclass(slots=True)
class HeldFabric:
    """A fabric that this worker holds, and when it is next compared, in seconds of the clock."""

    lease: Lease
    converger: Converger
    reconcile_at: float
    check_drift_at: float
    comparing_since: float | None = None  # when the comparison that is due was first tried
    lost: bool = False


class FabricLeases:
    """The fabrics that one worker holds. Each fabric has one holder, each worker an equal share.

    Each time a fabric is taken, a fresh converger starts. A lease lasts ``seconds``. It is
    renewed by ``renew`` (call it every third of that, from any thread) and before every effect
    outside, so that each effect begins with a whole lease. Once another worker has taken the
    fabric, the store refuses every write of this one.

    ``owner`` is the name of this worker; no other has it. A fabric is reconciled when it is
    taken, and again after the ``intervals``, by ``clock``.

    If the ``watchdog`` finds the working thread stuck, ``renew`` gives up all fabrics, so that
    another worker takes over while this one hangs in an adapter.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        make_converger: ConvergerFactory,
        *,
        owner: str,
        seconds: float,
        intervals: Intervals,
        clock: Callable[[], float],
        watchdog: Watchdog,
    ) -> None:
        self._store = store
        self._leases = leases
        self._make_converger = make_converger
        self._owner = owner
        self._seconds = seconds
        self._intervals = intervals
        self._clock = clock
        self.watchdog = watchdog
        self._held: dict[str, HeldFabric] = {}
        self._workers = self._fabrics = 0
        self._reloaded = False

    @property
    def fabrics(self) -> list[str]:
        """Ids of the fabrics held, as far as this worker knows."""
        return sorted(self._held)

    def reload(self, intervals: Intervals) -> None:
        """Use other intervals, and from the next round on fresh convergers."""
        self._intervals = intervals
        self._reloaded = True

    def run_once(self) -> int:
        """Take every step that is due on the fabrics held; returns how many allocations had one.

        An error on one fabric is logged and does not stop the others. Raises: Unavailable.
        """
        with self.watchdog.working():
            if self._reloaded:
                self._reloaded = False
                self._held = {id: self._hold(held.lease) for id, held in self._held.items()}
            self._share_out()
            return sum(self._each(lambda held: held.converger.run_once()))

    def reconcile(self, *, busy: bool = False) -> list[str]:
        """Reconcile the fabrics whose time has come; returns the findings.

        A ``busy`` worker, which has steps to take, puts this off by one more interval.
        """
        findings: list[str] = []
        grace = self._intervals.reconcile if busy else 0.0

        def reconcile(held: HeldFabric) -> int:
            if self._clock() >= held.reconcile_at + grace and self._prepared(held):
                findings.extend(held.converger.reconcile())
                held.reconcile_at = self._clock() + self._intervals.reconcile
                held.check_drift_at = self._after(held)
            return 0

        self._each(reconcile)
        return findings

    def check_drift(self) -> list[str]:
        """Check the fabrics whose time has come for drift; returns the findings."""
        findings: list[str] = []

        def check(held: HeldFabric) -> int:
            if self._clock() >= held.check_drift_at and self._prepared(held):
                findings.extend(held.converger.check_drift())
                held.check_drift_at = self._after(held)
            return 0

        self._each(check)
        return findings

    def _prepared(self, held: HeldFabric) -> bool:
        """Whether a comparison can be made in this round, without waiting for tables."""
        if held.comparing_since is None:
            held.comparing_since = self._clock()
        return held.converger.prepared()

    def _after(self, held: HeldFabric) -> float:
        """When drift is checked after a comparison: one takes a tenth of the time at most."""
        ended, begun = self._clock(), held.comparing_since
        held.comparing_since = None
        cost = ended - begun if begun is not None else 0.0
        return ended + max(self._intervals.drift, 9 * cost)

    def renew(self) -> None:
        """Renew all leases, unless the working thread is stuck; tell what it waits for.

        Raises: Unavailable.
        """
        if self.watchdog.stuck():
            self._give_up()
            return
        self._count()
        for held in list(self._held.values()):
            try:
                self._leases.renew(held.lease, self._seconds, self.watchdog.waits_for())
            except LeaseLost as error:
                LOG.warning("%s", error)  # a step under way is refused at its next effect
                held.lost = True

    def _give_up(self) -> None:
        """The working thread is stuck: let other workers take its fabrics."""
        for held in [held for held in self._held.values() if not held.lost]:
            LOG.error(
                "fabric %s: given up by %s, whose step does not come to an end",
                held.lease.fabric,
                self._owner,
            )
            self._leases.give_up(held.lease)
            held.lost = True
        self._leases.withdraw(self._owner)

    def has_vacant(self) -> bool:
        """Whether a fabric is free that this worker does not hold. Raises: Unavailable."""
        return not self._held.keys() >= set(self._leases.free())

    def leave(self) -> None:
        """Give all fabrics back, so that others take them at once. Raises: Unavailable."""
        for fabric in self.fabrics:
            self._give_back(fabric)
        self._leases.withdraw(self._owner)

    # -- sharing --------------------------------------------------------------

    def _share_out(self) -> None:
        """Give back fabrics beyond this worker's share, and take free ones up to it."""
        free = self._leases.free()
        if not self._held.keys().isdisjoint(free):
            self.renew()  # their leases have expired, but perhaps no worker took them
        self._held = {fabric: held for fabric, held in self._held.items() if not held.lost}
        self.watchdog.recover()
        if free or not self._workers:
            self._count()
        share = -(-self._fabrics // self._workers)
        for fabric in self.fabrics[share:]:
            self._give_back(fabric)
        for fabric in free:
            if fabric not in self._held and len(self._held) < share:
                self._take(fabric)

    def _count(self) -> None:
        """Count the live workers, this one among them, and the fabrics that they share."""
        self._fabrics = len(self._store.fabrics.ids())
        self._workers = self._leases.enrol(self._owner, self._seconds)

    def _take(self, fabric: str) -> None:
        lease = self._leases.take(fabric, self._owner, self._seconds)
        if lease is None:
            return
        LOG.info("fabric %s: held by %s, token %d", fabric, lease.owner, lease.token)
        self._held[fabric] = self._hold(lease)

    def _hold(self, lease: Lease) -> HeldFabric:
        def before_effect() -> None:
            self.watchdog.beat()
            self._leases.renew(lease, self._seconds)

        converger = self._make_converger(self._store.under(lease), lease.fabric, before_effect)
        now = self._clock()
        return HeldFabric(lease, converger, now, now + self._intervals.drift)

    def _give_back(self, fabric: str) -> None:
        LOG.info("fabric %s: given back by %s", fabric, self._owner)
        self._leases.give_back(self._held.pop(fabric).lease)

    def _each(self, act: Callable[[HeldFabric], int]) -> list[int]:
        return [self._on(fabric, self._held[fabric], act) for fabric in self.fabrics]

    def _on(self, fabric: str, held: HeldFabric, act: Callable[[HeldFabric], int]) -> int:
        try:
            with self.watchdog.working():
                self.watchdog.beat()
                return act(held)
        except LeaseLost as error:
            LOG.warning("%s", error)
            self._held.pop(fabric, None)
        except LaasError as error:
            LOG.error("fabric %s has to wait: %s", fabric, error)
        except Exception:
            LOG.exception("fabric %s: unexpected error", fabric)
        return 0


class Renewal(Loop):
    """Renews the leases while the worker takes its steps.

    ``wake`` is called when a fabric is free, so that the worker takes it at once, whatever its
    interval.
    """

    name = "laas-renewal"

    def __init__(self, leases: FabricLeases, seconds: float, wake: Callable[[], None]) -> None:
        super().__init__(seconds / 3)
        self._leases = leases
        self._wake = wake

    def round(self) -> None:
        self._leases.renew()
        if self._leases.has_vacant():
            self._wake()
