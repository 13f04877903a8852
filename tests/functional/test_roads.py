# SPDX-License-Identifier: Apache-2.0

"""How often the database is asked along the roads that ``tests.bench.roads`` measures."""

import pytest

from tests.bench.roads import OWNED, SHARED, SMALL, Activation, Observer, Service, travel


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path, SMALL)


def test_a_round_with_nothing_to_do_asks_six_questions(service):
    watch = service.watch = Observer()
    service.round()
    assert watch.journey.excepted.total() <= 1  # the clock
    assert watch.journey.selects - watch.journey.excepted.total() <= 6
    assert watch.journey.repeated.total() == 0


@pytest.mark.parametrize("kind", ["owned", "shared"])
def test_an_activation_asks_at_most_forty_questions(service, kind):
    if kind == "shared":
        sharing = {"slots": 4, "bandwidth": 100.0}
        service.activate(service.post(hosts=8, sharing=sharing))
    watch = Observer()
    travel(service, Activation(kind, SHARED if kind == "shared" else OWNED), watch)
    assert watch.journey.selects - watch.journey.excepted["clock"] <= 36
    again = 3 if kind == "owned" else 2  # the fabric when it is published, a record after a second
    assert watch.journey.repeated.total() <= again
