# SPDX-License-Identifier: Apache-2.0

"""Decisions of a worker as values: from a round to instructions; no question changes anything."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from laas_service.app.handovers import managed_hosts
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import (
    Compute,
    ComputeHost,
    ComputeReader,
    Handover,
    ObservedAggregates,
    Occupant,
    ServerMoves,
)
from laas_service.app.ports.rate_limits import Limited
from laas_service.app.ports.subnet_manager import SubnetManager, SubnetManagerReader
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, Observation
from laas_service.app.worker import decide
from laas_service.app.worker import instructions as do
from laas_service.app.worker.decide import drift, hosts, life, rate_limits
from laas_service.app.worker.instructions import Call, Kind, Log, Verb
from laas_service.app.worker.memory import (
    NOTHING_REMEMBERED,
    DriftMemory,
    HostsMemory,
    RateLimitsMemory,
)
from laas_service.app.worker.round import Outside, Round, RoutesSeen, WorkerRules
from laas_service.domain.allocation import Allocation, GroupShare, SlotDemand
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.errors import HostsBusy, LeaseLost, Unavailable
from laas_service.domain.faults.interpretation import Cabling
from laas_service.messages import Applied, ConfirmedBy
from tests.convergers import converger
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.app.worker.test_converger import HOSTS, SMALL

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FABRIC = FabricRecord("f", SMALL, HOSTS, 7, NOW, routes_generation=7)
OUTSIDE = Outside(scripted=False, claims_slots=False)
ROUND = Round(
    now=NOW,
    fabric=FABRIC,
    observation=Observation(),
    cabling=Cabling(HOSTS),
    outside=OUTSIDE,
)
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
    decision: do.Steps[Any], answers: Mapping[Verb[..., Any], Any]
) -> tuple[list[Any], Any]:
    """What a decision asks for besides questions, and its result.

    ``answers`` by what is asked for: a value, a function of the instruction, or an error.
    """
    wanted, answer = [], None
    try:
        instruction = next(decision)
        while True:
            verb = instruction.verb if isinstance(instruction, Call) else None
            if verb is None or verb.kind is not Kind.QUESTION:
                wanted.append(instruction)
            answer = answers.get(verb) if verb is not None else None
            if isinstance(answer, Exception):
                instruction = decision.throw(answer)
                continue
            instruction = decision.send(answer(instruction) if callable(answer) else answer)
    except StopIteration as ended:
        return [w for w in wanted if not isinstance(w, do.ActFor)], ended.value


def calls(wanted: list[Any], *verbs: Verb[..., Any]) -> list[Call]:
    """Those instructions that ask for one of these."""
    return [w for w in wanted if isinstance(w, Call) and w.verb in verbs]


ANSWERS: dict[Verb[..., Any], Any] = {
    do.time: NOW,
    do.seconds: 0.0,
    do.can_be_confirmed: True,
    do.applied: APPLIED,
    do.spent: {},
    do.host_memory: HostMemory(),
    do.routes_seen: RoutesSeen(APPLIED, lost=False, ever_applied=True),
    do.other_hosts: frozenset(),
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
    """A port that only answers: what its ``reader`` lacks acts, and fails."""

    def __init__(self, port: Any, reader: type) -> None:
        self._port, self._questions = port, {*dir(reader), *reader.__annotations__}

    def __getattr__(self, name: str) -> Any:
        assert name in self._questions, f"a question calls {name}"
        return getattr(self._port, name)


COMMANDS = {
    name for port in (Compute, SubnetManager) for name in vars(port) if not name.startswith("_")
}
"""What these ports have beyond their readers."""


class Acting:
    """Has every method, and none may be called."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: pytest.fail(f"{name} is called")


