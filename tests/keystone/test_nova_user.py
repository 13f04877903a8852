# SPDX-License-Identifier: Apache-2.0

"""How the service reaches Nova and placement: catalog, regions, tokens, retries, secrets.

Keystone is real. Stand-ins behind the endpoints of its catalog ask it whether tokens are valid.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest
from keystoneauth1 import loading

from laas_service.adapters import openstack_calls
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.ports.compute import Handover
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest
from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.wiring.composition import Composition
from tests.keystone.conftest import LONG
from tests.nova_standin import Cloud, Fault, Server
from tests.options import options_from
from tests.servers.keystone import PASSWORD

pytestmark = pytest.mark.road

HOSTS = ["n1", "n2", "n3"]
BLUE = Handover("a1", "blue", ("n1", "n2"))
NOWHERE = "http://127.0.0.1:9"
"""An endpoint that refuses connections; no test may need it."""


class Region(Server):
    """Stand-in of Nova and placement in a region; validates each token once with Keystone."""

    def __init__(self, keystone):
        super().__init__(self._knows)
        self._keystone = keystone
        self.tokens: dict[str, bool] = {}
        self.cloud = Cloud(HOSTS)

    def _knows(self, token):
        if token not in self.tokens:
            self.tokens[token] = token is not None and self._keystone.knows(token)
        return self.tokens[token]

    def revoke(self, keystone):
        """Let Keystone revoke all tokens that this region has seen."""
        for token in self.tokens:
            keystone.revoke(token)
            self.tokens[token] = keystone.knows(token)


@pytest.fixture(scope="module")
def regions(keystone):
    """North and South have an internal endpoint that answers, West only a public one."""
    with ExitStack() as stack:
        found = {}
        for name, interface in (("North", "internal"), ("South", "internal"), ("West", "public")):
            found[name] = region = stack.enter_context(Region(keystone))
            for service, path in (("compute", "compute"), ("placement", "placement")):
                keystone.endpoint(
                    service, f"{region.url}/{path}", region=f"Nova{name}", interface=interface
                )
                if interface == "internal":
                    keystone.endpoint(service, NOWHERE, region=f"Nova{name}", interface="public")
        project = keystone.project("service")
        keystone.user("nova-driver", {project: ["service", "admin"]})
        yield found


@pytest.fixture
def north(regions):
    for region in regions.values():
        region.cloud = Cloud(HOSTS)
        region.tokens.clear()
    return regions["North"]


@pytest.fixture
def made(keystone, tmp_path, monkeypatch):
    """Make the parts of a process with these options of [nova]."""
    monkeypatch.setattr(openstack_calls, "READ_PAUSE", 0.0)

    def parts(placement="", **options):
        given = {
            "region_name": "NovaNorth",
            **keystone.options("nova-driver", "service"),
            **options,
        }
        lines = [f"{name} = {value}" for name, value in given.items() if value is not None]
        region = f"region_name = {given['region_name']}"
        file = tmp_path / "laas.conf"
        file.write_text(
            "\n".join(
                [
                    "[DEFAULT]",
                    f"state_dir = {tmp_path}",
                    "[compute]",
                    "kind = nova",
                    "[nova]",
                    *lines,
                    "[placement]",
                    region,
                    placement,
                ]
            )
        )
        return Composition(options_from(file))

    return parts


@pytest.fixture
def connect(made):
    """Make the compute port with these options of [nova], whose login [placement] shares."""

    def compute(*args, **options):
        parts = made(*args, **options)
        parts.database.upgrade()  # the adapter reads the names of the recorded hosts
        return parts.compute

    return compute


def asked(regions):
    return {name for name, region in regions.items() if region.cloud.calls}


# -- endpoints --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["North", "South", "West"])
def test_the_region_named_is_the_one_that_is_driven(connect, regions, north, name):
    """The adapter prefers internal endpoints, and uses the public one if there is no other."""
    compute = connect(region_name=f"Nova{name}")
    compute.pool(HOSTS)
    compute.hand_over(BLUE)
    assert asked(regions) == {name}
    assert regions[name].cloud.named("laas-a1").hosts == ["n1", "n2"]
    kinds = {call for call, _ in regions[name].cloud.calls}
    assert {"create", "add_host", "consumers", "members"} <= kinds


def test_the_interface_named_is_the_one_that_is_used(connect, regions, north):
    with pytest.raises(Unavailable, match=NOWHERE):
        connect(valid_interfaces="public").handed_over()
    assert asked(regions) == set()


def test_an_address_of_its_own_beats_the_catalog(connect, regions, north):
    compute = connect(endpoint_override=f"{regions['South'].url}/compute")
    assert compute.handed_over() == {}
    assert asked(regions) == {"South"}


def test_placement_may_have_a_region_and_a_login_of_its_own(connect, regions, north, keystone):
    keystone.user("placement-driver", {keystone.project("service"): ["service"]})
    login = keystone.options("placement-driver", "service")
    lines = [f"{name} = {value}" for name, value in login.items()]
    south = "region_name = NovaSouth"
    regions["South"].cloud = north.cloud.copy()
    connect("\n".join([south, *lines])).occupants(["n1"])
    assert "consumers" not in {call for call, _ in north.cloud.calls}
    assert north.tokens
    assert not north.tokens.keys() & regions["South"].tokens.keys()


def test_a_region_nobody_knows_is_named(connect, north):
    with pytest.raises(Unavailable, match="NovaEast"):
        connect(region_name="NovaEast").handed_over()


# -- tokens -------------------------------------------------------------------------------


def test_one_token_does_for_many_calls(connect, north):
    compute = connect()
    compute.pool(HOSTS)
    compute.hand_over(BLUE)
    assert len(north.cloud.calls) > 10
    assert len(north.tokens) == 1


def test_a_token_that_is_revoked_is_replaced_unnoticed(connect, north, keystone):
    compute = connect()
    compute.pool(HOSTS)
    north.revoke(keystone)
    compute.hand_over(BLUE)
    assert len(north.tokens) == 2
    assert compute.handed_over() == {"a1": BLUE}


def test_tokens_that_expire_all_the_time_are_replaced_all_the_time(connect, north, keystone):
    """keystoneauth replaces a token that ends within two minutes: every call has a new one."""
    keystone.restart(expiration=100)
    try:
        compute = connect()
        compute.pool(["n1"])
    finally:
        keystone.restart(expiration=LONG)
    assert len(north.tokens) > 2
    assert all(north.tokens.values())
    assert compute.handed_over() == {}


def test_keystone_away_and_back(connect, north, keystone):
    compute = connect()
    keystone.stop()
    try:
        with pytest.raises(Unavailable, match="list aggregates"):
            compute.handed_over()
    finally:
        keystone.start()
    assert compute.handed_over() == {}


@pytest.mark.parametrize("options", [{"password": "guess"}, {"username": "nobody-we-know"}])
def test_a_login_that_is_not_accepted(connect, north, options):
    with pytest.raises(Unavailable, match="does not accept the configured login") as refused:
        connect(**options).handed_over()
    assert "guess" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_options_that_are_not_enough_are_named(connect, north):
    with pytest.raises(InvalidInput, match="auth_url"):
        connect(auth_url=None)


# -- retries and limits ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "option"), [(503, "status_code_retries"), ("refused", "connect_retries")]
)
def test_calls_are_retried_as_often_as_the_options_say(connect, north, kind, option):
    """Writes are retried too: the adapter reads whether an earlier try was carried out."""
    delay = {f"{option.removesuffix('ries')}ry_delay": 0.01}
    north.cloud.faults = [Fault(kind, "create", times=2)]
    connect(**{option: 2}, **delay).pool(HOSTS)
    assert north.cloud.named("laas-pool").hosts == HOSTS
    north.cloud.faults = [Fault(kind, "set_metadata", times=2)]
    with pytest.raises(Unavailable):
        connect(**{option: 1}, **delay).pool(HOSTS)


def test_who_does_not_answer_in_time_is_unavailable(connect, north, monkeypatch):
    sessions = []
    load = loading.load_session_from_conf_options

    def noted(*args, **options):
        sessions.append(load(*args, **options))
        return sessions[-1]

    monkeypatch.setattr(loading, "load_session_from_conf_options", noted)
    compute = connect(timeout=600)
    assert sessions[0].timeout == 600
    assert compute.handed_over() == {}, "the login is done, and takes none of the time"
    for session in sessions:
        session.timeout = 1
    north.cloud.faults = [Fault("hang", "list", times=3)]
    with pytest.raises(Unavailable, match="list aggregates"):
        compute.handed_over()
    north.cloud.hanging.set()
    assert not north.cloud.faults[0].times


# -- secrets ------------------------------------------------------------------------------


def test_no_log_shows_a_secret(connect, north, keystone, caplog):
    """No logger shows a secret at DEBUG, including those of libraries, also after failures."""
    caplog.set_level(logging.DEBUG)
    for name in ("keystoneauth", "novaclient", "urllib3", "keystoneauth.session"):
        caplog.set_level(logging.DEBUG, logger=name)
    compute = connect()
    compute.pool(HOSTS)
    north.revoke(keystone)
    north.cloud.faults = [Fault(500, "create"), Fault("garbage", "list")]
    with pytest.raises(Unavailable):
        compute.hand_over(BLUE)
    with pytest.raises(Unavailable):
        connect(password="a-wrong-secret").handed_over()
    assert "os-aggregates" in caplog.text
    assert "/auth/tokens" in caplog.text
    for secret in (PASSWORD, "a-wrong-secret", *north.tokens):
        assert secret not in caplog.text


# -- projects ---------------------------------------------------------------------------


def test_a_project_must_exist_and_be_enabled_with_its_domain(made, keystone, regions):
    """It is looked up with the login of [nova]; without the right nobody can tell."""
    admin = keystone._admin
    keystone.endpoint("identity", keystone.url, region="NovaNorth", interface="internal")
    domain = admin.post("/domains", json={"domain": {"name": "closing"}}).json()["domain"]["id"]
    document = {"project": {"name": "green", "domain_id": domain}}
    green = admin.post("/projects", json=document).json()["project"]["id"]
    projects = made().projects
    assert projects.check(green) is True
    admin.patch(f"/domains/{domain}", json={"domain": {"enabled": False}})
    with pytest.raises(InvalidInput, match="its domain is disabled"):
        projects.check(green)
    admin.patch(f"/domains/{domain}", json={"domain": {"enabled": True}})
    admin.patch(f"/projects/{green}", json={"project": {"enabled": False}})
    with pytest.raises(InvalidInput, match="the project is disabled"):
        projects.check(green)
    with pytest.raises(InvalidInput, match="Keystone has no such project"):
        projects.check("0" * 32)
    assert [projects.is_gone(id) for id in (green, "0" * 32)] == [False, True]
    keystone.user("powerless", {keystone.project("service"): ["member"]})
    assert made(**keystone.options("powerless", "service")).projects.check(green) is False
    with pytest.raises(Unavailable, match="Keystone did not tell"):
        made(valid_interfaces="public", region_name="NovaEast").projects.check(green)


def test_an_allocation_for_a_project_that_does_not_exist_is_refused(made, keystone, regions):
    """The use cases of a process ask the Keystone of [nova], as it is configured."""
    keystone.endpoint("identity", keystone.url, region="NovaNorth", interface="internal")
    parts = made()
    parts.database.upgrade()
    tree = generate(Description(xgft="2;3,2;1,3"))
    parts.store.fabrics.add("f", tree.topology, tree.inventory)
    allocations = parts.use_cases(wake=lambda: None).allocations
    caller = Caller("ops", "operator", admin=True, request_id="request")
    asked = AllocationRequest(name="x", hosts=1, project_id="0" * 32)
    with pytest.raises(InvalidInput, match="Keystone has no such project"):
        allocations.allocate(caller, asked)
