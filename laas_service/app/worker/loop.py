# SPDX-License-Identifier: Apache-2.0

"""A loop that does work periodically, in a process of its own or in a thread."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from laas_service import background
from laas_service.domain.errors import LaasError

LOG = logging.getLogger(__name__)


class Loop:
    """Calls ``round`` every ``interval`` seconds, or at once when woken.

    No error ends it: the next round finds in the record what is still to be done.
    """

    name = "laas"

    busy: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    """Entered around each round."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._wakened = threading.Event()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def round(self) -> None:
        """Do the work that is due; return early once ``stopping``."""
        raise NotImplementedError

    @property
    def stopping(self) -> bool:
        """Whether the loop is to end."""
        return self._stopping.is_set()

    def every(self, seconds: float) -> None:
        """Use another interval from now on."""
        self._interval = seconds
        self.wake()

    def start(self) -> None:
        """Run in a thread of this process."""
        self._thread = background.start(self.name, self._run_thread)

    def _run_thread(self) -> None:
        try:
            self.run()
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Return when the thread has ended.

        Waits for an event and does not join: in Python 3.11 a join that a signal interrupts
        marks the thread as ended, and ``stop`` would not wait for the step under way.
        """
        if self._thread is not None:
            self._ended.wait()

    def wake(self) -> None:
        """Begin the next round now: work may be due."""
        self._wakened.set()

    def stop(self, timeout: float | None = None) -> None:
        """End after the step under way; waits up to ``timeout`` seconds for the thread."""
        self._stopping.set()
        self._wakened.set()
        if self._thread is not None and self._ended.wait(timeout):
            self._thread.join()

    def run(self) -> None:
        """The loop; returns after ``stop``."""
        while not self.stopping:
            self._wakened.clear()
            try:
                with self.busy():
                    self.round()
            except LaasError as error:
                LOG.error("%s has to wait: %s", self.name, error)
            except Exception:
                LOG.exception("%s: unexpected error", self.name)
            self._wakened.wait(self._interval)
