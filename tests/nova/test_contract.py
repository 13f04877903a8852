# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The real Nova and placement, in one process, judge the adapter, the filter and the stand-in.

nova-api, scheduler, conductor, placement and nova-compute (with Nova's fake driver)
are real; only Keystone, images and networks are stubbed.
"""

from __future__ import annotations

import os
import sys
import time

import pytest
from keystoneauth1 import plugin, session
from keystoneauth1.adapter import Adapter
from nova import test
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import fixtures as functional_fixtures
from novaclient import client

from laas_service.adapters.nova import NOVA_VERSION, PLACEMENT_VERSION, Cloud, NovaCompute
from laas_service.app.ports import Handover
from laas_service.domain.errors import HostsBusy
from tests import nova_standin

RED, BLUE = "1" * 32, "2" * 32
HOSTS = ["n1", "n2", "n3", "n4"]
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"


class Login(plugin.BaseAuthPlugin):
    """Headers as Nova's test fixture reads them in Keystone's place."""

    def __init__(self, url, project, *, admin=False):
        super().__init__()
        self.url = url
        self.headers = {
            "X-Auth-Token": "admin",
            "X-Auth-User": "admin" if admin else "user",
            "X-Auth-Project-Id": project,
            "X-Roles": "reader,member" + (",admin" if admin else ""),
        }

    def get_headers(self, session, **kwargs):
        return self.headers

    def get_endpoint(self, session, **kwargs):
        return self.url


class NovaCase(test.TestCase):
    """Four compute hosts; both of Nova's mechanisms and our filter are switched on."""

    def setUp(self):
        super().setUp()
        paste = os.path.join(sys.prefix, "etc/nova/api-paste.ini")
        self.flags(group="wsgi", api_paste_config=paste)
        self.flags(compute_driver="fake.MediumFakeDriver")
        self.useFixture(nova_fixtures.RealPolicyFixture())
        self.useFixture(nova_fixtures.GlanceFixture(self))
        self.useFixture(nova_fixtures.NeutronFixture(self))
        placement = self.useFixture(functional_fixtures.PlacementFixture())
        self.osapi = self.useFixture(nova_fixtures.OSAPIFixture())
        self.flags(
            group="filter_scheduler",
            available_filters=[
                "nova.scheduler.filters.all_filters",
                "nova_filters.laas.LaasTenantFilter",
            ],
            enabled_filters=[
                "ComputeFilter",
                "AggregateMultiTenancyIsolation",
                "LaasTenantFilter",
            ],
        )
        self.flags(group="scheduler", limit_tenants_to_placement_aggregate=True)
        self.start_service("conductor")
        self.start_service("scheduler")
        for host in HOSTS:
            self._start_compute(host)
        self.placement = Adapter(
            session.Session(Login(placement.endpoint, "service", admin=True)),
            service_type="placement",
            endpoint_override=placement.endpoint,
        )
        self.compute = NovaCompute(
            Cloud(self.nova("service", admin=True), self.placement),
            pool="laas-pool",
            sentinel="laas-nobody",
        )

    def _clear_attrs(self):
        """Keep the one attribute that pytest takes away itself."""
        method = self.__dict__.get(self._testMethodName)
        super()._clear_attrs()
        self.__dict__[self._testMethodName] = method

    def nova(self, project, *, admin=False):
        url = self.osapi.base_url
        login = Login(url, project, admin=admin)
        return client.Client(
            NOVA_VERSION, session=session.Session(login), auth=login, endpoint_override=url
        )

    def boot(self, project, hint=None):
        """Where the server lands; None if there is no host for it."""
        servers = self.nova(project).servers
        hints = {"laas:allocation": hint} if hint else None
        server = servers.create(
            "server", IMAGE, flavor="1", nics="none", scheduler_hints=hints, min_count=1
        )
        watched = self.nova("service", admin=True).servers
        until = time.monotonic() + 60
        while (found := watched.get(server.id)).status == "BUILD":
            assert time.monotonic() < until, "the server stays in BUILD"
            time.sleep(0.05)
        if found.status == "ERROR":
            assert "No valid host" in found.fault["message"]
            watched.delete(server.id)
            return None
        return getattr(found, "OS-EXT-SRV-ATTR:host")

    def delete_servers(self, host):
        servers = self.nova("service", admin=True).servers
        found = servers.list(search_opts={"all_tenants": 1, "host": host})
        for server in found:
            server.delete()
        until = time.monotonic() + 60
        while self.compute.occupants([host]):
            assert time.monotonic() < until, "the servers stay"
            time.sleep(0.05)


class TestAdapterAndFilter(NovaCase):
    def test_life_of_an_allocation(self):
        red, blue = Handover("a1", RED, ("n1",)), Handover("a2", BLUE, ("n2", "n3"))
        self.compute.pool(HOSTS)
        assert self.boot(RED) is None, "free hosts accept nobody"

        self.compute.hand_over(red)
        self.compute.hand_over(blue)
        assert self.compute.handed_over() == {"a1": red, "a2": blue}
        assert {self.boot(RED) for _ in range(2)} == {"n1"}
        assert self.boot(BLUE) in ("n2", "n3")
        assert self.boot("3" * 32) is None, "strangers are kept out"
        assert {o.project_id for o in self.compute.occupants(HOSTS)} == {RED, BLUE}

        self.compute.fence("a1")
        assert self.boot(RED) is None
        with pytest.raises(HostsBusy, match="n1 runs"):
            self.compute.take_back(red)
        self.delete_servers("n1")
        self.compute.take_back(red)
        assert self.compute.handed_over() == {"a2": blue}
        assert self.boot(RED) is None

        self.compute.hand_over(Handover("a3", RED, ("n1", "n4")))
        assert self.boot(RED) in ("n1", "n4")

    def test_the_hint_tells_two_allocations_of_a_project_apart(self):
        self.compute.pool(HOSTS)
        self.compute.hand_over(Handover("a1", RED, ("n1",)))
        self.compute.hand_over(Handover("a2", RED, ("n2", "n3")))
        assert self.boot(RED, hint="a1") == "n1"
        assert self.boot(RED, hint="a2") in ("n2", "n3")
        assert self.boot(RED, hint="a3") is None

    def test_busy_hosts_stay_out_of_the_pool(self):
        host = self.boot(RED)
        with pytest.raises(HostsBusy, match=f"{host} runs .* of project {RED}"):
            self.compute.pool(HOSTS)
        aggregates = self.nova("service", admin=True).aggregates.list()
        assert [set(a.hosts) for a in aggregates] == [set(HOSTS) - {host}]


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
    ("POST", "/os-aggregates/9/action", {"set_metadata": {"metadata": {"k": "v"}}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "N2"}}),
    ("POST", "/os-aggregates/9/action", {"add_host": {"host": "n2"}}),
    ("POST", "/os-aggregates/1/action", {"add_host": {"host": "n2"}}),
    ("GET", "/os-aggregates", None),
    ("PLACEMENT", "n1", None),
    ("PLACEMENT", "n3", None),
    ("DELETE", "/os-aggregates/1", None),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n1"}}),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "nowhere"}}),
    ("POST", "/os-aggregates/9/action", {"remove_host": {"host": "n2"}}),
    ("PLACEMENT", "n1", None),
    ("POST", "/os-aggregates/1/action", {"remove_host": {"host": "n2"}}),
    ("DELETE", "/os-aggregates/1", None),
    ("DELETE", "/os-aggregates/1", None),
    ("GET", "/os-aggregates", None),
    ("GET", "/os-hypervisors/detail", None),
    ("GET", "/os-hypervisors/detail?marker=00000000-0000-0000-0000-000000000000", None),
]
"""The rules of openstack aggregates that the adapter builds on."""


