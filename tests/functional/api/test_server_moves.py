# SPDX-License-Identifier: Apache-2.0

"""Moves in which the service moves the servers: what tenants see, deadlines, ways back."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from laas_service.domain.errors import Forbidden
from tests.convergers import Convergers
from tests.functional.api.test_evacuate import consents
from tests.functional.api.test_evacuate import evacuate as evacuate
from tests.functional.api.test_replace_hosts import LINKS, owned, owned_links
from tests.functional.api.test_replace_hosts import judged as judged
from tests.functional.api.test_replace_hosts import replace as replace
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import names, story
from tests.functional.api.test_resize import work as work


@pytest.fixture
def moving(client, deployment, active, evacuate):
    """An allocation that consents, with a server on the host that it is to leave."""
    path = active(2)
    shown = client.get(path).json
    host = names(shown)[0]
    consents(client, path)
    deployment.compute.servers[host] = shown["project_id"]
    return path, host


def test_the_server_goes_and_the_tenant_sees_it(client, deployment, moving, evacuate, work, judged):
    path, host = moving
    deployment.compute.slow = True
    evacuate(hosts=[host])
    work()
    waits = client.get(path).json
    (new,) = waits["joining"]
    assert (waits["changing"], waits["leaving"]) == ("leave", [host])
    assert f"servers still run on {host}" in waits["error"]
    assert f"under way: {host} to {new}" in waits["error"]
    assert deployment.compute.accepts(host) == set()
    assert sorted(deployment.compute.servers) == [host]
    judged()
    deployment.compute.slow = False
    work()
    after = client.get(path).json
    assert (after["changing"], after["error"]) == (None, None)
    assert list(deployment.compute.servers) == [new]
    assert host not in owned(client, path)
    told = story(client, path)
    assert "empty these once" not in "".join(told)
    places = [
        next(number for number, line in enumerate(told) if words in line)
        for words in (
            "handed over; the service moves the servers of 1 hosts to them, and they stop",
            f"moved: {host} to {new}",
            "1 host taken back",
        )
    ]
    assert places == sorted(places)


def test_a_server_that_cannot_move_holds_both_until_the_deadline(
    client, deployment, moving, evacuate, work, judged
):
    path, host = moving
    deployment.compute.broken.add(host)
    before = names(client.get(path).json)
    evacuate(hosts=[host])
    work()
    stuck = client.get(path).json
    assert f"cannot be moved by the service: server on {host}" in stuck["error"]
    assert stuck["error"] in story(client, path)
    assert owned(client, path) == sorted([*before, *stuck["joining"]])
    deployment.slept += 4000
    work()
    after = client.get(path).json
    assert (names(after), after["changing"]) == (before, None)
    assert list(deployment.compute.servers) == [host]
    assert any("the time to empty its old hosts is over" in line for line in story(client, path))


def test_a_replacement_that_turns_back_brings_its_servers_back(
    client, deployment, moving, replace, work, judged
):
    path, host = moving
    before = names(client.get(path).json)
    deployment.compute.slow = True
    replace(path, hosts=[host])
    work()
    assert deployment.compute.moving
    replace(path, turn_back=True)
    deployment.compute.slow = False
    work()
    after = client.get(path).json
    assert (names(after), after["changing"]) == (before, None)
    assert (list(deployment.compute.servers), deployment.compute.moving) == ([host], {})


def test_who_withdraws_consent_moves_the_rest_alone(client, deployment, moving, replace, work):
    path, host = moving
    deployment.compute.broken.add(host)
    replace(path, hosts=[host])
    work()
    client.patch(path, json={"movable": "never"})
    deployment.compute.broken.clear()
    work()
    assert "delete or move them" in client.get(path).json["error"]
    assert list(deployment.compute.servers) == [host]
    del deployment.compute.servers[host]
    work()
    assert client.get(path).json["changing"] is None


def test_without_the_right_the_tenant_is_told_and_moves_alone(
    client, deployment, moving, replace, work
):
    path, host = moving
    wrong = Forbidden("not allowed to migrate server s: give the service's user a role with x")
    deployment.compute.faults.before["move_servers"] = wrong
    replace(path, hosts=[host])
    work()
    error = client.get(path).json["error"]
    assert f"cannot be moved by the service: {wrong}; delete or move them" in error
    del deployment.compute.servers[host]
    work()
    assert client.get(path).json["changing"] is None


@pytest.mark.parametrize("live", [False, True])
def test_servers_that_may_not_stop_move_where_their_ports_can_migrate_live(
    deployment, moving, live
):
    path, host = moving
    client = deployment.client(live_ports=live)
    client.patch(path, json={"movable": "live"})
    answer = client.post("/v1/fabrics/main/evacuate", json={"hosts": [host], "dry_run": True})
    whys = [staying["why"] for staying in answer.json["staying"]]
    assert whys == ([] if live else ["movable is live"])
    client.post(f"{path}/replace-hosts", json={"hosts": [host]})
    worker = Convergers(
        deployment.store,
        deployment.compute,
        deployment.subnet_manager,
        now=deployment.clock,
        chance=Random(1),
        live_ports=live,
    )
    for _ in range(8):
        deployment.slept += 60
        worker.run_once()
    asked = [moves for verb, moves in deployment.compute.faults.calls if verb == "move_servers"]
    assert [moves.live for moves in asked[:1]] == ([True] if live else [])
    assert (list(deployment.compute.servers) == [host]) is not live
    assert client.get(path).json["changing"] == (None if live else "leave")


@pytest.fixture
def apart(client, deployment, active):
    """An allocation on a leaf of its own, with a server; no free links lead to other leaves."""
    path = active(4)
    shown, held = client.get(path).json, owned_links(client, path)
    for link in client.get(LINKS).json["links"]:
        if link["id"] not in held:
            failed = client.patch(f"{LINKS}/{link['id']}", json={"state": "failed"})
            assert failed.status_code == 200
    deployment.compute.servers[names(shown)[0]] = shown["project_id"]
    return path, names(shown)


def test_where_nothing_joins_the_hosts_servers_stop_move_and_start(
    client, deployment, apart, evacuate, work, judged
):
    path, hosts = apart
    consents(client, path)
    dry = client.post("/v1/fabrics/main/evacuate", json={"hosts": hosts, "dry_run": True})
    assert [move["bridge"] for move in dry.json["moves"]] == [None]
    evacuate(hosts=hosts)
    compute, seen = deployment.compute, []
    moved = compute.move_servers

    def noted(moves):
        running = (compute.servers.keys() - compute.halted).intersection(hosts)
        seen.append((moves.stage.value, bool(running), client.get(path).json["changing"]))
        return moved(moves)

    compute.move_servers = noted
    work()
    after = client.get(path).json
    assert (after["changing"], after["error"]) == (None, None)
    assert set(compute.servers) <= set(names(after))
    assert set(names(after)).isdisjoint(hosts)
    assert compute.halted == set(), "it runs again"
    assert [stage for stage, _, _ in seen[:2]] == ["stop", "stop"]
    assert seen[0] == ("stop", True, "stop")
    assert all(not running for stage, running, _ in seen if stage == "move")
    assert [phase for stage, _, phase in seen if stage == "start"] == ["leave", "leave"]
    told = "".join(story(client, path))
    assert "no free links join old and new hosts, so servers stop before they leave" in told
    assert "no server runs on the 4 hosts that leave; the routes change" in told


def test_an_owner_who_does_not_consent_stops_its_servers_itself(
    client, deployment, apart, replace, work, judged
):
    path, hosts = apart
    compute = deployment.compute
    assert replace(path, hosts=hosts).json["changing"] == "stop"
    work()
    waits = client.get(path).json
    assert waits["changing"] == "stop"
    assert (
        waits["error"] == f"servers run on hosts that the allocation leaves: server on {hosts[0]}"
    )
    assert compute.halted == set()
    assert not any(compute.accepts(host) for host in (*hosts, *waits["joining"]))
    compute.idle.add(hosts[0])
    work()
    assert client.get(path).json["changing"] == "leave"
    del compute.servers[hosts[0]]
    work()
    assert client.get(path).json["changing"] is None


@pytest.mark.parametrize("slow", [False, True])
def test_a_stopped_move_turns_back_and_its_servers_start_again(
    client, deployment, apart, replace, work, judged, slow
):
    path, hosts = apart
    consents(client, path)
    deployment.compute.slow = slow
    deployment.compute.broken = {hosts[0]} if not slow else set()
    replace(path, hosts=hosts)
    work()
    assert client.get(path).json["changing"] == ("leave" if slow else "stop")
    replace(path, turn_back=True)
    deployment.compute.broken.clear()
    deployment.compute.slow = False
    work()
    after = client.get(path).json
    assert (names(after), after["changing"], after["error"]) == (hosts, None, None)
    assert list(deployment.compute.servers) == [hosts[0]]
    assert (deployment.compute.halted, deployment.compute.moving) == (set(), {})


def test_servers_that_may_not_stop_do_not_move_where_nothing_joins_the_hosts(
    deployment, apart, work
):
    path, hosts = apart
    client = deployment.client(live_ports=True)
    client.patch(path, json={"movable": "live"})
    assert client.post("/v1/fabrics/main/evacuate", json={"hosts": hosts}).status_code == 202
    work()
    after = client.get(path).json
    assert (names(after), after["changing"], after["announced"]) == (hosts, None, None)
    assert any("its servers may not stop, and no free links" in x for x in story(client, path))


class Killed(BaseException):
    """The worker dies."""


def at_phase(deployment, phase):
    """Let a worker act until the change has reached a phase, and no further."""

    def at(step):
        if step == f"after commit: {phase}":
            raise Killed

    deployment.store._transactions.at = at
    worker = Convergers(
        deployment.store,
        deployment.compute,
        deployment.subnet_manager,
        now=deployment.clock,
        chance=Random(1),
    )
    rounds = 0
    with suppress(Killed):
        while rounds < 4:
            worker.run_once()
            deployment.slept += 60
            rounds += 1
    assert rounds < 4, "it died"
    deployment.store._transactions.at = lambda step: None


@pytest.mark.parametrize("phase", ["prepare", "switch"])
def test_a_server_that_its_owner_starts_again_is_stopped_before_routes_change(
    client, deployment, apart, replace, work, judged, phase
):
    path, hosts = apart
    compute = deployment.compute
    compute.idle.add(hosts[0])
    replace(path, hosts=hosts)
    at_phase(deployment, phase)
    compute.idle.clear()
    compute.broken = {hosts[0]}
    work()
    waits = client.get(path).json
    assert waits["changing"] == phase, "the routes have not changed under it"
    assert waits["error"] == (
        f"servers run on hosts that the allocation leaves: server on {hosts[0]}"
    )
    compute.broken.clear()
    work()
    assert compute.idle == {hosts[0]}, "it was stopped again"
    assert compute.halted == set(), "and not locked: its owner has to delete it"
    assert client.get(path).json["changing"] == "leave"
    assert "servers were started and stop again: server on" in "".join(story(client, path))
    del compute.servers[hosts[0]]
    work()
    assert client.get(path).json["changing"] is None


def test_a_server_started_again_on_an_old_host_stops_while_others_run_on_new_ones(
    client, deployment, apart, replace, work, judged
):
    path, hosts = apart
    compute = deployment.compute
    compute.idle.add(hosts[0])
    replace(path, hosts=hosts)
    work()
    shown = client.get(path).json
    assert shown["changing"] == "leave"
    compute.idle.clear()
    work()
    assert compute.idle == set(), "its owner has to stop it"
    compute.servers[shown["joining"][0]] = shown["project_id"]
    work()
    assert compute.idle == {hosts[0]}
    assert compute.halted == set()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("phase", ["prepare", "leave"])
def test_a_release_unlocks_servers_that_stopped_for_a_move(
    client, deployment, apart, replace, work, judged, phase, force
):
    """They stay stopped. With force, not before the network is cut."""
    path, hosts = apart
    compute = deployment.compute
    consents(client, path)
    replace(path, hosts=hosts)
    if phase == "leave":
        compute.slow = True
        work()
        assert client.get(path).json["changing"] == "leave"
    else:
        at_phase(deployment, phase)
    assert compute.halted
    server = compute.servers.pop(hosts[0])
    moving, compute.moving = compute.moving, {}
    if force:
        compute.servers[hosts[0]], compute.moving = server, moving
        assert client.delete(f"{path}?force=true").status_code == 202
    else:  # the server is there again, because Nova did not answer in time when it was asked
        assert client.delete(path).status_code == 202
        compute.servers[hosts[0]], compute.moving = server, moving
    locked: list[set[str]] = []
    moved = compute.move_servers

    def noted(moves):
        if moves.stage.value == "unlock":
            id = client.get(path).json["id"]
            assert (id in deployment.subnet_manager.tenants("main")) is not force
            locked.append(set(compute.halted))
        return moved(moves)

    compute.move_servers = noted
    work()
    assert locked[0] == {hosts[0]}
    assert compute.halted == set()
    assert compute.idle >= {hosts[0]}, "it stays stopped"
    assert client.get(path).json["state"] == "releasing"
    compute.servers.clear()
    compute.moving.clear()
    work()
    assert client.get(path).json["state"] == "released"


@pytest.mark.parametrize("force", [False, True])
def test_a_release_during_a_move_stops_servers_or_cuts_the_network(
    client, deployment, apart, replace, work, judged, force
):
    """Where nothing joins old and new hosts; a forced release waits for no server."""
    path, hosts = apart
    compute = deployment.compute
    consents(client, path)
    replace(path, hosts=hosts)
    at_phase(deployment, "prepare")
    id, server = client.get(path).json["id"], compute.servers.pop(hosts[0])
    assert client.delete(path).status_code == 202
    compute.servers[hosts[0]] = server
    compute.halted.clear()
    compute.broken = {hosts[0]}
    if force:
        assert client.delete(f"{path}?force=true").status_code == 202
    work()
    shown = client.get(path).json
    assert shown["state"] == "releasing"
    assert (id in deployment.subnet_manager.tenants("main")) is not force
    if not force:
        wanted = f"servers run on hosts that the allocation leaves: server on {hosts[0]}"
        assert shown["error"] == wanted
        compute.broken.clear()
        work()
        assert compute.idle == {hosts[0]}
    compute.servers.clear()
    work()
    assert client.get(path).json["state"] == "released"
