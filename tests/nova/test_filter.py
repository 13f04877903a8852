# SPDX-License-Identifier: Apache-2.0

"""The filter with Nova's own objects, filter handler and API database; no service."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import sqlalchemy as sa
from nova import context, exception, objects
from nova.conf import CONF
from nova.db.api import api
from nova.scheduler import filters, host_manager, request_filter
from nova.scheduler.client import report
from nova.tests import fixtures as nova_fixtures
from oslo_config import fixture as conf_fixture

from nova_filters import laas
from nova_filters.laas import LaasTenantFilter
from tests.nova.many import write_aggregates

pytestmark = pytest.mark.road

RED, BLUE, GREEN = "red", "blue", "green"
HOSTS = ["n1", "n2", "n3", "n4", "n5"]
CLOSED = {"filter_tenant_id": "laas-nobody", "laas:pool": "true"}
POOL = ("laas-pool", ["n1", "n2", "n3", "n4"], CLOSED)  # n5 is not managed by the service


@pytest.fixture(scope="module", autouse=True)
def database():
    objects.register_all()
    with nova_fixtures.Database(database="api"):
        yield


def allocation(id, project, *hosts):
    return (f"laas-{id}", list(hosts), {"filter_tenant_id": project, "laas:allocation": id})


REBUILD = {"_nova_check_type": ["rebuild"]}


def passing(aggregates, project, hint=None, **spec):
    """Hosts that pass the filter, called by Nova's own filter handler."""
    write_aggregates(aggregates)
    return run(project, hint, **spec)


def request_of(project, hints=None):
    return objects.RequestSpec(
        context.get_admin_context(),
        project_id=project,
        instance_uuid="83d5f5a4-7c5e-4a7e-a3c5-6d3f9c5bb5a1",
        scheduler_hints=dict(hints or {}),
    )


def run(project, hint=None, hints=None, forced=None):
    """``forced`` is ``force_hosts`` of the request; None leaves the field unset."""
    hints = dict(hints or {})
    if hint is not None:
        hints["laas:allocation"] = [hint]
    spec = request_of(project, hints)
    if forced is not None:
        spec.force_hosts = forced
    states = [
        SimpleNamespace(host=host, nodename=host, uuid=host, hypervisor_type="QEMU", aggregates=[])
        for host in HOSTS
    ]
    handler = filters.HostFilterHandler()
    return [s.host for s in handler.get_filtered_objects([LaasTenantFilter()], states, spec)]


NODES = ["x1", "x2", "x3", "x4"]
"""Names and UUIDs of Ironic nodes, all of the compute host ``bm``."""


def named(group, *nodes):
    """An aggregate that names nodes as well."""
    name, hosts, keys = group
    return name, hosts, {**keys, **{f"laas:node:{node}": "its host" for node in nodes}}


def passing_nodes(aggregates, project, hint=None, kind="ironic"):
    """Nodes that pass the filter."""
    write_aggregates(aggregates)
    spec = request_of(project, {"laas:allocation": [hint]} if hint else None)
    states = [
        SimpleNamespace(host="bm", nodename=node, uuid=node, hypervisor_type=kind, aggregates=[])
        for node in NODES
    ]
    through = filters.HostFilterHandler().get_filtered_objects
    return [state.uuid for state in through([LaasTenantFilter()], states, spec)]


