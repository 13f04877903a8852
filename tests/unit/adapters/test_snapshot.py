# SPDX-License-Identifier: Apache-2.0

"""A snapshot is read back to the same ledger; an invalid one is refused with its field."""

import copy
import json
from dataclasses import replace

import pytest

from laas_service.adapters.snapshot import fabric_from_snapshot, snapshot
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request, Shape
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from tests.unit.domain.verification.sound import FULL, RAILS, TOPOLOGIES, build


def through_json(document):
    return json.loads(json.dumps(document))


def inhabited(topology: Topology) -> Ledger:
    fabric = Ledger(topology)
    fabric.claim(build(topology, Shape(1, 2, 2), "blue"))
    if topology.pods > 2:
        fabric.claim(build(topology, Shape(1, 2, 2, 1, 1), "red", pod=1))
    fabric.fail_host(0)
    fabric.fail_host(topology.hosts - 1)
    fabric.fail_link(LeafLink(0, 0, 0))
    fabric.fail_link(LeafLink(0, 0, 1))
    if topology.tree.w[2]:
        fabric.fail_link(SpineLink(0, 0, 1))
    fabric.describe_hosts({1: HostFeatures(frozenset({"gpu", "HW_FPGA"}), 4)})
    return fabric


def test_what_hosts_are_like_is_in_the_topology_by_number():
    document = through_json(snapshot(inhabited(FULL)))
    assert document["topology"]["hosts"] == {"1": {"traits": ["HW_FPGA", "gpu"], "cost": 4}}
    for hosts, field in (
        ({"27": {}}, "topology.hosts"),
        ({"one": {}}, "topology.hosts"),
        ({"1": {"cost": -1}}, "topology.hosts.1.cost"),
        ({"1": {"traits": ["a b"]}}, r"topology.hosts.1.traits\[0\]"),
        ({"1": {"rack": 3}}, "topology.hosts.1.rack"),
    ):
        document["topology"]["hosts"] = hosts
        with pytest.raises(InvalidInput, match=field):
            fabric_from_snapshot(document)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_snapshot_comes_back_as_the_same_ledger(name):
    fabric = inhabited(TOPOLOGIES[name])
    document = through_json(snapshot(fabric, tables=True))
    back = fabric_from_snapshot(document)
    assert back.state() == fabric.state()
    assert through_json(snapshot(back, tables=True)) == document


def test_the_form_is_the_contracts():
    fabric = Ledger(FULL)
    fabric.claim(build(FULL, Shape(1, 2, 1, 0, 0), "t1"))
    fabric.fail_host(4)
    fabric.fail_link(SpineLink(1, 0, 2))
    document = through_json(snapshot(fabric, tables=True))
    assert document["topology"] == {
        "m": [3, 3, 3],
        "w": [1, 3, 3],
        "failed_hosts": [4],
        "failed_leaf_links": [],
        "failed_spine_links": [[1, 0, 2]],
    }
    (entry,) = document["allocations"]
    assert entry.pop("shape")["text"] == "1x(2x1)"
    assert entry == {
        "id": "t1",
        "n": 2,
        "policy": "jigsaw",
        "hosts": [0, 3],
        "leaf_links": [[0, 0, 0], [0, 1, 0]],
        "spine_links": [],
        "tables": {
            "leaf:0:0": {"0": "host", "3": "up:0"},
            "leaf:0:1": {"0": "up:0", "3": "host"},
            "l2:0:0": {"0": "down:0", "3": "down:1"},
        },
    }


def test_a_shared_plane_is_in_the_snapshot_and_comes_back():
    fabric = Ledger(FULL)
    fabric.withhold(CommonPlane.of(FULL.tree, (2,), (0,)))
    document = through_json(snapshot(fabric))
    assert document["topology"]["shared_plane"] == {"l2": [2], "spines": [0]}
    assert fabric_from_snapshot(document).state() == fabric.state()
    document["topology"]["shared_plane"]["l2"] = [3]
    with pytest.raises(InvalidInput, match="l2"):
        fabric_from_snapshot(document)


def test_what_is_inside_a_container_stands_in_its_entry():
    fabric = Ledger(FULL)
    policies = {name: POLICIES[name]() for name in ("lc", "baseline")}
    for policy, request in (
        ("lc", Request("c", 12, container=True)),
        ("lc", Request("d", 6, parent="c", container=True)),
        ("lc", Request("x", 3, parent="d")),
        ("baseline", Request("y", 4, parent="c")),
        ("lc", Request("z", 5)),
    ):
        assert isinstance(admit(policies[policy], fabric, request), Allocation)
    document = through_json(snapshot(fabric, tables=True))
    outer, beside = document["allocations"]
    assert [entry["id"] for entry in outer["inside"]] == ["d", "y"]
    assert outer["inside"][0]["inside"][0]["id"] == "x"
    assert "inside" not in beside
    assert ["tables" in e for e in (outer, *outer["inside"], beside)] == [False, False, True, True]
    assert fabric_from_snapshot(document).state() == fabric.state()
    beside["inside"] = [outer["inside"][1]]
    with pytest.raises(InvalidInput, match="only containers"):
        fabric_from_snapshot(document)
    del beside["inside"]
    outer["inside"][1]["hosts"] = beside["hosts"][:4]
    with pytest.raises(InvalidInput, match=r"allocations\[0\]\.inside\[1\]"):
        fabric_from_snapshot(document)


