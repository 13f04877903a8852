# SPDX-License-Identifier: Apache-2.0

"""Allocations: create, list, show, rename, release, repair, retry."""

import re

from laas_service.api import errors, policies, schemas
from laas_service.api.resource import Answer, Call
from laas_service.app.lifecycle import LIVE
from laas_service.app.records import AllocationRecord
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import NoFit
from laas_service.domain.errors import InvalidInput, NotSupported
from laas_service.domain.faults.degradation import Degraded


def index(call: Call, query: schemas.AllocationQuery) -> Answer:
    """List allocations in order of creation, which is the order of the queue."""
    limit = min(query.limit, schemas.AT_ONCE)
    records = call.allocations.allocations(
        call.caller,
        fabric=query.fabric,
        project_id=query.project_id,
        states=LIVE if query.state is None else (query.state,),
        limit=limit + 1,
        marker=query.marker,
    )
    views = call.allocations.views(records[:limit])
    shown = [schemas.AllocationSummary.of(view, call.caller.admin) for view in views]
    following = call.next_page(shown[-1].id) if len(records) > limit else None
    return Answer(200, schemas.AllocationList(allocations=shown, next=following))


def create(
    call: Call,
    headers: schemas.Idempotency,
    query: schemas.WaitQuery,
    body: schemas.NewAllocation,
) -> Answer:
    """Allocate hosts and links, queue for them, or make a dry run."""
    constraints = body.constraints or schemas.Constraints()
    if constraints.avoid_hosts or constraints.avoid_pods:
        call.require(policies.AVOID)
    asked = AllocationRequest(
        name=body.name,
        hosts=body.hosts,
        fabric=body.fabric or "",
        policy=body.policy or "",
        project_id=body.project_id or "",
        idempotency_key=headers.idempotency_key,
        wait=body.wait,
        duration=body.duration,
        constraints=constraints.domain(),
        avoid=tuple(constraints.avoid_hosts or ()),
        parent=body.parent,
        container=body.container,
    )
    if body.container:
        call.require(policies.CONTAINER)
    if body.dry_run:
        proposal = call.allocations.propose(call.caller, asked)
        if isinstance(proposal, NoFit):
            return _refused(proposal)
        return Answer(200, schemas.DryRun.of(body.name, proposal))
    answer = call.allocations.allocate(call.caller, asked)
    if isinstance(answer, NoFit):
        return _refused(answer)
    created = _shown(call, call.outcome(answer, query.wait), 202)
    location = f"{call.url}/{answer.id}"
    return Answer(created.status, created.body, {**created.headers, "Location": location})


def show(call: Call, allocation_id: str) -> Answer:
    """Show an allocation with its hosts, links and newest history."""
    return _shown(call, call.allocations.allocation(call.caller, allocation_id))


def history(call: Call, allocation_id: str, query: schemas.Paging) -> Answer:
    """Show the history of an allocation from its beginning."""
    marker = query.marker
    if marker is not None and not re.fullmatch(r"[1-9][0-9]{0,17}", marker):
        raise InvalidInput("marker", marker, "use the last item of the page before")
    limit, after = min(query.limit, schemas.AT_ONCE), int(marker or 0)
    events = call.allocations.events(call.caller, allocation_id, after, limit + 1)
    shown = schemas.Event.all_of(events[:limit], after + 1)
    following = call.next_page(str(after + limit)) if len(events) > limit else None
    return Answer(200, schemas.History(history=shown, next=following))


def change(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    body: schemas.AllocationChange,
) -> Answer:
    """Rename an allocation."""
    if body.hosts is not None:
        raise NotSupported("resizing is not supported yet; release and allocate anew")
    if body.name is None:
        raise InvalidInput("name", None, "say what to change")
    versions = _versions(headers)
    call.allocations.rename(call.caller, allocation_id, body.name, versions)
    return show(call, allocation_id)


def release(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.ReleaseQuery,
) -> Answer:
    """Release an allocation; repeating it is safe."""
    if query.force:
        call.require(policies.FORCE)
    record = call.allocations.release(
        call.caller, allocation_id, force=query.force, versions=_versions(headers)
    )
    return _shown(call, call.outcome(record, query.wait), 202)


def repair(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
) -> Answer:
    """Replace failed links of an allocation; its hosts stay, and repeating it is safe."""
    answer = call.allocations.repair(call.caller, allocation_id, _versions(headers))
    if isinstance(answer, Degraded):
        record = call.allocations.allocation(call.caller, allocation_id)
        return Answer(409, errors.of_degraded(call.fabrics.fabric(record.fabric), answer))
    if answer.change is None:
        return _shown(call, answer)
    return _shown(call, call.outcome(answer, query.wait), 202)


def retry(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
) -> Answer:
    """Take the next step of an allocation now, also of one that is parked in error."""
    version = call.allocations.allocation(call.caller, allocation_id).version
    record = call.allocations.retry(call.caller, allocation_id, _versions(headers))
    if record.version == version:
        return _shown(call, record)
    return _shown(call, call.outcome(record, query.wait), 202)


def _shown(call: Call, record: AllocationRecord, status: int = 200) -> Answer:
    shown = schemas.Allocation.of(call.allocations.view(record), call.caller.admin)
    return Answer(status, shown, {"ETag": f'"{record.version}"'})


def _refused(refusal: NoFit) -> Answer:
    return Answer(409, errors.of_refusal(refusal))


def _versions(headers: schemas.Precondition) -> set[int] | None:
    """The versions an ``If-Match`` header accepts; None accepts any.

    Weak and foreign tags match nothing (RFC 9110, section 13.1.1).
    """
    given = headers.if_match
    if given is None or given.strip() == "*":
        return None
    tags = re.findall(r'(?:^|,)\s*"([0-9]{1,18})"\s*(?=,|$)', given)
    return {int(tag) for tag in tags}
