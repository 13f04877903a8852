# SPDX-License-Identifier: Apache-2.0

"""The adapter, the filter and the stand-in of Nova, checked against the real Nova and placement."""

from __future__ import annotations

import pytest
from keystoneauth1 import session
from keystoneauth1.adapter import Adapter

from laas_service.adapters.nova.cloud import NOVA_VERSION
from laas_service.adapters.nova.placement import PLACEMENT_VERSION
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import HostsBusy
from laas_service.wiring.composition import Composition
from tests import nova_standin
from tests.nova import cloud
from tests.options import options_from
from tests.story.site import landed

pytestmark = pytest.mark.road

RED, BLUE = "1" * 32, "2" * 32
HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.fixture(scope="module")
def nova():
    with cloud.started(HOSTS) as nova:
        yield nova


class Site:
    """Our adapter, wired from a configuration file, and users; all speak to Nova over TCP."""

    def __init__(self, nova, url, directory):
        self.nova = nova
        self.url = url
        self.admin = cloud.remote_client(url, "service", admin=True)
        file = directory / "laas.conf"
        file.write_text(
            f"[DEFAULT]\nstate_dir = {directory}\n[compute]\nkind = nova\n"
            f"[nova]\nauth_type = admin_token\nendpoint = {url}/compute/v2.1\n"
            "token = service:admin\n"
            f"[placement]\nauth_section = nova\nendpoint_override = {url}/placement\n"
        )
        conf = options_from(file)
        parts = Composition(conf)
        parts.database.upgrade()  # the adapter reads the names of the recorded hosts
        self.compute = parts.compute

    def boot(self, project, hint=None):
        """Start a server; returns its host, or None if Nova finds no host."""
        servers = cloud.remote_client(self.url, project).servers
        hints = {"laas:allocation": hint} if hint else None
        server = servers.create(
            "server", cloud.IMAGE, flavor="1", nics="none", scheduler_hints=hints
        )
        return landed(self.admin, server.id)

    def hand_over(self, handover):
        """Hand over by our adapter; return when the scheduler knows."""
        self.compute.hand_over(handover)
        self.nova.scheduler_knows()


@pytest.fixture
def site(nova, tmp_path):
    with cloud.served(nova) as url:
        yield Site(nova, url, tmp_path)
        nova.clear()


def test_life_of_an_allocation(site):
    red, blue = Handover("a1", RED, ("n1",)), Handover("a2", BLUE, ("n2", "n3"))
    site.compute.pool(HOSTS)
    assert site.boot(RED) is None, "free hosts accept nobody"

    site.hand_over(red)
    site.hand_over(blue)
    assert site.compute.handed_over() == {"a1": red, "a2": blue}
    assert {site.boot(RED) for _ in range(2)} == {"n1"}
    assert site.boot(BLUE) in ("n2", "n3")
    assert site.boot("3" * 32) is None, "strangers are kept out"
    assert {o.project_id for o in site.compute.occupants(HOSTS)} == {RED, BLUE}

    site.compute.fence("a1")
    assert site.boot(RED) is None
    with pytest.raises(HostsBusy, match="n1 runs"):
        site.compute.take_back(red)
    site.nova.delete_servers({"host": "n1"})
    site.compute.take_back(red)
    assert site.compute.handed_over() == {"a2": blue}
    assert site.boot(RED) is None

    site.hand_over(Handover("a3", RED, ("n1", "n4")))
    assert site.boot(RED) in ("n1", "n4")


def test_the_hint_tells_two_allocations_of_a_project_apart(site):
    site.compute.pool(HOSTS)
    site.hand_over(Handover("a1", RED, ("n1",)))
    site.hand_over(Handover("a2", RED, ("n2", "n3")))
    assert site.boot(RED, hint="a1") == "n1"
    assert site.boot(RED, hint="a2") in ("n2", "n3")
    assert site.boot(RED, hint="a3") is None


def test_busy_hosts_stay_out_of_the_pool(site):
    host = site.boot(RED)
    with pytest.raises(HostsBusy, match=f"{host} runs .* of project {RED}"):
        site.compute.pool(HOSTS)
    aggregates = site.admin.aggregates.list()
    assert [set(a.hosts) for a in aggregates] == [set(HOSTS) - {host}]


def test_one_request_tells_which_hosts_of_an_aggregate_are_empty(site):
    site.compute.pool(HOSTS)
    site.hand_over(Handover("a1", RED, ("n1",)))
    assert site.boot(RED) == "n1"
    calls = site.compute.cloud
    providers = {host: node.providers[0] for host, node in calls.hypervisors.all().items()}
    empty = calls.placement.empty_members(calls.aggregates.all()[cloud.POOL], "MEMORY_MB")
    assert empty == {providers[host] for host in HOSTS} - {providers["n1"]}


