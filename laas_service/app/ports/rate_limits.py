# SPDX-License-Identifier: Apache-2.0

"""Limits of what the servers of class ``shared`` send."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True, slots=True)
class Limited:
    """What a pass over the servers of an allocation found.

    ``changed``: limits that others had changed or taken away, set again. ``open``: servers that are
    not limited, and why. Each text names a server or a port.
    """

    changed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


class RateLimits(Protocol):
    """Keeps servers to the bandwidth that they send. Every method is safe to repeat.

    Errors of all methods: as those of ``Compute``.
    """

    name: ClassVar[str]
    """What is recorded for allocations that are limited by it."""

    def limit(
        self, id: str, project_id: str, bandwidth: float, servers: Collection[str]
    ) -> Limited:
        """Limit what each of these servers of an allocation sends, on all its ports together.

        ``bandwidth`` in Gb/s. Without servers, all is prepared for those to come.
        """

    def forget_limits(self, id: str) -> None:
        """Take back what was made for an allocation, which has no servers any more."""
