# SPDX-License-Identifier: Apache-2.0

"""Moves in which the service moves the servers: what tenants see, deadlines, ways back."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.app.worker.converger import Converger
from laas_service.domain.errors import Forbidden
from tests.functional.api.test_evacuate import consents
from tests.functional.api.test_evacuate import evacuate as evacuate
from tests.functional.api.test_replace_hosts import judged as judged
from tests.functional.api.test_replace_hosts import owned
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
    worker = Converger(
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
