# SPDX-License-Identifier: Apache-2.0

"""When an agent reloads its OpenSM, and when it does not."""

from __future__ import annotations

import itertools

import pytest

from laas_service.app.opensm_agent import OpenSmAgent
from laas_service.domain.errors import LaasError, Unavailable
from laas_service.messages import AgentReport, Condition, Orders, Span

LEASE = 15.0


class Desk:
    """A scripted service for any number of agents; the first able agent is active."""

    def __init__(self):
        self.wanted, self.now = 1, 0.0
        self.away = False
        self.active = None
        self.reports: list[tuple[str, AgentReport]] = []
        self.took = 0.0  # seconds that a report is under way

    def of(self, name):
        desk = self

        def report(seen):
            if desk.away:
                raise Unavailable("no answer")
            desk.reports.append((name, seen))
            desk.now += desk.took
            if desk.active is None:
                desk.active = name
            return Orders(desk.active == name, desk.active, desk.wanted, LEASE)

        return report


class Machine:
    """Stores sets, and runs an OpenSM that applies each reload at once."""

    def __init__(self, desk):
        self.desk = desk
        self.published = self.running = None
        self.published_stamp = ""
        self.condition = None
        self.refuses = set()
        self.refused = False
        self.told, self.received, self.fenced = [], [], 0
        self.confirms = True

    def fetch_set(self):
        self.received.append(self.desk.wanted)
        self.refused = self.desk.wanted in self.refuses
        if not self.refused:
            self.published = self.desk.wanted

    def needs_reload(self):
        return self.published is not None and self.running != self.published

    def reload(self):
        self.told.append(self.published)
        if self.confirms:
            self.running = self.published

    def fence(self):
        self.fenced += 1

    def observe(self, active):
        if self.condition is not None:
            return AgentReport(self.condition, published=self.published)
        if self.refused:
            return AgentReport(Condition.REFUSED, "torn\0" + "x" * 5000, published=self.published)
        if self.running is None:
            return AgentReport(Condition.STARTING, published=self.published)
        if self.running != self.published:
            return AgentReport(Condition.OTHER_GENERATION, "", self.running, self.published)
        return AgentReport(Condition.APPLIED, None, self.running, self.published)


@pytest.fixture
def desk():
    return Desk()


def agent(desk, name="a", **more):
    machine = Machine(desk)
    made = OpenSmAgent(
        desk.of(name),
        lambda: machine.fetch_set(),
        machine,
        interval=2.0,
        clock=lambda: desk.now,
        **more,
    )
    setattr(made, "machine", machine)  # noqa: B010
    return made


def test_a_round_takes_the_set_tells_opensm_and_reports_what_came_of_it(desk):
    one = agent(desk)
    assert one.once() == AgentReport(Condition.APPLIED, None, 1, 1)
    assert desk.reports == [
        ("a", AgentReport(Condition.STARTING)),
        ("a", AgentReport(Condition.APPLIED, None, 1, 1)),
    ]
    assert one.machine.told == [1]
    one.round()
    assert one.machine.received == [1]  # the set is current and not fetched again
    desk.wanted = 2
    one.round()
    assert one.machine.told == [1, 2]


def test_it_reports_where_its_time_for_a_set_went(desk):
    one = agent(desk)
    machine = one.machine

    def slow(act, seconds):
        def acts(*args):
            desk.now += seconds
            act(*args)

        return acts

    machine.fetch_set = slow(machine.fetch_set, 3.0)
    machine.reload = slow(machine.reload, 0.5)
    machine.confirms = False
    one.round()
    assert not any(seen.spent for _, seen in desk.reports)
    desk.now += 4.0  # OpenSM programs the switches
    machine.running = 1
    confirmed = one.once().spent
    assert confirmed[Span.FETCH] == 3.0
    assert confirmed[Span.RELOAD] == 0.5
    assert confirmed[Span.READ_BACK] == pytest.approx(4.0, abs=2.5)  # it looks for an interval
    assert desk.reports[-1][1].spent == confirmed
    desk.now += 60.0
    assert one.once().spent == confirmed  # of this set nothing is added later
    desk.wanted, machine.confirms = 2, True
    assert one.once().spent == {Span.FETCH: 3.0, Span.RELOAD: 0.5, Span.READ_BACK: 0.0}


def test_a_standby_takes_sets_and_looks_and_tells_nobody(desk):
    desk.active = "a"
    other = agent(desk, "b")
    for desk.wanted in (1, 2, 3):
        other.round()
    assert other.machine.published == 3
    assert other.machine.told == []
    assert [name for name, _ in desk.reports] == ["b"] * 3


