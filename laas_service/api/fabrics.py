# SPDX-License-Identifier: Apache-2.0

"""Fabrics: utilization, inventory, fit, routing; states of hosts and links."""

from collections.abc import Callable
from hashlib import sha256

from pydantic import BaseModel

from laas_service.api import errors, policies, schemas
from laas_service.api.resource import Answer, Call, page
from laas_service.api.slots import slot_demand
from laas_service.app.moves import EvacuationRequest, RoomRequest
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.app.requests import AllocationRequest
from laas_service.app.room_planner import Permission
from laas_service.app.views import inventory
from laas_service.domain.allocation import NoFit, SlotDemand
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.observation import Mode
from laas_service.domain.features import HostChange
from laas_service.domain.topology import Link, link_name, parse_link
from laas_service.version import VERSION


def index(call: Call, query: schemas.Paging) -> Answer:
    """List the managed fabrics."""
    shown, following = page(call, query, call.fabrics.fabrics(), lambda fabric: fabric.id)
    summaries = [schemas.FabricSummary.summary(fabric) for fabric in shown]
    default = call.fabrics.default()
    return Answer(200, schemas.FabricList(fabrics=summaries, default=default, next=following))


def show(call: Call, fabric_id: str) -> Answer:
    """Show a fabric's shape and how many of its hosts and links are in use."""
    fabric = call.fabrics.fabric(fabric_id)
    alarm = call.fabrics.hosts_alarm(fabric_id) if call.allows(policies.INVENTORY) else None
    return Answer(200, schemas.Fabric.of(fabric, call.fabrics.utilization(fabric_id), alarm))


def delete(call: Call, fabric_id: str) -> Answer:
    """Stop managing a fabric: forget it, with its released allocations.

    Refused while allocations live there. OpenSM keeps its tables, and Nova its aggregates.
    """
    return Answer(200, schemas.FabricSummary.summary(call.fabrics.delete(fabric_id)))


def utilization(call: Call, fabric_id: str) -> Answer:
    """Show how much of a fabric is in use."""
    use = call.fabrics.utilization(fabric_id)
    return Answer(200, schemas.UtilizationAnswer.of(fabric_id, use))


def fit(call: Call, fabric_id: str, query: schemas.FitQuery) -> Answer:
    """Tell whether so many hosts, or slots of shared hosts, would fit now."""
    if query.avoid_hosts or query.avoid_pods:
        call.require(policies.AVOID)
    asked = AllocationRequest(
        name="",
        hosts=query.hosts or 0,
        policy=query.policy or "",
        constraints=query.domain(),
        avoid=tuple(query.avoid_hosts or ()),
        parent=query.parent,
        slots=_slots(query),
    )
    if asked.kind.whole_hosts and query.hosts is None and query.domains is None:
        raise InvalidInput("hosts", None, "say how many hosts, or slots of shared hosts")
    if not asked.kind.whole_hosts and (query.hosts or query.policy or query.domain().names):
        fix = "slots have no hosts, policy or constraints of their own; leave these out"
        raise InvalidInput("slots", query.slots, fix)
    fit = call.fabrics.fit(call.caller, fabric_id, asked, tuple(query.risks or ()))
    return Answer(200, schemas.FitAnswer.of(fabric_id, fit.hosts or asked.hosts, fit, query.slots))


def _slots(query: schemas.SlotsQuery) -> SlotDemand | None:
    """The slots that a question is about, if any. Raises: InvalidInput: bandwidth is missing, or
    a field of slots is given without their number.
    """
    demand = slot_demand(query.slots, query.bandwidth, query.deviation)
    if query.slots is not None:
        if demand is None:
            raise InvalidInput("bandwidth", None, "give Gb/s for each of the slots")
        return demand
    for name in ("bandwidth", "deviation", "risks"):
        if (given := getattr(query, name)) is not None:
            raise InvalidInput(name, str(given), "leave it out, or give slots")
    return None