class TestNodes:
    """x1 and x2 belong to RED, x3 is free, and x4 is not of the service."""

    AGGREGATES = (
        named(POOL, "x1", "x2", "x3"),
        named(allocation("a", RED, "n1"), "x1", "x2"),
    )

    def test_each_is_judged_by_its_uuid(self):
        assert passing_nodes(self.AGGREGATES, RED) == ["x1", "x2"]
        assert passing_nodes(self.AGGREGATES, BLUE) == ["x4"]
        assert passing_nodes(self.AGGREGATES, RED, hint="a") == ["x1", "x2"]
        assert passing_nodes(self.AGGREGATES, RED, hint="b") == []
        assert passing_nodes(self.AGGREGATES, BLUE, hint="a") == []

    def test_hypervisors_beside_them_are_judged_as_ever(self):
        assert passing(self.AGGREGATES, RED) == ["n1"]
        assert passing(self.AGGREGATES, BLUE) == ["n5"]

    def test_a_fenced_allocation_accepts_nobody(self):
        fenced = named(allocation("a", "laas-nobody"), "x1", "x2")
        assert passing_nodes([self.AGGREGATES[0], fenced], RED) == ["x4"]

    def test_a_node_of_two_allocations_or_drained_accepts_nobody(self):
        other = named(allocation("b", BLUE), "x2")
        drained = named(("drained", [], {"laas:drained": "true"}), "x1")
        assert passing_nodes([*self.AGGREGATES, other], RED) == ["x1"]
        assert passing_nodes([*self.AGGREGATES, other], BLUE) == []
        assert passing_nodes([*self.AGGREGATES, drained], RED) == ["x2"]

    def test_the_compute_host_closes_nodes_and_opens_none(self):
        """Somebody put ``bm`` into the pool, into an allocation, or into an aggregate of others."""
        assert passing_nodes([("p", ["bm"], CLOSED), *self.AGGREGATES], BLUE) == []
        assert passing_nodes([("p", ["bm"], CLOSED), *self.AGGREGATES], RED) == ["x1", "x2"]
        green = allocation("g", GREEN, "bm")
        for project in (GREEN, BLUE):
            assert passing_nodes([*self.AGGREGATES, green], project) == []
        assert passing_nodes([*self.AGGREGATES, green], RED) == ["x1", "x2"]
        foreign = ("foreign", ["bm"], {"filter_tenant_id": BLUE})
        assert passing_nodes([*self.AGGREGATES, foreign], BLUE) == ["x4"]
        assert passing_nodes([*self.AGGREGATES, foreign], GREEN) == []

    def test_the_key_closes_a_node_whatever_its_type(self):
        """Nova's memory of a node may lack its type."""
        for kind in (None, "QEMU"):
            assert passing_nodes(self.AGGREGATES, RED, kind=kind) == ["x1", "x2"]

    def test_without_what_it_has_to_read_no_node_passes(self):
        with mock.patch.object(laas, "NODES", sa.text("SELECT nothing")):
            assert passing_nodes(self.AGGREGATES, BLUE) == []


def test_nova_finds_it_by_its_dotted_path():
    handler = filters.HostFilterHandler()
    (found,) = handler.get_matching_classes(["nova_filters.laas.LaasTenantFilter"])
    assert found is LaasTenantFilter
    assert "LaasTenantFilter" not in {
        cls.__name__ for cls in handler.get_matching_classes(["nova.scheduler.filters.all_filters"])
    }
    assert host_manager.HostManager  # importing the scheduler must not fail


def test_it_imports_nothing_of_the_service():
    """The filter runs on machines where only Nova is installed."""
    code = (
        "import sys, nova_filters.laas\n"
        "assert not [m for m in sys.modules if m.startswith(('laas_service', 'opensm_writer'))]"
    )
    home = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=home)


def test_without_aggregates_everybody_goes_everywhere():
    assert passing([], RED) == HOSTS


def test_free_hosts_accept_nobody():
    for project in (RED, BLUE):
        assert passing([POOL], project) == ["n5"]


def test_the_owner_is_confined_and_strangers_are_kept_out():
    aggregates = [POOL, allocation("a", RED, "n1", "n2"), allocation("b", BLUE, "n3")]
    assert passing(aggregates, RED) == ["n1", "n2"]
    assert passing(aggregates, BLUE) == ["n3"]
    assert passing(aggregates, GREEN) == ["n5"]


def test_an_owner_without_hosts_gets_none():
    assert passing([POOL, allocation("a", RED)], RED) == []


def test_a_fenced_allocation_accepts_nobody():
    fenced = allocation("a", "laas-nobody", "n1", "n2")
    assert passing([POOL, fenced], RED) == ["n5"]
    assert passing([POOL, fenced, allocation("c", RED, "n3")], RED) == ["n3"]


def test_the_hint_picks_one_of_several_allocations():
    aggregates = [POOL, allocation("a", RED, "n1"), allocation("c", RED, "n2", "n3")]
    assert passing(aggregates, RED) == ["n1", "n2", "n3"]
    assert passing(aggregates, RED, hint="a") == ["n1"]
    assert passing(aggregates, RED, hint="c") == ["n2", "n3"]


@pytest.mark.parametrize("hint", ["b", "unknown", ""])
def test_the_hint_opens_nothing(hint):
    aggregates = [POOL, allocation("a", RED, "n1"), allocation("b", BLUE, "n3")]
    assert passing(aggregates, RED, hint=hint) == []
    assert passing(aggregates, GREEN, hint=hint) == []


def test_several_hints_pick_nothing():
    aggregates = [POOL, allocation("a", RED, "n1"), allocation("c", RED, "n2")]
    assert passing(aggregates, RED, hints={"laas:allocation": ["a", "c"]}) == []


