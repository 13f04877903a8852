# SPDX-License-Identifier: Apache-2.0

"""Irregular fabrics under the real OpenSM: tenants come and go, the switches' tables are walked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations, product

import networkx as nx
import pytest

from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric, read_fabric
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.inventory import Endpoint
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.verification import credit_loop, physical_tables
from tests.functional.test_opensm import Site, site
from tests.irregular import irregular
from tests.marks import needs_ibsim
from tests.shared import SHARED, needs_shared
from tests.walks import Walks

pytestmark = needs_ibsim

SEEDS = (1, 3, 5, 12, 13, 19, 20, 22, 23, 38)
"""Services on L2 switches, spines and edges; directors, rails, planes, joined clusters."""


def tenants_of(fabric: FabricFile) -> list[Allocation]:
    """Three tenants, each of a third of all hosts, or as large as fits."""
    ledger, hosts = Ledger(fabric.topology), sum(map(bool, fabric.inventory.host_names))
    for id in "abc":
        sizes = range(hosts // 3, 0, -1)
        assert any(isinstance(admit(Jigsaw(), ledger, Request(id, n)), Allocation) for n in sizes)
    return list(ledger.allocations.values())


def joined(fabric: FabricFile) -> Iterable[tuple[Endpoint, Endpoint]]:
    """Pairs of a tenants' host and a service that cables join, both ways."""
    inventory = fabric.inventory
    cabled: nx.Graph[int] = nx.Graph()
    cabled.add_nodes_from(switch.guid for switch in inventory.switches)
    cabled.add_edges_from((c.lower.guid, c.upper.guid) for c in inventory.cables)
    for part in nx.connected_components(cabled):
        here = [e for e in inventory.endpoints if e.at.guid in part]
        pairs = product(
            [e for e in here if e.host is not None], [e for e in here if e.host is None]
        )
        for host, service in pairs:
            yield host, service
            yield service, host


def assert_served(here: Site, fabric: FabricFile, tenants: Iterable[Allocation]) -> int:
    """Walk what the switches have: tenants over their own links alone, and to every service.

    Returns the number of pairs of tenants' ports that were walked.
    """
    topology, inventory = fabric.topology, fabric.inventory
    rows = here.rows()
    walks, walked = Walks.over_rows(inventory, rows), 0
    assert rows.keys() == {switch.guid for switch in inventory.switches}
    assert credit_loop(inventory, physical_tables(rows, inventory.lids)) == []
    for tenant in tenants:
        own = set(tenant.links(topology))
        for rail in range(topology.rails):
            ports = [inventory.endpoint_of_port[host, rail] for host in tenant.hosts(topology)]
            for one, other in permutations(ports, 2):
                assert {cable.link for cable, _ in walks.path(one.at.guid, other.guid)} <= own
                walked += 1
    for source, target in joined(fabric):
        walks.path(source.at.guid, target.guid)
    return walked


def assert_works(fabric: FabricFile) -> None:
    """Three tenants come in two steps, are confirmed by OpenSM, walked, and released."""
    inventory, tenants = fabric.inventory, tenants_of(fabric)
    others = [e for e in inventory.endpoints if e.host is None]
    manager = [*inventory.managers, *others, *inventory.endpoints][0]
    with site(fabric.topology, inventory, manager.guid) as here:
        here.boot(tenants[:2])
        assert_served(here, fabric, tenants[:2])
        here.change(tenants)
        assert assert_served(here, fabric, tenants) > 10
        here.change([])
        assert_served(here, fabric, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_tenants_come_and_go_on_irregular_fabrics(seed):
    case = irregular(seed)
    fabric = parse_fabric(case.dump(), case.name, case.selection)
    assert case.services or case.edges
    assert any(list(tenant.links(fabric.topology)) for tenant in tenants_of(fabric))
    assert_works(fabric)


@needs_shared
@pytest.mark.parametrize(
    ("name", "hosts"), [("services_on_two_l2", 4), ("edge_into_two_directors", 8)]
)
def test_three_tenants_share_a_fabric_like_a_real_one(name, hosts):
    fabric = read_fabric(SHARED / "cases" / "dumps" / f"{name}.txt")
    assert [len(tenant.hosts(fabric.topology)) for tenant in tenants_of(fabric)] == [hosts] * 3
    assert_works(fabric)
