# SPDX-License-Identifier: Apache-2.0

"""Pods that agree, searched on the spine uplinks that enough of them have free.

Often nearly any two pods agree and no larger set of them does. So this search looks at all pods
at once. A spine uplink that too few pods have free is of no use, and so is a pod that has too few
uplinks below those that are left. Both are dropped until nothing changes (the kernel). If the
pods with most spine uplinks left agree, that is the answer. If not, ``ColumnByColumn`` decides
where there are few ways to choose spine uplinks. Where there are many, the pod that lacks most of
them is tried as one of the pods sought, which leaves its own spine uplinks, and then left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.carried_uplinks import Carried
from laas_service.domain.search.column_by_column import MOST_CHOICES, ColumnByColumn, Node
from laas_service.domain.search.matching import konig_bounds, sure_bounds

COST_OF_A_STEP = 16
"""Units of work of a step, beside two for each node that it looks at."""

WORK_WITHOUT_BOUNDS = 2_000
"""Units of work of a search before König's bound."""


class OutOfWork(Exception):
    """The budget is used up."""


class Wanted(NamedTuple):
    """What the nodes of a shape have to share."""

    enough: Callable[[int], bool]
    """Whether these uplinks are enough for a leaf."""
    columns: int
    """To how many columns the uplinks of a leaf lead at least."""
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

    def by_pod(self) -> dict[int, list[tuple[int, int]]]:
        """By pod, the uplinks of each node, and the spine uplinks above them."""
        nodes: dict[int, list[tuple[int, int]]] = {}
        for pod, mask, lanes in self.nodes:
            nodes.setdefault(pod, []).append((mask, lanes))
        return nodes


class Remainder:
    """The pods that may be the remainder pod, with its ``full`` leaves and its remainder ``leaf``.

    ``enough_for_leaf`` tests the uplinks of the remainder leaf. A pod has a node of each kind
    that is not None.
    """

    def __init__(
        self,
        full: NodesOfPods | None,
        leaf: NodesOfPods | None,
        enough_for_leaf: Callable[[int], bool],
        pods: int,
    ) -> None:
        self._full = full
        self._leaf = leaf
        self._enough_for_leaf = enough_for_leaf
        kinds = [(kind, kind.by_pod()) for kind in (full, leaf) if kind is not None]
        self.pods = [
            (pod, [(kind, nodes[pod]) for kind, nodes in kinds])
            for pod in range(pods)
            if all(pod in nodes for _, nodes in kinds)
        ]
        """The pods by number, and their nodes of each kind."""

    def live(self, shared: int, live: int, without: Container[int]) -> int:
        """Of the marked lanes ``live``, those in which a pod may share spine uplinks ``shared``.

        The pod is none of the pods ``without``.
        """
        union = 0
        for pod, kinds in self.pods:
            if pod in without:
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

    nodes: list[Node]
    lanes_of: dict[int, int]
    """By pod, the spine uplinks of its nodes, among them some that are not ``shared``."""
    shared: int
    """The spine uplinks that enough pods have."""


