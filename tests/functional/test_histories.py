# SPDX-License-Identifier: Apache-2.0

"""Random histories of allocate, release, fail, drain and repair, checked by the verification."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft, bits
from laas_service.domain.verification import (
    adversarial_permutations,
    credit_loop,
    isolation_violations,
    permutation_violations,
    physical_tables,
    random_permutation,
    shape_violations,
    violations,
    walk_violations,
)
from tests.unit.domain.verification.sound import PLANES, TOPOLOGIES, inventory_of

HOLES = Topology(
    Xgft((3, 3, 3), (1, 3, 3)),
    absent_hosts=frozenset({4, 17, 26}),
    absent_links=frozenset({LeafLink(0, 1, 1), LeafLink(2, 2, 0), SpineLink(1, 1, 1)}),
)
SHAPES = TOPOLOGIES | {"holes": HOLES, "wide": Topology(Xgft((2, 4, 5), (1, 3, 4)))}

CHOICE = st.integers(0, 1 << 16)
STEPS = st.one_of(
    st.tuples(st.just("allocate"), st.sampled_from(sorted(POLICIES)), CHOICE),
    st.tuples(
        st.sampled_from(["release", "fail host", "drain host", "fail link", "repair", "mend"]),
        CHOICE,
    ),
)


def take_step(fabric: Ledger, step, number: int) -> None:
    topology, choice = fabric.topology, step[-1]
    if step[0] == "allocate":
        most = topology.hosts_per_group if choice & 1 else topology.hosts
        size = 1 + (choice >> 1) % most
        found = admit(POLICIES[step[1]](), fabric, Request(f"t{number}", size))
        if isinstance(found, Allocation):
            down = fabric.failed_hosts | fabric.drained_hosts
            assert down.isdisjoint(found.hosts(topology))
            assert fabric.failed_links.isdisjoint(found.links(topology))
    elif step[0] == "release" and fabric.allocations:
        fabric.release(sorted(fabric.allocations)[choice % len(fabric.allocations)])
    elif step[0] in ("fail host", "drain host"):
        present = sorted(set(range(topology.hosts)) - topology.absent_hosts)
        act = fabric.fail_host if step[0] == "fail host" else fabric.drain_host
        act(present[choice % len(present)])
    elif step[0] == "mend" and fabric.allocations:
        mend(fabric, sorted(fabric.allocations)[choice % len(fabric.allocations)])
    elif step[0] == "fail link":
        tree = topology.tree
        link = tree.link_at(choice % (tree.leaf_links + tree.spine_links))
        if link not in topology.absent_links:
            fabric.fail_link(link)
    elif step[0] == "repair":
        for host in sorted(fabric.failed_hosts | fabric.drained_hosts)[: 1 + choice % 3]:
            fabric.repair_host(host)
        for link in sorted(fabric.failed_links, key=topology.tree.link_id)[: choice % 3]:
            fabric.repair_link(link)


def mend(fabric: Ledger, id: str) -> None:
    """Replace the failed links of an allocation, in two changes as the service does it."""
    before = fabric.allocations[id]
    after = repair(fabric, before)
    if isinstance(after, Allocation):
        assert after.hosts(fabric.topology) == before.hosts(fabric.topology)
        assert fabric.failed_links.isdisjoint(after.links(fabric.topology))
        assert shape_violations(fabric.topology, after) == []
        fabric.change(after.joined(before))
        assert isolation_violations(fabric.topology, fabric.allocations.values()) == []
        fabric.change(after)


def expected_free_hosts(fabric: Ledger) -> set[int]:
    """Hosts that are present, up and without owner, computed without the ledger's free masks."""
    topology = fabric.topology
    owned = {h for a in fabric.allocations.values() for h in a.hosts(topology)}
    down = topology.absent_hosts | fabric.failed_hosts | fabric.drained_hosts
    return set(range(topology.hosts)) - down - owned


def free_hosts(fabric: Ledger) -> set[int | None]:
    topology = fabric.topology
    return {
        topology.host_at(group, position)
        for group, mask in enumerate(fabric.free_hosts)
        for position in bits(mask)
    }


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=30), random=st.randoms(use_true_random=False))
def test_no_history_breaks_a_promise(name, steps, random):
    topology = SHAPES[name]
    fabric = Ledger(topology)
    initial = fabric.state()
    for number, step in enumerate(steps):
        take_step(fabric, step, number)
        allocations = list(fabric.allocations.values())
        assert isolation_violations(topology, allocations) == []
        if step[0] == "allocate" and f"t{number}" in fabric.allocations:
            assert shape_violations(topology, fabric.allocations[f"t{number}"]) == []
    assert free_hosts(fabric) == expected_free_hosts(fabric)
    assert violations(topology, allocations, random, permutations=2) == []
    check_tables(fabric)
    for id in sorted(fabric.allocations):
        fabric.release(id)
    for host in sorted(fabric.failed_hosts | fabric.drained_hosts):
        fabric.repair_host(host)
    for link in list(fabric.failed_links):
        fabric.repair_link(link)
    assert fabric.state() == initial


def check_tables(fabric: Ledger) -> None:
    """Assert that each tenant's packets use its own links and that the manager reaches all ports.

    Skipped if rails are planes that meet only at the spines: a tenant inside one leaf group
    then owns no path from rail to rail, and the default path may use links of others.
    """
    topology = fabric.topology
    if topology is PLANES:
        return
    inventory = inventory_of(topology)
    allocations = list(fabric.allocations.values())
    routed = forwarding_tables(topology, inventory, allocations, fabric.failed_links)
    tables = physical_tables(routed.rows, routed.index)
    assert walk_violations(topology, inventory, tables, allocations, [0xFF0000]).violations == []
    assert credit_loop(inventory, tables) == []


@pytest.mark.parametrize("policy", [name for name, p in POLICIES.items() if p.isolating])
def test_every_tenant_of_a_full_thousand_host_tree_has_full_bandwidth(policy):
    topology = Topology(Xgft((8, 8, 16), (1, 8, 8)))
    fabric, random = Ledger(topology), Random(2016)
    refusals = 0
    for number in range(400):
        size = 1 + int(random.expovariate(1 / 24))
        refusals += not isinstance(
            admit(POLICIES[policy](), fabric, Request(f"t{number}", size)), Allocation
        )
        if refusals % 7 == 6 and random.random() < 0.3:
            fabric.release(random.choice(sorted(fabric.allocations)))
    assert refusals > 20
    allocations = list(fabric.allocations.values())
    assert isolation_violations(topology, allocations) == []
    for allocation in allocations:
        assert shape_violations(topology, allocation) == []
        tried = adversarial_permutations(topology, allocation)
        tried |= {
            f"random {n}": random_permutation(allocation.hosts(topology), random) for n in "ab"
        }
        assert permutation_violations(topology, allocation, tried) == []
