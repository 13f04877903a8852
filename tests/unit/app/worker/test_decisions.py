# SPDX-License-Identifier: Apache-2.0

"""Decisions of a worker as values: from a round to instructions; no question changes anything."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    ObservedAggregates,
    Occupant,
    ServerMoves,
)
from laas_service.app.ports.limits import Limited
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, Observation
from laas_service.app.worker import decide, instructions
from laas_service.app.worker.decide import drift, hosts, life, limits
from laas_service.app.worker.instructions import (
    Ask,
    AskAllocation,
    AskAllocations,
    AskHosts,
    AskNearest,
    AskPublished,
    AskSpent,
    Close,
    HandBack,
    HandOver,
    JudgeHosts,
    Limit,
    Log,
    Pool,
    Record,
    RecordLimits,
    Tell,
    Wait,
)
from laas_service.app.worker.memory import (
    NOTHING_REMEMBERED,
    DriftMemory,
    HostsMemory,
    LimitsMemory,
)
from laas_service.app.worker.round import Outside, Round, RoutesSeen, WorkerRules
from laas_service.domain.allocation import Allocation, GroupShare, SlotDemand
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.errors import HostsBusy, Unavailable
from laas_service.messages import Applied, ConfirmedBy
from tests.convergers import converger
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.app.worker.test_converger import HOSTS, SMALL

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FABRIC = FabricRecord("f", SMALL, HOSTS, 7, NOW, routes_generation=7)
OUTSIDE = Outside(scripted=False, claims_slots=False)
ROUND = Round(now=NOW, fabric=FABRIC, observation=Observation(), outside=OUTSIDE)
APPLIED = Applied(7, by=ConfirmedBy.SWITCHES)


def record(state: State, *slots: int, **more: Any) -> AllocationRecord:
    placed = Allocation("a", len(slots), "test", (GroupShare(0, sum(1 << s for s in slots), 0),))
    values: dict[str, Any] = {
        "id": "a",
        "state": state,
        "placed": placed,
        "generation": 7,
        "handed_back": False,
        "force": False,
        "fabric": "f",
        "name": "a",
        "project_id": "blue",
        "policy": "test",
        "hosts": len(slots),
        "version": 1,
        "pkey": 1,
        "error": None,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return AllocationRecord(**(values | more))


def decided(
    decision: instructions.Steps[Any], answers: Mapping[type | Ask, Any]
) -> tuple[list[Any], Any]:
    """What a decision asks for besides questions, and its result.

    ``answers`` by the kind of instruction: a value, a function of it, or an error to be raised.
    """
    wanted, answer = [], None
    try:
        instruction = next(decision)
        while True:
            if not isinstance(instruction, instructions.Question):
                wanted.append(instruction)
            kind = instruction if isinstance(instruction, Ask) else type(instruction)
            answer = answers.get(kind)
            if isinstance(answer, Exception):
                instruction = decision.throw(answer)
                continue
            instruction = decision.send(answer(instruction) if callable(answer) else answer)
    except StopIteration as ended:
        return [w for w in wanted if not isinstance(w, instructions.ActFor)], ended.value


ANSWERS: dict[type | Ask, Any] = {
    Ask.TIME: NOW,
    Ask.SECONDS: 0.0,
    AskPublished: True,
    Ask.APPLIED: APPLIED,
    AskSpent: {},
    Ask.HOST_MEMORY: HostMemory(),
    Ask.ROUTES: RoutesSeen(APPLIED, lost=False, ever_applied=True),
    Ask.OTHER_HOSTS: frozenset(),
}


# -- nothing in decide can act ----------------------------------------------------------------


def test_decisions_know_no_port():
    """A name of a Protocol, of a store, or of a log in ``decide`` would be a way to act."""
    modules = [
        importlib.import_module(f"{decide.__name__}.{m.name}")
        for m in pkgutil.iter_modules(decide.__path__)
    ]
    assert len(modules) == 6
    for module in modules:
        for name, value in vars(module).items():
            assert not getattr(value, "_is_protocol", False), (module.__name__, name)
            assert not name.startswith("LOG"), module.__name__


class Watched:
    """A port that only answers: every method that acts fails."""

    def __init__(self, port: Any, acts: typing.Collection[str]) -> None:
        self._port, self._acts = port, acts

    def __getattr__(self, name: str) -> Any:
        assert name not in self._acts, f"a question calls {name}"
        return getattr(self._port, name)


COMMANDS = (
    *("pool", "close", "stop", "hand_over", "settle_slots", "fence", "take_back", "move_servers"),
    *("publish", "mark_ports"),
)
QUESTIONS = [*Ask, *(kind for kind in typing.get_args(instructions.Question) if kind is not Ask)]


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: getattr(kind, "name", str(kind)))
def test_no_question_acts(store, kind):
    """Each question that a decision can ask, put to ports of which nothing may act."""
    store.fabrics.add("f", SMALL, HOSTS)
    compute, switches = Watched(FakeCompute(), COMMANDS), Watched(FakeSubnetManager(), COMMANDS)
    one = converger(store, compute, switches, "f", now=lambda: NOW, chance=None)
    one._read()
    values = {
        "id": "a",
        "states": [State.ACTIVE],
        "generation": 1,
        "wanted": frozenset(),
        "hosts": (),
        "handover": Handover("a", "blue", ()),
        "moves": ServerMoves("a", "blue", {}),
    }
    before = store.fabrics.get("f"), compute._port.aggregates, switches._port.published
    if not isinstance(kind, Ask):
        kind = kind(**{f.name: values[f.name] for f in fields(kind)})
    one._performer._answer(kind)
    assert (store.fabrics.get("f"), compute._port.aggregates, switches._port.published) == before


# -- limits -----------------------------------------------------------------------------------


def test_limits_are_told_once_and_looked_at_again_after_the_interval():
    outside = replace(OUTSIDE, limited_by="test")
    round = replace(ROUND, outside=outside, rules=WorkerRules(limits_interval=10.0))
    shared = replace(record(State.ACTIVE, 0), slots=SlotDemand(2, 8.0))
    answers = ANSWERS | {
        AskAllocations: [shared],
        AskAllocation: shared,
        Limit: Limited(changed=("port p",), open=("server s",)),
        RecordLimits: shared,
    }
    wanted, memory = decided(limits.keep(round, LimitsMemory()), answers)
    assert wanted[0] == Limit("a", "blue", 8.0, frozenset())
    assert [(w.kind, w.repaired) for w in wanted if isinstance(w, Tell)] == [
        (Drift.RATES, False),
        (Drift.RATES, True),
    ]
    assert memory == LimitsMemory(NOW + timedelta(seconds=10), {"a": "server s"})
    assert decided(limits.keep(round, memory), answers) == ([], memory)
    later = replace(round, now=NOW + timedelta(seconds=10))
    again, _ = decided(limits.keep(later, memory), answers)
    assert Log("allocation a: server s", 20) in wanted
    assert Log("allocation a: server s", 20) not in again


# -- drift ------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [True, False])
def test_a_difference_is_told_once_and_repaired_if_that_is_wanted(repair):
    round = replace(ROUND, rules=WorkerRules(repair=repair))
    active = record(State.ACTIVE, 0, 1)
    pooled = drift.managed(FABRIC)
    answers = ANSWERS | {
        Ask.AGGREGATES: ObservedAggregates({}, pooled, {}),
        AskAllocations: [active],
        AskAllocation: active,
    }
    wanted, (memory, findings) = decided(drift.check(round, DriftMemory()), answers)
    told = Tell(Drift.HOSTS, "allocation a: nothing is handed over")
    assert wanted[0] == told
    handover = HandOver(Handover("a", "blue", ("node-0", "node-1")))
    assert (handover in wanted) is repair
    assert (Wait(active, "nothing is handed over") in wanted) is not repair
    assert len(findings) == 1
    again, _ = decided(drift.check(round, memory), answers)
    assert (told in again) is repair  # it was repaired, so this is another one


def test_a_repair_that_fails_lets_the_allocation_wait():
    active = record(State.ACTIVE, 0)
    answers = ANSWERS | {
        Ask.AGGREGATES: ObservedAggregates({}, drift.managed(FABRIC), {}),
        AskAllocations: [active],
        AskAllocation: active,
        HandOver: Unavailable("Nova is away"),
    }
    wanted, (_, findings) = decided(drift.check(ROUND, DriftMemory()), answers)
    assert Wait(active, "Nova is away") in wanted
    assert findings == ["allocation a: nothing is handed over; not repaired: Nova is away"]


def test_hosts_that_left_the_pool_go_back():
    pooled = drift.managed(FABRIC) - {"node-2"}
    answers = ANSWERS | {Ask.AGGREGATES: ObservedAggregates({}, pooled, {}), AskAllocations: []}
    wanted, _ = decided(drift.check(ROUND, DriftMemory()), answers)
    assert Pool(("node-2",)) in wanted


# -- hosts ------------------------------------------------------------------------------------


def test_a_stranger_closes_its_host_and_is_told_until_it_is_gone():
    active = record(State.ACTIVE, 0)
    seen = {"node-0": ComputeHost(servers=(Occupant("node-0", "s1", "red"),))}
    answers = ANSWERS | {
        AskAllocations: [active],
        AskHosts: seen,
        AskNearest: {},
        Ask.AGGREGATES: ObservedAggregates({}, drift.managed(FABRIC), {}),
        JudgeHosts: (HostMemory(), HostMemory()),
    }
    wanted, memory = decided(hosts.look(ROUND, HostsMemory()), answers)
    assert Close(drift.managed(FABRIC), frozenset({"node-0"})) in wanted
    assert [w.repaired for w in wanted if isinstance(w, Tell)] == [False]
    again, memory = decided(hosts.look(ROUND, memory), answers)
    assert not [w for w in again if isinstance(w, Tell)]
    gone, _ = decided(hosts.look(ROUND, memory), answers | {AskHosts: {"node-0": ComputeHost()}})
    assert [w.repaired for w in gone if isinstance(w, Tell)] == [True]


# -- life -------------------------------------------------------------------------------------


def test_hosts_are_handed_over_once_routes_are_confirmed():
    asked = record(State.ALLOCATING, 0, 1)
    active = replace(asked, state=State.ACTIVE)
    answers = ANSWERS | {Record: active}
    wanted, ended = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), answers)
    names = ("node-0", "node-1")
    assert wanted[0] == HandOver(Handover("a", "blue", names), names)
    assert (wanted[1].state, wanted[1].confirmed_by) == (State.ACTIVE, ConfirmedBy.SWITCHES)
    assert (ended.waiting, ended.idle, len(wanted)) == (None, False, 2)
    unconfirmed = ANSWERS | {Ask.APPLIED: Applied(6)}
    wanted, ended = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), unconfirmed)
    assert (wanted, ended.waiting) == ([], asked)


def test_busy_hosts_let_a_release_wait():
    leaving = record(State.RELEASING, 0)
    answers = ANSWERS | {instructions.TakeBack: HostsBusy("node-0 runs s1")}
    wanted, _ = decided(life.advance(ROUND, NOTHING_REMEMBERED, leaving), answers)
    assert wanted[0] == instructions.Fence("a")
    assert wanted[-1] == Wait(leaving, "node-0 runs s1")
    assert not [w for w in wanted if isinstance(w, HandBack)]


def test_a_bug_parks_an_allocation_after_so_many_tries():
    answers = ANSWERS | {HandOver: ZeroDivisionError("a bug")}
    for failures, kind in ((3, Wait), (4, Record)):
        asked = record(State.ALLOCATING, 0, failures=failures)
        wanted, _ = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), answers)
        assert isinstance(wanted[-1 if kind is Wait else -2], kind)
    assert wanted[-2].state is State.ERROR
