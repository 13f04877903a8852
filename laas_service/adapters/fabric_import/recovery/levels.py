# SPDX-License-Identifier: Apache-2.0

"""Levels and pods of switches: leaves, L2 switches and spines, recovered from cabling.

Only the hosts hint at the bottom of the tree, and not reliably: a subnet manager may be
connected to a spine, and a leaf may be empty. So switches with hosts count as leaves at first,
and the cables correct this:

1. a switch with hosts whose cables mostly go to other switches with hosts is above
   them;
2. leaves that share most of their L2 switches form a pod, so one wrong cable does not
   join two pods;
3. a switch with few hosts whose cables reach several pods is a spine;
4. a switch without hosts that reaches most L2 switches of one pod only, where spines
   reach several pods, is an empty leaf.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from laas_service.domain.grouping import grouped

Key = Callable[[int], tuple[object, ...]]
"""Sort key of a switch GUID; it makes every choice deterministic."""


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which ``leaf10`` follows ``leaf9``."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(
        (0, int(part[:18]), part) if part.isdecimal() else (1, 0, part) for part in parts if part
    )


@dataclass(frozen=True)
class Pod:
    """Leaves and the L2 switches above them, each sorted."""

    leaves: tuple[int, ...]
    l2s: tuple[int, ...]


@dataclass(frozen=True)
class Levels:
    """The switches of a fabric by level."""

    pods: tuple[Pod, ...]
    spines: tuple[int, ...]
    beyond: dict[int, int]
    """Level (4 or more) of switches above the spines, or outside the tree."""

    def level_of(self) -> dict[int, int]:
        """The level of every switch GUID."""
        level = dict(self.beyond) | dict.fromkeys(self.spines, 3)
        for pod in self.pods:
            level |= dict.fromkeys(pod.leaves, 1) | dict.fromkeys(pod.l2s, 2)
        return level


def levels(graph: nx.Graph[int], hosts: Counter[int], key: Key) -> Levels:
    """Sort the switches of ``graph`` into pods and spines.

    Edges carry ``cables``, their number; ``hosts`` counts the host ports of a switch.
    """
    bearing = _without_upper_switches(graph, hosts, key)
    half = statistics.median(hosts[s] for s in bearing) / 2 if bearing else 0
    sure = {s for s in bearing if hosts[s] >= half}
    l2s = _l2_candidates(graph, bearing)
    pods, pod_of = _pods(graph, sure, l2s)
    leftover = _place_unsure(graph, sorted(bearing - sure, key=key), pods, pod_of)
    more, more_of = _pods(graph, leftover, l2s - set(pod_of))
    pod_of |= {l2: pod + len(pods) for l2, pod in more_of.items()}
    pods += more
    rest = set(graph) - set(pod_of) - {leaf for pod in pods for leaf in pod}
    for switch in _empty_leaves(graph, sorted(rest - bearing, key=key), pods, pod_of):
        pods[pod_of[next(n for n in graph[switch] if n in pod_of)]].add(switch)
        rest.remove(switch)
    spines = {s for s in rest if any(n in pod_of for n in graph[s])}
    l2_of = grouped((pod, l2) for l2, pod in pod_of.items())
    sorted_pods = [
        Pod(tuple(sorted(leaves, key=key)), tuple(sorted(l2_of[number], key=key)))
        for number, leaves in enumerate(pods)
    ]
    sorted_pods.sort(key=lambda pod: key(pod.leaves[0]))
    return Levels(
        tuple(sorted_pods), tuple(sorted(spines, key=key)), _beyond(graph, rest - spines, spines)
    )


def _cables(graph: nx.Graph[int], switch: int, others: Collection[int]) -> int:
    return sum(data["cables"] for n, data in graph[switch].items() if n in others)


def _without_upper_switches(graph: nx.Graph[int], hosts: Counter[int], key: Key) -> set[int]:
    """Switches with hosts, except those that are above other switches with hosts."""
    bearing = {s for s in graph if hosts[s]}

    def suspicion(switch: int) -> tuple[float, int]:
        below = [n for n in graph[switch] if n in bearing]
        share = _cables(graph, switch, bearing) / max(_cables(graph, switch, graph), 1)
        if len(below) < 2:
            return 0, 0
        few = 2 * hosts[switch] < statistics.median(hosts[n] for n in below)
        return (share if share >= (0.2 if few else 0.5) else 0), len(below)

    while True:
        ranked = [
            (*suspicion(s), -hosts[s], s)
            for s in sorted(bearing, key=key)
            if any(n in bearing for n in graph[s])
        ]
        worst = max(ranked, default=(0, 0, 0, 0))
        if not worst[0]:
            return bearing
        bearing.remove(worst[3])


def _l2_candidates(graph: nx.Graph[int], bearing: set[int]) -> set[int]:
    """Switches next to leaves, except a spine that a wrong cable joins to a leaf."""
    near = {n for s in bearing for n in graph[s]} - bearing
    return {s for s in near if _cables(graph, s, near) <= _cables(graph, s, bearing)}


def _pods(
    graph: nx.Graph[int], leaves: Collection[int], l2s: set[int]
) -> tuple[list[set[int]], dict[int, int]]:
    """Pods of leaves that share more than half of their L2 switches, and the pod of each L2.

    An L2 switch belongs to the pod to which most of its cables go. A leaf forms no pod if
    none of its L2 switches belongs to that pod.
    """
    bit = {l2: 1 << i for i, l2 in enumerate(sorted(l2s))}
    by_mask = grouped((sum(bit[n] for n in graph[leaf] if n in bit), leaf) for leaf in leaves)
    similar: nx.Graph[int] = nx.Graph()
    similar.add_nodes_from(mask for mask in by_mask if mask)
    for a, b in itertools.combinations(similar, 2):
        if 2 * (a & b).bit_count() > min(a.bit_count(), b.bit_count()):
            similar.add_edge(a, b)
    pods = [
        {leaf for mask in masks for leaf in by_mask[mask]}
        for masks in nx.connected_components(similar)
    ]
    pods += [{leaf} for leaf in by_mask[0]]
    pods.sort(key=min)
    pod_of_leaf = {leaf: number for number, pod in enumerate(pods) for leaf in pod}
    pod_of: dict[int, int] = {}
    for l2 in sorted(l2s):
        votes = _votes(graph, l2, pod_of_leaf)
        if votes:
            pod_of[l2] = min(votes, key=lambda pod: (-votes[pod], pod))
    return _without_spines(graph, pods, pod_of, by_mask[0])


def _votes(graph: nx.Graph[int], switch: int, pod_of: Mapping[int, int]) -> Counter[int]:
    """The cables of a switch to each pod, by the pods of its neighbours."""
    return Counter(
        pod_of[n] for n, data in graph[switch].items() if n in pod_of for _ in range(data["cables"])
    )


def _without_spines(
    graph: nx.Graph[int], pods: list[set[int]], pod_of: dict[int, int], alone: list[int]
) -> tuple[list[set[int]], dict[int, int]]:
    """Drop pods without an L2 switch, unless their leaf has no cable to any L2 switch."""
    owners = set(pod_of.values())
    kept = [n for n, pod in enumerate(pods) if n in owners or any(s in alone for s in pod)]
    renumbered = {old: new for new, old in enumerate(kept)}
    return [pods[n] for n in kept], {l2: renumbered[pod] for l2, pod in pod_of.items()}


def _place_unsure(
    graph: nx.Graph[int], unsure: Iterable[int], pods: list[set[int]], pod_of: dict[int, int]
) -> set[int]:
    """Put switches with few hosts into pods; return those that are next to no pod yet."""
    leftover = set()
    for switch in unsure:
        votes = _votes(graph, switch, pod_of)
        if not votes:
            leftover.add(switch)
        elif 2 * max(votes.values()) > votes.total():
            pods[max(votes, key=lambda pod: votes[pod])].add(switch)
    return leftover


def _empty_leaves(
    graph: nx.Graph[int], rest: Iterable[int], pods: list[set[int]], pod_of: dict[int, int]
) -> list[int]:
    """Switches without hosts that are cabled as leaves are."""
    reach = {s: {pod_of[n] for n in graph[s] if n in pod_of} for s in rest}
    if len(pods) > 1 and not any(len(reached) > 1 for reached in reach.values()):
        return []
    size = Counter(pod_of.values())
    return [
        switch
        for switch, reached in reach.items()
        if len(reached) == 1
        and all(n in pod_of for n in graph[switch])
        and len(graph[switch]) > (len(pods) > 1)
        and 2 * len(graph[switch]) > size[min(reached)]
    ]


def _beyond(graph: nx.Graph[int], rest: set[int], spines: set[int]) -> dict[int, int]:
    """Level of the remaining switches: 3 plus the distance to the spines, 4 without a path."""
    if not rest:
        return {}
    distance = nx.multi_source_dijkstra_path_length(graph, spines, weight=None) if spines else {}
    return {s: max(3 + int(distance.get(s, 1)), 4) for s in sorted(rest)}
