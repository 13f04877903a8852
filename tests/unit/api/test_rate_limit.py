# SPDX-License-Identifier: Apache-2.0

"""Rate limits: a bucket fills at its rate."""

from __future__ import annotations

import pytest

from laas_service.api import rate_limit
from laas_service.api.rate_limit import Buckets
from laas_service.domain.errors import TooManyRequests


def limits(rate, burst):
    return lambda: (rate, burst)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def taken(buckets, project="blue"):
    try:
        buckets.take(project)
    except TooManyRequests:
        return False
    return True


def test_a_burst_and_then_the_rate():
    clock = Clock()
    buckets = Buckets(limits(2, 3), clock)
    assert [taken(buckets) for _ in range(4)] == [True, True, True, False]
    with pytest.raises(TooManyRequests) as refused:
        buckets.take("blue")
    assert refused.value.after == 0.5
    clock.now = 0.5
    assert [taken(buckets) for _ in range(2)] == [True, False]
    clock.now = 100
    assert [taken(buckets) for _ in range(4)] == [True, True, True, False]


def test_each_project_has_its_own():
    buckets = Buckets(limits(1, 1), Clock())
    assert [taken(buckets, name) for name in ("blue", "red", "blue")] == [True, True, False]


def test_no_rate_is_no_limit():
    buckets = Buckets(limits(0, 1), Clock())
    assert all(taken(buckets) for _ in range(100))


def test_who_was_quiet_is_forgotten(monkeypatch):
    monkeypatch.setattr(rate_limit, "MANY", 10)
    clock = Clock()
    buckets = Buckets(limits(1, 1), clock)
    for number in range(1000):
        clock.now = number
        assert taken(buckets, f"project {number}")
    assert len(buckets._left) <= 11
