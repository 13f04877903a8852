# SPDX-License-Identifier: Apache-2.0

"""Notifications: those still to be sent, and where they are sent to."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Protocol

from laas_service.messages import Notification


class Outbox(Protocol):
    """Notifications still to be sent, recorded in the transaction of what they tell of.

    Errors of all methods: ``Unavailable``.
    """

    def take(
        self, now: datetime, until: datetime, limit: int = 100
    ) -> Sequence[tuple[int, Notification]]:
        """The oldest ones, each with its number; no other process takes any before ``until``.

        Empty while another process has taken some.
        """

    def done(self, number: int) -> None:
        """Remove a notification that was sent; safe to repeat."""

    def put_back(self, numbers: Collection[int]) -> None:
        """Return notifications that were not sent: another process may take them."""


Publish = Callable[[Notification], None]
"""Sends a notification; returns when the broker has confirmed it, however long that takes.

``Unavailable`` if the broker refuses it.
"""
