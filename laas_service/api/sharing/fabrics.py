# SPDX-License-Identifier: Apache-2.0

"""What links promise to tenants on shared hosts, and moves that empty such hosts."""

from laas_service.api.resource import Answer, Call, page
from laas_service.api.schemas import Idempotency
from laas_service.api.sharing import schemas
from laas_service.app.room_planner import Permission
from laas_service.app.sharing.use_cases import ConsolidationRequest
from laas_service.domain.errors import InvalidInput


def consolidate(
    call: Call, fabric_id: str, body: schemas.NewConsolidation, headers: Idempotency
) -> Answer:
    """Plan moves of virtual machines that empty shared hosts; unless dry, announce them."""
    permission = Permission(body.moves, body.max_cost, body.override)
    wanted = ConsolidationRequest(body.parent, body.moves_per_host, permission)
    if body.dry_run:
        plan = call.use_cases.sharing.advise_consolidation(call.caller, fabric_id, wanted)
    else:
        plan = call.use_cases.sharing.consolidate(
            call.caller, fabric_id, wanted, headers.idempotency_key
        )
    begun = any(move.announced for move in plan.moves)
    return Answer(202 if begun else 200, schemas.ConsolidationPlanAnswer.of(plan))


def promises(call: Call, fabric_id: str, query: schemas.PromiseQuery) -> Answer:
    """List what links promise to those who share hosts, and the traffic measured there.

    One item for each link and direction: by allocation, leaf links, spine links, links of hosts.
    """
    entries, first_page = call.use_cases.sharing.promises(fabric_id), query
    if query.marker is not None:
        after, first_page = _place(query.marker), query.model_copy(update={"marker": None})
        entries = (entry for entry in entries if entry.place > after)  # it may be gone
    shown, following = page(
        call,
        first_page,
        entries,
        lambda entry: "/".join(map(str, entry.place)),
        lambda entry: (
            query.allocation in (None, entry.allocation) and query.kind in (None, entry.kind)
        ),
    )
    return Answer(
        200,
        schemas.PromiseList(promises=[schemas.PromiseAnswer.of(e) for e in shown], next=following),
    )


def promise(call: Call, allocation_id: str) -> Answer:
    """Tell a tenant on shared hosts what each link promises it, and what does not hold now."""
    record, entries, lacks = call.use_cases.sharing.promise(call.caller, allocation_id)
    return Answer(
        200,
        schemas.OwnPromises(
            allocation=record.id,
            slots=record.demand.slots,
            bandwidth=record.demand.bandwidth,
            deviation=record.demand.deviation,
            holds=lacks is None,
            detail=None if lacks is None else str(lacks),
            links=[schemas.OwnPromise.of(entry) for entry in entries],
        ),
    )


def _place(marker: str) -> tuple[str, int]:
    """The place of the last promise of the page before. Raises: InvalidInput."""
    allocation, _, link = marker.rpartition("/")
    if not allocation or not link.isdecimal():
        raise InvalidInput("marker", marker, "use the last promise of the page before")
    return allocation, int(link)
