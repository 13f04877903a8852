# SPDX-License-Identifier: Apache-2.0


"""Tells others what happened, in the order in which it did."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from laas_service.app.ports.outbox import Outbox, Publisher
from laas_service.app.worker.loop import Loop


class Notifier(Loop):
    """Empties the outbox onto the bus: every notification at least once, one relay at a time.

    What was taken belongs to this relay for ``lease`` seconds; if it ends meanwhile, another
    one sends it (again) after that.
    """

    name = "laas-relay"

    def __init__(
        self,
        outbox: Outbox,
        publisher: Publisher,
        *,
        clock: Callable[[], datetime],
        interval: float = 2.0,
        lease: float = 15.0,
    ) -> None:
        super().__init__(interval)
        self._outbox = outbox
        self._publisher = publisher
        self._clock = clock
        self._lease = timedelta(seconds=lease)

    def round(self) -> None:
        """Send what there is. Raises: Unavailable."""
        while not self.stopping and self._send_some():
            pass

    def _send_some(self) -> int:
        until = self._clock() + self._lease
        taken = self._outbox.take(self._clock(), until)
        left = dict(taken)
        try:
            for number, notification in taken:
                if self.stopping or self._clock() >= until:
                    break
                self._publisher.publish(notification)
                self._outbox.done(number)
                del left[number]
        finally:
            if left and self._clock() < until:
                self._outbox.put_back(list(left))
        return len(taken) - len(left)
