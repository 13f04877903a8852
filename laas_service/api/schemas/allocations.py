# SPDX-License-Identifier: Apache-2.0

"""Schemas of answers about allocations."""

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field, RootModel

from laas_service.api.schemas.base import Schema, Shown, Triple
from laas_service.api.schemas.fabrics import ContentionFreeNow, IdleSwitch, Shape, WorstLoad
from laas_service.api.schemas.requests import Class, Constraints
from laas_service.app import moves as planning
from laas_service.app import requests, room_planner
from laas_service.app.lifecycle import Change, Phase, State
from laas_service.app.records import NEWEST, AllocationRecord, FabricRecord, QueueRoom, RoomState
from laas_service.app.records import Event as RecordedEvent
from laas_service.domain.allocation import Allocation as Placed
from laas_service.domain.allocation import Refusal, SlotDemand
from laas_service.domain.faults import degradation
from laas_service.domain.moves.consent import Movable
from laas_service.domain.routing.contention import contention, rank_order
from laas_service.domain.topology import Link as Cable
from laas_service.domain.topology import link_name
from laas_service.messages import ConfirmedBy, Span


class AllocatedHost(Schema):
    index: int
    name: str


class Event(Schema):
    number: Annotated[int, Field(ge=1, description="1 is the first that happened to it.")]
    at: AwareDatetime
    state: State
    reason: str
    seconds: Annotated[
        dict[Span, float],
        Field(
            description="Where the time since the entry before (for the first one: since the "
            "request) went; empty if that was not measured."
        ),
    ]

    @classmethod
    def all_of(cls, events: Iterable[RecordedEvent], first: int) -> list[Self]:
        """Events of a history, of which the first has this number."""
        return [
            cls(
                number=number,
                at=event.at,
                state=event.state,
                reason=event.reason,
                seconds=dict(event.seconds),
            )
            for number, event in enumerate(events, first)
        ]


class History(Schema):
    history: list[Event]
    next: Annotated[str | None, Field(description="The next page.")]


class RankedHost(AllocatedHost):
    rank: Annotated[
        int,
        Field(ge=0, description="Its place in the order of hosts that contention_free is about."),
    ]


Bridge = Annotated[
    list[str] | None,
    Field(
        description="Links, by id, that join old and new hosts for the time of the change, besides "
        "those of both placements. Null: no free links join them, and servers on hosts that it "
        "leaves stop before the routes change."
    ),
]


class Holding(Schema):
    """Hosts and links, by number and by name."""

    hosts: list[RankedHost]
    leaf_links: Annotated[list[Triple], Field(description="[pod, leaf, l2] each.")]
    spine_links: Annotated[list[Triple], Field(description="[pod, l2, spine] each.")]
    links: Annotated[list[str], Field(description="The same links by the id they have in /links.")]
    shape: Shape | None
    contention_free: ContentionFreeNow
    worst_load: WorstLoad

    @staticmethod
    def held(
        fabric: FabricRecord, placed: Placed | None, failed: Collection[Cable] = ()
    ) -> dict[str, Any]:
        if placed is not None and placed.slots is not None:
            nothing: dict[str, Any] = dict.fromkeys(("shape", "contention_free", "worst_load"))
            names = fabric.inventory.host_names
            hosts = [
                RankedHost(index=host, name=names[host], rank=rank)
                for rank, (host, _) in enumerate(placed.slots.units)
            ]
            return nothing | {"hosts": hosts, "leaf_links": [], "spine_links": [], "links": []}
        if placed is None:
            nothing = dict.fromkeys(("shape", "contention_free", "worst_load"))
            return nothing | {"hosts": [], "leaf_links": [], "spine_links": [], "links": []}
        topology, names = fabric.topology, fabric.inventory.host_names
        leaf = sorted(placed.leaf_links(topology))
        spine = sorted(placed.spine_links(topology))
        links: list[Cable] = [*leaf, *spine]
        reached = contention(topology, placed, failed)
        ranks = {host: rank for rank, host in enumerate(rank_order(topology, placed))}
        return {
            "hosts": [
                RankedHost(index=host, name=names[host], rank=ranks[host])
                for host in placed.hosts(topology)
            ],
            "leaf_links": [tuple(link) for link in leaf],
            "spine_links": [tuple(link) for link in spine],
            "links": [link_name(link) for link in links],
            "shape": Shape.of(placed.shape) if placed.shape else None,
            "contention_free": reached.free,
            "worst_load": reached.worst_load,
        }

    @staticmethod
    def bridge_links(fabric: FabricRecord, change: Change | None) -> list[str] | None:
        """The links of the bridge of a change by name; None if no links can join its hosts."""
        if change is None or change.bridge is None:
            return None if change is not None and change.parted else []
        return [link_name(link) for link in change.bridge.links(fabric.topology)]

    @staticmethod
    def names(fabric: FabricRecord, placed: Placed | None) -> list[str]:
        """The hosts of a placement by name."""
        hosts = placed.hosts(fabric.topology) if placed is not None else ()
        if placed is not None and placed.slots is not None:
            hosts = tuple(placed.slots.counts)
        return [fabric.inventory.host_names[host] for host in hosts]