CALLS = [
    ("POST", "/os-aggregates", {"aggregate": {"name": "a", "availability_zone": None}}),
    ("POST", "/os-aggregates", {"aggregate": {"name": "a", "availability_zone": None}}),
    ("POST", "/os-aggregates", {"aggregate": {"name": "", "availability_zone": None}}),
    ("POST", "/os-aggregates", {"aggregate": {"name": "x" * 256, "availability_zone": None}}),
    ("GET", "/os-aggregates", None),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"filter_tenant_id": RED}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"laas:allocation": "i"}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"k": "x" * 255}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"k": "x" * 256}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"a/b": "x"}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"k": None}}}),
    ("POST", "/os-aggregates/1/action", {"set_metadata": {"metadata": {"k": None}}}),
    ("POST", "/os-aggregates/999/action", {"set_metadata": {"metadata": {"k": "v"}}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "N2"}}),
    ("POST", "/os-aggregates/999/action", {"add_host": {"host": "n2"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n2"}}),
    ("GET", "/os-aggregates", None),
    ("PLACEMENT", "n1", None),
    ("PLACEMENT", "n3", None),
    ("DELETE", "/os-aggregates/1", None),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "nowhere"}}),
    ("POST", "/os-aggregates/999/action", {"remove_host": {"host": "n2"}}),
    ("PLACEMENT", "n1", None),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n2"}}),
    ("DELETE", "/os-aggregates/1", None),
    ("DELETE", "/os-aggregates/1", None),
    ("GET", "/os-aggregates", None),
    ("GET", "/os-hypervisors/detail", None),
    ("GET", f"/os-hypervisors/detail?{nova_standin.PATTERN}=n2", None),
    ("GET", f"/os-hypervisors/detail?{nova_standin.PATTERN}=nowhere", None),
    ("GET", f"/os-quota-sets/{BLUE}", None),
    ("GET", "/os-hypervisors/detail?marker=00000000-0000-0000-0000-000000000000", None),
]
"""Calls whose answers the adapter relies on; aggregate 1 is the one created first."""


@pytest.fixture
def unlimited(nova):
    """A project without a limit of servers, in a cloud without aggregates."""
    nova.clear()
    nova.admin.quotas.update(BLUE, instances=-1)
    yield BLUE
    nova.admin.quotas.delete(BLUE)
    nova.clear()


def test_the_stand_in_answers_as_nova_does(nova, unlimited):
    login = cloud.Login(nova.osapi.base_url, "service", admin=True)
    real = Adapter(session.Session(login), service_type="compute", endpoint_override=login.url)
    with nova_standin.Server() as server:
        server.cloud = nova_standin.Cloud(HOSTS)
        server.cloud.limits[unlimited] = -1
        other = cloud.Login(server.url, "service")
        other.headers = {"X-Auth-Token": nova_standin.TOKEN}
        compute, placement = (
            Adapter(
                session.Session(other),
                service_type=service,
                endpoint_override=f"{server.url}/{service}",
            )
            for service in ("compute", "placement")
        )
        ids: dict[object, int] = {}
        for call in CALLS:
            wanted = played(real, nova.placement, call, ids)
            assert played(compute, placement, call, ids) == wanted, call


def played(compute, placement, call, ids):
    """Make a call; return its status, or the parts of the answer that the adapter reads."""
    method, path, body = call
    if path.startswith("/os-aggregates/1"):
        path = path.replace("1", str(ids[compute]), 1)
    if method == "PLACEMENT":
        return placement_view(compute, placement, path)
    answer = compute.request(path, method, json=body, microversion=NOVA_VERSION, raise_exc=False)
    if answer.status_code != 200 or method == "DELETE":
        return answer.status_code
    found = answer.json()
    ids.setdefault(compute, found.get("aggregate", {}).get("id"))
    for key, kept in (("aggregate", AGGREGATE), ("aggregates", AGGREGATE)):
        if key in found:
            items = found[key] if isinstance(found[key], list) else [found[key]]
            return [{k: item.get(k) for k in kept} | {"uuid": "uuid" in item} for item in items]
    if "quota_set" in found:
        return found["quota_set"]["instances"]
    hypervisors = found["hypervisors"]
    return [sorted(h["service"]) for h in hypervisors], {h["service"]["host"] for h in hypervisors}


AGGREGATE = ("name", "hosts", "metadata", "availability_zone")


def placement_view(compute, placement, host):
    """Aggregates of the host's resource provider by name, and its allocations."""
    found = compute.get("/os-hypervisors/detail", microversion=NOVA_VERSION).json()["hypervisors"]
    (provider,) = [h["id"] for h in found if h["service"]["host"] == host]
    names = {
        a["uuid"]: a["name"]
        for a in compute.get("/os-aggregates", microversion=NOVA_VERSION).json()["aggregates"]
    }
    path = f"/resource_providers/{provider}"
    inside = {
        name
        for uuid, name in names.items()
        for item in placement.get(
            f"/resource_providers?member_of={uuid}", microversion=PLACEMENT_VERSION
        ).json()["resource_providers"]
        if item["uuid"] == provider
    }
    held = placement.get(f"{path}/allocations", microversion=PLACEMENT_VERSION).json()
    gone = placement.get(f"/allocations/{provider}", microversion=PLACEMENT_VERSION).json()
    return inside, held["allocations"], gone
