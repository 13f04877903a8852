# SPDX-License-Identifier: Apache-2.0

"""Constraints over HTTP: traits and costs of hosts, constrained requests, and access rights."""

from __future__ import annotations

import pytest

from laas_service.domain.policies import POLICIES
from tests.functional.api.conftest import SPEC
from tests.functional.api.test_queue import FIFO, Site
from tests.functional.api.test_tenants import TokensAsHeaders

F = "/v1/fabrics/main"  # 32 hosts: 2 pods of 4 leaves of 4 hosts
GPUS = tuple(f"node{host:02}" for host in range(16, 24))


@pytest.fixture
def gpus(client):
    """Hosts 16 to 23, on two leaves of pod 1, have trait gpu and cost 3; host 23 costs 9."""
    for name in GPUS:
        cost = 9 if name == GPUS[-1] else 3
        body = {"traits": ["gpu"], "cost": cost}
        assert client.patch(f"{F}/hosts/{name}", json=body).status_code == 200


@pytest.fixture
def blue(deployment):
    """A member of project blue."""
    made = deployment.client(authenticate=TokensAsHeaders)
    made.environ_base["HTTP_X_AUTH_TOKEN"] = "blue"
    return made


def names(allocation):
    return [host["name"] for host in allocation["hosts"]]


def ask(client, hosts, constraints, **more):
    body = {"name": "blue", "hosts": hosts, "constraints": constraints, **more}
    if hosts is None:
        del body["hosts"]
    return client.post("/v1/allocations", json=body)


# -- traits and costs -------------------------------------------------------------


def test_what_a_host_is_like_is_said_shown_and_filtered(client, gpus):
    (host,) = client.get(f"{F}/hosts?marker=node15&limit=1").json["hosts"]
    assert (host["name"], host["traits"], host["cost"]) == ("node16", ["gpu"], 3)
    found = client.get(f"{F}/hosts?trait=gpu").json["hosts"]
    assert tuple(host["name"] for host in found) == GPUS
    assert client.get(f"{F}/hosts?trait=fpga").json["hosts"] == []
    changed = client.patch(f"{F}/hosts/node16", json={"cost": 4}).json
    assert (changed["traits"], changed["cost"]) == (["gpu"], 4)
    changed = client.patch(f"{F}/hosts/node16", json={"traits": [], "state": "drained"}).json
    assert (changed["traits"], changed["cost"], changed["state"]) == ([], 4, "drained")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "state"),
        ({"cost": -1}, "cost"),
        ({"cost": "3"}, "cost"),
        ({"cost": 2**31}, "cost"),
        ({"traits": "gpu"}, "traits"),
        ({"traits": ["two words"]}, "traits.0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_said_of_a_host(client, body, field):
    answer = client.patch(f"{F}/hosts/node16", json=body)
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field)
    assert client.patch(f"{F}/hosts/nobody", json={"cost": 1}).status_code == 404


# -- requests ---------------------------------------------------------------------


def test_hosts_meet_the_constraints_and_the_allocation_shows_them(client, gpus):
    wish = {"traits": ["gpu"], "max_host_cost": 5, "within": "leaf"}
    answer = ask(client, 4, wish)
    assert answer.status_code == 202
    assert names(answer.json) == list(GPUS[:4])
    assert {k: v for k, v in answer.json["constraints"].items() if v} == wish
    assert client.get("/v1/allocations").json["allocations"][0]["constraints"]["within"] == "leaf"
    told = ask(client, 4, wish).json
    assert (told["code"], told["largest_fit"]) == ("constraint", 3)
    assert "4 hosts would fit without constraint" in told["detail"]
    assert "max_host_cost (5)" in told["detail"]
    assert (told["fits_when_empty"], told["room"]["releases"]) == (True, ["allocation-1"])


def test_avoiding_and_spreading(client):
    answer = ask(client, 16, {"avoid_hosts": ["node00"], "avoid_pods": [1]})
    assert answer.json["code"] == "constraint"
    assert "avoid_hosts (1)" in answer.json["detail"]
    assert "node00" not in answer.json["detail"]
    assert answer.json["largest_fit"] == 15
    answer = ask(client, 15, {"avoid_hosts": ["node00"], "avoid_pods": [1]})
    assert names(answer.json) == [f"node{host:02}" for host in range(1, 16)]
    assert answer.json["constraints"]["avoid_hosts"] == ["node00"]
    client.delete(f"/v1/allocations/{answer.json['id']}")