class TestStandIn(NovaCase):
    def test_it_answers_as_nova_does(self):
        login = Login(self.osapi.base_url, "service", admin=True)
        real = Adapter(session.Session(login), service_type="compute", endpoint_override=login.url)
        with nova_standin.Server() as server:
            server.cloud = nova_standin.Cloud(HOSTS)
            other = Login(server.url, "service")
            other.headers = {"X-Auth-Token": nova_standin.TOKEN}
            compute, placement = (
                Adapter(
                    session.Session(other),
                    service_type=service,
                    endpoint_override=f"{server.url}/{service}",
                )
                for service in ("compute", "placement")
            )
            for call in CALLS:
                wanted = played(real, self.placement, call)
                assert played(compute, placement, call) == wanted, call


def played(compute, placement, call):
    """The status, and of the answer what the adapter reads."""
    method, path, body = call
    if method == "PLACEMENT":
        return placement_view(compute, placement, path)
    answer = compute.request(path, method, json=body, microversion=NOVA_VERSION, raise_exc=False)
    if answer.status_code != 200 or method == "DELETE":
        return answer.status_code
    found = answer.json()
    for key, kept in (("aggregate", AGGREGATE), ("aggregates", AGGREGATE)):
        if key in found:
            items = found[key] if isinstance(found[key], list) else [found[key]]
            return [{k: item.get(k) for k in kept} | {"uuid": "uuid" in item} for item in items]
    hypervisors = found["hypervisors"]
    return [sorted(h["service"]) for h in hypervisors], {h["service"]["host"] for h in hypervisors}


AGGREGATE = ("name", "hosts", "metadata", "availability_zone")


def placement_view(compute, placement, host):
    """Names of the aggregates the host's provider is in, and what is allocated from it."""
    found = compute.get("/os-hypervisors/detail", microversion=NOVA_VERSION).json()["hypervisors"]
    (provider,) = [h["id"] for h in found if h["service"]["host"] == host]
    names = {
        a["uuid"]: a["name"]
        for a in compute.get("/os-aggregates", microversion=NOVA_VERSION).json()["aggregates"]
    }
    path = f"/resource_providers/{provider}"
    inside = placement.get(f"{path}/aggregates", microversion=PLACEMENT_VERSION).json()
    held = placement.get(f"{path}/allocations", microversion=PLACEMENT_VERSION).json()
    gone = placement.get(f"/allocations/{provider}", microversion=PLACEMENT_VERSION).json()
    return {names[uuid] for uuid in inside["aggregates"]}, held["allocations"], gone
