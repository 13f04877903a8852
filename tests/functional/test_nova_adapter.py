# SPDX-License-Identifier: Apache-2.0

"""The Nova adapter over real HTTP, through novaclient, against a cloud that can fail."""

from __future__ import annotations

import inspect
import logging
import sqlite3
import tempfile
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache, partial

import pytest
from keystoneauth1 import loading

from laas_service.adapters import openstack_calls
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.nova import hosts, pool
from laas_service.app.ports.compute import (
    ComputeReader,
    Handover,
    ObservedAggregates,
    Occupant,
    ServerMoves,
)
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from laas_service.wiring.composition import Composition
from tests.nova_standin import EVERYBODY, TOKEN, Cloud, Fault, Handler, Server
from tests.options import options_from
from tests.waiting import at_once

RED, BLUE, GREEN = "red-project", "blue-project", "green-project"
NOBODY = {"filter_tenant_id": "laas-nobody"}
POOLED = NOBODY | {"laas:pool": "true"}
ALL = ["n1", "n2", "n3", "n4"]
A1 = Handover("a1", RED, ("n1", "n2"))
MOVED = Handover("a1", RED, ("n2", "n3"))
HANG = 0.2  # the client's time-out in seconds for requests that are never answered


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture
def cloud(server):
    server.cloud = Cloud(ALL)
    yield server.cloud
    server.cloud.hanging.set()


def connect(server, tmp_path, compute_options=(), **nova_options):
    lines = [f"{name} = {value}" for name, value in nova_options.items()]
    login = ["auth_type = admin_token", f"endpoint = {server.url}/compute", f"token = {TOKEN}"]
    file = tmp_path / "laas.conf"
    file.write_text(
        "\n".join(
            [
                *("[compute]", "kind = nova", *compute_options, "[nova]", *login, *lines),
                *("[placement]", "auth_section = nova"),
                f"endpoint_override = {server.url}/placement",
            ]
        )
    )
    return parts_of(file).compute


def parts_of(file):
    """The service as a file configures it, with a database beside it."""
    conf = options_from(file)
    conf.set_override("state_dir", str(file.parent))
    with closing(sqlite3.connect(file.parent / "laas.sqlite")) as copy:
        database().backup(copy)
    return Composition(conf)


@cache
def database():
    """A database without a fabric, made once."""
    directory = tempfile.mkdtemp()
    conf = options_from()
    conf.set_override("state_dir", directory)
    Composition(conf).database.upgrade()
    return sqlite3.connect(f"{directory}/laas.sqlite", check_same_thread=False)


