# SPDX-License-Identifier: Apache-2.0

"""Sends notifications from the outbox to the bus, in the order in which they were recorded."""

from collections.abc import Callable
from datetime import datetime, timedelta

from laas_service.app.ports.outbox import Outbox, Publish
from laas_service.app.worker.loop import Loop


class Notifier(Loop):
    """Sends every notification at least once; one notifier sends at a time.

    Notifications that were taken belong to this notifier for ``lease`` seconds. If it ends
    meanwhile, another one sends them (again) after that.
    """

    name = "laas-relay"

    def __init__(
        self,
        outbox: Outbox,
        publish: Publish,
        *,
        clock: Callable[[], datetime],
        interval: float = 2.0,
        lease: float = 15.0,
    ) -> None:
        super().__init__(interval)
        self._outbox = outbox
        self._publish = publish
        self._clock = clock
        self._lease = timedelta(seconds=lease)

    def round(self) -> None:
        """Send all notifications in the outbox. Raises: Unavailable."""
        while not self.stopping and self._send_batch():
            pass

    def _send_batch(self) -> int:
        until = self._clock() + self._lease
        taken = self._outbox.take(self._clock(), until)
        unsent = dict(taken)
        try:
            for number, notification in taken:
                if self.stopping or self._clock() >= until:
                    break
                self._publish(notification)
                self._outbox.done(number)
                del unsent[number]
        finally:
            if unsent and self._clock() < until:
                self._outbox.put_back(list(unsent))
        return len(taken) - len(unsent)
