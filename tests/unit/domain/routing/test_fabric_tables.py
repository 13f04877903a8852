# SPDX-License-Identifier: Apache-2.0

"""Forwarding tables of the fabric: tenants use their own links, all destinations are reachable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laas_service.adapters.fabric_import import generator
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import NotFound
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.routing import default_tables, tenant_tables
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import LeafLink, Port, SpineLink, Topology, Xgft
from laas_service.domain.verification import credit_loop, physical_tables
from tests.partitions import partitions, tenant
from tests.unit.domain.verification.sound import inventory_of
from tests.walks import Walks

SM = 0xFF0000
SMALL = Topology(Xgft((3, 3, 3), (1, 3, 3)))


def assert_everything_reaches(inventory: Inventory, tables: ForwardingTables) -> None:
    Walks.over(inventory, tables).assert_reaches(s.guid for s in inventory.switches)


def assert_isolated(
    topology: Topology, inventory: Inventory, tables: ForwardingTables, tenant: Allocation
) -> None:
    Walks.over(inventory, tables).assert_isolated(topology, tenant)


SPREAD = tenant(
    "t-spread",  # two full pods of two leaves of two hosts, a remainder leaf of one in a third pod
    [(0, 0b011, 0b011), (2, 0b101, 0b011), (3, 0b110, 0b011), (4, 0b011, 0b011), (8, 0b100, 0b010)],
    [(0, 0, 0b011), (0, 1, 0b101), (1, 0, 0b011), (1, 1, 0b101), (2, 1, 0b100)],
)
EVERYTHING = tenant(
    "t-all",
    [(group, 0b111, 0b111) for group in range(9)],
    [(pod, column, 0b111) for pod in range(3) for column in range(3)],
)
PODFUL = tenant("t-pod", [(0, 0b100, 0b100), (1, 0b001, 0b100), (2, 0b010, 0b100)])


@given(partitions(SMALL.tree))
def test_any_legal_partition_is_isolated_and_everything_stays_reachable(partition):
    inventory = inventory_of(SMALL)
    tables = forwarding_tables(SMALL, inventory, [partition])
    if len(partition.groups) > 1:
        assert_isolated(SMALL, inventory, tables, partition)
    assert_everything_reaches(inventory, tables)


def test_the_tenant_of_everything_gets_plain_d_mod_k():
    inventory = inventory_of(SMALL)
    default = forwarding_tables(SMALL, inventory, [])
    assert forwarding_tables(SMALL, inventory, [EVERYTHING]).rows == default.rows


def test_every_destination_has_a_link_of_its_own_where_there_is_no_remainder():
    inventory = inventory_of(SMALL)
    tables = forwarding_tables(SMALL, inventory, [])
    towards = [e.guid for e in inventory.endpoints if e.host is not None]
    for switch in (s.guid for s in inventory.switches if s.level == 1):
        ups = Counter(tables.port(switch, guid) for guid in towards)
        assert sorted(ups.values()) == [1, 1, 1, 8, 8, 8]  # own hosts, then 24 over 3 uplinks


def test_tenants_beside_each_other_do_not_change_each_others_entries():
    inventory = inventory_of(SMALL)
    alone = forwarding_tables(SMALL, inventory, [SPREAD])
    both = forwarding_tables(SMALL, inventory, [SPREAD, PODFUL])
    for owner in (SPREAD, PODFUL):
        assert_isolated(SMALL, inventory, both, owner)
    assert_everything_reaches(inventory, both)
    cables = [inventory.cable_of_link[link] for link in SPREAD.links(SMALL)]
    own = {end.guid for cable in cables for end in (cable.lower, cable.upper)}
    for host in SPREAD.hosts(SMALL):
        place = both.index[inventory.endpoint_of_port[host, 0].guid]
        assert all(both.rows[s][place] == alone.rows[s][place] for s in own)


def assert_sound_under_directors(inventory: Inventory, tables: ForwardingTables) -> None:
    """Leaves reach all destinations, up and then down; other paths make no credit loop."""
    walks = Walks.over(inventory, tables)
    for leaf in inventory.leaf_guids:
        for target in tables.destinations:
            downs = [down for _, down in walks.path(leaf, target)]
            assert downs == sorted(downs)
    assert credit_loop(inventory, physical_tables(tables.rows, tables.index)) == []
    assert tables.port(inventory.spine_guids[0], inventory.spine_guids[1]) is None


SHORT_LEAF = tenant(  # the last leaf has no cable to the second L2 switch, which shares a spine
    "t-short",
    [(0, 0b011, 0b11), (1, 0b011, 0b11), (3, 0b011, 0b11), (5, 0b100, 0b01)],
    [(0, 0, 0b11), (0, 1, 0b11), (1, 0, 0b11), (1, 1, 0b01)],
)


@given(partitions(SMALL.tree))
@example(SHORT_LEAF)
def test_a_partition_is_isolated_where_l2_indices_share_physical_spines(partition):
    inventory = inventory_of(SMALL, directors=True)
    tables = forwarding_tables(SMALL, inventory, [partition])
    if len(partition.groups) > 1:
        assert_isolated(SMALL, inventory, tables, partition)
    assert_sound_under_directors(inventory, tables)


def test_a_shared_spine_goes_down_to_the_l2_switch_that_a_destination_prefers():
    inventory = inventory_of(SMALL, directors=True)
    tables = forwarding_tables(SMALL, inventory, [EVERYTHING])
    for spine in set(inventory.spine_guids):
        for leaf in range(9):
            hosts = [inventory.endpoint_of_port[3 * leaf + k, 0].guid for k in range(3)]
            assert len({tables.port(spine, host) for host in hosts}) == 3


def test_parallel_cables_share_destinations_and_stay_with_their_owner():
    topology = Topology(Xgft((4, 2, 2), (1, 4, 8), (2, 2)))
    inventory = inventory_of(topology)
    large = tenant(
        "one",
        [(g, 0b0111, 0b0111) for g in range(4)],
        [(p, c, m) for p in range(2) for c, m in ((0, 0b00001111), (1, 0b11))],
    )
    small = tenant("two", [(0, 0b1000, 0b1000), (1, 0b1000, 0b1000)])
    tables = forwarding_tables(topology, inventory, [large, small])
    for owner in (large, small):
        assert_isolated(topology, inventory, tables, owner)
    assert_everything_reaches(inventory, tables)
    leaf, peers = (
        inventory.leaf_guids[0],
        [inventory.endpoint_of_port[h, 0].guid for h in (8, 9, 10)],
    )
    assert len({tables.port(leaf, guid) for guid in peers}) == 3


RAILS = Topology(
    Xgft((2, 4, 2), (1, 2, 4)),
    rails=2,
    host_ports=tuple(
        (Port(pod, 2 * group, k), Port(pod, 2 * group + 1, k))
        for pod in range(2)
        for group in range(2)
        for k in range(2)
    ),
)


PLANES = Topology(
    Xgft((2, 2, 4), (1, 2, 2)),
    rails=2,
    host_ports=tuple(
        (Port(2 * pod, leaf, k), Port(2 * pod + 1, leaf, k))
        for pod in range(2)
        for leaf in range(2)
        for k in range(2)
    ),
)
"""Each rail is a plane of two pods; spines join the planes."""


def test_rails_of_a_tenant_are_joined_over_its_own_links():
    inventory = inventory_of(RAILS)
    wide = tenant("wide", [(0, 0b01, 0b01), (2, 0b01, 0b01)], [(0, 0, 0b0011), (1, 0, 0b0011)])
    narrow = tenant("narrow", [(3, 0b11, 0b10)])
    tables = forwarding_tables(RAILS, inventory, [narrow, wide])
    for owner in (narrow, wide):
        assert_isolated(RAILS, inventory, tables, owner)
    assert_everything_reaches(inventory, tables)


def test_rails_that_the_tenants_links_do_not_join_have_no_route_to_each_other():
    """Two planes of one pod each, joined by spines; the subnet manager's leaf has all routes."""
    ports = [(Port(0, leaf, k), Port(1, leaf, k)) for leaf in range(4) for k in range(2)]
    planes = Topology(Xgft((2, 4, 2), (1, 2, 4)), rails=2, host_ports=tuple(ports))
    inventory = inventory_of(planes)
    pair, single = tenant("pair", [(1, 0b11, 0)]), tenant("single", [(2, 0b01, 0)])
    tables = forwarding_tables(planes, inventory, [pair, single, tenant("m", [(0, 0b11, 0)])])

    def port(host: int, rail: int, towards: int) -> int | None:
        """The port from the leaf of one port of a host towards its other port."""
        leaf = inventory.endpoint_of_port[host, rail].at.guid
        return tables.port(leaf, inventory.endpoint_of_port[host, towards].guid)

    assert port(2, 0, 1) is port(3, 1, 0) is None
    assert port(0, 0, 1) is not None  # the subnet manager is on this leaf
    assert port(4, 0, 1) is None  # no peer needs it
    Walks.over(inventory, tables).assert_reaches([inventory.leaf_guids[0]])


