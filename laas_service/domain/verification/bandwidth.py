# SPDX-License-Identifier: Apache-2.0

"""Full bandwidth (promise 2): routes any permutation over the allocation's own links.

The construction follows the proof of Jigsaw (HPDC'21), Theorems 5 and 6. A leaf link that
may carry O1 flows has O1 *lanes*, a spine link O1 * O2; O1 and O2 are the tapers of the two
levels. The flows between leaves are the edges of a bipartite multigraph of leaves. It is
coloured (König, 1916) with as many colours as a leaf has lanes: a colour is a set of flows,
at most one from and one to each leaf. Missing hosts of the remainder leaf count as sending
to themselves, so a colour in which they do so can use a lane that the remainder leaf lacks.
The flows that meet at one L2 index are coloured in the same way between pods, over the
spine uplinks of that index.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from random import Random
from typing import NamedTuple, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.grouping import grouped
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, bits, link_name
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.partition import (
    WHOLE_LINKS,
    L2Place,
    LeafPlace,
    TenantTree,
)

N = TypeVar("N", bound=Hashable)
"""A leaf, or a pod."""

Permutation = Mapping[int, int]
"""Sending host -> receiving host; each host of the allocation occurs once on either side."""


class Route(NamedTuple):
    """The links of one flow on one rail: those upwards and those downwards, in order."""

    rail: int
    source: int
    target: int
    up: tuple[Link, ...]
    down: tuple[Link, ...]


class Blocked(Exception):
    """The construction finds no lane for a flow; the message names the place."""


def permutation_violations(
    topology: Topology, allocation: Allocation, permutations: Mapping[str, Permutation]
) -> list[str]:
    """Violations by ``permutations`` (by name) that the allocation's own links cannot carry.

    All rails carry the permutation at once. In each direction at most O1 flows may use a
    leaf link and O1 * O2 a spine link, O being the taper of the level (1 on a full tree).
    The construction always succeeds for shapes that meet the formal conditions; for other
    shapes it may fail although a routing exists. Policies without whole links promise no
    bandwidth, so the result is empty.
    """
    if allocation.policy not in WHOLE_LINKS:
        return []
    violations = []
    allocation = addressable(topology, allocation)
    for name, permutation in permutations.items():
        try:
            problems = list(
                _overloads(topology, allocation, routes(topology, allocation, permutation))
            )
        except Blocked as blocked:
            problems = [str(blocked)]
        violations += [f"bandwidth: {allocation.id}: {name}: {text}" for text in problems]
    return violations


def routes(topology: Topology, allocation: Allocation, permutation: Permutation) -> list[Route]:
    """A route on every rail for every flow that leaves its leaf.

    Raises:
        Blocked: the construction finds no lane for a flow.
    """
    tree = topology.tree
    partition = TenantTree(topology, allocation)
    copies = tree.taper[0] * tree.taper[1]
    flow_routes: list[Route] = []
    for rails in partition.planes(topology):
        meeting = grouped(
            (up // tree.cables[0], (rail, source, target, up))
            for rail in rails
            for source, target, up in _leaf_level(topology, partition, rail, permutation)
        )
        for l2, flows in sorted(meeting.items()):
            flow_routes += _spine_level(topology, partition, l2, flows, copies)
    return flow_routes


def _leaf_level(
    topology: Topology, partition: TenantTree, rail: int, permutation: Permutation
) -> Iterator[tuple[int, int, int]]:
    """(source host, target host, uplink index) of every flow that leaves its leaf on a rail."""
    copies = topology.tree.taper[0]
    place = {host: leaf for leaf, hosts in partition.rails[rail].hosts.items() for host in hosts}
    flows = [(s, t) for s, t in permutation.items() if place[s] != place[t]]
    lanes = {
        leaf: _lanes(partition.rails[rail].uplinks[leaf], copies) for leaf in set(place.values())
    }
    try:
        lane_of_flow = spread([(place[s], place[t]) for s, t in flows], lanes)
    except Blocked as blocked:
        raise Blocked(f"rail {rail}, leaves: {blocked}") from blocked
    for (source, target), lane in zip(flows, lane_of_flow, strict=True):
        yield source, target, lane // copies


def _spine_level(
    topology: Topology,
    partition: TenantTree,
    l2: int,
    flows: Sequence[tuple[int, int, int, int]],
    copies: int,
) -> Iterator[Route]:
    """The routes of the flows (rail, source, target, uplink) that meet at one L2 index."""

    def leaf(rail: int, host: int) -> LeafPlace:
        port = topology.ports_of(host)[rail]
        return LeafPlace(port.pod, port.leaf)

    ends = [(leaf(rail, source), leaf(rail, target)) for rail, source, target, _ in flows]
    crossing = [n for n, (a, b) in enumerate(ends) if a.pod != b.pod]
    pods = {place.pod for pair in ends for place in pair}
    lanes = {pod: _lanes(partition.spines.get(L2Place(pod, l2), set()), copies) for pod in pods}
    try:
        lane_of_flow = spread([(ends[n][0].pod, ends[n][1].pod) for n in crossing], lanes)
    except Blocked as blocked:
        raise Blocked(f"pods at L2 index {l2}: {blocked}") from blocked
    spines = dict(zip(crossing, lane_of_flow, strict=True))
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
    return sum((1 << copies) - 1 << up * copies for up in uplinks)


def _overloads(
    topology: Topology, allocation: Allocation, flow_routes: Sequence[Route]
) -> Iterator[str]:
    """Check of the constructed routes: links that they overload, or that the tenant lacks."""
    own = set(allocation.links(topology))
    climbs = Counter(link for route in flow_routes for link in route.up)
    falls = Counter(link for route in flow_routes for link in route.down)
    leaf_taper, l2_taper = topology.tree.taper
    for load in (climbs, falls):
        for link, flows in load.items():
            limit = leaf_taper * (1 if isinstance(link, LeafLink) else l2_taper)
            if link not in own:
                yield f"link {link_name(link)} is not its own"
            if flows > limit:
                yield f"link {link_name(link)} carries {flows} flows, at most {limit} may"


# -- lanes by colouring ---------------------------------------------------------


def spread(flows: Sequence[tuple[N, N]], lanes: Mapping[N, int]) -> list[int]:
    """A lane for each flow (source, target), such that both ends have the lane.

    A node uses a lane for at most one flow out and one flow in. ``lanes`` has a mask of
    lanes for each node. The result is exact if all nodes have the same lanes, except one
    node that has a subset of them and as many flows out as in.

    Raises:
        Blocked: a node has more flows than lanes, or no lanes fit the colours.
    """
    sent, received = Counter(s for s, _ in flows), Counter(t for _, t in flows)
    most = {node: max(sent[node], received[node]) for node in lanes}
    for node, mask in lanes.items():
        if most[node] > mask.bit_count():
            raise Blocked(f"{_name(node)} has {most[node]} flows and room for {mask.bit_count()}")
    width = max((mask.bit_count() for mask in lanes.values()), default=0)
    idle = [(node, node) for node in lanes for _ in range(width - most[node])]
    colours = colouring([*flows, *idle], width)[: len(flows)]
    lanes_of_colour = [reduce(or_, lanes.values(), 0)] * width
    for (source, target), colour in zip(flows, colours, strict=True):
        lanes_of_colour[colour] &= lanes[source] & lanes[target]
    lane_of_colour = _distinct(lanes_of_colour)
    return [lane_of_colour[colour] for colour in colours]


def _name(node: object) -> str:
    return "/".join(map(str, node)) if isinstance(node, tuple) else str(node)


def colouring(edges: Sequence[tuple[N, N]], colours: int) -> list[int]:
    """A colour 0..colours - 1 for each edge; edges that share an end differ in colour.

    The left and the right end of an edge are different nodes even if they are equal. By
    König's theorem the largest degree is enough for ``colours``: where two ends have no
    free colour in common, swapping two colours along a path frees one.
    """
    left: dict[N, list[int]] = defaultdict(lambda: [-1] * colours)
    right: dict[N, list[int]] = defaultdict(lambda: [-1] * colours)
    for number, (source, target) in enumerate(edges):
        at_source, at_target = left[source], right[target]
        a, b = at_source.index(-1), at_target.index(-1)
        if at_target[a] >= 0:
            _swap(edges, left, right, target, a, b)
        at_source[a] = at_target[a] = number
    colour_of = {n: colour for row in left.values() for colour, n in enumerate(row)}
    return [colour_of[number] for number in range(len(edges))]


def _swap(
    edges: Sequence[tuple[N, N]],
    left: dict[N, list[int]],
    right: dict[N, list[int]],
    target: N,
    a: int,
    b: int,
) -> None:
    """Swap colours ``a`` and ``b`` along the path from the right node ``target``, to free ``a``."""
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
    """A different lane for each mask of ``choices``, by augmenting paths.

    Raises:
        Blocked: there are no such lanes.
    """
    owner: dict[int, int] = {}

    def find_lane(taker: int, tried: set[int]) -> bool:
        for lane in sorted(bits(choices[taker]), key=owner.__contains__):  # free ones first
            if lane not in tried:
                tried.add(lane)
                if lane not in owner or find_lane(owner[lane], tried):
                    owner[lane] = taker
                    return True
        return False

    if not all(find_lane(taker, set()) for taker in range(len(choices))):
        raise Blocked("flows that must share a lane hold none in common")
    lane_of = {taker: lane for lane, taker in owner.items()}
    return [lane_of[taker] for taker in range(len(choices))]


# -- permutations -----------------------------------------------------------------


def random_permutation(hosts: Sequence[int], random: Random) -> Permutation:
    """A random permutation of the hosts; a host may send to itself."""
    targets = list(hosts)
    random.shuffle(targets)
    return dict(zip(hosts, targets, strict=True))


def adversarial_permutations(topology: Topology, allocation: Allocation) -> dict[str, Permutation]:
    """Permutations by name that load the scarce links: between leaves and pods, to remainders."""
    hosts = sorted(allocation.hosts(topology), key=topology.place_of)
    groups = grouped((topology.place_of(host)[0], host) for host in hosts)
    pods = grouped((topology.place_of(h)[0] // topology.groups_per_pod, h) for h in hosts)
    named = {
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
    return {name: {**{h: h for h in hosts}, **pairs} for name, pairs in named.items()}


def _shift(hosts: Sequence[int], by: int) -> Permutation:
    return {host: hosts[(n + by) % len(hosts)] for n, host in enumerate(hosts)}


def _pairs(parts: Sequence[Sequence[int]]) -> Permutation:
    """The first and the second part exchange their hosts, as do the third and the fourth, ..."""
    partners: dict[int, int] = {}
    for first, second in zip(parts[::2], parts[1::2], strict=False):
        for a, b in zip(first, second, strict=False):
            partners[a], partners[b] = b, a
    return partners


def _flood(parts: Sequence[Sequence[int]]) -> Permutation:
    """Hosts of the smallest part pair up with the other parts in turn; other hosts shift by one."""
    if len(parts) < 2:
        return {}
    smallest = min(parts, key=len)
    others = [part for part in parts if part is not smallest]
    partners: dict[int, int] = {}
    for turn, host in enumerate(smallest):
        part = others[turn % len(others)]
        partner = part[turn // len(others)]
        partners[host], partners[partner] = partner, host
    ranks = range(max(map(len, others)))
    rest = [host for rank in ranks for part in others for host in part[rank : rank + 1]]
    return {**partners, **_shift([host for host in rest if host not in partners], 1)}