class SharedSpines:
    """The search for ``wanted.pods`` nodes of different pods that agree, and a remainder pod.

    It is known that at least ``least_new`` of the pods are among ``new``.
    """

    def __init__(
        self,
        wanted: Wanted,
        remainder: Remainder | None,
        budget: SearchBudget,
        new: frozenset[int] = frozenset(),
        least_new: int = 0,
    ) -> None:
        self._wanted = wanted
        self._remainder = remainder
        self._budget = budget
        self._new = new
        self._least_new = least_new

    def may_agree(self, nodes: list[Node]) -> bool:
        """Whether nodes may agree that have no more than one of these.

        Raises:
            OutOfWork: that is not known.
        """
        return self._kernel(nodes, -1, ()) is not None

    def uplinks(self, nodes: list[Node], unless: Callable[[], bool] = lambda: False) -> int:
        """Uplinks that some of these nodes share; 0 if no nodes agree.

        ``unless`` may know that none do; it is asked where that is not seen at once.

        Raises:
            OutOfWork: that is not known.
        """
        kernel = self._kernel(nodes, -1, ())
        if kernel is None:
            return 0
        found = self._greedy(kernel)
        if found or unless():
            return found
        decided = self._decided(kernel)
        if decided is not None:
            return decided
        sets = None if self._remainder is None else self._by_columns(kernel)
        if sets is not None:
            return next(filter(None, (self._searched(some, -1, ()) for some in sets)), 0)
        try:
            with self._budget.attempt(WORK_WITHOUT_BOUNDS, of_search=True):
                return self._branched(kernel, ())
        except OutOfWork:
            usable = self._within_bounds(kernel)
            return self._searched(nodes, usable, ()) if usable else 0

    def _within_bounds(self, kernel: _Kernel) -> int:
        """The spine uplinks of the lanes that König's bound does not rule out."""
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

    def _searched(self, nodes: list[Node], usable: int, chosen: tuple[int, ...]) -> int:
        """``uplinks``, on the spine uplinks ``usable``, with nodes of the pods ``chosen``."""
        kernel = self._kernel(nodes, usable, chosen)
        if kernel is None:
            return 0
        found = self._decided(kernel)
        return self._branched(kernel, chosen) if found is None else found

    def _branched(self, kernel: _Kernel, chosen: tuple[int, ...]) -> int:
        """``_searched`` with the pod that lacks most of the spine uplinks, then without it."""
        while True:
            nodes, lanes_of, shared = kernel
            lacks, worst = max(
                [((shared & ~lanes).bit_count(), pod) for pod, lanes in lanes_of.items()]
            )
            if not lacks:
                return self._by_node(kernel, chosen)
            found = self._searched(nodes, shared & lanes_of[worst], (*chosen, worst))
            if found:
                return found
            without = [node for node in nodes if node[0] != worst]
            left = self._kernel(without, shared, chosen)
            if left is None:
                return 0
            decided = self._decided(left)
            if decided is not None:
                return decided
            kernel = left

    def _decided(self, kernel: _Kernel) -> int | None:
        """``_searched``, where it is known without branching; None if it is not."""
        found = self._common(kernel.nodes)
        if found or self._remainder is not None:
            return found or None
        sets = self._by_columns(kernel)
        if sets is None:
            return None
        return self._common(sets[0]) or None if sets else 0

    def _greedy(self, kernel: _Kernel) -> int:
        """Uplinks that the first nodes share, most spine uplinks first; 0 if these are too few.

        A node is left out if it does not agree with those before it.
        """
        marked, columns = self._wanted.full.marked, self._wanted.columns
        common, chosen = -1, dict[int, Node]()
        for node in sorted(kernel.nodes, key=lambda node: -node[2].bit_count()):
            pod, _, lanes = node
            both = common & lanes
            if pod not in chosen and (both == common or marked(both).bit_count() >= columns):
                common, chosen[pod] = both, node
                if len(chosen) == self._wanted.pods:
                    return self._common(list(chosen.values()))
        return 0

    def _by_columns(self, kernel: _Kernel) -> list[list[Node]] | None:
        """Sets of nodes that share enough columns; None if there are too many choices."""
        wanted = self._wanted
        columns = [
            (at, spines, need)
            for at, field, need in wanted.full.fields
            if (spines := kernel.shared >> at & field)
        ]
        if sum([comb(spines.bit_count(), need) for _, spines, need in columns]) > MOST_CHOICES:
            return None
        search = ColumnByColumn(kernel.nodes, wanted.pods, self._new, self._least_new)
        return search.sets(columns, wanted.columns, self._budget)

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

    def _kernel(self, nodes: list[Node], usable: int, chosen: tuple[int, ...]) -> _Kernel | None:
        """What may belong to the nodes sought; None if there can be none."""
        wanted, remainder, least_new = self._wanted, self._remainder, self._least_new
        if len(chosen) == wanted.pods:
            nodes = [node for node in nodes if node[0] in chosen]
        pods, columns, full = wanted.pods, wanted.columns, wanted.full
        marked, filled = full.marked, full.filled
        while True:
            if not self._budget.spend(COST_OF_A_STEP + 2 * len(nodes)):
                raise OutOfWork
            lanes_of = {pod: lanes for pod, _, lanes in nodes}
            if len(lanes_of) < len(nodes):
                for pod, _, lanes in nodes:
                    lanes_of[pod] |= lanes
            if len(lanes_of) < pods or (chosen and not lanes_of.keys() >= set(chosen)):
                return None
            shared = usable & counted_at_least(pods, bit_counts(lanes_of.values()))
            if least_new:
                of_new = [lanes_of[pod] for pod in self._new if pod in lanes_of]
                shared &= counted_at_least(least_new, bit_counts(of_new))
            live = marked(shared)
            if live.bit_count() < columns:
                return None
            shared &= filled(live)
            if remainder is not None:
                without = lanes_of if len(lanes_of) == pods else chosen
                left = remainder.live(shared, live, without)
                if left.bit_count() < columns:
                    return None
                if left != live:
                    shared &= filled(left)
            kept, fewer, others = [], False, ~shared
            for node in nodes:
                pod, mask, lanes = node
                if lanes & others:
                    lanes &= shared
                    live = marked(lanes)
                    if live.bit_count() < columns:
                        fewer = True
                        continue
                    carrying = lanes & filled(live)
                    if carrying != lanes:
                        fewer = True
                    node = pod, mask, carrying
                kept.append(node)
            if not fewer:
                return _Kernel(kept, lanes_of, shared)
            nodes = kept

    def _common(self, nodes: Sequence[Node]) -> int:
        """Uplinks that all these nodes share with a remainder pod; 0 if too few."""
        wanted = self._wanted
        common = uplinks = -1
        for _, mask, lanes in nodes:
            common &= lanes
            uplinks &= mask
        uplinks &= wanted.full.by(common)
        if not wanted.enough(uplinks):
            return 0
        if self._remainder is None:
            return uplinks
        pods = {pod for pod, _, _ in nodes}
        without = pods if len(pods) == wanted.pods else ()
        return self._remainder.shared(uplinks, common, wanted.enough, without)
