# SPDX-License-Identifier: Apache-2.0

"""The crossed links that are told are those that walked packets cross."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.crossed_links import crossed_links, tables_of
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, link_name
from laas_service.domain.verification import physical_tables
from tests.crossings import Judge

MADE = generate(Description(xgft="3;3,3,3;1,3,3", subnet_managers=1, storage_hosts=2))


def test_an_aggregation_node_in_every_switch_sends_over_every_link_of_an_owner():
    """It has one cable, to its switch, whose cables all have some owner where it matters."""
    crossing = []
    for nodes in (False, True):
        made = generate(Description(xgft="3;3,3,3;1,3,3", aggregation_nodes=nodes))
        fabric = Ledger(made.topology)
        admit(POLICIES["jigsaw"](), fabric, Request("blue", 4))
        crossing.append(crossed_links(fabric, made.inventory).pairs_by_owner.get("blue", 0))
    assert crossing[0] == 0 < crossing[1]


def filled(seed: int) -> Ledger:
    fabric, rng = Ledger(MADE.topology), Random(seed)
    for number in range(rng.randint(2, 6)):
        size = rng.randint(2, 7)
        admit(POLICIES["jigsaw"](), fabric, Request(f"t{number}", size, container=number == 0))
        inside = Request(f"c{number}", 2, parent="t0")
        if number == 0 and "t0" in fabric.allocations:
            admit(POLICIES["jigsaw"](), fabric, inside)
    return fabric


def walked(fabric: Ledger) -> tuple[int, int, Counter[str]]:
    """Pairs that may talk, those that cross links of a third party, and by link."""
    inventory, topology = MADE.inventory, fabric.topology
    tables = tables_of(fabric, inventory)
    rows, judge = physical_tables(tables.rows, tables.index), Judge(topology, inventory, [])
    everybody = list(fabric.everybody())
    around = {a.id: {a.id, a.parent} for a in everybody}
    hosts = {host: a.id for a in everybody for host in a.hosts(topology)}
    links = {link: a.id for a in everybody for link in a.links(topology)}
    pairs = crossing = 0
    by_link: Counter[str] = Counter()
    for one in inventory.endpoints:
        for other in inventory.endpoints:
            owners = [hosts.get(e.host, "") for e in (one, other) if e.host is not None]
            if one is other or (len(owners) == 2 and any(owners)):
                continue
            pairs += 1
            own = {id for owner in owners for id in around.get(owner, ())}
            path = judge.walk(rows, one.at.guid, other)
            assert path is not None
            passed = [cable.link for cable in path if cable.link is not None]
            foreign = [link for link in passed if link in links and links[link] not in own]
            crossing += bool(foreign)
            by_link.update(map(link_name, foreign))
    return pairs, crossing, by_link


def test_a_state_without_another_way_is_among_those_below():
    assert any(crossed_links(filled(seed), MADE.inventory).crossing for seed in range(8))


@pytest.mark.parametrize("seed", range(8))
def test_told_are_the_links_that_walked_packets_cross(seed):
    fabric = filled(seed)
    found = crossed_links(fabric, MADE.inventory)
    by_link = {link_name(link): count for link, count in found.links.items()}
    assert (found.pairs, found.crossing, by_link) == walked(fabric)
    assert found.owners.keys() == found.links.keys()


def test_a_host_behind_owned_uplinks_alone_crosses_them():
    """The two other uplinks of its leaf have failed, so it has no other way."""
    fabric = Ledger(MADE.topology)
    admit(POLICIES["jigsaw"](), fabric, Request("t", 4))
    owned = fabric.owners_of_links()
    before = crossed_links(fabric, MADE.inventory)
    leaf = next(link for link in owned if isinstance(link, LeafLink))[:2]
    for uplink in range(3):
        if LeafLink(*leaf, uplink) not in owned:
            fabric.fail_link(LeafLink(*leaf, uplink))
    after = crossed_links(fabric, MADE.inventory)
    assert after.crossing >= before.crossing
    assert after.crossing == walked(fabric)[1]