VERBS = {name: value for name, value in vars(do).items() if isinstance(value, Verb)}
QUESTIONS = [name for name, verb in VERBS.items() if verb.kind is Kind.QUESTION]


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_question_acts(store, name):
    """Each question that a decision can ask, put to ports of which nothing may act."""
    store.fabrics.add("f", SMALL, HOSTS)
    compute = Watched(FakeCompute(), ComputeReader)
    switches = Watched(FakeSubnetManager(), SubnetManagerReader)
    options = {"now": lambda: NOW, "chance": None}
    one = converger(store, compute, switches, "f", **options)
    one._read()
    values = {
        "id": "a",
        "states": [State.ACTIVE],
        "generation": 1,
        "fabric": "f",
        "wanted": frozenset(),
        "hosts": (),
        "handover": Handover("a", "blue", ()),
        "moves": ServerMoves("a", "blue", {}),
    }
    before = store.fabrics.get("f"), compute._port.aggregates, switches._port.published
    verb = VERBS[name]
    _, *parameters = inspect.signature(verb.method).parameters
    one._performer.answer(verb.asked(*(values[parameter] for parameter in parameters)))
    assert (store.fabrics.get("f"), compute._port.aggregates, switches._port.published) == before


def test_every_effect_is_named_and_begins_with_a_check_of_the_lease(store):
    """Whatever acts outside is called within ``Hooks.effect``, even if the lease is lost."""
    store.fabrics.add("f", SMALL, HOSTS)
    effects = [verb for verb in VERBS.values() if verb.kind is Kind.EFFECT]
    assert {verb.name for verb in effects} >= COMMANDS - {"publish"}
    calls: list[str] = []

    def refuse() -> None:
        calls.append("asked")
        raise LeaseLost("taken by another worker")

    options = {"now": lambda: NOW, "chance": None, "before_effect": refuse}
    one = converger(store, FakeCompute(), FakeSubnetManager(), "f", **options)
    one._performer._objects = dict.fromkeys(one._performer._objects, Acting())
    for verb in effects:
        with pytest.raises(LeaseLost):
            one._performer.answer(verb.asked())
    assert len(calls) == len(effects)


# -- limits -----------------------------------------------------------------------------------


def test_limits_are_told_once_and_looked_at_again_after_the_interval():
    outside = replace(OUTSIDE, limited_by="test")
    round = replace(ROUND, outside=outside, rules=WorkerRules(rate_limits_interval=10.0))
    shared = replace(record(State.ACTIVE, 0), slots=SlotDemand(2, 8.0))
    answers = ANSWERS | {
        do.allocations: [shared],
        do.allocation: shared,
        do.limit: Limited(changed=("port p",), open=("server s",)),
        do.note_limits: shared,
    }
    wanted, memory = decided(rate_limits.keep(round, RateLimitsMemory()), answers)
    assert wanted[0] == do.limit.asked("a", "blue", 8.0, frozenset())
    told = calls(wanted, do.note_drift, do.note_repaired)
    assert [w.verb for w in told] == [do.note_drift, do.note_repaired]
    assert {w.arguments[1] for w in told} == {Drift.RATES}
    assert memory == RateLimitsMemory(NOW + timedelta(seconds=10), {"a": "server s"})
    assert decided(rate_limits.keep(round, memory), answers) == ([], memory)
    later = replace(round, now=NOW + timedelta(seconds=10))
    again, _ = decided(rate_limits.keep(later, memory), answers)
    assert Log("allocation a: server s", 20) in wanted
    assert Log("allocation a: server s", 20) not in again


# -- drift ------------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [True, False])
def test_a_difference_is_told_once_and_repaired_if_that_is_wanted(repair):
    round = replace(ROUND, rules=WorkerRules(repair=repair))
    active = record(State.ACTIVE, 0, 1)
    pooled = managed_hosts(FABRIC)
    answers = ANSWERS | {
        do.aggregates: ObservedAggregates({}, pooled, {}),
        do.allocations: [active],
        do.allocation: active,
    }
    wanted, (memory, findings) = decided(drift.check(round, DriftMemory()), answers)
    told = do.note_drift.asked("f", Drift.HOSTS, "allocation a: nothing is handed over")
    assert wanted[0] == told
    handover = do.hand_over.asked(Handover("a", "blue", ("node-0", "node-1")))
    assert (handover in wanted) is repair
    assert (do.wait.asked(active, "nothing is handed over") in wanted) is not repair
    assert len(findings) == 1
    again, _ = decided(drift.check(round, memory), answers)
    assert (told in again) is repair  # it was repaired, so this is another one


