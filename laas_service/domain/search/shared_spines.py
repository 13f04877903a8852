# SPDX-License-Identifier: Apache-2.0

"""Pods that agree, searched on the spine uplinks that enough of them have free.

Often nearly any two pods agree and no larger set of them does. So this search looks at all pods
at once. A spine uplink that too few pods have free is of no use, and so is a pod that has too few
uplinks below those that are left. Both are dropped until nothing changes (the kernel). Then the
pod that lacks most of the spine uplinks is tried as one of the pods sought, which leaves its own
spine uplinks, and then left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.carried_uplinks import Carried
from laas_service.domain.search.matching import konig_bounds, sure_bounds

COST_OF_A_STEP = 16
"""Units of work of a step, beside two for each node that it looks at."""

WORK_WITHOUT_BOUNDS = 2_000
"""Units of work of a search before König's bound."""

FEW_PODS = 4
"""Fewer pods with something new come before all others."""

Node = tuple[int, int]
"""A pod, and uplinks that enough of its leaves share."""

_LanedNode = tuple[int, int, int]
"""A node, and the spine uplinks above its uplinks (``LedgerView.free_lanes``)."""


class OutOfWork(Exception):
    """The budget is used up."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the nodes of a shape have to share."""

    enough: Callable[[int], bool]
    """Whether these uplinks are enough for a leaf."""
    wide: int
    """How many uplinks a leaf needs in all planes together."""
    columns: int
    """To how many columns these uplinks lead at least."""
    pods: int
    """The number of full pods."""
    full: Carried


