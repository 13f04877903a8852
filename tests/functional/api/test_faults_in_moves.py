# SPDX-License-Identifier: Apache-2.0

"""Faults while a placement changes: what turns back, what is told, and what is repaired later."""

from __future__ import annotations

import pytest

from tests.functional.api.test_make_room import ROOM, WANTED, consents
from tests.functional.api.test_make_room import crowded as crowded
from tests.functional.api.test_repair import say
from tests.functional.api.test_repair import spread as spread
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import names, story
from tests.functional.api.test_resize import work as work


@pytest.fixture
def preparing(client, deployment, active, work):
    """An allocation of two hosts that gets six, whose new routes are not confirmed yet."""
    path = active(2)
    before = client.get(path).json
    deployment.subnet_manager.at_once = False
    grown = client.patch(path, json={"hosts": 6})
    assert grown.status_code == 202, grown.text
    work()
    shown = client.get(path).json
    assert shown["changing"] == "prepare"
    return path, before, shown


def later(deployment, work):
    """The subnet manager goes on, and so does the worker."""
    deployment.subnet_manager.at_once = True
    deployment.subnet_manager.apply()
    work()


def test_a_change_does_not_go_on_to_a_link_that_has_failed(client, deployment, preparing, work):
    path, before, shown = preparing
    (link, *_) = sorted(set(shown["links"]) - set(before["links"]))
    say(client, "failed", link)
    later(deployment, work)
    after = client.get(path).json
    assert (names(after), after["links"], after["changing"]) == (
        names(before),
        before["links"],
        None,
    )
    assert after["degraded"] is None
    assert any(f"link {link} failed" in line for line in story(client, path))
    assert deployment.compute.accepts(shown["joining"][0]) == set()


def test_a_change_does_not_go_on_to_a_host_that_has_failed(client, deployment, preparing, work):
    path, before, shown = preparing
    failed = client.patch(f"/v1/fabrics/main/hosts/{shown['joining'][0]}", json={"state": "failed"})
    assert failed.status_code == 200
    later(deployment, work)
    after = client.get(path).json
    assert (names(after), after["changing"]) == (names(before), None)
    assert any("turns back" in line for line in story(client, path))


def test_a_repair_whose_new_links_fail_takes_others(client, deployment, spread, work):
    path = spread
    work()
    old = client.get(path).json["links"]
    assert old
    deployment.subnet_manager.at_once = False
    say(client, "failed", old[0])
    work()
    repairing = client.get(path).json
    assert repairing["changing"] == "prepare"
    taken = sorted(set(repairing["links"]) - set(old))
    say(client, "failed", taken[0])
    later(deployment, work)
    later(deployment, work)
    after = client.get(path).json
    assert (after["changing"], after["degraded"]) == (None, None)
    assert {old[0], taken[0]}.isdisjoint(after["links"])


def test_a_link_that_fails_while_servers_leave_is_replaced(client, deployment, spread, work):
    path = spread
    work()
    before = client.get(path).json
    busy = names(before)[-1:]
    deployment.compute.servers |= dict.fromkeys(busy, before["project_id"])
    answer = client.post(f"{path}/replace-hosts", json={"hosts": busy})
    assert answer.status_code == 202, answer.text
    work()
    leaving = client.get(path).json
    assert leaving["changing"] == "leave"
    failed = leaving["links"][0]
    say(client, "failed", failed)
    work()
    mended = client.get(path).json
    assert (mended["changing"], mended["degraded"]) == ("leave", None)
    assert failed not in mended["links"]
    assert (mended["joining"], mended["leaving"]) == (leaving["joining"], leaving["leaving"])
    told = [line for line in story(client, path) if "in place of failed ones" in line]
    assert len(told) == 2, "laid, then used"
    owners = client.get("/v1/fabrics/main/links").json["links"]
    assert [link["owner"] for link in owners if link["id"] == failed] == [None]
    for name in busy:
        del deployment.compute.servers[name]
    work()
    after = client.get(path).json
    assert (after["changing"], after["degraded"], after["error"]) == (None, None, None)
    assert failed not in after["links"]


