# SPDX-License-Identifier: Apache-2.0

"""A common plane carries shared traffic, is withheld from tenants, and can be returned."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain import common_plane_cost
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request, Shape
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import Conflict, DoubleClaim, InvalidInput
from laas_service.domain.ledger import Ledger, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import (
    credit_loop,
    physical_tables,
    violations,
    walk_violations,
)
from tests.unit.domain.policies.states import break_things
from tests.unit.domain.verification.sound import FULL, TOPOLOGIES, build, inventory_of

SM = 0xFF0000
PLANES = [
    (name, l2, spines)
    for name, topology in TOPOLOGIES.items()
    for l2, spines in (((0,), ()), ((), (1,)), ((1,), (0,)))
    if (len(l2) < topology.tree.l2_per_pod and len(spines) < topology.tree.spines_per_group)
    or (not spines and len(l2) < topology.tree.l2_per_pod)
]
every_plane = pytest.mark.parametrize(("name", "l2", "spines"), PLANES)
joined = pytest.mark.parametrize(
    ("name", "l2", "spines"), [case for case in PLANES if case[0] != "planes"]
)
"""Without rails that meet at spines: a tenant of one leaf group owns no path between them."""


def filled(fabric: Ledger, rng: Random) -> Ledger:
    """Admits tenants of all policies until a few were refused."""
    refused = number = 0
    while refused < 4 and number < 40:
        policy = POLICIES[rng.choice(["jigsaw", "laas", "lc", "baseline"])]()
        size = rng.randint(1, max(1, fabric.topology.hosts // 3))
        refused += isinstance(admit(policy, fabric, Request(f"t{number}", size)), NoFit)
        number += 1
    return fabric


@every_plane
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_withheld_links_are_as_unavailable_as_failed_ones(name, l2, spines, seed):
    topology = TOPOLOGIES[name]
    plane = CommonPlane.of(topology.tree, l2, spines)
    fabric, rng = Ledger(topology), Random(seed)
    break_things(fabric, rng, 2)
    down = fabric.copy()
    for link in plane.links(topology.tree):
        down.fail_link(link)
    fabric.withhold(plane)
    for kind in ("free_hosts", "free_uplinks", "free_spines", "odd_groups", "lost_host_count"):
        assert getattr(fabric, kind) == getattr(down, kind)
    for policy in POLICIES.values():
        for hosts in range(1, topology.hosts + 1, 5):
            request = Request("t", hosts)
            answer, expected = policy().propose(fabric, request), policy().propose(down, request)
            assert answer == expected or type(answer) is type(expected) is not Allocation


@every_plane
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_no_history_allocates_a_withheld_link_and_all_links_come_back(name, l2, spines, seed):
    topology, rng = TOPOLOGIES[name], Random(seed)
    plane, fabric = CommonPlane.of(topology.tree, l2, spines), Ledger(topology)
    empty = fabric.state()
    fabric.withhold(plane)
    filled(fabric, rng)
    break_things(fabric, rng, 3)
    allocations = list(fabric.allocations.values())
    assert violations(topology, allocations, rng, permutations=1, plane=plane) == []
    withheld = set(plane.links(topology.tree))
    for view in (fabric, fabric.copy(), fabric.within(Masks.whole(topology))):
        assert view.shared_plane == plane
        assert withheld.isdisjoint(view.owners_of_links())
    for host in tuple(fabric.failed_hosts):
        fabric.repair_host(host)
    for link in tuple(fabric.failed_links):
        fabric.repair_link(link)
    taken = fabric.copy()
    fabric.withhold(NO_PLANE)
    fabric.withhold(plane)
    assert fabric.state() == taken.state()
    fabric.withhold(NO_PLANE)
    for id in tuple(fabric.allocations):
        fabric.release(id)
    assert fabric.state() == empty


def test_a_link_that_a_tenant_holds_cannot_be_withheld():
    fabric = Ledger(FULL)
    fabric.claim(build(FULL, Shape(1, 2, 2), "red"))
    before = fabric.state()
    with pytest.raises(Conflict, match=r"L2 index 0 cannot be withheld.*release them first: red"):
        fabric.withhold(CommonPlane.of(FULL.tree, (0,)))
    assert fabric.state() == before
    fabric.withhold(CommonPlane.of(FULL.tree, (2,)))
    with pytest.raises(DoubleClaim):
        fabric.claim(build(FULL, Shape(1, 2, 3), "blue", pod=1))


def test_another_plane_frees_the_links_of_the_old_one():
    fabric = Ledger(FULL)
    fabric.withhold(CommonPlane.of(FULL.tree, (0,)))
    fabric.fail_link(LeafLink(0, 0, 0))
    fabric.withhold(CommonPlane.of(FULL.tree, (1,)))
    other = Ledger(FULL)
    other.withhold(CommonPlane.of(FULL.tree, (1,)))
    other.fail_link(LeafLink(0, 0, 0))
    assert fabric.state() == other.state()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_masks_and_links_of_a_plane_agree(name):
    topology = TOPOLOGIES[name]
    tree = topology.tree
    for l2, spines in (((0,), ()), ((0,), (0,)), ((), (0,))):
        if (not tree.w[2] and spines) or len(l2) == tree.l2_per_pod:
            continue
        plane = CommonPlane.of(tree, l2, spines)
        fabric = Ledger(topology)
        fabric.withhold(plane)
        part, whole = Masks.of_plane(topology, plane), Masks.whole(topology)
        assert fabric.free_lanes == [a & ~b for a, b in zip(whole.lanes, part.lanes, strict=True)]
        kinds = {LeafLink, SpineLink} & {type(link) for link in plane.links(tree)}
        assert kinds == ({LeafLink} if l2 else set()) | ({SpineLink} if tree.w[2] else set())
        assert all(
            plane.carries(tree, x) or x.l2 not in l2
            for x in plane.links(tree)
            if isinstance(x, SpineLink)
        )


@pytest.mark.parametrize(
    ("l2", "spines", "field"),
    [
        ((3,), (), "l2"),
        ((-1,), (), "l2"),
        ((0, 0), (), "l2"),
        ((0, 1, 2), (), "l2"),
        ((), (3,), "spines"),
        ((), (0, 1, 2), "spines"),
    ],
)
def test_the_refusal_of_a_wrong_plane_names_the_field(l2, spines, field):
    with pytest.raises(InvalidInput) as refused:
        CommonPlane.of(FULL.tree, l2, spines)
    assert refused.value.field == field


def test_two_levels_have_no_spines():
    with pytest.raises(InvalidInput, match="the tree has none"):
        CommonPlane.of(TOPOLOGIES["two-level"].tree, (), (0,))


# -- routing, checked by verification ---------------------------------------------------


@pytest.mark.parametrize("directors", [False, True], ids=["spines", "directors"])
@every_plane
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_an_owned_link_carries_packets_of_its_owner_only(name, l2, spines, directors, seed):
    topology, rng = TOPOLOGIES[name], Random(seed)
    inventory = inventory_of(topology, directors)
    if directors and topology.tree.spines_per_group > 1 and not spines:
        spines = (0,)  # a director is withheld only if its spines are named
    plane, fabric = CommonPlane.of(topology.tree, l2, spines), Ledger(topology)
    fabric.withhold(plane)
    allocations = list(filled(fabric, rng).allocations.values())
    routed = forwarding_tables(topology, inventory, allocations, plane=plane)
    tables = physical_tables(routed.rows, routed.index)
    walks = walk_violations(topology, inventory, tables, allocations, [SM], plane)
    if l2 or not (directors or name == "planes"):
        assert walks.violations == []
    assert credit_loop(inventory, tables) == []
    assert walks.shared_pairs > 0


@joined
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_everything_is_reachable_when_cables_of_the_plane_have_failed(name, l2, spines, seed):
    topology, rng = TOPOLOGIES[name], Random(seed)
    inventory = inventory_of(topology)
    plane, fabric = CommonPlane.of(topology.tree, l2, spines), Ledger(topology)
    fabric.withhold(plane)
    for link in rng.sample(sorted(plane.links(topology.tree), key=topology.tree.link_id), 2):
        fabric.fail_link(link)
    allocations = list(filled(fabric, rng).allocations.values())
    routed = forwarding_tables(
        topology, inventory, allocations, fabric.failed_links, plane=fabric.shared_plane
    )
    tables = physical_tables(routed.rows, routed.index)
    assert walk_violations(topology, inventory, tables, allocations, [SM]).violations == []
    assert credit_loop(inventory, tables) == []


def test_a_leaf_that_the_plane_does_not_reach_uses_other_links_and_is_named():
    inventory = inventory_of(FULL)
    plane, fabric = CommonPlane.of(FULL.tree, (0,)), Ledger(FULL)
    fabric.withhold(plane)
    fabric.fail_link(LeafLink(1, 0, 0))
    allocations = list(filled(fabric, Random(3)).allocations.values())
    routed = forwarding_tables(FULL, inventory, allocations, fabric.failed_links, plane=plane)
    tables = physical_tables(routed.rows, routed.index)
    broken = walk_violations(FULL, inventory, tables, allocations, [SM], plane).violations
    leaf = FULL.tree.leaf_id(1, 0)
    assert broken
    hosts = {f"h{host}" for host in range(leaf * 3, leaf * 3 + 3)}
    assert all(any(host in line for host in hosts) for line in broken)
    (unreached,) = common_plane_cost.reach(fabric, inventory, plane).unreached
    assert unreached.guid == inventory.leaf_guids[leaf]


def test_directors_that_tenants_also_use_are_named():
    fabric, inventory = Ledger(FULL), inventory_of(FULL, directors=True)
    mixed = common_plane_cost.reach(fabric, inventory, CommonPlane.of(FULL.tree, (0,))).mixed
    assert [switch.guid for switch in mixed] == [0x300000, 0x300001, 0x300002]
    named = CommonPlane.of(FULL.tree, (0,), (1,))
    assert common_plane_cost.reach(fabric, inventory, named).mixed == ()


# -- its cost ---------------------------------------------------------------------


def test_on_a_full_tree_full_leaf_policies_lose_all_capacity_beyond_a_pod():
    fabric = Ledger(Topology(Xgft((4, 4, 4), (1, 4, 4))))
    fabric.claim(build(fabric.topology, Shape(1, 2, 2), "red"))
    before = fabric.state()
    plane = CommonPlane.of(fabric.topology.tree, (3,))
    offered = [POLICIES[name]() for name in ("jigsaw", "laas", "lc", "simple")]
    costs = {
        present.policy: (present, changed)
        for present, changed in common_plane_cost.costs(fabric, plane, offered)
    }
    largest = {name: present.largest for name, (present, _) in costs.items()}
    assert largest == dict.fromkeys(costs, 64)
    assert {name: changed.largest for name, (_, changed) in costs.items()} == {
        "jigsaw": 12,
        "laas": 12,
        "lc": 48,
        "simple": 4,
    }
    assert {name: changed.beyond_leaf for name, (_, changed) in costs.items()} == {
        "jigsaw": 48,
        "laas": 48,
        "lc": 48,
        "simple": 0,
    }
    assert fabric.state() == before


def test_a_tree_with_a_spare_uplink_on_every_leaf_loses_no_capacity():
    fabric = Ledger(Topology(Xgft((3, 4, 4), (1, 4, 4))))
    plane = CommonPlane.of(fabric.topology.tree, (3,))
    for present, changed in common_plane_cost.costs(
        fabric, plane, [policy() for policy in POLICIES.values()]
    ):
        assert changed == present