WIDE_LEAVES = Topology(Xgft((6, 2, 2), (1, 6, 2)))


@given(partitions(WIDE_LEAVES.tree), st.integers(0, 1 << 30))
def test_names_and_port_numbers_may_be_in_any_order(partition, seed):
    description = generator.Description(xgft="3;6,2,2;1,6,2", shuffled=True, seed=seed)
    inventory = generator.inventory(WIDE_LEAVES, description)
    tables = forwarding_tables(WIDE_LEAVES, inventory, [partition])
    if len(partition.groups) > 1:
        assert_isolated(WIDE_LEAVES, inventory, tables, partition)
    assert_everything_reaches(inventory, tables)


def test_a_failed_link_is_avoided_where_another_leads_on():
    inventory = inventory_of(SMALL)
    failed = LeafLink(0, 0, 0)
    tables = forwarding_tables(SMALL, inventory, [SPREAD], [failed])
    assert_isolated(SMALL, inventory, tables, SPREAD)
    assert_everything_reaches(inventory, tables)
    for leaf in inventory.leaf_guids:
        for target in tables.destinations:
            path = Walks.over(inventory, tables).path(leaf, target)
            assert failed not in {cable.link for cable, _ in path}


@pytest.mark.parametrize("link", [LeafLink(0, 0, 0), SpineLink(2, 1, 1)])
def test_after_a_fault_only_what_it_changes_is_computed(monkeypatch, link):
    inventory = inventory_of(SMALL)
    tenants = [SPREAD, PODFUL]
    before = forwarding_tables(SMALL, inventory, tenants)
    written, placed = [], []
    write, place = default_tables._write, tenant_tables.CompactedTree.entries

    def noted_row(row, *more):
        written.append(row)
        write(row, *more)

    def noted_place(*of):
        placed.append(of)
        return place(*of)

    monkeypatch.setattr(default_tables, "_write", noted_row)
    monkeypatch.setattr(tenant_tables.CompactedTree, "entries", noted_place)
    after = forwarding_tables(SMALL, inventory, tenants, [link], before)
    whole = [row for row in written if len(row) == len(after.destinations)]
    assert 0 < len({id(row) for row in whole}) < len(after.rows)
    holders = [t for t in tenants if link in set(t.links(SMALL))]
    assert bool(placed) == bool(holders)
    assert after == forwarding_tables(SMALL, inventory, tenants, [link])
    assert forwarding_tables(SMALL, inventory, tenants, [], after) == before


