# SPDX-License-Identifier: Apache-2.0

"""The cheapest moves of tenants after which a refused request fits.

A move gives a tenant another legal placement of the same size. Its price is the number of hosts
that the tenant newly gets: an exchange of links alone costs nothing. Of all plans with at most
K moves, the planner looks for one with the fewest new hosts, then with the fewest moves:

* only sets of tenants count without which the request fits;
* first the request is placed without them, and each of them as near as possible to where it is
  (``nearest``), in every order;
* then the request is placed on every choice of hosts, those that take the fewest hosts from the
  tenants first, and the tenants near where they are;
* then every choice of hosts for a tenant that costs less than the best plan is tried in turn,
  with the request placed beside it, first with the links that keep most of the tenant's, then
  with every other set of links, until the budget is spent.

Two published rules are cases of it (Tsai and Liao, StarCube, Springer 2016). StarCube repacks the
tenants of a tree for a request: its type E, an exchange of links under running servers, comes first
here too, because it costs no new host, and its two time slots, the second into what the first has
freed, are a plan of two moves in order. Adaptive Fit (chapter 2) moves nobody for too little:
``app.queue_moves`` makes a plan only if the head of the queue starts so much earlier by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, permutations
from operator import itemgetter

from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import (
    WHOLE,
    Allocation,
    GroupShare,
    NoFit,
    Refusal,
    Request,
    Shape,
)
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.faults.repair import all_links, best_links
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.host_choices import HostChoices
from laas_service.domain.moves.host_roles import HostSupply, Roles
from laas_service.domain.moves.legal_shapes import SHAPED, LegalShape, legal_shapes
from laas_service.domain.moves.nearest import NO_COST, Nearest, nearest
from laas_service.domain.moves.pairs import helpful_pairs
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.budget import WORK, SearchBudget
from laas_service.domain.search.shapes import TAKE_FULL_LEAVES

MOVES_WORK = 60 * WORK
"""Default budget of one plan, in units of ``SearchBudget``: about two seconds."""

COST_OF_A_TRIAL = 150
"""Units of work to put a tenant elsewhere on trial and to take it back."""

COST_OF_A_CHOICE = 3
"""Units of work to make a choice of hosts."""

COST_OF_A_SHAPE = 40
"""Units of work to look for the choices of hosts of one shape."""

MOST_QUICK_SETS = 256
"""Sets of tenants that are tried for a first plan."""

MOST_CHOICES = 4096
"""Choices of hosts for one tenant that are looked at, of each shape."""

MOST_LINKS = 256
"""Sets of links for a choice of hosts that are tried, besides the first."""

_Choice = tuple[int, Shape, Roles]
"""New hosts, shape, and hosts on each leaf group."""


@dataclass(frozen=True, slots=True)
class MovesToFit:
    """Moves in order, and where the request fits after them."""

    moves: tuple[Nearest, ...]
    """The new placement of each tenant moved, free of everybody else when it is made."""
    placement: Allocation
    cut_off: bool = False
    """Whether the search stopped at its budget: a cheaper plan may exist."""
    at_once: bool = False
    """Whether all moves are made together (``repack``): then a new placement may have what another
    tenant had."""

    @property
    def new_hosts(self) -> int:
        """The hosts that tenants newly get, in all."""
        return sum(move.new_hosts for move in self.moves)


def plan_moves(
    policy: Policy,
    fabric: LedgerView,
    request: Request,
    most_moves: int,
    movable: Callable[[Allocation], bool] | None = None,
    work: int = MOVES_WORK,
    thorough: bool = True,
    links_only: bool = False,
) -> MovesToFit | NoFit:
    """The cheapest plan found of at most ``most_moves`` moves; without any if the request fits.

    ``movable`` says which tenants may move; by default all may. Containers, allocations inside
    them, and those of policies without a shape (ta, lc-s, starcube) stay where they are. The
    fabric is not changed. Without ``thorough`` the first plan is taken: it moves the smallest
    tenants without which the request fits to where their policies place them, or nearer. With
    ``links_only`` tenants keep their hosts and exchange links alone; the first plan is taken.
    """
    budget = RequestBudget(work)
    if links_only:
        return _LinkPlanner(policy, fabric, request, most_moves, movable, budget).plan()
    return _HostPlanner(policy, fabric, request, most_moves, movable, budget).plan(thorough)


def can_move(allocation: Allocation) -> bool:
    """Whether the planner knows other placements for an allocation."""
    shaped = allocation.policy in SHAPED or allocation.policy == "baseline"
    return shaped and allocation.bandwidth == WHOLE and allocation.kind.handed_over


class _Planner:
    """A fabric to try moves on, the tenants that may move, and the best plan so far."""

    def __init__(
        self,
        policy: Policy,
        fabric: LedgerView,
        request: Request,
        most_moves: int,
        movable: Callable[[Allocation], bool] | None,
        budget: RequestBudget,
    ) -> None:
        self._fabric = fabric.flattened()
        self._policy = BudgetedPolicy(policy, budget)
        self._request = replace(request, packing=None)
        self._most_moves = most_moves
        self._budget = budget
        self._best: MovesToFit | None = None
        self._tenants = sorted(
            (
                a
                for a in self._fabric.allocations.values()
                if can_move(a) and (movable is None or movable(a))
            ),
            key=lambda a: (a.size, a.id),
        )

    def _sets(self, count: int) -> Iterable[tuple[Allocation, ...]]:
        """Sets of tenants, those with few hosts first; larger sets only roughly so."""
        sets = combinations(self._tenants, count)
        if count > 2:
            return sets
        return sorted(sets, key=lambda tenants: sum(tenant.size for tenant in tenants))

    def _placed(self) -> Allocation | NoFit:
        return propose(self._policy, self._fabric, self._request)

    def _refusal(self, refusal: NoFit) -> NoFit:
        if self._budget.cut:
            detail = f"the search for up to {self._most_moves} moves stopped at its budget"
            return NoFit(Refusal.BUDGET, detail, cut_off=True)
        if refusal.reason.facts.by_count or not self._most_moves:
            return refusal
        detail = f"{refusal.detail}; moves of up to {self._most_moves} tenants do not help"
        return replace(refusal, detail=detail)

    @property
    def _least(self) -> int:
        """Only plans with fewer new hosts than this are better."""
        return NO_COST if self._best is None else self._best.new_hosts

    def _keep(self, moves: Sequence[Nearest], placement: Allocation) -> None:
        if sum(move.new_hosts for move in moves) < self._least:
            self._best = MovesToFit(tuple(moves), placement)

    @property
    def _done(self) -> bool:
        return self._least == 0 or self._budget.cut


class _LinkPlanner(_Planner):
    """Moves of links alone: every tenant keeps its hosts."""

    def plan(self) -> MovesToFit | NoFit:
        """A plan after which all tenants have the hosts that they had."""
        answer = self._placed()
        if isinstance(answer, Allocation):
            return MovesToFit((), answer)
        self._tenants = [tenant for tenant in self._tenants if len(tenant.groups) > 1]
        if self._most_moves and self._helps_to_exchange_links(self._tenants):
            for count in range(1, min(self._most_moves, len(self._tenants)) + 1):
                for tenants in self._sets(count):
                    if self._exchange_links(tenants) or self._budget.cut:
                        break
                if self._done:
                    break
        if self._best is not None:
            return self._best
        return self._refusal(answer)

    def _helps_to_exchange_links(self, tenants: Sequence[Allocation]) -> bool:
        """Whether the request fits if these tenants have their hosts without links."""
        with self._fabric.trial():
            for tenant in tenants:
                self._fabric.change(_without_links(tenant))
            return isinstance(self._placed(), Allocation)

    def _exchange_links(self, tenants: Sequence[Allocation]) -> bool:
        """Keep the plan that gives these tenants other links for the request, if there is one."""
        fabric = self._fabric
        if not self._budget.spend(COST_OF_A_TRIAL):
            return False
        with fabric.trial():
            for tenant in tenants:
                fabric.change(_without_links(tenant))
            placement = self._placed()
            if isinstance(placement, NoFit):
                return False
            fabric.claim(placement)
            return any(self._relinked(order, placement) for order in permutations(tenants))

    def _relinked(self, order: Sequence[Allocation], placement: Allocation) -> bool:
        """Give the tenants, who have only their hosts, other links in this order."""
        fabric, moves = self._fabric, list[Nearest]()
        if not self._budget.spend(COST_OF_A_TRIAL):
            return False
        with fabric.trial():
            for tenant in order[1:]:
                try:
                    fabric.change(tenant.beyond(placement))
                except DoubleClaim:  # it holds something that is down; it may move first
                    return False
            for number, tenant in enumerate(order):
                if number:
                    fabric.change(_without_links(tenant))
                linked = best_links(fabric, tenant)
                if linked is None:
                    return False
                moves.append(Nearest(linked, 0))
                fabric.change(linked)
        self._keep(moves, placement)
        return True


class _HostPlanner(_Planner):
    """Moves to other hosts."""

    _links_tried = 0

    @cached_property
    def _policies(self) -> dict[str, Policy]:
        """The policies of tenants, by their names."""
        return {}

    def plan(self, thorough: bool) -> MovesToFit | NoFit:
        answer = self._placed()
        if isinstance(answer, Allocation):
            return MovesToFit((), answer)
        spare = sum(tenant.size - min(tenant.requested, tenant.size) for tenant in self._tenants)
        if self._fabric.free_host_count + spare >= self._request.hosts:
            counts = range(1, min(self._most_moves, len(self._tenants)) + 1)
            for count in counts:
                if self._best is None:
                    self._quickly(count)
            for count in counts if thorough else ():
                self._with_moves(count)
        if self._best is not None:
            return replace(self._best, cut_off=self._budget.cut)
        return self._refusal(answer)

    def _with_moves(self, count: int) -> None:
        """Look for better plans that move ``count`` tenants."""
        helpful = []
        for tenants in self._sets(count):
            if self._done:
                return
            with self._fabric.trial():
                for tenant in tenants:
                    self._fabric.release(tenant.id)
                if isinstance(self._placed(), Allocation) and self._around_the_request(tenants):
                    helpful.append(tenants)
        for tenants in helpful:
            self._on_each_choice(tenants)
        for self._links_tried in (0, MOST_LINKS):
            for tenants in helpful:
                if self._done:
                    return
                for order in permutations(tenants):
                    self._in_order(order, ())

    def _quickly(self, count: int) -> None:
        """Take the first set of tenants that can go where their policies place them."""
        sets: Iterable[tuple[Allocation, ...]]
        if count == 2 and self._policy.name in TAKE_FULL_LEAVES:
            sets = helpful_pairs(self._fabric, self._tenants, self._request.hosts)
        else:
            sets = (tenants for tenants in self._sets(count) if self._may_help(tenants))
        for tenants in islice(sets, MOST_QUICK_SETS):
            if self._budget.cut:
                return
            with self._fabric.trial():
                for tenant in tenants:
                    self._fabric.release(tenant.id)
                placement = self._placed()
                if isinstance(placement, NoFit):
                    continue
                self._fabric.claim(placement)
                for order in permutations(tenants):
                    self._each_near(order, placement, self._anywhere)
                    if self._best is not None:
                        self._each_near(order, placement, self._nearest)
                        return

    def _may_help(self, tenants: Sequence[Allocation]) -> bool:
        """Whether enough hosts of a pod, or enough leaf groups, would be free without them."""
        if self._policy.name not in ("laas", "jigsaw"):
            return True
        fabric, hosts, topology = self._fabric, self._request.hosts, self._fabric.topology
        width, per_leaf = topology.groups_per_pod, topology.hosts_per_group
        freed, whole = dict[int, int](), 0
        for group, mask, _ in (share for tenant in tenants for share in tenant.groups):
            count = mask.bit_count()
            freed[group // width] = freed.get(group // width, 0) + count
            whole += fabric.free_hosts[group].bit_count() + count == per_leaf
        if any(fabric.pod_free_hosts[pod] + count >= hosts for pod, count in freed.items()):
            return True
        full = fabric.groups_by_free[per_leaf].bit_count()
        if len(tenants) > 1:
            whole = sum(len(tenant.groups) for tenant in tenants)
        return hosts > per_leaf and full + whole >= hosts // per_leaf

    def _anywhere(self, tenant: Allocation, below: int) -> Nearest | None:
        """Where the tenant's policy places it."""
        if tenant.policy not in self._policies:
            self._policies[tenant.policy] = POLICIES[tenant.policy]()
        request = Request(tenant.id, tenant.requested, budget=self._budget)
        answer = self._policies[tenant.policy].propose(self._fabric, request)
        if isinstance(answer, NoFit):
            return None
        placed = replace(answer, parent=tenant.parent)
        had = {share.group: share.hosts for share in tenant.groups}
        new = sum((hosts & ~had.get(group, 0)).bit_count() for group, hosts, _ in placed.groups)
        return Nearest(placed, new) if new < below else None

    # -- the request first ----------------------------------------------------

    def _around_the_request(self, tenants: Sequence[Allocation]) -> bool:
        """Place the request without the tenants, who are released, then each of them.

        False if no plan that moves these tenants can be better: each host that the request
        takes from a tenant is one that the tenant newly gets elsewhere.
        """
        placements, complete = [], False
        if self._policy.name in SHAPED and self._request.constraints is None:
            budget = SearchBudget(WORK, self._budget)
            least = self._on_few_hosts_of(tenants, budget)
            rounded = any(tenant.size != tenant.requested for tenant in tenants)
            complete = not (budget.exceeded or rounded)
            if least is None and complete:
                return False
            placements += [] if least is None else [least.allocation]
        preferred = self._placed()
        if isinstance(preferred, Allocation):
            placements.append(preferred)
        for placement in placements:
            with self._fabric.trial():
                self._fabric.claim(placement)
                for order in permutations(tenants):
                    self._each_near(order, placement, self._nearest)
                    if self._done:
                        return False
        return not (complete and least is not None and least.new_hosts >= self._least)

    def _on_few_hosts_of(
        self, tenants: Sequence[Allocation], budget: SearchBudget
    ) -> Nearest | None:
        """Where the request takes the fewest hosts of the tenants, if fewer than ``_least``."""
        supply = self._supply_for_request(tenants)
        shapes = legal_shapes(self._policy.name, self._request.hosts, self._fabric.topology)
        return nearest(self._fabric, self._blank, supply, shapes, budget, self._least)

    @property
    def _blank(self) -> Allocation:
        """The request without hosts."""
        return Allocation(self._request.id, self._request.hosts, self._policy.name, ())

    def _supply_for_request(self, tenants: Sequence[Allocation]) -> HostSupply:
        """The free hosts for the request: those of the tenants, who are released, cost."""
        free, theirs = self._fabric.free_hosts, _masks(self._fabric, tenants)
        return HostSupply(
            (0,) * len(free),
            tuple(mask & ~own for mask, own in zip(free, theirs, strict=True)),
            tuple(mask & own for mask, own in zip(free, theirs, strict=True)),
        )

    def _on_each_choice(self, tenants: Sequence[Allocation]) -> None:
        """Place the request on every choice of hosts in turn, then each tenant near it.

        The hosts that the request takes from the tenants bound the cost from below.
        """
        if self._policy.name not in SHAPED or self._request.constraints is not None:
            return
        fabric = self._fabric
        with fabric.trial():
            for tenant in tenants:
                fabric.release(tenant.id)
            shapes = legal_shapes(self._policy.name, self._request.hosts, fabric.topology)
            choices = HostChoices(fabric, self._blank, self._supply_for_request(tenants))
            for choice in self._cheapest(choices, shapes, self._least):
                if self._done or choice.new_hosts >= self._least:
                    return
                placement = best_links(fabric, choice.allocation)
                if placement is None:
                    self._budget.spend(COST_OF_A_TRIAL)
                    continue
                with fabric.trial():
                    fabric.claim(placement)
                    for order in permutations(tenants):
                        self._each_near(order, placement, self._nearest)

    def _each_near(
        self,
        order: Sequence[Allocation],
        placement: Allocation,
        place: Callable[[Allocation, int], Nearest | None],
    ) -> None:
        """Move the tenants, who are released, in this order, each to where ``place`` says."""
        fabric, moves, cost = self._fabric, list[Nearest](), 0
        if not self._budget.spend(COST_OF_A_TRIAL):
            return
        if len(order) == 1:  # by far the most frequent case, and it claims nothing
            move = place(order[0], self._least)
            if move is not None:
                self._keep((move,), placement)
            return
        with fabric.trial():
            for tenant in order[1:]:
                try:
                    fabric.claim(tenant.beyond(placement))
                except DoubleClaim:  # it holds something that is down; it may move first
                    return
            for number, tenant in enumerate(order):
                if number:
                    fabric.release(tenant.id)
                move = place(tenant, self._least - cost)
                if move is None:
                    return
                moves.append(move)
                cost += move.new_hosts
                fabric.claim(move.allocation)
        self._keep(moves, placement)

    def _supply(self, tenant: Allocation) -> HostSupply:
        """The free hosts for a tenant that is released: those that it had cost nothing."""
        free, own = self._fabric.free_hosts, _masks(self._fabric, (tenant,))
        return HostSupply(
            (0,) * len(free),
            tuple(mask & had for mask, had in zip(free, own, strict=True)),
            tuple(mask & ~had for mask, had in zip(free, own, strict=True)),
        )

    def _shapes(self, tenant: Allocation) -> Iterator[LegalShape]:
        shape = tenant.shape
        extended = shape is not None and shape.extended
        topology = self._fabric.topology
        return legal_shapes(tenant.policy, tenant.requested, topology, two_pods=extended)

    def _nearest(self, tenant: Allocation, below: int) -> Nearest | None:
        supply = self._supply(tenant)
        if tenant.policy == "baseline":
            return _hosts_alone(tenant, supply, below)
        budget = SearchBudget(WORK, self._budget)
        return nearest(self._fabric, tenant, supply, self._shapes(tenant), budget, below)

    # -- every choice of hosts ------------------------------------------------

    def _in_order(self, order: Sequence[Allocation], moves: tuple[Nearest, ...]) -> None:
        """Try every cheap enough choice of hosts for the first tenant, then for the others."""
        tenant, others = order[0], order[1:]
        spent = sum(move.new_hosts for move in moves)
        with self._fabric.trial():
            self._fabric.release(tenant.id)
            for choice in self._choices(tenant, self._least - spent):
                if self._done or spent + choice.new_hosts >= self._least:
                    return
                if not self._budget.spend(COST_OF_A_TRIAL):
                    return
                if others:
                    self._then(choice, others, moves)
                else:
                    self._beside(choice, moves)

    def _beside(self, choice: Nearest, moves: tuple[Nearest, ...]) -> None:
        """Keep the plan if the request fits beside the last tenant on these hosts."""
        fabric, hosts = self._fabric, choice.allocation
        with fabric.trial():
            fabric.claim(_without_links(hosts))
            answer = self._placed()
        if isinstance(answer, NoFit):
            return
        with fabric.trial():
            fabric.claim(answer)
            linked = best_links(fabric, hosts)
        if linked is not None:
            self._keep((*moves, replace(choice, allocation=linked)), answer)
            return
        for linked in self._linked(hosts):
            with fabric.trial():
                fabric.claim(linked)
                answer = self._placed()
            if isinstance(answer, Allocation):
                self._keep((*moves, replace(choice, allocation=linked)), answer)
                return

    def _then(
        self, choice: Nearest, others: Sequence[Allocation], moves: tuple[Nearest, ...]
    ) -> None:
        """Go on with the other tenants while this one has these hosts."""
        if not self._fits_without(others, _without_links(choice.allocation)):
            return
        for linked in self._linked(choice.allocation):
            if not self._fits_without(others, linked):
                continue
            with self._fabric.trial():
                self._fabric.claim(linked)
                for order in permutations(others):
                    self._in_order(order, (*moves, replace(choice, allocation=linked)))
            if self._least <= sum(move.new_hosts for move in moves) + choice.new_hosts:
                return

    def _fits_without(self, tenants: Sequence[Allocation], beside: Allocation) -> bool:
        """Whether the request fits beside one tenant if others were gone."""
        with self._fabric.trial():
            self._fabric.claim(beside)
            for tenant in tenants:
                self._fabric.release(tenant.id)
            return isinstance(self._placed(), Allocation)

    def _linked(self, hosts: Allocation) -> Iterator[Allocation]:
        """Links for these hosts: those of the tenant first, then others while the budget lasts."""
        best = best_links(self._fabric, hosts)
        if best is None:
            return
        yield best
        for linked in islice(all_links(self._fabric, hosts), self._links_tried):
            if self._done or not self._budget.spend(COST_OF_A_TRIAL):
                return
            yield linked

    def _choices(self, tenant: Allocation, below: int) -> Iterator[Nearest]:
        """Choices of hosts for a tenant that is released, with fewer new hosts than ``below``.

        The cheapest come first. They have no links yet, or the wish for those of the tenant.
        """
        if tenant.policy == "baseline":
            near = self._nearest(tenant, below)
            if near is not None:
                yield near
            return
        choices = HostChoices(self._fabric, tenant, self._supply(tenant))
        yield from self._cheapest(choices, self._shapes(tenant), below)

    def _cheapest(
        self, choices: HostChoices, shapes: Iterable[LegalShape], below: int
    ) -> Iterator[Nearest]:
        """The choices that cost less than ``below``, the cheapest first."""
        found: list[_Choice] = []
        for legal in shapes:
            if not self._budget.spend(COST_OF_A_SHAPE):
                break
            for roles in islice(choices.of_shape(legal), MOST_CHOICES):
                if not self._budget.spend(COST_OF_A_CHOICE):
                    break
                cost = sum(choices.cost(group, hosts) for group, hosts in roles)
                if cost < below:
                    found.append((cost, legal.shape, roles))
        for cost, shape, roles in sorted(found, key=itemgetter(0)):
            yield Nearest(choices.on_hosts(shape, roles), cost)


def _masks(fabric: LedgerView, allocations: Iterable[Allocation]) -> list[int]:
    """By leaf group, the mask of the hosts that these allocations have."""
    masks = [0] * fabric.topology.groups
    for allocation in allocations:
        for group, hosts, _ in allocation.groups:
            masks[group] |= hosts
    return masks


def _without_links(allocation: Allocation) -> Allocation:
    groups = tuple(GroupShare(group, hosts, 0) for group, hosts, _ in allocation.groups)
    return replace(allocation, groups=groups, columns=())


def _hosts_alone(tenant: Allocation, supply: HostSupply, below: int) -> Nearest | None:
    """Any hosts for a tenant that owns no links."""
    hosts = [0] * len(supply.spare)
    missing, cost = tenant.size, 0
    for masks, price in ((supply.spare, 0), (supply.new, 1)):
        for group, mask in enumerate(masks):
            taken = lowest_bits(mask, missing)
            hosts[group] |= taken
            missing -= taken.bit_count()
            cost += price * taken.bit_count()
    if missing or cost >= below:
        return None
    groups = tuple(GroupShare(group, mask, 0) for group, mask in enumerate(hosts) if mask)
    return Nearest(replace(tenant, groups=groups), cost)
