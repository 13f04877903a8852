# SPDX-License-Identifier: Apache-2.0

"""The filter with Nova's own objects and filter handler; no database, no service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from nova import context, objects
from nova.scheduler import filters, host_manager

from nova_filters.laas import LaasTenantFilter

RED, BLUE, GREEN = "red", "blue", "green"
HOSTS = ["n1", "n2", "n3", "n4", "n5"]
CLOSED = {"filter_tenant_id": "laas-nobody", "laas:pool": "true"}
POOL = ("laas-pool", ["n1", "n2", "n3", "n4"], CLOSED)  # n5 is not managed by the service


@pytest.fixture(scope="module", autouse=True)
def _objects():
    objects.register_all()


def allocation(id, project, *hosts):
    return (f"laas-{id}", list(hosts), {"filter_tenant_id": project, "laas:allocation": id})


REBUILD = {"_nova_check_type": ["rebuild"]}


def passing(aggregates, project, hint=None, **spec):
    """Hosts that pass the filter, called by Nova's own filter handler."""
    found = objects.AggregateList(
        objects=[
            objects.Aggregate(id=number, name=name, hosts=hosts, metadata=metadata)
            for number, (name, hosts, metadata) in enumerate(aggregates)
        ]
    )
    with mock.patch.object(objects.AggregateList, "get_all", return_value=found) as get_all:
        passed = run(project, hint, **spec)
    rebuild = spec.get("hints") == REBUILD and spec.get("forced")
    assert get_all.call_count == (0 if rebuild else 1)
    return passed


def run(project, hint=None, hints=None, forced=None):
    """``forced`` is ``force_hosts`` of the request; None leaves the field unset."""
    hints = dict(hints or {})
    if hint is not None:
        hints["laas:allocation"] = [hint]
    spec = objects.RequestSpec(
        context.get_admin_context(),
        project_id=project,
        instance_uuid="83d5f5a4-7c5e-4a7e-a3c5-6d3f9c5bb5a1",
        scheduler_hints=hints,
    )
    if forced is not None:
        spec.force_hosts = forced
    states = [SimpleNamespace(host=host, nodename=host, aggregates=[]) for host in HOSTS]
    handler = filters.HostFilterHandler()
    return [s.host for s in handler.get_filtered_objects([LaasTenantFilter()], states, spec)]


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
    error = RuntimeError("database is gone")
    with mock.patch.object(objects.AggregateList, "get_all", side_effect=error):
        assert run(RED) == []


def test_nobody_passes_when_the_aggregates_make_no_sense():
    with mock.patch.object(objects.AggregateList, "get_all", return_value=[object()]):
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
    error = RuntimeError("database is gone")
    with mock.patch.object(objects.AggregateList, "get_all", side_effect=error):
        assert run(RED, hints=REBUILD) == []
