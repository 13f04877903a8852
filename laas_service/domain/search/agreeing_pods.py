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
of hosts of the request, are spared. Of the others, half are ruled out by spine uplinks that too few
pods have, each looked at by itself; for the rest ``SharedSpines`` looks for pods that agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
        self._with_room: dict[int, _WithRoom] = {}

    def uplinks(self, shape: Shape, work: int, rest: int = 0) -> int | None:
        """Uplinks that the leaves of some pods share for this shape; 0 if there are no such pods.

        The remainder pod has a leaf of ``rest`` hosts if that is not 0. None if that takes more
        than ``work`` units of the budget.
        """
        hosts, leaves, pods, more = shape.hosts, shape.leaves, shape.pods, shape.remainder_leaves
        if pods > self._most(hosts, leaves):
            return 0
        key = hosts, pods, leaves, more, rest
        refused = self._misfits.with_remainder.get(key)
        if refused is not None and not self._newer_than(refused):
            return 0
        try:
            with self._budget.attempt(work, of_search=True):
                if refused is None:  # if not, full pods agreed when the remainder was refused
                    found = self._in_full_pods(hosts, leaves, pods)
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

    def _in_full_pods(self, leaf_hosts: int, leaves: int, pods: int) -> int:
        """Uplinks that so many pods share, without a remainder; 0 if there are no such pods."""
        of_leaves = leaf_hosts, leaves
        agreed = self._agreed.get(of_leaves)
        if agreed is not None and agreed[0] >= pods:
            return agreed[1]
        found = self._search_full_pods(leaf_hosts, leaves, pods)
        if found:
            self._agreed[of_leaves] = pods, found
        else:
            self._misfits.most[of_leaves] = Most(pods - 1, self._now.event)
        return found

    def _search_full_pods(self, leaf_hosts: int, leaves: int, pods: int) -> int:
        """``_in_full_pods``, where that is not known."""
        if not self._budget.spend(self._topology.pods // 4):
            raise OutOfWork
        wanted = self._wanted(leaf_hosts, leaves, pods)
        if not self._may_agree(leaf_hosts, leaves, wanted):
            return 0
        nodes = self._nodes_of(leaf_hosts, leaves)
        if len(nodes) < pods:
            return 0
        new, least_new = frozenset[int](), 0
        known = self._misfits.most.get((leaf_hosts, leaves))
        if known is not None and known.pods < pods:
            new = frozenset(self._newer_with(known.event, leaf_hosts, leaves))
            least_new = pods - known.pods
        return SharedSpines(wanted, None, self._budget, new, least_new).uplinks(nodes)

    def _with_remainder(self, shape: Shape, rest: int) -> int:
        """Uplinks that the full pods and a remainder pod share; 0 if there are no such pods."""
        wanted = self._wanted(shape.hosts, shape.leaves, shape.pods)
        remainder = self._remainder(shape, rest)
        if not remainder.pods:
            return 0
        nodes = self._nodes_of(shape.hosts, shape.leaves)
        return SharedSpines(wanted, remainder, self._budget).uplinks(nodes)

    def _wanted(self, leaf_hosts: int, leaves: int, pods: int) -> Wanted:
        topology, width = self._topology, self._topology.uplinks_for(leaf_hosts)
        full = self._carried.of(topology, leaves)
        return Wanted(self._topology.has_uplinks(width), self._columns(width), pods, full)

    def _columns(self, width: int) -> int:
        """To how many columns ``width`` uplinks in each plane lead at least."""
        return -(-width // self._widest) * self._topology.planes

    def _may_agree(self, leaf_hosts: int, leaves: int, wanted: Wanted) -> bool:
        """Whether pods with so many leaves have enough spine uplinks, each looked at by itself."""
        room = self._with_room.get(leaves)
        if room is None or room.least_hosts < leaf_hosts:
            room = self._with_room[leaves] = _WithRoom(self._now.pods, self._now.lanes, leaves)
        room.count(leaf_hosts)
        if room.counted < wanted.pods:
            return False
        shared = counted_at_least(wanted.pods, room.digits)
        return wanted.full.marked(shared).bit_count() >= wanted.columns

    def _remainder(self, shape: Shape, rest: int) -> Remainder:
        """The pods that have the remainder's leaves, and a leaf of ``rest`` hosts if not 0.

        The leaf is none of the others exactly if one more leaf shares its uplinks.
        """
        more, full, leaf = shape.remainder_leaves, None, None
        if more:
            columns = self._columns(self._topology.uplinks_for(shape.hosts))
            carried = self._carried.of(self._topology, more)
            full = NodesOfPods(self._nodes_of(shape.hosts, more), carried, columns)
        if rest:
            columns = self._columns(self._topology.uplinks_for(rest))
            carried = self._carried.of(self._topology, more + 1)
            leaf = NodesOfPods(self._nodes_of(rest, more + 1), carried, columns)
        return Remainder(
            full,
            leaf,
            self._topology.has_uplinks(self._topology.uplinks_for(rest)),
            len(self._now.pods),
        )

    def _nodes_of(self, leaf_hosts: int, leaves: int) -> list[Node]:
        """The nodes of so many leaves, with what the pod's own spines carry, pod by pod."""
        width, nodes = self._topology.uplinks_for(leaf_hosts), list[Node]()
        enough = self._topology.has_uplinks(width)
        for number, (pod, known) in enumerate(zip(self._now.pods, self._now.nodes, strict=True)):
            count = pod.counts[leaf_hosts]
            if count >= leaves:
                in_pod = known.get((count, leaves))
                if in_pod is None:
                    in_pod = known[count, leaves] = self._in_pod(number, count, leaves)
                narrowest, of_pod = in_pod
                if narrowest < width:
                    of_pod = [node for node in of_pod if enough(node[1])]
                nodes += of_pod
        return nodes

    def _in_pod(self, number: int, count: int, leaves: int) -> _InPod:
        """The nodes of a pod, of so many of its ``count`` roomiest leaves."""
        pod, lanes = self._now.pods[number], self._now.lanes[number]
        carried = self._carried.of(self._topology, leaves)
        usable = carried.by(lanes)
        masks = dict.fromkeys([mask & usable for mask in pod.shared(count, leaves)])
        narrowest = min(map(pod.fewest_in_a_plane, masks), default=0)
        return narrowest, [(number, mask, lanes & carried.above(mask)) for mask in masks]


class _WithRoom:
    """How many of the pods with so many leaves have each spine uplink.

    The pods whose leaves can have most hosts are counted first.
    """

    def __init__(self, pods: Sequence[PodLeaves], lanes: Sequence[int], leaves: int) -> None:
        self._lanes = lanes
        self._pods = sorted(
            [
                (pod.most_hosts(leaves), number)
                for number, pod in enumerate(pods)
                if pod.counts[1] >= leaves
            ],
            reverse=True,
        )
        self.least_hosts = 1 << 62
        """Pods whose leaves can have so many hosts are counted."""
        self.counted = 0
        self.digits: list[int] = []
        """As ``bicliques.bit_counts``."""

    def count(self, leaf_hosts: int) -> None:
        """Count the pods whose leaves can have so many hosts, no more than ``least_hosts``."""
        first = last = self.counted
        while last < len(self._pods) and self._pods[last][0] >= leaf_hosts:
            last += 1
        if last > first:
            lanes = self._lanes
            bit_counts([lanes[number] for _, number in self._pods[first:last]], self.digits)
        self.least_hosts, self.counted = leaf_hosts, last


_InPod = tuple[int, list[Node]]
"""How many uplinks each of these nodes has in each plane, at least, and the nodes."""


class History(NamedTuple):
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
    nodes: tuple[dict[tuple[int, int], _InPod], ...]
    """The nodes of each pod as it is now, by leaves with room and leaves of a node."""

    def now(self, pods: tuple[PodLeaves, ...], lanes: tuple[int, ...]) -> History:
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
        return History(event, pods, lanes, tuple(freed), tuple(nodes))


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
    _now: History | None = None

    def now(self, pods: tuple[PodLeaves, ...], lanes: tuple[int, ...]) -> History:
        """The history that ends with the present state."""
        if self._now is None:
            self._now = History(0, pods, lanes, (0,) * len(pods), tuple([{} for _ in pods]))
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
