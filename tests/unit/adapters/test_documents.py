# SPDX-License-Identifier: Apache-2.0

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters import documents, snapshot
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import LeafLink, Port, SpineLink, Topology, Xgft

PLAIN = Topology(Xgft((2, 2, 3), (1, 2, 4), (1, 2)), absent_hosts=frozenset({3, 11}))
RAILS = Topology(
    Xgft((2, 4, 1), (1, 2, 0)),
    rails=2,
    host_ports=tuple((Port(0, 2 * g, k), Port(0, 2 * g + 1, k)) for g in range(2) for k in (0, 1)),
    absent_links=frozenset({LeafLink(0, 3, 1), LeafLink(0, 0, 0)}),
)
SPINES = Topology(
    Xgft((2, 2, 2), (1, 2, 2)), absent_links=frozenset({SpineLink(1, 1, 0), LeafLink(0, 1, 1)})
)
INVENTORY = Inventory(
    host_names=("a;b:c/d", ""),
    switches=(Switch(0xFFFFFFFFFFFFFFFF, "leaf é", 1, 36), Switch(2, "top", 2, 36)),
    cables=(
        Cable(PortRef(1, 3), PortRef(2, 4), LeafLink(0, 0, 1)),
        Cable(PortRef(1, 5), PortRef(2, 6)),
    ),
    endpoints=(Endpoint(7, "a HCA-1", PortRef(1, 1), 0, 1), Endpoint(8, "sm", PortRef(1, 2))),
    leaf_guids=(1, 0),
    l2_guids=(2,),
    spine_guids=(),
    lids={7: 1, 1: 2, 2: 3, 8: 65},
)
ALLOCATION = Allocation(
    "t1", 3, "jigsaw", (GroupShare(0, 3, 1 << 70),), (ColumnShare(0, 1, 2),), Shape(1, 1, 2, 0, 1)
)


def through_json(document):
    return json.loads(json.dumps(document))


@pytest.mark.parametrize("topology", [PLAIN, RAILS, SPINES])
def test_topology_comes_back(topology):
    document = through_json(documents.topology_document(topology))
    assert documents.topology_from(document) == topology


def test_inventory_comes_back():
    document = through_json(documents.inventory_document(INVENTORY))
    assert documents.inventory_from(document) == INVENTORY


@given(
    st.builds(
        Allocation,
        id=st.text(),
        requested=st.integers(0, 1 << 20),
        policy=st.sampled_from(["jigsaw", "laas"]),
        groups=st.lists(
            st.builds(
                GroupShare, st.integers(0, 99), st.integers(1, 1 << 80), st.integers(0, 1 << 200)
            )
        ).map(tuple),
        columns=st.lists(
            st.builds(ColumnShare, st.integers(0, 9), st.integers(0, 9), st.integers(1, 1 << 80))
        ).map(tuple),
        shape=st.none() | st.builds(Shape, *[st.integers(0, 99)] * 5),
    )
)
def test_allocation_comes_back(allocation):
    document = through_json(documents.allocation_document(allocation))
    assert documents.allocation_from(document) == allocation


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "allocation.version"),
        ({"groups": [[0, "0x1", "zz"]]}, "allocation.groups[0][2]"),
        ({"groups": [[0, "-0x1", "0x0"]]}, "allocation.groups[0][1]"),
        ({"groups": [[True, "0x1", "0x0"]]}, "allocation.groups[0][0]"),
        ({"shape": [1, 2]}, "allocation.shape"),
        ({"requested": "3"}, "allocation.requested"),
        ({"more": 1}, "allocation.more"),
    ],
)
def test_malformed_allocation_names_the_field(change, field):
    with pytest.raises(InvalidInput) as refused:
        documents.allocation_from(documents.allocation_document(ALLOCATION) | change)
    assert refused.value.field.startswith(field)


@pytest.mark.parametrize(
    "read",
    [
        documents.topology_from,
        documents.inventory_from,
        documents.allocation_from,
        snapshot.topology_from_snapshot,
    ],
)
@settings(max_examples=30)
@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nonsense_is_invalid_input(read, document):
    with pytest.raises(InvalidInput):
        read(document)


def test_bad_link_and_bad_lid_name_the_field():
    topology = documents.topology_document(SPINES) | {"absent_links": ["leaf-0-0"]}
    with pytest.raises(InvalidInput, match=r"topology.absent_links\[0\].*leaf-POD-LEAF-UP"):
        documents.topology_from(topology)
    inventory = documents.inventory_document(INVENTORY) | {"lids": [["0x7", 0xC000]]}
    with pytest.raises(InvalidInput, match=r"inventory.lids\[0\]\[1\]"):
        documents.inventory_from(inventory)


