# SPDX-License-Identifier: Apache-2.0

"""Levels and pods of switches: leaves, L2 switches and spines, recovered from cabling.

Only the hosts hint at the bottom of the tree, and not reliably: services may be connected to an
L2 switch or a spine, and a leaf may be empty. So switches with hosts count as leaves at first,
and the cables correct this:

1. a switch with hosts whose cables mostly go to other switches with hosts is above
   them; those with fewer hosts than the switches below are found first;
2. leaves that share most of their L2 switches form a pod, so one wrong cable does not
   join two pods;
3. a switch with hosts whose cables reach several pods is a spine if it is cabled as one; otherwise
   it is an edge: on the level of the leaves, and outside the tree. So is a switch with hosts that
   is cabled to switches above the L2 switches only;
4. a switch without hosts that reaches most L2 switches of one pod only, where spines
   reach several pods, is an empty leaf.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import networkx as nx

from laas_service.domain.grouping import grouped

Key = Callable[[int], tuple[object, ...]]
"""Sort key of a switch GUID; it makes every choice deterministic."""


@lru_cache(maxsize=1 << 16)
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
    edges: tuple[int, ...]
    """Switches with hosts on the level of the leaves that no pod can have: their cables lead into
    several pods, or past the L2 switches."""

    beyond: dict[int, int]
    """Level (4 or more) of switches above the spines, or outside the tree."""

    def level_of(self) -> dict[int, int]:
        """The level of every switch GUID."""
        level = dict(self.beyond) | dict.fromkeys(self.spines, 3) | dict.fromkeys(self.edges, 1)
        for pod in self.pods:
            level |= dict.fromkeys(pod.leaves, 1) | dict.fromkeys(pod.l2s, 2)
        return level


def levels(
    graph: nx.Graph[int], hosts: Counter[int], key: Key, services: Collection[int] = ()
) -> Levels:
    """Sort the switches of ``graph`` into pods and spines.

    Edges carry ``cables``, their number; ``hosts`` counts the host ports of a switch. All hosts
    of the switches ``services`` are known to be no tenants' hosts.
    """
    bearing = _without_upper_switches(graph, hosts, key)
    half = statistics.median(hosts[s] for s in bearing) / 2 if bearing else 0
    sure = {s for s in bearing if hosts[s] >= half}
    l2s = _l2_candidates(graph, bearing)
    bridges = _bridges(graph, sorted(sure), l2s) | _bridges(graph, sorted(bearing), l2s)
    pods, pod_of = _pods(graph, sure - bridges, l2s)
    unsure = sorted(bearing - sure - bridges, key=key)
    spare = set(graph) - bearing - l2s
    leftover = _place_unsure(graph, unsure, pods, pod_of, spare)
    _place_l2s(graph, l2s - pod_of.keys(), pods, pod_of)
    more, more_of = _pods(graph, leftover, l2s - set(pod_of))
    pod_of |= {l2: pod + len(pods) for l2, pod in more_of.items()}
    pods += more
    rest = set(graph) - set(pod_of) - {leaf for pod in pods for leaf in pod}
    edges = _edges(graph, rest, hosts, sure, pod_of) | _alone(graph, pods, pod_of, services)
    rest -= edges
    pods, pod_of = _renumbered([pod - edges for pod in pods], pod_of)
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
        tuple(sorted_pods),
        tuple(sorted(spines, key=key)),
        tuple(sorted(edges, key=key)),
        _beyond(graph, rest - spines, spines),
    )


def _cables(graph: nx.Graph[int], switch: int, others: Collection[int]) -> int:
    return sum(data["cables"] for n, data in graph[switch].items() if n in others)


def _without_upper_switches(graph: nx.Graph[int], hosts: Counter[int], key: Key) -> set[int]:
    """Switches with hosts, except those that are above other switches with hosts."""
    bearing = {s for s in graph if hosts[s]}

    def suspicion(switch: int) -> tuple[bool, float, int]:
        below = [n for n in graph[switch] if n in bearing]
        share = _cables(graph, switch, bearing) / max(_cables(graph, switch, graph), 1)
        if len(below) < 2:
            return False, 0, 0
        if hosts[switch] < statistics.median(hosts[n] for n in below):
            others = sum(hosts[n] for n in below)
            return share >= 0.2, (share >= 0.2) * (1 - hosts[switch] / others), len(below)
        return False, share if share >= 0.5 else 0, len(below)

    while True:
        ranked = [
            (*suspicion(s), -hosts[s], s)
            for s in sorted(bearing, key=key)
            if any(n in bearing for n in graph[s])
        ]
        worst = max(ranked, default=(False, 0, 0, 0, 0))
        if not worst[1]:
            return bearing
        bearing.remove(worst[4])


def _l2_candidates(graph: nx.Graph[int], bearing: set[int]) -> set[int]:
    """Switches next to leaves, except a spine that a wrong cable joins to a leaf.

    Such a spine has more cables to other switches next to leaves. Those that have most of them are
    left out first, because they make L2 switches look alike.
    """
    near = {n for s in bearing for n in graph[s]} - bearing
    while True:
        share = {s: _cables(graph, s, near) / _cables(graph, s, bearing) for s in near}
        most = max(share.values(), default=0)
        if most <= 1:
            return near
        near -= {s for s in near if share[s] == most}


def _pods(
    graph: nx.Graph[int], leaves: Collection[int], l2s: set[int]
) -> tuple[list[set[int]], dict[int, int]]:
    """Pods of leaves that share more than half of their L2 switches, and the pod of each L2.

    An L2 switch belongs to the pod to which most of its cables go. A leaf forms no pod if
    none of its L2 switches belongs to that pod.
    """
    bit = {l2: 1 << i for i, l2 in enumerate(sorted(l2s))}
    by_mask = grouped((sum(bit[n] for n in graph[leaf] if n in bit), leaf) for leaf in leaves)
    joined: nx.utils.UnionFind[int] = nx.utils.UnionFind(by_mask)
    for a, b in _overlapping(by_mask):
        few = min(a.bit_count(), b.bit_count())
        if joined[a] != joined[b] and 2 * (a & b).bit_count() > few:
            joined.union(a, b)
    pods = [
        {leaf for mask in masks for leaf in by_mask[mask]}
        for masks in joined.to_sets()
        if any(masks)
    ]
    pods += [{leaf} for leaf in by_mask[0]]
    pods.sort(key=min)
    pod_of: dict[int, int] = {}
    _place_l2s(graph, l2s, pods, pod_of)
    return _without_spines(graph, pods, pod_of, by_mask[0])


def _most(part: int, whole: int) -> bool:
    """Whether one pod has more than two thirds of the L2 switches next to a switch."""
    return 3 * part > 2 * whole


def _overlapping(masks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Pairs of masks with a common bit; a pair may come several times."""
    by_bit: dict[int, list[int]] = defaultdict(list)
    for mask in masks:
        left = mask
        while left:
            by_bit[left.bit_length()].append(mask)
            left ^= 1 << left.bit_length() - 1
    for sharing in by_bit.values():
        yield from itertools.combinations(sharing, 2)


