# SPDX-License-Identifier: Apache-2.0

"""The usual preference: the first placement, with the fullest leaves and pods tried first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from laas_service.domain.allocation import GroupShare, Packing, Shape, group_shares
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.full_pods import full_pod_sets
from laas_service.domain.search.misfits import Misfits
from laas_service.domain.search.pod_sets import pod_sets
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.preference import PodChoice, pods_with_room
from laas_service.domain.search.shapes import Placement
from laas_service.domain.topology import bits

COST_OF_A_CHOICE = 6
"""Units of work to compare the spine uplinks of full pods with those of a remainder pod."""


class BestFit:
    """Takes the first placement. Fuller leaf groups and pods come before emptier ones.

    With a ``packing`` a single leaf group is chosen by its cost (``Packing.cost``) instead.
    """

    def __init__(
        self,
        fabric: LedgerView,
        budget: SearchBudget,
        misfits: Misfits,
        packing: Packing | None = None,
    ) -> None:
        self._fabric = fabric
        self._budget = budget
        self._misfits = misfits
        self._packing = packing

    def choose(self, placements: Iterator[Placement]) -> Placement | None:
        return next(placements, None)

    def leaf_groups(self, hosts: int) -> Iterator[int]:
        """Groups with room, the fullest first or, with a packing, the cheapest by it first.

        Groups whose hosts are all free come last either way.
        """
        by_free, packing = self._fabric.groups_by_free, self._packing
        per_leaf, least_free = len(by_free) - 1, hosts
        if packing is not None:
            by_cost = [
                (packing.cost(group, free - hosts), group)
                for free in range(hosts, per_leaf)
                for group in bits(by_free[free])
            ]
            yield from (group for _, group in sorted(by_cost))
            least_free = max(hosts, per_leaf)
        for groups in by_free[least_free:]:
            while groups:
                low = groups & -groups
                yield low.bit_length() - 1
                groups ^= low

    def shares(self, groups: Iterable[int], hosts: int, uplinks: int) -> list[GroupShare]:
        free = self._fabric.free_hosts
        if hosts == self._fabric.topology.hosts_per_group:
            return group_shares([(g, free[g], uplinks) for g in groups])
        return group_shares([(g, lowest_bits(free[g], hosts), uplinks) for g in groups])

    def pods(self, hosts: int) -> Iterator[int]:
        """Pods with room, the fullest first, without those that are known not to fit.

        Skips a pod that looks the same as one that did not fit. Stops at the end of the
        budget.
        """
        misfits, freed = self._misfits, self._fabric.pod_freed
        failed: int | None = None
        for pod in pods_with_room(self._fabric, hosts):
            if hosts >= misfits.smallest(pod, freed[pod]):
                continue
            if failed is None or not self._look_alike(failed, pod):
                if self._budget.exceeded:
                    return
                yield pod
                failed = pod
            if not self._budget.exceeded:
                misfits.remember(pod, freed[pod], hosts)

    def _look_alike(self, pod: int, other: int) -> bool:
        """Whether leaf by leaf two pods have the same uplinks and numbers of hosts free."""
        by_free, uplinks = self._fabric.pod_groups_by_free, self._fabric.free_uplinks
        width = self._fabric.topology.groups_per_pod
        return by_free[pod] == by_free[other] and (
            uplinks[pod * width : (pod + 1) * width] == uplinks[other * width : (other + 1) * width]
        )

    def may_improve(self, shape: Shape, pod: int | None = None) -> bool:
        return True

    def improving(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        return shapes

    def ordered(self, groups: list[int], hosts: int) -> list[int]:
        return groups

    def pod_preference(self, view: PodView) -> BestFitPods:
        return BestFitPods(view)


class BestFitPods:
    """Takes pods with few fitting leaf groups first, and the lowest-numbered leaf groups."""

    def __init__(self, view: PodView) -> None:
        self._view = view

    def pod_choices(self, shape: Shape) -> Iterator[PodChoice]:
        view, budget = self._view, self._view.budget
        pods = view.pods_with(shape.leaves)
        if len(pods) < shape.pods or not budget.spend(2 * len(view.counts)):
            return
        remainder_pods: Sequence[int | None] = [None]
        if shape.remainder_leaves or shape.remainder_hosts:
            remainder_pods = self.remainder_pods(shape)
            if not remainder_pods:
                return
        sets_of_pods = full_pod_sets if view.all_used else pod_sets
        for pod_set in sets_of_pods(view, pods, shape):
            first_pods = pod_set[: shape.pods]
            for remainder_pod in remainder_pods:
                if not budget.spend(COST_OF_A_CHOICE):
                    return
                full_pods = first_pods
                if remainder_pod in first_pods:
                    full_pods = [pod for pod in pod_set if pod != remainder_pod][: shape.pods]
                if len(full_pods) == shape.pods:
                    yield full_pods, remainder_pod

    def remainder_pods(self, shape: Shape) -> list[int]:
        return self._view.remainder_pods(shape)

    def remainder_leaves(self, shape: Shape, pod: int) -> list[int]:
        return self._view.remainder_leaves(shape, pod)

    def full_leaves(self, pod: int, fitting: int, count: int) -> list[int]:
        first = pod * self._view.groups_per_pod
        groups = []
        for _ in range(count):
            low = fitting & -fitting
            groups.append(first + low.bit_length() - 1)
            fitting ^= low
        return groups
