# SPDX-License-Identifier: Apache-2.0

"""Changes of allocations, of which those of slots are carried out here."""

from laas_service.api import allocations, policies, schemas
from laas_service.api.resource import Answer, Call
from laas_service.api.slots import amounts
from laas_service.app.sharing.slot_changes import SlotsRequest
from laas_service.domain.errors import InvalidInput


def change(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
    body: schemas.AllocationChange,
) -> Answer:
    """Rename an allocation, or change its size where it is."""
    slots = (body.slots, body.bandwidth, body.deviation)
    if body.priority is not None or all(value is None for value in slots):
        return allocations.change(call, allocation_id, headers, query, body)
    for field in ("name", "hosts", "give_back", "movable", "notice", "move_cost"):
        if (value := getattr(body, field)) is not None:
            raise InvalidInput(field, str(value), "change it in a request without slots")
    call.require(policies.RESIZE)
    bandwidth, deviation = amounts(body.bandwidth), amounts(body.deviation)
    asked = SlotsRequest(slots=body.slots, bandwidth=bandwidth, deviation=deviation)
    versions, use_cases = allocations.accepted_versions(headers), call.use_cases.sharing
    act = use_cases.propose_slots if body.dry_run else use_cases.change_slots
    answer = act(call.caller, allocation_id, asked, versions)
    return allocations.changed(call, allocation_id, query, answer)
