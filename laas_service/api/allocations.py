# SPDX-License-Identifier: Apache-2.0

"""Allocations: create, list, show, rename, release, repair, retry."""

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from laas_service.api import errors, microversions, policies, schemas
from laas_service.api.resource import Answer, Call
from laas_service.api.slots import slot_demand
from laas_service.app.lifecycle import LIVE
from laas_service.app.records import AllocationRecord
from laas_service.app.requests import (
    AllocationRequest,
    AllocationView,
    Proposal,
    ReplaceRequest,
    ResizeRequest,
)
from laas_service.domain.allocation import NoFit
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.moves.consent import NO_CONSENT, Consent
from laas_service.domain.tenancy import Kind, SharedHosts


def index(call: Call, query: schemas.AllocationQuery) -> Answer:
    """List allocations in order of creation, which is the order of the queue."""
    limit = min(query.limit, schemas.AT_ONCE)
    project_id = _listed_project(call, query)
    records = call.allocations.allocations(
        call.caller,
        fabric=query.fabric,
        project_id=project_id,
        states=LIVE if query.state is None else (query.state,),
        limit=limit + 1,
        marker=query.marker,
    )
    views = call.views.views(records[:limit])
    shown = [schemas.AllocationSummary.of(view, call.caller.admin) for view in views]
    following = call.next_page(shown[-1].id) if len(records) > limit else None
    without = {
        n: _without(call, view.record.kind, one.absent)
        for n, (view, one) in enumerate(zip(views, shown, strict=True))
    }
    answer = schemas.AllocationList(allocations=shown, next=following)
    return Answer(200, answer, without={"allocations": without})


def _listed_project(call: Call, query: schemas.AllocationQuery) -> str | None:
    """The project whose allocations are listed; None: all that the caller may see."""
    if call.version < microversions.OWN_PROJECT:
        if query.all_projects is not None:
            fix = f"ask for version {microversions.OWN_PROJECT} in {microversions.HEADER}"
            raise InvalidInput("all_projects", query.all_projects, fix)
        return query.project_id
    if query.all_projects:
        call.require(policies.ANY_PROJECT)
    if query.project_id is not None or query.all_projects or call.local:
        return query.project_id
    return call.caller.project_id


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
    _check_class(body)
    asked = AllocationRequest(
        name=body.name,
        unique_name=_unique_name(call, body),
        hosts=body.hosts or 0,
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
        sharing=body.sharing.domain() if body.sharing is not None else None,
        slots=slot_demand(body.slots, body.bandwidth, body.deviation),
        risk=body.risk,
        consent=_consent(body)(NO_CONSENT),
        priority=body.priority,
    )
    if body.priority is not None:
        call.require(policies.PRIORITY)
    if asked.consent != NO_CONSENT:
        call.require(policies.CONSENT)
    if asked.kind.encloses:
        call.require(policies.CONTAINER)
    if isinstance(asked.kind, SharedHosts) and asked.kind.sharing.open:
        call.require(policies.SHARE)
    if body.dry_run:
        proposal = call.allocations.propose(call.caller, asked)
        if isinstance(proposal, NoFit):
            return _refused(proposal)
        return _proposed(call, body.name, proposal)
    answer = call.allocations.allocate(call.caller, asked)
    if isinstance(answer, NoFit):
        return _refused(answer)
    record = call.outcome(answer.record, query.wait)
    view = answer if record is answer.record else call.views.view(record)
    created = _viewed(call, view, 202)
    location = f"{call.url}/{record.id}"
    return replace(created, headers={**created.headers, "Location": location})


def _unique_name(call: Call, body: schemas.NewAllocation | schemas.AllocationChange) -> bool:
    """Whether no other live allocation of the project may have the name. Raises: InvalidInput."""
    if call.version < microversions.UNIQUE_NAMES:
        if body.allow_duplicate_name is not None:
            fix = f"ask for version {microversions.UNIQUE_NAMES} in {microversions.HEADER}"
            raise InvalidInput("allow_duplicate_name", body.allow_duplicate_name, fix)
        return False
    return not body.allow_duplicate_name