@pytest.mark.parametrize("topology", [PLAIN, RAILS, SPINES])
def test_snapshot_comes_back_with_its_faults(topology):
    failed_host = min(set(range(topology.hosts)) - topology.absent_hosts)
    link = LeafLink(0, 0, 1)
    document = through_json(snapshot.snapshot_topology(topology, {failed_host}, {link}))
    assert snapshot.topology_from_snapshot({"topology": document}) == snapshot.SnapshotTopology(
        topology, frozenset({failed_host}), frozenset({link})
    )


def test_snapshot_has_the_form_of_the_contract():
    assert snapshot.snapshot_topology(SPINES, {5}) == {
        "m": [2, 2, 2],
        "w": [1, 2, 2],
        "failed_hosts": [5],
        "failed_leaf_links": [[0, 1, 1]],
        "failed_spine_links": [[1, 1, 0]],
        "absent_leaf_links": [[0, 1, 1]],
        "absent_spine_links": [[1, 1, 0]],
    }
    rails = snapshot.snapshot_topology(RAILS)
    assert rails["rails"] == 2
    assert rails["host_ports"]["3"] == [[0, 2, 1], [0, 3, 1]]
    assert snapshot.snapshot_topology(PLAIN)["cables"] == [1, 2]


def test_snapshot_written_by_others_is_read():
    read = snapshot.topology_from_snapshot(
        {"m": [2, 2, 1], "w": [1, 2, 0], "failed_leaf_links": [[0, 1, 0]], "later": 1}
    )
    assert read.topology == Topology(Xgft((2, 2, 1), (1, 2, 0)))
    assert read.failed_links == {LeafLink(0, 1, 0)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"failed_hosts": [4]}, "hosts are 0..3"),
        ({"failed_leaf_links": [[0, 2, 0]]}, "links lie within"),
        ({"rails": 2, "host_ports": {"1": [[0, 0, 0], [0, 1, 0]]}}, "name every host"),
        ({"m": [2, 2]}, r"topology.m\[2\]"),
        ({"m": [0, 2, 1]}, "sizes of at least 1"),
    ],
)
def test_bad_snapshot_is_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        snapshot.topology_from_snapshot({"m": [2, 2, 1], "w": [1, 2, 0]} | change)


@given(
    traits=st.frozensets(st.sampled_from(["gpu", "HW_CPU_X86_AVX2", "a.b:c-d"])),
    avoid_hosts=st.frozensets(st.integers(0, 99)),
    avoid_pods=st.frozensets(st.integers(0, 9)),
    where=st.sampled_from([{}, {"within": Within.LEAF}, {"within": Within.POD}, {"spread": 3}]),
    max_host_cost=st.none() | st.integers(0, 9),
    cheapest=st.booleans(),
)
def test_constraints_come_back_equal(where, **others):
    wish = Constraints(**where, **others)
    document = json.loads(json.dumps(documents.constraints_document(wish)))
    assert documents.constraints_from(document) == (wish if wish.names else None)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"trait": ["gpu"]}, "constraints.trait"),
        ({"traits": "gpu"}, "constraints.traits"),
        ({"traits": ["two words"]}, "constraints.traits"),
        ({"avoid_hosts": [-1]}, "constraints.avoid_hosts"),
        ({"avoid_hosts": ["node1"]}, "constraints.avoid_hosts"),
        ({"within": "two words"}, "constraints.within"),
        ({"domains": 0, "kind": "rack"}, "constraints.domains"),
        ({"domains": 2}, "constraints.kind"),
        ({"kind": "rack"}, "constraints.kind"),
        ({"domains": 2, "kind": "leaf"}, "constraints.kind"),
        ({"domains": 2, "per_domain": 3, "kind": "rack"}, "constraints.per_domain"),
        ({"spread": {"kind": "pod", "least": 2}}, "constraints.spread.kind"),
        ({"spread": {"kind": "rack"}}, "constraints.spread.least"),
        ({"spread": {"kind": "rack", "least": 2}, "within": "rack"}, "constraints.spread"),
        ({"exclusive": True}, "constraints.kind"),
        ({"within": "rack", "cheapest": True}, "constraints.cheapest"),
        ({"spread": 0}, "constraints.spread"),
        ({"spread": True}, "constraints.spread"),
        ({"spread": 2, "within": "pod"}, "constraints.spread"),
        ({"max_host_cost": -1}, "constraints.max_host_cost"),
        ({"cheapest": 1}, "constraints.cheapest"),
        ([], "constraints"),
    ],
)
def test_what_are_no_constraints_is_refused_by_field(document, field):
    with pytest.raises(InvalidInput, match=field):
        documents.constraints_from(document)


def test_promises_are_stored_in_the_steps_of_earlier_releases():
    """Stored sums never exceed a link that is full, and come back as they were."""
    for amount in (0, 1, 5_600_000, 56_000_000, 123_456_789, 10**12 + 7):
        assert documents.steps_from(documents.stored_steps(amount)) == amount
    assert 10 * documents.stored_steps(5_600_000) <= 56 << 20
    assert documents.steps_from(56 << 20) == 56_000_000
