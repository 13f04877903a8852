# SPDX-License-Identifier: Apache-2.0

"""Positions in the tree: L2 indices that agree in all pods, spine groups, cable bundles.

An L2 index means the same spines in every pod. If each spine is a physical switch of its own,
the index follows from the cables. If a director joins several L2 switches of a pod to the same
spines, those L2 switches are interchangeable and get indices in their order. Each index then has
its own virtual spines on the shared ones.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laas_service.adapters.fabric_import.recovery.levels import Key, Levels
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Cable, PortRef
from laas_service.domain.topology import LeafLink, Link, SpineLink, Xgft

Pair = tuple[int, int]
"""GUIDs of a lower and an upper switch."""
Bundles = Mapping[Pair, list[tuple[PortRef, PortRef]]]
"""The cables of each pair, lower end first, in order of the lower port."""


@dataclass(frozen=True)
class Places:
    """The GUID of the switch at each position of the tree; 0 if there is none."""

    pods: int
    leaf_guids: tuple[tuple[int, ...], ...]
    l2_guids: tuple[tuple[int, ...], ...]
    spine_guids: tuple[tuple[int, ...], ...]
    bundles: tuple[int, int]

    def tree(self, hosts_per_leaf: int) -> Xgft:
        """The smallest regular tree with these positions."""
        m2, l2s = len(self.leaf_guids[0]), len(self.l2_guids[0])
        spines = len(self.spine_guids[0]) if self.spine_guids else 0
        w2 = max(l2s, 1) * self.bundles[0] if m2 > 1 or l2s else 0
        w3 = max(spines, 1) * self.bundles[1] if self.pods > 1 else spines * self.bundles[1]
        return Xgft((hosts_per_leaf, m2, self.pods), (1, w2, w3), self.bundles)


def places(levels: Levels, bundles: Bundles, key: Key) -> Places:
    """Determine the position of every leaf, L2 switch and spine; see the module."""
    spines = set(levels.spines)
    above: dict[int, Counter[int]] = defaultdict(Counter)
    for (lower, upper), cables in bundles.items():
        if upper in spines:
            above[lower][upper] = len(cables)
    l2_guids = _aligned([pod.l2s for pod in levels.pods], above)
    groups = _spine_groups(l2_guids, above, key)
    leaf_bundles = [
        len(bundles[leaf, l2])
        for pod in levels.pods
        for leaf in pod.leaves
        for l2 in pod.l2s
        if (leaf, l2) in bundles
    ]
    spine_bundles = [
        above[row[i]][spine]
        for row in l2_guids
        for i, group in enumerate(groups)
        for spine in group
        if above[row[i]][spine]
    ]
    return Places(
        len(levels.pods),
        _padded([pod.leaves for pod in levels.pods]),
        _padded(l2_guids),
        _padded(groups),
        (_most_common(leaf_bundles), _most_common(spine_bundles)),
    )


def _most_common(sizes: Iterable[int]) -> int:
    """The most common size; the larger of two equally common ones; 1 if there is none."""
    counts = Counter(sizes)
    return max(counts, key=lambda size: (counts[size], size), default=1)


def _padded(rows: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    filled = [tuple(row) for row in rows]
    width = max(map(len, filled), default=0)
    return tuple(row + (0,) * (width - len(row)) for row in filled)


def _aligned(
    pods: list[tuple[int, ...]], above: Mapping[int, Counter[int]]
) -> tuple[tuple[int, ...], ...]:
    """Order the L2 switches of each pod so that equal indices share spines.

    The pod with the most L2 switches sets the indices. Every switch of another pod gets the
    free index with whose spines it shares most; ties keep the order of the switches.
    """
    width = max(map(len, pods), default=0)
    order = sorted(range(len(pods)), key=lambda pod: (-len(pods[pod]), pod))
    rows: dict[int, tuple[int, ...]] = {}
    spines_of: list[set[int]] = [set() for _ in range(width)]
    for pod in order:
        row = [0] * width
        ranked = sorted(
            (-len(spines_of[i] & above[l2].keys()), rank, i, l2)
            for rank, l2 in enumerate(pods[pod])
            for i in range(width)
        )
        placed: set[int] = set()
        for *_, i, l2 in ranked:
            if not row[i] and l2 not in placed:
                row[i] = l2
                placed.add(l2)
        rows[pod] = tuple(row)
        for i, l2 in enumerate(row):
            spines_of[i] |= above[l2].keys()
    return tuple(rows[pod] for pod in range(len(pods)))


def _spine_groups(
    l2_guids: tuple[tuple[int, ...], ...], above: Mapping[int, Counter[int]], key: Key
) -> list[tuple[int, ...]]:
    """The spines of each L2 index: those that more than half as many pods reach at this
    index as at any other. A wrong cable joins the others."""
    width = len(l2_guids[0]) if l2_guids else 0
    indices = grouped(
        (spine, i) for row in l2_guids for i, l2 in enumerate(row) for spine in above[l2]
    )
    reach = {spine: Counter(pods) for spine, pods in indices.items()}
    groups: list[list[int]] = [[] for _ in range(width)]
    for spine in sorted(reach, key=key):
        most = max(reach[spine].values())
        for i, count in reach[spine].items():
            if 2 * count > most:
                groups[i].append(spine)
    return [tuple(group) for group in groups]


@dataclass(frozen=True)
class Wiring:
    """Every switch-to-switch cable, and the links of the tree without a cable."""

    cables: tuple[Cable, ...]
    absent: Mapping[Link, Pair]
    """The switches that each absent link would join; 0 for one that is absent, too."""


def wiring(places: Places, tree: Xgft, bundles: Bundles) -> Wiring:
    """Assign links to cables; only the first ``p`` cables of a bundle get one."""
    link_of: dict[tuple[PortRef, PortRef], Link] = {}
    absent: dict[Link, Pair] = {}
    for link, pair, cable in _links(places, tree):
        ends = bundles.get(pair, [])
        if cable < len(ends):
            link_of[ends[cable]] = link
        else:
            absent[link] = pair
    cables = sorted(ends for bundle in bundles.values() for ends in bundle)
    return Wiring(tuple(Cable(*ends, link_of.get(ends)) for ends in cables), absent)


def _links(places: Places, tree: Xgft) -> Iterable[tuple[Link, Pair, int]]:
    """Every link of the tree, the switches that it joins, and its number in their bundle."""
    p2, p3 = tree.cables
    for pod, leaves in enumerate(places.leaf_guids):
        l2s = places.l2_guids[pod]
        for leaf, lower in enumerate(leaves):
            for up in range(tree.w[1]):
                upper = l2s[up // p2] if up // p2 < len(l2s) else 0
                yield LeafLink(pod, leaf, up), (lower, upper), up % p2
        for l2, lower in enumerate(l2s):
            for up in range(tree.w[2]):
                group = places.spine_guids[l2] if places.spine_guids else ()
                upper = group[up // p3] if up // p3 < len(group) else 0
                yield SpineLink(pod, l2, up), (lower, upper), up % p3
