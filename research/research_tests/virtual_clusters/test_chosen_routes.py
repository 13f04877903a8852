# SPDX-License-Identifier: Apache-2.0

"""Routes chosen for clusters: against all choices of uplinks on small containers."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_research.virtual_clusters.chosen_routes import fitting_routes
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.routes import Routes
from laas_service.domain.topology import Topology, Xgft

HOSTS = 3
"""Places of hosts at a leaf; machine ``leaf * HOSTS + slot``."""
CONTAINERS = {
    "two leaves": ((3, 3), (2, 2)),
    "a leaf with one uplink": ((3, 2, 1), (2, 2, 1)),
    "three leaves": ((2, 1, 1), (2, 2, 2)),
}
"""Hosts and uplinks of each leaf."""
every_container = pytest.mark.parametrize("name", CONTAINERS)


def empty(name, bandwidth=1.0, xgft=None):
    hosts, uplinks = CONTAINERS[name]
    groups = tuple(
        GroupShare(leaf, (1 << count) - 1, (1 << up) - 1)
        for leaf, (count, up) in enumerate(zip(hosts, uplinks, strict=True))
    )
    topology = Topology(xgft or Xgft((HOSTS, 3, 1), (1, 2, 1)))
    allocation = Allocation("all", sum(hosts), "all", groups, ())
    return RoutedSite(Routes(topology, allocation), 3, bandwidth)


def filled(name, rng):
    """A site with clusters in random places, and a cluster at a place that its links refuse."""
    site = empty(name)
    machines = site.routes.machines.tolist()
    for number in range(12):
        size = rng.randint(2, 4)
        cluster = Cluster.alike(str(number), size, rng.choice((0.25, 0.5, 1.0)))
        embedding: dict[int, tuple[int, ...]] = {}
        for unit in range(size):
            machine = rng.choice(machines)
            embedding[machine] = (*embedding.get(machine, ()), unit)
        if any(len(units) > site.free[machine] for machine, units in embedding.items()):
            continue
        try:
            site.claim(cluster, embedding)
        except DoubleClaim:
            return site, cluster, embedding
    return None


def load(size, counts, senders, receivers, pairs):
    """The most that flows from leaves to machines over the pairs that take a link."""
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(["from", "to"])
    for leaf in senders:
        sent = sum(units for machine, units in counts.items() if machine // HOSTS == leaf)
        graph.add_edge("from", ("leaf", leaf), capacity=sent)
    for machine in receivers:
        graph.add_edge(("machine", machine), "to", capacity=counts[machine])
    for leaf, machine in pairs:
        graph.add_edge(("leaf", leaf), ("machine", machine))
    return nx.maximum_flow_value(graph, "from", "to") if pairs else 0


def fits(uplinks, placed):
    """Whether no link of an uplink, up or down, and no host's is promised more than 1."""
    used: dict[Any, float] = {}
    for cluster, embedding in placed:
        counts = {machine: len(units) for machine, units in embedding.items()}
        each, size = cluster.demands[0].mean, len(cluster.demands)
        for machine, units in counts.items():
            used["host", machine] = used.get(("host", machine), 0) + each * min(units, size - units)
        leaves = {machine // HOSTS for machine in counts}
        crossing: dict[Any, list[Any]] = {}
        for leaf, machine in product(leaves, counts):
            if machine // HOSTS != leaf:
                up = uplinks[leaf, machine]
                crossing.setdefault(("up", leaf, up), []).append((leaf, machine))
                crossing.setdefault(("down", machine // HOSTS, up), []).append((leaf, machine))
        for link, pairs in crossing.items():
            flow = load(size, counts, {a for a, _ in pairs}, {b for _, b in pairs}, pairs)
            used[link] = used.get(link, 0) + each * flow
    return all(amount <= 1 + 1e-9 for amount in used.values())


def some_choice_fits(name, placed):
    _, uplinks = CONTAINERS[name]
    machines = sorted({machine for _, embedding in placed for machine in embedding})
    leaves = {machine // HOSTS for machine in machines}
    pairs = [(a, b) for a, b in product(leaves, machines) if b // HOSTS != a]
    choices = product(*(range(min(uplinks[a], uplinks[b // HOSTS])) for a, b in pairs))
    return any(fits(dict(zip(pairs, choice, strict=True)), placed) for choice in choices)


def uplinks_of(site):
    """The uplink of each leaf to each machine, as the switches forward; every walk arrives."""
    routes, found = site.routes, {}
    leaves = sorted({machine // HOSTS for machine in routes.machines.tolist()})
    steps = routes.walk(np.array(leaves), routes.machines)
    for (a, leaf), (b, machine) in product(enumerate(leaves), enumerate(routes.machines.tolist())):
        links = [int(link) for link in steps[a, b] if link]
        if machine // HOSTS != leaf:
            up, down = (routes.links[(link - 2) // 2] for link in links)
            assert [link % 2 for link in links] == [0, 1]
            assert (up.leaf, down.leaf, up.up) == (leaf, machine // HOSTS, down.up)
            found[leaf, machine] = up.up
        else:
            assert links == []
    return found


@every_container
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_routes_are_found_where_some_choice_fits(name, seed):
    rng = Random(seed)
    case = filled(name, rng)
    if case is None:
        return
    site, cluster, embedding = case
    placed = [(held.cluster, held.embedding) for held in site.clusters.values()]
    placed.append((cluster, embedding))
    before = uplinks_of(site)
    chosen = fitting_routes(site, cluster, embedding, rng)
    assert (chosen is not None) == some_choice_fits(name, placed)
    assert uplinks_of(site) == before
    assert cluster.id not in site.clusters
    if chosen is not None:
        assert fits(uplinks_of(chosen), placed)
        assert chosen.clusters.keys() == site.clusters.keys() | {cluster.id}


def test_another_uplink_gives_back_a_request():
    """Hosts 0 and 2 of a leaf share an uplink; a cluster on each wants all of it."""
    site = empty("two leaves")
    site.claim(Cluster.alike("a", 2, 1.0), {0: (0,), 3: (1,)})
    second = Cluster.alike("b", 2, 1.0), {2: (0,), 5: (1,)}
    with pytest.raises(DoubleClaim, match="link leaf-0-"):
        site.claim(*second)
    chosen = fitting_routes(site, *second, Random(1))
    assert chosen is not None
    assert set(chosen.clusters) == {"a", "b"}
    assert max(load.occupancy for load in chosen.loads()) == 1


def test_what_no_choice_is_made_for_is_told():
    rng = Random(1)
    stochastic = Cluster.alike("a", 2, 1.0, 0.1), {0: (0,), 3: (1,)}
    with pytest.raises(InvalidInput, match="certain demands"):
        fitting_routes(empty("two leaves"), *stochastic, rng)
    parallel = empty("two leaves", xgft=Xgft((HOSTS, 3, 1), (1, 2, 1), (2, 1)))
    with pytest.raises(InvalidInput, match="one pod"):
        fitting_routes(parallel, Cluster.alike("a", 2, 0.5), {0: (0,), 3: (1,)}, rng)