def show_map(
    call: Call, fabric_id: str, query: schemas.MapQuery, headers: schemas.IfNoneMatch
) -> Answer:
    """Show a map of the fabric: its cables by level with owner, state and load, and tenants.

    The own project's, unless the caller may see the inventory; all else looks alike then.
    Callers that may not see an allocation get neither its name nor its project (role `service`).
    """
    everything = call.allows(policies.INVENTORY)
    asked, slots = None, _slots(query)
    if query.hosts is not None and slots is not None:
        raise InvalidInput("slots", query.slots, "ask for hosts or slots, not both")
    if query.hosts is not None or slots is not None:
        asked = AllocationRequest(
            name="",
            hosts=query.hosts or 0,
            policy=query.policy or "",
            parent=query.parent,
            slots=slots,
        )

    def shown() -> schemas.FabricMap:
        drawn = call.use_cases.maps.fabric_map(
            call.caller,
            fabric_id,
            everything,
            asked,
            tuple(query.risks or ()),
            named=call.may_name,
        )
        return schemas.FabricMap.model_validate(drawn)

    if asked is not None:
        return Answer(200, shown())
    return _unless_known(call, fabric_id, everything, headers.if_none_match, shown)


def _unless_known(
    call: Call, fabric_id: str, everything: bool, known: str | None, shown: Callable[[], BaseModel]
) -> Answer:
    """304 if the map is the one that the caller has; else the map, made once for all who see it."""
    own = call.caller.project_id
    scope = ["" if everything and call.caller.admin else own, everything, call.may_name(own)]
    revision = call.use_cases.maps.revision(fabric_id, lately=known is not None)
    text = repr((VERSION, fabric_id, call.caller.admin, scope, revision))
    etag = f'W/"{sha256(text.encode()).hexdigest()}"'
    tags = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if known is not None and etag in known:
        return Answer(304, schemas.Unchanged(None), tags)
    return Answer(200, shown, tags)


def make_room(
    call: Call, fabric_id: str, body: schemas.NewRoom, headers: schemas.Idempotency
) -> Answer:
    """Plan moves of tenants after which a size fits; unless dry, announce the first."""
    constraints = body.constraints or schemas.Constraints()
    asked = AllocationRequest(
        name="",
        hosts=body.hosts or 0,
        policy=body.policy or "",
        constraints=constraints.domain(),
        avoid=tuple(constraints.avoid_hosts or ()),
    )
    wanted = RoomRequest(asked, Permission(body.moves, body.max_cost, body.override))
    if body.dry_run:
        plan = call.use_cases.moves.advise(call.caller, fabric_id, wanted)
    else:
        plan = call.use_cases.moves.make_room(
            call.caller, fabric_id, wanted, headers.idempotency_key
        )
    if isinstance(plan, NoFit):
        return Answer(409, errors.of_refusal(plan))
    begun = any(move.announced for move in plan.moves)
    return Answer(202 if begun else 200, schemas.RoomPlanAnswer.of(plan))


def let_sleep(
    call: Call, fabric_id: str, body: schemas.NewSleep, headers: schemas.Idempotency
) -> Answer:
    """Plan moves of tenants after which more switches can sleep; unless dry, announce the first."""
    permission = Permission(body.moves, body.max_cost, body.override)
    if body.dry_run:
        plan = call.use_cases.moves.advise_sleep(call.caller, fabric_id, permission)
    else:
        plan = call.use_cases.moves.let_sleep(
            call.caller, fabric_id, permission, headers.idempotency_key
        )
    begun = any(move.announced for move in plan.moves)
    return Answer(202 if begun else 200, schemas.SleepPlanAnswer.of(plan))


def show_room(call: Call, fabric_id: str) -> Answer:
    """Show the last plan of moves that makes room for the fabric's queue."""
    fabric = call.fabrics.fabric(fabric_id)
    room = call.use_cases.moves.queue_room(fabric_id)
    return Answer(200, schemas.QueueRoomShown.shown(fabric, room))