def test_absent_parts_stay_absent():
    holes = Topology(
        Xgft((3, 3, 3), (1, 3, 3)),
        absent_hosts=frozenset({5}),
        absent_links=frozenset({LeafLink(0, 2, 1)}),
    )
    fabric = Ledger(holes)
    fabric.fail_host(7)
    document = snapshot(fabric)
    assert document["topology"]["failed_hosts"] == [5, 7]
    assert fabric_from_snapshot(document).topology == holes


def test_the_fabric_knows_better_what_is_absent():
    """A snapshot of another program marks absent hosts as failed."""
    holes = Topology(FULL.tree, absent_hosts=frozenset({5}))
    document = {"topology": {"m": [3, 3, 3], "w": [1, 3, 3], "failed_hosts": [5, 6]}}
    back = fabric_from_snapshot(document, holes)
    assert back.topology == holes
    assert back.failed_hosts == {6}


def test_what_the_snapshot_lacks_has_failed_in_the_fabric():
    holes = Ledger(Topology(FULL.tree, absent_hosts=frozenset({5})))
    assert fabric_from_snapshot(snapshot(holes), FULL).failed_hosts == {5}


def test_another_fabric_is_refused():
    with pytest.raises(InvalidInput, match=r"snapshot\.topology"):
        fabric_from_snapshot(snapshot(Ledger(RAILS)), FULL)


SOUND = through_json(snapshot(inhabited(FULL)))
SOUND_RAILS = through_json(snapshot(inhabited(RAILS)))


def broken(document, *path, value):
    document = copy.deepcopy(document)
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return document


A = ("allocations", 0)
WRONG = {
    "no object": ([], "snapshot"),
    "no topology": ({}, "snapshot.topology"),
    "a topology that is none": ({"topology": {"m": [1]}}, "topology.m"),
    "a host that is a text": (broken(SOUND, *A, "hosts", 0, value="0"), "hosts[0]"),
    "a host that is true": (broken(SOUND, *A, "hosts", 0, value=True), "hosts[0]"),
    "a host out of range": (broken(SOUND, *A, "hosts", 0, value=99), "allocations[0].hosts[0]"),
    "a host twice": (broken(SOUND, *A, "hosts", 0, value=3), "allocations[0].hosts["),
    "no hosts": (broken(SOUND, *A, "hosts", value=[]), "allocations[0].hosts"),
    "n of zero": (broken(SOUND, *A, "n", value=0), "allocations[0].n"),
    "an empty id": (broken(SOUND, *A, "id", value=""), "allocations[0].id"),
    "a leaf link of two numbers": (
        broken(SOUND, *A, "leaf_links", 0, value=[0, 0]),
        "leaf_links[0]",
    ),
    "a leaf link out of range": (
        broken(SOUND, *A, "leaf_links", 0, value=[0, 0, 3]),
        "allocations[0].leaf_links[0]",
    ),
    "a leaf link twice": (
        broken(SOUND, *A, "leaf_links", 0, value=[0, 0, 1]),
        "allocations[0].leaf_links[1]",
    ),
    "a spine link out of range": (
        broken(SOUND, "allocations", 1, "spine_links", 0, value=[3, 0, 0]),
        "allocations[1].spine_links[0]",
    ),
    "a spine link twice": (
        broken(SOUND, "allocations", 1, "spine_links", 0, value=[1, 0, 1]),
        "allocations[1].spine_links[1]",
    ),
    "an uplink of one rail": (
        broken(SOUND_RAILS, *A, "leaf_links", value=[[0, 0, 0]]),
        "allocations[0].leaf_links",
    ),
    "two owners of a host": (
        broken(SOUND, "allocations", value=[SOUND["allocations"][0] | {"id": x} for x in "ab"]),
        "allocations[1]",
    ),
    "two allocations of one name": (
        broken(SOUND, "allocations", 1, "id", value="blue"),
        "allocations[1]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_snapshot_is_refused_by_field(name):
    document, field = WRONG[name]
    with pytest.raises(InvalidInput) as caught:
        fabric_from_snapshot(document)
    assert field in caught.value.field


def test_a_baseline_tenant_has_no_shape():
    fabric = Ledger(FULL)
    scattered = replace(build(FULL, Shape(1, 1, 2), "b", policy="baseline"), shape=None)
    fabric.claim(scattered)
    assert fabric_from_snapshot(through_json(snapshot(fabric))).allocations["b"] == scattered
