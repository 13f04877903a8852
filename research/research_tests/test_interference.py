# SPDX-License-Identifier: Apache-2.0

"""Interference: rates against linear programs and packets, and tenants that do or do not meet."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from laas_research.interference.engine import BANDWIDTH, Application, play
from laas_research.interference.rates import NO_LINK, max_min_rates
from laas_research.interference.routes import (
    FluidRoutes,
    PrivateRoutes,
    RandomRoutes,
    TableRoutes,
)
from laas_research.interference.study import (
    Study,
    figures,
    place,
    run,
    storage_servers,
)
from laas_research.interference.traffic import PATTERNS, STORAGE, Phase, storage
from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric, read_fabric
from laas_service.cmd import simulate
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import InvalidInput
from laas_service.domain.routing.contention import rank_order
from laas_service.domain.routing.fabric_tables import forwarding_tables
from research_tests.packets import play_packets
from tests.shared import SHARED, needs_shared

TREE = "3;3,3,3;1,3,3"


def max_min_by_linear_programs(paths: np.ndarray, capacity: np.ndarray) -> list[float]:
    """Raise the least rate as far as it goes, fix the flows that cannot go on, and repeat."""
    fixed: dict[int, float] = {}

    def best(raised: list[int], floor: float | None) -> float:
        solver = pywraplp.Solver.CreateSolver("GLOP")
        rates = [solver.NumVar(0, solver.infinity(), "") for _ in paths]
        for flow, rate in fixed.items():
            solver.Add(rates[flow] == rate)
        for link, limit in enumerate(capacity):
            over = [rates[f] for f, row in enumerate(paths) if link in row]
            if over:
                solver.Add(solver.Sum(over) <= float(limit))
        least = solver.NumVar(0, solver.infinity(), "")
        for flow in range(len(paths)):
            if flow not in fixed:
                solver.Add(rates[flow] >= (least if flow in raised else floor or 0))
        solver.Maximize(least)
        assert solver.Solve() == pywraplp.Solver.OPTIMAL
        return float(least.solution_value())

    while len(fixed) < len(paths):
        others = [flow for flow in range(len(paths)) if flow not in fixed]
        level = best(others, None)
        stuck = [flow for flow in others if best([flow], level - 1e-9) < level + 1e-6]
        fixed.update(dict.fromkeys(stuck, level))
    return [fixed[flow] for flow in range(len(paths))]


@pytest.mark.parametrize("seed", range(6))
def test_rates_are_those_of_linear_programs(seed):
    random = Random(seed)
    capacity = np.array([random.choice((1.0, 2.0, 0.5)) for _ in range(6)])
    rows = [random.sample(range(6), random.randint(1, 3)) for _ in range(9)]
    paths = np.array([row + [NO_LINK] * (3 - len(row)) for row in rows])
    expected = max_min_by_linear_programs(paths, capacity)
    assert max_min_rates(paths, capacity) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_lower_rates_stay_when_flows_end(seed):
    random = Random(seed)
    capacity = np.array([random.choice((1.0, 2.0, 0.5)) for _ in range(12)])
    paths = np.array([random.sample(range(12), 3) for _ in range(30)])
    rates = max_min_rates(paths, capacity)
    while len(paths) > 3:
        ended = np.array(random.sample(range(len(paths)), 3))
        known = np.where(rates < rates[ended].min(), rates, np.inf)
        paths, known = np.delete(paths, ended, 0), np.delete(known, ended)
        rates = max_min_rates(paths, capacity, known)
        assert rates == pytest.approx(max_min_rates(paths, capacity))


def packets_of(paths: list[list[int]], slots: int, window: int = 32) -> list[float]:
    """Packets a slot of each flow: every link serves its flows in turn, one packet a slot.

    Every flow has a window of packets on the way, so queues are bounded and nothing is lost.
    """
    links = max(map(max, paths)) + 1
    queues = [{f: 0 for f, path in enumerate(paths) if link in path} for link in range(links)]
    turns = [deque(queue) for queue in queues]
    arrived = [0] * len(paths)
    for flow, path in enumerate(paths):
        queues[path[0]][flow] = window
    for _ in range(slots):
        served = []
        for link in range(links):
            for _ in range(len(turns[link])):
                flow = turns[link][0]
                turns[link].rotate(-1)
                if queues[link][flow]:
                    queues[link][flow] -= 1
                    served.append((flow, link))
                    break
        for flow, link in served:
            path = paths[flow]
            if link == path[-1]:
                arrived[flow] += 1
                queues[path[0]][flow] += 1
            else:
                queues[path[path.index(link) + 1]][flow] += 1
    return [count / slots for count in arrived]


@pytest.mark.parametrize(
    "paths",
    [
        [[0, 1], [0, 2], [2, 3], [2]],
        [[0, 3], [1, 3, 4], [2, 4], [4], [0, 1]],
    ],
)
def test_rates_are_those_of_packets_that_links_serve_in_turn(paths):
    width = max(map(len, paths))
    rows = np.array([path + [NO_LINK] * (width - len(path)) for path in paths])
    rates = max_min_rates(rows, np.ones(rows.max() + 1))
    assert packets_of(paths, 20_000) == pytest.approx(rates.tolist(), rel=0.03)


@dataclass
class FixedRoutes:
    """The links of each pair of hosts, those of the hosts first."""

    links: dict[tuple[int, int], list[int]]
    capacity: np.ndarray

    def paths(self, rail: int, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = [self.links[pair] for pair in zip(sources.tolist(), targets.tolist(), strict=True)]
        width = max(map(len, self.links.values()))
        return np.array([row + [NO_LINK] * (width - len(row)) for row in rows])


def test_a_packet_that_waits_stops_those_behind_it():
    """Hosts 0 and 1 share a link; where host 1 sends, two others send too: it has a third."""
    links = {
        (0, 4): [0, 4, 8],
        (1, 5): [1, 5, 8],
        (2, 5): [2, 5],
        (3, 5): [3, 5],
    }
    routes = FixedRoutes(links, np.ones(9))
    tenants = [Application(pair, [Phase([(0, 1)])], 1 << 20) for pair in links]
    rates = max_min_rates(routes.paths(0, np.arange(4), np.array([4, 5, 5, 5])), routes.capacity)
    assert rates == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3])
    seconds = {
        player: player(tenants, routes, iterations=1).seconds[0] for player in (play, play_packets)
    }
    assert seconds[play] == pytest.approx((1 << 20) / BANDWIDTH * 3 / 2, rel=0.02)
    assert seconds[play_packets] > (1 << 20) / BANDWIDTH * 2.9


def test_tenants_play_packet_by_packet_almost_as_with_fair_rates():
    file = parse_fabric("3;4,4,4;1,4,4", "xgft")
    study = Study(
        tenants=8, messages=(32768,), policies=("random", "laas"), routings=("own", "d-mod-k")
    )
    rates, packets = (
        {r["policy"]: r["slowdown"] for r in run(study, file.topology, file.inventory, player=each)}
        for each in (play, play_packets)
    )
    assert rates["laas"] == packets["laas"] == 1
    assert rates["random"] > 1.5
    assert packets["random"] == pytest.approx(rates["random"], rel=0.1)


def test_the_paper_stands_beside_its_own_case_only():
    file = fabric()
    study = Study(tenants=3, messages=(4096, 32768), policies=("random", "laas"), iterations=1)
    results = run(study, file.topology, file.inventory)
    drawn, *_ = figures(results)
    assert all(point.paper is None for curve in drawn.curves.values() for point in curve)
    drawn, *_ = figures([{**r, "cluster": 1728, "tenants": 32} for r in results])
    stated = {
        (name, point.x): point.paper
        for name, curve in drawn.curves.items()
        for point in curve
        if point.paper is not None
    }
    assert stated == {
        ("random, d-mod-k, alone", 4096): 100,
        ("random, d-mod-k, alone", 32768): 100,
        ("random, d-mod-k, all tenants", 32768): 45,
    }
    by_case = {(r["policy"], r["routing"], r["message"]): r for r in results}
    for name, curve in drawn.curves.items():
        policy, routing, which = name.split(", ")
        for point in curve:
            case = by_case[policy, routing, point.x]
            base = by_case["random", "d-mod-k", point.x]["to_private_alone"]
            slower = case["to_private_alone"] * (case["slowdown"] if which != "alone" else 1)
            assert point.ours == pytest.approx(100 * base / slower)


def test_a_flow_without_links_is_bounded_by_nothing():
    rates = max_min_rates(np.array([[NO_LINK], [0]]), np.array([2.0]))
    assert rates.tolist() == [np.inf, 2.0]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ranks", [2, 3, 7, 16, 50])
def test_patterns_name_ranks_that_exist_and_nobody_sends_to_himself(pattern, ranks):
    phases = PATTERNS[pattern](ranks, Random(1))
    assert all(phase.flows and phase.rounds >= 1 for phase in phases)
    pairs = [pair for phase in phases for pair in phase.flows]
    assert {rank for pair in pairs for rank in pair} <= set(range(ranks))
    assert all(source != target for source, target in pairs)


def fabric():
    return parse_fabric(TREE, "xgft")


def test_two_flows_on_one_link_take_twice_as_long():
    topology = fabric().topology
    phases = [Phase([(0, 1)])]
    one, other = Application([0, 1], phases, BANDWIDTH), Application([2, 1], phases, BANDWIDTH)
    routes = PrivateRoutes(topology)
    assert play([one], routes, iterations=1).seconds == pytest.approx([1.0], rel=1e-4)
    both = play([one, other], routes, iterations=2)
    assert both.seconds == pytest.approx([2.0, 2.0], rel=1e-4)
    assert both.meetings.links == {3}
    assert both.meetings.byte_count == pytest.approx(4 * BANDWIDTH)


def test_random_paths_and_fluid_paths_join_the_hosts():
    file = fabric()
    sources, targets = np.array([0, 0, 0]), np.array([1, 4, 20])
    lengths = [2, 4, 6]
    for routes in (
        RandomRoutes(file.topology, file.inventory, Random(1)),
        FluidRoutes(file.topology, file.inventory),
    ):
        paths = routes.paths(0, sources, targets)
        assert (paths != NO_LINK).sum(axis=1).tolist() == lengths
        assert (paths[:, :2] == np.array([[0, 3], [0, 9], [0, 41]])).all()


def lassen() -> FabricFile:
    """Spines of its two directors stand above four or five L2 indices; 72 cables are no links."""
    return read_fabric(SHARED / "fabrics" / "lassen-edr-2019.ibnetdiscover.txt")


@needs_shared
def test_paths_through_directors_take_every_cable_of_a_shortest_path():
    file = lassen()
    topology, inventory = file.topology, file.inventory
    first = 2 * topology.hosts * topology.rails
    cables = inventory.cables
    ends = [e for c in cables for e in ((c.lower, c.upper), (c.upper, c.lower))]
    at = [inventory.endpoint_of_port[host, 0].at.guid for host in range(topology.hosts)]
    leaves = [guid for guid in dict.fromkeys(at) if at.count(guid) > 1]
    index = {guid: i % topology.tree.l2_per_pod for i, guid in enumerate(inventory.l2_guids)}
    routes = RandomRoutes(topology, inventory, Random(1))
    doubled = next(c.lower.guid for c in cables if c.link is None and c.lower.guid in leaves)
    far = leaves.index(doubled)
    for here, there in ((0, far), (0, 1), (far, 0)):
        pair = [at.index(leaves[here]), at.index(leaves[there])]
        sources, targets = (np.full(2000, host) for host in pair)
        rows = routes.paths(0, sources, targets)[:, 2:] - first
        walks = [[ends[link] for link in row if link >= 0] for row in rows]
        for walk in walks:
            assert [walk[0][0].guid, walk[-1][1].guid] == [leaves[here], leaves[there]]
            assert all(a[1].guid == b[0].guid for a, b in pairwise(walk))
        up = {walk[0][0].port for walk in walks}
        assert up == {e[0].port for e in ends[::2] if e[0].guid == leaves[here]}
        if there == 1:
            assert {len(walk) for walk in walks} == {2}
        else:
            assert {len(walk) for walk in walks} == {4}
            turns = {(index[walk[0][1].guid], index[walk[-1][0].guid]) for walk in walks}
            assert len(turns) == 4 * 4 + 5 * 5


@needs_shared
def test_a_fluid_split_has_all_cables_of_a_leaf_and_of_a_pod():
    file = lassen()
    topology, inventory = file.topology, file.inventory
    capacity = FluidRoutes(topology, inventory).capacity[2 * topology.hosts * topology.rails :]
    leaves, pods = np.split(capacity[::2], [topology.tree.leaves])
    assert Counter(leaves[leaves > 1]) == {9: 75, 8: 1, 18: 8}
    assert set(pods) == {9 * 18}
    cables = [cable.lower.guid for cable in inventory.cables]
    assert leaves[leaves > 1].sum() == sum(cables.count(g) for g in inventory.leaf_guids if g)


@needs_shared
def test_tenants_on_their_own_links_never_meet_on_directors():
    file = lassen()
    study = Study(
        tenants=3,
        messages=(32768,),
        policies=("random", "jigsaw"),
        routings=("own", "adaptive"),
        iterations=1,
    )
    adaptive, alone = run(study, file.topology, file.inventory)
    assert (alone["slowdown"], alone["links_met"]) == (1, 0)
    assert adaptive["slowdown"] > 1.02  # two hosts share an uplink


def test_tenants_on_their_own_links_never_meet_and_others_do():
    file = fabric()
    study = Study(tenants=5, messages=(65536,), policies=("random", "laas", "jigsaw"), iterations=2)
    results = {(r["policy"], r["routing"]): r for r in run(study, file.topology, file.inventory)}
    for policy in ("laas", "jigsaw"):
        alone = results[policy, "own"]
        assert (alone["slowdown"], alone["links_met"], alone["bytes_met"]) == (1, 0, 0)
    assert results["random", "d-mod-k"]["slowdown"] > 1.05
    assert results["random", "d-mod-k"]["links_met"]
    assert results["random", "adaptive"]["slowdown"] == pytest.approx(1)
    assert len({r["tenants"] for r in results.values()}) == 1
    assert run(study, file.topology, file.inventory) == list(results.values())


def test_sizes_are_equal_under_every_policy_that_takes_exactly_what_is_asked():
    topology = fabric().topology
    study = Study(tenants=4)
    sizes = [[t.requested for t in place(study, topology, p)] for p in ("baseline", "random")]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("patterns", ["x"]),
        ("patterns", []),
        ("servers", -1),
        ("policies", ["x"]),
        ("routings", ["x"]),
        ("compute", 1),
        ("messages", []),
    ],
)
def test_wrong_values_are_named(field, value):
    with pytest.raises(InvalidInput, match=field.removesuffix("s")):
        Study(**{field: value})


STORING = Study(
    tenants=6,
    patterns=("shift", STORAGE),
    servers=8,
    messages=(1 << 20,),
    policies=("lc",),
    iterations=2,
    seed=2,
)
"""On 64 hosts, half of the tenants send to storage."""


def storing_fabric():
    return parse_fabric("3;4,4,4;1,4,4", "xgft")


def test_every_rank_writes_to_a_server_and_reads_from_it():
    written, read = storage(5, 2, Random(1))
    assert {rank for rank, _ in written.flows} == set(range(5))
    assert [server - 5 for _, server in written.flows] in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])
    assert [(to, server) for server, to in read.flows] == written.flows


def test_servers_are_the_last_hosts_of_the_pods_and_no_tenants():
    topology = storing_fabric().topology
    assert storage_servers(replace(STORING, servers=3), topology) == [63, 47, 31]
    assert storage_servers(replace(STORING, servers=5), topology) == [63, 47, 31, 15, 62]
    assert storage_servers(replace(STORING, servers=0), topology) == [63]
    assert storage_servers(replace(STORING, patterns=("shift",)), topology) == []
    for policy in ("lc", "baseline", "random"):
        tenants = place(replace(STORING, servers=16), topology, policy)
        used = {host for tenant in tenants for host in rank_order(topology, tenant)}
        assert used.isdisjoint(storage_servers(replace(STORING, servers=16), topology))
    with pytest.raises(InvalidInput, match="servers"):
        place(replace(STORING, servers=64), topology, "lc")


class Stored(NamedTuple):
    """The paths of tenants' own traffic and of that to storage, one array for each tenant."""

    own: list[np.ndarray]
    storage: list[np.ndarray]
    capacity: np.ndarray


