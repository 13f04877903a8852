# SPDX-License-Identifier: Apache-2.0

"""Idle links and switches can be powered down while the rest stays reachable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.adapters.fabric_import.generator import inventory
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.idle_links import idle_components
from laas_service.domain.inventory import Endpoint, PortRef, Switch
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, Topology, Xgft

TREE = Topology(Xgft((4, 4, 3), (1, 4, 4)))
STORAGE = 0xABCD


def with_storage(topology=TREE, leaf=0):
    """The generated fabric with a storage port on an extra port of one leaf."""
    made = inventory(topology)
    guid = made.leaf_guids[leaf]
    switches = tuple(
        replace(switch, ports=switch.ports + 1) if switch.guid == guid else switch
        for switch in made.switches
    )
    port = PortRef(guid, next(s.ports for s in switches if s.guid == guid))
    storage = Endpoint(STORAGE, "storage", port)
    return replace(made, switches=switches, endpoints=(*made.endpoints, storage))


def filled(sizes, policy="jigsaw", topology=TREE):
    fabric = Ledger(topology)
    for number, size in enumerate(sizes):
        admit(POLICIES[policy](), fabric, Request(f"t{number}", size))
    return fabric


def reached(made, tables, off_links, off_switches, source, target):
    """Whether a packet from a switch reaches a GUID over links and switches that are up."""
    across = {}
    for cable in made.cables:
        if cable.link not in off_links:
            across[cable.lower], across[cable.upper] = cable.upper.guid, cable.lower.guid
    home = {e.guid: e.at for e in made.endpoints}
    at = source
    for _ in range(9):
        if at in off_switches:
            return False
        port = tables.port(at, target)
        if port == 0 or home.get(target) == (at, port):
            return True
        at = across.get((at, port))
        if at is None:
            return False
    return False


@pytest.mark.parametrize("policy", ["jigsaw", "baseline"])
@pytest.mark.parametrize("sizes", [(), (3,), (6, 5), (20, 9), (48,)])
def test_without_idle_components_all_required_paths_work(policy, sizes):
    fabric, made = filled(sizes, policy), with_storage()
    components = idle_components(fabric, made)
    tables = forwarding_tables(TREE, made, fabric.allocations.values())
    off, gone = set(components.links), {switch.guid for switch in components.switches}

    def ok(source, target):
        return reached(made, tables, off, gone, source, target)

    leaf_of = {e.guid: e.at.guid for e in made.endpoints}
    storage = leaf_of[STORAGE]
    for tenant in fabric.allocations.values():
        ports = [made.endpoint_of_port[host, 0].guid for host in tenant.hosts(TREE)]
        assert all(ok(leaf_of[a], b) for a in ports for b in ports)
        assert all(ok(leaf_of[a], STORAGE) and ok(storage, a) for a in ports)
    stay = {switch.guid for switch in made.switches} - gone
    assert all(ok(switch, STORAGE) and ok(storage, switch) for switch in stay)
    ends = {c.link: (c.lower.guid, c.upper.guid) for c in made.cables}
    assert all(link in off for link, both in ends.items() if set(both) & gone)
    assert not off & fabric.owners_of_links().keys()


def test_an_empty_fabric_needs_only_the_leaf_of_the_service():
    made = with_storage(leaf=5)
    components = idle_components(Ledger(TREE), made)
    assert len(components.links) == TREE.tree.leaf_links + TREE.tree.spine_links
    stay = {switch.guid for switch in made.switches} - {s.guid for s in components.switches}
    assert stay == {made.leaf_guids[5]}


def test_a_full_fabric_has_no_idle_components():
    components = idle_components(filled((48,)), with_storage())
    assert components.links == ()
    assert components.switches == ()


def test_with_a_tenant_beside_the_storage_other_pods_are_idle():
    made = with_storage()
    components = idle_components(filled((3,)), made)
    idle = {switch.guid for switch in components.switches}
    assert set(made.spine_guids) <= idle
    assert set(made.leaf_guids[1:]) <= idle
    assert made.leaf_guids[0] not in idle


def test_without_a_known_service_no_leaf_is_idle():
    made = inventory(TREE)
    idle = {switch.guid for switch in idle_components(Ledger(TREE), made).switches}
    assert idle
    assert not idle & set(made.leaf_guids)


def test_absent_links_are_not_listed_and_failed_ones_are():
    gone, broken = LeafLink(0, 1, 2), LeafLink(2, 3, 1)
    topology = replace(TREE, absent_links=frozenset({gone}))
    fabric = Ledger(topology)
    fabric.fail_link(broken)
    components = idle_components(fabric, with_storage(topology))
    assert gone not in components.links
    assert broken in components.links


def test_a_shared_spine_is_not_idle_if_one_of_its_indices_is_needed():
    made = with_storage()
    shared = made.spine_guids[0]
    director = tuple(shared if i % 4 == 0 else g for i, g in enumerate(made.spine_guids))
    merged = {g: shared for g, d in zip(made.spine_guids, director, strict=True) if d == shared}
    numbers: dict[int, int] = {}

    def moved(ref):
        if ref.guid not in merged:
            return ref
        numbers[shared] = numbers.get(shared, 0) + 1
        return PortRef(shared, numbers[shared])

    made = replace(
        made,
        cables=tuple(replace(c, upper=moved(c.upper)) for c in made.cables),
        switches=tuple(
            Switch(s.guid, s.name, s.level, 64 if s.guid == shared else s.ports)
            for s in made.switches
            if s.guid not in merged or s.guid == shared
        ),
        spine_guids=director,
    )
    fabric = filled((20,))
    components = idle_components(fabric, made)
    uppers = {made.cable_of_link[link].upper.guid for link in fabric.owners_of_links()}
    assert shared in uppers
    assert shared not in {switch.guid for switch in components.switches}
