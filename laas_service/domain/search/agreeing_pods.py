# SPDX-License-Identifier: Apache-2.0

"""Pods whose leaves and spines agree: rules out most shapes in few steps.

The full leaves of a pod share some uplinks. Of all sets of so many leaves of a pod only the
largest sets of shared uplinks matter (``PodLeaves.shared``), mostly a few. Each is a *node*. The
full pods of a placement are nodes of different pods whose sets of uplinks have enough in common,
above which the pods have enough spine uplinks in common. A remainder pod agrees with them. A shape
without such pods has no placement. Others may have none either: uplinks of a bundle are not looked
at one at a time, and a remainder leaf may be one of the full leaves of its pod.

What an earlier search ruled out has pods that agree only on something that has become free since.
So a later search looks at what is new. Most shapes are ruled out because few pods share that;
for the others, ``SharedSpines`` looks for pods that agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.carried_uplinks import CarriedUplinks
from laas_service.domain.search.pod_leaves import PodLeaves
from laas_service.domain.search.shared_spines import (
    Node,
    NodesOfPods,
    OutOfWork,
    Remainder,
    SharedSpines,
    Wanted,
)

MOST_REMEMBERED = 512
"""The most shapes that are remembered as ruled out, and the most lists of nodes that are kept."""


class AgreeingPods:
    """The search for nodes that agree, for the requests of one search."""

    def __init__(self, fabric: LedgerView, pods: Sequence[PodLeaves], budget: SearchBudget) -> None:
        self._now = Seen(tuple(pods), tuple(fabric.free_lanes))
        self._topology = fabric.topology
        self._widest = max(column.bundle.bit_count() for column in fabric.topology.columns)
        self._budget = budget
        self._carried = fabric.reader_cache(CarriedUplinks)
        self._misfits = fabric.reader_cache(AgreementMisfits)
        self._changed: dict[int, list[int]] = {}
        self._newer: dict[int, list[int]] = {}
        self._digits: list[int] = []
        self._shared: dict[int, int] = {}

    def uplinks(
        self, enough: Callable[[int], bool], width: int, shape: Shape, rest: int = 0
    ) -> int | None:
        """Uplinks that the leaves of some pods share for this shape; 0 if there are no such pods.

        Each full leaf needs ``width`` uplinks in each plane, which ``enough`` tests. The
        remainder pod has a leaf of ``rest`` hosts if that is not 0. None if the budget is used up.
        """
        key = shape.hosts, shape.pods, shape.leaves, shape.remainder_leaves, rest
        seen = self._misfits.known.get(key)
        if seen is not None and not self._newer_than(seen):
            return 0
        try:
            found = self._search(enough, width, shape, rest, seen)
        except OutOfWork:
            return None
        if not found:
            self._misfits.remember(key, self._now)
        return found

    def _newer_than(self, seen: Seen) -> list[int]:
        """The pods that have something free that they had not."""
        key = id(seen)
        if key not in self._newer:
            self._newer[key] = self._now.newer_than(seen)
        return self._newer[key]

    def _search(
        self,
        enough: Callable[[int], bool],
        width: int,
        shape: Shape,
        rest: int,
        seen: Seen | None,
    ) -> int:
        """``uplinks``; given what an earlier search saw, of nodes that use what is new since."""
        topology, leaf_hosts = self._topology, shape.hosts
        if not self._budget.spend(topology.pods // 4):
            raise OutOfWork
        full = self._carried.of(topology, shape.leaves)
        wanted = Wanted(enough, width * topology.planes, self._columns(width), shape.pods, full)
        new = None
        if seen is not None:
            new = self._new(seen, leaf_hosts, width, shape.leaves)
            if shape.remainder_leaves or rest:
                for pod, lanes in self._new_in_remainder(seen, width, shape, rest):
                    new[pod] = new.get(pod, 0) | lanes
            shared = self._shared_by(shape.pods)
            some = reduce(or_, new.values(), 0) & shared
            roomy = [
                lanes
                for pod, lanes in zip(self._now.pods, self._now.lanes, strict=True)
                if some & lanes and pod.counts[leaf_hosts] >= shape.leaves
            ]
            if len(roomy) < shape.pods:
                return 0
            shared &= counted_at_least(shape.pods, bit_counts(roomy))
            if not shared & some or full.marked(shared).bit_count() < wanted.columns:
                return 0
        nodes = self._nodes_of(leaf_hosts, enough, width, shape.leaves)
        if new is not None:
            all_lanes = self._now.lanes
            nodes = [node for node in nodes if some & all_lanes[node[0]]]
        if len(nodes) < shape.pods:
            return 0
        nodes = self._kernel(nodes, wanted)
        if not nodes:
            return 0
        remainder = None
        if shape.remainder_leaves or rest:
            remainder = self._remainder(enough, width, shape, rest)
            if not remainder.pods:
                return 0
        spines = SharedSpines(wanted, self._now.lanes, remainder, self._budget, new)
        return spines.uplinks(nodes)

    def _columns(self, width: int) -> int:
        """To how many columns ``width`` uplinks in each plane lead at least."""
        return -(-width // self._widest) * self._topology.planes

    def _remainder(
        self, enough: Callable[[int], bool], width: int, shape: Shape, rest: int
    ) -> Remainder:
        """The pods that have the remainder's leaves, and a leaf of ``rest`` hosts if not 0."""
        more, full, leaf = shape.remainder_leaves, None, None
        if more:
            nodes = self._nodes_of(shape.hosts, enough, width, more)
            full = NodesOfPods(nodes, self._carried.of(self._topology, more), self._columns(width))
        if rest:
            width = -(-rest // self._topology.taper[0])
            enough = self._enough(width)
            nodes = self._nodes_of(rest, enough, width, 1)
            carried = self._carried.of(self._topology, more + 1)
            leaf = NodesOfPods(nodes, carried, self._columns(width))
        return Remainder(full, leaf, enough, self._now.lanes)

    def _new_in_remainder(
        self, seen: Seen, width: int, shape: Shape, rest: int
    ) -> Iterator[tuple[int, int]]:
        """``_new`` of the nodes of the remainder pod."""
        if shape.remainder_leaves:
            yield from self._new(seen, shape.hosts, width, shape.remainder_leaves).items()
        if rest:
            width = -(-rest // self._topology.taper[0])
            yield from self._new(seen, rest, width, 1).items()

    def _enough(self, width: int) -> Callable[[int], bool]:
        """A test whether a mask has ``width`` uplinks in each plane."""
        planes = self._topology.plane_fields
        return lambda uplinks: all((uplinks & plane).bit_count() >= width for plane in planes)

    def _shared_by(self, pods: int) -> int:
        """The spine uplinks that so many pods have free."""
        if pods not in self._shared:
            if not self._digits:
                self._digits = bit_counts(self._now.lanes)
            self._shared[pods] = counted_at_least(pods, self._digits)
        return self._shared[pods]

    def _new(self, seen: Seen, leaf_hosts: int, width: int, leaves: int) -> dict[int, int]:
        """By pod, the spine uplinks of which a node of so many leaves may be new since ``seen``.

        Nodes that agree now and did not agree before all have one of them. They are new
        themselves, or above uplinks that the leaves shared with no others before.
        """
        above = self._carried.of(self._topology, leaves).above
        now, new = self._now, {}
        for number in self._newer_than(seen):
            pod, before = now.pods[number], seen.pods[number]
            lanes = now.lanes[number] & ~seen.lanes[number]
            if pod is not before and pod.counts[leaf_hosts] >= leaves:
                known: Sequence[int] = ()
                if before.counts[leaf_hosts] >= leaves:
                    known = before.shared(leaf_hosts, width, leaves)
                for mask in pod.shared(leaf_hosts, width, leaves):
                    added = min((mask & ~other for other in known), key=int.bit_count, default=mask)
                    if added:
                        lanes |= now.lanes[number] & above(added)
            if lanes:
                new[number] = lanes
        return new

    def _nodes_of(
        self, leaf_hosts: int, enough: Callable[[int], bool], width: int, leaves: int
    ) -> list[Node]:
        """The nodes of so many leaves, with what the pod's own spines carry, pod by pod."""
        key = leaf_hosts, leaves
        known = self._misfits.nodes.get(key)
        now = self._now
        if known is not None and known.seen is now:
            return known.listed
        if known is None:
            changed: Sequence[int] = range(len(now.pods))
            by_pod: list[list[Node]] = [[] for _ in now.pods]
        else:
            changed = self._changed_since(known.seen)
            by_pod = known.by_pod
        if changed:
            carried = self._carried.of(self._topology, leaves)
            by_pod = by_pod.copy()
            for number in changed:
                by_pod[number] = []
                pod = now.pods[number]
                if pod.counts[leaf_hosts] < leaves:
                    continue
                usable = carried.by(now.lanes[number])
                if enough(usable):
                    masks = pod.shared(leaf_hosts, width, leaves)
                    if any(mask & ~usable for mask in masks):
                        masks = sorted({mask & usable for mask in masks})
                    by_pod[number] = [(number, mask) for mask in masks if enough(mask)]
            listed = list(chain.from_iterable(by_pod))
        else:
            assert known is not None
            listed = known.listed
        if len(self._misfits.nodes) >= MOST_REMEMBERED:
            self._misfits.nodes.clear()
        self._misfits.nodes[key] = _Nodes(now, by_pod, listed)
        return listed

    def _changed_since(self, seen: Seen) -> list[int]:
        """The pods that differ from what they were."""
        key = id(seen)
        if key not in self._changed:
            self._changed[key] = self._now.changed_since(seen)
        return self._changed[key]

    def _kernel(self, nodes: list[Node], wanted: Wanted) -> list[Node]:
        """The nodes that have enough of the uplinks that nodes of enough pods have.

        Above the uplinks are enough of the spine uplinks that so many pods have.
        """
        live, pods, wide, all_lanes = -1, wanted.pods, wanted.wide, self._now.lanes
        while nodes:
            by_pod: dict[int, int] = {}
            for pod, mask in nodes:
                by_pod[pod] = by_pod.get(pod, 0) | mask
            if len(by_pod) < pods:
                return []
            kept = counted_at_least(pods, bit_counts(list(by_pod.values())))
            if kept.bit_count() < wide:
                return []
            if pods > 2:
                self._budget.spend(len(by_pod))
                spines = counted_at_least(pods, bit_counts([all_lanes[pod] for pod in by_pod]))
                kept &= wanted.full.by(spines)
                if kept.bit_count() < wide:
                    return []
            if kept == live:
                break
            live, before = kept, len(nodes)
            nodes = [(pod, m) for pod, mask in nodes if (m := mask & kept).bit_count() >= wide]
            if len(nodes) == before:
                break
        return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a search saw free: the leaf groups and the spine uplinks of each pod."""

    pods: tuple[PodLeaves, ...]
    lanes: tuple[int, ...]
    """By pod, as ``LedgerView.free_lanes``."""

    def newer_than(self, earlier: Seen) -> list[int]:
        """The pods that have hosts, uplinks or spine uplinks free that they had not."""
        return [
            number
            for number, (pod, seen, lanes, seen_lanes) in enumerate(
                zip(self.pods, earlier.pods, self.lanes, earlier.lanes, strict=True)
            )
            if lanes & ~seen_lanes or (pod is not seen and pod.has_more_than(seen))
        ]

    def changed_since(self, earlier: Seen) -> list[int]:
        """The pods that differ from what they were."""
        return [
            number
            for number, (pod, seen, lanes, seen_lanes) in enumerate(
                zip(self.pods, earlier.pods, self.lanes, earlier.lanes, strict=True)
            )
            if pod is not seen or lanes != seen_lanes
        ]


class _Nodes(NamedTuple):
    """The nodes of one number of hosts on a leaf and of leaves."""

    seen: Seen
    by_pod: list[list[Node]]
    listed: list[Node]


_Key = tuple[int, int, int, int, int]
"""Hosts on a leaf, full pods, leaves of a full pod and of the remainder pod, and hosts on a
remainder leaf (0: it may have none)."""


@dataclass(slots=True)
class AgreementMisfits:
    """Shapes without pods that agree, with what was free; kept with a ledger (``reader_cache``).

    As long as no pod has anything free that it had not, there are no such pods. Later they
    contain a pod that has.
    """

    known: dict[_Key, Seen] = field(default_factory=dict, compare=False)
    nodes: dict[tuple[int, int], _Nodes] = field(default_factory=dict, compare=False)
    """By hosts on a leaf and leaves."""

    def remember(self, key: _Key, seen: Seen) -> None:
        """A search proved that there are no pods for this shape."""
        self.known.pop(key, None)
        self.known[key] = seen  # last, so that the first one is the oldest
        if len(self.known) > MOST_REMEMBERED:
            del self.known[next(iter(self.known))]

    def copy(self) -> AgreementMisfits:
        return AgreementMisfits(dict(self.known), dict(self.nodes))