def _check_class(body: schemas.NewAllocation) -> None:
    """Raises: InvalidInput, if a field is missing or does not belong to the class of service."""
    shared = body.class_of_service is schemas.Class.SHARED
    by_domain = body.constraints is not None and body.constraints.domains is not None
    owned = () if by_domain else ("hosts",)
    needed, foreign = (SLOT_FIELDS[:2], HOST_FIELDS) if shared else (owned, SLOT_FIELDS)
    name = "shared" if shared else "owned"
    for field in needed:
        if getattr(body, field) is None:
            raise InvalidInput(field, None, f"an allocation of class {name} needs it")
    for field in foreign:
        if value := getattr(body, field):
            shown = value if isinstance(value, int | float | str) else "..."
            raise InvalidInput(field, shown, f"leave it out: the class is {name}")
    if body.container and body.sharing:
        fix = "its hosts are for whole allocations inside (container) or shared, not both"
        raise InvalidInput("sharing", "...", fix)


SLOT_FIELDS = ("slots", "bandwidth", "deviation", "risk")
HOST_FIELDS = ("hosts", "policy", "constraints", "container", "sharing")
"""Fields of a new allocation of one class of service only."""


def show(call: Call, allocation_id: str) -> Answer:
    """Show an allocation with its hosts, links and newest history."""
    return _shown(call, call.allocations.allocation(call.caller, allocation_id))


def history(call: Call, allocation_id: str, query: schemas.Paging) -> Answer:
    """Show the history of an allocation from its beginning."""
    marker = query.marker
    if marker is not None and not re.fullmatch(r"[1-9][0-9]{0,17}", marker):
        raise InvalidInput("marker", marker, "use the last item of the page before")
    limit, after = min(query.limit, schemas.AT_ONCE), int(marker or 0)
    first, events = call.allocations.events(call.caller, allocation_id, after, limit + 1)
    shown = schemas.EventAnswer.all_of(events[:limit], first)
    following = call.next_page(str(shown[-1].number)) if len(events) > limit else None
    return Answer(200, schemas.HistoryAnswer(history=shown, next=following))


def certificate(call: Call, allocation_id: str, query: schemas.CertificateQuery) -> Answer:
    """Certify what an allocation owns, and which routes were read in the switches."""
    certificates = call.use_cases.certificates
    signed = certificates.certificate(call.caller, allocation_id, query.nonce)
    return Answer(200, schemas.Certificate.showing(signed))


def change(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
    body: schemas.AllocationChange,
) -> Answer:
    """Rename an allocation, or change its size where it is."""
    versions = accepted_versions(headers)
    if body.name is None and body.allow_duplicate_name is not None:
        raise InvalidInput("allow_duplicate_name", body.allow_duplicate_name, "give a name, too")
    if body.priority is not None:
        return _prioritize(call, allocation_id, versions, body)
    consents = any(value is not None for value in (body.movable, body.notice, body.move_cost))
    if body.hosts is not None:
        of_its_own = {"name", "movable", "notice", "move_cost"}
        for field, value in body.model_dump(mode="json", include=of_its_own).items():
            if value is not None:
                raise InvalidInput(field, value, "change it in a request without hosts")
        return _resize(call, allocation_id, versions, query, body)
    for field, given in (("give_back", body.give_back), ("dry_run", body.dry_run)):
        if given:
            raise InvalidInput(field, given, "give the new size in hosts, too")
    if consents and body.name is None:
        call.require(policies.CONSENT)
        call.allocations.consent(call.caller, allocation_id, _consent(body), versions)
        return show(call, allocation_id)
    if consents:
        raise InvalidInput("name", body.name, "rename it in a request of its own")
    if body.name is None:
        raise InvalidInput("name", None, "say what to change")
    unique = _unique_name(call, body)
    call.allocations.rename(call.caller, allocation_id, body.name, versions, unique=unique)
    return show(call, allocation_id)


def _prioritize(
    call: Call, allocation_id: str, versions: Collection[int] | None, body: schemas.AllocationChange
) -> Answer:
    """Give a queued request another priority."""
    call.require(policies.PRIORITY)
    if others := body.model_fields_set - {"priority"}:
        raise InvalidInput(min(others), "given", "change it in a request without priority")
    call.allocations.prioritize(call.caller, allocation_id, body.priority or 0, versions)
    return show(call, allocation_id)


def _consent(
    body: schemas.NewAllocation | schemas.AllocationChange,
) -> Callable[[Consent], Consent]:
    """A function that gives consent the values of the body."""
    given = {
        name: value
        for name in ("movable", "notice", "move_cost")
        if (value := getattr(body, name)) is not None
    }
    return lambda consent: replace(consent, **given)


