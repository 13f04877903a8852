# SPDX-License-Identifier: Apache-2.0

"""What compute hosts show is told, recorded and acted on."""

import pytest

from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import ComputeHost, Occupant
from laas_service.app.records import Drift
from laas_service.app.worker.round import LookRules
from laas_service.domain.errors import Forbidden, Unavailable
from tests.unit.app.worker.test_converger import HOSTS, World
from tests.unit.app.worker.test_drift import telling, told

GHOST = Occupant("node-1", "ghost", "red")
NAMES = HOSTS.host_names


@pytest.fixture
def world(store) -> World:
    """Project blue has node-0 and node-1; Nova shows all hosts, without servers."""
    world = World(store, looks=LookRules(interval=60.0))
    world.active("a", 0, 1)
    world.compute.hosts = {name: ComputeHost() for name in NAMES}
    look(world)
    return world


def look(world: World) -> None:
    """A round in which the hosts are looked at."""
    world.later(60)
    world.converger.run_once()


def put(world: World, *servers: Occupant) -> None:
    """Nova shows exactly these servers."""
    assert world.compute.hosts is not None
    for name in NAMES:
        there = tuple(server for server in servers if server.host == name)
        world.compute.hosts[name] = ComputeHost(servers=there)


def reasons(world: World) -> list[str]:
    return [event.reason for event in world.store.allocations.get("a").history]


def test_a_server_of_another_project_is_told_and_its_host_closed_until_it_is_gone(world):
    put(world, GHOST, Occupant("node-0", "own", "blue"))
    look(world)
    look(world)
    assert world.store.observations.drift("f") == {Drift.STRANGERS: 1}
    assert world.compute.closed == {"node-1"}
    assert reasons(world)[-1] == (
        "servers of other projects on its hosts: node-1 runs ghost of project red; "
        "these hosts accept no new server until they are gone"
    )
    put(world, Occupant("node-0", "own", "blue"))
    look(world)
    assert world.compute.closed == set()
    assert world.store.observations.repaired("f") == {Drift.STRANGERS: 1}
    assert world.compute.stopped == []


def test_a_closed_host_that_somebody_opened_is_closed_again(world):
    put(world, GHOST)
    look(world)
    world.compute.closed.clear()
    look(world)
    assert world.compute.closed == {"node-1"}
    assert world.store.observations.drift("f") == {Drift.STRANGERS: 1}


def test_a_server_of_an_unknown_project_is_a_stranger(world):
    put(world, Occupant("node-0", "ghost", None))
    look(world)
    assert "node-0 runs ghost of an unknown project" in reasons(world)[-1]
    assert world.compute.closed == {"node-0"}


def test_servers_on_free_hosts_are_told_once_the_hosts_are_pooled(world):
    world.compute.pooled.discard("node-3")
    put(world, Occupant("node-2", "x", "red"), Occupant("node-3", "y", "red"))
    look(world)
    assert world.store.observations.drift("f") == {Drift.STRANGERS: 1}
    assert world.compute.closed == set(), "the pool accepts nobody anyway"


def test_without_repair_it_is_only_told(store):
    world = World(store, repair=False)
    world.active("a", 0, 1)
    world.compute.hosts = {}
    put(world, GHOST)
    look(world)
    assert world.store.observations.drift("f") == {Drift.STRANGERS: 1}
    assert world.compute.closed == set()
    assert reasons(world)[-1].endswith("ghost of project red")


def test_strangers_are_stopped_only_where_an_administrator_says_so(store):
    world = World(store, looks=LookRules(stop_strangers=True))
    world.active("a", 0, 1)
    world.compute.hosts = {}
    put(world, GHOST, Occupant("node-0", "own", "blue"))
    world.compute.faults.before["stop"] = Forbidden("not allowed")
    look(world)
    assert world.compute.stopped == []
    del world.compute.faults.before["stop"]
    look(world)
    assert world.compute.stopped == ["ghost"]


def test_a_host_that_changes_its_owner_during_a_look_is_not_judged(world):
    put(world, Occupant("node-1", "own", "blue"))
    real = world.compute.look

    def slow(hosts):
        world.compute.look = real  # the release looks, too
        seen = real(hosts)
        world.release("a")
        world.converger.step("a")
        world.allocate("b", 0, 1, project="green")
        return seen

    world.compute.look = slow
    look(world)
    assert world.store.observations.drift("f") == {}


def test_strangers_are_notified_of(store):
    world = World(telling(store))
    world.active("a", 0, 1)
    world.compute.hosts = {}
    told(world)
    put(world, GHOST)
    look(world)
    put(world)
    look(world)
    assert told(world) == [
        ("isolated_network.fabric.drift.found", "strangers"),
        ("isolated_network.fabric.drift.repaired", "strangers"),
    ]


# -- states of hosts ------------------------------------------------------------------

DISABLED = ComputeHost(enabled=False, reason="memory")


