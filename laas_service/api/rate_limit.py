# SPDX-License-Identifier: Apache-2.0

"""Rate limits: one token bucket for each project."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from laas_service.domain.errors import TooManyRequests

MANY = 10_000
"""Buckets kept; beyond that, full ones are dropped, because a new bucket is full, too."""


class Seldom:
    """Calls ``act`` at most once in ``seconds`` while it succeeds; ``clock`` is in seconds.

    While it raises, it is called each time and its exception is passed on.
    """

    def __init__(self, act: Callable[[], None], seconds: float, clock: Callable[[], float]) -> None:
        self._act = act
        self._seconds = seconds
        self._clock = clock
        self._again = -math.inf

    def __call__(self) -> None:
        if self._clock() >= self._again:
            self._act()
            self._again = self._clock() + self._seconds


class Buckets:
    """``burst`` requests at once, ``rate`` a second in the long run; a rate of 0 is no limit.

    ``clock`` is in seconds from any moment on. May be shared by threads.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # project -> tokens, at this time

    def reload(self, rate: float, burst: int) -> None:
        """Use this rate and burst from now on."""
        self._rate, self._burst = rate, burst

    def take(self, project_id: str) -> None:
        """Count a request.

        Raises:
            TooManyRequests: the bucket is empty; the request is not counted.
        """
        if not self._rate:
            return
        with self._lock:
            now = self._clock()
            left = self._now(project_id, now)
            if left < 1:
                raise TooManyRequests((1 - left) / self._rate)
            self._left[project_id] = (left - 1, now)
            if len(self._left) > MANY:
                self._left = {
                    name: left
                    for name, left in self._left.items()
                    if self._now(name, now) < self._burst
                }

    def _now(self, project_id: str, now: float) -> float:
        left, then = self._left.get(project_id, (float(self._burst), now))
        return min(self._burst, left + (now - then) * self._rate)
