# SPDX-License-Identifier: Apache-2.0

"""Explains refusals: the largest size that fits, and how to make room."""

from dataclasses import replace

from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.allocation import NoFit, Refusal, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Policy


def explained(
    refusal: NoFit,
    request: AllocationRequest,
    policy: Policy,
    ledger: LedgerView,
    admin: bool,
    allowed: int | None = None,
) -> NoFit:
    """The refusal with the largest size that would fit now, and how to make room.

    The searches heed the request's constraints. ``ledger`` is that of the fabric, or of the
    request's parent. ``allowed`` is the largest size that a refusal for a quota permits.
    """
    if refusal.reason is Refusal.QUOTA and allowed is None:
        return refusal
    others_wait = refusal.reason is Refusal.OTHERS_WAIT
    if refusal.largest_fit is None:
        below = ledger.free_host_count + 1 if others_wait else request.hosts
        if allowed is not None:
            below = allowed + 1
        largest = largest_fit(policy, ledger, below, request.constraints)
        refusal = replace(refusal, largest_fit=largest)
    if not others_wait and refusal.reason is not Refusal.QUOTA:
        wanted = Request("", request.hosts, constraints=request.constraints)
        refusal = with_room(policy, ledger, wanted, refusal, admin)
    return refusal


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
