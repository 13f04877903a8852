# SPDX-License-Identifier: Apache-2.0


"""The loop around convergence."""

from __future__ import annotations

import logging
from collections.abc import Callable

from laas_service.app.worker.fabric_leases import FabricLeases
from laas_service.app.worker.loop import Loop
from laas_service.domain.errors import LaasError

LOG = logging.getLogger(__name__)


class Worker(Loop):
    """Takes the steps that are due, every ``interval`` seconds or when woken.

    Its fabrics are those of its tenure; when it ends, others may take them at once.
    ``admit`` gives room to who waits for it, on any fabric, and returns how many got some.
    """

    name = "laas-worker"

    def __init__(
        self,
        tenure: FabricLeases,
        admit: Callable[[], int],
        interval: float = 2.0,
    ) -> None:
        super().__init__(interval)
        self._tenure = tenure
        self._admit = admit

    def run(self) -> None:
        """The loop; the last act of its thread is to give its fabrics back."""
        super().run()
        try:
            self._tenure.leave()
        except LaasError as error:
            LOG.warning("the leases of this worker have to expire: %s", error)

    def round(self) -> None:
        """Rounds until nothing is due now: what a step frees may admit somebody."""
        with self._tenure.pulse.working():
            self._work_off()

    def _work_off(self) -> None:
        while self._admit() + self._tenure.run_once() and not self.stopping:
            self._tenure.look()  # however much there is to do
        if not self.stopping:
            self._tenure.reconcile()
            self._tenure.look()