@pytest.fixture
def sessions(monkeypatch):
    """The HTTP sessions of the adapter, for tests that shorten the time-outs."""
    monkeypatch.setattr(openstack_calls, "READ_PAUSE", 0.0)
    made = []
    load = loading.load_session_from_conf_options

    def noted(*args, **kwargs):
        made.append(load(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(loading, "load_session_from_conf_options", noted)
    return made


@pytest.fixture
def compute(server, cloud, tmp_path, sessions):
    return connect(server, tmp_path)


def writes(cloud):
    return [(call, about) for call, about in cloud.calls if call in WRITES]


def owned(project, *hosts, id="a1"):
    return ({"filter_tenant_id": project, "laas:allocation": id}, set(hosts))


def test_no_question_changes_anything(cloud, compute, monkeypatch):
    """Each method of ``ComputeReader`` works with services that only answer GET."""
    compute.pool(ALL)
    compute.hand_over(A1)
    refused = []

    def refuse(handler):
        refused.append(f"{handler.command} {handler.path}")
        handler._answer(405, {})

    for command in ("POST", "PUT", "PATCH", "DELETE"):
        monkeypatch.setattr(Handler, f"do_{command}", refuse, raising=False)
    cloud.calls.clear()
    arguments = {
        "hosts": ALL,
        "handover": A1,
        "moves": ServerMoves("a1", RED, {"n1": "n3"}),
        "project_id": RED,
    }
    questions = [name for name in vars(ComputeReader) if not name.startswith("_")]
    for name in questions:
        method = getattr(compute, name)
        answer = method(*(arguments[given] for given in inspect.signature(method).parameters))
        if name == "comparison":
            with answer:
                compute.handed_over()
    assert len(questions) > 8
    assert cloud.calls
    assert refused == []
    assert cloud.calls
    assert writes(cloud) == []


# -- the life of allocations --------------------------------------------------------


def test_life_of_an_allocation(cloud, compute):
    compute.pool(ALL)
    cloud.watch(ALL)
    compute.hand_over(A1)
    aggregates, mirror = cloud.snapshot()
    assert aggregates == {"laas-pool": (POOLED, set(ALL)), "laas-a1": owned(RED, "n1", "n2")}
    assert mirror["n1"] == {"laas-pool", "laas-a1"}
    assert mirror["n3"] == {"laas-pool"}
    assert compute.handed_over() == {"a1": A1}
    assert cloud.accepts("n1") == {"laas-nobody", RED}

    compute.fence("a1")
    assert cloud.accepts("n1") == {"laas-nobody"}
    assert compute.handed_over() == {"a1": Handover("a1", "laas-nobody", A1.hosts)}

    compute.take_back(A1)
    assert cloud.snapshot()[0] == {"laas-pool": (POOLED, set(ALL))}
    assert compute.handed_over() == {}
    assert set().union(*cloud.let_in.values()) == {"laas-nobody", RED}
    assert cloud.let_in["n3"] == {"laas-nobody"}


def test_two_allocations_side_by_side(cloud, compute):
    blue = Handover("a2", BLUE, ("n3",))
    compute.pool(ALL)
    compute.hand_over(A1)
    compute.hand_over(blue)
    assert compute.handed_over() == {"a1": A1, "a2": blue}
    compute.take_back(A1)
    assert compute.handed_over() == {"a2": blue}
    assert cloud.accepts("n3") == {"laas-nobody", BLUE}


def test_the_metadata_come_before_the_hosts_and_again_last(cloud, compute):
    compute.pool(ALL)
    cloud.calls.clear()
    compute.hand_over(A1)
    number = str(cloud.named("laas-a1").id)
    assert writes(cloud) == [
        ("create", "laas-a1"),
        ("set_metadata", number),
        ("add_host", "n1"),
        ("add_host", "n2"),
        ("set_metadata", number),
    ]


def test_handing_over_again_only_touches(cloud, compute):
    compute.hand_over(A1)
    before = cloud.snapshot()
    cloud.calls.clear()
    compute.hand_over(A1)
    assert {call for call, _ in writes(cloud)} == {"set_metadata"}
    assert cloud.snapshot() == before


def test_the_touch_is_not_held_up_by_a_stranger_it_would_have_kept_out(cloud, compute):
    compute.hand_over(A1)
    cloud.boot("n1", BLUE)
    cloud.calls.clear()
    with pytest.raises(HostsBusy):
        compute.hand_over(A1)
    assert [call for call, _ in writes(cloud)] == ["set_metadata"]
    assert cloud.accepts("n1") == {"laas-nobody", RED}


def test_other_hosts_for_the_same_allocation(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    cloud.watch(ALL)
    compute.hand_over(MOVED)
    assert compute.handed_over() == {"a1": MOVED}
    assert EVERYBODY not in set().union(*cloud.let_in.values())


def test_unpooled_hosts_are_pooled_before_they_are_handed_over_or_taken_back(cloud, compute):
    compute.hand_over(A1)
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, {"n1", "n2"})
    pooled = cloud.named("laas-pool")
    cloud.remove_host(pooled.id, "n1")
    cloud.watch(["n1", "n2"])
    compute.take_back(A1)
    assert EVERYBODY not in cloud.let_in["n1"] | cloud.let_in["n2"]


def test_keys_that_others_added_are_removed(cloud, compute):
    compute.hand_over(A1)
    number = cloud.named("laas-a1").id
    cloud.set_metadata(number, {"filter_tenant_id_2": BLUE, "note": "keep me"})
    compute.hand_over(A1)
    metadata, _ = cloud.snapshot()[0]["laas-a1"]
    assert metadata == {"filter_tenant_id": RED, "laas:allocation": "a1", "note": "keep me"}


@pytest.mark.parametrize("key", ["filter_tenant_id", "filter_tenant_id_2"])
def test_an_edited_aggregate_is_corrected_although_a_stranger_is_there(cloud, compute, key):
    compute.pool(ALL)
    compute.hand_over(A1)
    cloud.set_metadata(cloud.named("laas-a1").id, {key: BLUE, "laas:allocation": "a9"})
    consumer = cloud.boot("n1", BLUE)
    for _ in range(2):
        with pytest.raises(HostsBusy, match=f"n1 runs {consumer} of project {BLUE}"):
            compute.hand_over(A1)
        assert cloud.snapshot()[0]["laas-a1"] == owned(RED, "n1", "n2")
        assert cloud.accepts("n1") == cloud.accepts("n2") == {"laas-nobody", RED}


@pytest.mark.parametrize("edited", [True, False])
def test_hosts_that_others_added_leave_although_a_stranger_is_there(cloud, compute, edited):
    """Hosts added by others never admit the allocation's project before they are removed."""
    compute.pool(ALL)
    compute.hand_over(A1)
    number = cloud.named("laas-a1").id
    if edited:
        cloud.set_metadata(number, {"filter_tenant_id": BLUE})
    cloud.add_host(number, "n3")
    cloud.boot("n1", BLUE)
    cloud.watch(["n3"])
    with pytest.raises(HostsBusy, match="n1 runs"):
        compute.hand_over(A1)
    assert cloud.snapshot()[0]["laas-a1"] == owned(RED, "n1", "n2")
    assert cloud.let_in["n3"] == {"laas-nobody", BLUE if edited else RED}


def test_a_closed_aggregate_stays_closed_while_a_stranger_is_there(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    compute.fence("a1")
    cloud.add_host(cloud.named("laas-a1").id, "n3")
    cloud.boot("n1", BLUE)
    with pytest.raises(HostsBusy, match="n1 runs"):
        compute.hand_over(A1)
    assert cloud.snapshot()[0]["laas-a1"] == owned("laas-nobody", "n1", "n2")


def test_an_edited_aggregate_is_corrected_although_a_host_is_gone_from_nova(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    cloud.set_metadata(cloud.named("laas-a1").id, {"filter_tenant_id": BLUE})
    for aggregate in cloud.aggregates.values():
        aggregate.hosts.remove("n1")  # as Nova does
    del cloud.providers["n1"]
    with pytest.raises(NotFound, match="n1"):
        compute.hand_over(A1)
    assert cloud.accepts("n2") == {"laas-nobody", RED}


@pytest.mark.parametrize("verb", ["hand_over", "take_back", "pool"])
def test_edited_aggregates_are_corrected_although_hypervisors_are_not_listed(cloud, compute, verb):
    compute.pool(ALL)
    compute.hand_over(A1)
    for aggregate in cloud.aggregates.values():
        cloud.set_metadata(aggregate.id, {"filter_tenant_id": BLUE})
    cloud.faults = [Fault(500, "hypervisors", times=9)]
    with pytest.raises(Unavailable, match="hypervisors"):
        compute.pool(ALL) if verb == "pool" else getattr(compute, verb)(A1)
    name = "laas-pool" if verb == "pool" else "laas-a1"
    allowed = RED if verb == "hand_over" else "laas-nobody"
    assert cloud.named(name).metadata["filter_tenant_id"] == allowed


def test_an_edited_pool_is_corrected_although_a_host_has_several_nodes(cloud, compute):
    compute.pool(ALL[:3])
    cloud.set_metadata(cloud.named("laas-pool").id, {"filter_tenant_id": BLUE})
    shown = cloud.hypervisors

    def ironic(marker):
        found = shown(marker)
        for item in found["hypervisors"][2:]:
            item["service"]["host"] = "n4"
        return found

    cloud.hypervisors = ironic
    with pytest.raises(Conflict, match="n4 has 2 nodes"):
        compute.pool(ALL)
    assert cloud.accepts("n1") == {"laas-nobody"}


def test_fencing_and_taking_back_what_was_never_handed_over(cloud, compute):
    compute.pool(ALL)
    before = cloud.snapshot()
    compute.fence("a1")
    compute.take_back(A1)
    assert cloud.snapshot() == before


def test_an_aggregate_without_metadata_is_completed(cloud, compute):
    """A crash between the first two calls leaves such an aggregate."""
    cloud.create("laas-a1", None)
    assert compute.handed_over() == {}
    compute.hand_over(A1)
    assert compute.handed_over() == {"a1": A1}


# -- servers ------------------------------------------------------------------------


def test_busy_hosts_stay_out_of_the_pool_and_the_others_join(cloud, compute):
    consumer = cloud.boot("n2", BLUE)
    with pytest.raises(HostsBusy, match=f"n2 runs {consumer} of project {BLUE}"):
        compute.pool(ALL)
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, {"n1", "n3", "n4"})
    del cloud.servers[consumer]
    compute.pool(ALL)
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, set(ALL))


def test_a_host_that_nova_refuses_does_not_keep_the_others_out_of_the_pool(cloud, compute):
    cloud.refused = {"n2"}
    with pytest.raises(Conflict, match="n2 cannot join"):
        compute.pool(ALL)
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, {"n1", "n3", "n4"})


def test_a_server_that_was_on_its_way_into_the_pool_is_reported(cloud, compute):
    def late(call, about):
        if (call, about) == ("add_host", "n3"):
            cloud.boot("n3", BLUE)

    cloud.after = late
    with pytest.raises(HostsBusy, match="n3 runs"):
        compute.pool(ALL)
    with pytest.raises(HostsBusy, match="n3 runs"):
        compute.pool(ALL)


def test_tenants_servers_do_not_trouble_the_pool(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    cloud.boot("n1", RED)
    cloud.remove_host(cloud.named("laas-pool").id, "n1")
    compute.pool(ALL)
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, set(ALL))


def test_hosts_with_strangers_are_not_handed_over(cloud, compute):
    compute.pool(ALL)
    consumer = cloud.boot("n2", BLUE)
    before = cloud.snapshot()
    with pytest.raises(HostsBusy, match=f"n2 runs {consumer} of project {BLUE}"):
        compute.hand_over(A1)
    assert cloud.snapshot() == before


def test_a_stranger_who_slips_in_closes_the_hosts_again(cloud, compute):
    compute.pool(ALL)

    def late(call, about):
        if (call, about) == ("add_host", "n2"):
            cloud.boot("n2", BLUE)

    cloud.after = late
    with pytest.raises(HostsBusy):
        compute.hand_over(A1)
    assert cloud.accepts("n1") == cloud.accepts("n2") == {"laas-nobody"}


def test_hosts_with_servers_are_not_taken_back_but_closed(cloud, compute):
    compute.hand_over(A1)
    consumer = cloud.boot("n1", RED)
    for _ in range(2):
        with pytest.raises(HostsBusy, match=f"n1 runs {consumer}"):
            compute.take_back(A1)
    assert compute.handed_over()["a1"].hosts == A1.hosts
    assert cloud.accepts("n1") == {"laas-nobody"}
    del cloud.servers[consumer]
    compute.take_back(A1)
    assert compute.handed_over() == {}


def test_a_server_that_was_on_its_way_holds_up_taking_back(cloud, compute):
    compute.hand_over(A1)

    def late(call, about):
        if (call, about) == ("remove_host", "n1"):
            cloud.boot("n1", RED)

    cloud.after = late
    for _ in range(2):
        with pytest.raises(HostsBusy, match="n1 runs"):
            compute.take_back(A1)
    cloud.servers.clear()
    compute.take_back(A1)


def test_a_stranger_on_a_host_that_was_never_handed_over_holds_nothing_up(cloud, compute):
    compute.pool(ALL)
    cloud.boot("n1", BLUE)
    compute.take_back(A1)


def test_occupants_name_host_server_and_project(cloud, compute):
    red, blue = cloud.boot("n3", RED), cloud.boot("n1", BLUE)
    assert compute.occupants(["n3", "n2", "n1", "gone"]) == [
        Occupant("n1", blue, BLUE),
        Occupant("n3", red, RED),
    ]


# -- many hosts -----------------------------------------------------------------------


MANY = [f"n{number}" for number in range(1, 8)]


def parts(cloud):
    """The pool's aggregates: how many hosts each has, by name."""
    aggregates, _ = cloud.snapshot()
    pool = {name: found for name, found in aggregates.items() if name.startswith("laas-pool")}
    assert all(metadata == POOLED for metadata, _ in pool.values())
    assert len(set().union(*(hosts for _, hosts in pool.values()))) == len(MANY)
    return {name: len(hosts) for name, (_, hosts) in pool.items()}


def test_the_pool_is_divided(server, compute, monkeypatch):
    monkeypatch.setattr(pool, "PART", 3)
    server.cloud = Cloud(MANY)
    compute.pool(MANY[:4])
    compute.pool(MANY)
    assert parts(server.cloud) == {"laas-pool": 3, "laas-pool-01": 3, "laas-pool-02": 1}
    assert compute.observed() == ObservedAggregates({}, frozenset(MANY), {})
    compute.hand_over(A1)
    compute.take_back(A1)
    assert parts(server.cloud) == {"laas-pool": 3, "laas-pool-01": 3, "laas-pool-02": 1}
    server.cloud.set_metadata(server.cloud.named("laas-pool-01").id, {"filter_tenant_id": BLUE})
    assert compute.observed().pooled == frozenset(MANY) - {"n4", "n5", "n6"}
    compute.pool(MANY)
    assert compute.observed().pooled == frozenset(MANY)


def test_at_most_so_many_aggregates(server, compute, monkeypatch):
    monkeypatch.setattr(pool, "PART", 1)
    monkeypatch.setattr(pool, "PARTS", 2)
    server.cloud = Cloud(MANY)
    compute.pool(MANY)
    assert parts(server.cloud) == {"laas-pool": 4, "laas-pool-01": 3}


def test_a_pool_of_an_earlier_release_is_divided_little_by_little(server, compute, monkeypatch):
    server.cloud = Cloud(MANY)
    compute.pool(MANY)
    monkeypatch.setattr(pool, "PART", 3)
    monkeypatch.setattr(pool, "SPREAD", 2)
    server.cloud.watch(MANY)
    for expected in ({"laas-pool": 5, "laas-pool-01": 2}, {"laas-pool": 5, "laas-pool-01": 2}):
        with compute.comparison():
            compute.pool(MANY)
        assert parts(server.cloud) == expected
    assert set().union(*server.cloud.let_in.values()) == {"laas-nobody"}


@pytest.mark.parametrize("faults", [[], [Fault(403, "candidates")]], ids=["", "forbidden"])
def test_one_request_tells_which_of_several_hosts_are_empty(server, compute, monkeypatch, faults):
    monkeypatch.setattr(pool, "PART", 4)
    monkeypatch.setattr(pool, "SEVERAL", 3)
    cloud = server.cloud = Cloud(MANY)
    cloud.faults = [*faults]

    def late(call, about):
        if (call, about) == ("add_host", "n6"):
            cloud.boot("n6", BLUE)

    cloud.after = late
    with pytest.raises(HostsBusy, match="n6 runs") as told:
        compute.pool(MANY)
    assert "n5" not in str(told.value)
    asked = counted(cloud)
    requests = {"candidates": 1, "consumers": 7} if faults else {"candidates": 2, "consumers": 1}
    assert {call: asked[call] for call in ("candidates", "consumers")} == requests


def counted(cloud):
    found = [call for call, _ in cloud.calls]
    cloud.calls.clear()
    return {call: found.count(call) for call in found}


@pytest.fixture
def compared(cloud, compute):
    """n1 and n2 are RED's, n3 is BLUE's, n4 is free; somebody has looked."""
    blue = Handover("a2", BLUE, ("n3",))
    compute.pool(ALL)
    compute.hand_over(A1)
    compute.hand_over(blue)
    cloud.boot("n1", RED)
    compute.look(ALL)
    cloud.calls.clear()

    def compare():
        with compute.comparison():
            compute.pool(ALL)
            assert compute.handed_over().keys() == {"a1", "a2"}
            for handover in (A1, blue):
                compute.hand_over(handover)

    return compare


def test_a_comparison_lists_once_and_touches_every_aggregate(cloud, compared):
    compared()
    assert counted(cloud) == {"list": 1, "set_metadata": 3, "members": 2}


def test_a_comparison_without_a_look_lists_hypervisors_once(cloud, compute, compared):
    compute.hosts.listing = None
    compared()
    assert counted(cloud)["hypervisors"] == 2, "one page, and the end"


def test_a_comparison_finds_what_is_wrong(cloud, compute, compared):
    stranger = cloud.boot("n2", BLUE)
    compute.look(ALL)
    with pytest.raises(HostsBusy, match=f"n2 runs {stranger} of project {BLUE}"):
        compared()
    del cloud.servers[stranger]
    compared()  # the look is old news, and the host is looked at again
    late = cloud.boot("n4", BLUE)
    compute.look(ALL)
    with pytest.raises(HostsBusy, match=f"free hosts must be empty, but n4 runs {late}"):
        compared()
    del cloud.servers[late]
    theirs = cloud.create("theirs", None)["aggregate"]["id"]
    cloud.set_metadata(theirs, {"filter_tenant_id": GREEN})
    cloud.add_host(theirs, "n1")
    with pytest.raises(Conflict, match="theirs has n1"):
        compared()


def test_a_comparison_mends_what_differs(cloud, compute, compared):
    cloud.set_metadata(cloud.named("laas-a2").id, {"filter_tenant_id": GREEN})
    cloud.remove_host(cloud.named("laas-pool").id, "n1")
    cloud.mirror[cloud.providers["n2"]].clear()
    compared()
    aggregates, mirror = cloud.snapshot()
    assert aggregates["laas-a2"] == owned(BLUE, "n3", id="a2")
    assert aggregates["laas-pool"] == (POOLED, set(ALL))
    assert "laas-a1" in mirror["n2"]


def test_few_hosts_of_many_are_searched_by_the_names_of_their_nodes(server, compute, monkeypatch):
    monkeypatch.setattr(hosts, "FEW", 0)
    cloud = server.cloud = Cloud([f"n{number:02d}" for number in range(40)])
    compute.look(cloud.providers)
    handover = Handover("a1", RED, ("n01", "n02"))
    cloud.calls.clear()
    compute.hand_over(handover)
    assert [about for call, about in cloud.calls if call in ("search", "hypervisors")] == [
        "n01.example.org",
        "n02.example.org",
    ]
    consumer = cloud.boot("n03", BLUE)
    with pytest.raises(HostsBusy, match=f"n03 runs {consumer}"):
        compute.hand_over(Handover("a2", RED, ("n03",)))
    del cloud.providers["n02"]
    cloud.calls.clear()
    with pytest.raises(NotFound, match="n02"):
        compute.hand_over(handover)
    assert "hypervisors" in counted(cloud)


def test_a_deletion_lists_no_hypervisors(cloud, compute):
    consumer = cloud.boot("n2", BLUE)
    assert compute.occupants(["n1", "n2"]) == [Occupant("n2", consumer, BLUE)]
    assert counted(cloud) == {"search": 2, "consumers": 2, "consumer": 1, "servers": 1}


# -- changes by others --------------------------------------------------------------


@pytest.mark.parametrize("key", ["filter_tenant_id", "filter_tenant_id_extra"])
def test_foreign_aggregates_that_let_projects_in_are_named(cloud, compute, key):
    compute.pool(ALL)
    compute.hand_over(A1)
    foreign = cloud.create("old-isolation", None)["aggregate"]["id"]
    cloud.set_metadata(foreign, {key: BLUE})
    cloud.add_host(foreign, "n2")
    for verb in (lambda: compute.hand_over(A1), lambda: compute.pool(ALL)):
        with pytest.raises(Conflict, match="old-isolation has n2"):
            verb()
    compute.fence("a1")
    compute.take_back(A1)
    with pytest.raises(Conflict, match="old-isolation has n2"):
        compute.hand_over(A1)
    assert compute.handed_over() == {}


def test_one_question_shows_what_others_did(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    calls = len(cloud.calls)
    assert compute.observed() == ObservedAggregates({"a1": A1}, frozenset(ALL), {})
    assert [call for call, _ in cloud.calls[calls:]] == ["list"]
    theirs = cloud.create("theirs", None)["aggregate"]["id"]
    cloud.add_host(theirs, "n4")
    assert compute.observed().opened == {}
    cloud.set_metadata(theirs, {"filter_tenant_id_extra": BLUE})
    assert compute.observed().opened == {"n4": "theirs"}
    cloud.set_metadata(cloud.named("laas-a1").id, {"filter_tenant_id_extra": BLUE})
    assert compute.observed().handed_over["a1"].project_id == f"{RED},{BLUE}"
    cloud.remove_host(cloud.named("laas-pool").id, "n3")
    assert compute.observed().pooled == frozenset(ALL) - {"n3"}
    cloud.set_metadata(cloud.named("laas-pool").id, {"filter_tenant_id": BLUE})
    assert compute.observed().pooled == frozenset()


def test_ordinary_aggregates_of_others_are_none_of_our_business(cloud, compute):
    other = cloud.create("ssd", None)["aggregate"]["id"]
    cloud.set_metadata(other, {"ssd": "true"})
    cloud.add_host(other, "n1")
    compute.pool(ALL)
    compute.hand_over(A1)


def test_hosts_of_another_allocation_are_not_handed_over(cloud, compute):
    compute.hand_over(A1)
    with pytest.raises(Conflict, match="laas-a1 has n2"):
        compute.hand_over(Handover("a2", BLUE, ("n2", "n3")))
    assert cloud.accepts("n2") == {"laas-nobody", RED}


@pytest.mark.parametrize("first", ["a1", "a2"])
def test_the_advice_about_two_fabrics_with_the_same_hosts_gives_none_two_owners(
    cloud, compute, first
):
    """The operator follows it literally: release the allocations of one of the fabrics."""
    compute.pool(ALL)
    compute.hand_over(A1)
    other = Handover("a2", BLUE, ("n2", "n3"))
    with pytest.raises(Conflict) as told:
        compute.hand_over(other)
    advice = str(told.value)
    assert "hosts belong to other allocations: aggregate laas-a1 has n2" in advice
    assert "Leave these aggregates as they are" in advice
    assert "release the allocations of one of them, then delete that fabric" in advice
    for harm in ("remove", "delete aggregate", "delete laas"):
        assert harm not in advice
    one = {"a1": A1, "a2": other}[first]
    compute.take_back(one)
    owners = [cloud.accepts(host) - {"laas-nobody"} for host in ALL]
    assert max(map(len, owners)) <= 1
    if first == "a2":  # of which nothing was handed over
        assert compute.handed_over() == {"a1": A1}
        return
    compute.hand_over(other)
    assert [cloud.accepts(host) - {"laas-nobody"} for host in ALL] == [set(), {BLUE}, {BLUE}, set()]


@pytest.mark.parametrize("times", [1, 9])
def test_placement_that_was_not_told_is_told_again_or_reported(cloud, compute, times):
    compute.pool(ALL)
    cloud.faults = [Fault("unmirrored", "add_host", times=times)]
    if times > 1:
        with pytest.raises(
            Unavailable, match="placement does not show host n1, n2 in aggregate laas"
        ):
            compute.hand_over(A1)
        cloud.faults = []
    compute.hand_over(A1)
    assert cloud.snapshot()[1]["n1"] == {"laas-pool", "laas-a1"}
    assert writes(cloud)[-1][0] == "set_metadata"


def test_hosts_that_nova_does_not_know(cloud, compute):
    with pytest.raises(NotFound, match="n9"):
        compute.pool([*ALL, "n9"])
    assert cloud.snapshot()[0]["laas-pool"] == (POOLED, set(ALL))
    with pytest.raises(NotFound, match="N1"):
        compute.hand_over(Handover("a1", RED, ("N1", "n2")))
    assert compute.handed_over() == {}


def test_a_compute_service_that_was_deleted_does_not_hold_up_a_release(cloud, compute):
    compute.hand_over(A1)
    for aggregate in cloud.aggregates.values():
        aggregate.hosts.remove("n1")  # as Nova does
    del cloud.providers["n1"]
    assert compute.occupants(A1.hosts) == []
    compute.take_back(A1)
    assert compute.handed_over() == {}


def test_hosts_with_several_nodes_are_refused(cloud, compute):
    shown = cloud.hypervisors

    def ironic(marker):
        found = shown(marker)
        for item in found["hypervisors"]:
            item["service"]["host"] = "n1"
        return found

    cloud.hypervisors = ironic
    with pytest.raises(Conflict, match="n1 has 4 nodes"):
        compute.hand_over(Handover("a1", RED, ("n1",)))


@pytest.mark.parametrize("project", ["", " ", "a,b", "x" * 256, "laas-nobody"])
def test_projects_that_the_metadata_cannot_hold(cloud, compute, project):
    with pytest.raises(InvalidInput, match="project_id"):
        compute.hand_over(Handover("a1", project, ("n1",)))
    assert not cloud.calls


@pytest.mark.parametrize("id", ["pool", "pool-07"])
def test_an_allocation_cannot_be_called_like_the_pool_or_a_part_of_it(cloud, compute, id):
    with pytest.raises(InvalidInput, match="allocation_id"):
        compute.hand_over(Handover(id, RED, ("n1",)))


# -- failing calls --------------------------------------------------------------------

SCENARIOS = {
    "pool": (lambda c: c.pool(["n1"]), lambda c: c.pool(ALL)),
    "hand_over": (lambda c: c.pool(["n1"]), lambda c: c.hand_over(A1)),
    "hand_over_again": (lambda c: c.hand_over(A1), lambda c: c.hand_over(A1)),
    "hand_over_moved": (lambda c: c.hand_over(A1), lambda c: c.hand_over(MOVED)),
    "fence": (lambda c: c.hand_over(A1), lambda c: c.fence("a1")),
    "take_back": (lambda c: c.hand_over(A1), lambda c: c.take_back(A1)),
}
WRITES = ("create", "set_metadata", "add_host", "remove_host", "delete")
READS = ("list", "hypervisors", "members", "consumers")
ON_WRITES = [400, 403, 404, 409, 429, 500, "refused", "lost", "garbage", "odd", "unmirrored"]
ON_READS = [403, 404, 500, "refused", "garbage", "odd"]


class Unharmed:
    """A run of a scenario without faults: the cloud before it, the requests, and the result."""

    def __init__(self, server, compute, scenario):
        before, self.act = SCENARIOS[scenario]
        server.cloud = Cloud(ALL)
        before(compute)
        self.start = server.cloud.copy()
        server.cloud = self.start.copy()
        server.cloud.watch(ALL)
        self.act(compute)
        self.calls = [call for call, _ in server.cloud.calls]
        self.after = server.cloud.snapshot()
        self.let_in = server.cloud.let_in

    def faults(self, kinds, calls):
        """Each kind at each write, and at the first and last of equal reads."""
        for index, call in enumerate(self.calls):
            again = call in self.calls[:index] and call in self.calls[index + 1 :]
            if call in calls and (call in WRITES or not again):
                for kind in kinds:
                    if kind != "unmirrored" or call == "add_host":
                        yield Fault(kind, times=1 if call in WRITES else 3, skip=index)


def mirrored(fault, snapshot):
    """A snapshot for comparison; after ``unmirrored`` without the pool in placement's view.

    The adapter does not repair this: the scheduler never asks placement for hosts of the pool,
    and adding a host again would take it out of the pool, and so open it, for a moment.
    """
    aggregates, mirror = snapshot
    gone = {"laas-pool"} if fault.kind == "unmirrored" else set()
    return aggregates, {host: names - gone for host, names in mirror.items()}


class NeverCalled(AssertionError):
    """The time-out ended the verb before the call that should fail, on a busy machine."""


def fails_then_converges(server, compute, sessions, unharmed, fault):
    """Assert that a fault raises only errors of the port and that a repetition completes the verb.

    Meanwhile no host admits a project that a run without faults would not admit. Returns the
    type of the error.
    """
    cloud = server.cloud = unharmed.start.copy()
    cloud.watch(ALL)
    cloud.faults = [fault]
    failure: LaasError | None = None
    try:
        unharmed.act(compute)
    except LaasError as error:
        failure = error
    if fault.skip:
        raise NeverCalled("the verb never came to the call that should fail")
    cloud.faults = []
    assert failure is None or TOKEN not in str(failure)
    cloud.hanging.set()
    for session in sessions:
        session.timeout = 600
    unharmed.act(compute)
    assert mirrored(fault, cloud.snapshot()) == mirrored(fault, unharmed.after)
    for host in ALL:
        assert cloud.let_in[host] <= unharmed.let_in[host] | {"laas-nobody"}
    assert not cloud.overlaps
    return type(failure)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_call_can_fail(server, compute, sessions, scenario):
    unharmed = Unharmed(server, compute, scenario)
    faults = [*unharmed.faults(ON_WRITES, WRITES), *unharmed.faults(ON_READS, READS)]
    failures: dict[object, set[type]] = {}
    for fault in faults:
        found = fails_then_converges(server, compute, sessions, unharmed, fault)
        failures.setdefault(fault.kind, set()).add(found)
    assert failures[403] == {Forbidden}
    assert failures[429] == {LimitExceeded}
    assert failures[500] == failures["refused"] == failures["lost"] == {Unavailable}
    assert failures["garbage"] <= {Unavailable, type(None)}  # delete ignores the body


@pytest.mark.parametrize("scenario", ["pool", "hand_over_moved", "take_back"])
def test_answers_that_never_come(server, compute, sessions, scenario):
    unharmed = Unharmed(server, compute, scenario)
    faults = [*unharmed.faults(["hang", "late"], WRITES), Fault("hang", "consumers", times=3)]
    for fault in faults:
        found = hangs_then_converges(server, compute, sessions, unharmed, fault)
        assert found is Unavailable


def hangs_then_converges(server, compute, sessions, unharmed, fault):
    for hang in (HANG, 10 * HANG, 50 * HANG):
        for session in sessions:
            session.timeout = hang
        with suppress(NeverCalled):
            return fails_then_converges(server, compute, sessions, unharmed, replace(fault))
    raise NeverCalled(f"within {50 * HANG} seconds")


def test_every_page_of_hypervisors_is_read(cloud, compute):
    cloud.page = 2
    compute.pool(ALL)
    assert [call for call, _ in cloud.calls].count("hypervisors") == 3


@pytest.mark.parametrize("down", ["disabled", "dead"])
def test_a_host_is_looked_at_when_it_is_handed_over(cloud, compute, down):
    """Whatever an earlier list showed of it."""
    compute.pool(ALL)
    getattr(cloud, down).add("n2")
    state = "disabled" if down == "disabled" else "down"
    with pytest.raises(Unavailable, match=f"handed over now: n2 is {state} in Nova"):
        compute.hand_over(A1, A1.hosts)
    assert compute.handed_over() == {}
    getattr(cloud, down).clear()
    compute.hand_over(A1, A1.hosts)
    getattr(cloud, down).add("n2")
    compute.hand_over(A1)
    assert compute.handed_over() == {"a1": A1}, "it stays in a comparison"


# -- names ---------------------------------------------------------------------------


@pytest.fixture
def named(server, cloud, tmp_path, sessions):
    """Connects with a fabric of these hosts, and pairs of names."""

    def connected(hosts, pairs=""):
        file = tmp_path / "names"
        file.write_text(pairs)
        connect(server, tmp_path, compute_options=[f"host_names = {file}"])
        parts = parts_of(tmp_path / "laas.conf")
        made = generate(Description(xgft="2;2,2;1,2"))
        parts.store.fabrics.add("f", made.topology, replace(made.inventory, host_names=hosts))
        return parts.compute

    return connected


OTHER = ("N1", "a.fourth", "n2.example.org", "n3")


def test_hosts_are_found_under_other_names(cloud, named):
    """All that goes to Nova has its names, and all that comes back has those of the fabric."""
    compute = named(OTHER, "# fabric, Nova\na.fourth  n4  # by its rack\n")
    compute.pool(OTHER)
    mine = Handover("a1", RED, OTHER)
    compute.hand_over(mine, OTHER)
    assert cloud.snapshot()[0] == {"laas-pool": (POOLED, set(ALL)), "laas-a1": owned(RED, *ALL)}
    assert compute.handed_over() == {"a1": mine}
    assert compute.observed().pooled == {*OTHER}
    assert {host: seen.name for host, seen in compute.look(OTHER).items()} == {
        **{"N1": "n1", "n2.example.org": "n2", "n3": "n3", "a.fourth": "n4"}
    }
    server = cloud.boot("n2", RED)
    assert compute.occupants(OTHER) == [Occupant("n2.example.org", server, RED)]
    assert compute.load(["n2.example.org"]).servers == 1
    moves = ServerMoves("a1", RED, {"n2.example.org": "a.fourth"})
    assert compute.move_servers(moves).under_way
    assert compute.move_servers(moves).arrived
    assert cloud.servers == {server: ("n4", RED)}
    del cloud.servers[server]
    compute.take_back(mine)
    assert cloud.snapshot()[0] == {"laas-pool": (POOLED, set(ALL))}


def test_a_new_process_knows_the_hosts_of_an_aggregate(cloud, named, server, tmp_path):
    """It compares before anybody has looked at the hosts."""
    named(OTHER, "a.fourth n4").hand_over(Handover("a1", RED, OTHER), OTHER)
    later = parts_of(tmp_path / "laas.conf")
    made = generate(Description(xgft="2;2,2;1,2"))
    with suppress(Conflict):
        later.store.fabrics.add("f", made.topology, replace(made.inventory, host_names=OTHER))
    cloud.calls.clear()
    assert later.compute.handed_over()["a1"].hosts == OTHER


def test_an_equal_name_wins_and_two_that_fit_are_none(cloud, named):
    cloud.providers = {name: str(uuid.uuid4()) for name in ("n1", "N1", "n2.a", "n2.b", "n3.a")}
    compute = named(("n1", "n2", "n3.b", "N5"))
    assert {h: s.name for h, s in compute.look(["n1", "n2", "n3.b", "N5"]).items()} == {"n1": "n1"}
    assert compute.nearest(["n2", "n3.b"]) == {"n2": "n2.a", "n3.b": "n3.a"}


def test_a_new_host_in_nova_takes_no_name_from_another(cloud, named):
    host = "n1.example.org"
    compute = named((host, "N2", "N3", "N4"))
    compute.hand_over(Handover("a1", RED, (host,)), [host])
    cloud.providers["N1"] = str(uuid.uuid4())
    assert compute.look([host])[host].name == "n1"
    assert compute.handed_over()["a1"].hosts == (host,)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ("n1 n2 n3", "line 1: write a host's name in the fabric and its name in Nova"),
        ("N1 n1\nN1 n2", "line 2: name each host once on each side"),
        ("N1 n1\nN2 n1", "line 2: name each host once on each side"),
        ("'n1 n2", "line 1: write a host's name"),
    ],
)
def test_a_wrong_file_of_names_is_refused(named, pairs, why):
    with pytest.raises(InvalidInput, match=why):
        named(OTHER, pairs)