def _bridges(graph: nx.Graph[int], leaves: Iterable[int], l2s: set[int]) -> set[int]:
    """Leaves that are next to L2 switches of several pods, without most of them in one.

    L2 switches belong together if at least half of the leaves below them are below both. Two
    leaves with most of their L2 switches in one such set make it a pod.
    """
    above = {leaf: frozenset(n for n in graph[leaf] if n in l2s) for leaf in leaves}
    below: dict[int, set[int]] = defaultdict(set)
    for leaf, upper in above.items():
        for l2 in upper:
            below[l2].add(leaf)
    together = nx.utils.UnionFind(sorted(below))
    for upper in set(above.values()):
        for a, b in itertools.combinations(sorted(upper), 2):
            both, either = len(below[a] & below[b]), len(below[a] | below[b])
            if 2 * both >= either:
                together.union(a, b)
    counts = {leaf: Counter(together[l2] for l2 in upper) for leaf, upper in above.items()}
    homes = Counter(
        home
        for count in counts.values()
        for home, most in count.most_common(1)
        if _most(most, count.total())
    )
    pods = {home for home, size in homes.items() if size > 1}
    bridges = set()
    for leaf, count in counts.items():
        inside = [count[home] for home in count if home in pods]
        if len(inside) > 1 and not _most(max(inside), count.total()):
            bridges.add(leaf)
    return bridges if 2 * len(bridges) < len(above) else set()