@dataclass(frozen=True, slots=True)
class NodesOfPods:
    """Nodes of pods that may be the remainder pod."""

    nodes: Sequence[Node]
    carried: Carried
    columns: int
    """To how many columns the uplinks lead at least that a node shares with the full pods."""

    def by_pod(self, lanes: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """By pod, the uplinks of each node, and the spine uplinks above them."""
        nodes: dict[int, list[tuple[int, int]]] = {}
        above = self.carried.above
        for pod, mask in self.nodes:
            nodes.setdefault(pod, []).append((mask, lanes[pod] & above(mask)))
        return nodes


class Remainder:
    """The pods that may be the remainder pod, with its ``full`` leaves and its remainder ``leaf``.

    ``enough_for_leaf`` tests the uplinks of the remainder leaf. A pod has a node of each kind
    that is not None; they may be the same leaf.
    """

    def __init__(
        self,
        full: NodesOfPods | None,
        leaf: NodesOfPods | None,
        enough_for_leaf: Callable[[int], bool],
        lanes: Sequence[int],
    ) -> None:
        self._full = full
        self._leaf = leaf
        self._enough_for_leaf = enough_for_leaf
        kinds = [(kind, kind.by_pod(lanes)) for kind in (full, leaf) if kind is not None]
        self.pods = [
            (pod, [(kind, nodes[pod]) for kind, nodes in kinds])
            for pod in range(len(lanes))
            if all(pod in nodes for _, nodes in kinds)
        ]
        """The pods by number, and their nodes of each kind."""

    def live(
        self, shared: int, live: int, without: Container[int], among: Container[int] | None
    ) -> int:
        """Of the marked lanes ``live``, those in which a pod may share spine uplinks ``shared``.

        The pod is none of the pods ``without``, and one of the pods ``among`` if given.
        """
        union = 0
        for pod, kinds in self.pods:
            if pod in without or (among is not None and pod not in among):
                continue
            of_pod = live
            for kind, nodes in kinds:
                marked, columns, of_kind = kind.carried.marked, kind.columns, 0
                for _, lanes in nodes:
                    of_node = marked(shared & lanes) & live
                    if of_node.bit_count() >= columns:
                        of_kind |= of_node
                if not of_kind:
                    of_pod = 0
                elif kind is self._full:
                    of_pod = of_kind
            union |= of_pod
            if union == live:
                break
        return union

    def shared(
        self, uplinks: int, common: int, enough: Callable[[int], bool], without: Container[int]
    ) -> int:
        """The uplinks that a pod shares, below the spine uplinks ``common``; 0 if too few."""
        for pod, kinds in self.pods:
            if pod in without:
                continue
            of_full = [uplinks]
            for kind, nodes in kinds:
                carried = [uplinks & mask & kind.carried.by(common & ln) for mask, ln in nodes]
                if kind is self._full:
                    of_full = carried
                else:
                    of_leaf = carried
            for of_pod in of_full:
                if enough(of_pod) and (
                    self._leaf is None
                    or any(self._enough_for_leaf(of_pod & mask) for mask in of_leaf)
                ):
                    return of_pod
        return 0


class _Kernel(NamedTuple):
    """The nodes that may be among those sought, and what they have."""

    nodes: list[_LanedNode]
    lanes_of: dict[int, int]
    """By pod, the spine uplinks of its nodes."""
    shared: int
    """The spine uplinks that enough pods have."""


class SharedSpines:
    """The search for ``wanted.pods`` nodes of different pods that agree, and a remainder pod.

    ``lanes`` are the free spine uplinks by pod. ``new``, if given, are spine uplinks by pod; all
    the pods have one in common that is new in one of them.
    """

    def __init__(
        self,
        wanted: Wanted,
        lanes: Sequence[int],
        remainder: Remainder | None,
        budget: SearchBudget,
        new: dict[int, int] | None = None,
    ) -> None:
        self._wanted = wanted
        self._lanes = lanes
        self._remainder = remainder
        self._budget = budget
        self._new = new
        self._new_in_rest = 0
        if new is not None and remainder is not None:
            self._new_in_rest = reduce(or_, [new.get(pod, 0) for pod, _ in remainder.pods], 0)

    def uplinks(self, nodes: Sequence[Node]) -> int:
        """Uplinks that some of these nodes share; 0 if no nodes agree.

        Raises:
            OutOfWork: that is not known.
        """
        above, lanes = self._wanted.full.above, self._lanes
        laned = [(pod, mask, lanes[pod] & above(mask)) for pod, mask in nodes]
        try:
            with self._budget.attempt(WORK_WITHOUT_BOUNDS, of_search=True):
                return self._searched(laned, -1, ())
        except OutOfWork:
            usable = self._within_bounds(laned)
            return self._searched(laned, usable, ()) if usable else 0

    def _within_bounds(self, nodes: list[_LanedNode]) -> int:
        """The spine uplinks of the lanes that König's bound does not rule out."""
        kernel = self._kernel(nodes, -1, ())
        if kernel is None:
            return 0
        _, lanes_of, usable = kernel
        for at, field, need in self._wanted.full.fields:
            spines, pods = usable >> at & field, self._wanted.pods
            if spines:
                rows = tuple([spines & lanes >> at for lanes in lanes_of.values()])
                if all(bound.allows(pods, need) for bound in sure_bounds(rows)):
                    continue
                self._budget.spend(len(rows))
                if not all(bound.allows(pods, need) for bound in konig_bounds(rows, self._budget)):
                    usable &= ~(field << at)
        return usable

    def _searched(self, nodes: list[_LanedNode], usable: int, chosen: tuple[int, ...]) -> int:
        """``uplinks``, on the spine uplinks ``usable``, with nodes of the pods ``chosen``."""
        while True:
            kernel = self._kernel(nodes, usable, chosen)
            if kernel is None:
                return 0
            found = self._common(kernel)
            if found:
                return found
            nodes, lanes_of, shared = kernel
            worst = self._worst(kernel, chosen)
            if worst is None:
                return self._by_node(kernel, chosen)
            found = self._searched(nodes, shared & lanes_of[worst], (*chosen, worst))
            if found:
                return found
            nodes, usable = [node for node in nodes if node[0] != worst], shared

    def _worst(self, kernel: _Kernel, chosen: tuple[int, ...]) -> int | None:
        """The pod that lacks most of the shared spine uplinks; None if none lacks any.

        If few pods have something new, the first pod chosen is one of them.
        """
        _, lanes_of, shared = kernel
        some, new = lanes_of, self._new
        if new is not None and len(new) < FEW_PODS and not any(pod in new for pod in chosen):
            some = {pod: lanes_of[pod] for pod in new if pod in lanes_of} or lanes_of
        lacks, pod = max([((shared & ~lanes).bit_count(), pod) for pod, lanes in some.items()])
        return pod if lacks or some is not lanes_of else None

    def _by_node(self, kernel: _Kernel, chosen: tuple[int, ...]) -> int:
        """``_searched`` where some pods have several nodes, with the node that lacks most."""
        nodes, _, shared = kernel
        if not self._wanted.enough(self._wanted.full.by(shared)):
            return 0  # enough lanes in all, but not in each plane
        of_pod = Counter([pod for pod, _, _ in nodes])
        open_nodes = [node for node in nodes if node[0] not in chosen or of_pod[node[0]] > 1]
        if not open_nodes:
            return 0
        worst = min(
            open_nodes, key=lambda node: ((shared & node[2]).bit_count(), node[1].bit_count())
        )
        pod, mask, lanes = worst
        with_it = [
            (other, theirs & mask, above & lanes) for other, theirs, above in nodes if other != pod
        ]
        found = self._searched([worst, *with_it], shared & lanes, (*chosen, pod))
        if found:
            return found
        return self._searched([node for node in nodes if node is not worst], shared, chosen)

    def _kernel(
        self, nodes: list[_LanedNode], usable: int, chosen: tuple[int, ...]
    ) -> _Kernel | None:
        """What may belong to the nodes sought; None if there can be none."""
        wanted, new, remainder = self._wanted, self._new, self._remainder
        if len(chosen) == wanted.pods:
            nodes = [node for node in nodes if node[0] in chosen]
        pods, columns, full = wanted.pods, wanted.columns, wanted.full
        marked, filled, some = full.marked, full.filled, -1
        while True:
            if not self._budget.spend(COST_OF_A_STEP + 2 * len(nodes)):
                raise OutOfWork
            lanes_of = {pod: lanes for pod, _, lanes in nodes}
            if len(lanes_of) < len(nodes):
                for pod, _, lanes in nodes:
                    lanes_of[pod] |= lanes
            if len(lanes_of) < pods or any(pod not in lanes_of for pod in chosen):
                return None
            shared = usable & counted_at_least(pods, bit_counts(list(lanes_of.values())))
            live = marked(shared)
            if live.bit_count() < columns:
                return None
            shared &= filled(live)
            among = None
            if new is not None:
                of_full = 0
                for pod, lanes in new.items():
                    of_full |= lanes & lanes_of.get(pod, 0)
                if not of_full & shared:
                    among = new
                some = (of_full | self._new_in_rest) & shared
                if not some:
                    return None
            if remainder is not None:
                without = lanes_of if len(lanes_of) == pods else chosen
                left = remainder.live(shared, live, without, among)
                if left.bit_count() < columns:
                    return None
                if left != live:
                    shared &= filled(left)
            elif among is not None:
                return None
            kept = []
            for node in nodes:
                pod, mask, lanes = node
                if lanes & ~shared:
                    lanes &= shared
                    live = marked(lanes)
                    if live.bit_count() < columns:
                        continue
                    lanes &= filled(live)
                    node = pod, mask, lanes
                if lanes & some:
                    kept.append(node)
            if kept == nodes:
                return _Kernel(nodes, lanes_of, shared)
            nodes = kept

    def _common(self, kernel: _Kernel) -> int:
        """Uplinks that all nodes of the kernel share with a remainder pod; 0 if too few."""
        wanted = self._wanted
        common = uplinks = -1
        for _, mask, lanes in kernel.nodes:
            common &= lanes
            uplinks &= mask
        uplinks &= wanted.full.by(common)
        if not wanted.enough(uplinks):
            return 0
        if self._remainder is None:
            return uplinks
        without = kernel.lanes_of if len(kernel.lanes_of) == wanted.pods else ()
        return self._remainder.shared(uplinks, common, wanted.enough, without)
