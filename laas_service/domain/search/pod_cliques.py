# SPDX-License-Identifier: Apache-2.0

"""Pods whose leaves and spines may agree, as cliques: rules out most shapes in few steps.

The full leaves of a pod share some uplinks. Of all sets of so many leaves of a pod only the
largest sets of shared uplinks matter (``PodLeaves.shared``), mostly a few. Each is a *node*. The
full pods of a placement are nodes of different pods whose sets of uplinks have enough in common,
above which the pods have enough spine uplinks in common. A depth-first search looks for so many
nodes; nodes that do not agree with those chosen are dropped at once.

Shapes without such nodes have no placement. Others may have none either: remainder leaves are
not looked at, and uplinks of a bundle one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.lanes import with_at_least
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.pod_leaves import PodLeaves
from laas_service.domain.topology import Topology

COST_OF_A_STEP = 8
"""Units of work of a step, beside one for each node that it looks at."""

MOST_KNOWN = 4096
"""The most sets of columns whose uplinks are kept."""

MOST_REMEMBERED = 512
"""The most shapes that are remembered as ruled out, and the most lists of nodes that are kept."""

Node = tuple[int, int]
"""A pod, and uplinks that enough of its leaves share."""


class _OutOfWork(Exception):
    """The budget is used up."""


class _Wanted(NamedTuple):
    """What the nodes of a shape have to share."""

    enough: Callable[[int], bool]
    """Whether these uplinks are enough for a leaf."""
    wide: int
    """How many uplinks a leaf needs in all planes together."""
    full: _Carried
    remainder: _Carried | None


class PodCliques:
    """The search for nodes that agree, for the requests of one search."""

    def __init__(self, fabric: LedgerView, pods: Sequence[PodLeaves], budget: SearchBudget) -> None:
        self._now = Seen(tuple(pods), tuple(fabric.free_lanes))
        self._topology = fabric.topology
        self._budget = budget
        self._carried = fabric.reader_cache(CarriedUplinks)
        self._misfits = fabric.reader_cache(CliqueMisfits)
        self._changed: dict[int, list[int]] = {}
        self._newer: dict[int, list[int]] = {}

    def uplinks(
        self, leaf_hosts: int, enough: Callable[[int], bool], width: int, shape: Shape
    ) -> int | None:
        """Uplinks that the leaves of some pods share for this shape; 0 if there are no such pods.

        Each leaf has ``leaf_hosts`` hosts and needs ``width`` uplinks in each plane, which
        ``enough`` tests. None if the budget is used up.
        """
        key = leaf_hosts, shape.pods, shape.leaves, shape.remainder_leaves
        seen = self._misfits.known.get(key)
        newer = None if seen is None else self._newer_than(seen)
        if newer is not None and not newer:
            return 0
        try:
            found = self._search(leaf_hosts, enough, width, shape, newer)
        except _OutOfWork:
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
        leaf_hosts: int,
        enough: Callable[[int], bool],
        width: int,
        shape: Shape,
        newer: list[int] | None,
    ) -> int:
        """``uplinks``; of sets of pods with one of the ``newer`` pods, if given."""
        topology = self._topology
        if not self._budget.spend(topology.pods // 4):
            raise _OutOfWork
        nodes = self._nodes_of(leaf_hosts, enough, width, shape.leaves)
        rest, remainder = None, None
        if shape.remainder_leaves:
            rest = self._nodes_of(leaf_hosts, enough, width, shape.remainder_leaves)
            remainder = self._carried.of(topology, shape.remainder_leaves)
        wide = width * topology.planes
        wanted = _Wanted(enough, wide, self._carried.of(topology, shape.leaves), remainder)
        if rest is not None and not rest:
            return 0
        if len(nodes) < shape.pods:
            return 0
        _, listed = self._kernel(nodes, shape.pods, -1, wanted)
        if not listed:
            return 0
        start = (-1, -1), (), wanted
        if newer is None:
            return self._extend(listed, rest, shape.pods, *start)
        first = [node for node in listed if node[0] in newer]
        listed = [node for node in listed if node[0] not in newer]
        found = self._extend(first + listed, rest, shape.pods, *start, first=len(first))
        if found or rest is None:
            return found
        rest = [node for node in rest if node[0] in newer]
        return self._extend(listed, rest, shape.pods, *start) if rest else 0

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

    def _extend(
        self,
        nodes: list[Node],
        others: list[Node] | None,
        missing: int,
        common: tuple[int, int],
        chosen: tuple[int, ...],
        wanted: _Wanted,
        first: int | None = None,
    ) -> int:
        """The uplinks shared with ``missing`` more of the ``nodes``; 0 if there are none.

        ``common`` are the uplinks and spine uplinks that the ``chosen`` pods share. ``others``
        are the nodes for the remainder pod, None without one. With ``first`` one of so many
        nodes at the front is among them.
        """
        if not missing:
            return self._with_remainder(others, common, chosen, wanted)
        if not self._budget.spend(COST_OF_A_STEP + len(nodes)):
            raise _OutOfWork
        uplinks, lanes = common
        enough, full, wide, all_lanes = wanted.enough, wanted.full, wanted.wide, self._now.lanes
        if missing > 1:
            live, nodes = self._kernel(nodes, missing, lanes, wanted)
            uplinks &= live
            if first is None:
                nodes = _closest_first(nodes)
        left = len({pod for pod, _ in nodes})
        previous = -1
        for place, (pod, mask) in enumerate(nodes):
            if place == first:
                return 0
            if pod != previous:
                if left < missing:
                    return 0
                if previous >= 0 and first is None and missing > 2 and left < 2 * missing:
                    if not self._budget.spend(COST_OF_A_STEP + left):
                        raise _OutOfWork
                    live, kept = self._kernel(nodes[place:], missing, lanes, wanted)
                    if len(kept) < len(nodes) - place:
                        narrowed = uplinks & live, lanes
                        return self._extend(kept, others, missing, narrowed, chosen, wanted)
                left -= 1
                previous = pod
            both = lanes & all_lanes[pod]
            shared = uplinks & mask
            if chosen:
                shared &= full.by(both)
            if not enough(shared):
                continue
            agreeing: list[Node] = []
            if missing > 1:
                self._budget.spend(len(nodes) - place)
                row = full.pairs(pod, all_lanes)
                agreeing = [
                    (other, m)
                    for other, theirs in nodes[place + 1 :]
                    if (m := theirs & shared & row[other]).bit_count() >= wide and other != pod
                ]
                if len(agreeing) < missing - 1:
                    continue
            still = others
            if others is not None:
                still = [
                    (other, m)
                    for other, theirs in others
                    if (m := theirs & shared).bit_count() >= wide and other != pod
                ]
                if not still:
                    continue
            found = self._extend(
                agreeing, still, missing - 1, (shared, both), (*chosen, pod), wanted
            )
            if found:
                return found
        return 0

    def _kernel(
        self, nodes: list[Node], pods: int, lanes: int, wanted: _Wanted
    ) -> tuple[int, list[Node]]:
        """The uplinks that nodes of so many pods have, and the nodes with enough of them.

        Above the uplinks are enough of the spine uplinks ``lanes`` that so many pods have.
        """
        live, wide, all_lanes = -1, wanted.wide, self._now.lanes
        while nodes:
            by_pod: dict[int, int] = {}
            for pod, mask in nodes:
                by_pod[pod] = by_pod.get(pod, 0) | mask
            if len(by_pod) < pods:
                return live, []
            kept = counted_at_least(pods, bit_counts(list(by_pod.values())))
            if kept.bit_count() < wide:
                return live, []
            if pods > 2:
                self._budget.spend(len(by_pod))
                spines = counted_at_least(pods, bit_counts([all_lanes[pod] for pod in by_pod]))
                kept &= wanted.full.by(lanes & spines)
                if kept.bit_count() < wide:
                    return live, []
            if kept == live:
                break
            live, before = kept, len(nodes)
            nodes = [(pod, m) for pod, mask in nodes if (m := mask & kept).bit_count() >= wide]
            if len(nodes) == before:
                break
        return live, nodes

    def _with_remainder(
        self,
        others: list[Node] | None,
        common: tuple[int, int],
        chosen: tuple[int, ...],
        wanted: _Wanted,
    ) -> int:
        uplinks, lanes = common
        if others is None or wanted.remainder is None:
            return uplinks
        if not self._budget.spend(1 + len(others)):
            raise _OutOfWork
        for pod, mask in others:
            if pod not in chosen:
                shared = uplinks & mask
                if wanted.enough(shared):
                    shared &= wanted.remainder.by(lanes & self._now.lanes[pod])
                    if wanted.enough(shared):
                        return shared
        return 0


def _closest_first(nodes: list[Node]) -> list[Node]:
    """The nodes of pods with few uplinks first, so that what they do not share is soon known."""
    by_pod: dict[int, int] = {}
    for pod, mask in nodes:
        by_pod[pod] = by_pod.get(pod, 0) | mask
    return sorted(nodes, key=lambda node: (by_pod[node[0]].bit_count(), node))


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


_Key = tuple[int, int, int, int]
"""Hosts on a leaf, full pods, leaves of a full pod and of the remainder pod."""


@dataclass(slots=True)
class CliqueMisfits:
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

    def copy(self) -> CliqueMisfits:
        return CliqueMisfits(dict(self.known), dict(self.nodes))


class _Carried:
    """The uplinks that spine uplinks carry, if so many leaves of a pod use each uplink."""

    def __init__(self, topology: Topology, leaves: int) -> None:
        taper = topology.taper[1]
        self._columns = topology.columns
        self._lane = lane = topology.lane
        needs = tuple([-(-leaves * column.rails // taper) for column in topology.columns])
        self._marked = with_at_least(needs, lane) if max(needs) < 1 << lane - 1 else None
        self._uplinks: dict[int, int] = {}
        self._rows: dict[int, tuple[Sequence[int], list[int]]] = {}

    def by(self, lanes: int) -> int:
        """The uplinks that such spine uplinks (``LedgerView.free_lanes``) carry."""
        if self._marked is None:
            return 0
        marked = self._marked(lanes)
        uplinks = self._uplinks.get(marked)
        if uplinks is None:
            if len(self._uplinks) >= MOST_KNOWN:
                self._uplinks.clear()
            uplinks = self._uplinks[marked] = sum(
                column.bundle
                for column in self._columns
                if marked >> column.number * self._lane + self._lane - 1 & 1
            )
        return uplinks

    def pairs(self, pod: int, lanes: Sequence[int]) -> list[int]:
        """By pod, the uplinks that the spines which it shares with ``pod`` carry."""
        known = self._rows.get(pod)
        own = lanes[pod]
        if known is None or known[0][pod] != own:
            row = [self.by(own & other) for other in lanes]
        elif known[0] == lanes:
            return known[1]
        else:
            row = [
                shared if seen == other else self.by(own & other)
                for seen, other, shared in zip(known[0], lanes, known[1], strict=True)
            ]
        self._rows[pod] = lanes, row
        return row


@dataclass(slots=True)
class CarriedUplinks:
    """``_Carried`` by number of leaves; kept with a ledger (``reader_cache``)."""

    _by_leaves: dict[int, _Carried] = field(default_factory=dict, compare=False)

    def of(self, topology: Topology, leaves: int) -> _Carried:
        """What spine uplinks carry of so many leaves."""
        carried = self._by_leaves.get(leaves)
        if carried is None:
            carried = self._by_leaves[leaves] = _Carried(topology, leaves)
        return carried

    def copy(self) -> CarriedUplinks:
        return self  # what is kept is true of any ledger of the topology

    def __reduce__(self) -> tuple[type[CarriedUplinks], tuple[()]]:
        return CarriedUplinks, ()  # functions cannot be pickled, and are made again
