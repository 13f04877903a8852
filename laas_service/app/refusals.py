# SPDX-License-Identifier: Apache-2.0

"""Explains refusals: the largest size that fits, and how to make room."""

from __future__ import annotations

from dataclasses import replace

from laas_service.app.lookup import Lookup
from laas_service.app.ports.fabrics import FabricReader
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.allocation import NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import BudgetedPolicy, Policy


class Refusals:
    """Explains why a request was refused, by further searches on the present ledger."""

    def __init__(self, store: FabricReader, lookup: Lookup) -> None:
        self._store = store
        self._lookup = lookup

    def explain(
        self,
        caller: Caller,
        request: AllocationRequest,
        refusal: NoFit,
        budget: RequestBudget,
        allowed: int | None = None,
    ) -> NoFit:
        """The refusal with the largest size that would fit now, and how to make room.

        The searches draw on ``budget``, heed the request's constraints and stay inside its
        parent. ``allowed`` is the largest size that a refusal for a quota permits.
        """
        if refusal.reason is Refusal.QUOTA and allowed is None:
            return refusal
        policy = BudgetedPolicy(self._lookup.policy(request.policy), budget)
        ledger = self._store.ledger(request.fabric)[0].ledger(request.parent)
        others_wait = refusal.reason is Refusal.OTHERS_WAIT
        if refusal.largest_fit is None:
            below = ledger.free_host_count + 1 if others_wait else request.hosts
            if allowed is not None:
                below = allowed + 1
            largest = largest_fit(policy, ledger, below, request.constraints)
            refusal = replace(refusal, largest_fit=largest)
        if not others_wait and refusal.reason is not Refusal.QUOTA:
            wanted = Request("", request.hosts, constraints=request.constraints)
            refusal = with_room(policy, ledger, wanted, refusal, caller.admin)
        return replace(refusal, cut_off=budget.cut)


def with_room(
    policy: Policy, ledger: LedgerView, request: Request, refusal: NoFit, admin: bool
) -> NoFit:
    """Whether the request would fit an empty fabric, and for administrators how to make room.

    Tenants do not see the ids of others' allocations.
    """
    ledger = ledger.surface()
    possible = fits_when_empty(policy, ledger, request)
    room = make_room(policy, ledger, request) if possible and admin else None
    return replace(refusal, fits_when_empty=possible, room=room)
