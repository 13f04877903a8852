# SPDX-License-Identifier: Apache-2.0

"""Cablings that are no fat-trees are refused; the default tables of all others reach everybody."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.adapters.fabric_import.fabric_file import (
    FabricFile,
    parse_fabric,
    read_fabric,
)
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.domain.errors import InvalidFile
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.routing.fat_tree import Judgement
from tests.cablings import NO_TREES, TREES, Cabled, guid
from tests.shared import REPO, SHARED, needs_shared
from tests.walks import Walks

PAIRS = ("services", "a host for tenants and a service", "hosts for tenants")
"""What the report calls pairs with no, one and two hosts for tenants."""


def pairs_apart(fabric: FabricFile) -> dict[str, int]:
    """Walk the default tables between all adapters that the cabling connects; count dead ends.

    By the kind of pair, as the report words it.
    """
    inventory = fabric.inventory
    walks = Walks.over(inventory, forwarding_tables(fabric.topology, inventory, []))
    cabling: nx.Graph[int] = nx.Graph()
    cabling.add_nodes_from(switch.guid for switch in inventory.switches)
    cabling.add_edges_from((c.lower.guid, c.upper.guid) for c in inventory.cables)
    apart: Counter[str] = Counter()
    for part in nx.connected_components(cabling):
        adapters = [e for e in inventory.endpoints if e.at.guid in part]
        for target, switch in product(adapters, {e.at.guid for e in adapters}):
            with suppress(AssertionError):
                walks.path(switch, target.guid)
                continue
            for source in (e for e in adapters if e.at.guid == switch):
                apart[PAIRS[(source.host is not None) + (target.host is not None)]] += 1
    return dict(apart)


def pairs_told(fabric: FabricFile) -> dict[str, int]:
    """The pairs without a path that the report of an import tells, by their kind."""
    assert fabric.report is not None
    told = [o.detail for o in fabric.report.irregularities if o.kind == "pairs without a path"]
    found = (re.match(r"(\d+) pair\(s\) of ([^,;]*)", text) for text in told)
    return {each[2]: int(each[1]) for each in found if each}


def assert_tenants_are_served(fabric: FabricFile) -> None:
    apart = pairs_apart(fabric)
    assert "a host for tenants and a service" not in apart
    assert apart == pairs_told(fabric)


def assert_all_pairs_are_joined(fabric: FabricFile) -> None:
    assert pairs_apart(fabric) == {}


TOLD = {
    "triangle": ("1 of 3 cables between switches lie outside the tree", 0, 1),
    "full mesh of 4": ("2 of 6 cables between switches lie outside the tree", 0, 1),
    "full mesh of 8": ("12 of 28 cables between switches lie outside the tree", 0, 1),
    "torus 4x4": ("12 of 32 cables between switches lie outside the tree", 0, 12),
    "torus 3x3x3": ("43 of 75 cables between switches lie outside the tree", 1, 2),
    "mesh 4x4": ("11 pair(s) of leaves are connected, but by no path that goes up", 3, 7),
    "3-cube": ("4 pair(s) of a leaf and a switch with adapters above the leaves", 3, 7),
    "4-cube": ("12 of 32 cables between switches lie outside the tree", 0, 8),
    "dragonfly": ("47 of 90 cables between switches lie outside the tree", 0, 1),
    "ring of 5": ("1 pair(s) of leaves are connected, but by no path that goes up", 0, 1),
    "ring of 6": ("8 of 12 adapters are above the leaves", 1, None),
    "chain of 6": ("4 pair(s) of leaves are connected, but by no path that goes up", 0, 1),
    "two switches": ("1 of 1 cables between switches lie outside the tree", 0, 1),
    "slim fly of 10": ("5 of 15 cables between switches lie outside the tree", 1, 6),
    "slim fly of 50": ("94 of 175 cables between switches lie outside the tree", 0, 1),
    "random regular": ("12 of 32 cables between switches lie outside the tree", 0, 10),
    "cascaded switch": ("2 pair(s) of leaves are connected, but by no path that goes up", 1, 4),
}
"""What each is told first, and the switches at the ends of the first cable that is named."""


@pytest.mark.parametrize("name", NO_TREES)
def test_no_fat_tree_is_refused_with_the_first_cables(name):
    cabled, (told, one, other) = NO_TREES[name], TOLD[name]
    with pytest.raises(InvalidFile) as refused:
        parse_fabric(cabled.dump(), "dump")
    start, _, rest = refused.value.why.partition(": ")
    first, _, cables = rest.partition(": ")
    assert start == "the cabling is no fat-tree of two or three levels"
    assert first.startswith(told)
    named = re.match(r"switch-(\d+)\[(0x\w+)\] port \d+ - (?:switch-(\d+)|node)", cables)
    assert named, cables
    assert (int(named[1]), int(named[2], 16)) == (one, guid(one))
    assert other == (int(named[3]) if named[3] else None)
    assert refused.value.why.endswith("--accept no-fat-tree takes the cabling as it is")


@pytest.mark.parametrize("name", NO_TREES)
def test_any_cabling_imports_if_asked_by_name(name):
    fabric = parse_fabric(NO_TREES[name].dump(), "dump", accept_no_fat_tree=True)
    assert fabric.topology.hosts
    assert fabric.accepted
    assert pairs_apart(fabric) == pairs_told(fabric)


@pytest.mark.parametrize("name", TREES)
def test_odd_trees_import_and_reach_everybody(name):
    assert_all_pairs_are_joined(parse_fabric(TREES[name].dump(), "dump"))


def test_one_wrong_cable_is_reported_and_not_refused():
    report = parse_fabric(TREES["a cable between two leaves"].dump(), "dump").report
    assert report is not None
    assert [odd.kind for odd in report.irregularities] == ["cable inside a level"]


DOCUMENTED = {
    "triangle": ["triangle"],
    "full mesh of 4, of 8 switches": ["full mesh of 4", "full mesh of 8"],
    "two switches, cabled directly": ["two switches"],
    "torus 4x4, 4-cube": ["torus 4x4", "4-cube"],
    "torus 3x3x3": ["torus 3x3x3"],
    "mesh 4x4": ["mesh 4x4"],
    "3-cube": ["3-cube"],
    "dragonfly of 9 groups of 4": ["dragonfly"],
    "ring of 5, chain of 6": ["ring of 5", "chain of 6"],
    "ring of 6": ["ring of 6"],
    "slim fly of 50 switches": ["slim fly of 50"],
    "switch cascaded to one leaf": ["cascaded switch"],
}
"""The rows of the table in the documentation, and the cablings that they are about."""


def documented_rows() -> dict[str, str]:
    text = (REPO / "doc" / "source" / "admin" / "fabric.rst").read_text()
    table = text[text.index("cabling, hosts on all") :]
    rows = re.findall(r"^(\S.*?)  +(\S.*?)  +(\S.*)$", table.partition("\n\n")[0], re.MULTILINE)
    return {name: told for name, points, told in rows if re.match(r"[\d, -]+$", points)}


def test_the_documented_figures_are_those_that_refusals_tell():
    rows = documented_rows()
    assert rows.keys() == DOCUMENTED.keys()
    for row, names in DOCUMENTED.items():
        refusals = []
        for name in names:
            with pytest.raises(InvalidFile) as refused:
                parse_fabric(NO_TREES[name].dump(), "dump")
            refusals.append(refused.value.why)
        for figure in re.findall(r"\d+ of \d+|\d+(?= pairs)", rows[row]):
            assert any(re.search(rf"\b{figure}\b", told) for told in refusals), (row, figure)


@needs_shared
def test_every_dump_of_a_real_fabric_is_a_fat_tree():
    dumps = sorted((SHARED / "fabrics").glob("*.ibnetdiscover.txt"))
    assert len(dumps) >= 3
    for dump in dumps:
        fabric = read_fabric(dump)
        judged = Judgement(fabric.topology, fabric.inventory)
        assert not judged.breaches, dump.name
        assert not judged.without_path, dump.name


@st.composite
def graphs(draw: st.DrawFn) -> Cabled:
    """Any switches, cables and hosts."""
    switches = draw(st.integers(1, 9))
    pairs = list(combinations(range(switches), 2))
    cables = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    hosts = draw(st.lists(st.integers(0, 4), min_size=switches, max_size=switches))
    return Cabled(dict(enumerate(hosts)), tuple(sorted(cables)))


@st.composite
def damaged_trees(draw: st.DrawFn) -> Cabled:
    """Trees of two or three levels without some cables, with wrong ones and hosts anywhere."""
    pods, leaves, l2s, spines = (draw(st.integers(1, 3)) for _ in range(4))
    leaf = list(range(pods * leaves))
    l2 = [len(leaf) + n for n in range(pods * l2s)]
    spine = [len(leaf) + len(l2) + n for n in range(l2s * spines)]
    cables = [
        *((leaf[p * leaves + a], l2[p * l2s + i]) for p in range(pods) for a in range(leaves)
          for i in range(l2s)),
        *((l2[p * l2s + i], spine[i * spines + j]) for p in range(pods) for i in range(l2s)
          for j in range(spines)),
    ]  # fmt: skip
    everything = [*leaf, *l2, *spine]
    gone = draw(st.sets(st.sampled_from(range(len(cables))), max_size=4))
    pairs = st.tuples(st.sampled_from(everything), st.sampled_from(everything))
    wrong = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=3))
    extra = draw(st.dictionaries(st.sampled_from(everything), st.integers(0, 2), max_size=3))
    hosts = dict.fromkeys(everything, 0) | dict.fromkeys(leaf, 2) | extra
    return Cabled(hosts, (*(c for n, c in enumerate(cables) if n not in gone), *wrong))


@given(graphs() | damaged_trees())
def test_any_cabling_is_refused_or_its_default_tables_serve_tenants(cabled):
    with suppress(InvalidFile):
        assert_tenants_are_served(parse_fabric(cabled.dump(), "dump"))


def with_manager(cabled: Cabled, switch: int) -> tuple[Cabled, Selection]:
    """The cabling with one adapter more on a switch, and that adapter as the manager."""
    hosts = {**cabled.hosts, switch: cabled.hosts.get(switch, 0) + 1}
    number = sum(count for at, count in hosts.items() if at <= switch) - 1
    return replace(cabled, hosts=hosts), Selection(managers=(f"node{number:03d}",))


@settings(max_examples=40)
@given(damaged_trees(), st.integers(0, 29))
def test_a_manager_anywhere_is_refused_or_reaches_and_is_reached_by_tenants(cabled, at):
    cabled, selection = with_manager(cabled, sorted(cabled.hosts)[at % len(cabled.hosts)])
    with suppress(InvalidFile):
        fabric = parse_fabric(cabled.dump(), "dump", selection)
        assert len(fabric.inventory.managers) == 1
        assert_tenants_are_served(fabric)


def test_a_manager_that_a_host_cannot_reach_without_a_cycle_is_refused_in_one_sentence():
    """Leaf 0 has no cable to the L2 switches of the manager's index."""
    leaves, l2s, spines = range(3), range(3, 12), range(12, 21)
    cables = {(leaf, l2) for leaf in leaves for l2 in l2s[3 * leaf : 3 * leaf + 3]}
    cables |= {(l2, spine) for l2 in l2s for spine in spines[(l2 % 3) * 3 : (l2 % 3) * 3 + 3]}
    hosts = {**dict.fromkeys(leaves, 2), **dict.fromkeys((*l2s, *spines), 0)}
    whole, selection = with_manager(Cabled(hosts, tuple(sorted(cables))), switch=7)
    assert_all_pairs_are_joined(parse_fabric(whole.dump(), "dump", selection))
    broken = replace(whole, cables=tuple(sorted(cables - {(0, 4), (8, 20)})))
    with pytest.raises(InvalidFile) as refused:
        parse_fabric(broken.dump(), "dump", selection)
    told = (
        "the default tables leave 2 pair(s) of a tenants' host and a service without a path, "
        "the first from switch-7"
    )
    assert told in refused.value.why
    fabric = parse_fabric(broken.dump(), "dump", selection, accept_no_fat_tree=True)
    assert fabric.report is not None
    listed = [o for o in fabric.report.irregularities if o.kind == "no route to a subnet manager"]
    assert {odd.detail.split("[")[0] for odd in listed} >= {"node000 mlx5_0", "node001 mlx5_0"}