def test_a_dry_run_tells_the_cost_of_the_cheapest(client, gpus):
    for host in range(16):
        client.patch(f"{F}/hosts/node{host:02}", json={"cost": 5})
    answer = ask(client, 9, {"cheapest": True}, dry_run=True)
    assert (answer.status_code, answer.json["cost"]) == (200, 3)
    assert names(answer.json)[1:] == [f"node{host:02}" for host in range(24, 32)]
    assert ask(client, 9, {}, dry_run=True).json["cost"] == 45
    assert client.get("/v1/allocations").json["allocations"] == []


@pytest.mark.parametrize(
    ("constraints", "field", "words"),
    [
        ({"traits": ["gpuu"]}, "constraints.traits", "did you mean gpu?"),
        ({"traits": ["two words"]}, "constraints.traits.0", "pattern"),
        ({"avoid_hosts": ["node99", "node00", "x"]}, "constraints.avoid_hosts", "no host"),
        ({"avoid_pods": [2]}, "constraints.avoid_pods", "pods are 0..1"),
        ({"avoid_pods": ["1"]}, "constraints.avoid_pods.0", "whole number"),
        ({"within": "rack"}, "constraints.within", "the fabric has leaf, pod"),
        ({"spread": 3}, "constraints.spread", "the fabric has 2 pods"),
        ({"spread": 0}, "constraints.spread", "give at least 1"),
        ({"spread": 2, "within": "pod"}, "constraints.spread", "leave out within"),
        ({"max_host_cost": -1}, "constraints.max_host_cost", "give at least 0"),
        ({"cheapest": "yes"}, "constraints.cheapest", "true or false"),
        ({"colour": "red"}, "constraints.colour", "no such field"),
        ("gpu", "constraints", ""),
    ],
)
def test_constraints_that_mean_nothing_are_refused_by_field(
    client, gpus, constraints, field, words
):
    answer = ask(client, 2, constraints)
    assert answer.status_code == 400
    (error,) = answer.json["errors"]
    assert error["field"] == field
    assert words in error["detail"]
    if field == "constraints.avoid_hosts":
        assert error["value"] == "node99, x"
    assert client.get("/v1/allocations").json["allocations"] == []


def test_a_key_is_of_one_request_constraints_included(client, gpus):
    body = {"name": "blue", "hosts": 2, "constraints": {"traits": ["gpu"]}}
    first, again, other = (
        client.post("/v1/allocations", json={**body, **more}, headers={"Idempotency-Key": "k"})
        for more in ({}, {}, {"constraints": {"within": "leaf"}})
    )
    assert (first.status_code, again.json["id"]) == (202, first.json["id"])
    assert other.status_code == 422


def test_would_it_fit(client, gpus):
    fit = client.get(f"{F}/fit?hosts=8&traits=gpu&max_host_cost=9").json
    assert (fit["fits"], fit["largest_fit"]) == (True, 8)
    fit = client.get(f"{F}/fit?hosts=9&traits=gpu").json
    assert (fit["reason"], fit["largest_fit"], fit["fits_when_empty"]) == ("constraint", 8, False)
    fit = client.get(f"{F}/fit?hosts=5&within=leaf").json
    assert (fit["reason"], fit["largest_fit"]) == ("constraint", 4)
    fit = client.get(f"{F}/fit?hosts=16&avoid_pods=1&avoid_hosts=node00,node05").json
    assert (fit["reason"], fit["largest_fit"]) == ("constraint", 12)
    assert client.get(f"{F}/fit?hosts=5&spread=2").json["fits"]
    for query, field in (
        ("traits=a,,b", "traits.1"),
        ("traits=fpga", "constraints.traits"),
        ("avoid_pods=x", "avoid_pods.0"),
        ("avoid_hosts=node99", "constraints.avoid_hosts"),
        ("within=rack", "constraints.within"),
        ("spread=2&within=pod", "constraints.spread"),
    ):
        answer = client.get(f"{F}/fit?hosts=1&{query}")
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field), query


def test_lists_in_a_query_are_described_as_they_are_written():
    (fit,) = (path["get"] for name, path in SPEC["paths"].items() if name.endswith("/fit"))
    described = {one["name"]: one for one in fit["parameters"]}
    for name in ("traits", "avoid_hosts", "avoid_pods"):
        assert described[name]["explode"] is False
        assert described[name]["schema"]["type"] == "array"
    assert "explode" not in described["hosts"]


def test_a_policy_that_cannot_spread_so_few_names_one_that_can(deployment):
    client = deployment.client(policies={name: policy() for name, policy in POLICIES.items()})
    told = ask(client, 3, {"spread": 2}).json
    assert told["code"] == "constraint"
    assert "lc spreads them over up to 2" in told["detail"]
    given = ask(client, 3, {"spread": 2}, policy="lc").json
    assert {name >= "node16" for name in names(given)} == {True, False}


