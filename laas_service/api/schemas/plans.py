# SPDX-License-Identifier: Apache-2.0

"""Schemas of plans of moves: room, sleep, consolidation, evacuation, and room for a queue."""

from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from laas_service.api.schemas.base import Schema, Shown
from laas_service.api.schemas.fabrics import IdleSwitch, ShapeAnswer
from laas_service.api.schemas.placements import (
    Bridge,
    HoldingAnswer,
)
from laas_service.app import moves as planning
from laas_service.app import room_planner
from laas_service.app.records import AllocationRecord, FabricRecord, QueueRoom, RoomState
from laas_service.domain.moves.consent import Movable

Joining = Annotated[list[str], Field(description="Hosts that it newly gets, by name.")]
Leaving = Annotated[list[str], Field(description="Hosts that it leaves, by name.")]
AfterNotice = Annotated[AwareDatetime, Field(description="After the tenant's notice.")]
IsAnnounced = Annotated[bool, Field(description="The tenant is told, and it will take place.")]
MovedHosts = Annotated[int, Field(description="Hosts that tenants newly get, in all.")]
PlanId = Annotated[
    str,
    Field(description="The same question gets the same plan while it holds: its moves stay open."),
]
CostOfAll = Annotated[float, Field(description="Of all moves.")]


def _tenant(record: AllocationRecord) -> dict[str, Any]:
    """Whose allocation it is: the fields that every move, and what stays, has."""
    return {"allocation": record.id, "name": record.name, "project_id": record.project_id}


def moving(move: room_planner.PlannedMove) -> dict[str, Any]:
    """The fields that moves of hosts and of virtual machines have in common."""
    consent = move.record.consent
    return {
        **_tenant(move.record),
        "movable": consent.movable,
        "move_cost": consent.move_cost,
        "cost": move.cost,
        "begins": move.begins,
        "announced": move.announced,
    }


def in_all(plan: room_planner.MovePlan) -> dict[str, Any]:
    """The fields that all plans have in common; ``new_hosts`` has a name of its own in each."""
    return {"fabric": plan.fabric.id, "id": plan.id, "cost": plan.cost, "cut_off": plan.cut_off}


class HeadRoom(Schema):
    """Moves of other tenants that make room for a queued request."""

    state: RoomState
    moves: int
    """How many tenants move."""
    made: int
    """How many of these moves are over."""
    moved_hosts: int
    """Hosts that they newly get, in all."""
    cost: CostOfAll
    gain: float | None
    """Seconds by which the request starts earlier; null: unknown."""
    begins: AwareDatetime
    """The last move begins then, or later; as planned."""
    detail: str | None
    """Why it failed."""

    @classmethod
    def of(cls, room: QueueRoom) -> Self:
        return cls(**cls.fields(room))

    @staticmethod
    def fields(room: QueueRoom) -> dict[str, Any]:
        return {
            "state": room.state,
            "moves": len(room.moves),
            "made": room.made,
            "moved_hosts": room.new_hosts,
            "cost": room.cost,
            "gain": room.gain,
            "begins": room.moves[-1].begins,
            "detail": room.reason or None,
        }


class PlannedMoveAnswer(Schema):
    """A move of one tenant."""

    allocation: str
    name: str
    project_id: str
    movable: Movable
    move_cost: float
    cost: float
    """`move_cost` for each new host."""
    new_hosts: int
    """0: an exchange of links under running servers."""
    links_changed: int
    """How many links it newly gets."""
    servers: int | None
    """On the hosts that it leaves; null: compute cannot tell."""
    disk_gb: int | None
    """Of their local disks, which are copied; null as `servers`."""
    joining: Joining
    leaving: Leaving
    bridge: Bridge
    begins: AfterNotice
    announced: IsAnnounced

    @classmethod
    def of(cls, fabric: FabricRecord, move: room_planner.PlannedMove) -> Self:
        claimed = move.new.beyond(move.old)
        return cls(
            **moving(move),
            new_hosts=move.new_hosts,
            links_changed=sum(1 for _ in claimed.links(fabric.topology)),
            servers=None if move.load is None else move.load.servers,
            disk_gb=None if move.load is None else move.load.disk_gb,
            joining=HoldingAnswer.names(fabric, claimed),
            leaving=HoldingAnswer.names(fabric, move.old.beyond(move.new)),
            bridge=HoldingAnswer.bridge_links(fabric, move.change),
        )


