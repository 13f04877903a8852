# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""The loop around convergence: in a process of its own, or as a thread of another."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from laas_service.app.convergence import Converger
from laas_service.domain.errors import LaasError

LOG = logging.getLogger(__name__)


class Worker:
    """Looks for steps to do every ``interval`` seconds, or at once when woken.

    Everything is compared and repaired every ``reconcile_interval`` seconds,
    first when it starts. ``admit`` gives room to who waits for it and returns how
    many got some. No error ends the loop: what could not be done now is
    recorded and found again.
    """

    def __init__(
        self,
        converger: Converger,
        admit: Callable[[], int],
        interval: float = 2.0,
        reconcile_interval: float = 300.0,
    ) -> None:
        self._converger = converger
        self._admit = admit
        self._interval = interval
        self._reconcile_interval = reconcile_interval
        self._wakened = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run in a thread of this process."""
        self._thread = threading.Thread(target=self.run, name="laas-worker", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """There may be something to do: do not wait for the interval to pass."""
        self._wakened.set()

    def stop(self, timeout: float | None = None) -> None:
        """End after the step at hand; waits up to ``timeout`` seconds for the thread."""
        self._stopping.set()
        self._wakened.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def run(self) -> None:
        """The loop; returns after ``stop``."""
        reconcile_at = time.monotonic()
        while not self._stopping.is_set():
            self._wakened.clear()
            try:
                self._work_off()
                if time.monotonic() >= reconcile_at and not self._stopping.is_set():
                    self._converger.reconcile()
                    reconcile_at = time.monotonic() + self._reconcile_interval
            except LaasError as error:
                LOG.error("convergence has to wait: %s", error)
            except Exception:
                LOG.exception("convergence: unexpected error")
            self._wakened.wait(self._interval)

    def _work_off(self) -> None:
        """Rounds until nothing is due now: what a step frees may admit somebody."""
        while self._admit() + self._converger.run_once() and not self._stopping.is_set():
            pass
