# SPDX-License-Identifier: Apache-2.0

"""Stars on a fabric: verified and routed like any other allocation."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_research.stars.place import UnitMap
from laas_research.stars.plan import Plan
from laas_research.stars.scap import Method, propose
from laas_service.domain.allocation import ColumnShare, GroupShare
from laas_service.domain.errors import NotSupported
from laas_service.domain.ledger import Ledger
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import shape_violations, violations, walk_violations
from research_tests.stars.test_stars import random_request
from tests.unit.domain.verification.sound import CABLES, FULL, RAILS, TWO_LEVEL, inventory_of

INCOMPLETE = Topology(
    Xgft((3, 3, 3), (1, 3, 3)),
    absent_hosts=frozenset({0, 13}),
    absent_links=frozenset({LeafLink(0, 1, 2), SpineLink(2, 1, 0)}),
)
TOPOLOGIES = {
    "full": FULL,
    "two-level": TWO_LEVEL,
    "cables": CABLES,
    "incomplete": INCOMPLETE,
    "trimmed": Topology(Xgft((4, 3, 3), (1, 3, 2))),
}


def units_there(topology):
    return sum(UnitMap(topology).cube().room)


def test_a_unit_is_a_host_with_a_way_up_of_its_own():
    assert units_there(FULL) == 27
    assert units_there(TWO_LEVEL) == 24
    assert units_there(CABLES) == 48
    # Host 0 and uplink 2 of leaf 1 are missing on different leaves; so are host 13 (leaf 4)
    # and the spine link, which is leaf 0's of pod 2.
    assert units_there(INCOMPLETE) == 27 - 4
    assert units_there(TOPOLOGIES["trimmed"]) == 3 * 2 * 3


def test_a_host_without_its_uplink_goes_with_an_uplink_without_its_host():
    topology = replace(
        FULL, absent_hosts=frozenset({0}), absent_links=frozenset({LeafLink(0, 0, 2)})
    )
    unit_map = UnitMap(topology)
    cube = unit_map.cube()
    assert sum(cube.room) == 26
    assert {unit_map.host(unit) for unit in cube.units() if unit not in cube.missing} == {
        *range(1, 27)
    }


def test_several_rails_are_refused():
    with pytest.raises(NotSupported, match="rails"):
        UnitMap(RAILS)


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(deadline=None, max_examples=6)
@given(st.integers(0, 10**6))
def test_every_star_is_verified_and_routed_before_and_after_its_moves(name, seed):
    topology, rng = TOPOLOGIES[name], Random(seed)
    unit_map = UnitMap(topology)
    cube = unit_map.cube()
    for number in range(25):
        if cube.stars and rng.random() < 0.3:
            cube.release(rng.choice(sorted(cube.stars)))
        answer = propose(cube, random_request(rng, cube, f"t{number}"), rng.choice(list(Method)))
        if not isinstance(answer, Plan):
            continue
        for move in answer.moves:
            before = unit_map.host(move.source)
            cube.move(move)
            unit_map.follow(move)
            assert (unit_map.host(move.target) == before) == (not move.migrates)
        cube.claim(answer.tenant, answer.units)
    allocations = [unit_map.allocation(tenant, star.units) for tenant, star in cube.stars.items()]
    assert violations(topology, allocations, rng, permutations=1) == []
    fabric = Ledger(topology)
    for allocation in allocations:
        fabric.claim(allocation)
    inventory = inventory_of(topology)
    tables = forwarding_tables(topology, inventory, allocations)
    places = {guid: number for number, guid in enumerate(tables.destinations)}
    walked = {
        switch: {guid: row[at] for guid, at in places.items() if row[at] != 255}
        for switch, row in tables.rows.items()
    }
    walks = walk_violations(topology, inventory, walked, allocations)
    assert walks.violations == []
    assert walks.tenant_pairs == sum(a.size * (a.size - 1) for a in allocations)


STAR = "E", "A", "C"


def star(kind):
    """Units of a full tree: L2 switches 0 and 1 of a leaf; leaves 0 and 1; pods 0 and 1."""
    unit_map = UnitMap(FULL)
    axis = STAR.index(kind)
    first, *_ = unit_map.cube().units()
    return unit_map.allocation("x", [first.at(axis, 0), first.at(axis, 1)])


@pytest.mark.parametrize("kind", STAR)
def test_a_star_broken_in_any_one_link_or_host_is_found(kind):
    sound = star(kind)
    assert shape_violations(FULL, sound) == []
    broken = [replace(sound, requested=3), replace(sound, columns=sound.columns[1:])]
    for number, share in enumerate(sound.groups):
        others = sound.groups[:number], sound.groups[number + 1 :]
        for hosts, uplinks in ((share.hosts, 0), (share.hosts, 0b100), (0b111, share.uplinks)):
            changed = GroupShare(share.group, hosts, uplinks)
            broken.append(replace(sound, groups=(*others[0], changed, *others[1])))
    extra = ColumnShare(2, 0, 1)
    broken.append(replace(sound, columns=(*sound.columns, extra)))
    for allocation in broken:
        assert shape_violations(FULL, allocation) != [], allocation


def test_hosts_on_two_leaves_and_two_l2_switches_are_no_star():
    groups = (GroupShare(0, 1, 0b01), GroupShare(1, 1, 0b10))
    columns = (ColumnShare(0, 0, 1), ColumnShare(0, 1, 1))
    bent = replace(star("A"), groups=groups, columns=columns)
    assert any("do not meet" in text for text in shape_violations(FULL, bent))