InOrder = Annotated[
    list[PlannedMoveAnswer],
    Field(description="Those that are not over, in order, one after the other."),
]


class RoomPlanAnswer(Schema):
    """The cheapest moves found after which a size fits."""

    fabric: str
    id: PlanId
    hosts: int
    fits: bool
    """It fits now, without any move."""
    moves: InOrder
    moved_hosts: MovedHosts
    cost: CostOfAll
    shape: ShapeAnswer | None
    """Of the hosts that it would get."""
    cut_off: bool
    """The search stopped at its budget: a cheaper plan may exist."""

    @classmethod
    def of(cls, plan: room_planner.RoomPlan) -> Self:
        shape = plan.placement.shape
        return cls(
            **in_all(plan),
            hosts=plan.placement.requested,
            fits=not plan.moves,
            moves=[PlannedMoveAnswer.of(plan.fabric, move) for move in plan.moves],
            moved_hosts=plan.new_hosts,
            shape=ShapeAnswer.of(shape) if shape else None,
        )


class SleepPlanAnswer(Shown):
    """Moves after which more switches can sleep."""

    fabric: str
    id: PlanId
    idle_now: list[IdleSwitch]
    """Switches that may be turned down, as in `idle`."""
    idle_after: list[IdleSwitch]
    """Those after all moves."""
    moves: InOrder
    moved_hosts: MovedHosts
    cost: CostOfAll
    cut_off: bool
    """The search stopped at its budget: more could perhaps sleep."""

    @classmethod
    def of(cls, plan: room_planner.SleepPlan) -> Self:
        return cls.showing(
            **in_all(plan),
            idle_now=plan.now,
            idle_after=plan.after,
            moves=[PlannedMoveAnswer.of(plan.fabric, move) for move in plan.moves],
            moved_hosts=plan.new_hosts,
        )


class QueueMove(Shown):
    """A move of a plan for a queue."""

    allocation: str
    new_hosts: int
    cost: float
    joining: list[str]
    """Hosts of its new placement, by name."""
    begins: AwareDatetime
    """Then, or later."""
    made: bool


class QueuePlanAnswer(HeadRoom):
    """The last plan that makes room for a queue, with its moves."""

    allocation: str | None
    """The request; null: planned on a schedule."""
    hosts: int
    """The size that there is to be room for."""
    planned_at: AwareDatetime
    steps: list[QueueMove]
    """In order, one after the other."""

    @classmethod
    def shown(cls, fabric: FabricRecord, room: QueueRoom) -> Self:
        steps = [
            QueueMove.showing(
                move, joining=HoldingAnswer.names(fabric, move.to), made=number < room.made
            )
            for number, move in enumerate(room.moves)
        ]
        return cls(
            **cls.fields(room),
            allocation=room.allocation,
            hosts=room.hosts,
            planned_at=room.at,
            steps=steps,
        )


class QueueRoomShown(Schema):
    """How moves make room for the queue of a fabric."""

    fabric: str
    plan: QueuePlanAnswer | None
    """Null: there never was one."""

    @classmethod
    def shown(cls, fabric: FabricRecord, room: QueueRoom | None) -> Self:
        return cls(fabric=fabric.id, plan=QueuePlanAnswer.shown(fabric, room) if room else None)


class StayingAnswer(Schema):
    """An allocation that keeps hosts that are to be evacuated."""

    allocation: str
    name: str
    project_id: str
    hosts: list[str]
    """Those that it keeps, by name."""
    why: str

    @classmethod
    def of(cls, fabric: FabricRecord, one: planning.Staying) -> Self:
        names = [fabric.inventory.host_names[host] for host in one.hosts]
        return cls(**_tenant(one.record), hosts=names, why=one.why)


class EvacuationAnswer(Schema):
    """Who moves off drained hosts, and who stays."""

    fabric: str
    id: PlanId
    hosts: list[str]
    """The hosts, by name."""
    moves: list[PlannedMoveAnswer]
    staying: list[StayingAnswer]
    empty: bool
    """No allocation has one of the hosts."""

    @classmethod
    def of(cls, plan: planning.Evacuation) -> Self:
        return cls(
            fabric=plan.fabric.id,
            id=plan.id,
            hosts=[plan.fabric.inventory.host_names[host] for host in plan.hosts],
            moves=[PlannedMoveAnswer.of(plan.fabric, move) for move in plan.moves],
            staying=[StayingAnswer.of(plan.fabric, one) for one in plan.staying],
            empty=not (plan.moves or plan.staying),
        )
