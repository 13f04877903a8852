# SPDX-License-Identifier: Apache-2.0

"""The loop of a worker: admits queued requests, converges its fabrics, checks their drift."""

import logging
from collections.abc import Callable

from laas_service.app.worker.fabric_leases import FabricLeases
from laas_service.app.worker.loop import Loop
from laas_service.domain.errors import LaasError

LOG = logging.getLogger(__name__)


class Worker(Loop):
    """Takes the steps that are due, every ``interval`` seconds or when woken.

    It converges the fabrics of ``leases`` and gives them back when it ends. ``admit`` admits
    queued requests on all fabrics, and returns how many.
    """

    name = "laas-worker"

    def __init__(
        self,
        leases: FabricLeases,
        admit: Callable[[], int],
        interval: float = 2.0,
    ) -> None:
        super().__init__(interval)
        self._leases = leases
        self._admit = admit

    def run(self) -> None:
        """The loop; gives the fabrics back at its end."""
        super().run()
        try:
            self._leases.leave()
        except LaasError as error:
            LOG.warning("the leases of this worker have to expire: %s", error)

    def round(self) -> None:
        """Take steps until none is due: what a step frees may admit a queued request."""
        with self._leases.watchdog.working():
            while self._admit() + self._leases.run_once() and not self.stopping:
                self._leases.check_drift()  # also while steps are due
                self._leases.reconcile(busy=True)
            if not self.stopping:
                self._leases.reconcile()
                self._leases.check_drift()