# -- servers that Nova keeps ---------------------------------------------------------


def test_a_deleted_server_that_nova_keeps_is_named_as_such(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    id = cloud.boot("n1", RED)
    cloud.kept[id] = "2026-11-27T20:01:40Z"
    assert compute.occupants(["n1"]) == [Occupant("n1", id, RED, cloud.kept[id])]
    told = f"n1 keeps {id} of project {RED}, deleted at 2026-11-27T20:01:40Z; Nova keeps a deleted"
    with pytest.raises(HostsBusy, match=told):
        compute.take_back(A1)
    cloud.faults = [Fault(403, "servers", times=9)]
    with pytest.raises(HostsBusy, match=f"n1 runs {id} of project {RED}$"):
        compute.take_back(A1)


def test_every_page_of_migrations_is_read(cloud, compute):
    compute.pool(ALL)
    compute.hand_over(A1)
    cloud.forced_down.add("n1")
    servers = [cloud.boot("n1", RED) for _ in range(3)]
    for server in servers:
        cloud._evacuate(server, "n2")
    cloud.page = 2
    assert [one.host for one in compute.occupants(["n1", "n2"])] == ["n2"] * 3


def test_reads_are_tried_again(cloud, compute):
    compute.hand_over(A1)
    for call in READS:
        for kind in (503, "refused", "garbage"):
            cloud.faults = [Fault(kind, call, times=2)]
            compute.hand_over(A1)
            assert cloud.faults[0].times == 0


def test_writes_are_sent_once(cloud, compute):
    compute.pool(ALL)
    cloud.calls.clear()
    cloud.faults = [Fault("lost", "add_host", times=9)]
    with pytest.raises(Unavailable):
        compute.hand_over(A1)
    assert [call for call, _ in writes(cloud)].count("add_host") == 1


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        ("list", "os_compute_api:os-aggregates:index"),
        ("create", "os_compute_api:os-aggregates:create"),
        ("set_metadata", "os_compute_api:os-aggregates:set_metadata"),
        ("add_host", "os_compute_api:os-aggregates:add_host"),
        ("hypervisors", "os_compute_api:os-hypervisors:list-detail"),
        ("members", "placement:resource_providers:list"),
        ("consumers", "placement:resource_providers:allocations:list"),
    ],
)
def test_a_missing_right_is_named(cloud, compute, call, rule):
    cloud.faults = [Fault(403, call, times=9)]
    with pytest.raises(Forbidden, match=rule):
        compute.hand_over(A1)


