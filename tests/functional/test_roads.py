# SPDX-License-Identifier: Apache-2.0

"""How often the database is asked along the roads that ``tests.bench.roads`` measures."""

from typing import Any

import pytest

from tests.bench.roads import (
    OWNED,
    SHARED,
    SMALL,
    Activation,
    CutLink,
    Evacuation,
    Observer,
    Post,
    Service,
    travel,
)

SHARING = {"slots": 4, "bandwidth": 100.0}
BODIES: dict[str, dict[str, Any]] = {"owned": OWNED, "shared": SHARED}


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
def test_a_request_for_hosts_asks_eight_questions_in_two_transactions(service, kind):
    if kind == "shared":
        service.activate(service.post(hosts=8, sharing=SHARING))
    watch = Observer()
    travel(service, Post(kind, BODIES[kind]), watch)
    clock = watch.journey.excepted["clock"]  # once a second, in a transaction of its own
    assert watch.journey.selects - clock <= 8
    assert watch.journey.transactions - clock <= 2
    assert not +watch.journey.repeated


@pytest.mark.parametrize("kind", ["owned", "shared"])
def test_an_activation_asks_at_most_forty_questions_none_twice(service, kind):
    if kind == "shared":
        service.activate(service.post(hosts=8, sharing=SHARING))
    watch = Observer()
    travel(service, Activation(kind, BODIES[kind]), watch)
    assert watch.journey.selects - watch.journey.excepted["clock"] <= 36
    assert not +watch.journey.repeated


@pytest.mark.parametrize("road", [CutLink(), Evacuation()], ids=lambda road: road.name)
def test_steps_of_a_change_do_not_read_the_record_that_they_made(service, road):
    """Publications read again what is published; each other statement is asked once."""
    watch = Observer()
    travel(service, road, watch)
    again = " ".join(+watch.journey.repeated)
    assert "FROM event" not in again
    assert "allocation.sequence" not in again
    assert "observation.mode" not in again
