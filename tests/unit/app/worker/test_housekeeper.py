# SPDX-License-Identifier: Apache-2.0

"""The housekeeper deletes what is over in bounded pieces, and nothing if told to keep all."""

from datetime import timedelta

from laas_service.app.worker.housekeeper import BATCH, Housekeeper


class Released:
    """A store with so many allocations that were released long ago."""

    def __init__(self, count):
        self.count = count
        self.calls = []

    def forget(self, age, limit, archive=None):
        self.calls.append((age, limit))
        number = min(limit, self.count)
        self.count -= number
        return number


def test_all_go_in_pieces():
    store = Released(2 * BATCH + 1)
    Housekeeper(store, days=7).round()
    assert store.count == 0
    assert store.calls == [(timedelta(days=7), BATCH)] * 3


def test_nothing_goes_without_days_until_a_reload_gives_some():
    store = Released(5)
    keeper = Housekeeper(store, days=0)
    keeper.round()
    assert (store.count, store.calls) == (5, [])
    keeper.reload(30)
    keeper.round()
    assert store.count == 0


def test_it_stops_between_two_pieces():
    store = Released(3 * BATCH)
    keeper = Housekeeper(store, days=1)
    keeper.stop()
    keeper.round()
    assert store.count == 3 * BATCH