def test_a_tenant_cut_off_by_a_fault_uses_no_links_of_others():
    inventory = inventory_of(SMALL)
    tables = forwarding_tables(SMALL, inventory, [PODFUL], [LeafLink(0, 1, 2)])
    assert_isolated(SMALL, inventory, tables, PODFUL)


def test_a_fault_that_cuts_off_one_leaf_leaves_the_others_on_working_cables():
    topology = Topology(Xgft((4, 3, 1), (1, 4, 0), (2, 1)))
    inventory = inventory_of(topology)
    three = tenant("t", [(0, 0b0111, 0b0111), (1, 0b0111, 0b0111), (2, 0b0001, 0b0100)])
    failed = [LeafLink(0, 0, 1), LeafLink(0, 0, 2)]
    tables = forwarding_tables(topology, inventory, [three], failed)
    towards = [inventory.endpoint_of_port[host, 0].guid for host in (0, 1, 2)]
    sound = inventory.cable_of_link[LeafLink(0, 0, 0)].upper
    dead = inventory.cable_of_link[LeafLink(0, 0, 2)].upper
    assert {tables.port(sound.guid, guid) for guid in towards} == {sound.port}
    assert {tables.port(dead.guid, guid) for guid in towards} == {dead.port}
    assert_isolated(topology, inventory, tables, three)


def test_irregular_cables_are_used_only_where_no_regular_one_leads():
    regular = inventory_of(SMALL)
    stray = Switch(0x400000, "stray", 1, 4)
    storage = Endpoint(0xEE0000, "storage", PortRef(stray.guid, 1))
    beside = Cable(PortRef(stray.guid, 2), PortRef(regular.leaf_guids[4], 30))
    twice = Cable(PortRef(regular.leaf_guids[4], 31), PortRef(regular.l2_guids[0], 31))
    inventory = replace(
        regular,
        switches=(*regular.switches, stray),
        endpoints=(*regular.endpoints, storage),
        cables=(*regular.cables, beside, twice),
    )
    tables = forwarding_tables(SMALL, inventory, [SPREAD])
    source = inventory.leaf_guids[0]
    assert Walks.over(inventory, tables).path(source, storage.guid)[-1][0] is beside
    for host in range(SMALL.hosts):
        path = Walks.over(inventory, tables).path(source, inventory.endpoint_of_port[host, 0].guid)
        assert all(cable.link for cable, _ in path)
    assert_everything_reaches(inventory, tables)


def test_routes_lead_round_a_missing_cable():
    topology = Topology(
        Xgft((2, 3, 1), (1, 3, 0)), absent_links=frozenset({LeafLink(0, 0, 1), LeafLink(0, 2, 0)})
    )
    inventory = inventory_of(topology)
    tables = forwarding_tables(topology, inventory, [])
    assert_everything_reaches(inventory, tables)


def test_a_link_without_a_cable_is_refused():
    link = LeafLink(0, 0, 0)
    inventory = inventory_of(Topology(SMALL.tree, absent_links=frozenset({link})))
    with pytest.raises(NotFound, match="leaf-0-0-0"):
        forwarding_tables(SMALL, inventory, [SPREAD])
