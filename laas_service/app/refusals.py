# SPDX-License-Identifier: Apache-2.0

"""Explains refusals: the largest size that fits, and how to make room."""

from dataclasses import replace

from laas_service.app.handovers import host_names
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Caller, Words
from laas_service.app.requests import AllocationRequest
from laas_service.app.wording.refusals import with_withheld
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.allocation import Ground, NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Policy


def explained(
    refusal: NoFit,
    request: AllocationRequest,
    policy: Policy,
    ledger: LedgerView,
    admin: bool,
    words: Words,
    effort: RequestBudget,
    allowed: int | None = None,
) -> NoFit:
    """The refusal with the largest size that would fit now, and how to make room.

    The searches heed the request's constraints; that for room ends when ``effort`` is spent.
    ``ledger`` is that of the fabric, or of the request's parent. ``words`` are described at
    ``with_room``. ``allowed`` is the largest size that a refusal for a quota permits.
    """
    facts = refusal.reason.facts
    if facts.ground is Ground.PROJECT and allowed is None:
        return refusal
    if refusal.largest_fit is None:
        below = ledger.free_host_count + 1 if facts.ground is Ground.QUEUE else request.hosts
        if allowed is not None:
            below = allowed + 1
        largest = largest_fit(policy, ledger, below, request.constraints)
        refusal = replace(refusal, largest_fit=largest)
    if facts.room_helps:
        wanted = Request("", request.hosts, constraints=request.constraints)
        refusal = with_room(policy, ledger, wanted, refusal, admin, words, effort)
    return replace(refusal, cut_off=effort.cut)


def with_withheld_hosts(
    store: Store, refusal: NoFit, asked: AllocationRequest | AllocationRecord, caller: Caller
) -> NoFit:
    """The refusal with the hosts that are withheld for what compute shows of them.

    They are hosts of the fabric, or of the parent. Administrators get names and reasons, other
    callers numbers.
    """
    memory = store.faults.host_memory(asked.fabric)
    if asked.parent is not None and memory.withheld():
        parent = store.allocations.get(asked.parent)
        memory = memory.only(host_names(store.fabrics.get(asked.fabric), parent.held))
    if not refusal.reason.facts.names_withheld or not memory.withheld():
        return refusal
    return replace(refusal, detail=with_withheld(refusal.detail, memory, named=caller.admin))


def with_room(
    policy: Policy,
    ledger: LedgerView,
    request: Request,
    refusal: NoFit,
    admin: bool,
    words: Words,
    effort: RequestBudget,
) -> NoFit:
    """Whether the request would fit an empty fabric, and for administrators how to make room.

    Tenants do not see the ids of others' allocations. ``words`` say who drained hosts of the
    fabric: an operator cannot undo what observation or Nova says, so such hosts count as failed.
    """
    ledger = ledger.flattened()
    for host in words.withheld_hosts:
        ledger.fail_host(host)
    possible = fits_when_empty(policy, ledger, request)
    room = make_room(policy, ledger, request, budget=effort) if possible and admin else None
    return replace(refusal, fits_when_empty=possible, room=room)
