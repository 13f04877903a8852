# SPDX-License-Identifier: Apache-2.0

"""Interference: rates against linear programs and packets, and tenants that do or do not meet."""

from __future__ import annotations

import json
from collections import deque
from random import Random

import numpy as np
import pytest
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from laas_service.adapters.fabric_import.fabric_file import parse_fabric
from laas_service.cmd import simulate
from laas_service.domain.errors import InvalidInput
from laas_service.simulator.interference.engine import BANDWIDTH, Application, play
from laas_service.simulator.interference.rates import NO_LINK, max_min_rates
from laas_service.simulator.interference.routes import FluidRoutes, PrivateRoutes, RandomRoutes
from laas_service.simulator.interference.study import Study, place, run
from laas_service.simulator.interference.traffic import PATTERNS, Phase

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
    topology = fabric().topology
    sources, targets = np.array([0, 0, 0]), np.array([1, 4, 20])
    lengths = [2, 4, 6]
    for routes in (RandomRoutes(topology, Random(1)), FluidRoutes(topology)):
        paths = routes.paths(0, sources, targets)
        assert (paths != NO_LINK).sum(axis=1).tolist() == lengths
        assert (paths[:, :2] == np.array([[0, 3], [0, 9], [0, 41]])).all()


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
    [("pattern", "x"), ("policies", ["x"]), ("routings", ["x"]), ("compute", 1), ("messages", [])],
)
def test_wrong_values_are_named(field, value):
    with pytest.raises(InvalidInput, match=field):
        Study(**{field: value})


def test_the_command_writes_results_and_a_page(tmp_path):
    common = ["interference", "--xgft", TREE, "--tenants", "3", "--messages", "4096"]
    target = tmp_path / "out.json"
    assert simulate.main([*common, "--format", "json", "--output", str(target)]) == 0
    results = json.loads(target.read_text())
    assert {r["policy"] for r in results} == {"baseline", "laas", "jigsaw"}
    page = tmp_path / "out.html"
    assert simulate.main([*common, "--format", "html", "--output", str(page)]) == 0
    assert "<svg" in page.read_text()