ENFORCEMENT = "accounted, not enforced"
"""Of class ``shared``: no port is limited, so nobody keeps a virtual machine to its bandwidth."""

ENFORCEMENTS = {
    None: ENFORCEMENT,
    "neutron": "sending limited by Neutron",
    "directory": "commands that limit sending written, nobody checked that they were run",
}
"""By what limits the servers. Receiving is not limited by any of them."""


class SharingShown(Shown):
    """How the hosts of an allocation are shared, as recorded; earlier releases had other bounds."""

    slots: Annotated[int, Field(description="Virtual machines on each host.")]
    bandwidth: Annotated[float, Field(description="Gb/s of each link and direction.")]
    risk: Annotated[
        float, Field(description="Probability that demands exceed a link, at the highest.")
    ]
    open: Annotated[bool, Field(description="Other projects may have slots.")]


class HostedUnits(AllocatedHost):
    units: Annotated[list[int], Field(description="Numbers of the virtual machines on the host.")]


class UnitMove(Schema):
    """A virtual machine moves, in this order."""

    unit: Annotated[int, Field(description="Its number before the change.")]
    leaves: str
    joins: str


class SlotsShown(Schema):
    """Slots of shared hosts."""

    slots: Annotated[int | None, Field(description="Virtual machines; null: class owned.")]
    bandwidth: Annotated[
        float | list[float] | None, Field(description="Gb/s of all, or of one after the other.")
    ]
    deviation: Annotated[
        float | list[float] | None, Field(description="Gb/s; 0: promised for certain.")
    ]
    enforcement: Annotated[
        Literal[
            "accounted, not enforced",
            "sending limited by Neutron",
            "commands that limit sending written, nobody checked that they were run",
        ]
        | None,
        Field(description="Whether anything keeps a virtual machine to what it is promised."),
    ]
    units: Annotated[list[HostedUnits], Field(description="Where its virtual machines belong.")]
    unit_moves: Annotated[
        list[UnitMove], Field(description="Virtual machines that a change moves, in order.")
    ]

    @staticmethod
    def slots_of(
        fabric: FabricRecord,
        demand: SlotDemand | None,
        placed: Placed | None,
        limited_by: str | None = None,
    ) -> dict[str, Any]:
        names, slots = fabric.inventory.host_names, placed.slots if placed is not None else None
        return {
            "slots": demand.slots if demand is not None else None,
            "bandwidth": demand.bandwidth if demand is not None else None,
            "deviation": demand.deviation if demand is not None else None,
            "enforcement": ENFORCEMENTS[limited_by] if demand is not None else None,
            "units": [
                HostedUnits(index=host, name=names[host], units=list(units))
                for host, units in (slots.units if slots is not None else ())
            ],
            "unit_moves": [
                UnitMove(unit=unit, leaves=names[old], joins=names[new])
                for unit, old, new in (slots.moves if slots is not None else ())
            ],
        }


