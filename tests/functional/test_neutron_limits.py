# SPDX-License-Identifier: Apache-2.0

"""Limits of what servers send: Neutron's policies on their ports, and scripts."""

from __future__ import annotations

import subprocess

import pytest
from keystoneauth1 import noauth, session
from keystoneauth1.adapter import Adapter

from laas_service.adapters.neutron import NeutronRateLimits, kilobits, policy_name
from laas_service.adapters.rate_limits_directory import DirectoryRateLimits
from laas_service.app.ports.rate_limits import Limited
from laas_service.domain.errors import Unavailable
from tests import neutron_standin

S1, S2 = "server-1", "server-2"


@pytest.fixture
def server():
    with neutron_standin.Server() as server:
        yield server


@pytest.fixture
def network(server):
    return server.network


@pytest.fixture
def limits(server):
    return fresh(server)


def fresh(server):
    auth = noauth.NoAuth(endpoint=server.url)
    return NeutronRateLimits(Adapter(session.Session(auth=auth), endpoint_override=server.url))


def allowed(network):
    """What each port may send in kb/s, by server; None: as much as it wants."""
    found: dict[str, list[int | None]] = {}
    for port in network.ports.values():
        policy = network.policies.get(port["qos_policy_id"])
        rules = policy["rules"] if policy else [{"max_kbps": None}]
        found.setdefault(port["device_id"], []).extend(rule["max_kbps"] for rule in rules)
    return found


def test_each_server_sends_what_is_promised_on_all_its_ports(limits, network):
    network.port(S1)
    network.port(S2)
    network.port(S2)
    network.port("of somebody else")
    assert limits.limit("a1", "p", 5.0, [S1, S2]) == Limited()
    assert allowed(network) == {
        S1: [5_000_000],
        S2: [2_500_000, 2_500_000],
        "of somebody else": [None],
    }


def test_every_page_is_read(limits, network):
    """Neutron may answer a list by page (``pagination_max_limit``)."""
    network.page = 2
    for _ in range(5):
        network.port(S1)
    for number in range(5):
        limits.limit(f"b{number}", "p", 1.0, [])
    limits.limit("a1", "p", 5.0, [S1])
    assert allowed(network) == {S1: [1_000_000] * 5}
    assert len({policy["name"] for policy in network.policies.values()}) == len(network.policies)


def test_repeating_it_changes_nothing(limits, network, server):
    network.port(S1)
    limits.limit("a1", "p", 5.0, [S1])
    before = (dict(network.ports), dict(network.policies))
    assert limits.limit("a1", "p", 5.0, [S1]) == Limited()
    assert fresh(server).limit("a1", "p", 5.0, [S1]) == Limited()
    assert (network.ports, network.policies) == before


def test_new_ports_and_another_bandwidth_are_no_drift(limits, network):
    assert limits.limit("a1", "p", 5.0, []) == Limited()
    network.port(S1)
    assert limits.limit("a1", "p", 8.0, [S1]) == Limited()
    network.port(S1)
    assert limits.limit("a1", "p", 8.0, [S1]) == Limited()
    assert allowed(network) == {S1: [4_000_000, 4_000_000]}


def test_what_others_change_is_told_and_set_again(limits, network):
    port = network.port(S1)
    limits.limit("a1", "p", 5.0, [S1])
    (policy,) = network.policies.values()
    policy["rules"][0]["max_kbps"] = 100_000_000
    assert limits.limit("a1", "p", 5.0, [S1]).changed == (
        f"policy {policy_name('a1', 1)} had 100000000 kb/s",
    )
    network.ports[port]["qos_policy_id"] = None
    assert limits.limit("a1", "p", 5.0, [S1]).changed == (
        f"port {port} of server {S1} had no policy",
    )
    network.ports[port]["qos_policy_id"] = "their own"
    assert "another policy" in limits.limit("a1", "p", 5.0, [S1]).changed[0]
    del policy["rules"][0]
    assert "had no limit" in limits.limit("a1", "p", 5.0, [S1]).changed[0]
    assert allowed(network) == {S1: [5_000_000]}
    assert limits.limit("a1", "p", 5.0, [S1]) == Limited()


def test_a_server_without_a_port_is_told(limits):
    assert limits.limit("a1", "p", 5.0, [S1]).open == (f"server {S1} has no port",)


def test_forgetting_leaves_nothing_and_others_alone(limits, network):
    network.port(S1)
    network.port(S2)
    limits.limit("a1", "p", 5.0, [S1])
    limits.limit("a1-2", "p", 5.0, [S2])
    limits.forget_limits("a1")
    assert allowed(network) == {S1: [None], S2: [5_000_000]}
    assert [policy["name"] for policy in network.policies.values()] == [policy_name("a1-2", 1)]
    limits.forget_limits("a1")


def test_two_policies_of_one_name_become_one(limits, network):
    network.port(S1)
    for _ in range(2):
        body = {"policy": {"name": policy_name("a1", 1), "shared": False}}
        network.route("POST", ["qos", "policies"], [], body)
    limits.limit("a1", "p", 5.0, [S1])
    assert len(network.policies) == 1
    assert allowed(network) == {S1: [5_000_000]}


def test_an_error_of_neutron_is_told(limits, network):
    network.failing = 503
    with pytest.raises(Unavailable, match="of Neutron"):
        limits.limit("a1", "p", 5.0, [S1])


def test_a_share_is_rounded_down():
    assert kilobits(1.0, 3) == 333_333


def test_scripts_limit_and_forget(tmp_path):
    limits = DirectoryRateLimits(tmp_path)
    limits.limit("a1", "p", 2.5, [S1])
    script = tmp_path / "limit-a1.sh"
    text = script.read_text()
    assert "--max-kbps 2500000" in text
    assert f"openstack port list --server {S1}" in text
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    limits.forget_limits("a1")
    assert not script.exists()
    assert "qos policy delete laas-a1-1" in (tmp_path / "forget-a1.sh").read_text()
