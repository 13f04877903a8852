# SPDX-License-Identifier: Apache-2.0

"""Deletes what the database has kept long enough."""

import logging
from datetime import timedelta

from laas_service.app.ports.allocations import Allocations
from laas_service.app.worker.loop import Loop

LOG = logging.getLogger(__name__)

BATCH = 100
"""Allocations that one transaction deletes."""


class Housekeeper(Loop):
    """Deletes allocations that were released more than ``days`` ago; 0 deletes none."""

    name = "laas-housekeeper"

    def __init__(self, allocations: Allocations, days: int, interval: float = 600.0) -> None:
        super().__init__(interval)
        self._allocations = allocations
        self._days = days

    def reload(self, days: int) -> None:
        """Delete after another number of days."""
        self._days = days
        self.wake()

    def round(self) -> None:
        """Delete all of them, in transactions of ``BATCH``. Raises: Unavailable."""
        forgotten = 0
        while self._days and not self.stopping:
            number = self._allocations.forget(timedelta(days=self._days), BATCH)
            forgotten += number
            if number < BATCH:
                break
        if forgotten:
            LOG.info("%d allocations released over %d days ago are deleted", forgotten, self._days)