def test_drained_hosts_accept_nobody():
    drained = ("laas-drained", ["n1", "n5"], {"laas:drained": "true"})
    aggregates = [POOL, allocation("a", RED, "n1", "n2"), drained]
    assert passing(aggregates, RED) == ["n2"]
    assert passing(aggregates, GREEN) == []
    off = ("laas-drained", ["n1", "n5"], {"laas:drained": "false"})
    assert passing([POOL, allocation("a", RED, "n1", "n2"), off], RED) == ["n1", "n2"]


def test_a_host_of_two_allocations_accepts_nobody():
    aggregates = [POOL, allocation("a", RED, "n1", "n2"), allocation("b", BLUE, "n2", "n3")]
    assert passing(aggregates, RED) == ["n1"]
    assert passing(aggregates, BLUE) == ["n3"]


@pytest.mark.parametrize("key", ["filter_tenant_id", "filter_tenant_id_2"])
def test_aggregates_of_others_open_none_of_our_hosts(key):
    foreign = ("foreign", ["n1", "n4", "n5"], {key: BLUE})
    aggregates = [POOL, allocation("a", RED, "n1", "n2"), foreign]
    assert passing(aggregates, BLUE) == ["n5"]
    assert passing(aggregates, RED) == ["n1", "n2"]
    assert passing(aggregates, GREEN) == []
    aggregates.append(allocation("b", BLUE, "n3"))
    assert passing(aggregates, BLUE) == ["n3", "n5"]
    assert passing(aggregates, BLUE, hint="b") == ["n3"]


def test_keys_beside_ours_open_none_of_our_hosts():
    name, hosts, metadata = allocation("a", RED, "n1", "n2")
    widened = (name, hosts, metadata | {"filter_tenant_id_2": BLUE})
    assert passing([POOL, widened], BLUE) == ["n5"]
    listed = (name, hosts, metadata | {"filter_tenant_id": f"{RED},{BLUE}"})
    assert passing([POOL, listed], RED) == passing([POOL, listed], BLUE) == ["n5"]


def test_a_pool_from_before_the_mark_is_closed_as_well():
    old = ("laas-pool", ["n1", "n2", "n3", "n4"], {"filter_tenant_id": "laas-nobody"})
    assert passing([old], BLUE) == ["n5"]
    assert passing([old, allocation("a", BLUE, "n1")], BLUE) == ["n1"]


def test_lists_and_longer_keys_are_read_as_nova_reads_them():
    shared = ("shared", ["n5"], {"filter_tenant_id_team": f"{BLUE} , {GREEN}"})
    assert passing([shared], GREEN) == ["n5"]
    assert passing([shared], BLUE) == ["n5"]
    assert passing([shared], RED) == ["n1", "n2", "n3", "n4"]
    assert passing([("empty", ["n5"], {"filter_tenant_id": ""})], RED) == HOSTS[:4]


def test_other_aggregates_do_not_count():
    ssd = ("ssd", ["n1"], {"ssd": "true", "tenants": RED})
    assert passing([ssd], BLUE) == HOSTS


def test_nobody_passes_when_the_database_does_not_answer():
    write_aggregates([])
    assert run(RED) == HOSTS
    with silent_database():
        assert run(RED) == []


@contextmanager
def silent_database():
    """Nova's API database without the aggregates."""
    engine = api.context_manager.writer.get_engine()
    with engine.begin() as rows:
        rows.execute(sa.text("ALTER TABLE aggregate_metadata RENAME TO away"))
    try:
        yield
    finally:
        with engine.begin() as rows:
            rows.execute(sa.text("ALTER TABLE away RENAME TO aggregate_metadata"))


def test_nobody_passes_when_the_aggregates_make_no_sense():
    with mock.patch.object(laas, "_read", return_value=({1: None}, {})):
        assert run(RED) == []


def test_a_rebuild_stays_where_it_is():
    assert passing([POOL], RED, hints=REBUILD, forced=["n1"]) == HOSTS


@pytest.mark.parametrize("forced", [None, []])
def test_a_forged_rebuild_is_judged_as_the_create_that_it_is(forced):
    """Before the fix of CVE-2026-46448, Nova accepts the hint from any user."""
    aggregates = [POOL, allocation("a", RED, "n1", "n2")]
    assert passing(aggregates, BLUE, hints=REBUILD, forced=forced) == ["n5"]
    assert passing(aggregates, RED, hints=REBUILD, forced=forced) == ["n1", "n2"]
    assert passing(aggregates, RED, hints=REBUILD | {"laas:allocation": ["b"]}) == []


def test_a_forged_rebuild_does_not_pass_when_the_database_does_not_answer():
    write_aggregates([])
    with silent_database():
        assert run(RED, hints=REBUILD) == []


# -- what placement is asked for -------------------------------------------------------


