# SPDX-License-Identifier: Apache-2.0

"""Schemas of what only shared hosts have: promises of links, and moves that empty hosts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

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

    bandwidth: float
    """Gb/s: the mean between the last two readings."""
    seconds: float
    """Time between these readings."""
    at: AwareDatetime
    """Time of the last one."""

    @classmethod
    def of(cls, measured: Measured) -> Self:
        bandwidth, seconds, at = measured
        return cls(bandwidth=round(bandwidth, 6), seconds=round(seconds, 3), at=at)


class PromiseAnswer(Shown):
    """What a link promises in one direction to all who share hosts."""

    link: Annotated[str, Field(examples=["leaf-0-3-5"])]
    """Its id, as in the list of links; of the link of a host, the host's name."""
    kind: Literal["host", "leaf", "spine"]
    direction: Literal["up", "down"]
    """`down` is towards the host."""
    allocation: str
    """The allocation whose hosts are shared."""
    state: Literal["kept", "suspended", "dead"]
    """`suspended`: the link is down, and others carry its traffic; `dead`: and for some of that
    there is no path."""
    bandwidth: float
    """Gb/s that the link may promise."""
    promised: float
    """Gb/s: `mean`, and what demands need beyond it at the risk of the link."""
    mean: float
    """Gb/s: what is certain, and the means of normal demands."""
    deviation: float
    """Gb/s: standard deviation of normal demands."""
    risk: float
    """The highest probability of an outage allowed."""
    outage: Annotated[float, Field(ge=0, le=1)]
    """The probability that demands exceed the link, at the highest."""
    measured: MeasuredLoad | None
    """Null if the counters were not read twice."""

    @classmethod
    def of(cls, entry: PromiseEntry) -> Self:
        return cls.showing(
            entry,
            entry.sharing,
            **_load(entry),
            measured=None if entry.measured is None else MeasuredLoad.of(entry.measured),
        )


def _load(entry: PromiseEntry) -> dict[str, Any]:
    """Fields of a promise of a link that are shown rounded."""
    return {
        "link": entry.name,
        "promised": round(entry.promised, 6),
        "mean": round(entry.load.mean, 6),
        "deviation": round(entry.load.deviation, 6),
        "outage": float(f"{entry.load.outage:.3g}"),
    }


class OwnPromise(Shown):
    """What a link promises one tenant in one direction."""

    link: Annotated[str, Field(examples=["leaf-0-3-5"])]
    """Its id; of the link of a host, the host's name."""
    kind: Literal["host", "leaf", "spine"]
    direction: Literal["up", "down"]
    """`down` is towards the host."""
    state: Literal["kept", "suspended", "dead"]
    """As in the promises of a fabric."""
    promised: float
    """Gb/s: `mean`, and what its demands need beyond it at the risk of the link."""
    mean: float
    """Gb/s: what is certain, and the means of normal demands."""
    deviation: float
    """Gb/s: standard deviation of normal demands."""
    risk: float
    """The highest probability of an outage allowed."""
    outage: Annotated[float, Field(ge=0, le=1)]
    """The probability that the demands of all who share the link exceed it, at the highest."""

    @classmethod
    def of(cls, entry: PromiseEntry) -> Self:
        return cls.showing(
            entry,
            entry.sharing,
            **_load(entry),
        )


class OwnPromises(Schema):
    """What a tenant on shared hosts is promised, and what of it does not hold now."""

    allocation: str
    slots: int
    bandwidth: float | tuple[float, ...]
    """Gb/s that each virtual machine may send, and as many receive."""
    deviation: float | tuple[float, ...]
    holds: bool
    """No link that it needs is down or promises more than it has."""
    detail: str | None
    """Why it does not hold."""
    links: list[OwnPromise]
    """By link: those of leaves, of spines, of hosts."""


class PromiseList(Schema):
    promises: list[PromiseAnswer]
    next: str | None
    """The next page."""


class PlannedSlotMoves(Schema):
    """Virtual machines of one tenant that move to other shared hosts."""

    allocation: str
    name: str
    project_id: str
    movable: Movable
    move_cost: float
    cost: float
    """`move_cost` for each virtual machine that moves."""
    unit_moves: list[UnitMove]
    """Its virtual machines, in order."""
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

    host: str
    """Its name."""
    moves: int
    """Virtual machines that move for it, beside those before it."""


class ConsolidationPlanAnswer(Schema):
    """Moves of virtual machines after which shared hosts are empty."""

    fabric: str
    id: PlanId
    parent: str
    """The allocation that shares its hosts."""
    hosts: list[EmptiedHost]
    """In the order of their choice."""
    leaves: list[IdleSwitch]
    """Leaves on which no virtual machine is left."""
    moves: list[PlannedSlotMoves]
    """One for each tenant; they do not depend on each other."""
    moved_units: int
    """Virtual machines that move, in all."""
    cost: CostOfAll
    cut_off: bool
    """The search stopped at its budget: more could perhaps be empty."""

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
    allocation: Named | None = None
    """On hosts that this allocation shares."""
    kind: Literal["host", "leaf", "spine"] | None = None


class NewConsolidation(Body):
    """What may move so that shared hosts are empty."""

    parent: Reference | None = None
    """The allocation that shares its hosts; default: the only one."""
    moves: Annotated[int, Field(ge=0, le=MOST_UNITS)] = 8
    """The most virtual machines that move."""
    moves_per_host: Annotated[float, Field(ge=0.001, le=MOST_UNITS, allow_inf_nan=False)] = 4.0
    """A host that costs more moves of virtual machines is left alone."""
    max_cost: MaxCost = None
    override: Override = False
    dry_run: DryPlan = False