def test_taking_over_tells_opensm_even_if_nothing_changed(desk):
    desk.active = "a"
    other = agent(desk, "b")
    other.round()
    other.machine.running = 1  # the switches run the desired tables
    other.round()
    assert other.machine.told == []
    desk.active = "b"
    other.round()
    other.round()
    assert other.machine.told == [1]


def test_nothing_is_told_once_the_lease_has_run_out(desk):
    one = agent(desk)
    one.round()
    desk.away = True
    one.machine.running = 0  # somebody changed the tables by hand
    desk.now += LEASE - 0.1
    one.round()
    assert one.machine.told == [1, 1]
    one.machine.running = 0
    desk.now += 0.1
    one.round()
    one.round()
    assert one.machine.told == [1, 1]
    assert one.machine.published == 1
    desk.away = False
    one.round()
    assert one.machine.told == [1, 1, 1]


def test_the_lease_counts_from_before_the_report_was_sent(desk):
    one = agent(desk)
    desk.took = LEASE
    one.round()
    assert one.machine.published == 1
    assert one.machine.told == []


def test_the_lease_may_run_out_while_the_set_is_fetched(desk):
    one = agent(desk)
    receive = one.machine.fetch_set

    def slowly():
        desk.now += LEASE
        receive()

    one.machine.fetch_set = slowly
    one.round()
    assert one.machine.told == []


@pytest.mark.parametrize(
    "condition", [one for one in Condition if not one.able and one is not Condition.WEDGED]
)
def test_who_said_it_is_not_able_tells_nothing(desk, condition):
    """The service may have made another agent active after that report."""
    one = agent(desk)
    one.machine.condition = condition
    one.round()
    assert one.machine.told == [1]  # before this report the agent was starting
    one.machine.running = 0
    one.round()
    one.round()
    assert one.machine.told == [1]
    one.machine.condition = None
    one.round()
    one.round()
    assert one.machine.told == [1, 1]


def test_an_opensm_that_may_have_lost_a_signal_gets_another_one(desk):
    """Only while the service has no other agent, and in the round in which it says so."""
    one = agent(desk)
    one.machine.condition = Condition.WEDGED
    one.round()
    one.machine.running = 0
    one.round()
    assert one.machine.told == [1, 1]
    one.machine.running, desk.took = 0, 3.0
    one.round()
    assert one.machine.told == [1, 1]
    desk.active, desk.took = "b", 0.0
    one.round()
    assert one.machine.told == [1, 1]


def test_what_was_refused_is_tried_ever_more_seldom_until_something_else_is_wanted(desk):
    one = agent(desk)
    one.machine.refuses = {1}
    tried = []
    for _ in range(300):
        before = len(one.machine.received)
        one.round()
        if len(one.machine.received) > before:
            tried.append(desk.now)
        desk.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[0] <= 4
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 61
    desk.wanted = 2
    one.round()
    one.round()
    assert (one.machine.published, one.machine.refused) == (2, False)
    assert one.machine.told[-1] == 2
    refusals = [seen for _, seen in desk.reports if seen.condition is Condition.REFUSED]
    assert all(len(seen.detail) == 4000 and "\0" not in seen.detail for seen in refusals)


def test_a_service_that_is_away_is_not_asked_over_and_over(desk):
    one = agent(desk)
    desk.away = True
    one._wakened.clear()
    one.round()
    assert not one._wakened.is_set()
    desk.away = False
    one.round()
    assert one._wakened.is_set()  # the service answers again


def test_once_says_that_the_service_is_away(desk):
    desk.away = True
    with pytest.raises(LaasError):
        agent(desk).once()


def test_while_opensm_sweeps_it_is_looked_at_soon_again_but_not_for_ever(desk):
    one = agent(desk)
    one.machine.condition = Condition.SWEEPING
    looks = []
    look = one.machine.observe

    def counted(active):
        looks.append(active)
        desk.now += 0.5
        if len(looks) == 3:
            one.machine.condition = None
        return look(active)

    one.machine.observe = counted
    one.round()
    assert len(looks) == 3
    assert one.once().condition is Condition.APPLIED
    one.machine.condition = Condition.SWEEPING
    one.round()
    assert len(looks) < 15


def test_without_contact_for_longer_than_it_may_it_fences_its_opensm(desk):
    bold, careful = agent(desk), agent(desk, "b", fence_after=60.0)
    for one in (bold, careful):
        one.round()
    desk.away = True
    for now, fenced in ((30.0, 0), (59.0, 0), (60.0, 1), (62.0, 2)):
        desk.now = now
        bold.round()
        careful.round()
        assert (bold.machine.fenced, careful.machine.fenced) == (0, fenced)
    desk.away = False
    careful.round()
    desk.away, desk.now = True, 100.0
    careful.round()
    assert careful.machine.fenced == 2