@pytest.fixture
def enabled():
    """Nova's options with the filter enabled, as ``links.conf`` does it."""
    with conf_fixture.Config(CONF) as options:
        filters = [*CONF.filter_scheduler.enabled_filters, "LaasTenantFilter"]
        options.config(group="filter_scheduler", enabled_filters=filters)
        LaasTenantFilter()
        yield options


def forbidden(project):
    """Names of the aggregates whose hosts placement must not return, by Nova's own filters."""
    spec = objects.RequestSpec(
        context.get_admin_context(),
        project_id=project,
        availability_zone=None,
        flavor=objects.Flavor(vcpus=1, memory_mb=1, root_gb=1, ephemeral_gb=0, swap=0),
        image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        is_bfv=True,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
    )
    spec.flavor.extra_specs = {}
    request_filter.process_reqspec(spec._context, spec)
    if "requested_destination" not in spec or not spec.requested_destination:
        return set()
    uuids = spec.requested_destination.forbidden_aggregates or ()
    known = objects.AggregateList.get_all(spec._context)
    return {aggregate.name for aggregate in known if aggregate.uuid in uuids}


MORE = ("laas-pool-01", ["n6"], CLOSED)


def test_placement_hides_the_pool_from_projects_without_an_allocation(enabled):
    write_aggregates(
        [POOL, MORE, allocation("a", RED, "n1"), ("theirs", ["n5"], {"filter_tenant_id": BLUE})]
    )
    for project in (BLUE, GREEN):
        assert forbidden(project) == {"laas-pool", "laas-pool-01"}
    assert forbidden(RED) == set()


def test_placement_hides_the_pool_from_the_owner_of_a_fenced_allocation(enabled):
    write_aggregates([POOL, allocation("a", "laas-nobody", "n1")])
    assert forbidden(RED) == {"laas-pool"}


def test_nothing_is_hidden_without_a_pool_or_without_the_filter(enabled):
    write_aggregates([("theirs", ["n5"], {"filter_tenant_id": BLUE})])
    assert forbidden(GREEN) == set()
    write_aggregates([POOL])
    enabled.config(group="filter_scheduler", enabled_filters=["ComputeFilter"])
    assert forbidden(GREEN) == set()


def test_a_request_goes_on_when_the_pool_cannot_be_read(enabled):
    write_aggregates([POOL])
    with silent_database():
        assert laas.hide_pool(context.get_admin_context(), objects.RequestSpec()) is False


def test_the_pool_is_hidden_once_however_often_the_scheduler_loads_the_filter(enabled):
    for _ in range(2):
        LaasTenantFilter()
    assert request_filter.ALL_REQUEST_FILTERS.count(laas.hide_pool) == 1


@pytest.mark.parametrize(("module", "path"), laas.PARTS_OF_NOVA)
def test_a_nova_of_another_interface_is_refused_by_name(monkeypatch, module, path):
    *parents, last = path.split(".")
    owner = module
    for name in parents:
        owner = getattr(owner, name)
    monkeypatch.setattr(laas, "_has", lambda where, what: (where, what) != (module, path))
    assert getattr(owner, last, None) is not None
    with pytest.raises(ImportError, match=f"does not fit Nova .* lacks .*{re.escape(path)}"):
        laas._check_nova()


def test_nova_shows_that_it_calls_the_request_filter(enabled, caplog, monkeypatch):
    """A Nova that keeps the list but calls it no more is told in the log, once."""
    monkeypatch.setattr(laas, "_CALLED", set())
    write_aggregates([POOL])
    one = LaasTenantFilter()
    for _ in range(2):
        list(one.filter_all([], request_of(RED)))
    assert caplog.text.count("does not call request filters") == 1
    caplog.clear()
    forbidden(RED)
    list(LaasTenantFilter().filter_all([], request_of(RED)))
    assert "does not call" not in caplog.text


SLOT = "CUSTOM_LAAS_SLOT_A"


def sharing(id, project, *hosts):
    name, hosts, keys = allocation(id, project, *hosts)
    return name, hosts, {**keys, "laas:slots": f"CUSTOM_LAAS_SLOT_{id.upper()}"}


