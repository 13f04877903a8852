# SPDX-License-Identifier: Apache-2.0


"""The fabrics that a worker converges: held by lease, and shared out among the workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from laas_service.app.ports.fabrics import FabricReader
from laas_service.app.ports.leases import Leases
from laas_service.app.records import Lease
from laas_service.app.worker.converger import Converger, ConvergerStore
from laas_service.app.worker.loop import Loop
from laas_service.app.worker.watchdog import Watchdog, untiring
from laas_service.domain.errors import LaasError, LeaseLost

LOG = logging.getLogger(__name__)


class LeasedStore(FabricReader, Protocol):
    """The store of which a leased fabric gets a view of its own."""

    def under(self, lease: Lease) -> ConvergerStore:
        """This store for the holder of a lease.

        ``LeaseLost`` from every method of it that writes, in the same transaction, once another
        worker has taken the lease.
        """


ConvergerFactory = Callable[[ConvergerStore, str, Callable[[], None]], Converger]
"""A converger of one fabric, over a store, that asks before each effect outside."""


@dataclass(slots=True)
class HeldFabric:
    lease: Lease
    converger: Converger
    reconcile_at: float
    look_at: float
    lost: bool = False


class FabricLeases:
    """One worker's part of the work. Each fabric has one holder, and each holder a share.

    A fabric that is taken is converged by a converger that remembers nothing. A lease lasts
    ``seconds`` and is renewed by ``renew`` (call it every third of that, from any thread) and
    before every effect outside, which so begins with a whole lease; what the store is told
    is refused in the same transaction once somebody else has taken the fabric.

    ``owner`` is this worker's name, of which there is one. Everything of a fabric is
    compared when it is taken and ``reconcile_interval`` seconds of ``clock`` after that; what
    costs little, every ``drift_interval``, and never more than a tenth of the time.

    When the ``pulse`` is stuck, whoever renews gives everything up instead, so that another
    worker takes over while this one hangs in an adapter.
    """

    def __init__(
        self,
        store: LeasedStore,
        leases: Leases,
        hire: ConvergerFactory,
        *,
        owner: str,
        seconds: float,
        reconcile_interval: float,
        drift_interval: float,
        clock: Callable[[], float],
        pulse: Watchdog | None = None,
    ) -> None:
        self._store = store
        self._leases = leases
        self._hire = hire
        self._owner = owner
        self._seconds = seconds
        self._reconcile_interval = reconcile_interval
        self._drift_interval = drift_interval
        self._clock = clock
        self.pulse = pulse or untiring()
        self._posts: dict[str, HeldFabric] = {}
        self._workers = 0
        self._reloaded = False

    @property
    def fabrics(self) -> list[str]:
        """Ids of the fabrics held, as far as is known here."""
        return sorted(self._posts)

    def reload(self, *, reconcile_interval: float, drift_interval: float) -> None:
        """Other intervals; from the next round on other convergers, too, as if taken anew."""
        self._reconcile_interval = reconcile_interval
        self._drift_interval = drift_interval
        self._reloaded = True

    def run_once(self) -> int:
        """Take every step that is due on the fabrics held; how many allocations had one.

        What goes wrong on one fabric leaves the others alone. Raises: Unavailable.
        """
        with self.pulse.working():
            if self._reloaded:
                self._reloaded = False
                self._posts = {id: self._post(post.lease) for id, post in self._posts.items()}
            self._share_out()
            return sum(self._each(lambda post: post.converger.run_once()))

    def reconcile(self) -> list[str]:
        """Compare everything of the fabrics whose time has come; what was found."""
        findings: list[str] = []

        def compare(post: HeldFabric) -> int:
            if self._clock() >= post.reconcile_at:
                findings.extend(post.converger.reconcile())
                post.reconcile_at = self._clock() + self._reconcile_interval
                post.look_at = self._clock() + self._drift_interval
            return 0

        self._each(compare)
        return findings

    def look(self) -> list[str]:
        """Look for drift on the fabrics whose time has come; what was found."""
        findings: list[str] = []

        def look(post: HeldFabric) -> int:
            begun = self._clock()
            if begun >= post.look_at:
                findings.extend(post.converger.look())
                ended = self._clock()
                post.look_at = ended + max(self._drift_interval, 9 * (ended - begun))
            return 0

        self._each(look)
        return findings

    def renew(self) -> None:
        """Go on holding what is held, unless the steps are stuck. Raises: Unavailable."""
        if self.pulse.stuck():
            self._give_up()
            return
        self._workers = self._leases.enrol(self._owner, self._seconds)
        for post in list(self._posts.values()):
            try:
                self._leases.renew(post.lease, self._seconds)
            except LeaseLost as error:
                LOG.warning("%s", error)  # a step at hand finds out before it does harm
                post.lost = True

    def _give_up(self) -> None:
        """The thread that holds them does not move: others may take over."""
        for post in [post for post in self._posts.values() if not post.lost]:
            LOG.error(
                "fabric %s: given up by %s, whose step does not come to an end",
                post.lease.fabric,
                self._owner,
            )
            self._leases.give_up(post.lease)
            post.lost = True
        self._leases.withdraw(self._owner)

    def vacant(self) -> bool:
        """Whether a fabric waits for somebody to take it. Raises: Unavailable."""
        return not self._posts.keys() >= set(self._leases.free())

    def leave(self) -> None:
        """Others may take over at once. Raises: Unavailable."""
        for fabric in self.fabrics:
            self._give_back(fabric)
        self._leases.withdraw(self._owner)

    # -- sharing --------------------------------------------------------------

    def _share_out(self) -> None:
        """Give back what is beyond this worker's share, and take what is free up to it."""
        free = self._leases.free()
        if not self._posts.keys().isdisjoint(free):
            self.renew()  # too late, but perhaps nobody took them
        self._posts = {fabric: post for fabric, post in self._posts.items() if not post.lost}
        self.pulse.recover()
        if free or not self._workers:
            self._workers = self._leases.enrol(self._owner, self._seconds)
        share = -(-len(self._store.fabrics()) // self._workers)
        for fabric in self.fabrics[share:]:
            self._give_back(fabric)
        for fabric in free:
            if fabric not in self._posts and len(self._posts) < share:
                self._take(fabric)

    def _take(self, fabric: str) -> None:
        lease = self._leases.take(fabric, self._owner, self._seconds)
        if lease is None:
            return
        LOG.info("fabric %s: held by %s, token %d", fabric, lease.owner, lease.token)
        self._posts[fabric] = self._post(lease)

    def _post(self, lease: Lease) -> HeldFabric:
        def hold() -> None:
            self.pulse.beat()
            self._leases.renew(lease, self._seconds)

        converger = self._hire(self._store.under(lease), lease.fabric, hold)
        now = self._clock()
        return HeldFabric(lease, converger, now, now + self._drift_interval)

    def _give_back(self, fabric: str) -> None:
        LOG.info("fabric %s: given back by %s", fabric, self._owner)
        self._leases.give_back(self._posts.pop(fabric).lease)

    def _each(self, act: Callable[[HeldFabric], int]) -> list[int]:
        return [self._one(fabric, self._posts[fabric], act) for fabric in self.fabrics]

    def _one(self, fabric: str, post: HeldFabric, act: Callable[[HeldFabric], int]) -> int:
        try:
            with self.pulse.working():
                self.pulse.beat()
                return act(post)
        except LeaseLost as error:
            LOG.warning("%s", error)
            self._posts.pop(fabric, None)
        except LaasError as error:
            LOG.error("fabric %s has to wait: %s", fabric, error)
        except Exception:
            LOG.exception("fabric %s: unexpected error", fabric)
        return 0


class Renewal(Loop):
    """Renews the leases while the steps of the worker take their time.

    ``wake`` is called when a fabric is free, so that it is taken however seldom the worker
    looks by itself.
    """

    name = "laas-renewal"

    def __init__(self, tenure: FabricLeases, seconds: float, wake: Callable[[], None]) -> None:
        super().__init__(seconds / 3)
        self._tenure = tenure
        self._wake = wake

    def round(self) -> None:
        self._tenure.renew()
        if self._tenure.vacant():
            self._wake()
