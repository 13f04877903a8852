# SPDX-License-Identifier: Apache-2.0

"""Schemas of what only shared hosts have: promises of links, and moves that empty hosts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field

from laas_service.api.schemas.base import Body, Named, Reference, Schema, Shown
from laas_service.api.schemas.fabrics import IdleSwitch
from laas_service.api.schemas.placements import SlotsShown, UnitMove, hosts_gained
from laas_service.api.schemas.plans import (
    AfterNotice,
    CostOfAll,
    IsAnnounced,
    Joining,
    Leaving,
    PlanId,
    in_all,
    moving,
)
from laas_service.api.schemas.requests import DryPlan, MaxCost, Override, Paging
from laas_service.app.records import FabricRecord
from laas_service.app.room_planner import PlannedMove
from laas_service.app.sharing import consolidation
from laas_service.app.sharing.promises import Measured, PromiseEntry
from laas_service.app.sharing.use_cases import MOST_UNITS
from laas_service.domain.moves.consent import Movable


class MeasuredLoad(Schema):
    """Traffic in this direction, from the counters of a switch."""

    bandwidth: Annotated[float, Field(description="Gb/s: the mean between the last two readings.")]
    seconds: Annotated[float, Field(description="Time between these readings.")]
    at: Annotated[AwareDatetime, Field(description="Time of the last one.")]

    @classmethod
    def of(cls, measured: Measured) -> Self:
        bandwidth, seconds, at = measured
        return cls(bandwidth=round(bandwidth, 6), seconds=round(seconds, 3), at=at)


class Promise(Shown):
    """What a link promises in one direction to all who share hosts."""

    link: Annotated[
        str,
        Field(
            description="Its id, as in the list of links; of the link of a host, the host's name.",
            examples=["leaf-0-3-5"],
        ),
    ]
    kind: Literal["host", "leaf", "spine"]
    direction: Annotated[Literal["up", "down"], Field(description="`down` is towards the host.")]
    allocation: Annotated[str, Field(description="The allocation whose hosts are shared.")]
    bandwidth: Annotated[float, Field(description="Gb/s that the link may promise.")]
    promised: Annotated[
        float,
        Field(description="Gb/s: `mean`, and what demands need beyond it at the risk of the link."),
    ]
    mean: Annotated[
        float, Field(description="Gb/s: what is certain, and the means of normal demands.")
    ]
    deviation: Annotated[float, Field(description="Gb/s: standard deviation of normal demands.")]
    risk: Annotated[float, Field(description="The highest probability of an outage allowed.")]
    outage: Annotated[
        float,
        Field(
            ge=0, le=1, description="The probability that demands exceed the link, at the highest."
        ),
    ]
    measured: Annotated[
        MeasuredLoad | None, Field(description="Null if the counters were not read twice.")
    ]

    @classmethod
    def of(cls, entry: PromiseEntry) -> Self:
        return cls.showing(
            entry,
            entry.sharing,
            link=entry.name,
            promised=round(entry.promised, 6),
            mean=round(entry.load.mean, 6),
            deviation=round(entry.load.deviation, 6),
            outage=float(f"{entry.load.outage:.3g}"),
            measured=None if entry.measured is None else MeasuredLoad.of(entry.measured),
        )


class PromiseList(Schema):
    promises: list[Promise]
    next: Annotated[str | None, Field(description="The next page.")]


class PlannedSlotMoves(Schema):
    """Virtual machines of one tenant that move to other shared hosts."""

    allocation: str
    name: str
    project_id: str
    movable: Movable
    move_cost: float
    cost: Annotated[float, Field(description="`move_cost` for each virtual machine that moves.")]
    unit_moves: Annotated[list[UnitMove], Field(description="Its virtual machines, in order.")]
    joining: Joining
    leaving: Leaving
    begins: AfterNotice
    announced: IsAnnounced

    @classmethod
    def of(cls, fabric: FabricRecord, move: PlannedMove) -> Self:
        return cls(
            **moving(move),
            unit_moves=SlotsShown.slots_of(fabric, None, move.new)["unit_moves"],
            joining=hosts_gained(fabric, move.old, move.new),
            leaving=hosts_gained(fabric, move.new, move.old),
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
    id: PlanId
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
    cost: CostOfAll
    cut_off: Annotated[
        bool, Field(description="The search stopped at its budget: more could perhaps be empty.")
    ]

    @classmethod
    def of(cls, plan: consolidation.ConsolidationPlan) -> Self:
        fabric, emptied = plan.fabric, plan.emptied
        leaf_id, leaves = fabric.topology.tree.leaf_id, fabric.inventory.leaf_guids
        empty = {leaves[leaf_id(*leaf)] for leaf in emptied.leaves}
        return cls(
            **in_all(plan),
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
        )


class PromiseQuery(Paging):
    allocation: Annotated[
        Named | None, Field(description="On hosts that this allocation shares.")
    ] = None
    kind: Literal["host", "leaf", "spine"] | None = None


class NewConsolidation(Body):
    """What may move so that shared hosts are empty."""

    parent: Annotated[
        Reference | None,
        Field(description="The allocation that shares its hosts; default: the only one."),
    ] = None
    moves: Annotated[
        int, Field(ge=0, le=MOST_UNITS, description="The most virtual machines that move.")
    ] = 8
    moves_per_host: Annotated[
        float,
        Field(
            ge=0.001,
            le=MOST_UNITS,
            allow_inf_nan=False,
            description="A host that costs more moves of virtual machines is left alone.",
        ),
    ] = 4.0
    max_cost: MaxCost = None
    override: Override = False
    dry_run: DryPlan = False
