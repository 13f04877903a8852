# SPDX-License-Identifier: Apache-2.0

"""Whether any forwarding table is free of contention: a constraint search with CP-SAT.

Nothing of the routing is used. A table is any choice of an uplink by each leaf, and of a spine
uplink by each L2 switch, for each destination; links that the placement has are the only limit.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

from ortools.sat.python import cp_model

from laas_service.domain.allocation import Shape


def has_free_table(shape: Shape, seconds: float = 60.0) -> bool:
    """Whether some table puts at most one flow on each link in every shift of a full tree.

    The remainder leaf, and at each L2 index the remainder pod, have the first links.

    Raises:
        AssertionError: the search ended without an answer.
    """
    hosts = list(_hosts(shape))
    count, leaves = len(hosts), sorted(set(hosts))
    pods = {pod for pod, _ in leaves}
    size = {leaf: hosts.count(leaf) for leaf in leaves}
    across = len(pods) > 1
    model = cp_model.CpModel()
    up = {
        (leaf, target, x): model.new_bool_var("")
        for leaf in leaves
        for target, at in enumerate(hosts)
        if at != leaf
        for x in range(min(size[leaf], size[at]))
    }
    choices: dict[Any, list[Any]] = defaultdict(list)
    for (leaf, target, _), chosen in up.items():
        choices[leaf, target].append(chosen)
    for of_pair in choices.values():
        model.add_exactly_one(of_pair)
    width = {
        (pod, x): sum(size[leaf] > x for leaf in leaves if leaf[0] == pod)
        for pod, x in product(pods, range(shape.hosts))
    }
    climbs: dict[Any, Any] = {}
    for (leaf, target, x), chosen in up.items() if across else ():
        to = hosts[target][0]
        if to == leaf[0]:
            continue
        spines = range(min(width[leaf[0], x], width[to, x]))
        for spine in spines:
            key = leaf[0], x, target, spine
            if key not in climbs:
                climbs[key] = model.new_bool_var("")
        model.add(sum(climbs[leaf[0], x, target, spine] for spine in spines) == 1).only_enforce_if(
            chosen
        )
    takes: dict[Any, Any] = {}
    for (leaf, target, x), chosen in up.items():
        for spine in range(shape.leaves + shape.remainder_leaves + 1):
            climb: Any = climbs.get((leaf[0], x, target, spine))
            if climb is not None and hosts[target][0] != leaf[0]:
                both = takes[leaf, target, x, spine] = model.new_bool_var("")
                model.add_bool_or(both, chosen.negated(), climb.negated())
    for shift in range(1, count):
        loads: dict[Any, list[Any]] = defaultdict(list)
        for source, leaf in enumerate(hosts):
            target = (source + shift) % count
            at = hosts[target]
            if at == leaf:
                continue
            for x in range(min(size[leaf], size[at])):
                loads["up", leaf, x].append(up[leaf, target, x])
                loads["down", at, x].append(up[leaf, target, x])
                for spine in range(shape.leaves + shape.remainder_leaves + 1):
                    taken: Any = takes.get((leaf, target, x, spine))
                    if taken is not None:
                        loads["climb", leaf[0], x, spine].append(taken)
                        loads["fall", at[0], x, spine].append(taken)
        for flows in loads.values():
            if len(flows) > 1:
                model.add_at_most_one(flows)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE), "undecided"
    return status != cp_model.INFEASIBLE


def _hosts(shape: Shape) -> list[tuple[int, int]]:
    """The (pod, leaf) of each host; one pod if only a remainder leaf lies beside a full pod."""
    places = [
        (pod, leaf)
        for pod in range(shape.pods)
        for leaf in range(shape.leaves)
        for _ in range(shape.hosts)
    ]
    last = shape.pods if shape.pods > 1 or shape.remainder_leaves else 0
    first = 0 if last else shape.leaves
    places += [
        (last, first + leaf) for leaf in range(shape.remainder_leaves) for _ in range(shape.hosts)
    ]
    return places + [(last, first + shape.remainder_leaves)] * shape.remainder_hosts
