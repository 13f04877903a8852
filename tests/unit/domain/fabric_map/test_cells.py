# SPDX-License-Identifier: Apache-2.0

"""The map shows exactly what the ledger holds, and to a tenant its own part alone."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from xml.etree import ElementTree

import pytest

from laas_service.adapters.fabric_import.generator import inventory
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.fabric_map.cells import Viewer, cells_of, fabric_map
from laas_service.domain.fabric_map.document import plain_faults, plain_tenants
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import PLANNING
from laas_service.domain.topology import LeafLink, Port, SpineLink, Topology, Xgft, link_name

ONE_RAIL = Topology(Xgft((4, 4, 2), (1, 4, 4)), absent_links=frozenset({LeafLink(1, 0, 0)}))
BUNDLES = Topology(Xgft((4, 2, 2), (1, 8, 4), (2, 2)))
TWO_RAILS = Topology(
    Xgft((2, 4, 1), (1, 2, 0)),
    2,
    tuple((Port(0, 2 * g, k), Port(0, 2 * g + 1, k)) for g in range(2) for k in range(2)),
)


def filled(topology, sizes=(9, 3, 2), policy="jigsaw"):
    ledger = Ledger(topology)
    for number, size in enumerate(sizes):
        answer = PLANNING[policy]().propose(ledger, Request(f"t{number}", size))
        if isinstance(answer, Allocation):
            ledger.claim(answer)
    return ledger


def decoded(matrix):
    owner = b64decode(matrix["owner"])
    return (
        struct.unpack(f"<{len(owner) // 2}H", owner),
        b64decode(matrix["state"]),
        b64decode(matrix["load"]),
    )


@pytest.mark.parametrize("topology", [ONE_RAIL, BUNDLES, TWO_RAILS], ids=["one", "bundles", "two"])
def test_every_cell_is_what_the_ledger_says(topology):
    """Each cell, found by the contract's numbering alone, has its cable's owner and state."""
    ledger = filled(topology)
    ledger.fail_link(next(iter(topology.tree.links())))
    ledger.drain_host(topology.hosts - 1)
    tenants = plain_tenants(ledger)
    shown = fabric_map(ledger, inventory(topology), tenants)
    number = {tenant["id"]: 4 + place for place, tenant in enumerate(tenants)}
    (_, m2, _), (_, w2, w3) = topology.tree.m, topology.tree.w
    links = ledger.owners_of_links()
    kinds: tuple[tuple[str, type[LeafLink] | type[SpineLink], int, int], ...] = (
        ("leaf", LeafLink, w2, m2),
        ("spine", SpineLink, w3, w2 // topology.tree.cables[0]),
    )
    for name, kind, width, low in kinds:
        owner, state, _ = decoded(shown["matrices"][name])
        for cell in range(len(owner)):
            row, column = divmod(cell, width)
            pod, below = divmod(row, low)
            link = kind(pod, below, column)
            if link in topology.absent_links:
                assert (owner[cell], state[cell]) == (0, 0)
                continue
            assert owner[cell] == number.get(links.get(link), 1), link_name(link)
            assert state[cell] == (3 if link in ledger.failed_links else 1)
    owner, state, _ = decoded(shown["matrices"]["hosts"])
    hosts = ledger.owners_of_hosts()
    for host in range(topology.hosts):
        for pod, leaf, k in topology.ports_of(host):
            cell = (pod * m2 + leaf) * topology.tree.m[0] + k
            assert owner[cell] == number.get(hosts.get(host), 1)
            assert state[cell] == (2 if host in ledger.drained_hosts else 1)
    for tenant, allocation in zip(shown["tenants"], ledger.everybody(), strict=True):
        assert tenant["hosts"] == len(allocation.hosts(topology))
        assert tenant["leaf_links"] == len([*allocation.leaf_links(topology)])


def test_hosts_and_ports_have_their_names():
    shown = fabric_map(filled(ONE_RAIL), made := inventory(ONE_RAIL), [])
    assert [host[0] for host in shown["hosts"]] == list(made.host_names)
    assert shown["hosts"][5][1] == [5]
    assert shown["hosts"][5][2] == [f"{made.endpoint_of_port[5, 0].guid:#018x}"]
    assert shown["switches"]["leaf"][3][1] == f"{made.leaf_guids[3]:#018x}"
    cable = made.cable_of_link[LeafLink(0, 3, 2)]
    lower = b64decode(shown["matrices"]["leaf"]["lower"])
    assert struct.unpack_from("<H", lower, 2 * (3 * 4 + 2)) == (cable.lower.port,)


def test_a_tenant_sees_its_own_and_nothing_else():
    """Two fabrics that differ in everything but the tenant's own part have one map for it."""
    ledger, other = filled(ONE_RAIL), filled(ONE_RAIL)
    other.release("t1")
    other.fail_host(31)
    other.drain_link(SpineLink(1, 3, 3))
    maps = []
    for one in (ledger, other):
        tenants = plain_tenants(one)
        maps.append(
            fabric_map(one, inventory(ONE_RAIL), tenants, Viewer(frozenset({"t0"})))
            | {"counts": None}
        )
    assert maps[0] == maps[1]
    owner, state, load = decoded(maps[0]["matrices"]["leaf"])
    assert set(owner) == {2, 4}
    assert {(s, p) for o, s, p in zip(owner, state, load, strict=True) if o == 2} == {(1, 255)}
    own = [inventory(ONE_RAIL).host_names[h] for h in ledger.allocations["t0"].hosts(ONE_RAIL)]
    assert [host[0] for host in maps[0]["hosts"]] == own
    text = json.dumps(maps[0])
    assert "t1" not in text
    assert "node31" not in text