def paths_to_storage(plane: CommonPlane, *, owners: bool = True) -> Stored:
    """With ``owners``, the tables know who owns links."""
    file = storing_fabric()
    study = replace(STORING, plane=plane)
    tenants = place(study, file.topology, "lc")
    owning = tenants if owners else []
    tables = forwarding_tables(file.topology, file.inventory, owning, plane=plane)
    routes = TableRoutes(file.topology, file.inventory, tables)
    servers = storage_servers(study, file.topology)
    stored = Stored([], [], routes.capacity)
    for number, tenant in enumerate(tenants):
        hosts = np.array([*rank_order(file.topology, tenant), *servers])
        for paths, phases in (
            (stored.own, PATTERNS["shift"](tenant.size, Random(number))),
            (stored.storage, storage(tenant.size, len(servers), Random(number))),
        ):
            pairs = hosts[np.array([flow for phase in phases for flow in phase.flows])]
            paths.append(routes.paths(0, pairs[:, 0], pairs[:, 1]))
    return stored


def between_switches(paths: np.ndarray) -> set[int]:
    return set(paths[:, 2:][paths[:, 2:] != NO_LINK].tolist())


@pytest.mark.parametrize(
    ("plane", "owners"),
    [(NO_PLANE, False), (NO_PLANE, True), (CommonPlane((0,)), True)],
)
def test_storage_traffic_crosses_no_links_of_other_tenants_that_tables_know(plane, owners):
    stored = paths_to_storage(plane, owners=owners)
    own = [between_switches(paths) for paths in stored.own]
    assert any(own)
    met = [
        (tenant, other)
        for tenant, paths in enumerate(stored.storage)
        for other in range(len(own))
        if other != tenant and between_switches(paths) & own[other]
    ]
    assert bool(met) != owners


