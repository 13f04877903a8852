# SPDX-License-Identifier: Apache-2.0

"""One agent of a fabric is active, whatever the agents report, also at the same time."""

import threading
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from oslo_db.exception import DBDuplicateEntry

from laas_service.adapters.db import models
from laas_service.adapters.db.agents import MOST, SqlAgents
from laas_service.adapters.db.engine import write_transaction
from laas_service.app.agent_registry import applied
from laas_service.domain.errors import LimitExceeded
from laas_service.messages import AgentReport, Condition, Span
from tests.unit.adapters.test_leases import clock as clock
from tests.unit.adapters.test_store import EPOCH, HOSTS, SMALL
from tests.unit.adapters.test_store import managed as managed
from tests.waiting import at_once

LEASE = 15.0
STARTING = AgentReport(Condition.STARTING)
DEAD = AgentReport(Condition.DEAD, "no process")


@pytest.fixture
def agents(managed, clock):
    return SqlAgents(managed._engine, clock=lambda _: clock.time)


def runs(generation: int, published: int | None = None) -> AgentReport:
    return AgentReport(Condition.APPLIED, None, generation, published)


def active(agents: SqlAgents, fabric: str = "f") -> list[str]:
    return [agent.name for agent in agents.all(fabric) if agent.active]


def test_what_was_reported_last_is_kept(agents, clock):
    assert agents.all("f") == []
    agents.report("f", "b", runs(7, 8), LEASE)
    clock.pass_by(2)
    odd = AgentReport(Condition.DIFFERS, "switch 0x1, LID 2: \U0001f4a3", None, 8)
    agents.report("f", "a", odd, LEASE)
    clock.pass_by(3)
    first, second = agents.all("f")
    assert (first.name, first.active, first.age) == ("a", False, 3)
    assert first.seen == odd
    assert (second.name, second.active, second.age) == ("b", True, 5)
    assert (second.seen, second.seen_at) == (runs(7, 8), EPOCH)
    assert agents.report("f", "B", STARTING, LEASE).active == "b", "case tells them apart"
    assert len(agents.all("f")) == 3


def test_what_is_confirmed_says_where_the_agents_time_went(agents):
    spent = {Span.FETCH: 3.0, Span.RELOAD: 0.5, Span.READ_BACK: 4.25}
    agents.report("f", "a", replace(runs(8, 8), spent=spent), LEASE)
    assert applied(agents.all("f"), LEASE).spent == spent
    agents.report("f", "a", replace(runs(8, 9), spent=spent), LEASE)
    assert applied(agents.all("f"), LEASE).spent == {}, "it is of the files that it has now"


def test_each_fabric_has_an_active_one_of_its_own(managed, agents):
    managed.fabrics.add("g", SMALL, HOSTS)
    agents.report("f", "a", STARTING, LEASE)
    assert agents.report("g", "a", STARTING, LEASE).active == "a"
    assert agents.report("g", "b", STARTING, LEASE).active == "a"
    assert (active(agents, "f"), active(agents, "g")) == (["a"], ["a"])


def test_news_are_those_of_the_active_one(agents, clock):
    assert agents.report("f", "a", STARTING, LEASE).news
    assert not agents.report("f", "a", STARTING, LEASE).news
    assert agents.report("f", "b", runs(3), LEASE).news, "another set beside a standby"
    assert not agents.report("f", "b", runs(3), LEASE).news
    assert agents.report("f", "a", runs(3), LEASE).news
    assert not agents.report("f", "a", runs(3, 4), LEASE).news
    assert agents.report("f", "a", runs(4), LEASE).news
    clock.pass_by(LEASE)
    assert agents.report("f", "b", runs(4), LEASE).news


def test_standbys_that_are_gone_for_long_stay_until_they_are_forgotten(agents, clock):
    """One may come back with the files that it had."""
    for name in ("a", "b", "c"):
        agents.report("f", name, STARTING, LEASE)
    clock.pass_by(400 * 86400)
    agents.report("f", "b", DEAD, LEASE)
    assert [agent.name for agent in agents.all("f")] == ["a", "b", "c"]
    agents.forget("f", "c")
    agents.forget("f", "a")
    assert [agent.name for agent in agents.all("f")] == ["a", "b"], "the active one stays"


def test_the_database_itself_refuses_a_second_active_one(managed):
    """The database accepts several standby agents and one active agent for each fabric."""
    row = {"fabric": "f", "condition": "starting", "seen_at": EPOCH}
    with write_transaction(managed._engine) as session:
        session.add_all([models.AgentRow(name=name, active=None, **row) for name in "abc"])
        session.add(models.AgentRow(name="d", active=True, **row))
    with pytest.raises(DBDuplicateEntry), write_transaction(managed._engine) as session:
        session.add(models.AgentRow(name="e", active=True, **row))