def test_repair_says_that_it_waits_for_the_hosts_to_change(client, deployment, spread, work):
    path = spread
    work()
    before = client.get(path).json
    deployment.subnet_manager.at_once = False
    answer = client.post(f"{path}/replace-hosts", json={"hosts": names(before)[-1:]})
    assert answer.status_code == 202, answer.text
    work()
    assert client.get(path).json["changing"] == "prepare"
    say(client, "failed", before["links"][0])
    answer = client.post(f"{path}/repair")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    assert "(step 'prepare')" in answer.json["detail"]
    assert client.get(path).json["degraded"]["links"] == [before["links"][0]]
    later(deployment, work)
    later(deployment, work)
    after = client.get(path).json
    assert (after["changing"], after["degraded"]) == (None, None)


def test_a_broken_bridge_is_told(client, deployment, crowded, work):
    for number, path in enumerate(crowded):
        consents(client, path, movable="restart" if number == 0 else "never")
    before = client.get(crowded[0]).json
    for name in names(before):
        deployment.compute.servers[name] = before["project_id"]
        deployment.compute.broken.add(name)
    assert client.post(ROOM, json=WANTED).status_code == 202
    work()
    moving = client.get(crowded[0]).json
    assert moving["changing"] == "leave"
    assert moving["bridge"]
    say(client, "failed", moving["bridge"][0])
    told = client.get(crowded[0]).json["degraded"]
    assert told["links"] == [moving["bridge"][0]]
    assert told["apart"], "old and new hosts do not reach each other"


@pytest.fixture
def leave_busy(client, deployment, active, work):
    """An allocation whose change waits in ``leave`` for servers on a host; its path, that host."""

    def change(began):
        path = active(4)
        project = client.get(path).json["project_id"]
        busy = names(client.get(path).json)[-1]
        assert began(path, busy).status_code == 202
        deployment.compute.servers[busy] = project
        work()
        assert client.get(path).json["changing"] == "leave"
        return path, busy

    return change


@pytest.fixture
def after(client, deployment, work):
    """Let the clocks of the database and of workers go on; let a worker take all steps."""

    def run(seconds):
        deployment.slept += seconds
        work()

    return run


def test_a_smaller_size_turns_back_when_its_hosts_are_not_left(client, leave_busy, after):
    path, busy = leave_busy(
        lambda path, busy: client.patch(path, json={"hosts": 3, "give_back": [busy]})
    )
    after(600)
    assert client.get(path).json["changing"] == "leave"
    after(3600)
    shown = client.get(path).json
    assert (shown["changing"], len(names(shown)), shown["error"]) == (None, 4, None)
    assert busy in names(shown)
    assert any("the time to empty its old hosts is over" in line for line in story(client, path))


def test_other_hosts_turn_back_after_the_notice_and_an_hour(client, leave_busy, after):
    def began(path, busy):
        consents(client, path, movable="never", notice=7200)
        return client.post(f"{path}/replace-hosts", json={"hosts": [busy]})

    path, busy = leave_busy(began)
    after(3600)
    assert client.get(path).json["changing"] == "leave", "its notice is two hours"
    after(7200)
    assert client.get(path).json["changing"] is None
    assert busy in names(client.get(path).json)


def test_what_has_moved_in_part_is_held_and_alarmed(client, deployment, leave_busy, after):
    path, busy = leave_busy(
        lambda path, busy: client.post(f"{path}/replace-hosts", json={"hosts": [busy]})
    )
    shown = client.get(path).json
    (new,) = set(shown["joining"]) - {busy}
    deployment.compute.servers[new] = shown["project_id"]
    overdue = 'laas_allocations_overdue{fabric="main"} '
    assert f"{overdue}0.0" in client.get("/metrics").text
    after(7200)
    shown = client.get(path).json
    assert shown["changing"] == "leave"
    assert "old and new ones are held" in shown["error"]
    hosts = client.get(f"/v1/fabrics/main/hosts?owner={shown['id']}").json["hosts"]
    assert {busy, new} <= {host["name"] for host in hosts}
    assert f"{overdue}1.0" in client.get("/metrics").text
    del deployment.compute.servers[busy]
    after(600)
    assert client.get(path).json["changing"] is None
    assert f"{overdue}0.0" in client.get("/metrics").text


@pytest.fixture
def bridged(client, deployment, crowded, work):
    """A tenant in ``leave`` with servers on its old hosts, which others' hosts lie between."""
    for number, path in enumerate(crowded):
        consents(client, path, movable="restart" if number == 0 else "never")
    before = client.get(crowded[0]).json
    for name in names(before):
        deployment.compute.servers[name] = before["project_id"]
        deployment.compute.broken.add(name)
    assert client.post(ROOM, json=WANTED).status_code == 202
    work()
    shown = client.get(crowded[0]).json
    assert (shown["changing"], bool(shown["bridge"])) == ("leave", True)
    return crowded[0], before, shown


