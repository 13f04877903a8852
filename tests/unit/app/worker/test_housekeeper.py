# SPDX-License-Identifier: Apache-2.0

"""The housekeeper deletes what is over in bounded pieces, and nothing if told to keep all."""

from datetime import timedelta
from typing import Any

from laas_service.app.worker.housekeeper import BATCH, Housekeeper


class Released:
    """So many allocations that were released long ago."""

    def __init__(self, count):
        self.count = count
        self.calls = []

    def forget(self, age, limit, archive=None):
        self.calls.append((age, limit))
        number = min(limit, self.count)
        self.count -= number
        return number


def test_all_go_in_pieces():
    allocations: Any = Released(2 * BATCH + 1)
    Housekeeper(allocations, days=7).round()
    assert allocations.count == 0
    assert allocations.calls == [(timedelta(days=7), BATCH)] * 3


def test_nothing_goes_without_days_until_a_reload_gives_some():
    allocations: Any = Released(5)
    keeper = Housekeeper(allocations, days=0)
    keeper.round()
    assert (allocations.count, allocations.calls) == (5, [])
    keeper.reload(30)
    keeper.round()
    assert allocations.count == 0


def test_it_stops_between_two_pieces():
    allocations: Any = Released(3 * BATCH)
    keeper = Housekeeper(allocations, days=1)
    keeper.stop()
    keeper.round()
    assert allocations.count == 3 * BATCH