def _resize(
    call: Call,
    allocation_id: str,
    versions: set[int] | None,
    query: schemas.WaitQuery,
    body: schemas.AllocationChange,
) -> Answer:
    call.require(policies.RESIZE)
    asked = ResizeRequest(hosts=body.hosts or 0, give_back=tuple(body.give_back or ()))
    use_cases = call.changes
    if body.dry_run:
        proposal = use_cases.propose_resize(call.caller, allocation_id, asked, versions)
        return changed(call, allocation_id, query, proposal)
    answer = use_cases.resize(call.caller, allocation_id, asked, versions)
    return changed(call, allocation_id, query, answer)


def replace_hosts(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
    body: schemas.NewHosts,
) -> Answer:
    """Give an allocation other hosts in place of failed or named ones, or turn that back."""
    versions, use_cases = accepted_versions(headers), call.changes
    asked = ReplaceRequest(hosts=tuple(body.hosts or ()))
    if body.turn_back:
        for field, given in (("hosts", body.hosts), ("dry_run", body.dry_run)):
            if given:
                raise InvalidInput(field, given, "leave it out to turn back")
        answer: AllocationRecord | NoFit | Proposal = use_cases.turn_back(
            call.caller, allocation_id, versions
        )
    elif body.dry_run:
        answer = use_cases.propose_replacement(call.caller, allocation_id, asked, versions)
    else:
        answer = use_cases.replace_hosts(call.caller, allocation_id, asked, versions)
    return changed(call, allocation_id, query, answer)


def changed(
    call: Call,
    allocation_id: str,
    query: schemas.WaitQuery,
    answer: AllocationRecord | NoFit | Proposal,
) -> Answer:
    """The answer to a request for other hosts."""
    if isinstance(answer, Proposal):
        name = call.allocations.allocation(call.caller, allocation_id).name
        return _proposed(call, name, answer)
    if isinstance(answer, NoFit):
        record = call.allocations.allocation(call.caller, allocation_id)
        return Answer(409, errors.of_refusal(answer, call.fabrics.fabric(record.fabric)))
    if answer.change is None:
        return _shown(call, answer)
    return _shown(call, call.outcome(answer, query.wait), 202)


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
        call.caller, allocation_id, force=query.force, versions=accepted_versions(headers)
    )
    return _shown(call, call.outcome(record, query.wait), 202)


def repair(
    call: Call,
    allocation_id: str,
    headers: schemas.Precondition,
    query: schemas.WaitQuery,
) -> Answer:
    """Replace failed links of an allocation; its hosts stay, and repeating it is safe."""
    answer = call.changes.repair(call.caller, allocation_id, accepted_versions(headers))
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
    record = call.allocations.retry(call.caller, allocation_id, accepted_versions(headers))
    if record.version == version:
        return _shown(call, record)
    return _shown(call, call.outcome(record, query.wait), 202)


def _shown(call: Call, record: AllocationRecord, status: int = 200) -> Answer:
    return _viewed(call, call.views.view(record), status)


def _viewed(call: Call, view: AllocationView, status: int) -> Answer:
    shown = schemas.AllocationAnswer.of(view, call.caller.admin)
    etag = {"ETag": f'"{view.record.version}"'}
    return Answer(status, shown, etag, _without(call, view.record.kind, shown.absent))


def _proposed(call: Call, name: str, proposal: Proposal) -> Answer:
    shown = schemas.DryRun.of(name, proposal)
    return Answer(200, shown, without=_without(call, proposal.allocation.kind))


def _without(call: Call, kind: Kind, absent: Collection[str] = ()) -> dict[str, bool]:
    """The fields that an answer about an allocation of this kind lacks in the version asked."""
    if call.version < microversions.KINDS:
        return {}
    return dict.fromkeys((*schemas.FOREIGN[type(kind)], *absent), True)


def _refused(refusal: NoFit) -> Answer:
    return Answer(409, errors.of_refusal(refusal))


def accepted_versions(headers: schemas.Precondition) -> set[int] | None:
    """The versions an ``If-Match`` header accepts; None accepts any.

    Weak and foreign tags match nothing (RFC 9110, section 13.1.1).
    """
    given = headers.if_match
    if given is None or given.strip() == "*":
        return None
    tags = re.findall(r'(?:^|,)\s*"([0-9]{1,18})"\s*(?=,|$)', given)
    return {int(tag) for tag in tags}
