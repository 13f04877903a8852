# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""The loop around convergence."""

from __future__ import annotations

import time
from collections.abc import Callable

from laas_service.app.convergence import Converger
from laas_service.app.loop import Loop


class Worker(Loop):
    """Takes the steps that are due, every ``interval`` seconds or when woken.

    Everything is compared and repaired every ``reconcile_interval`` seconds,
    first when it starts. ``admit`` gives room to who waits for it and returns how
    many got some.
    """

    name = "laas-worker"

    def __init__(
        self,
        converger: Converger,
        admit: Callable[[], int],
        interval: float = 2.0,
        reconcile_interval: float = 300.0,
    ) -> None:
        super().__init__(interval)
        self._converger = converger
        self._admit = admit
        self._reconcile_interval = reconcile_interval
        self._reconcile_at = time.monotonic()

    def round(self) -> None:
        """Rounds until nothing is due now: what a step frees may admit somebody."""
        while self._admit() + self._converger.run_once() and not self.stopping:
            pass
        if time.monotonic() >= self._reconcile_at and not self.stopping:
            self._converger.reconcile()
            self._reconcile_at = time.monotonic() + self._reconcile_interval