def show(world: World, **changed: ComputeHost | None) -> None:
    """Nova shows these hosts so (None: not at all), and all others well."""
    hosts = {name: ComputeHost() for name in NAMES}
    named = {name.replace("_", "-"): host for name, host in changed.items()}
    world.compute.hosts = {n: h for n, h in (hosts | named).items() if h is not None}


def word(world: World, host: int):
    words = world.store.components.words("f").hosts.get(host, ())
    return [(said.source.value, said.state, said.evidence) for said in words]


def test_a_host_that_nova_disables_gets_no_new_owner_until_it_is_enabled(world):
    show(world, node_2=DISABLED)
    look(world)
    assert word(world, 2) == [], "not before the hold-down is over"
    look(world)
    look(world)
    assert word(world, 2) == [("nova", "drained", "disabled in Nova: memory")]
    assert 2 in world.store.fabrics.ledger("f")[0].drained_hosts
    show(world)
    look(world)
    assert word(world, 2) == []
    assert 2 not in world.store.fabrics.ledger("f")[0].drained_hosts


def test_an_outage_of_the_broker_is_one_alarm_and_withholds_nobody(store):
    world = World(telling(store))
    show(world, **{name.replace("-", "_"): ComputeHost(up=False) for name in NAMES})
    for _ in range(4):
        look(world)
    assert not world.store.fabrics.ledger("f")[0].drained_hosts
    show(world)
    look(world)
    assert told(world) == [
        ("isolated_network.fabric.hosts.alarm", None),
        ("isolated_network.fabric.hosts.cleared", None),
    ]


def test_an_allocation_waits_for_a_host_with_a_problem_and_is_then_placed_anew(world):
    show(world, node_2=None)
    look(world)
    world.allocate("b", 2, 3, project="red")
    world.converger.run_once()
    assert world.state("b") is State.ALLOCATING
    assert "node-2 is unknown in Nova" in world.error("b")
    assert "b" not in world.compute.aggregates
    look(world)
    look(world)
    assert world.state("b") is State.QUEUED
    assert world.owned() == {"a"}
    assert world.switches.tenants("f") == {"a"}
    history = [event.reason for event in world.store.allocations.get("b").history]
    assert "placed anew, because hosts cannot be used: node-2 (unknown in Nova)" in history[-2]
    assert history[-1].endswith("waits for other hosts")


def test_a_host_that_goes_after_the_last_look_is_not_handed_over(world):
    """It is looked at when it is to be handed over, so no look has to see that it is back."""
    world.allocate("b", 2, 3, project="red")
    show(world, node_2=ComputeHost(enabled=False, reason="memory"))
    world.converger.run_once()
    assert world.state("b") is State.ALLOCATING
    assert world.error("b") == (
        "hosts cannot be handed over now: node-2 is disabled in Nova: memory"
    )
    assert "b" not in world.compute.aggregates
    show(world)
    world.later(30)
    world.converger.run_once()
    assert (world.state("b"), world.error("b")) == (State.ACTIVE, "")


def test_an_allocation_that_is_active_keeps_a_host_that_goes_down(world):
    show(world, node_0=ComputeHost(up=False))
    for _ in range(4):
        look(world)
    assert word(world, 0) == [("nova", "drained", "down in Nova")]
    assert world.state("a") is State.ACTIVE


def test_a_host_whose_server_vanished_while_it_was_down_gets_no_new_owner(world):
    """The server is deleted and the host released between two looks."""
    put(world, Occupant("node-0", "own", "blue"))
    look(world)
    show(world, node_0=ComputeHost(up=False))
    world.release("a")
    world.converger.step("a")
    assert world.state("a") is State.RELEASED
    assert 0 in world.store.fabrics.ledger("f")[0].drained_hosts
    show(world)
    for _ in range(4):
        look(world)
    assert 0 in world.store.fabrics.ledger("f")[0].drained_hosts
    world.store.faults.release_quarantine("f", "node-0")
    assert 0 not in world.store.fabrics.ledger("f")[0].drained_hosts


def test_a_host_that_is_released_while_it_is_down_gets_no_new_owner(world):
    """Its server came and was deleted after the last look, so nobody has seen it."""
    show(world, node_0=ComputeHost(up=False))
    world.release("a")
    world.converger.step("a")
    assert world.state("a") is State.RELEASED
    show(world)
    for _ in range(4):
        look(world)
    assert 0 in world.store.fabrics.ledger("f")[0].drained_hosts
    world.store.faults.release_quarantine("f", "node-0")
    look(world)
    assert 0 not in world.store.fabrics.ledger("f")[0].drained_hosts


def test_no_claim_is_freed_before_the_hosts_were_looked_at(world):
    world.compute.faults.before["look"] = Unavailable("Nova is away")
    world.release("a")
    world.converger.step("a")
    assert world.state("a") is State.RELEASING
    assert "Nova is away" in world.error("a")