def evacuate(
    call: Call, fabric_id: str, body: schemas.NewEvacuation, headers: schemas.Idempotency
) -> Answer:
    """Drain hosts or a leaf, and announce moves of the tenants there."""
    permission = Permission(max_cost=body.max_cost, override=body.override)
    wanted = EvacuationRequest(tuple(body.hosts or ()), body.switch, permission, body.reason)
    if body.dry_run:
        plan = call.use_cases.moves.advise_evacuation(call.caller, fabric_id, wanted)
    else:
        plan = call.use_cases.moves.evacuate(
            call.caller, fabric_id, wanted, headers.idempotency_key
        )
    begun = any(move.announced for move in plan.moves)
    return Answer(202 if begun else 200, schemas.EvacuationAnswer.of(plan))


def routing(call: Call, fabric_id: str) -> Answer:
    """Show the generation wanted and the generation each subnet manager runs."""
    return Answer(200, schemas.RoutingAnswer.of(fabric_id, call.fabrics.routing(fabric_id)))


def hosts(call: Call, fabric_id: str, query: schemas.HostQuery) -> Answer:
    """List hosts with state and owner."""

    def wanted(host: inventory.HostEntry) -> bool:
        free = host.state is HostState.UP and host.owner is None
        return (
            query.state in (None, host.state)
            and query.owner in (None, host.owner)
            and query.free in (None, free)
            and (query.trait is None or query.trait in host.features.traits)
        )

    entries = call.components.hosts(fabric_id)
    shown, following = page(call, query, entries, lambda host: host.name, wanted)
    return Answer(
        200, schemas.HostList(hosts=[schemas.Host.of(host) for host in shown], next=following)
    )


def links(call: Call, fabric_id: str, query: schemas.LinkQuery) -> Answer:
    """List leaf links, then spine links, with state and owner."""

    def wanted(entry: inventory.LinkEntry) -> bool:
        return (
            query.state in (None, entry.state)
            and query.owner in (None, entry.owner)
            and query.free in (None, entry.free)
            and query.kind in (None, link_name(entry.link).partition("-")[0])
            and query.pod in (None, entry.link.pod)
        )

    entries = call.components.links(fabric_id)
    shown, following = page(call, query, entries, lambda entry: link_name(entry.link), wanted)
    return Answer(
        200, schemas.LinkList(links=[schemas.Link.of(entry) for entry in shown], next=following)
    )


def switches(call: Call, fabric_id: str, query: schemas.SwitchQuery) -> Answer:
    """List switches and their positions in the tree."""
    shown, following = page(
        call,
        query,
        call.components.switches(fabric_id),
        lambda entry: schemas.guid(entry.switch.guid),
        lambda entry: query.level in (None, entry.switch.level),
    )
    return Answer(
        200,
        schemas.SwitchList(
            switches=[schemas.SwitchAnswer.of(entry) for entry in shown], next=following
        ),
    )


def idle(call: Call, fabric_id: str, query: schemas.Paging) -> Answer:
    """List links and switches that carry nothing now and may be turned down."""
    fabric, unused = call.fabrics.idle(fabric_id)
    number = fabric.topology.tree.link_id
    after = -1 if query.marker is None else number(_marked(fabric, query.marker))
    links = [link_name(link) for link in unused.links if number(link) > after]
    limit = min(query.limit, schemas.AT_ONCE)
    following = call.next_page(links[limit - 1]) if len(links) > limit else None
    return Answer(200, schemas.IdleAnswer.of(fabric, unused, links[:limit], following))


def crossed(call: Call, fabric_id: str, query: schemas.Paging) -> Answer:
    """List owned links that packets of others have to cross, with the number of pairs."""
    fabric, found, reasons = call.fabrics.crossed(fabric_id)
    number = fabric.topology.tree.link_id
    after = -1 if query.marker is None else number(_marked(fabric, query.marker))
    links = [link for link in found.links if number(link) > after]
    limit = min(query.limit, schemas.AT_ONCE)
    following = call.next_page(link_name(links[limit - 1])) if len(links) > limit else None
    shown = {link: reasons[link] for link in links[:limit]}
    return Answer(200, schemas.Crossed.of(fabric, found, shown, following))