class DryRun(SlotsShown, Holding):
    """The answer to a dry run; nothing is reserved."""

    fabric: str
    name: str
    project_id: str
    policy: str
    requested: int
    cost: Annotated[int, Field(description="What the hosts cost together.")]
    container: bool
    parent: str | None
    joining: Annotated[list[str], Field(description="Hosts that a resize adds, by name.")]
    leaving: Annotated[list[str], Field(description="Hosts that a resize gives back, by name.")]
    bridge: Bridge
    dry_run: Literal[True]

    @classmethod
    def of(cls, name: str, proposal: requests.Proposal) -> Self:
        placed, change = proposal.allocation, proposal.change
        before = change.old if change is not None else None
        return cls(
            fabric=proposal.fabric.id,
            name=name,
            project_id=proposal.project_id,
            policy=placed.policy,
            requested=placed.requested,
            cost=proposal.cost,
            container=placed.container,
            parent=placed.parent,
            joining=_others(proposal.fabric, before, placed),
            leaving=_others(proposal.fabric, placed, before),
            bridge=cls.bridge_links(proposal.fabric, change),
            dry_run=True,
            **cls.held(proposal.fabric, placed),
            **cls.slots_of(proposal.fabric, placed.slots.demand if placed.slots else None, placed),
        )


def _others(fabric: FabricRecord, one: Placed | None, other: Placed | None) -> list[str]:
    """The hosts of ``other`` that ``one`` is not on, by name; none if there is only one of them."""
    if one is None or other is None:
        return []
    if one.slots is None:
        return Holding.names(fabric, other.beyond(one))
    present = set(Holding.names(fabric, one))
    return [name for name in Holding.names(fabric, other) if name not in present]


class HeadRoom(Schema):
    """Moves of other tenants that make room for a queued request."""

    state: RoomState
    moves: Annotated[int, Field(description="How many tenants move.")]
    made: Annotated[int, Field(description="How many of these moves are over.")]
    moved_hosts: Annotated[int, Field(description="Hosts that they newly get, in all.")]
    cost: Annotated[float, Field(description="Of all moves.")]
    gain: Annotated[
        float | None,
        Field(description="Seconds by which the request starts earlier; null: unknown."),
    ]
    begins: Annotated[
        AwareDatetime, Field(description="The last move begins then, or later; as planned.")
    ]
    detail: Annotated[str | None, Field(description="Why it failed.")]

    @classmethod
    def of(cls, room: QueueRoom) -> Self:
        return cls(
            state=room.state,
            moves=len(room.moves),
            made=room.made,
            moved_hosts=room.new_hosts,
            cost=room.cost,
            gain=room.gain,
            begins=room.moves[-1].begins,
            detail=room.reason or None,
        )


class Waiting(Schema):
    """What a queued request waits for now."""

    code: Annotated[Refusal | None, Field(description="The limit hit; null: about to start.")]
    detail: str
    largest_fit: Annotated[int | None, Field(description="The largest size there is room for.")]
    expected_start: Annotated[
        AwareDatetime | None,
        Field(description="The first one's reservation, if it is known when others end."),
    ]
    room: Annotated[
        HeadRoom | None, Field(description="How moves make room for it; null: nothing is planned.")
    ]

    @classmethod
    def of(cls, place: requests.Place) -> Self:
        refusal = place.refusal
        return cls(
            code=refusal.reason if refusal else None,
            detail=refusal.detail if refusal else "there is room; it is about to be admitted",
            largest_fit=refusal.largest_fit if refusal else None,
            expected_start=place.expected_start,
            room=HeadRoom.of(place.room) if place.room is not None else None,
        )