# -- queue ------------------------------------------------------------------------


def test_who_waits_keeps_its_constraints_through_a_restart(deployment, client, gpus):
    site = Site(deployment, FIFO)
    holder = site.give("holder", 8, constraints={"traits": ["gpu"]})
    waiting = site.wait("waiting", 4, constraints={"traits": ["gpu"], "max_host_cost": 3})
    assert waiting["state"] == "queued"
    assert waiting["waits_for"]["code"] == "constraint"
    assert "traits (gpu)" in waiting["waits_for"]["detail"]
    assert waiting["waits_for"]["largest_fit"] == 0
    assert "traits (gpu)" in waiting["history"][0]["reason"]
    site.restart()
    assert site.work() == 0
    site.release(holder)
    site.work()
    assert site.work() == 0
    shown = site.show(waiting)
    assert (shown["state"], names(shown)) == ("active", list(GPUS[:4]))
    assert shown["constraints"]["max_host_cost"] == 3


def test_a_host_that_gets_the_trait_serves_who_waits_for_it(deployment, client, gpus):
    site = Site(deployment, FIFO)
    site.give("holder", 8, constraints={"traits": ["gpu"]})
    waiting = site.wait("waiting", 1, constraints={"traits": ["gpu"]})
    assert site.work() == 0
    site.client.patch(f"{F}/hosts/node31", json={"traits": ["gpu"]})
    site.work()
    assert names(site.show(waiting)) == ["node31"]


def test_what_no_empty_fabric_could_give_does_not_wait(deployment, client, gpus):
    answer = ask(client, 9, {"traits": ["gpu"]}, wait=True)
    assert answer.status_code == 409
    assert answer.json["code"] == "constraint"
    assert "it would wait for ever" in answer.json["detail"]
    assert answer.json["largest_fit"] == 8


# -- domains ----------------------------------------------------------------------


@pytest.fixture
def racks(client):
    """Each leaf has two domains of kind nvlink; pods are those of kind power."""
    for host in range(32):
        body = {"domains": {"nvlink": f"r{host // 2:02}", "power": f"feed {host // 16}"}}
        assert client.patch(f"{F}/hosts/node{host:02}", json=body).status_code == 200


