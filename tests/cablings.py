# SPDX-License-Identifier: Apache-2.0

"""Cablings of switches that are no fat-trees, or nearly none, and their ibnetdiscover dumps.

A cabling is a graph of switches, numbered from 0, with the number of hosts on each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import networkx as nx

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch


@dataclass(frozen=True)
class Cabled:
    """Switches with ``hosts`` (by switch; others have none) and cables between them."""

    hosts: Mapping[int, int]
    cables: tuple[tuple[int, int], ...]

    def dump(self) -> str:
        """The cabling as ``ibnetdiscover`` prints it; ports are numbered as they are used."""
        used: Counter[int] = Counter()

        def plug(switch: int) -> PortRef:
            used[switch] += 1
            return PortRef(guid(switch), used[switch])

        places = [switch for switch, count in sorted(self.hosts.items()) for _ in range(count)]
        endpoints = [
            Endpoint(0x2C90300000001 + 2 * n, f"node{n:03d} mlx5_0", plug(switch))
            for n, switch in enumerate(places)
        ]
        cables = [Cable(plug(a), plug(b)) for a, b in self.cables]
        numbers = sorted({*self.hosts, *(end for cable in self.cables for end in cable)})
        switches = [Switch(guid(n), f"switch-{n}", 1, max(used[n], 1)) for n in numbers]
        return ibnetdiscover.render(
            Inventory((), tuple(switches), tuple(cables), tuple(endpoints), (), (), ())
        )


def guid(switch: int) -> int:
    """The GUID of a switch in the dump."""
    return 0x2C90200000000 | switch + 1 << 4


def on_all(graph: nx.Graph[Any], hosts: int = 2) -> Cabled:
    """The same number of hosts on each switch of a graph of any nodes."""
    numbered = nx.convert_node_labels_to_integers(graph, ordering="sorted")
    edges = sorted((min(edge), max(edge)) for edge in numbered.edges)
    return Cabled(dict.fromkeys(sorted(numbered), hosts), tuple(edges))


def dragonfly(routers: int = 4, ports: int = 2) -> Cabled:
    """Fully meshed groups of routers, with one cable between any two groups."""
    groups = routers * ports + 1
    graph: nx.Graph[tuple[int, int]] = nx.Graph()
    for group in range(groups):
        graph.add_edges_from(combinations(((group, r) for r in range(routers)), 2))
    used: Counter[int] = Counter()
    for pair in combinations(range(groups), 2):
        graph.add_edge(*((group, used[group] // ports) for group in pair))
        used.update(pair)
    return on_all(graph)


def two_levels(leaves: int, l2s: int, extra: Iterable[tuple[int, int]] = ()) -> Cabled:
    """A tree of two levels with two hosts on each leaf; leaves have the lowest numbers."""
    regular = product(range(leaves), range(leaves, leaves + l2s))
    return Cabled(dict.fromkeys(range(leaves), 2), (*regular, *extra))


NO_TREES: dict[str, Cabled] = {
    "triangle": on_all(nx.complete_graph(3)),
    "full mesh of 4": on_all(nx.complete_graph(4)),
    "full mesh of 8": on_all(nx.complete_graph(8)),
    "torus 4x4": on_all(nx.grid_2d_graph(4, 4, periodic=True)),
    "torus 3x3x3": on_all(nx.grid_graph((3, 3, 3), periodic=True)),
    "mesh 4x4": on_all(nx.grid_2d_graph(4, 4)),
    "3-cube": on_all(nx.hypercube_graph(3)),
    "4-cube": on_all(nx.hypercube_graph(4)),
    "dragonfly": dragonfly(),
    "ring of 5": on_all(nx.cycle_graph(5)),
    "ring of 6": on_all(nx.cycle_graph(6)),
    "chain of 6": on_all(nx.path_graph(6)),
    "two switches": on_all(nx.path_graph(2)),
    "slim fly of 10": on_all(nx.petersen_graph()),
    "slim fly of 50": on_all(nx.hoffman_singleton_graph()),
    "random regular": on_all(nx.random_regular_graph(4, 16, seed=2)),
    "cascaded switch": Cabled({0: 4, 1: 4, 4: 4}, ((0, 2), (0, 3), (1, 2), (1, 3), (1, 4))),
}
"""Cablings that no import accepts unasked."""

TREES: dict[str, Cabled] = {
    "one switch": Cabled({0: 4}, ()),
    "ring of 4, hosts on two": Cabled({0: 2, 2: 2}, ((0, 1), (1, 2), (2, 3), (0, 3))),
    "ring of 4, hosts on all": on_all(nx.cycle_graph(4)),
    "star, hosts on all": on_all(nx.star_graph(4)),
    "a cable between two leaves": two_levels(2, 2, [(0, 1)]),
    "a cable between two L2 switches": two_levels(2, 2, [(2, 3)]),
    "parallel cables": two_levels(3, 2, product(range(3), range(3, 5))),
    "parts without a cable between them": Cabled({0: 2, 1: 2, 3: 2}, ((0, 2), (1, 2))),
}
"""Cablings that look odd and import."""