def test_a_login_that_is_not_accepted(server, cloud, tmp_path, sessions):
    compute = connect(server, tmp_path, auth_type="admin_token")
    server.cloud.faults = [Fault(401, times=99)]
    with pytest.raises(Unavailable, match="login"):
        compute.handed_over()


def test_nova_that_is_not_there(tmp_path, sessions):
    with Server() as gone:
        compute = connect(gone, tmp_path)
    with pytest.raises(Unavailable, match="cannot list aggregates"):
        compute.handed_over()


def test_no_login_configured(tmp_path):
    conf = options_from()
    conf.set_override("kind", "nova", group="compute")
    with pytest.raises(InvalidInput, match="auth_type"):
        _ = Composition(conf).compute


def test_the_time_out_is_always_set(server, cloud, tmp_path, sessions):
    connect(server, tmp_path)
    assert [session.timeout for session in sessions] == [30, 30]
    connect(server, tmp_path, timeout=7)
    assert [session.timeout for session in sessions[2:]] == [7, 30]


# -- quota of servers -------------------------------------------------------------------


def test_the_limit_of_servers_is_the_quota_of_instances(cloud, compute):
    assert compute.server_limit(RED) == 10
    cloud.limits[RED] = -1
    assert compute.server_limit(RED) is None
    cloud.faults = [Fault(403, "quota")]
    with pytest.raises(Forbidden, match="os-quota-sets:show"):
        compute.server_limit(RED)


# -- concurrent callers and logs --------------------------------------------------------


def test_calls_on_one_aggregate_never_overlap(cloud, compute):
    compute.pool(ALL)
    at_once(*[partial(compute.hand_over, A1)] * 6)
    assert not cloud.overlaps
    assert compute.handed_over() == {"a1": A1}
    assert [call for call, _ in writes(cloud)].count("add_host") == len(ALL) + 2


def test_no_token_is_logged(cloud, compute, caplog):
    caplog.set_level(logging.DEBUG)
    compute.pool(ALL)
    cloud.faults = [Fault(500, "add_host")]
    with pytest.raises(Unavailable):
        compute.hand_over(A1)
    assert "os-aggregates" in caplog.text
    assert TOKEN not in caplog.text