def domains_of(allocation, size=2):
    numbers = [int(name.removeprefix("node")) for name in names(allocation)]
    return {
        domain: [n // size for n in numbers].count(domain)
        for domain in {n // size for n in numbers}
    }


def test_domains_are_shown_where_hosts_are(client, racks):
    (host,) = client.get(f"{F}/hosts?limit=1").json["hosts"]
    assert host["domains"] == {"nvlink": "r00", "power": "feed 0"}
    changed = client.patch(f"{F}/hosts/node00", json={"domains": {"nvlink": "r01"}}).json
    assert (changed["domains"], changed["cost"]) == ({"nvlink": "r01"}, 0)
    refused = client.patch(f"{F}/hosts/node00", json={"domains": {"leaf": "r01"}})
    assert refused.status_code == 400


def test_whole_domains_are_asked_for_without_a_number_of_hosts(client, racks):
    made = client.post(
        "/v1/allocations",
        json={"name": "blue", "constraints": {"domains": 3, "kind": "nvlink"}},
    )
    assert made.status_code == 202, made.json
    assert made.json["requested"] == 6
    assert set(domains_of(made.json).values()) == {2}
    assert made.json["constraints"]["domains"] == 3
    wrong = ask(client, 5, {"domains": 3, "kind": "nvlink"})
    assert (wrong.status_code, "3 domains of kind nvlink have 6 hosts" in wrong.text) == (400, True)
    refused = ask(client, None, {"domains": 14, "kind": "nvlink"})
    assert (refused.status_code, refused.json["largest_fit"]) == (409, 26)
    told = client.get(f"{F}/fit?domains=2&kind=nvlink").json
    assert (told["fits"], told["hosts"], told["largest_fit"]) == (True, 4, 26)


def test_hosts_by_domain_in_one_and_spread(client, racks):
    each = ask(client, 3, {"per_domain": 1, "kind": "nvlink"}).json
    assert set(domains_of(each).values()) == {1}
    inside = ask(client, 8, {"within": "power"}).json
    assert len(domains_of(inside, 16)) == 1
    spread = ask(client, 9, {"spread": {"kind": "power", "least": 2}}).json
    assert len(domains_of(spread, 16)) == 2
    assert spread["constraints"]["spread"] == {"kind": "power", "least": 2}
    refused = ask(client, 4, {"within": "nvlink"}).json
    assert (refused["code"], refused["largest_fit"]) == ("constraint", 2)
    assert "within (nvlink)" in refused["detail"]
    told = client.get(f"{F}/fit?hosts=9&spread=2&spread_kind=power").json
    assert told["fits"]
    for wish in (
        {"within": "rack"},
        {"domains": 1, "kind": "rack"},
        {"domains": 1},
        {"kind": "nvlink"},
        {"spread": {"kind": "leaf", "least": 2}},
        {"spread": {"kind": "power"}},
        {"spread": "power"},
        {"domains": 1, "kind": "nvlink", "cheapest": True},
    ):
        answer = ask(client, 2, wish)
        assert answer.status_code == 400, wish
        assert "constraints" in answer.text


def test_nobody_else_gets_hosts_of_an_exclusive_domain(client, racks):
    mine = ask(client, 1, {"within": "power", "exclusive": True})
    assert mine.status_code == 202
    others = client.post("/v1/allocations", json={"name": "red", "hosts": 17})
    assert (others.status_code, others.json["largest_fit"]) == (409, 16)
    others = client.post("/v1/allocations", json={"name": "red", "hosts": 16})
    assert domains_of(others.json, 16).keys().isdisjoint(domains_of(mine.json, 16))


def test_small_allocations_take_hosts_of_broken_domains_first(client, racks):
    first = client.post("/v1/allocations", json={"name": "a", "hosts": 1}).json
    second = client.post("/v1/allocations", json={"name": "b", "hosts": 2}).json
    third = client.post("/v1/allocations", json={"name": "c", "hosts": 1}).json
    assert domains_of(first).keys() & (domains_of(second) | domains_of(third)).keys()


# -- access rights ----------------------------------------------------------------


def test_tenants_name_no_hosts_and_no_pods(blue, gpus):
    for wish in ({"avoid_hosts": ["node00"]}, {"avoid_hosts": ["node99"]}, {"avoid_pods": [0]}):
        assert ask(blue, 2, wish).status_code == 403
    for query in ("avoid_hosts=node00", "avoid_pods=0"):
        assert blue.get(f"{F}/fit?hosts=2&{query}").status_code == 403
    assert blue.patch(f"{F}/hosts/node00", json={"cost": 0}).status_code == 403
    answer = ask(blue, 8, {"traits": ["gpu"], "within": "pod"})
    assert (answer.status_code, len(answer.json["hosts"])) == (202, 8)
    told = ask(blue, 1, {"traits": ["gpu"]}).json
    assert (told["code"], told["largest_fit"], "room" in told) == ("constraint", 0, False)


def test_a_tenant_does_not_see_what_an_administrator_made_it_avoid(client, blue):
    made = ask(client, 2, {"avoid_hosts": ["node00"], "within": "pod"}, project_id="blue").json
    url = f"/v1/allocations/{made['id']}"
    assert client.get(url).json["constraints"]["avoid_hosts"] == ["node00"]
    assert blue.get(url).json["constraints"]["avoid_hosts"] is None
    assert blue.get(url).json["constraints"]["within"] == "pod"
    (listed,) = blue.get("/v1/allocations").json["allocations"]
    assert listed["constraints"]["avoid_hosts"] is None


def test_virtual_ports_of_a_host_are_said_and_shown(client):
    rails = [["0x0000000000000b1b", "0x0000000000000a1b"]]
    changed = client.patch(f"{F}/hosts/node16", json={"virtual_guids": rails})
    assert changed.status_code == 200
    (port,) = client.get(f"{F}/hosts?marker=node15&limit=1").json["hosts"][0]["ports"]
    assert port["virtual_guids"] == sorted(rails[0])
    for body, status, told in (
        ({"virtual_guids": [["0x1b"]]}, 400, "virtual_guids.0.0"),
        ({"virtual_guids": [[], []]}, 400, "a list for each of 1 rails"),
        ({"virtual_guids": [[port["guid"]]]}, 400, "GUID of a port"),
        ({"virtual_guids": [["0x0000000000000000"]]}, 400, "a GUID that is not set"),
        ({"virtual_guids": [["0xffffffffffffffff"]]}, 400, "a GUID that is not set"),
        ({"virtual_guids": [["0xff12401bffff0000"]]}, 400, "multicast addresses begin so"),
    ):
        refused = client.patch(f"{F}/hosts/node17", json=body)
        assert refused.status_code == status, refused.json
        assert told in str(refused.json)
    taken = client.patch(f"{F}/hosts/node17", json={"virtual_guids": rails})
    assert taken.status_code == 409
    assert f"belongs to port {port['guid']}" in taken.json["detail"]
    cleared = client.patch(f"{F}/hosts/node16", json={"virtual_guids": [[]]}).json
    assert cleared["ports"][0]["virtual_guids"] == []
