# SPDX-License-Identifier: Apache-2.0

"""A full repack: all tenants that may move are placed again, and a request among them.

It shows what moves can gain at most; nobody would do it to a cluster, as nearly all tenants stop at
the same time. It is the rule of bin packing by decreasing size: on the fabric without them, the
request and the tenants are placed in the order of their sizes, the largest first, each where its
policy places it. If one of them finds no place, it is placed before the others, and all are placed
again. A heuristic: that it finds no place for everybody is no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MOVES_WORK, MovesToFit, can_move
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import BudgetedPolicy, Policy

MOST_ORDERS = 12
"""Orders in which the tenants are placed."""


def repack(
    policy: Policy,
    fabric: LedgerView,
    request: Request,
    movable: Callable[[Allocation], bool] | None = None,
    work: int = MOVES_WORK,
) -> MovesToFit | NoFit:
    """New placements of all tenants that may move, beside which the request fits.

    The moves are made at once: a new placement may have what another tenant had. A tenant that
    would have its old placement again is no move. Who may move is as in ``plan_moves``; the
    fabric is not changed, and a request that fits needs no moves.
    """
    answer = propose(policy, fabric, request)
    if isinstance(answer, Allocation):
        return MovesToFit((), answer)
    empty = fabric.flattened()
    tenants = [
        tenant
        for tenant in empty.allocations.values()
        if can_move(tenant) and (movable is None or movable(tenant))
    ]
    for tenant in tenants:
        empty.release(tenant.id)
    if empty.free_host_count < request.hosts + sum(tenant.requested for tenant in tenants):
        return answer
    budget = RequestBudget(work)
    policies = {name: BudgetedPolicy(POLICIES[name](), budget) for name in POLICIES}
    newcomer = replace(request, packing=None)
    wanted: list[tuple[Policy, Request]] = [(BudgetedPolicy(policy, budget), newcomer)]
    wanted += [
        (policies[tenant.policy], Request(tenant.id, tenant.requested)) for tenant in tenants
    ]
    wanted.sort(key=lambda one: (-one[1].hosts, one[1].id))
    for _ in range(MOST_ORDERS):
        placed: list[Allocation] = []
        with empty.trial():
            for whose, asked in wanted:
                place = propose(whose, empty, asked)
                if isinstance(place, NoFit):
                    break
                empty.claim(place)
                placed.append(place)
        if len(placed) == len(wanted):
            return _plan(tenants, placed, request)
        if budget.cut:
            detail = "the search for a repack stopped at its budget"
            return NoFit(Refusal.BUDGET, detail, cut_off=True)
        wanted.insert(0, wanted.pop(len(placed)))
    return replace(answer, detail=f"{answer.detail}; no repack was found after which it fits")


def _plan(
    tenants: Sequence[Allocation], placed: Sequence[Allocation], request: Request
) -> MovesToFit:
    """What changes. Hosts that a tenant had and has again are not new."""
    places = {place.id: place for place in placed}
    moves = []
    for tenant in tenants:
        place = replace(places[tenant.id], parent=tenant.parent)
        if (place.groups, place.columns) == (tenant.groups, tenant.columns):
            continue
        had = {share.group: share.hosts for share in tenant.groups}
        new = sum((hosts & ~had.get(group, 0)).bit_count() for group, hosts, _ in place.groups)
        moves.append(Nearest(place, new))
    return MovesToFit(tuple(moves), places[request.id], at_once=True)