def _edges(
    graph: nx.Graph[int],
    rest: Collection[int],
    hosts: Counter[int],
    sure: Collection[int],
    pod_of: Mapping[int, int],
) -> set[int]:
    """Switches with hosts next to L2 switches of several pods that are not cabled as spines are.

    Compared are the spines without hosts that reach the same pods; if there is none, those with
    fewer hosts than cables; if there is none either, nothing is an edge. A spine with services is
    next to most of the L2 switches of one of them, or to as many in as many pods but one; or it
    has few hosts. If it has as many hosts as cables, it has as many cables to as many L2 switches
    in as many pods, or the cables that one of them has to the pods that it reaches; and it never
    has twice as many hosts as cables.
    """
    below = {s: {n: graph[s][n]["cables"] for n in graph[s] if n in pod_of} for s in rest}
    free = [s for s in sorted(rest) if below[s] and not hosts[s]]
    full = [s for s in sorted(rest) if below[s] and 0 < hosts[s] < _cables(graph, s, graph)]
    found = set()
    for s, l2s in below.items():
        if not hosts[s]:
            continue
        pods = {pod_of[n] for n in l2s}
        peers = [below[n] for n in free if any(pod_of[l2] in pods for l2 in below[n])]
        peers = peers or [
            below[n] for n in full if n != s and any(pod_of[l2] in pods for l2 in below[n])
        ]
        if not peers:
            continue
        uplinks = _cables(graph, s, graph)
        shapes = [_shape(peer, pod_of) for peer in peers]
        exact = _shape(l2s, pod_of) in shapes
        alike = exact or any(
            2 * len(l2s.keys() & peer) > len(l2s.keys() | peer)
            or _differences(_shape(l2s, pod_of), shape) < 2
            for peer, shape in zip(peers, shapes, strict=True)
        )
        if hosts[s] >= uplinks:
            reached = [{n: peer[n] for n in peer if pod_of[n] in pods} for peer in peers]
            alike = (exact or l2s in reached) and hosts[s] < 2 * uplinks
        if not alike and (s in sure or hosts[s] >= uplinks):
            found.add(s)
    return found


def _shape(l2s: Mapping[int, int], pod_of: Mapping[int, int]) -> Counter[tuple[int, ...]]:
    """The cables to the L2 switches of each pod, whichever pods and switches they are."""
    by_pod = grouped((pod_of[l2], cables) for l2, cables in sorted(l2s.items()))
    return Counter(tuple(sorted(cables)) for cables in by_pod.values())


def _differences(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> int:
    """The number of pods with other numbers of L2 switches."""
    a, b = (Counter(map(len, shape.elements())) for shape in (one, other))
    return ((a - b) + (b - a)).total()


def _alone(
    graph: nx.Graph[int],
    pods: Iterable[set[int]],
    pod_of: Mapping[int, int],
    services: Collection[int],
) -> set[int]:
    """Leaves without a cable to an L2 switch: below switches above those, or with services only."""
    leaves = {leaf for pod in pods for leaf in pod}
    found = set()
    for leaf in leaves:
        near = set(graph[leaf])
        if near and near.isdisjoint(pod_of):
            above = near - leaves
            if leaf in services or (
                above == near and any(n in pod_of for s in above for n in graph[s])
            ):
                found.add(leaf)
    return found


def _renumbered(
    pods: list[set[int]], pod_of: Mapping[int, int]
) -> tuple[list[set[int]], dict[int, int]]:
    """The pods that have leaves, and the pod of each L2 switch in them."""
    kept = {old: new for new, old in enumerate(n for n, pod in enumerate(pods) if pod)}
    return [pods[n] for n in kept], {l2: kept[pod] for l2, pod in pod_of.items() if pod in kept}


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
    graph: nx.Graph[int],
    unsure: Iterable[int],
    pods: list[set[int]],
    pod_of: dict[int, int],
    spare: set[int],
) -> set[int]:
    """Put switches with few hosts into pods; return those that are next to no pod yet.

    One that is next to the same few L2 switches of a pod as a switch of ``spare``, without hosts,
    is a spine, too.
    """
    leftover, size = set(), Counter(pod_of.values())
    for switch in unsure:
        votes = Counter(pod_of[n] for n in graph[switch] if n in pod_of)
        if not votes:
            leftover.add(switch)
        elif _most(max(votes.values()), votes.total()):
            pod = max(votes, key=lambda pod: votes[pod])
            own = {n for n in graph[switch] if pod_of.get(n) == pod}
            peers = {n for l2 in own for n in graph[l2]} & spare
            alike = any(own == {n for n in graph[p] if pod_of.get(n) == pod} for p in peers)
            if not alike or 2 * len(own) >= size[pod]:
                pods[pod].add(switch)
    return leftover


def _place_l2s(
    graph: nx.Graph[int], l2s: Iterable[int], pods: list[set[int]], pod_of: dict[int, int]
) -> None:
    """Put L2 switches that are next to leaves with few hosts only into the pods of those."""
    pod_of_leaf = {leaf: number for number, pod in enumerate(pods) for leaf in pod}
    for l2 in sorted(l2s):
        votes = _votes(graph, l2, pod_of_leaf)
        if votes:
            pod_of[l2] = min(votes, key=lambda pod: (-votes[pod], pod))


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
