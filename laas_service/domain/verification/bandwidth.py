# SPDX-License-Identifier: Apache-2.0


"""Promise 2, the substance: any permutation is routed over the allocation's own links.

The construction follows the proof of Jigsaw (HPDC'21), Theorems 5 and 6. A leaf
link that may carry O1 flows is O1 *lanes*, a spine link O1 * O2. The flows
between leaves are the edges of a bipartite multigraph of leaves, which is
coloured (König, 1916) with as many colours as a leaf has lanes: a colour is a
set of flows, at most one from and one to each leaf. Missing hosts of the
remainder leaf send to themselves, so each colour in which they do so can be put
on a lane that the remainder leaf lacks. The flows that meet at one L2 index are
then coloured likewise between pods, over its spine uplinks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits, link_name
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.partition import (
    WHOLE_LINKS,
    L2Place,
    LeafPlace,
    Partition,
)

N = TypeVar("N", bound=Hashable)
"""A leaf, or a pod."""

Permutation = Mapping[int, int]
"""Host -> the host it sends to; each host of the allocation once on either side."""


class Route(NamedTuple):
    """The links of one flow on one rail, those it climbs and those it descends."""

    rail: int
    source: int
    target: int
    up: tuple[Link, ...]
    down: tuple[Link, ...]


class Blocked(Exception):
    """Some flow finds no lane; says where. Not an error but the answer "no"."""


def permutation_violations(
    topology: Topology, allocation: Allocation, permutations: Mapping[str, Permutation]
) -> list[str]:
    """Permutations (by name) that cannot be routed over the allocation's own links.

    All rails carry the permutation at once. At most O1 flows may meet on a leaf
    link and O1 * O2 on a spine link in each direction, O being the taper of the
    level (1 on a full tree). For shapes that meet the formal conditions the
    construction always succeeds; for others it may fail although some routing exists.
    """
    if allocation.policy not in WHOLE_LINKS:
        return []
    found = []
    allocation = addressable(topology, allocation)
    for name, permutation in permutations.items():
        try:
            found_here = _overloads(topology, allocation, routes(topology, allocation, permutation))
        except Blocked as blocked:
            found_here = [str(blocked)]
        found += [f"bandwidth: {allocation.id}: {name}: {text}" for text in found_here]
    return found


def routes(topology: Topology, allocation: Allocation, permutation: Permutation) -> list[Route]:
    """A route for every flow that leaves its leaf, on every rail.

    Raises:
        Blocked: the construction finds none.
    """
    tree = topology.tree
    partition = Partition(topology, allocation)
    copies = tree.taper[0] * tree.taper[1]
    found: list[Route] = []
    for rails in partition.planes(topology):
        meeting: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for rail in rails:
            for source, target, up in _leaf_level(topology, partition, rail, permutation):
                meeting[up // tree.cables[0]].append((rail, source, target, up))
        for l2, flows in sorted(meeting.items()):
            found += _spine_level(topology, partition, l2, flows, copies)
    return found


def _leaf_level(
    topology: Topology, partition: Partition, rail: int, permutation: Permutation
) -> Iterator[tuple[int, int, int]]:
    """(source, target, uplink index) of every flow that leaves its leaf on a rail."""
    copies = topology.tree.taper[0]
    place = {host: leaf for leaf, hosts in partition.rails[rail].hosts.items() for host in hosts}
    flows = [(s, t) for s, t in permutation.items() if place[s] != place[t]]
    lanes = {
        leaf: _lanes(partition.rails[rail].uplinks[leaf], copies) for leaf in set(place.values())
    }
    try:
        taken = spread([(place[s], place[t]) for s, t in flows], lanes)
    except Blocked as blocked:
        raise Blocked(f"rail {rail}, leaves: {blocked}") from blocked
    for (source, target), lane in zip(flows, taken, strict=True):
        yield source, target, lane // copies


def _spine_level(
    topology: Topology,
    partition: Partition,
    l2: int,
    flows: Sequence[tuple[int, int, int, int]],
    copies: int,
) -> Iterator[Route]:
    """The routes of the flows (rail, source, target, uplink) that meet at one L2 index."""

    def leaf(rail: int, host: int) -> LeafPlace:
        port = topology.ports_of(host)[rail]
        return LeafPlace(port.pod, port.leaf)

    ends = [(leaf(rail, source), leaf(rail, target)) for rail, source, target, _ in flows]
    across = [n for n, (a, b) in enumerate(ends) if a.pod != b.pod]
    pods = {place.pod for pair in ends for place in pair}
    lanes = {pod: _lanes(partition.spines.get(L2Place(pod, l2), set()), copies) for pod in pods}
    try:
        taken = spread([(ends[n][0].pod, ends[n][1].pod) for n in across], lanes)
    except Blocked as blocked:
        raise Blocked(f"pods at L2 index {l2}: {blocked}") from blocked
    spines = dict(zip(across, taken, strict=True))
    for number, (rail, source, target, up) in enumerate(flows):
        a, b = ends[number]
        climb: tuple[Link, ...] = (LeafLink(a.pod, a.leaf, up),)
        fall: tuple[Link, ...] = (LeafLink(b.pod, b.leaf, up),)
        if number in spines:
            spine = spines[number] // copies
            climb = (*climb, SpineLink(a.pod, l2, spine))
            fall = (SpineLink(b.pod, l2, spine), *fall)
        yield Route(rail, source, target, climb, fall)


def _lanes(uplinks: set[int], copies: int) -> int:
    """A mask with ``copies`` bits for each uplink."""
    mask = 0
    for up in uplinks:
        mask |= (1 << copies) - 1 << up * copies
    return mask


def _overloads(topology: Topology, allocation: Allocation, found: Sequence[Route]) -> list[str]:
    """Links that routes use too often or without owning them: the construction checked."""
    own = set(allocation.links(topology))
    climbs = Counter(link for route in found for link in route.up)
    falls = Counter(link for route in found for link in route.down)
    leaf_taper, l2_taper = topology.tree.taper
    wrong = []
    for load in (climbs, falls):
        for link, flows in load.items():
            limit = leaf_taper * (1 if isinstance(link, LeafLink) else l2_taper)
            if link not in own:
                wrong.append(f"link {link_name(link)} is not its own")
            if flows > limit:
                wrong.append(f"link {link_name(link)} carries {flows} flows, at most {limit} may")
    return wrong


# -- lanes by colouring ---------------------------------------------------------


def spread(flows: Sequence[tuple[N, N]], lanes: Mapping[N, int]) -> list[int]:
    """A lane for each flow, held at both ends, used once each way at each end.

    ``lanes`` gives each node's as a mask. Exact where all nodes hold the same lanes,
    except one that holds a subset of them and has as many flows out as in.

    Raises:
        Blocked: a node has more flows than lanes, or lanes do not match up.
    """
    sent, received = Counter(s for s, _ in flows), Counter(t for _, t in flows)
    width = 0
    for node, mask in lanes.items():
        most = max(sent[node], received[node])
        if most > mask.bit_count():
            raise Blocked(f"{_name(node)} has {most} flows and room for {mask.bit_count()}")
        width = max(width, mask.bit_count())
    idle = [(node, node) for node in lanes for _ in range(width - max(sent[node], received[node]))]
    colours = colouring([*flows, *idle], width)[: len(flows)]
    every = 0
    for mask in lanes.values():
        every |= mask
    fitting = [every] * width
    for (source, target), colour in zip(flows, colours, strict=True):
        fitting[colour] &= lanes[source] & lanes[target]
    lane_of_colour = _distinct(fitting)
    return [lane_of_colour[colour] for colour in colours]


def _name(node: object) -> str:
    return "/".join(map(str, node)) if isinstance(node, tuple) else str(node)


def colouring(edges: Sequence[tuple[N, N]], colours: int) -> list[int]:
    """A colour below ``colours`` for each edge; edges that share an end differ in colour.

    The left and the right end of an edge are different nodes even if equal. By
    König's theorem ``colours`` need only be the largest degree: where two ends have
    no free colour in common, swapping two colours along a path makes one.
    """
    left: dict[N, list[int]] = defaultdict(lambda: [-1] * colours)
    right: dict[N, list[int]] = defaultdict(lambda: [-1] * colours)
    for number, (source, target) in enumerate(edges):
        mine, theirs = left[source], right[target]
        a, b = mine.index(-1), theirs.index(-1)
        if theirs[a] >= 0:
            _swap(edges, left, right, target, a, b)
        mine[a] = theirs[a] = number
    found = [-1] * len(edges)
    for row in left.values():
        for colour, number in enumerate(row):
            if number >= 0:
                found[number] = colour
    return found


def _swap(
    edges: Sequence[tuple[N, N]],
    left: dict[N, list[int]],
    right: dict[N, list[int]],
    target: N,
    a: int,
    b: int,
) -> None:
    """Swap colours a and b along the path from the right node ``target``, freeing a there."""
    path = []
    number = right[target][a]
    while number >= 0:
        path.append(number)
        source, end = edges[number]
        number = left[source][b] if len(path) % 2 else right[end][a]
    for step, number in enumerate(path):
        old = b if step % 2 else a
        left[edges[number][0]][old] = right[edges[number][1]][old] = -1
    for step, number in enumerate(path):
        new = a if step % 2 else b
        left[edges[number][0]][new] = right[edges[number][1]][new] = number


def _distinct(choices: Sequence[int]) -> list[int]:
    """A different lane for each of ``choices``, which are masks of lanes."""
    chosen: list[int] = []
    owner: dict[int, int] = {}
    for first in range(len(choices)):
        came_from: dict[int, int] = {}
        queue, end = [first], -1
        while queue and end < 0:
            taker = queue.pop()
            for lane in bits(choices[taker]):
                if lane in came_from:
                    continue
                came_from[lane] = taker
                if lane not in owner:
                    end = lane
                    break
                queue.append(owner[lane])
        if end < 0:
            raise Blocked("flows that must share a lane hold none in common")
        chosen.append(-1)
        while end >= 0:
            taker = came_from[end]
            owner[end], chosen[taker], end = taker, end, chosen[taker]
    return chosen


# -- permutations -----------------------------------------------------------------


def random_permutation(hosts: Sequence[int], random: Random) -> Permutation:
    """Every host sends to one host (perhaps itself), chosen by ``random``."""
    targets = list(hosts)
    random.shuffle(targets)
    return dict(zip(hosts, targets, strict=True))


def adversarial_permutations(topology: Topology, allocation: Allocation) -> dict[str, Permutation]:
    """Permutations that load what is scarce: leaves and pods emptied, remainders flooded."""
    hosts = sorted(allocation.hosts(topology), key=topology.place_of)
    groups: dict[int, list[int]] = defaultdict(list)
    pods: dict[int, list[int]] = defaultdict(list)
    for host in hosts:
        group = topology.place_of(host)[0]
        groups[group].append(host)
        pods[group // topology.groups_per_pod].append(host)
    found = {
        "every host to the next": _shift(hosts, 1),
        "every leaf to the next": _shift(hosts, max(map(len, groups.values()), default=0)),
        "every pod to the next": _shift(hosts, max(map(len, pods.values()), default=0)),
        "half way round": _shift(hosts, len(hosts) // 2),
        "reversed": dict(zip(hosts, reversed(hosts), strict=True)),
        "leaves in pairs": _pairs(list(groups.values())),
        "pods in pairs": _pairs(list(pods.values())),
        "smallest leaf with all others": _flood(list(groups.values())),
        "smallest pod with all others": _flood(list(pods.values())),
    }
    return {name: {**{h: h for h in hosts}, **pairs} for name, pairs in found.items()}


def _shift(hosts: Sequence[int], by: int) -> Permutation:
    return {host: hosts[(n + by) % len(hosts)] for n, host in enumerate(hosts)}


def _pairs(parts: Sequence[Sequence[int]]) -> Permutation:
    """First and second part swap their hosts, third and fourth, and so on."""
    found: dict[int, int] = {}
    for one, other in zip(parts[::2], parts[1::2], strict=False):
        for a, b in zip(one, other, strict=False):
            found[a], found[b] = b, a
    return found


def _flood(parts: Sequence[Sequence[int]]) -> Permutation:
    """The smallest part swaps each host with another part's, in turn; the rest shift."""
    if len(parts) < 2:
        return {}
    smallest = min(parts, key=len)
    others = [part for part in parts if part is not smallest]
    found: dict[int, int] = {}
    for turn, host in enumerate(smallest):
        other = others[turn % len(others)]
        partner = other[turn // len(others)]
        found[host], found[partner] = partner, host
    ranks = range(max(map(len, others)))
    rest = [host for rank in ranks for part in others for host in part[rank : rank + 1]]
    return {**found, **_shift([host for host in rest if host not in found], 1)}
