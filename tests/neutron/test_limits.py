# SPDX-License-Identifier: Apache-2.0

"""Limits of what servers send, with the real Neutron: its policies, and who may change them."""

from __future__ import annotations

import pytest
from keystoneauth1 import exceptions as refused
from keystoneauth1.adapter import Adapter

from laas_service.adapters.neutron import NeutronRateLimits, policy_name
from laas_service.app.ports.rate_limits import Limited
from tests.servers.keystone import Keystone
from tests.servers.mariadb import MariaDb
from tests.servers.neutron import Neutron

S1, S2 = "server-1", "server-2"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with Keystone(tmp_path_factory.mktemp("keystone")) as keystone, MariaDb() as database:
        directory = tmp_path_factory.mktemp("neutron")
        with Neutron(directory, keystone, database.database()) as neutron:
            keystone.user("laas", {keystone.project("service"): ["admin"]})
            keystone.user("owner", {keystone.project("red"): ["member"]})
            keystone.user("boss", {keystone.project("red"): ["manager"]})
            yield keystone, neutron


def client(cloud, user, project):
    keystone, neutron = cloud
    session = keystone.session(user, project=project)
    return Adapter(session, endpoint_override=neutron.url)


@pytest.fixture
def admin(cloud):
    return client(cloud, "laas", "service")


@pytest.fixture
def owner(cloud):
    return client(cloud, "owner", "red")


@pytest.fixture
def port(admin, owner):
    """Makes a port of a server of project red; at the end all ports and policies are gone."""
    network = owner.post("/v2.0/networks", json={"network": {}}).json()["network"]["id"]

    def made(server):
        body = {"port": {"network_id": network, "device_id": server}}
        return owner.post("/v2.0/ports", json=body).json()["port"]["id"]

    yield made
    for found in admin.get("/v2.0/ports").json()["ports"]:
        admin.delete(f"/v2.0/ports/{found['id']}")
    for policy in admin.get("/v2.0/qos/policies").json()["policies"]:
        admin.delete(f"/v2.0/qos/policies/{policy['id']}")
    admin.delete(f"/v2.0/networks/{network}")


def allowed(admin):
    """What each port may send in kb/s, by server; None: as much as it wants."""
    limits = {
        policy["id"]: [rule["max_kbps"] for rule in policy["rules"]]
        for policy in admin.get("/v2.0/qos/policies").json()["policies"]
    }
    found: dict[str, list[int | None]] = {}
    for port in admin.get("/v2.0/ports").json()["ports"]:
        found.setdefault(port["device_id"], []).extend(limits.get(port["qos_policy_id"], [None]))
    return found


def test_servers_send_what_is_promised_until_the_allocation_is_gone(admin, port):
    for server in (S1, S2, S2, "of somebody else"):
        port(server)
    limits = NeutronRateLimits(admin)
    assert limits.limit("a1", "p", 5.0, [S1, S2]) == Limited()
    promised = {S1: [5_000_000], S2: [2_500_000] * 2, "of somebody else": [None]}
    assert allowed(admin) == promised
    assert limits.limit("a1", "p", 5.0, [S1, S2]) == Limited()
    assert NeutronRateLimits(admin).limit("a1", "p", 5.0, [S1, S2]) == Limited()
    assert allowed(admin) == promised
    assert limits.limit("a1", "p", 8.0, [S1]) == Limited()
    assert allowed(admin)[S1] == [8_000_000]
    limits.forget_limits("a1")
    assert allowed(admin) == {S1: [None], S2: [None, None], "of somebody else": [None]}
    assert admin.get("/v2.0/qos/policies").json()["policies"] == []
    limits.forget_limits("a1")


def test_what_others_change_is_told_and_set_again(admin, port):
    changed = port(S1)
    limits = NeutronRateLimits(admin)
    limits.limit("a1", "p", 5.0, [S1])
    (policy,) = admin.get("/v2.0/qos/policies").json()["policies"]
    path = f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules"
    rule = f"{path}/{policy['rules'][0]['id']}"
    admin.put(rule, json={"bandwidth_limit_rule": {"max_kbps": 100_000_000}})
    assert limits.limit("a1", "p", 5.0, [S1]).changed == (
        f"policy {policy_name('a1', 1)} had 100000000 kb/s",
    )
    admin.put(f"/v2.0/ports/{changed}", json={"port": {"qos_policy_id": None}})
    assert limits.limit("a1", "p", 5.0, [S1]).changed == (
        f"port {changed} of server {S1} had no policy",
    )
    admin.delete(rule)
    assert "had no limit" in limits.limit("a1", "p", 5.0, [S1]).changed[0]
    assert allowed(admin) == {S1: [5_000_000]}


@pytest.mark.parametrize("user", ["owner", "boss"])
def test_a_tenant_neither_sees_nor_changes_its_limit(cloud, admin, port, user):
    limited = port(S1)
    NeutronRateLimits(admin).limit("a1", "p", 5.0, [S1])
    (policy,) = admin.get("/v2.0/qos/policies").json()["policies"]
    tenant = client(cloud, user, "red")
    assert tenant.get("/v2.0/qos/policies").json()["policies"] == []
    rule = f"/v2.0/qos/policies/{policy['id']}/bandwidth_limit_rules/{policy['rules'][0]['id']}"
    for path, body in (
        (f"/v2.0/ports/{limited}", {"port": {"qos_policy_id": None}}),
        (rule, {"bandwidth_limit_rule": {"max_kbps": 9_000_000}}),
    ):
        with pytest.raises((refused.Forbidden, refused.NotFound, refused.Conflict)):
            tenant.put(path, json=body)
    assert allowed(admin) == {S1: [5_000_000]}