def test_a_repair_that_fails_lets_the_allocation_wait():
    active = record(State.ACTIVE, 0)
    answers = ANSWERS | {
        do.aggregates: ObservedAggregates({}, managed_hosts(FABRIC), {}),
        do.allocations: [active],
        do.allocation: active,
        do.hand_over: Unavailable("Nova is away"),
    }
    wanted, (_, findings) = decided(drift.check(ROUND, DriftMemory()), answers)
    assert do.wait.asked(active, "Nova is away") in wanted
    assert findings == ["allocation a: nothing is handed over; not repaired: Nova is away"]


def test_hosts_that_left_the_pool_go_back():
    pooled = managed_hosts(FABRIC) - {"node-2"}
    answers = ANSWERS | {do.aggregates: ObservedAggregates({}, pooled, {}), do.allocations: []}
    wanted, _ = decided(drift.check(ROUND, DriftMemory()), answers)
    assert do.pool.asked(("node-2",)) in wanted


# -- hosts ------------------------------------------------------------------------------------


def test_a_stranger_closes_its_host_and_is_told_until_it_is_gone():
    active = record(State.ACTIVE, 0)
    seen = {"node-0": ComputeHost(servers=(Occupant("node-0", "s1", "red"),))}
    answers = ANSWERS | {
        do.allocations: [active],
        do.look: seen,
        do.nearest: {},
        do.aggregates: ObservedAggregates({}, managed_hosts(FABRIC), {}),
        do.judge_hosts: (HostMemory(), HostMemory()),
    }
    wanted, memory = decided(hosts.look(ROUND, HostsMemory()), answers)
    assert do.close.asked(managed_hosts(FABRIC), frozenset({"node-0"})) in wanted
    assert len(calls(wanted, do.note_drift)) == 1
    again, memory = decided(hosts.look(ROUND, memory), answers)
    assert not calls(again, do.note_drift, do.note_repaired)
    gone, _ = decided(hosts.look(ROUND, memory), answers | {do.look: {"node-0": ComputeHost()}})
    assert len(calls(gone, do.note_repaired)) == 1


# -- life -------------------------------------------------------------------------------------


def test_hosts_are_handed_over_once_routes_are_confirmed():
    asked = record(State.ALLOCATING, 0, 1)
    active = replace(asked, state=State.ACTIVE)
    answers = ANSWERS | {do.transition: active}
    wanted, ended = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), answers)
    names = ("node-0", "node-1")
    assert wanted[0] == do.hand_over.asked(Handover("a", "blue", names), names)
    assert wanted[1].arguments[1] is State.ACTIVE
    confirmed = wanted[1].named["confirmed"]
    assert (confirmed.by, confirmed.routes.generation) == (ConfirmedBy.SWITCHES, 7)
    assert (ended.waiting, ended.idle, len(wanted)) == (None, False, 2)
    unconfirmed = ANSWERS | {do.applied: Applied(6)}
    wanted, ended = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), unconfirmed)
    assert (wanted, ended.waiting) == ([], asked)


def test_busy_hosts_let_a_release_wait():
    leaving = record(State.RELEASING, 0)
    answers = ANSWERS | {do.take_back: HostsBusy("node-0 runs s1")}
    wanted, _ = decided(life.advance(ROUND, NOTHING_REMEMBERED, leaving), answers)
    assert wanted[0] == do.fence.asked("a")
    assert wanted[-1] == do.wait.asked(leaving, "node-0 runs s1")
    assert not calls(wanted, do.hand_back)


def test_a_bug_parks_an_allocation_after_so_many_tries():
    answers = ANSWERS | {do.hand_over: ZeroDivisionError("a bug")}
    for failures, verb in ((3, do.wait), (4, do.transition)):
        asked = record(State.ALLOCATING, 0, failures=failures)
        wanted, _ = decided(life.advance(ROUND, NOTHING_REMEMBERED, asked), answers)
        assert wanted[-1 if verb is do.wait else -2].verb is verb
    assert wanted[-2].arguments[1] is State.ERROR
