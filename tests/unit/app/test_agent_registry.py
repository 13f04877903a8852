# SPDX-License-Identifier: Apache-2.0

"""The choice of the active agent, and the generations that its reports confirm."""

from datetime import UTC, datetime

import pytest

from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.app.agent_registry import applied, successor
from laas_service.app.ports.agents import Agent
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology, Xgft
from laas_service.messages import AgentReport, Applied, Condition, ConfirmedBy, FabricState

LEASE = 15.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ABLE = [condition for condition in Condition if condition.able]
TREE = Topology(Xgft((2, 1, 1), (1, 0, 0)))


def agent(name, condition, generation=None, *, active=False, age=0.0, detail=None):
    return Agent(name, active, AgentReport(condition, detail, generation), EPOCH, age)


def runs(generation, **more):
    return agent("a", Condition.APPLIED, generation, active=True, **more)


# -- the choice of the active agent --------------------------------------------------


@pytest.mark.parametrize("condition", Condition)
def test_the_first_is_active_whatever_it_sees(condition):
    assert successor([agent("a", condition)], "a", LEASE) == "a"


@pytest.mark.parametrize("condition", Condition)
@pytest.mark.parametrize("other", Condition)
def test_who_serves_stays_and_who_does_not_gives_way_to_one_who_can(condition, other):
    old, new = agent("a", condition, active=True), agent("b", other)
    gives_way = condition not in ABLE and other in ABLE
    assert successor([old, new], "b", LEASE) == ("b" if gives_way else "a")
    assert successor([old, new], "a", LEASE) == "a", "nobody else has reported"


@pytest.mark.parametrize("other", Condition)
def test_who_is_silent_gives_way_to_one_who_can(other):
    new = agent("b", other)
    for age, gone in ((LEASE - 0.001, False), (LEASE, True), (1e9, True)):
        old = agent("a", Condition.APPLIED, 1, active=True, age=age)
        assert successor([old, new], "b", LEASE) == ("b" if gone and other in ABLE else "a")


# -- confirmed generations -----------------------------------------------------------


def confirmed(generation, problem=None):
    return Applied(generation, problem, by=ConfirmedBy.AGENT)


def test_without_an_agent_nothing_is_confirmed():
    for agents in ([], [agent("b", Condition.APPLIED, 9)]):
        found = applied(agents, LEASE)
        assert found.generation is None
        assert "no agent reports" in str(found.problem)


def test_the_active_one_confirms_and_a_standby_does_not():
    standby = agent("b", Condition.APPLIED, 9)
    for condition in set(Condition) - {Condition.APPLIED, Condition.OTHER_GENERATION}:
        found = applied([agent("a", condition, active=True, detail="why"), standby], LEASE)
        words = condition.value.replace("_", " ")
        assert found == confirmed(None, f"agent a: {words}: why")
    assert applied([standby, runs(7)], LEASE) == confirmed(7)


def test_what_was_confirmed_counts_as_long_as_the_lease():
    assert applied([runs(9, age=LEASE - 0.001)], LEASE) == confirmed(9)
    gone = "no agent reports: a was last seen at 2026-01-01T00:00:00+00:00"
    assert applied([runs(9, age=LEASE)], LEASE) == Applied(None, gone)


def test_an_earlier_set_is_confirmed_as_such():
    other = agent("a", Condition.OTHER_GENERATION, 4, active=True)
    assert applied([other], LEASE) == confirmed(4, "agent a: other generation")


# -- the port -----------------------------------------------------------------------


class Told:
    """Agents with one report after another, and a clock."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.time = 0.0
        self.wakes = 0

    def all(self, fabric):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def report(self, fabric, name, seen, seconds):
        raise AssertionError("workers report nothing")

    def forget(self, fabric, name):
        raise AssertionError("operators forget")

    def sleep(self, seconds):
        self.time += seconds

    def manager(self, patience=10.0):
        return AgentSubnetManager(
            self,
            seconds=LEASE,
            patience=patience,
            wake=self.wake,
            sleep=self.sleep,
            clock=lambda: self.time,
        )

    def wake(self):
        self.wakes += 1


def state(generation):
    return FabricState("f", generation, TREE, Inventory((), (), (), (), (), (), ()), ())


def test_right_after_publishing_it_waits_for_the_new_generation():
    sweeping = agent("a", Condition.SWEEPING, active=True)
    told = Told([runs(3)], [sweeping], [sweeping], [runs(4)])
    manager = told.manager()
    manager.publish(state(4))
    assert told.wakes == 1
    assert manager.applied("f") == confirmed(4)
    assert 0 < told.time < 10


def test_it_waits_once_and_no_longer_than_its_patience():
    told = Told([runs(3)])
    manager = told.manager(patience=2.0)
    assert manager.applied("f") == confirmed(3)
    assert told.time == 0, "nothing was published"
    manager.publish(state(4))
    assert manager.applied("f") == confirmed(3)
    assert 1.5 < told.time <= 2.0
    waited = told.time
    assert manager.applied("f") == confirmed(3)
    assert told.time == waited


def test_it_does_not_wait_for_agents_that_are_gone():
    for agents in ([], [runs(3, age=LEASE), agent("b", Condition.STARTING, age=LEASE)]):
        told = Told(agents)
        manager = told.manager()
        manager.publish(state(4))
        assert manager.applied("f").generation is None
        assert told.time == 0


def test_it_waits_for_one_that_may_take_over():
    gone, standby = runs(3, age=LEASE), agent("b", Condition.STARTING)
    successor = Agent("b", True, AgentReport(Condition.APPLIED, None, 4), EPOCH, 0.0)
    told = Told([gone, standby], [agent("a", Condition.APPLIED, 3, age=LEASE), successor])
    manager = told.manager()
    manager.publish(state(4))
    assert manager.applied("f") == confirmed(4)