class ThinSwitch(Schema):
    """A switch with fewer uplinks up than the allocation was given there."""

    kind: Literal["leaf", "l2"]
    pod: int
    switch: Annotated[int, Field(description="The leaf or L2 switch, by number in its pod.")]
    up: int
    given: int
    flows: Annotated[
        int | None, Field(description="Flows that may share one uplink; null: none is up.")
    ]

    @classmethod
    def of(cls, thin: degradation.MissingUplinks) -> Self:
        return cls(
            kind="leaf" if thin.level == 1 else "l2",
            pod=thin.pod,
            switch=thin.lower,
            up=thin.up,
            given=thin.given,
            flows=-(-thin.flows // thin.up) if thin.up else None,
        )


class Apart(Schema):
    """Two leaves, [pod, leaf] each, that no path over the allocation's links joins."""

    rail: int
    leaves: tuple[tuple[int, int], tuple[int, int]]


class Degraded(Schema):
    """The failed hosts and links of an allocation, and what follows from them."""

    links: Annotated[list[str], Field(description="Failed links, by id.")]
    hosts: Annotated[list[AllocatedHost], Field(description="Failed hosts.")]
    thin: list[ThinSwitch]
    apart: list[Apart]
    detail: Annotated[str, Field(description="A summary in a sentence.")]

    @classmethod
    def of(cls, fabric: FabricRecord, degraded: degradation.Degraded) -> Self:
        names = fabric.inventory.host_names
        return cls(
            links=[link_name(link) for link in degraded.links],
            hosts=[AllocatedHost(index=host, name=names[host]) for host in degraded.hosts],
            thin=[ThinSwitch.of(thin) for thin in degraded.thin],
            apart=[Apart(rail=a.rail, leaves=(a.first, a.second)) for a in degraded.apart],
            detail=str(degraded),
        )


class Announced(Schema):
    """A move that has not begun."""

    begins: Annotated[AwareDatetime, Field(description="It begins then, or later.")]
    joining: Annotated[list[str], Field(description="Hosts that it would newly get, by name.")]
    leaving: Annotated[list[str], Field(description="Hosts that it would leave, by name.")]
    forced: Annotated[bool, Field(description="`movable: never` does not call it off.")]

    @classmethod
    def of(cls, fabric: FabricRecord, record: AllocationRecord) -> Self | None:
        placed, to, begins = record.placed, record.announced, record.moves_at
        if placed is None or to is None or begins is None:
            return None
        return cls(
            begins=begins,
            joining=_others(fabric, placed, to),
            leaving=_others(fabric, to, placed),
            forced=record.move_forced,
        )


class PlannedMove(Schema):
    """A move of one tenant."""

    allocation: str
    name: str
    project_id: str
    movable: Movable
    move_cost: float
    cost: Annotated[float, Field(description="`move_cost` for each new host.")]
    new_hosts: Annotated[int, Field(description="0: an exchange of links under running servers.")]
    links_changed: Annotated[int, Field(description="How many links it newly gets.")]
    servers: Annotated[
        int | None, Field(description="On the hosts that it leaves; null: compute cannot tell.")
    ]
    disk_gb: Annotated[
        int | None, Field(description="Of their local disks, which are copied; null as `servers`.")
    ]
    joining: Annotated[list[str], Field(description="Hosts that it newly gets, by name.")]
    leaving: Annotated[list[str], Field(description="Hosts that it leaves, by name.")]
    bridge: Bridge
    begins: Annotated[AwareDatetime, Field(description="After the tenant's notice.")]
    announced: Annotated[bool, Field(description="The tenant is told, and it will take place.")]

    @classmethod
    def of(cls, fabric: FabricRecord, move: room_planner.PlannedMove) -> Self:
        record, claimed, change = move.record, move.new.beyond(move.old), move.change
        return cls(
            allocation=record.id,
            name=record.name,
            project_id=record.project_id,
            movable=record.consent.movable,
            move_cost=record.consent.move_cost,
            cost=move.cost,
            new_hosts=move.new_hosts,
            links_changed=sum(1 for _ in claimed.links(fabric.topology)),
            servers=None if move.load is None else move.load.servers,
            disk_gb=None if move.load is None else move.load.disk_gb,
            joining=Holding.names(fabric, claimed),
            leaving=Holding.names(fabric, move.old.beyond(move.new)),
            bridge=Holding.bridge_links(fabric, change),
            begins=move.begins,
            announced=move.announced,
        )


class RoomPlan(Schema):
    """The cheapest moves found after which a size fits."""

    fabric: str
    hosts: int
    fits: Annotated[bool, Field(description="It fits now, without any move.")]
    moves: Annotated[list[PlannedMove], Field(description="In order, one after the other.")]
    moved_hosts: Annotated[int, Field(description="Hosts that tenants newly get, in all.")]
    cost: Annotated[float, Field(description="Of all moves.")]
    shape: Annotated[Shape | None, Field(description="Of the hosts that it would get.")]
    cut_off: Annotated[
        bool, Field(description="The search stopped at its budget: a cheaper plan may exist.")
    ]

    @classmethod
    def of(cls, hosts: int, plan: room_planner.RoomPlan) -> Self:
        shape = plan.placement.shape
        return cls(
            fabric=plan.fabric.id,
            hosts=hosts,
            fits=not plan.moves,
            moves=[PlannedMove.of(plan.fabric, move) for move in plan.moves],
            moved_hosts=plan.new_hosts,
            cost=plan.cost,
            shape=Shape.of(shape) if shape else None,
            cut_off=plan.cut_off,
        )


class SleepPlan(Schema):
    """Moves after which more switches can sleep."""

    fabric: str
    idle_now: Annotated[
        list[IdleSwitch], Field(description="Switches that may be turned down, as in `idle`.")
    ]
    idle_after: Annotated[list[IdleSwitch], Field(description="Those after all moves.")]
    moves: Annotated[list[PlannedMove], Field(description="In order, one after the other.")]
    moved_hosts: Annotated[int, Field(description="Hosts that tenants newly get, in all.")]
    cost: Annotated[float, Field(description="Of all moves.")]
    cut_off: Annotated[
        bool, Field(description="The search stopped at its budget: more could perhaps sleep.")
    ]

    @classmethod
    def of(cls, plan: room_planner.PowerPlan) -> Self:
        return cls(
            fabric=plan.fabric.id,
            idle_now=[IdleSwitch.model_validate(switch) for switch in plan.now],
            idle_after=[IdleSwitch.model_validate(switch) for switch in plan.after],
            moves=[PlannedMove.of(plan.fabric, move) for move in plan.moves],
            moved_hosts=plan.new_hosts,
            cost=plan.cost,
            cut_off=plan.cut_off,
        )


class PlannedSlotMoves(Schema):
    """Virtual machines of one tenant that move to other shared hosts."""

    allocation: str
    name: str
    project_id: str
    movable: Movable
    move_cost: float
    cost: Annotated[float, Field(description="`move_cost` for each virtual machine that moves.")]
    unit_moves: Annotated[list[UnitMove], Field(description="Its virtual machines, in order.")]
    joining: Annotated[list[str], Field(description="Hosts that it newly gets, by name.")]
    leaving: Annotated[list[str], Field(description="Hosts that it leaves, by name.")]
    begins: Annotated[AwareDatetime, Field(description="After the tenant's notice.")]
    announced: Annotated[bool, Field(description="The tenant is told, and it will take place.")]

    @classmethod
    def of(cls, fabric: FabricRecord, move: room_planner.PlannedMove) -> Self:
        record = move.record
        return cls(
            allocation=record.id,
            name=record.name,
            project_id=record.project_id,
            movable=record.consent.movable,
            move_cost=record.consent.move_cost,
            cost=move.cost,
            unit_moves=SlotsShown.slots_of(fabric, None, move.new)["unit_moves"],
            joining=_others(fabric, move.old, move.new),
            leaving=_others(fabric, move.new, move.old),
            begins=move.begins,
            announced=move.announced,
        )


class EmptiedHost(Schema):
    """A shared host that is empty once all moves are over."""

    host: Annotated[str, Field(description="Its name.")]
    moves: Annotated[
        int, Field(description="Virtual machines that move for it, beside those before it.")
    ]


class ConsolidationPlan(Schema):
    """Moves of virtual machines after which shared hosts are empty."""

    fabric: str
    parent: Annotated[str, Field(description="The allocation that shares its hosts.")]
    hosts: Annotated[list[EmptiedHost], Field(description="In the order of their choice.")]
    leaves: Annotated[
        list[IdleSwitch], Field(description="Leaves on which no virtual machine is left.")
    ]
    moves: Annotated[
        list[PlannedSlotMoves],
        Field(description="One for each tenant; they do not depend on each other."),
    ]
    moved_units: Annotated[int, Field(description="Virtual machines that move, in all.")]
    cost: Annotated[float, Field(description="Of all moves.")]
    cut_off: Annotated[
        bool, Field(description="The search stopped at its budget: more could perhaps be empty.")
    ]

    @classmethod
    def of(cls, plan: room_planner.ConsolidationPlan) -> Self:
        fabric, emptied = plan.fabric, plan.emptied
        leaf_id, leaves = fabric.topology.tree.leaf_id, fabric.inventory.leaf_guids
        empty = {leaves[leaf_id(*leaf)] for leaf in emptied.leaves}
        return cls(
            fabric=fabric.id,
            parent=plan.parent,
            hosts=[
                EmptiedHost(host=fabric.inventory.host_names[host], moves=moves)
                for host, moves in zip(emptied.hosts, emptied.costs, strict=True)
            ],
            leaves=[
                IdleSwitch.model_validate(switch)
                for switch in fabric.inventory.switches
                if switch.guid in empty
            ],
            moves=[PlannedSlotMoves.of(fabric, move) for move in plan.moves],
            moved_units=plan.new_hosts,
            cost=plan.cost,
            cut_off=plan.cut_off,
        )


class QueueMove(Schema):
    """A move of a plan for a queue."""

    allocation: str
    new_hosts: int
    cost: float
    joining: Annotated[list[str], Field(description="Hosts of its new placement, by name.")]
    begins: Annotated[AwareDatetime, Field(description="Then, or later.")]
    made: bool


class QueuePlan(HeadRoom):
    """The last plan that makes room for a queue, with its moves."""

    allocation: Annotated[
        str | None, Field(description="The request; null: planned on a schedule.")
    ]
    hosts: Annotated[int, Field(description="The size that there is to be room for.")]
    planned_at: AwareDatetime
    steps: Annotated[list[QueueMove], Field(description="In order, one after the other.")]


class QueueRoomShown(Schema):
    """How moves make room for the queue of a fabric."""

    fabric: str
    plan: Annotated[QueuePlan | None, Field(description="Null: there never was one.")]

    @classmethod
    def shown(cls, fabric: FabricRecord, room: QueueRoom | None) -> Self:
        if room is None:
            return cls(fabric=fabric.id, plan=None)
        steps = [
            QueueMove(
                allocation=move.allocation,
                new_hosts=move.new_hosts,
                cost=move.cost,
                joining=Holding.names(fabric, move.to),
                begins=move.begins,
                made=number < room.made,
            )
            for number, move in enumerate(room.moves)
        ]
        plan = QueuePlan(
            **HeadRoom.of(room).model_dump(),
            allocation=room.allocation,
            hosts=room.hosts,
            planned_at=room.at,
            steps=steps,
        )
        return cls(fabric=fabric.id, plan=plan)


class Staying(Schema):
    """An allocation that keeps hosts that are to be evacuated."""

    allocation: str
    name: str
    project_id: str
    hosts: Annotated[list[str], Field(description="Those that it keeps, by name.")]
    why: str


class Evacuation(Schema):
    """Who moves off drained hosts, and who stays."""

    fabric: str
    hosts: Annotated[list[str], Field(description="The hosts, by name.")]
    moves: list[PlannedMove]
    staying: list[Staying]
    empty: Annotated[bool, Field(description="No allocation has one of the hosts.")]

    @classmethod
    def of(cls, plan: planning.Evacuation) -> Self:
        names = plan.fabric.inventory.host_names
        return cls(
            fabric=plan.fabric.id,
            hosts=[names[host] for host in plan.hosts],
            moves=[PlannedMove.of(plan.fabric, move) for move in plan.moves],
            staying=[
                Staying(
                    allocation=one.record.id,
                    name=one.record.name,
                    project_id=one.record.project_id,
                    hosts=[names[host] for host in one.hosts],
                    why=one.why,
                )
                for one in plan.staying
            ],
            empty=not (plan.moves or plan.staying),
        )


class AllocationSummary(SlotsShown, Holding):
    id: str
    name: str
    fabric: str
    project_id: str
    policy: str
    class_of_service: Annotated[
        Class,
        Field(
            alias="class",
            description="`owned`: its hosts and links are its own. `shared`: it has slots of "
            "hosts that its parent shares.",
        ),
    ]
    state: State
    version: Annotated[int, Field(description="Grows with every change; the ETag.")]
    requested: Annotated[int, Field(description="How many hosts were asked for.")]
    container: Annotated[bool, Field(description="It is for allocations inside.")]
    sharing: Annotated[
        SharingShown | None, Field(description="How its hosts are shared by allocations inside.")
    ]
    parent: Annotated[str | None, Field(description="The container that it is inside.")]
    pkey: Annotated[
        str | None,
        Field(
            pattern=r"^0x[0-9a-f]{4}$",
            description="The partition key, of the first rail if rails differ; null before "
            "admission.",
        ),
    ]
    pkeys: Annotated[
        list[Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$")]],
        Field(description="The partition key of its ports on each rail; empty before admission."),
    ]
    rails_joined: Annotated[
        bool | None,
        Field(
            description="Whether its ports reach each other from rail to rail. If not, each rail "
            "works by itself: keep traffic on its rail. Null before admission."
        ),
    ]
    position: Annotated[
        int | None, Field(ge=1, description="Its place in the fabric's queue; 1 is the first.")
    ]
    waits_for: Annotated[Waiting | None, Field(description="Why it is queued, as of now.")]
    duration: Annotated[float | None, Field(description="Seconds it is expected to last.")]
    expected_end: Annotated[
        AwareDatetime | None, Field(description="Its duration, counted from admission.")
    ]
    constraints: Annotated[
        Constraints | None, Field(description="As asked; avoided hosts are for administrators.")
    ]
    degraded: Annotated[Degraded | None, Field(description="Null: nothing it uses has failed.")]
    changing: Annotated[
        Phase | None,
        Field(description="How far a change of placement is; what it leaves is held until then."),
    ]
    joining: Annotated[
        list[str], Field(description="Those of its hosts that a change of placement adds, by name.")
    ]
    leaving: Annotated[
        list[str],
        Field(description="Hosts that a change of placement takes away, by name; held until then."),
    ]
    bridge: Bridge
    movable: Annotated[Movable, Field(description="Whether it may move to make room for others.")]
    notice: Annotated[float, Field(description="Seconds between announcement and move.")]
    move_cost: Annotated[float, Field(description="What a host costs that it gets by a move.")]
    announced: Annotated[
        Announced | None, Field(description="The move that is announced; null: none.")
    ]
    confirmed_by: Annotated[
        ConfirmedBy | None,
        Field(description="What the last change of its routes was confirmed by. Null: unknown."),
    ]
    error: Annotated[
        str | None,
        Field(description="Why the last step failed, or what has kept the worker for long."),
    ]
    created_at: AwareDatetime
    updated_at: AwareDatetime

    @classmethod
    def fields(cls, view: requests.AllocationView, admin: bool) -> dict[str, Any]:
        record, fabric, place = view.record, view.fabric, view.place
        return {
            "id": record.id,
            "name": record.name,
            "fabric": record.fabric,
            "project_id": record.project_id,
            "policy": record.policy,
            "class": Class.OWNED if record.slots is None else Class.SHARED,
            "state": record.state,
            "version": record.version,
            "requested": record.placed.requested if record.placed else record.hosts,
            "container": record.container,
            "sharing": record.sharing and SharingShown.model_validate(record.sharing),
            "parent": record.parent,
            "pkey": f"{record.pkey:#06x}" if record.pkey else None,
            "pkeys": [f"{key:#06x}" for key in record.keys_of(fabric.topology.rails)],
            "rails_joined": view.rails_joined,
            "position": place.position if place else None,
            "waits_for": Waiting.of(place) if place else None,
            "duration": record.duration,
            "expected_end": record.ends_at,
            "constraints": Constraints.of(record.constraints, fabric, admin),
            "degraded": Degraded.of(fabric, view.degraded) if view.degraded else None,
            "changing": record.phase,
            "joining": _others(fabric, record.leaving, record.placed),
            "leaving": _others(fabric, record.placed, record.leaving),
            "bridge": cls.bridge_links(fabric, record.change),
            "movable": record.consent.movable,
            "notice": record.consent.notice,
            "move_cost": record.consent.move_cost,
            "announced": Announced.of(fabric, record),
            "confirmed_by": record.confirmed_by,
            "error": record.error or view.delay,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
            **cls.held(fabric, record.placed, view.degraded.links if view.degraded else ()),
            **cls.slots_of(fabric, record.slots, record.placed, record.limited_by),
        }

    @classmethod
    def of(cls, view: requests.AllocationView, admin: bool = False) -> Self:
        return cls(**cls.fields(view, admin))


class Progress(Schema):
    """How far convergence is with an allocation."""

    next_step: Annotated[str | None, Field(description="Null: nothing is to be done.")]
    failures: Annotated[int, Field(description="How often it failed, or had to wait, in a row.")]
    next_try: Annotated[AwareDatetime | None, Field(description="Null: as soon as possible.")]
    generation_wanted: Annotated[
        int | None, Field(description="Of its routes; for administrators.")
    ]
    generation_seen: Annotated[
        int | None, Field(description="Confirmed, as the worker saw it; for administrators.")
    ]

    @classmethod
    def of(cls, progress: requests.Progress, admin: bool) -> Self:
        return cls(
            next_step=progress.next_step,
            failures=progress.failures,
            next_try=progress.next_try,
            generation_wanted=progress.wanted if admin else None,
            generation_seen=progress.applied if admin else None,
        )


class Allocation(AllocationSummary):
    configs_synced: Annotated[
        bool,
        Field(
            description="Whether the switches, or UFM, have what is recorded for it, by their own "
            "answer. False: not yet, no longer, or nobody asked them."
        ),
    ]
    progress: Progress
    history: Annotated[
        list[Event],
        Field(description=f"The newest {NEWEST}; the others are at the address of its history."),
    ]

    @classmethod
    def of(cls, view: requests.AllocationView, admin: bool = False) -> Self:
        record = view.record
        unknown = requests.Progress(None, record.failures, record.next_try, None, None)
        return cls(
            **cls.fields(view, admin),
            configs_synced=(view.progress or unknown).synced,
            progress=Progress.of(view.progress or unknown, admin),
            history=Event.all_of(record.history, record.first_event),
        )


class Changed(RootModel[Allocation | DryRun]):
    """The allocation, or the answer to a dry run of its new size."""


class AllocationList(Schema):
    allocations: list[AllocationSummary]
    next: Annotated[str | None, Field(description="The next page.")]