@pytest.mark.parametrize("plane", [NO_PLANE, CommonPlane((0,))], ids=str)
def test_rates_of_storage_traffic_are_those_of_linear_programs(plane):
    stored = paths_to_storage(plane)
    paths = np.concatenate([*stored.own, *stored.storage])[::6]
    used = np.unique(paths[paths != NO_LINK])
    numbered = np.where(paths == NO_LINK, NO_LINK, np.searchsorted(used, paths))
    expected = max_min_by_linear_programs(numbered, stored.capacity[used])
    assert max_min_rates(numbered, stored.capacity[used]) == pytest.approx(expected, abs=1e-5)
    assert min(expected) < 1 / 2 < max(expected)


def test_others_do_not_notice_storage_traffic_with_or_without_a_plane():
    file = storing_fabric()
    slowdowns = {}
    for plane in (NO_PLANE, CommonPlane((0,))):
        (result,) = run(replace(STORING, plane=plane), file.topology, file.inventory)
        assert result["pattern"] == "shift, storage"
        slowdowns[plane] = result["by_pattern"]
    assert [of["shift"] for of in slowdowns.values()] == [1, 1]
    assert min(of[STORAGE] for of in slowdowns.values()) > 1.1


def test_a_path_longer_than_a_tree_has_is_an_error():
    file = storing_fabric()
    tables = forwarding_tables(file.topology, file.inventory, [])
    first = file.inventory.leaf_guids[0]
    column = tables.index[file.inventory.endpoint_of_port[4, 0].guid]
    rows = dict(tables.rows)
    for cable in file.inventory.cables:
        if cable.lower.guid == first:
            row = bytearray(rows[cable.upper.guid])
            row[column] = cable.upper.port
            rows[cable.upper.guid] = bytes(row)
    routes = TableRoutes(file.topology, file.inventory, replace(tables, rows=rows))
    with pytest.raises(ValueError, match="host 0 to host 4"):
        routes.paths(0, np.array([0]), np.array([4]))


def test_the_command_writes_results_and_a_page(tmp_path):
    common = ["interference", "--xgft", TREE, "--tenants", "3", "--messages", "4096"]
    target = tmp_path / "out.json"
    assert simulate.main([*common, "--format", "json", "--output", str(target)]) == 0
    results = json.loads(target.read_text())
    assert {r["policy"] for r in results} == {"baseline", "laas", "jigsaw"}
    page = tmp_path / "out.html"
    assert simulate.main([*common, "--format", "html", "--output", str(page)]) == 0
    assert "<svg" in page.read_text()