def use_up(client):
    """No link is free any more."""
    links = client.get("/v1/fabrics/main/links").json["links"]
    say(client, "failed", *(link["id"] for link in links if link["owner"] is None))


@pytest.mark.parametrize("part", ["own link", "bridge"])
@pytest.mark.parametrize("moved", [False, True])
def test_what_fails_is_replaced_while_servers_are_on_both(
    client, deployment, bridged, work, part, moved
):
    path, before, moving = bridged
    if moved:
        deployment.compute.servers[moving["joining"][0]] = before["project_id"]
    own = sorted(set(moving["links"]) - set(before["links"]) - set(moving["bridge"]))
    failed = (own if part == "own link" else moving["bridge"])[0]
    say(client, "failed", failed)
    assert client.get(path).json["degraded"]["links"] == [failed]
    work()
    after = client.get(path).json
    assert (after["changing"], after["degraded"]) == ("leave", None)
    assert failed not in {*after["links"], *after["bridge"]}
    for name in names(before):
        deployment.compute.servers.pop(name, None)
    work()
    over = client.get(path).json
    assert (over["changing"], over["degraded"]) == (None, None)
    assert sorted(names(over)) == sorted(names(moving))


@pytest.mark.parametrize("part", ["own link", "bridge", "host"])
def test_what_fails_while_nothing_has_moved_turns_back(client, deployment, bridged, work, part):
    path, before, moving = bridged
    use_up(client)
    if part == "host":
        host = f"/v1/fabrics/main/hosts/{moving['joining'][0]}"
        assert client.patch(host, json={"state": "failed"}).status_code == 200
    else:
        own = sorted(set(moving["links"]) - set(before["links"]) - set(moving["bridge"]))
        say(client, "failed", (own if part == "own link" else moving["bridge"])[0])
    work()
    after = client.get(path).json
    assert (after["changing"], after["degraded"]) == (None, None)
    assert (names(after), after["links"]) == (names(before), before["links"])
    assert any("the new placement cannot be used" in line for line in story(client, path))
    assert deployment.compute.accepts(names(before)[0]) == {before["project_id"]}


def test_what_fails_once_servers_have_moved_is_told_and_stays(client, deployment, bridged, work):
    path, before, moving = bridged
    use_up(client)
    deployment.compute.servers[moving["joining"][0]] = before["project_id"]
    say(client, "failed", moving["bridge"][0])
    work()
    after = client.get(path).json
    assert after["changing"] == "leave"
    assert after["degraded"]["links"] == [moving["bridge"][0]]
    turned = [line for line in story(client, path) if "turns back" in line]
    assert turned == []


def test_servers_that_a_fault_cuts_off_stop_once_the_time_is_over(
    client, deployment, crowded, work, after
):
    """One has moved, so it cannot turn back; nothing else joins the hosts, so it cannot go on."""
    path = crowded[0]
    before = client.get(path).json
    compute = deployment.compute
    busy = names(before)
    compute.servers |= dict.fromkeys(busy, before["project_id"])
    assert client.post(f"{path}/replace-hosts", json={"hosts": busy}).status_code == 202
    work()
    moving = client.get(path).json
    assert moving["changing"] == "leave"
    compute.servers[moving["joining"][-1]] = before["project_id"]
    use_up(client)
    say(client, "failed", *moving["links"], *moving["bridge"])
    work()
    told = client.get(path).json
    assert told["degraded"]["apart"]
    assert compute.idle.isdisjoint(busy), "they run until the time is over"
    after(7200)
    waits = client.get(path).json
    assert waits["changing"] == "leave"
    assert "old and new ones are held: faults cut node00, node01, node02 off" in waits["error"]
    assert "their owner starts them again afterwards" in waits["error"]
    assert 'laas_allocations_overdue{fabric="main"} 1.0' in client.get("/metrics").text
    assert compute.idle >= set(busy)
    assert compute.halted.isdisjoint(busy), "their owner may start them"
    for name in busy:
        del compute.servers[name]
    after(600)
    assert client.get(path).json["changing"] is None