def _marked(fabric: FabricRecord, marker: str) -> Link:
    """The last link of the page before, listed now or not. Raises: InvalidInput."""
    link = parse_link(marker)
    if not fabric.topology.tree.has_link(link):
        raise InvalidInput("marker", marker, "use the last link of the page before")
    return link


def show_plane(call: Call, fabric_id: str) -> Answer:
    """Show the common plane, and the switches that it does not reach."""
    return Answer(200, schemas.SharedPlaneAnswer.of(*call.fabrics.shared_plane(fabric_id)))


def set_plane(call: Call, fabric_id: str, body: schemas.NewPlane) -> Answer:
    """Withhold links for shared traffic, or tell what that would cost."""
    if body.dry_run:
        costs = call.fabrics.plane_cost(fabric_id, tuple(body.l2), tuple(body.spines))
        return Answer(200, schemas.SharedPlaneAnswer.of(*costs))
    call.fabrics.set_shared_plane(fabric_id, tuple(body.l2), tuple(body.spines))
    return show_plane(call, fabric_id)


def set_host(call: Call, fabric_id: str, name: str, body: schemas.HostChange) -> Answer:
    """Drain, fail or repair a host, set what is known of it, or end its quarantine.

    Its owner, if any, keeps it.
    """
    described = any(value is not None for value in (body.traits, body.cost, body.domains))
    listed = body.virtual_guids is not None
    if body.state is None and not described and not body.confirm_empty and not listed:
        fix = "say what to change: state, traits, cost, domains, virtual_guids or confirm_empty"
        raise InvalidInput("state", None, fix)
    why = schemas.reason_of(body.state and body.state.value, body.reason)
    if body.confirm_empty:
        entry = call.components.confirm_empty(call.caller, fabric_id, name)
    if described:
        traits = None if body.traits is None else frozenset(body.traits)
        domains = None if body.domains is None else tuple(sorted(body.domains.items()))
        change = HostChange(traits, body.cost, domains)
        entry = call.components.describe_host(fabric_id, name, change)
    if body.virtual_guids is not None:
        rails = [[int(guid, 16) for guid in guids] for guids in body.virtual_guids]
        entry = call.components.set_virtual_ports(fabric_id, name, rails)
    if body.state is not None:
        entry = call.components.set_host_state(call.caller, fabric_id, name, body.state, why)
    return Answer(200, schemas.Host.of(entry))


def show_link(call: Call, fabric_id: str, link_id: str) -> Answer:
    """Show a link with its state and owner.

    Instead of its id, `GUID/port` or `name/port` of a switch at either end names a link.
    """
    return Answer(200, schemas.Link.of(call.components.link(fabric_id, link_id)))


def set_link(call: Call, fabric_id: str, link_id: str, body: schemas.LinkChange) -> Answer:
    """Fail or repair a link; its owner, if any, keeps it.

    Instead of its id, `GUID/port` or `name/port` of a switch at either end names a link.
    """
    state, why = LinkState(body.state), schemas.reason_of(body.state, body.reason)
    entry = call.components.set_link_state(call.caller, fabric_id, link_id, state, why)
    return Answer(200, schemas.Link.of(entry))


def observation(call: Call, fabric_id: str) -> Answer:
    """Show what is observed of links, switches and hosts, and what follows from it."""
    return Answer(200, schemas.ObservationAnswer.of(call.fabrics.observation(fabric_id)))


def set_observation(call: Call, fabric_id: str, body: schemas.ObservationChange) -> Answer:
    """Choose what observation may change, or acknowledge its alarm."""
    if body.mode is None and not body.acknowledge:
        raise InvalidInput("mode", None, "say what to change: mode or acknowledge")
    configured = body.mode == "configured"
    observed = call.fabrics.set_observation(
        call.caller,
        fabric_id,
        mode=None if body.mode is None or configured else Mode(body.mode),
        configured=configured,
        acknowledge=body.acknowledge,
    )
    return Answer(200, schemas.ObservationAnswer.of(observed))