class TestSharedHosts:
    """RED and BLUE share n1 and n2, GREEN owns n3, and n4 is free."""

    AGGREGATES = (
        POOL,
        sharing("a", RED, "n1", "n2"),
        sharing("b", BLUE, "n1", "n2"),
        allocation("c", GREEN, "n3"),
    )

    @pytest.fixture
    def enabled(self):
        with conf_fixture.Config(CONF) as conf:
            conf.config(group="filter_scheduler", enabled_filters=["LaasTenantFilter"])
            yield

    @pytest.fixture
    def placement(self):
        """Placement with a free slot of every class."""
        answer = SimpleNamespace(status_code=200, json=lambda: {"resource_providers": [{}]})
        client = SimpleNamespace(get=mock.Mock(return_value=answer))
        with mock.patch.object(report, "report_client_singleton", return_value=client):
            yield answer

    def through(self, aggregates, project, hint=None, *, slot=None, flavor=True):
        """Hosts that pass, and the flavor's extra specs afterwards. ``slot``: a class asked for."""
        write_aggregates(aggregates)
        spec = request_of(project, {"laas:allocation": [hint]} if hint else None)
        if flavor:
            spec.flavor = objects.Flavor(extra_specs={f"resources:{slot}": "1"} if slot else {})
            laas.claim_slot(spec._context, spec)
        states = [
            SimpleNamespace(host=h, nodename=h, uuid=h, hypervisor_type="QEMU", aggregates=[])
            for h in HOSTS
        ]
        through = filters.HostFilterHandler().get_filtered_objects
        hosts = [s.host for s in through([LaasTenantFilter()], states, spec)]
        return hosts, dict(spec.flavor.extra_specs) if flavor else {}

    def test_a_sharer_gets_the_shared_hosts_and_asks_for_a_slot(self, enabled, placement):
        hosts, specs = self.through(self.AGGREGATES, RED)
        assert hosts == ["n1", "n2"]
        assert specs == {f"resources:{SLOT}": "1"}

    def test_without_a_slot_nobody_passes(self, enabled, placement):
        assert self.through(self.AGGREGATES, RED, flavor=False) == ([], {})
        with conf_fixture.Config(CONF) as conf:
            conf.config(group="filter_scheduler", enabled_filters=[])
            assert self.through(self.AGGREGATES, RED)[0] == []

    def test_a_slot_of_another_allocation_does_not_count(self, enabled, placement):
        name = "CUSTOM_LAAS_SLOT_B"
        write_aggregates(self.AGGREGATES)
        spec = request_of(RED)
        spec.flavor = objects.Flavor(extra_specs={f"resources:{name}": "1"})
        judged = laas._Judge({1: self.AGGREGATES[1][2]}, RED, None, laas._resources(spec))
        assert not judged.passes({1})

    def test_owners_and_strangers_get_no_shared_host(self, enabled, placement):
        assert self.through(self.AGGREGATES, GREEN) == (["n3"], {})
        assert self.through(self.AGGREGATES, "violet") == (["n5"], {})

    def test_a_host_of_an_owner_and_a_sharer_is_nobodys(self, enabled, placement):
        mixed = (*self.AGGREGATES[:3], allocation("c", GREEN, "n2"))
        assert self.through(mixed, RED)[0] == ["n1"]
        assert self.through(mixed, GREEN)[0] == []

    def test_a_drained_shared_host_accepts_nobody(self, enabled, placement):
        drained = ("closed", ["n1"], {"laas:drained": "true"})
        assert self.through((*self.AGGREGATES, drained), RED)[0] == ["n2"]

    def test_a_project_with_hosts_of_its_own_names_the_allocation(self, enabled, placement):
        both = (*self.AGGREGATES[:3], allocation("c", RED, "n3"))
        assert self.through(both, RED) == (["n3"], {})
        assert self.through(both, RED, "a")[0] == ["n1", "n2"]
        assert self.through(both, RED, "c") == (["n3"], {})

    def test_slots_in_two_allocations_need_the_hint(self, enabled, placement):
        both = (POOL, sharing("a", RED, "n1"), sharing("b", RED, "n2"))
        with pytest.raises(exception.RequestFilterFailed, match=r"a, b.*laas:allocation"):
            self.through(both, RED)
        assert self.through(both, RED, "b") == (["n2"], {"resources:CUSTOM_LAAS_SLOT_B": "1"})

    def test_taken_slots_are_told(self, enabled, placement):
        placement.json = lambda: {"resource_providers": []}
        with pytest.raises(exception.RequestFilterFailed, match="All slots of allocation a"):
            self.through(self.AGGREGATES, RED)

    def test_a_placement_that_cannot_tell_leaves_it_to_the_claim(self, enabled, placement):
        placement.status_code = 500
        assert self.through(self.AGGREGATES, RED)[1] == {f"resources:{SLOT}": "1"}

    def test_aggregates_that_cannot_be_read_close_the_shared_hosts(self, enabled, placement):
        with mock.patch.object(laas, "_slot_classes", side_effect=ValueError):
            assert self.through(self.AGGREGATES, RED) == ([], {})
