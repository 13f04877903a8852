# SPDX-License-Identifier: Apache-2.0

"""Rate limits: one token bucket for each project."""

import threading
from collections.abc import Callable

from oslo_config import cfg

from laas_service.domain.errors import TooManyRequests

MANY = 10_000
"""Buckets kept; beyond that, full ones are dropped, because a new bucket is full, too."""


class Buckets:
    """``burst`` requests at once, ``rate`` a second in the long run; a rate of 0 is no limit.

    Both are options of ``limits`` under these names after ``prefix``, and may change at any time.
    ``clock`` is in seconds from any moment on. May be shared by threads.
    """

    def __init__(
        self, limits: cfg.ConfigOpts.GroupAttr, clock: Callable[[], float], prefix: str = ""
    ) -> None:
        self._limits = limits
        self._prefix = prefix
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # project -> tokens, at this time

    def take(self, project_id: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: the bucket is empty; the request is not counted.
        """
        rate: float = getattr(self._limits, f"{self._prefix}rate")
        burst: float = getattr(self._limits, f"{self._prefix}burst")
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
