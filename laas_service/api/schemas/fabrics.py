# SPDX-License-Identifier: Apache-2.0

"""Schemas of answers about fabrics: inventory, utilization, fit, routing, common plane."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field

from laas_service.api.schemas.agents import ENGINE, MASTER, Master
from laas_service.api.schemas.base import Guid, Schema, Shown, Triple, guid
from laas_service.app import requests
from laas_service.app.lifecycle import LIVE, State
from laas_service.app.records import FabricRecord, HostState, LinkState, Word
from laas_service.app.views import inventory
from laas_service.app.views import utilization as utilization_view
from laas_service.domain import common_plane_cost, crossed_links, idle_links, topology
from laas_service.domain.allocation import Allocation as Placed
from laas_service.domain.allocation import NoFit, Refusal, Shape
from laas_service.domain.errors import InvalidInput
from laas_service.domain.faults.memory import LinkCondition
from laas_service.domain.topology import Port, link_name
from laas_service.messages import ConfirmedBy


class ShapeAnswer(Shown):
    """N = pods * (leaves * hosts) + (remainder_leaves * hosts + remainder_hosts)."""

    pods: int
    leaves: int
    hosts: int
    remainder_leaves: int
    remainder_hosts: int
    text: str

    @classmethod
    def of(cls, shape: Shape) -> Self:
        return cls.showing(shape, text=str(shape))


class Tree(Shown):
    """XGFT(3; m1,m2,m3; 1,w2,w3) with bundles of parallel cables, and the rails of its hosts."""

    m: tuple[int, int, int]
    w: tuple[int, int, int]
    cables: tuple[int, int]
    rails: int


class Usage(Shown):
    total: int
    allocated: int
    free: int
    """Up and without an owner."""
    failed: int
    drained: int
    withheld: int
    """Links of the common plane."""


class FabricSummary(Schema):
    id: str
    shape: Tree
    generation: int
    """Grows with every committed change."""
    created_at: AwareDatetime

    @classmethod
    def summary(cls, fabric: FabricRecord) -> FabricSummary:
        return FabricSummary(**cls.parts(fabric))

    @staticmethod
    def parts(fabric: FabricRecord) -> dict[str, Any]:
        tree = fabric.topology.tree
        return {
            "id": fabric.id,
            "shape": Tree.showing(tree, fabric.topology),
            "generation": fabric.generation,
            "created_at": fabric.created_at,
        }


class FabricList(Schema):
    fabrics: list[FabricSummary]
    default: str | None
    """Id of the fabric of requests that name none: [api] default_fabric, or the only fabric. Null:
    name one."""
    next: str | None
    """The next page."""


class Fabric(FabricSummary):
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    switches: int
    allocations: dict[str, int]
    """How many, by state."""
    hosts_alarm: str | None
    """Why none of many hosts that seem away is withheld, or how many Nova has not known since their
    import; for those who may see the inventory."""

    @classmethod
    def of(cls, fabric: FabricRecord, use: utilization_view.Utilization, alarm: str | None) -> Self:
        return cls(
            **cls.parts(fabric),
            switches=len(fabric.inventory.switches),
            hosts_alarm=alarm,
            **UtilizationAnswer.counts(use),
        )


class UtilizationAnswer(Schema):
    fabric: str
    generation: int
    utilization: Annotated[float, Field(ge=0, le=1)]
    """Hosts with an owner, as a part of all hosts."""
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    allocations: dict[str, int]
    """How many, by state."""

    @staticmethod
    def counts(use: utilization_view.Utilization) -> dict[str, Any]:
        return {
            "hosts": Usage.model_validate(use.hosts),
            "leaf_links": Usage.model_validate(use.leaf_links),
            "spine_links": Usage.model_validate(use.spine_links),
            "allocations": {
                state.value: use.allocations.get(state, 0) for state in State if state in LIVE
            },
        }

    @classmethod
    def of(cls, fabric: str, use: utilization_view.Utilization) -> Self:
        return cls(
            fabric=fabric,
            generation=use.generation,
            utilization=use.hosts.allocated / use.hosts.total if use.hosts.total else 0.0,
            **cls.counts(use),
        )


class RoomAnswer(Shown):
    """The cheapest way found to make it fit: releases, or drains undone."""

    releases: list[str]
    """Ids of allocations to release."""
    undrain: list[int]
    """Indices of hosts whose drain to undo."""
    hosts: int
    """How many hosts the releases take from tenants."""


class ByMovingAnswer(Schema):
    """How a size that does not fit in place would fit: hosts of the allocation would move."""

    moves: list[str]
    """Hosts that it would leave, by name."""
    new_hosts: int
    """How many hosts it would newly get."""


FitsWhenEmpty = Annotated[
    bool | None,
    Field(description="Whether it would fit without any other allocation and any drain."),
]
CUT_OFF = (
    "Whether the searches for this answer stopped at the budget of the request: more may fit, "
    "and less may have to go."
)
MakesRoom = Annotated[RoomAnswer | None, Field(description="How to make room; for administrators.")]


ContentionFreeNow = Annotated[
    bool | None,
    Field(
        description="Whether no shift of its hosts, in the order of ranks, puts two flows on a "
        "link (on a tapered tree, more than the taper makes unavoidable). Null: it holds no hosts."
    ),
]
CrossedBy = Annotated[
    int | None,
    Field(
        ge=0,
        description="Ordered pairs of ports of others whose packets have to cross its links: they "
        "have no other way. Null unless `undisturbed` is asked for, here or by another allocation.",
    ),
]
CrossedMore = Annotated[
    int | None,
    Field(
        description="Further pairs that have to cross links of any allocation because of it; "
        "fewer, if it is negative. Null as crossed_by."
    ),
]

WorstLoad = Annotated[
    int | None,
    Field(
        ge=1,
        description="The most flows of one shift on a link; null: not known, because it owns no "
        "links or one of them has failed.",
    ),
]


class RiskFitAnswer(Shown):
    """How many further tenants with these slots would fit, placed one after the other."""

    risk: float
    """Probability that demands exceed a link."""
    tenants: int
    more: bool
    """No further ones were tried."""


class FitAnswer(Shown):
    fabric: str
    hosts: int
    """0 if slots were asked for."""
    slots: int | None = None
    """Null if hosts were asked for."""
    fits: bool
    largest_fit: int
    """The largest size that would fit now; of slots with this demand, the most for which a place
    was found."""
    risks: list[RiskFitAnswer] | None = None
    """Ascending by risk, if it was asked for."""
    shape: ShapeAnswer | None
    contention_free: ContentionFreeNow
    worst_load: WorstLoad
    crossed_by: CrossedBy = None
    crossed_more: CrossedMore = None
    reason: Refusal | None
    """Why it does not fit."""
    detail: str | None
    fits_when_empty: FitsWhenEmpty
    room: MakesRoom
    cut_off: Annotated[bool, Field(description=CUT_OFF)]

    @classmethod
    def of(cls, fabric: str, hosts: int, fit: requests.Fit, slots: int | None = None) -> Self:
        answer, reached = fit.answer, fit.contention
        refusal = answer if isinstance(answer, NoFit) else None
        shape = answer.shape if isinstance(answer, Placed) else None
        return cls.showing(
            fit,
            fabric=fabric,
            hosts=hosts,
            slots=slots,
            fits=refusal is None,
            largest_fit=fit.largest,
            risks=list(fit.risks) or None,
            shape=ShapeAnswer.of(shape) if shape else None,
            contention_free=reached.free if reached else None,
            worst_load=reached.worst_load if reached else None,
            crossed_by=fit.disturbance.crossing if fit.disturbance else None,
            crossed_more=fit.disturbance.others if fit.disturbance else None,
            reason=refusal.reason if refusal else None,
            detail=refusal.detail if refusal else None,
            fits_when_empty=refusal.fits_when_empty if refusal else None,
            room=refusal.room if refusal else None,
        )


CONFIRMED_BY = Field(
    description=(
        "`switches`: tables were read back; `agent`: an agent beside OpenSM reported it; `files`: "
        "files are written, nobody read the switches; `nobody`: the same, and no subnet manager "
        "is configured. Null: no generation is confirmed."
    )
)


class SubnetManagerAnswer(Shown):
    name: str
    generation: int | None
    """The generation that is confirmed."""
    confirmed_by: Annotated[ConfirmedBy | None, CONFIRMED_BY]
    current: bool
    problem: str | None
    engine: Annotated[str | None, ENGINE]
    master: Annotated[Master | None, MASTER]
    without: list[Guid]
    """Dead switches, which the generation is confirmed without."""
    unconfirmed: list[Guid]
    """Switches that do not answer, and may still forward by other tables."""


class Holder(Shown):
    """The worker that converges the fabric, and what it saw in the switches."""

    name: str | None
    """Null: no worker has the fabric."""
    until: AwareDatetime | None
    """Another worker takes over unless it renews until then."""
    generation: int | None
    """The generation it saw."""
    confirmed_by: Annotated[ConfirmedBy | None, CONFIRMED_BY]
    problem: str | None
    seen_at: AwareDatetime | None
    waits_for: str | None
    """Reason why it has not gone on for long; null: it moves, or rests."""


class RoutingAnswer(Schema):
    fabric: str
    generation: int
    """The generation wanted in the switches."""
    worker: Holder
    subnet_managers: list[SubnetManagerAnswer]

    @classmethod
    def of(cls, fabric: str, routing: requests.Routing) -> Self:
        return cls(
            fabric=fabric,
            generation=routing.wanted,
            worker=Holder.showing(
                routing.holding,
                name=routing.holding.worker,
                generation=routing.holding.applied,
                confirmed_by=routing.holding.applied_by,
            ),
            subnet_managers=[
                SubnetManagerAnswer.showing(
                    applied,
                    applied.running,
                    name=name,
                    confirmed_by=None if applied.generation is None else applied.by,
                    current=applied.generation == routing.wanted and applied.problem is None,
                )
                for name, applied in routing.applied.items()
            ],
        )


class EndpointAnswer(Shown):
    """One port of a host, in rail order, and where it is plugged in."""

    rail: int
    pod: int
    leaf: int
    k: int
    guid: Guid | None
    description: str | None
    """The node description."""
    virtual_guids: list[Guid]
    """Of the virtual ports behind it."""


SourceOfState = Annotated[
    Literal["operator", "observed", "nova"] | None,
    Field(description="Who says that it is not up; null if it is."),
]
Since = Annotated[
    AwareDatetime | None, Field(description="Since when it is not up, if that is recorded.")
]
Evidence = Annotated[str | None, Field(description="What was seen, or which switch it is about.")]


ReasonGiven = Annotated[str | None, Field(description="Of source `operator`: why, as they said.")]


def reason_of(state: str | None, reason: str | None) -> str | None:
    """The reason for a state. Raises: InvalidInput: it is given for none, or for ``up``."""
    if reason is not None and state in (None, "up"):
        raise InvalidInput("reason", reason, "give it with a state other than up")
    return reason


class SaidBy(Shown):
    """The user whose request it was."""

    user_id: str
    project_id: str
    request_id: str


By = Annotated[
    SaidBy | None, Field(description="Of source `operator`: who said it, if that is recorded.")
]


def said(word: Word | None) -> dict[str, Any]:
    """The fields that say who says that something is not up, since when and why."""
    if word is None:
        return {"source": None, "by": None, "since": None, "evidence": None, "reason": None}
    return {"source": word.source.value} | {
        name: getattr(word, name) for name in ("by", "since", "evidence", "reason")
    }


class Host(Shown):
    index: int
    name: str
    compute_name: str | None
    """Its name in Nova, if it has another one there."""
    state: HostState
    source: SourceOfState
    by: By
    since: Since
    evidence: Evidence
    reason: ReasonGiven
    absent_since: AwareDatetime | None
    """None of its ports has had a link since then, as while it reboots."""
    owner: str | None
    """The id of the allocation that has it."""
    traits: list[str]
    domains: dict[str, str]
    """Its domain of each kind that it is in."""
    cost: int
    ports: list[EndpointAnswer]

    @classmethod
    def of(cls, entry: inventory.HostEntry) -> Self:
        endpoints = {endpoint.rail: endpoint for endpoint in entry.endpoints}

        def port(rail: int, at: Port) -> EndpointAnswer:
            endpoint = endpoints.get(rail)
            return EndpointAnswer.showing(
                at,
                rail=rail,
                guid=guid(endpoint.guid) if endpoint else None,
                description=endpoint.name if endpoint else None,
                virtual_guids=entry.virtual_ports.get(endpoint.guid, ()) if endpoint else (),
            )

        return cls.showing(
            entry,
            entry.features,
            **said(entry.word),
            traits=sorted(entry.features.traits),
            domains=dict(entry.features.domains),
            ports=[port(rail, at) for rail, at in enumerate(entry.ports)],
        )


class HostList(Schema):
    hosts: list[Host]
    next: str | None
    """The next page."""


class CableEnd(Shown):
    guid: Guid
    port: int


class Link(Shown):
    id: Annotated[str, Field(examples=["leaf-0-3-5", "spine-1-2-0"])]
    kind: Literal["leaf", "spine"]
    index: Triple
    state: LinkState
    """`drained`: no new owner gets it, and its owner keeps it."""
    source: SourceOfState
    by: By
    since: Since
    evidence: Evidence
    reason: ReasonGiven
    condition: LinkCondition | None
    """Memory of observation; null if it was up all the time."""
    owner: str | None
    """The id of the allocation that has it."""
    withheld: bool
    """Of the common plane: for no tenant."""
    lower: CableEnd | None
    upper: CableEnd | None

    @classmethod
    def of(cls, entry: inventory.LinkEntry) -> Self:
        name = link_name(entry.link)
        return cls.showing(
            entry,
            id=name,
            kind="leaf" if name.startswith("leaf") else "spine",
            index=(entry.link[0], entry.link[1], entry.link[2]),
            **said(entry.word),
        )


class LinkList(Schema):
    links: list[Link]
    next: str | None
    """The next page."""


class SwitchCondition(Enum):
    """The state of a switch, as administrators said, else as observed."""

    UP = "up"
    DRAINED = "drained"  # a leaf of which no host is up; in the document of one switch alone
    FAILED = "failed"
    MAINTENANCE = "maintenance"
    DEAD = "dead"  # observed: without power
    SILENT = "silent"  # observed: does not answer, may still forward
    UNREAD = "unread"  # observed: was not read, and its neighbours do not tell
    RETURNING = "returning"  # it answers again or was repaired; its tables are not compared yet


class SwitchAnswer(Shown):
    guid: Guid
    name: str
    level: int
    """1 leaf, 2 L2 switch, 3 spine."""
    state: SwitchCondition
    """`failed` and `maintenance` as administrators said. Observed: `dead`, without power; `silent`,
    may still forward; `unread`, its neighbours do not tell. Of both: `returning`, its tables are
    not compared yet."""
    source: SourceOfState
    by: By
    since: Since
    evidence: Evidence
    reason: ReasonGiven
    ports: int
    lid: int | None
    positions: list[tuple[int, int]]
    """[pod, leaf], [pod, l2] or [l2, spine]; a director spine has several."""

    @classmethod
    def of(cls, entry: inventory.SwitchEntry) -> Self:
        return cls.showing(
            entry,
            entry.switch,
            state=SwitchCondition(entry.word.state) if entry.word else SwitchCondition.UP,
            **said(entry.word),
        )


class IdleSwitch(Shown):
    guid: Guid
    name: str
    level: int
    """1 leaf, 2 L2 switch, 3 spine."""


class IdleAnswer(Shown):
    """Links and switches that may be turned down; the links include those of idle switches."""

    fabric: str
    generation: int
    """The generation of this answer."""
    links: list[str]
    """Ids, as in the list of links; paged."""
    switches: list[IdleSwitch]
    """All of them, on every page."""
    next: str | None
    """The next page of links."""

    @classmethod
    def of(
        cls,
        fabric: FabricRecord,
        idle: idle_links.IdleComponents,
        links: list[str],
        following: str | None,
    ) -> Self:
        return cls.showing(idle, fabric, fabric=fabric.id, links=links, next=following)


class CrossedLink(Shown):
    id: str
    owner: str
    """The id of the allocation that has it."""
    crossed_by: int
    """Ordered pairs of ports, each a source and a destination."""
    why: str
    """Why these packets have no other way, by the uplinks of its lower switch."""


class Crossed(Shown):
    """Owned links that packets of others have to cross: no way leads past them."""

    fabric: str
    generation: int
    """The generation of this answer."""
    pairs: int
    """Pairs of ports without an owner, and of services with all others."""
    crossing: int
    """Those of them that cross a link of a third party."""
    links: list[CrossedLink]
    """The links that they cross; paged."""
    next: str | None
    """The next page of links."""

    @classmethod
    def of(
        cls,
        fabric: FabricRecord,
        found: crossed_links.CrossedLinks,
        links: dict[topology.Link, str],
        following: str | None,
    ) -> Self:
        shown = [
            CrossedLink(
                id=link_name(link), owner=found.owners[link], crossed_by=found.links[link], why=why
            )
            for link, why in links.items()
        ]
        return cls.showing(found, fabric, fabric=fabric.id, links=shown, next=following)


class PlaneCost(Shown):
    """What withholding costs one policy, on the fabric without tenants."""

    policy: str
    largest: int
    """The largest allocation there could be."""
    largest_before: int
    """The same with the links withheld now."""
    beyond_leaf: int
    """Hosts that tenants of more than one leaf could have."""
    beyond_leaf_before: int
    """The same with the links withheld now."""
    cut_off: Annotated[bool, Field(description=CUT_OFF)]


class SharedPlaneAnswer(Shown):
    """Links that no tenant gets, for storage, gateways, management and idle hosts."""

    fabric: str
    generation: int
    l2: list[int]
    spines: list[int]
    leaf_links: int
    """How many leaf links are withheld."""
    spine_links: int
    """How many spine links are withheld."""
    unreached: list[IdleSwitch]
    """Leaves without a working link of it: their hosts use any links."""
    mixed: list[IdleSwitch]
    """Spines that tenants use, too; name them in spines to keep them off."""
    cost: list[PlaneCost] | None
    """For a dry run."""

    @classmethod
    def of(
        cls,
        fabric: FabricRecord,
        reach: common_plane_cost.Reach,
        costs: Sequence[tuple[common_plane_cost.Cost, common_plane_cost.Cost]] | None = None,
    ) -> Self:
        return cls.showing(
            reach,
            reach.plane,
            fabric,
            fabric=fabric.id,
            cost=None
            if costs is None
            else [
                PlaneCost.showing(
                    after,
                    largest_before=before.largest,
                    beyond_leaf_before=before.beyond_leaf,
                    cut_off=before.cut_off or after.cut_off,
                )
                for before, after in costs
            ],
        )


class SwitchList(Schema):
    switches: list[SwitchAnswer]
    next: str | None
    """The next page."""
