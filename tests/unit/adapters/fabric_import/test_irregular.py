# SPDX-License-Identifier: Apache-2.0

"""Irregular fabrics import as they were built, and their default tables serve tenants."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric
from laas_service.domain.inventory import PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from tests.irregular import FAMILIES, Irregular, irregular
from tests.walks import Walks

SHARDS, EACH = 12, 30
"""Fabrics are tried in shards, so that they can run side by side."""


def imported(case: Irregular) -> FabricFile:
    return parse_fabric(case.dump(), case.name, case.selection)


def differences(case: Irregular, fabric: FabricFile) -> list[str]:
    """What the import found otherwise than it was built."""
    inventory, guids, m2 = fabric.inventory, case.guids(), fabric.topology.tree.m[1]
    rows = [inventory.leaf_guids[n : n + m2] for n in range(0, len(inventory.leaf_guids), m2)]
    level = {switch.guid: switch.level for switch in inventory.switches}
    assert fabric.report is not None
    report = " ".join(
        [
            *map(str, fabric.report.irregularities),
            *(n for k in fabric.report.kept_out for n in k.names),
        ]
    )
    found = {
        "rails": fabric.topology.rails,
        "pods": {frozenset(filter(None, row)) for row in rows},
        "levels": {number: level[guid] for number, guid in enumerate(guids)},
        "switches": fabric.report.switches,
        "tenants": {name for name in inventory.host_names if name},
        "hosts for tenants": fabric.report.hosts,
        "kept out without a word": {name for name in case.services if name not in report},
    }
    counted = Counter(case.level.values())
    built = {
        "rails": case.rails,
        "pods": {frozenset(guids[leaf] for leaf in pod) for pod in case.pods},
        "levels": case.level,
        "switches": tuple(counted[level] for level in range(1, max(counted) + 1)),
        "tenants": case.tenants,
        "hosts for tenants": len(case.tenants),
        "kept out without a word": set(),
    }
    return [f"{case.name}: {what}" for what in built if built[what] != found[what]]


def unserved(case: Irregular, fabric: FabricFile, tables: ForwardingTables) -> list[str]:
    """Tenants' hosts and services that cables join, and a walk over the tables does not."""
    guids, walks = case.guids(), Walks.over(fabric.inventory, tables)
    cabled: nx.Graph[int] = nx.Graph()
    cabled.add_nodes_from(guids)
    cabled.add_edges_from((guids[a], guids[b]) for a, b in case.cables)
    lost = []
    for part in nx.connected_components(cabled):
        here = [e for e in fabric.inventory.endpoints if e.at.guid in part]
        services = [e for e in here if e.host is None]
        tenants = [e for e in here if e.host is not None]
        ways = [(t.at.guid, s) for t in tenants for s in services]
        ways += [(s.at.guid, t) for t in tenants for s in services]
        for switch, target in {(switch, target.guid): target for switch, target in ways}:
            try:
                walks.path(switch, target)
            except AssertionError as error:
                lost.append(f"{case.name}: {error}")
    return lost


def dependencies(fabric: FabricFile, tables: ForwardingTables) -> nx.DiGraph[tuple[int, int]]:
    """Which channel a packet may wait for while it holds another, between any two switches.

    By the default tables, and by all tables that tenants may have: up links of the tree and then
    down.
    """
    inventory = fabric.inventory
    ends = {near: far.guid for near, (far, _) in inventory.far_ends.items()}
    out = {
        guid: [ends.get(PortRef(guid, port)) if port != NO_ROUTE else None for port in row]
        for guid, row in tables.rows.items()
    }
    needs: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    for switch, row in out.items():
        for destination, onward in enumerate(row):
            if onward is not None and (after := out[onward][destination]) is not None:
                needs.add_edge((switch, onward), (onward, after))
    links = {(c.lower.guid, c.upper.guid) for c in inventory.cables if c.link}
    above: dict[int, set[int]] = {}
    below: dict[int, set[int]] = {}
    for lower, upper in links:
        above.setdefault(lower, set()).add(upper)
        below.setdefault(upper, set()).add(lower)
    for lower, upper in links:
        up, down = (lower, upper), (upper, lower)
        needs.add_edges_from((up, (upper, higher)) for higher in above.get(upper, ()))
        needs.add_edges_from((down, (lower, lowest)) for lowest in below.get(lower, ()))
        needs.add_edges_from((up, (upper, other)) for other in below[upper] - {lower})
    return needs


@pytest.mark.parametrize("shard", range(SHARDS))
def test_irregular_fabrics_import_as_they_were_built_and_serve_tenants(shard):
    wrong: list[str] = []
    for seed in range(shard * EACH, (shard + 1) * EACH):
        case = irregular(seed)
        fabric = imported(case)
        tables = forwarding_tables(fabric.topology, fabric.inventory, [])
        wrong += differences(case, fabric) + unserved(case, fabric, tables)
        if not nx.is_directed_acyclic_graph(dependencies(fabric, tables)):
            wrong.append(f"{case.name}: packets can wait for each other in a circle")
    assert wrong == []


@pytest.mark.parametrize("seed", [1094, 2597, 3254])
def test_a_spine_with_services_beside_a_cut_or_foreign_cable_keeps_its_level(seed):
    case = irregular(seed)
    assert differences(case, imported(case)) == []


def test_the_irregular_fabrics_have_what_real_ones_have():
    cases = [irregular(seed) for seed in range(SHARDS * EACH)]
    assert len(cases) >= 300
    odd = Counter(what for case in cases for what in set(case.odd))
    assert {what for what, count in odd.items() if count >= 10} >= {
        "services above the leaves",
        "a subnet manager above the leaves",
        "a storage edge into several pods",
        "a leaf of storage",
        "uneven pods",
        "uneven leaves",
        "uneven leaf groups",
        "pods of different width",
        "missing cables",
        "parallel leaf cables",
        "parallel spine cables",
        "directors above all columns",
        "planes joined by spines",
        "spines above two columns",
        "ports above the count",
    }
    families = Counter(case.name.partition("-")[0] for case in cases)
    assert families.keys() == {family.__name__ for family in FAMILIES}
    assert min(families.values()) >= 30
    assert sum(bool(case.edges) for case in cases) >= 50
    assert sum(bool(case.selection.exclude) for case in cases) >= 10