def test_a_report_from_before_the_clock_was_set_back_counts_as_old(agents, clock):
    """It would confirm routes for as long as the clock went back, whatever became of the agent."""
    agents.report("f", "a", runs(1), LEASE)
    clock.pass_by(-3600)
    assert agents.all("f")[0].age == 3600
    agents.report("f", "a", runs(1), LEASE)
    assert agents.all("f")[0].age == 0


@pytest.mark.parametrize("before", [False, True])
def test_of_many_that_report_at_once_one_is_active(managed, clock, before):
    """The first reports, or those after the active agent has been silent."""
    agents = SqlAgents(managed._engine, clock=lambda _: clock.time)
    start, turns = threading.Barrier(4), []
    if before:
        agents.report("f", "old", STARTING, LEASE)
        clock.pass_by(LEASE)

    def report(name: str) -> None:
        start.wait()
        turns.append(agents.report("f", name, STARTING, LEASE).active)

    at_once(*(partial(report, f"sm{n}") for n in range(4)))
    assert len(turns) == 4
    assert len(set(turns)) == 1
    assert active(agents) == [turns[0]]


def drawn(chance: Random, generation: int) -> AgentReport:
    condition = chance.choice(list(Condition))
    confirms = condition in (Condition.APPLIED, Condition.OTHER_GENERATION)
    return AgentReport(condition, None, generation if confirms else None)


def test_a_fabric_has_a_bounded_number_of_names_and_only_an_operator_makes_room(agents, clock):
    for number in range(MOST):
        agents.report("f", f"node{number}", STARTING, LEASE)
    clock.pass_by(400 * 86400)
    with pytest.raises(LimitExceeded, match="has 32 agents, so 'one-more' is refused") as refused:
        agents.report("f", "one-more", STARTING, LEASE)
    assert "node" not in str(refused.value), "the names of machines are nobody else's business"
    assert "one-more" not in {agent.name for agent in agents.all("f")}
    agents.forget("f", "node1")
    agents.report("f", "one-more", STARTING, LEASE)
    names = {agent.name for agent in agents.all("f")}
    assert names == {"one-more", *(f"node{n}" for n in range(MOST) if n != 1)}
    with pytest.raises(LimitExceeded):
        agents.report("f", "node1", STARTING, LEASE)


def test_the_active_agent_makes_room_for_nobody_before_another_one_is_active(agents, clock):
    agents.report("f", "node0", STARTING, LEASE)
    clock.pass_by(LEASE)
    for number in range(1, MOST):
        agents.report("f", f"node{number}", AgentReport(Condition.NOT_MASTER), LEASE)
    assert active(agents) == ["node0"]
    with pytest.raises(LimitExceeded):
        agents.report("f", "one-more", AgentReport(Condition.NOT_MASTER), LEASE)
    assert active(agents) == ["node0"]


def test_random_histories(managed, agents, clock):
    """Random reports of two and of three agents; each step is compared with the rules."""
    managed.fabrics.add("g", SMALL, HOSTS)
    lived(agents, clock, Random(2), "f", ["sm0", "sm1"])
    lived(agents, clock, Random(3), "g", ["sm0", "sm1", "sm2"])


def lived(agents, clock, chance, fabric, names):
    said: dict[str, tuple[float, AgentReport]] = {}
    was, now = None, 0.0
    for step in range(50):
        passing = chance.choice([0.0, 1.0, LEASE - 1, LEASE, 3 * LEASE])
        clock.pass_by(passing)
        now += passing
        name, seen = chance.choice(names), drawn(chance, step + 1)
        turn = agents.report(fabric, name, seen, LEASE)
        gone = was is not None and now - said[was][0] >= LEASE
        unable = was is not None and not said[was][1].condition.able
        said[name] = (now, seen)
        if was in (None, name):
            assert turn.active == name
        elif (gone or unable) and seen.condition.able:
            assert turn.active == name, "an able one takes over"
        else:
            assert turn.active == was, "it serves, or the other one could do no better"
        was = turn.active
        passing = chance.choice([0.0, LEASE - 1, LEASE])
        clock.pass_by(passing)
        now += passing
        assert active(agents, fabric) == [was]
        found = applied(agents.all(fabric), LEASE)
        fresh = now - said[was][0] < LEASE
        assert found.generation == (said[was][1].generation if fresh else None)
