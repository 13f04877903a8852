# SPDX-License-Identifier: Apache-2.0

"""Rate limits: one token bucket for each project."""

import threading
from collections.abc import Callable

from laas_service.domain.errors import TooManyRequests

MANY = 10_000
"""Buckets kept; beyond that, full ones are dropped, because a new bucket is full, too."""

CHANGES = (2.0, 200)
"""Changes of existing allocations (renaming, repair, retry) that a project may ask one API process
for: so many a second in the long run, and so many at once after a pause. Each is an entry in a
history and a notification; a script that renames all its allocations stays below it."""

SIGN_INS = (1.0, 20)
"""Logins to the fabric page that one API process passes on to Keystone, from each address and from
all of them together: so many a second in the long run, and so many at once after a pause."""


class Buckets:
    """``burst`` requests at once, ``rate`` a second in the long run; a rate of 0 is no limit.

    ``limits`` gives both, which may change at any time. ``clock`` is in seconds from any moment
    on. May be shared by threads.
    """

    def __init__(
        self, limits: Callable[[], tuple[float, float]], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # project -> tokens, at this time

    def take(self, project_id: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: the bucket is empty; the request is not counted.
        """
        rate, burst = self._limits()
        if not rate:
            return

        def tokens(project: str) -> float:
            left, then = self._left.get(project, (burst, now))
            return min(burst, left + (now - then) * rate)

        with self._lock:
            now = self._clock()
            left = tokens(project_id)
            if left < 1:
                raise TooManyRequests((1 - left) / rate)
            self._left[project_id] = (left - 1, now)
            if len(self._left) > MANY:
                self._left = {
                    name: entry for name, entry in self._left.items() if tokens(name) < burst
                }
