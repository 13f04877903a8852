# SPDX-License-Identifier: Apache-2.0

"""Pods whose leaves and spines agree: rules out most shapes in few steps.

The full leaves of a pod share some uplinks. Of all sets of so many leaves of a pod only the
largest sets of shared uplinks matter (``PodLeaves.shared``), mostly a few. Each is a *node*. The
full pods of a placement are nodes of different pods whose sets of uplinks have enough in common,
above which the pods have enough spine uplinks in common. A remainder pod agrees with them. A shape
without such pods has no placement. On a full tree the others have one; where the uplinks of
parallel cables or of several rails differ, they may have none.

For most shapes there are not even full pods that agree. So these are looked for first, and how
many agree at most is remembered for each number of hosts on a leaf and of leaves (``Most``). Where
something becomes free in k pods, at most k more agree. So many searches later, whatever the number
of hosts of the request, are spared. Most of the others are ruled out by spine uplinks that too few
pods have, each looked at by itself; for the rest ``SharedSpines`` looks for pods that agree. Where
that takes longer, it looks first at the fewest hosts on a leaf with which the request takes as many
pods of as many leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.carried_uplinks import CarriedUplinks
from laas_service.domain.search.column_by_column import Node
from laas_service.domain.search.pod_leaves import PodLeaves
from laas_service.domain.search.shared_spines import (
    NodesOfPods,
    OutOfWork,
    Remainder,
    SharedSpines,
    Wanted,
)

MANY_UNKNOWN = 8
"""If so many pods have nodes that are not known, what these have at most is looked at first."""

MOST_REMEMBERED = 512
"""The most shapes that are remembered as ruled out because of their remainder."""


class AgreeingPods:
    """The search for nodes that agree, for the requests of one search."""

    def __init__(self, fabric: LedgerView, pods: Sequence[PodLeaves], budget: SearchBudget) -> None:
        self._topology = fabric.topology
        self._widest = max(column.bundle.bit_count() for column in fabric.topology.columns)
        self._budget = budget
        self._carried = fabric.reader_cache(CarriedUplinks)
        self._misfits = fabric.reader_cache(AgreementMisfits)
        self._now = self._misfits.now(tuple(pods), tuple(fabric.free_lanes))
        self._newer: dict[int, list[int]] = {}
        self._agreed: dict[tuple[int, int], tuple[int, int]] = {}

    def uplinks(self, shape: Shape, work: int, rest: int = 0) -> int | None:
        """Uplinks that the leaves of some pods share for this shape; 0 if there are no such pods.

        The remainder pod has a leaf of ``rest`` hosts if that is not 0. None if that takes more
        than ``work`` units of the budget.
        """
        hosts, leaves, pods, more = shape.hosts, shape.leaves, shape.pods, shape.remainder_leaves
        fewest = self._fewest_hosts(shape)
        if pods > self._most(hosts, leaves) or (
            fewest < hosts and pods > self._most(fewest, leaves)
        ):
            return 0
        key = hosts, pods, leaves, more, rest
        refused = self._misfits.with_remainder.get(key)
        if refused is not None and not self._newer_than(refused):
            return 0
        try:
            with self._budget.attempt(work, of_search=True):
                if refused is None:  # if not, full pods agreed when the remainder was refused
                    found = self._in_full_pods(hosts, leaves, pods, fewest)
                    if not found or not (more or rest):
                        return found
                found = self._with_remainder(shape, rest)
        except OutOfWork:
            return None
        if not found:
            self._misfits.remember(key, self._now.event)
        return found

    def _most(self, leaf_hosts: int, leaves: int) -> int:
        """How many pods have nodes of so many leaves that agree, at most."""
        known = self._misfits.most.get((leaf_hosts, leaves))
        if known is None:
            return len(self._now.pods)
        return known.pods + len(self._newer_with(known.event, leaf_hosts, leaves))

    def _newer_with(self, event: int, leaf_hosts: int, leaves: int) -> list[int]:
        """The pods with so many leaves in which something has become free since."""
        pods = self._now.pods
        return [n for n in self._newer_than(event) if pods[n].counts[leaf_hosts] >= leaves]

    def _newer_than(self, event: int) -> list[int]:
        """The pods in which something has become free since."""
        if event not in self._newer:
            self._newer[event] = [
                number for number, freed in enumerate(self._now.freed) if freed > event
            ]
        return self._newer[event]

    def _fewest_hosts(self, shape: Shape) -> int:
        """The fewest hosts on a leaf with which the request takes as many pods of these leaves."""
        leaves = shape.pods * shape.leaves
        hosts = shape.hosts * (leaves + shape.remainder_leaves) + shape.remainder_hosts
        return hosts // (leaves + shape.leaves) + 1

    def _in_full_pods(self, leaf_hosts: int, leaves: int, pods: int, fewest: int) -> int:
        """Uplinks that so many pods share, without a remainder; 0 if there are no such pods.

        The request takes as many pods of these leaves with ``fewest`` hosts on each.
        """
        of_leaves = leaf_hosts, leaves
        agreed = self._agreed.get(of_leaves)
        if agreed is not None and agreed[0] >= pods:
            return agreed[1]
        if not self._budget.spend(self._topology.pods // 4):
            raise OutOfWork
        wanted = self._wanted(leaf_hosts, leaves, pods)
        in_pods = self._in_pods(leaf_hosts, leaves)
        most, found = _most_by_themselves(wanted, [in_pod.lanes for in_pod in in_pods]), 0
        if most == pods:
            most = pods - 1
            search = SharedSpines(wanted, None, self._budget, *self._new(leaf_hosts, leaves, pods))
            if _may_agree(search, in_pods):
                found = search.uplinks(
                    self._nodes_of(leaf_hosts, leaves, in_pods),
                    lambda: (
                        fewest < leaf_hosts and not self._in_full_pods(fewest, leaves, pods, fewest)
                    ),
                )
        if found:
            self._agreed[of_leaves] = pods, found
        else:
            self._misfits.most[of_leaves] = Most(most, self._now.event)
        return found

    def _new(self, leaf_hosts: int, leaves: int, pods: int) -> tuple[frozenset[int], int]:
        """The pods that have got something since fewer agreed, and how many are needed of them."""
        known = self._misfits.most.get((leaf_hosts, leaves))
        if known is None or known.pods >= pods:
            return frozenset(), 0
        return frozenset(self._newer_with(known.event, leaf_hosts, leaves)), pods - known.pods

    def _in_pods(self, leaf_hosts: int, leaves: int) -> list[_InPod]:
        """List what this search knows of the nodes of each pod with so many leaves."""
        now, in_pods = self._now, list[_InPod]()
        for number, (pod, kept) in enumerate(zip(now.pods, now.nodes, strict=True)):
            count = pod.counts[leaf_hosts]
            if count >= leaves:
                in_pod = kept.get((count, leaves))
                if in_pod is None:
                    in_pod = kept[count, leaves] = self._at_most(number, count, leaves)
                in_pods.append(in_pod)
        return in_pods

    def _at_most(self, number: int, count: int, leaves: int) -> _InPod:
        """Bound what a pod's nodes of so many leaves have, without making them."""
        carried, lanes = self._carried.of(self._topology, leaves), self._now.lanes[number]
        uplinks = self._now.pods[number].had_by(count, leaves) & carried.by(lanes)
        return _InPod(number, lanes & carried.above(uplinks))

    def _with_remainder(self, shape: Shape, rest: int) -> int:
        """Uplinks that the full pods and a remainder pod share; 0 if there are no such pods."""
        wanted = self._wanted(shape.hosts, shape.leaves, shape.pods)
        remainder = self._remainder(shape, rest)
        if not remainder.pods:
            return 0
        nodes = self._all_nodes(shape.hosts, shape.leaves)
        return SharedSpines(wanted, remainder, self._budget).uplinks(nodes)

    def _wanted(self, leaf_hosts: int, leaves: int, pods: int) -> Wanted:
        topology, width = self._topology, self._topology.uplinks_for(leaf_hosts)
        full = self._carried.of(topology, leaves)
        return Wanted(self._topology.has_uplinks(width), self._columns(width), pods, full)

    def _columns(self, width: int) -> int:
        """To how many columns ``width`` uplinks in each plane lead at least."""
        return -(-width // self._widest) * self._topology.planes

    def _remainder(self, shape: Shape, rest: int) -> Remainder:
        """The pods that have the remainder's leaves, and a leaf of ``rest`` hosts if not 0.

        The leaf is none of the others exactly if one more leaf shares its uplinks.
        """
        more, full, leaf = shape.remainder_leaves, None, None
        if more:
            columns = self._columns(self._topology.uplinks_for(shape.hosts))
            carried = self._carried.of(self._topology, more)
            full = NodesOfPods(self._all_nodes(shape.hosts, more), carried, columns)
        if rest:
            columns = self._columns(self._topology.uplinks_for(rest))
            carried = self._carried.of(self._topology, more + 1)
            leaf = NodesOfPods(self._all_nodes(rest, more + 1), carried, columns)
        return Remainder(
            full,
            leaf,
            self._topology.has_uplinks(self._topology.uplinks_for(rest)),
            len(self._now.pods),
        )

    def _nodes_of(self, leaf_hosts: int, leaves: int, in_pods: Sequence[_InPod]) -> list[Node]:
        """The nodes of so many leaves, with what the pod's own spines carry, pod by pod.

        ``in_pods`` are those of ``_in_pods``; the nodes that are not known are made.
        """
        width, nodes, now = self._topology.uplinks_for(leaf_hosts), list[Node](), self._now
        enough = self._topology.has_uplinks(width)
        for in_pod in in_pods:
            if not in_pod.known:
                number, count = in_pod.number, now.pods[in_pod.number].counts[leaf_hosts]
                in_pod = now.nodes[number][count, leaves] = self._known(number, count, leaves)
            if in_pod.narrowest < width:
                nodes += [node for node in in_pod.nodes if enough(node[1])]
            else:
                nodes += in_pod.nodes
        return nodes

    def _all_nodes(self, leaf_hosts: int, leaves: int) -> list[Node]:
        """``_nodes_of`` of all pods with so many leaves."""
        return self._nodes_of(leaf_hosts, leaves, self._in_pods(leaf_hosts, leaves))

    def _known(self, number: int, count: int, leaves: int) -> _InPod:
        """The nodes of a pod, of so many of its ``count`` roomiest leaves."""
        pod, lanes = self._now.pods[number], self._now.lanes[number]
        carried = self._carried.of(self._topology, leaves)
        usable = carried.by(lanes)
        masks = dict.fromkeys([mask & usable for mask in pod.shared(count, leaves)])
        nodes = [(number, mask, lanes & carried.above(mask)) for mask in masks]
        return _InPod(
            number,
            reduce(or_, [above for _, _, above in nodes], 0),
            True,
            min(map(pod.fewest_in_a_plane, masks), default=0),
            nodes,
        )


def _may_agree(search: SharedSpines, in_pods: Sequence[_InPod]) -> bool:
    """Whether nodes of these pods may agree; True if it is not worth the work to know."""
    unknown = sum([not in_pod.known for in_pod in in_pods])
    return unknown < MANY_UNKNOWN or search.may_agree(
        [(in_pod.number, -1, in_pod.lanes) for in_pod in in_pods]
    )


def _most_by_themselves(wanted: Wanted, lanes: Sequence[int]) -> int:
    """How many of the pods with these spine uplinks have enough, each uplink by itself.

    Never more than ``wanted.pods``.
    """
    pods, digits = min(wanted.pods, len(lanes)), bit_counts(lanes)
    marked, columns = wanted.full.marked, wanted.columns
    while pods and marked(counted_at_least(pods, digits)).bit_count() < columns:
        pods -= 1
    return pods


class _InPod(NamedTuple):
    """The nodes of a pod if these are known, and what they have at most."""

    number: int
    lanes: int
    """Spine uplinks; no node has others."""
    known: bool = False
    narrowest: int = 0
    """How many uplinks each node has in each plane, at least."""
    nodes: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class PodHistory:
    """The state of each pod at the last search, and when it last got something free.

    Searches see one state of the ledger after the other. A pod that has something free that it
    had not at an earlier search has got that since then.
    """

    event: int
    """Later ones have higher numbers."""
    pods: tuple[PodLeaves, ...]
    lanes: tuple[int, ...]
    """By pod, as ``LedgerView.free_lanes``."""
    freed: tuple[int, ...]
    """By pod, the event when hosts, uplinks or spine uplinks last became free."""
    nodes: tuple[dict[tuple[int, int], _InPod], ...] = field(compare=False)
    """The nodes of each pod as it is now, by leaves with room and of a node, or their bound.

    They follow from that state alone, so copies and trials of a ledger share what they learned.
    """

    def now(self, pods: tuple[PodLeaves, ...], lanes: tuple[int, ...]) -> PodHistory:
        """This history, continued by the present state."""
        changed = [
            number
            for number, (pod, before, here, here_before) in enumerate(
                zip(pods, self.pods, lanes, self.lanes, strict=True)
            )
            if pod is not before or here != here_before
        ]
        if not changed:
            return self
        event, freed, nodes = self.event + 1, list(self.freed), list(self.nodes)
        for number in changed:
            nodes[number] = {}
            before = self.pods[number]
            if lanes[number] & ~self.lanes[number] or pods[number].has_more_than(before):
                freed[number] = event
        return PodHistory(event, pods, lanes, tuple(freed), tuple(nodes))


class Most(NamedTuple):
    """So many pods agreed at most, at an event."""

    pods: int
    event: int


_Key = tuple[int, int, int, int, int]
"""Hosts on a leaf, full pods, leaves of a full pod and of the remainder pod, and hosts on a
remainder leaf (0: it may have none)."""


@dataclass(slots=True)
class AgreementMisfits:
    """Nodes, and which do not agree, with the event when that was found; kept with a ledger.

    As long as no pod has anything free that it had not, there are no such pods. Threads may share
    it: while they search, the ledger does not change.
    """

    with_remainder: dict[_Key, int] = field(default_factory=dict, compare=False)
    """Shapes whose full pods agree with no remainder pod."""
    most: dict[tuple[int, int], Most] = field(default_factory=dict, compare=False)
    """By hosts on a leaf and leaves."""
    _now: PodHistory | None = None

    def now(self, pods: tuple[PodLeaves, ...], lanes: tuple[int, ...]) -> PodHistory:
        """The history that ends with the present state."""
        if self._now is None:
            self._now = PodHistory(0, pods, lanes, (0,) * len(pods), tuple([{} for _ in pods]))
        self._now = self._now.now(pods, lanes)
        return self._now

    def remember(self, key: _Key, event: int) -> None:
        """A search proved that there is no remainder pod for this shape."""
        self.with_remainder.pop(key, None)
        self.with_remainder[key] = event  # last, so that the first one is the oldest
        if len(self.with_remainder) > MOST_REMEMBERED:
            del self.with_remainder[next(iter(self.with_remainder))]

    def copy(self) -> AgreementMisfits:
        return AgreementMisfits(dict(self.with_remainder), dict(self.most), self._now)