@given(graphs() | damaged_trees())
def test_an_import_tells_which_pairs_its_tables_leave_apart(cabled):
    with suppress(InvalidFile):
        fabric = parse_fabric(cabled.dump(), "dump", accept_no_fat_tree=True)
        assert pairs_apart(fabric) == pairs_told(fabric)


TREE = generate(Description(xgft="3;2,2,2;1,2,2", subnet_managers=1))


@given(st.sets(st.integers(0, TREE.topology.tree.leaf_links + TREE.topology.tree.spine_links - 1)))
def test_faults_cut_no_leaves_that_working_links_join_up_and_down(numbers):
    inventory, tree = TREE.inventory, TREE.topology.tree
    failed = {tree.link_at(number) for number in numbers}
    tables = forwarding_tables(TREE.topology, inventory, [], failed)
    walks = Walks.over(inventory, tables)
    climbs: nx.DiGraph[int] = nx.DiGraph()
    climbs.add_nodes_from(inventory.leaf_guids)
    working = [cable for cable in inventory.cables if cable.link not in failed]
    climbs.add_edges_from((cable.lower.guid, cable.upper.guid) for cable in working)
    above = {leaf: {leaf, *nx.descendants(climbs, leaf)} for leaf in inventory.leaf_guids}
    for leaf in inventory.leaf_guids:
        for target in inventory.endpoints:
            if above[leaf] & above[target.at.guid]:
                assert all(cable.link not in failed for cable, _ in walks.path(leaf, target.guid))
