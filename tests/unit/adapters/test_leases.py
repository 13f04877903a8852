# SPDX-License-Identifier: Apache-2.0

import threading
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from laas_service.adapters.db.clock import FRESH, DatabaseClock, database_clock
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.types import Moment
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState, Lease, LinkState
from laas_service.domain.errors import LeaseLost
from laas_service.domain.faults.observation import Mode
from laas_service.domain.features import HostChange
from laas_service.domain.topology import LeafLink
from tests.unit.adapters.test_store import EPOCH, HOSTS, SMALL, admit
from tests.unit.adapters.test_store import managed as managed
from tests.waiting import at_once

LATER = EPOCH + timedelta(days=1)


class Clock:
    """The clock of the database, set by the test."""

    def __init__(self) -> None:
        self.time = EPOCH

    def __call__(self) -> sa.ColumnElement[datetime]:
        kind = Moment().with_variant(sa.String(), "sqlite")  # it has no type for a time
        time = sa.cast(sa.literal(self.time, Moment()), kind)  # a plain literal is text to MariaDB
        return sa.type_coerce(time, Moment())

    def pass_by(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def leases(managed, clock):
    return SqlLeases(managed._engine, clock=clock)


def taken(leases: SqlLeases, owner: str, seconds: float = 10) -> Lease:
    lease = leases.take("f", owner, seconds)
    assert lease is not None
    return lease


def test_one_holder_until_the_lease_expires_and_the_token_grows(leases, clock):
    assert leases.free() == ["f"]
    first = taken(leases, "one")
    clock.pass_by(9)
    assert leases.take("f", "two", 10) is None
    assert leases.free() == []
    clock.pass_by(1)
    assert leases.free() == ["f"]
    second = taken(leases, "two")
    assert second.token > first.token
    with pytest.raises(LeaseLost, match="taken over from one"):
        leases.renew(first, 10)
    leases.renew(second, 10)


def test_renewed_in_time_it_is_kept(leases, clock):
    lease = taken(leases, "one")
    for _ in range(5):
        clock.pass_by(9)
        leases.renew(lease, 10)
        assert leases.take("f", "two", 10) is None


def test_expired_and_taken_by_nobody_it_can_still_be_renewed(leases, clock):
    lease = taken(leases, "one")
    clock.pass_by(1000)
    leases.renew(lease, 10)
    assert leases.take("f", "two", 10) is None


def test_given_back_it_is_free_at_once_and_gone(leases):
    first = taken(leases, "one")
    leases.give_back(first)
    with pytest.raises(LeaseLost):
        leases.renew(first, 10)
    second = taken(leases, "two")
    assert second.token > first.token
    leases.give_back(first)  # too late: the other worker holds the lease
    assert leases.take("f", "three", 10) is None


def test_a_former_holder_of_the_same_name_is_another_one(leases, clock):
    first = taken(leases, "one")
    clock.pass_by(10)
    taken(leases, "one")
    with pytest.raises(LeaseLost):
        leases.renew(first, 10)


def test_each_fabric_has_a_lease_of_its_own(managed, leases):
    managed.fabrics.add("g", SMALL, HOSTS)
    taken(leases, "one")
    assert leases.free() == ["g"]
    assert leases.take("g", "two", 10) == Lease("g", "two", 1)


def test_of_an_owner_who_is_gone_it_is_taken_at_once(managed, clock):
    dead: set[str] = set()
    leases = SqlLeases(managed._engine, clock=clock, gone=dead.__contains__)
    assert leases.enrol("alive", 10) == 1
    old = taken(leases, "dead")
    assert leases.enrol("dead", 10) == 2
    assert leases.free() == []
    dead.add("dead")
    assert leases.enrol("alive", 10) == 1
    assert leases.free() == ["f"]
    taken(leases, "alive")
    assert leases.free() == []
    assert leases.take("f", "third", 10) is None
    with pytest.raises(LeaseLost, match="taken over from dead"):
        leases.renew(old, 10)


def test_workers_count_while_they_say_so(leases, clock):
    assert leases.enrol("one", 10) == 1
    assert leases.enrol("two", 20) == 2
    clock.pass_by(10)
    assert leases.enrol("two", 20) == 1
    assert leases.enrol("three", 20) == 2
    leases.withdraw("two")
    leases.withdraw("two")
    assert leases.enrol("three", 20) == 1


def test_the_clock_is_that_of_the_database(managed):
    with Session(managed._engine) as session:
        first, second = database_clock(session), database_clock(session)
    assert first <= second
    assert abs(second - datetime.now(UTC)) < timedelta(hours=1)
    leases = SqlLeases(managed._engine)
    assert leases.take("f", "one", 3600) is not None
    assert leases.take("f", "two", 3600) is None
    assert leases.enrol("one", 3600) == 1


def test_of_many_who_take_it_at_once_one_gets_it(managed):
    leases, start, got = SqlLeases(managed._engine), threading.Barrier(4), []

    def take(owner: str) -> None:
        start.wait()
        got.append(leases.take("f", owner, 3600))

    at_once(*(partial(take, f"w{n}") for n in range(4)))
    assert len(got) == 4
    assert len([lease for lease in got if lease]) == 1


# -- fencing --------------------------------------------------------------------


WRITES = {
    "transition": lambda s: s.allocations.transition(
        s.allocations.get("a"), State.RELEASING, "asked"
    ),
    "rename": lambda s: s.allocations.rename(s.allocations.get("a"), "other"),
    "postpone": lambda s: s.allocations.postpone("a", LATER, "Nova is away"),
    "hand back": lambda s: s.allocations.hand_back(s.allocations.get("r")),
    "free": lambda s: s.allocations.free(s.allocations.get("h"), "gone"),
    "host state": lambda s: s.components.set_host_state("f", 9, HostState.FAILED),
    "link state": lambda s: s.components.set_link_state("f", LeafLink(0, 1, 2), LinkState.FAILED),
    "observation mode": lambda s: s.faults.set_mode("f", Mode.FROZEN),
    "acknowledgement": lambda s: s.faults.acknowledge_alarm("f"),
    "features": lambda s: s.components.describe_hosts("f", {9: HostChange(cost=7)}),
    "admission": lambda s: admit(s, "b", position=3),
    "fabric": lambda s: s.fabrics.add("g", SMALL, HOSTS),
}


def contents(store: SqlStore) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    with store._engine.connect() as connection:
        names = sa.inspect(connection).get_table_names()
        return {
            name: sorted(map(tuple, connection.execute(sa.text(f"select * from {name}"))), key=str)
            for name in names
        }


@pytest.fixture
def busy(managed):
    """``a`` is allocating, ``r`` releasing, ``h`` handed back."""
    admit(managed, "a")
    for at, id in enumerate("rh", start=1):
        managed.allocations.transition(admit(managed, id, position=at), State.RELEASING, "asked")
    managed.allocations.hand_back(managed.allocations.get("h"))
    return managed


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_whoever_lost_the_lease_writes_nothing(busy, leases, clock, write):
    old = busy.under(taken(leases, "one"))
    clock.pass_by(10)
    new = busy.under(taken(leases, "two"))
    before = contents(busy)
    with pytest.raises(LeaseLost):
        write(old)
    assert contents(busy) == before
    write(new)
    assert contents(busy) != before


def test_a_lease_that_was_given_back_is_no_right_to_write(busy, leases):
    lease = taken(leases, "one")
    leases.give_back(lease)
    with pytest.raises(LeaseLost):
        busy.under(lease).allocations.postpone("a", LATER, "late")


def test_until_somebody_takes_it_an_expired_lease_is_as_good(busy, leases, clock):
    held = busy.under(taken(leases, "one"))
    clock.pass_by(1000)
    held.allocations.postpone("a", LATER, "Nova is away")
    assert busy.allocations.get("a").error == "Nova is away"


def test_requests_need_no_lease(busy, leases):
    taken(leases, "one")
    admit(busy, "b", position=3)
    busy.allocations.rename(busy.allocations.get("a"), "other")


def test_nobody_takes_over_in_the_middle_of_a_transaction(busy, leases, clock):
    """The successor sees all that its predecessor wrote."""
    held = busy.under(taken(leases, "one"))
    clock.pass_by(1000)
    seen = []

    def take() -> None:
        taken(leases, "two")
        seen.append(busy.allocations.get("a").error)

    successor = threading.Thread(target=take)

    def at(step: str) -> None:
        if step.startswith("before commit"):
            successor.start()
            successor.join(0.2)
            assert not seen

    held._transactions.at = at
    held.allocations.postpone("a", LATER, "Nova is away")
    successor.join(60)
    assert seen == ["Nova is away"]


# -- clocks that jump ---------------------------------------------------------------


def test_a_lease_does_not_outlast_a_clock_that_is_set_back(managed, clock):
    """Its holder died; a day later by no clock, another worker takes over."""
    leases = SqlLeases(managed._engine, clock=clock, longest=20)
    first = taken(leases, "one")
    leases.enrol("one", 10)
    clock.pass_by(-86_400)
    assert leases.free() == ["f"]
    assert leases.enrol("two", 10) == 1
    second = taken(leases, "two")
    with pytest.raises(LeaseLost):
        leases.renew(first, 10)
    assert leases.take("f", "three", 10) is None, "a holder that renews stays"
    leases.renew(second, 10)


def test_the_clock_of_this_machine_does_not_matter(managed, clock):
    """Only the monotonic clock does, for ``FRESH`` seconds after a reading."""
    seconds = [5.0]
    read = DatabaseClock(managed._engine, read=lambda _: clock.time, monotonic=lambda: seconds[0])
    assert read() == EPOCH
    seconds[0] += FRESH / 2
    clock.pass_by(-86_400)
    assert read() == EPOCH + timedelta(seconds=FRESH / 2)
    seconds[0] += FRESH
    assert read() == EPOCH - timedelta(days=1), "a jump of the database's clock is followed"
    clock.pass_by(172_800)
    seconds[0] += FRESH
    assert read() == EPOCH + timedelta(days=1)


def test_the_clock_is_the_database_s(managed):
    read = DatabaseClock(managed._engine)
    with Session(managed._engine) as session:
        assert abs(read() - database_clock(session)) < timedelta(minutes=10)


def test_a_step_is_not_parked_by_a_clock_that_is_set_back(managed):
    admit(managed, "a")
    minute = timedelta(seconds=60)
    managed.allocations.postpone("a", EPOCH + minute, "wait")
    assert managed.allocations.due(EPOCH, longest=minute) == []
    assert managed.allocations.due(EPOCH + minute, longest=minute) == ["a"]
    assert managed.allocations.due(EPOCH - timedelta(days=1), longest=minute) == ["a"]
