# SPDX-License-Identifier: Apache-2.0

"""Correct tables pass; each kind of violation is found and named."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.inventory import Inventory, PortRef
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, Link, Topology
from laas_service.domain.verification import (
    credit_loop,
    physical_tables,
    violations,
    walk_violations,
)
from tests.unit.domain.verification.sound import FULL, PLANES, TOPOLOGIES, build, inventory_of

SM = 0xFF0000
RED = build(FULL, Shape(1, 2, 2, 1, 1), "red")
"""Pod 0: leaves 0 and 1 of two hosts; pod 1: leaf 0 of two (9, 10), leaf 1 of one (12)."""
BLUE = build(FULL, Shape(1, 2, 3), "blue", pod=2)
INVENTORY = inventory_of(FULL)

Rows = dict[int, dict[int, int]]


def tables(topology: Topology, inventory: Inventory, *allocations: Allocation) -> Rows:
    routed = forwarding_tables(topology, inventory, allocations)
    found = physical_tables(routed.rows, routed.index)
    return {switch: dict(row) for switch, row in found.items()}


SOUND = tables(FULL, INVENTORY, RED, BLUE)


@pytest.fixture
def rows() -> Rows:
    return copy.deepcopy(SOUND)


def found(rows: Rows, *allocations: Allocation) -> list[str]:
    return walk_violations(FULL, INVENTORY, rows, allocations or (RED, BLUE), [SM]).violations


def port_of(host: int, rail: int = 0) -> int:
    return INVENTORY.endpoint_of_port[host, rail].guid


def up(link: Link) -> PortRef:
    return INVENTORY.cable_of_link[link].lower


def down(link: Link) -> PortRef:
    return INVENTORY.cable_of_link[link].upper


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("directors", [False, True], ids=["spines", "directors"])
def test_sound_tables_pass(name, directors):
    topology = TOPOLOGIES[name]
    inventory = inventory_of(topology, directors)
    tenants = [build(topology, Shape(1, 2, 2), "red")]
    if topology.pods > 2:
        tenants.append(build(topology, Shape(1, 2, 2, 1, 1), "blue", pod=1))
    rows = tables(topology, inventory, *tenants)
    walks = walk_violations(topology, inventory, rows, tenants, [SM])
    assert walks.violations == []
    assert walks.manager_pairs == 2 * (len(inventory.endpoints) + len(inventory.switches) - 1)
    assert credit_loop(inventory, rows) == []
    assert violations(topology, tenants, Random(1)) == []


def test_pairs_are_counted():
    walks = walk_violations(FULL, INVENTORY, SOUND, [RED, BLUE])
    assert walks.tenant_pairs == 7 * 6 + 6 * 5
    assert walks.manager_pairs == 0


def test_pairs_across_rails_count_where_own_links_join_them():
    topology = TOPOLOGIES["rails"]
    inventory = inventory_of(topology)
    red = build(topology, Shape(1, 1, 2), "red")
    apart = replace(red, groups=(red.groups[0]._replace(uplinks=0),))
    rows = tables(topology, inventory, red)
    assert walk_violations(topology, inventory, rows, [red]).tenant_pairs == 4 * 3
    assert walk_violations(topology, inventory, rows, [apart]).tenant_pairs == 2 * 2


def test_rows_by_lid_say_the_same_as_rows_by_guid():
    routed = forwarding_tables(FULL, INVENTORY, [RED, BLUE])
    by_lid = {}
    for switch, row in routed.rows.items():
        by_lid[switch] = bytearray([255]) * (max(INVENTORY.lids.values()) + 1)
        for guid, place in routed.index.items():
            by_lid[switch][INVENTORY.lids[guid]] = row[place]
    assert physical_tables(by_lid, INVENTORY.lids) == SOUND


def test_a_missing_entry(rows):
    del rows[0x100000][port_of(9)]
    lines = found(rows)
    assert any(
        line == "reachability: red: host 0 rail 0 to host 9 rail 0: "
        "switch 0x0000000000100000 (s100000) has no entry"
        for line in lines
    )
    assert any(line.startswith("management: sm to port h9") for line in lines)


def test_a_port_that_leads_nowhere(rows):
    rows[0x100000][port_of(9)] = 77
    assert any("port 77 of switch 0x0000000000100000" in line for line in found(rows))


def test_another_hosts_port(rows):
    rows[0x100000][port_of(0)] = INVENTORY.endpoint_of_port[1, 0].at.port
    assert any("arrives at port 0x0000000000010001 of h1" in line for line in found(rows))


def test_a_link_that_nobody_owns(rows):
    """Over L2 switch 2, which red does not hold; the entries there are the default ones."""
    rows[0x100000][port_of(3)] = up(LeafLink(0, 0, 2)).port
    rows[0x200002][port_of(3)] = down(LeafLink(0, 1, 2)).port
    assert [line for line in found(rows) if "red" in line] == [
        "reachability: red: host 0 rail 0 to host 3 rail 0: "
        "it uses link leaf-0-0-2, which nobody owns",
        "reachability: red: host 0 rail 0 to host 3 rail 0: "
        "it uses link leaf-0-1-2, which nobody owns",
    ]


def test_a_link_of_another_tenant(rows):
    thief = Allocation("thief", 1, "jigsaw", (GroupShare(2, 1, 0), GroupShare(0, 0, 0b100)))
    rows[0x100000][port_of(3)] = up(LeafLink(0, 0, 2)).port
    rows[0x200002][port_of(3)] = down(LeafLink(0, 1, 2)).port
    lines = found(rows, RED, thief)
    assert any("it uses link leaf-0-0-2, which thief owns" in line for line in lines)


def test_a_cable_outside_the_tree(rows):
    cables = [
        replace(cable, link=None) if cable.link == LeafLink(0, 0, 0) else cable
        for cable in INVENTORY.cables
    ]
    inventory = replace(INVENTORY, cables=tuple(cables))
    lines = walk_violations(FULL, inventory, rows, [RED]).violations
    assert any("it uses the cable 0x0000000000100000[" in line for line in lines)


def test_a_loop(rows):
    rows[0x200000][port_of(9)] = down(LeafLink(0, 1, 0)).port
    rows[0x100001][port_of(9)] = up(LeafLink(0, 1, 1)).port
    rows[0x200001][port_of(9)] = down(LeafLink(0, 0, 1)).port
    rows[0x100000][port_of(9)] = up(LeafLink(0, 0, 0)).port
    assert any("comes to switch 0x0000000000100000 (s100000) twice" in x for x in found(rows))


def test_down_then_up(rows):
    rows[0x200000][port_of(9)] = down(LeafLink(0, 1, 0)).port
    rows[0x100000][port_of(9)] = up(LeafLink(0, 0, 0)).port
    rows[0x100001][port_of(9)] = up(LeafLink(0, 1, 1)).port
    lines = found(rows)
    assert any("it goes up after it went down" in line for line in lines)


def test_the_manager_is_not_reached_from_a_switch(rows):
    del rows[0x200004][SM]
    assert "management: sm from switch s200004 (0x0000000000200004): " in " ".join(found(rows))


def test_a_manager_that_is_not_there():
    walks = walk_violations(FULL, INVENTORY, SOUND, [], [0xABC])
    assert walks.violations == ["management: there is no port 0x0000000000000abc"]


def test_a_host_without_a_port():
    inventory = replace(INVENTORY, endpoints=INVENTORY.endpoints[1:])
    walks = walk_violations(FULL, inventory, SOUND, [RED])
    assert walks.violations == ["reachability: red: host 0 has no port on rail 0"]


def test_a_tenant_that_owns_no_links_has_only_to_arrive(rows):
    scattered = Allocation("scattered", 2, "baseline", (GroupShare(0, 1, 0), GroupShare(8, 1, 0)))
    assert found(rows, scattered) == []
    del rows[0x100000][port_of(24)]
    assert any("scattered" in line for line in found(rows, scattered))


def test_pairs_that_own_links_do_not_join_keep_off_those_of_others():
    """Two planes that meet at the spines: red, inside a leaf group, has no link between rails."""
    inventory = inventory_of(PLANES)
    red = Allocation("red", 2, "jigsaw", (GroupShare(2, 0b11, 0),))
    rows = tables(PLANES, inventory, red)
    assert walk_violations(PLANES, inventory, rows, [red]).violations == []
    every = tuple(ColumnShare(pod, c, 0b111) for pod in range(2) for c in range(6))
    blue = Allocation("blue", 1, "jigsaw", (GroupShare(0, 1, 0),), every)
    assert walk_violations(PLANES, inventory, rows, [red, blue]).violations == []
    lines = walk_violations(PLANES, inventory, tables(PLANES, inventory), [red, blue]).violations
    assert any("host 7 rail 0 to host 6 rail 1: it uses link spine-" in line for line in lines)


def test_ports_of_one_host_need_no_links_between_them():
    """A tenant of one host holds no links; traffic between its ports stays in the host."""
    topology = TOPOLOGIES["rails"]
    inventory = inventory_of(topology)
    red, blue = build(topology, Shape(1, 1, 1), "red"), build(topology, Shape(1, 1, 2), "blue")
    blue = replace(blue, groups=(blue.groups[0]._replace(hosts=0b110),))
    rows = tables(topology, inventory, red, blue)
    walks = walk_violations(topology, inventory, rows, [red, blue])
    assert walks.violations == []
    assert walks.tenant_pairs == 4 * 3


def test_a_credit_loop_is_found(rows):
    """Two leaves and two L2 switches in a ring; no single path has a loop."""
    a, b, x, y = 0x100000, 0x100001, 0x200000, 0x200001
    ring = [
        (up(LeafLink(0, 0, 0)), x),
        (down(LeafLink(0, 1, 0)), b),
        (up(LeafLink(0, 1, 1)), y),
        (down(LeafLink(0, 0, 1)), a),
    ]
    for number, (port, _) in enumerate(ring):
        following, _ = ring[(number + 1) % 4]
        rows[port.guid][port_of(18 + number)] = port.port
        rows[following.guid][port_of(18 + number)] = following.port
        rows[ring[(number + 1) % 4][1]].pop(port_of(18 + number), None)
    loop = credit_loop(INVENTORY, rows)
    assert sorted(loop) == sorted(port for port, _ in ring)


def test_the_whole_judgement_collects_all_promises():
    broken = replace(RED, columns=RED.columns[1:], shape=None)
    lines = violations(FULL, [broken, replace(BLUE, id="red")], Random(1), failed_hosts={18})
    promises = {line.split(":")[0] for line in lines}
    assert promises == {"isolation", "fault", "shape", "bandwidth"}


def test_nonsense_is_judged_without_a_crash():
    nonsense = Allocation(
        "x",
        5,
        "jigsaw",
        (GroupShare(-1, 1, 1), GroupShare(2, 0, 0b1111), GroupShare(99, 1, 1)),
        (ColumnShare(0, 7, 1), ColumnShare(1, 0, 1 << 9)),
    )
    assert len(violations(FULL, [nonsense], Random(1))) >= 5
    assert walk_violations(FULL, INVENTORY, SOUND, [nonsense]).tenant_pairs == 0
