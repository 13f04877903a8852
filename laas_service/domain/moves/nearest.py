# SPDX-License-Identifier: Apache-2.0

"""The legal placement that takes the fewest new hosts, around hosts that a tenant keeps.

A policy asks where a tenant fits on free hosts. A change of placement asks more: some hosts
must stay, others cost nothing because the tenant has them already, and each further host
counts. The search tries every shape of the policy, every way to give the roles of the shape
(full leaf, remainder leaf, full pod, remainder pod) to the leaf groups that must stay, and
every set of uplinks and of spine uplinks that enough leaf groups and pods share
(``search.bicliques``). The links of each choice are the best that its hosts can have
(``faults.repair.best_links``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from laas_service.domain.allocation import Allocation, Shape
from laas_service.domain.faults.repair import best_links
from laas_service.domain.grouping import grouped
from laas_service.domain.lanes import apart
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.host_roles import HostRoles, HostSupply, Roles
from laas_service.domain.moves.legal_shapes import GroupLevel, LegalShape
from laas_service.domain.search.bicliques import BicliqueSpec, bicliques
from laas_service.domain.search.budget import SearchBudget

NO_COST = 1 << 62
"""More than any placement costs."""

COST_OF_LINKS = 40
"""Units of work to choose the links of one choice of hosts, for each column."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """A placement, and the number of new hosts in it."""

    allocation: Allocation
    new_hosts: int


def nearest(
    view: LedgerView,
    tenant: Allocation,
    supply: HostSupply,
    shapes: Iterable[LegalShape],
    budget: SearchBudget,
    below: int = NO_COST,
) -> Nearest | None:
    """The first of the placements with the fewest new hosts; None if there is none.

    ``view`` is the fabric without the tenant: only links that are free there are used, and of
    these as many as possible that the tenant has. ``tenant`` also says the id, the policy and
    the number of hosts asked for. Only placements with fewer new hosts than ``below`` count.
    The answer is no proof once the budget is exceeded.
    """
    search = _NearestSearch(view, tenant, supply, budget, below)
    for legal in shapes:
        if budget.exceeded:
            break
        if not search.done(legal.shape.size):
            search.try_shape(legal)
    return search.best


_Needs = Sequence[tuple[int, int]]
"""As in ``BicliqueSpec``."""


class _NearestSearch(HostRoles):
    def __init__(
        self,
        view: LedgerView,
        tenant: Allocation,
        supply: HostSupply,
        budget: SearchBudget,
        below: int,
    ) -> None:
        super().__init__(view, tenant, supply)
        self.best: Nearest | None = None
        self._least = below
        self._budget = budget
        self._stay = [group for group, count in enumerate(self.kept) if count]
        self._no_cost_in_all = sum(self.at_no_cost)

    def done(self, size: int) -> bool:
        """Whether no placement of so many hosts can be better than the best."""
        return max(0, size - self._no_cost_in_all) >= self._least

    # -- uplinks --------------------------------------------------------------

    def _uplinks_for(self, hosts: int) -> int:
        return -(-hosts // self.topology.taper[0])

    def _wide(self, uplinks: int, width: int) -> bool:
        return all((uplinks & plane).bit_count() >= width for plane in self.topology.plane_fields)

    def _enough(self, base: int, width: int, uplinks: int) -> bool:
        return self._wide(uplinks & base, width)

    def _common(self, groups: Iterable[int]) -> int:
        uplinks = self.view.free_uplinks
        return reduce(and_, (uplinks[group] for group in groups), sum(self.topology.plane_fields))

    # -- shapes ---------------------------------------------------------------

    def try_shape(self, legal: LegalShape) -> None:
        """Look for a better placement of this shape."""
        shape = legal.shape
        if legal.level is GroupLevel.LEAF:
            self._in_one_leaf(shape)
        elif legal.level is GroupLevel.POD:
            width = self.width
            pods = {group // width for group in self._stay}
            for pod in pods or self._pods_by_cost(shape.size):
                if len(pods) < 2 and not self.done(shape.size):
                    self._in_pod(shape, range(pod * width, (pod + 1) * width))
        else:
            self._in_several_pods(shape)

    def _pods_by_cost(self, hosts: int) -> list[int]:
        """The pods that have so many hosts; those with most hosts at no cost first."""
        width, most, at_no_cost = self.width, self.most, self.at_no_cost
        totals = [
            (-min(hosts, sum(at_no_cost[first : first + width])), sum(most[first : first + width]))
            for first in range(0, len(most), width)
        ]
        pods = [pod for pod, (_, hosts_in_all) in enumerate(totals) if hosts_in_all >= hosts]
        return sorted(pods, key=lambda pod: totals[pod])

    def _in_one_leaf(self, shape: Shape) -> None:
        groups = self._stay or range(len(self.most))
        if len(self._stay) < 2:
            for group in self.candidates(groups, shape.hosts):
                self._consider(shape, ((group, shape.hosts),))
                if self.done(shape.size):
                    return

    def _in_pod(self, shape: Shape, groups: range) -> None:
        """A biclique of leaf groups with their common uplinks, and each remainder leaf."""
        hosts, rest = shape.hosts, shape.remainder_hosts
        able = self.candidates(groups, hosts)
        for leaf in self._remainder_leaves(groups, rest):
            stay = [group for group in self._stay if group != leaf]
            if not set(stay) <= set(able) or len(stay) > shape.leaves:
                continue
            others = [group for group in able if group not in stay and group != leaf]
            missing = shape.leaves - len(stay)
            cheapest = [*stay, *others[:missing]]
            if len(others) < missing or self._too_dear(cheapest, hosts, leaf, rest):
                continue
            uplinks = sum(self.topology.plane_fields)
            if leaf is not None:
                uplinks = self.view.free_uplinks[leaf]
            for chosen in self._sharing(stay, others, missing, hosts, (uplinks, rest)):
                self._consider(shape, _roles(chosen, hosts, leaf, rest))
                if self.done(shape.size) or self._budget.exceeded:
                    return

    def _remainder_leaves(self, groups: Iterable[int], rest: int) -> Sequence[int | None]:
        """The leaf groups that may be the remainder leaf, one of each kind; None without one."""
        if not rest:
            return (None,)
        uplinks, kinds = self.view.free_uplinks, dict[object, int]()
        for group in self.candidates(groups, rest):
            roles = self.cost(group, rest), uplinks[group]
            as_full_leaf = self.at_no_cost[group], self.most[group]
            kinds.setdefault((roles, as_full_leaf, self.kept[group] and group), group)
        return tuple(kinds.values())

    def _too_dear(self, full: Iterable[int], hosts: int, leaf: int | None, rest: int) -> bool:
        cost = sum(self.cost(group, hosts) for group in full)
        return cost + (0 if leaf is None else self.cost(leaf, rest)) >= self._least

    def _sharing(
        self,
        stay: Sequence[int],
        others: Sequence[int],
        missing: int,
        hosts: int,
        remainder: tuple[int, int],
    ) -> Iterator[list[int]]:
        """The leaf groups ``stay`` and, for each set of uplinks to share, the first others.

        ``remainder``: the uplinks of the remainder leaf, and its hosts.
        """
        width, rest_width = self._uplinks_for(hosts), self._uplinks_for(remainder[1])
        base = self._common(stay)

        def enough(uplinks: int) -> bool:
            return self._wide(uplinks & base, width) and self._wide(
                uplinks & base & remainder[0], rest_width
            )

        rows = [self.view.free_uplinks[group] & base for group in others]
        for chosen in self._row_sets(rows, missing, enough, self._needs(width)):
            yield [*stay, *(others[row] for row in chosen[:missing])]

    def _needs(self, width: int) -> _Needs:
        return [(plane, width) for plane in self.topology.plane_fields]

    def _row_sets(
        self,
        rows: Sequence[int],
        count: int,
        enough: Callable[[int], bool],
        needs: _Needs = (),
    ) -> Iterator[list[int]]:
        """Sets of ``count`` or more rows, by number, whose common bits are enough."""
        if count:
            for chosen, _ in bicliques(rows, BicliqueSpec(count, needs, enough), self._budget):
                yield chosen
        elif self._budget.spend(1) and enough(-1):
            yield []

    # -- several pods ---------------------------------------------------------

    def _in_several_pods(self, shape: Shape) -> None:
        """Roles of the leaf groups that stay, and uplinks that enough leaf groups share."""
        groups, rest = range(len(self.most)), shape.remainder_hosts
        able = self.candidates(groups, shape.hosts)
        leaves = shape.pods * shape.leaves + shape.remainder_leaves
        width = self._uplinks_for(shape.hosts)
        needs = self._needs(width)
        staying_leaves: list[int | None] = [None]
        if rest:
            staying_leaves += [group for group in self._stay if self.can_have(group, rest)]
        for leaf in staying_leaves:
            stay = [group for group in self._stay if group != leaf]
            others = [group for group in able if group not in self._stay]
            missing = leaves - len(stay)
            if not set(stay) <= set(able) or not 0 <= missing <= len(others):
                continue
            base = self._common(stay)
            rows = [self.view.free_uplinks[group] & base for group in others]
            for chosen in self._row_sets(rows, missing, partial(self._enough, base, width), needs):
                fitting = [*stay, *(others[row] for row in chosen)]
                self._on_pods(shape, stay, leaf, fitting)
                if self.done(shape.size) or self._budget.exceeded:
                    return

    def _on_pods(
        self, shape: Shape, stay: Sequence[int], leaf: int | None, fitting: Sequence[int]
    ) -> None:
        """Choose pods for leaf groups ``fitting``, all of which share enough uplinks.

        ``stay`` are full leaves for sure, ``leaf`` is the remainder leaf if it is given.
        """
        by_pod = grouped((group // self.width, group) for group in fitting)
        pods_to_stay = grouped((group // self.width, group) for group in stay)
        remainder_pods: Iterable[int | None] = (None,)
        if leaf is not None:
            remainder_pods = (leaf // self.width,)
        elif shape.remainder_leaves or shape.remainder_hosts:
            remainder_pods = range(self.topology.pods)
        for remainder_pod in remainder_pods:
            full = [pod for pod in pods_to_stay if pod != remainder_pod]
            if len(full) > shape.pods or any(
                len(pods_to_stay[pod]) > shape.leaves or len(by_pod[pod]) < shape.leaves
                for pod in full
            ):
                continue
            rest_stays = pods_to_stay.get(remainder_pod, []) if remainder_pod is not None else []
            if len(rest_stays) > shape.remainder_leaves:
                continue
            others = [
                pod
                for pod, members in by_pod.items()
                if pod not in full and pod != remainder_pod and len(members) >= shape.leaves
            ]
            self._on_full_pods(shape, (full, others), remainder_pod, leaf, by_pod)
            if self.done(shape.size) or self._budget.exceeded:
                return

    def _on_full_pods(
        self,
        shape: Shape,
        pods: tuple[Sequence[int], list[int]],
        remainder_pod: int | None,
        leaf: int | None,
        by_pod: Mapping[int, Sequence[int]],
    ) -> None:
        """Choose full pods that share spine uplinks, and each remainder leaf beside them.

        ``pods``: those that stay full pods, and others.
        """
        full, others = pods
        missing = shape.pods - len(full)
        if missing > len(others):
            return
        parts = list(self._remainder_parts(shape, remainder_pod, leaf, by_pod))
        if not parts:
            return
        cost = {
            pod: sum(self.cost(g, shape.hosts) for g in by_pod[pod][: shape.leaves])
            for pod in (*full, *others)
        }
        free = self.view.pod_free_hosts
        others.sort(key=lambda pod: (cost[pod], free[pod], pod))
        lanes = self.view.free_lanes
        base = reduce(and_, (lanes[pod] for pod in full), -1)
        rows = [lanes[pod] & base for pod in others]
        enough = partial(self._enough_spines, shape, base)
        for chosen in self._row_sets(rows, missing, enough):
            full_pods = [*full, *(others[row] for row in chosen[:missing])]
            groups = [g for pod in full_pods for g in by_pod[pod][: shape.leaves]]
            for leaves, remainder_leaf in parts:
                everything = [*groups, *leaves]
                rest = shape.remainder_hosts
                if not self._too_dear(everything, shape.hosts, remainder_leaf, rest):
                    roles = _roles(everything, shape.hosts, remainder_leaf, rest)
                    self._consider(shape, roles)
                if self.done(shape.size) or self._budget.exceeded:
                    return

    def _remainder_parts(
        self,
        shape: Shape,
        pod: int | None,
        leaf: int | None,
        by_pod: Mapping[int, Sequence[int]],
    ) -> Iterator[tuple[Sequence[int], int | None]]:
        """The full leaves and the remainder leaf that the remainder pod may have."""
        if pod is None:
            yield (), None
            return
        members, count = by_pod.get(pod, ()), shape.remainder_leaves
        groups = range(pod * self.width, (pod + 1) * self.width)
        leaves: Sequence[int | None] = (leaf,)
        if leaf is None:
            among = [group for group in groups if not self.kept[group]]
            leaves = self._remainder_leaves(among, shape.remainder_hosts)
        for remainder_leaf in leaves:
            full = [group for group in members if group != remainder_leaf][:count]
            if len(full) == count:
                yield full, remainder_leaf

    def _enough_spines(self, shape: Shape, base: int, spines: int) -> bool:
        """Whether L2 switches with these spine uplinks carry the uplinks of a full leaf."""
        topology, common = self.topology, spines & base
        if common < 0:
            return True
        width = self._uplinks_for(shape.hosts)
        masks = apart(common, topology.columns_per_pod, topology.lane)
        room = [0] * topology.planes
        for column in topology.columns:
            flows = masks[column.number].bit_count() * topology.taper[1]
            carried = flows // (shape.leaves * column.rails)
            room[column.plane] += min(column.bundle.bit_count(), carried)
        return min(room) >= width

    # -- a choice of hosts ----------------------------------------------------

    def _consider(self, shape: Shape, roles: Roles) -> None:
        """Keep the placement if it is better than the best and there are links for it."""
        cost = sum(self.cost(group, hosts) for group, hosts in roles)
        if cost >= self._least:
            return
        if not self._budget.spend(COST_OF_LINKS * self.topology.columns_per_pod // 8):
            return
        placed = best_links(self.view, self.on_hosts(shape, roles))
        if placed is not None:
            self._least, self.best = cost, Nearest(placed, cost)


def _roles(full: Iterable[int], hosts: int, leaf: int | None, rest: int) -> Roles:
    roles = [(group, hosts) for group in full]
    return roles if leaf is None else [*roles, (leaf, rest)]