def test_shared_links_list_their_owners_and_loads():
    from laas_service.domain.ledger.shared_links import SharedLedger

    ledger = SharedLedger(ONE_RAIL)
    for name in ("a", "b"):
        answer = PLANNING["lc-s"]().propose(ledger, Request(name, 6, bandwidth=300_000))
        assert isinstance(answer, Allocation)
        ledger.claim(answer)
    shown = fabric_map(ledger, inventory(ONE_RAIL), plain_tenants(ledger))
    _, _, load = decoded(shown["matrices"]["leaf"])
    links = [set(a.leaf_links(ONE_RAIL)) for a in ledger.everybody()]
    both = links[0] & links[1]
    assert both
    assert {cell for cell, part in enumerate(load) if part == 60} == {
        ONE_RAIL.tree.link_id(link) for link in both
    }
    assert set(shown["shared"]["leaf"]) == {ONE_RAIL.tree.link_id(link) for link in both}
    assert all(sorted(owners) == [0, 1] for owners in shown["shared"]["leaf"].values())


def test_a_drawing_has_every_host_switch_and_link():
    ledger = filled(ONE_RAIL)
    ledger.fail_link(link := next(iter(ledger.allocations["t0"].leaf_links(ONE_RAIL))))
    shown = fabric_map(ledger, inventory(ONE_RAIL), plain_tenants(ledger))
    drawing = shown["tenants"][0]["drawing"]
    svg = "{http://www.w3.org/2000/svg}"
    tree = ElementTree.fromstring(drawing)
    allocation = ledger.allocations["t0"]
    assert len(tree.findall(f"{svg}circle")) == 9
    ends = {(1, x.pod, x.leaf) for x in allocation.leaf_links(ONE_RAIL)}
    ends |= {(2, x.pod, x.up) for x in allocation.leaf_links(ONE_RAIL)}
    ends |= {(3, x.l2, x.up) for x in allocation.spine_links(ONE_RAIL)}
    assert len(tree.findall(f"{svg}rect")) == len(ends)
    paths = {path.get("class"): path.get("d", "") for path in tree.findall(f"{svg}path")}
    assert paths["tree-failed"].count("M") == 1
    assert link in ledger.failed_links
    drawn = sum(path.get("d", "").count("M") for path in tree.findall(f"{svg}path"))
    assert drawn == 9 + sum(1 for _ in allocation.links(ONE_RAIL))
    assert "9 hosts" in tree.findtext(f"{svg}title", "")


def test_a_name_cannot_break_out_of_the_drawing():
    ledger = filled(ONE_RAIL)
    tenants = [{"id": "t0", "name": "<script>&\"'"}]
    drawing = fabric_map(ledger, inventory(ONE_RAIL), tenants)["tenants"][0]["drawing"]
    assert "<script" not in drawing
    ElementTree.fromstring(drawing)


def test_marks_and_faults():
    ledger = filled(ONE_RAIL)
    marks = cells_of(ledger, ledger.allocations["t0"])
    assert len(marks["hosts"]) == 9
    ledger.fail_link(LeafLink(0, 0, 1))
    ledger.drain_host(30)
    assert [(f["name"], f["state"]) for f in plain_faults(ledger, inventory(ONE_RAIL))] == [
        ("node30", "drained"),
        ("leaf-0-0-1", "failed"),
    ]
