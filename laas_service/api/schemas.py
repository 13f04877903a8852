# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The one source of every JSON shape: it validates what comes in and describes what goes out.

Requests are strict: an unknown field, or a string where a number belongs, is an
error that names the field. Answers are built by the ``of`` constructors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, RootModel, field_validator

from laas_service.app import listing
from laas_service.app import service as use_cases
from laas_service.app.line import Place
from laas_service.app.records import (
    PROJECT,
    AllocationRecord,
    FabricRecord,
    HostState,
    LinkState,
    Phase,
    State,
)
from laas_service.domain import degradation, power, withholding
from laas_service.domain.allocation import Allocation as Placed
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.allocation import Room as DomainRoom
from laas_service.domain.allocation import Shape as DomainShape
from laas_service.domain.constraints import Constraints as Wanted
from laas_service.domain.constraints import Within
from laas_service.domain.features import DEAREST, TRAIT
from laas_service.domain.inventory import PortRef
from laas_service.domain.inventory import Switch as DomainSwitch
from laas_service.domain.topology import Link as Cable
from laas_service.domain.topology import Port, link_name

AT_ONCE = 1000
"""The most items a page of a list has."""

Name = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$", examples=["blue"])
]
Project = Annotated[str, Field(pattern=PROJECT)]
Reference = Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""What something is called that has to be there already."""
HostName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Hosts = Annotated[int, Field(ge=1, le=2**31 - 1, description="How many hosts.")]
Guid = Annotated[str, Field(pattern=r"^0x[0-9a-f]{16}$")]
Triple = Annotated[
    tuple[int, int, int],
    Field(description="[pod, leaf, l2] of a leaf link, [pod, l2, spine] of a spine link."),
]


def guid(value: int) -> str:
    return f"{value:#018x}"


class Schema(BaseModel):
    """What all shapes share: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(Schema):
    """A JSON request body: types are exactly those of JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# -- what is asked ------------------------------------------------------------


class NoQuery(Schema):
    """No query parameters."""


class Paging(Schema):
    limit: Annotated[
        int, Field(ge=1, description=f"At most this many items; {AT_ONCE} is the most given.")
    ] = AT_ONCE
    marker: Annotated[
        str | None, Field(description="The last item of the page before; see `next`.")
    ] = None


class HostQuery(Paging):
    state: HostState | None = None
    owner: Annotated[str | None, Field(description="An allocation's id.")] = None
    free: Annotated[bool | None, Field(description="Up and without an owner, or the opposite.")] = (
        None
    )
    trait: Annotated[str | None, Field(description="A trait that the host has.")] = None


class LinkQuery(Paging):
    state: LinkState | None = None
    owner: Annotated[str | None, Field(description="An allocation's id.")] = None
    free: Annotated[bool | None, Field(description="Up and without an owner, or the opposite.")] = (
        None
    )
    kind: Literal["leaf", "spine"] | None = None
    pod: Annotated[int | None, Field(ge=0)] = None


class SwitchQuery(Paging):
    level: Annotated[int | None, Field(ge=1, le=3, description="1 leaf, 2 L2 switch, 3 spine.")] = (
        None
    )


class AllocationQuery(Paging):
    state: Annotated[State | None, Field(description="Without it, all that are not released.")] = (
        None
    )
    fabric: str | None = None
    project_id: str | None = None


Trait = Annotated[str, Field(pattern=TRAIT, examples=["HW_GPU"])]
Cost = Annotated[int, Field(ge=0, le=DEAREST, description="What a host costs, in any unit.")]
MANY = 4096
"""The most hosts, pods or traits a constraint names."""


class Wishes(Schema):
    """What hosts must be like and where they may be; all of them are met, or it is refused."""

    traits: Annotated[
        list[Trait] | None, Field(max_length=MANY, description="Every host has all of these.")
    ] = None
    avoid_hosts: Annotated[
        list[HostName] | None,
        Field(max_length=MANY, description="No host of these names (administrators)."),
    ] = None
    avoid_pods: Annotated[
        list[Annotated[int, Field(ge=0)]] | None,
        Field(max_length=MANY, description="No host in these pods (administrators)."),
    ] = None
    within: Annotated[
        Within | None, Field(strict=False, description="All hosts in one leaf, or in one pod.")
    ] = None
    spread: Annotated[int | None, Field(ge=1, description="Hosts in at least so many pods.")] = None
    max_host_cost: Annotated[Cost | None, Field(description="No host is dearer.")] = None
    cheapest: Annotated[
        bool | None, Field(description="Hosts that cost least together, of all legal placements.")
    ] = None

    def domain(self) -> Wanted:
        """The same without hosts to avoid, whose numbers only the service knows.

        Raises:
            InvalidInput: two of them contradict each other.
        """
        return Wanted(
            traits=frozenset(self.traits or ()),
            avoid_pods=frozenset(self.avoid_pods or ()),
            within=self.within,
            spread=self.spread or 1,
            max_host_cost=self.max_host_cost,
            cheapest=bool(self.cheapest),
        )


class Constraints(Wishes):
    """What hosts must be like and where they may be; all of them are met, or it is refused."""

    model_config = Body.model_config

    @classmethod
    def of(cls, wanted: Wanted | None, fabric: FabricRecord, admin: bool) -> Self | None:
        """As recorded; only administrators see which hosts and pods are avoided."""
        if wanted is None:
            return None
        names = fabric.inventory.host_names
        avoided = admin and sorted(wanted.avoid_hosts)
        return cls(
            traits=sorted(wanted.traits) or None,
            avoid_hosts=[names[host] for host in avoided] if avoided else None,
            avoid_pods=(admin and sorted(wanted.avoid_pods)) or None,
            within=wanted.within,
            spread=wanted.spread if wanted.spread > 1 else None,
            max_host_cost=wanted.max_host_cost,
            cheapest=wanted.cheapest or None,
        )


class FitQuery(Wishes):
    hosts: Hosts
    policy: str | None = None
    parent: Annotated[str | None, Field(description="Inside this container.")] = None

    @field_validator("traits", "avoid_hosts", "avoid_pods", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class WaitQuery(Schema):
    wait: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="Seconds to wait for the outcome; the service has a limit of its own.",
        ),
    ] = 0


class ReleaseQuery(WaitQuery):
    force: Annotated[
        bool, Field(description="Release although servers still run there (administrators).")
    ] = False


class NoHeaders(Schema):
    """No request headers that mean anything here."""


class Idempotency(Schema):
    idempotency_key: Annotated[
        str | None,
        Field(
            alias="Idempotency-Key",
            pattern=r"^[\x21-\x7e]{1,255}$",
            description="Repeating a request with its key gives the first answer again.",
        ),
    ] = None


class Precondition(Schema):
    if_match: Annotated[
        str | None,
        Field(alias="If-Match", description="The ETag the allocation must still have."),
    ] = None


class NewAllocation(Body):
    name: Name
    hosts: Hosts
    policy: Annotated[Reference | None, Field(description="Default: the service's.")] = None
    fabric: Annotated[Reference | None, Field(description="Needed where there are several.")] = None
    project_id: Annotated[
        Project | None, Field(description="Whose it will be; administrators may name any.")
    ] = None
    constraints: Constraints | None = None
    wait: Annotated[bool, Field(description="Queue until there is room, instead of refusing.")] = (
        False
    )
    duration: Annotated[
        float | None,
        Field(
            gt=0,
            le=use_cases.LONGEST,
            allow_inf_nan=False,
            description="Seconds it is expected to last; nothing is taken away when they are over.",
        ),
    ] = None
    container: Annotated[
        bool, Field(description="Hold hosts and links for further allocations inside.")
    ] = False
    parent: Annotated[
        Reference | None, Field(description="The container to be inside: the id of an allocation.")
    ] = None
    dry_run: Annotated[
        bool, Field(description="Answer what would be given, and reserve nothing.")
    ] = False


class AllocationChange(Body):
    name: Annotated[Name | None, Field(description="The new name.")] = None
    hosts: Annotated[Hosts | None, Field(description="Resizing; not supported yet.")] = None


class HostChange(Body):
    """At least one of them; what is left out stays as it is."""

    state: Annotated[
        HostState | None, Field(strict=False, description="`up` repairs and undrains.")
    ] = None
    traits: Annotated[
        list[Trait] | None, Field(max_length=MANY, description="All traits it has from now on.")
    ] = None
    cost: Cost | None = None


class LinkChange(Body):
    state: Annotated[LinkState, Field(strict=False, description="`up` repairs.")]


class NewPlane(Body):
    l2: Annotated[list[int], Field(description="L2 indices; none gives them back.")] = []
    spines: Annotated[
        list[int], Field(description="Spines of each group; none: all above `l2`.")
    ] = []
    dry_run: Annotated[bool, Field(description="Answer what it would cost, change nothing.")] = (
        False
    )


# -- what is answered: fabrics --------------------------------------------------


class Shape(Schema):
    """N = pods * (leaves * hosts) + (remainder_leaves * hosts + remainder_hosts)."""

    pods: int
    leaves: int
    hosts: int
    remainder_leaves: int
    remainder_hosts: int
    text: str

    @classmethod
    def of(cls, shape: DomainShape) -> Self:
        return cls(
            pods=shape.pods,
            leaves=shape.leaves,
            hosts=shape.hosts,
            remainder_leaves=shape.remainder_leaves,
            remainder_hosts=shape.remainder_hosts,
            text=str(shape),
        )


class Tree(Schema):
    """XGFT(3; m1,m2,m3; 1,w2,w3) with bundles of parallel cables, and the rails of its hosts."""

    m: tuple[int, int, int]
    w: tuple[int, int, int]
    cables: tuple[int, int]
    rails: int


class Usage(Schema):
    total: int
    allocated: int
    free: Annotated[int, Field(description="Up and without an owner.")]
    failed: int
    drained: int
    withheld: Annotated[int, Field(description="Links of the shared plane.")]

    @classmethod
    def of(cls, usage: use_cases.Usage) -> Self:
        return cls(
            total=usage.total,
            allocated=usage.allocated,
            free=usage.free,
            failed=usage.failed,
            drained=usage.drained,
            withheld=usage.withheld,
        )


class FabricSummary(Schema):
    id: str
    shape: Tree
    generation: Annotated[int, Field(description="Grows with every committed change.")]
    created_at: AwareDatetime

    @classmethod
    def summary(cls, fabric: FabricRecord) -> FabricSummary:
        return FabricSummary(**cls.parts(fabric))

    @staticmethod
    def parts(fabric: FabricRecord) -> dict[str, Any]:
        tree = fabric.topology.tree
        return {
            "id": fabric.id,
            "shape": Tree(m=tree.m, w=tree.w, cables=tree.cables, rails=fabric.topology.rails),
            "generation": fabric.generation,
            "created_at": fabric.created_at,
        }


class FabricList(Schema):
    fabrics: list[FabricSummary]
    next: Annotated[str | None, Field(description="The next page.")]


class Fabric(FabricSummary):
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    switches: int
    allocations: Annotated[dict[str, int], Field(description="How many, by state.")]

    @classmethod
    def of(cls, fabric: FabricRecord, use: use_cases.Utilization) -> Self:
        return cls(
            **cls.parts(fabric),
            switches=len(fabric.inventory.switches),
            **Utilization.counts(use),
        )


class Utilization(Schema):
    fabric: str
    generation: int
    utilization: Annotated[
        float, Field(ge=0, le=1, description="Hosts with an owner, as a part of all hosts.")
    ]
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    allocations: Annotated[dict[str, int], Field(description="How many, by state.")]

    @staticmethod
    def counts(use: use_cases.Utilization) -> dict[str, Any]:
        return {
            "hosts": Usage.of(use.hosts),
            "leaf_links": Usage.of(use.leaf_links),
            "spine_links": Usage.of(use.spine_links),
            "allocations": {
                state.value: use.allocations.get(state, 0)
                for state in State
                if state is not State.RELEASED
            },
        }

    @classmethod
    def of(cls, fabric: str, use: use_cases.Utilization) -> Self:
        return cls(
            fabric=fabric,
            generation=use.generation,
            utilization=use.hosts.allocated / use.hosts.total if use.hosts.total else 0.0,
            **cls.counts(use),
        )


class Room(Schema):
    """The cheapest way found to make it fit: releases, or drains undone."""

    releases: Annotated[list[str], Field(description="Ids of allocations to release.")]
    undrain: Annotated[list[int], Field(description="Indices of hosts whose drain to undo.")]
    hosts: Annotated[int, Field(description="How many hosts the releases take from tenants.")]

    @classmethod
    def of(cls, room: DomainRoom) -> Self:
        return cls(releases=list(room.releases), undrain=list(room.undrain), hosts=room.hosts)


FitsWhenEmpty = Annotated[
    bool | None,
    Field(description="Whether it would fit were all others gone and no host drained."),
]
MakesRoom = Annotated[Room | None, Field(description="How to make room; for administrators.")]


class Fit(Schema):
    fabric: str
    hosts: int
    fits: bool
    largest_fit: Annotated[int, Field(description="The largest size that would fit now.")]
    shape: Shape | None
    reason: Annotated[Refusal | None, Field(description="Why it does not fit.")]
    detail: str | None
    fits_when_empty: FitsWhenEmpty
    room: MakesRoom

    @classmethod
    def of(cls, fabric: str, hosts: int, fit: use_cases.Fit) -> Self:
        answer = fit.answer
        no = answer if isinstance(answer, NoFit) else None
        shape = answer.shape if isinstance(answer, Placed) else None
        return cls(
            fabric=fabric,
            hosts=hosts,
            fits=no is None,
            largest_fit=fit.largest,
            shape=Shape.of(shape) if shape else None,
            reason=no.reason if no else None,
            detail=no.detail if no else None,
            fits_when_empty=no.fits_when_empty if no else None,
            room=Room.of(no.room) if no and no.room else None,
        )


class SubnetManager(Schema):
    name: str
    generation: Annotated[int | None, Field(description="The generation seen in the switches.")]
    current: bool
    problem: str | None


class Holder(Schema):
    """The worker that converges the fabric, and what it saw in the switches."""

    name: Annotated[str | None, Field(description="Null: no worker has the fabric.")]
    until: Annotated[
        AwareDatetime | None, Field(description="Others take over if it is silent until then.")
    ]
    generation: Annotated[int | None, Field(description="The generation it saw.")]
    problem: str | None
    seen_at: AwareDatetime | None


class Routing(Schema):
    fabric: str
    generation: Annotated[int, Field(description="The generation wanted in the switches.")]
    worker: Holder
    subnet_managers: list[SubnetManager]

    @classmethod
    def of(cls, fabric: str, routing: use_cases.Routing) -> Self:
        return cls(
            fabric=fabric,
            generation=routing.wanted,
            worker=Holder(
                name=routing.holding.worker,
                until=routing.holding.until,
                generation=routing.holding.applied,
                problem=routing.holding.problem,
                seen_at=routing.holding.seen_at,
            ),
            subnet_managers=[
                SubnetManager(
                    name=name,
                    generation=applied.generation,
                    current=applied.generation == routing.wanted and applied.problem is None,
                    problem=applied.problem,
                )
                for name, applied in routing.applied.items()
            ],
        )


class Endpoint(Schema):
    """One port of a host, in rail order, and where it is plugged in."""

    rail: int
    pod: int
    leaf: int
    k: int
    guid: Guid | None
    description: Annotated[str | None, Field(description="The node description.")]


class Host(Schema):
    index: int
    name: str
    state: HostState
    owner: Annotated[str | None, Field(description="The id of the allocation that has it.")]
    traits: list[str]
    cost: int
    ports: list[Endpoint]

    @classmethod
    def of(cls, entry: listing.HostEntry) -> Self:
        endpoints = {endpoint.rail: endpoint for endpoint in entry.endpoints}

        def port(rail: int, at: Port) -> Endpoint:
            endpoint = endpoints.get(rail)
            return Endpoint(
                rail=rail,
                pod=at.pod,
                leaf=at.leaf,
                k=at.k,
                guid=guid(endpoint.guid) if endpoint else None,
                description=endpoint.name if endpoint else None,
            )

        return cls(
            index=entry.index,
            name=entry.name,
            state=entry.state,
            owner=entry.owner,
            traits=sorted(entry.features.traits),
            cost=entry.features.cost,
            ports=[port(rail, at) for rail, at in enumerate(entry.ports)],
        )


class HostList(Schema):
    hosts: list[Host]
    next: Annotated[str | None, Field(description="The next page.")]


class CableEnd(Schema):
    guid: Guid
    port: int

    @classmethod
    def of(cls, ref: PortRef) -> Self:
        return cls(guid=guid(ref.guid), port=ref.port)


class Link(Schema):
    id: Annotated[str, Field(examples=["leaf-0-3-5", "spine-1-2-0"])]
    kind: Literal["leaf", "spine"]
    index: Triple
    state: LinkState
    owner: Annotated[str | None, Field(description="The id of the allocation that has it.")]
    withheld: Annotated[bool, Field(description="Of the shared plane: for no tenant.")]
    lower: CableEnd | None
    upper: CableEnd | None

    @classmethod
    def of(cls, entry: listing.LinkEntry) -> Self:
        name = link_name(entry.link)
        return cls(
            id=name,
            kind="leaf" if name.startswith("leaf") else "spine",
            index=(entry.link[0], entry.link[1], entry.link[2]),
            state=entry.state,
            owner=entry.owner,
            withheld=entry.withheld,
            lower=CableEnd.of(entry.lower) if entry.lower else None,
            upper=CableEnd.of(entry.upper) if entry.upper else None,
        )


class LinkList(Schema):
    links: list[Link]
    next: Annotated[str | None, Field(description="The next page.")]


class Switch(Schema):
    guid: Guid
    name: str
    level: Annotated[int, Field(description="1 leaf, 2 L2 switch, 3 spine.")]
    ports: int
    lid: int | None
    positions: Annotated[
        list[tuple[int, int]],
        Field(description="[pod, leaf], [pod, l2] or [l2, spine]; a director spine has several."),
    ]

    @classmethod
    def of(cls, entry: listing.SwitchEntry) -> Self:
        return cls(
            guid=guid(entry.switch.guid),
            name=entry.switch.name,
            level=entry.switch.level,
            ports=entry.switch.ports,
            lid=entry.lid,
            positions=list(entry.positions),
        )


class IdleSwitch(Schema):
    guid: Guid
    name: str
    level: Annotated[int, Field(description="1 leaf, 2 L2 switch, 3 spine.")]

    @classmethod
    def of(cls, switch: DomainSwitch) -> Self:
        return cls(guid=guid(switch.guid), name=switch.name, level=switch.level)


class Idle(Schema):
    """What may be turned down; the links of idle switches are among the links."""

    fabric: str
    generation: Annotated[int, Field(description="The generation this was worked out at.")]
    links: Annotated[list[str], Field(description="Ids, as in the list of links.")]
    switches: list[IdleSwitch]

    @classmethod
    def of(cls, fabric: FabricRecord, idle: power.Idle) -> Self:
        return cls(
            fabric=fabric.id,
            generation=fabric.generation,
            links=[link_name(link) for link in idle.links],
            switches=[IdleSwitch.of(switch) for switch in idle.switches],
        )


class PlaneCost(Schema):
    """What withholding does to one policy, on the fabric without tenants."""

    policy: str
    largest: Annotated[int, Field(description="The largest allocation there could be.")]
    largest_before: Annotated[int, Field(description="The same with what is withheld now.")]
    beyond_leaf: Annotated[
        int, Field(description="Hosts that tenants of more than one leaf could have.")
    ]
    beyond_leaf_before: Annotated[int, Field(description="The same with what is withheld now.")]


class SharedPlane(Schema):
    """Links that no tenant gets, for storage, gateways, management and idle hosts."""

    fabric: str
    generation: int
    l2: list[int]
    spines: list[int]
    leaf_links: Annotated[int, Field(description="How many leaf links are withheld.")]
    spine_links: Annotated[int, Field(description="How many spine links are withheld.")]
    unreached: Annotated[
        list[IdleSwitch],
        Field(description="Leaves without a working link of it: their hosts use any links."),
    ]
    mixed: Annotated[
        list[IdleSwitch],
        Field(description="Spines that tenants use, too; name them in spines to keep them off."),
    ]
    cost: Annotated[list[PlaneCost] | None, Field(description="For a dry run.")]

    @classmethod
    def of(
        cls,
        fabric: FabricRecord,
        reach: withholding.Reach,
        costs: Sequence[tuple[withholding.Cost, withholding.Cost]] | None = None,
    ) -> Self:
        return cls(
            fabric=fabric.id,
            generation=fabric.generation,
            l2=list(reach.plane.l2),
            spines=list(reach.plane.spines),
            leaf_links=reach.leaf_links,
            spine_links=reach.spine_links,
            unreached=[IdleSwitch.of(switch) for switch in reach.unreached],
            mixed=[IdleSwitch.of(switch) for switch in reach.mixed],
            cost=None
            if costs is None
            else [
                PlaneCost(
                    policy=after.policy,
                    largest=after.largest,
                    largest_before=before.largest,
                    beyond_leaf=after.beyond_leaf,
                    beyond_leaf_before=before.beyond_leaf,
                )
                for before, after in costs
            ],
        )


class SwitchList(Schema):
    switches: list[Switch]
    next: Annotated[str | None, Field(description="The next page.")]


# -- what is answered: allocations -----------------------------------------------


class AllocatedHost(Schema):
    index: int
    name: str


class Event(Schema):
    at: AwareDatetime
    state: State
    reason: str


class Holding(Schema):
    """Hosts and links, by number and by name."""

    hosts: list[AllocatedHost]
    leaf_links: Annotated[list[Triple], Field(description="[pod, leaf, l2] each.")]
    spine_links: Annotated[list[Triple], Field(description="[pod, l2, spine] each.")]
    links: Annotated[list[str], Field(description="The same links by the id they have in /links.")]
    shape: Shape | None

    @staticmethod
    def held(fabric: FabricRecord, placed: Placed | None) -> dict[str, Any]:
        if placed is None:
            return {"hosts": [], "leaf_links": [], "spine_links": [], "links": [], "shape": None}
        topology, names = fabric.topology, fabric.inventory.host_names
        leaf = sorted(placed.leaf_links(topology))
        spine = sorted(placed.spine_links(topology))
        links: list[Cable] = [*leaf, *spine]
        return {
            "hosts": [AllocatedHost(index=h, name=names[h]) for h in placed.hosts(topology)],
            "leaf_links": [tuple(link) for link in leaf],
            "spine_links": [tuple(link) for link in spine],
            "links": [link_name(link) for link in links],
            "shape": Shape.of(placed.shape) if placed.shape else None,
        }


class DryRun(Holding):
    """What would be given now; nothing is reserved."""

    fabric: str
    name: str
    project_id: str
    policy: str
    requested: int
    cost: Annotated[int, Field(description="What the hosts cost together.")]
    container: bool
    parent: str | None
    dry_run: Literal[True]

    @classmethod
    def of(cls, name: str, proposal: use_cases.Proposal) -> Self:
        placed = proposal.allocation
        return cls(
            fabric=proposal.fabric.id,
            name=name,
            project_id=proposal.project_id,
            policy=placed.policy,
            requested=placed.requested,
            cost=proposal.cost,
            container=placed.container,
            parent=placed.parent,
            dry_run=True,
            **cls.held(proposal.fabric, placed),
        )


class Waiting(Schema):
    """What a queued request waits for, as of now."""

    code: Annotated[Refusal | None, Field(description="The limit hit; null: about to start.")]
    detail: str
    largest_fit: Annotated[int | None, Field(description="The largest size there is room for.")]
    expected_start: Annotated[
        AwareDatetime | None,
        Field(description="The first one's reservation, if it is known when others end."),
    ]

    @classmethod
    def of(cls, place: Place) -> Self:
        refusal = place.refusal
        return cls(
            code=refusal.reason if refusal else None,
            detail=refusal.detail if refusal else "there is room; it is about to be admitted",
            largest_fit=refusal.largest_fit if refusal else None,
            expected_start=place.expected_start,
        )


class ThinSwitch(Schema):
    """A switch with fewer uplinks up than the allocation was given there."""

    kind: Literal["leaf", "l2"]
    pod: int
    switch: Annotated[int, Field(description="The leaf or L2 switch, by number in its pod.")]
    up: int
    given: int
    flows: Annotated[
        int | None, Field(description="So many may meet on one uplink; null: none is left.")
    ]

    @classmethod
    def of(cls, thin: degradation.Thin) -> Self:
        return cls(
            kind="leaf" if thin.level == 1 else "l2",
            pod=thin.pod,
            switch=thin.lower,
            up=thin.up,
            given=thin.given,
            flows=-(-thin.flows // thin.up) if thin.up else None,
        )


class Apart(Schema):
    """Two leaves, [pod, leaf] each, that no way over the allocation's links joins."""

    rail: int
    leaves: tuple[tuple[int, int], tuple[int, int]]


class Degraded(Schema):
    """What has failed of what an allocation holds, and what follows from it."""

    links: Annotated[list[str], Field(description="Failed links, by id.")]
    hosts: Annotated[list[AllocatedHost], Field(description="Failed hosts.")]
    thin: list[ThinSwitch]
    apart: list[Apart]
    detail: Annotated[str, Field(description="All of it in a sentence.")]

    @classmethod
    def of(cls, fabric: FabricRecord, found: degradation.Degraded) -> Self:
        names = fabric.inventory.host_names
        return cls(
            links=[link_name(link) for link in found.links],
            hosts=[AllocatedHost(index=host, name=names[host]) for host in found.hosts],
            thin=[ThinSwitch.of(thin) for thin in found.thin],
            apart=[Apart(rail=a.rail, leaves=(a.one, a.other)) for a in found.apart],
            detail=str(found),
        )

    @classmethod
    def now(cls, record: AllocationRecord, fabric: FabricRecord) -> Self | None:
        """As its traffic goes now; None if nothing it holds has failed."""
        if record.faults is None or record.travelled is None:
            return None
        links, hosts = record.faults.links, record.faults.hosts
        found = degradation.degradation(fabric.topology, record.travelled, links, hosts)
        return cls.of(fabric, found) if found.links or found.hosts else None


class AllocationSummary(Holding):
    id: str
    name: str
    fabric: str
    project_id: str
    policy: str
    state: State
    version: Annotated[int, Field(description="Grows with every change; the ETag.")]
    requested: Annotated[int, Field(description="How many hosts were asked for.")]
    container: Annotated[bool, Field(description="What it holds is for allocations inside.")]
    parent: Annotated[str | None, Field(description="The container that it is inside.")]
    pkey: Annotated[
        str | None,
        Field(pattern=r"^0x[0-9a-f]{4}$", description="The partition key; null before admission."),
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
        Field(description="How far a change of placement is; old links are held until its end."),
    ]
    error: Annotated[str | None, Field(description="Why the last step failed.")]
    created_at: AwareDatetime
    updated_at: AwareDatetime

    @classmethod
    def parts(
        cls, record: AllocationRecord, fabric: FabricRecord, place: Place | None, admin: bool
    ) -> dict[str, Any]:
        return {
            "id": record.id,
            "name": record.name,
            "fabric": record.fabric,
            "project_id": record.project_id,
            "policy": record.policy,
            "state": record.state,
            "version": record.version,
            "requested": record.hosts,
            "container": record.container,
            "parent": record.parent,
            "pkey": f"{record.pkey:#06x}" if record.pkey else None,
            "position": place.position if place else None,
            "waits_for": Waiting.of(place) if place else None,
            "duration": record.duration,
            "expected_end": record.ends_at,
            "constraints": Constraints.of(record.constraints, fabric, admin),
            "degraded": Degraded.now(record, fabric),
            "changing": record.phase,
            "error": record.error,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
            **cls.held(fabric, record.placed),
        }

    @classmethod
    def of(
        cls,
        record: AllocationRecord,
        fabric: FabricRecord,
        place: Place | None = None,
        admin: bool = False,
    ) -> Self:
        return cls(**cls.parts(record, fabric, place, admin))


class Progress(Schema):
    """How far convergence is with an allocation."""

    next_step: Annotated[str | None, Field(description="Null: nothing is to be done.")]
    failures: Annotated[int, Field(description="How often it failed, or had to wait, in a row.")]
    next_try: Annotated[AwareDatetime | None, Field(description="Null: as soon as possible.")]
    generation_wanted: Annotated[
        int | None, Field(description="Of its routes; for administrators.")
    ]
    generation_seen: Annotated[
        int | None, Field(description="In the switches, by the worker; for administrators.")
    ]

    @classmethod
    def of(cls, progress: use_cases.Progress, admin: bool) -> Self:
        return cls(
            next_step=progress.next_step,
            failures=progress.failures,
            next_try=progress.next_try,
            generation_wanted=progress.wanted if admin else None,
            generation_seen=progress.applied if admin else None,
        )


class Allocation(AllocationSummary):
    progress: Progress
    history: list[Event]

    @classmethod
    def of(
        cls,
        record: AllocationRecord,
        fabric: FabricRecord,
        place: Place | None = None,
        admin: bool = False,
        progress: use_cases.Progress | None = None,
    ) -> Self:
        none = use_cases.Progress(None, record.failures, record.next_try, None, None)
        return cls(
            **cls.parts(record, fabric, place, admin),
            progress=Progress.of(progress or none, admin),
            history=[Event(at=e.at, state=e.state, reason=e.reason) for e in record.history],
        )


class AllocationList(Schema):
    allocations: list[AllocationSummary]
    next: Annotated[str | None, Field(description="The next page.")]


# -- what is answered: the rest --------------------------------------------------


class FieldError(Schema):
    field: str
    detail: str
    value: Any = None


class Problem(Schema):
    """RFC 9457, with a stable ``code``; a refusal has ``reason`` and ``largest_fit`` too."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: Annotated[list[FieldError] | None, Field(description="Each bad field.")] = None
    reason: Annotated[Refusal | None, Field(description="The limit that was hit; the code.")] = None
    largest_fit: Annotated[
        int | None, Field(description="The largest size that would fit now.")
    ] = None
    fits_when_empty: FitsWhenEmpty = None
    room: MakesRoom = None
    degraded: Annotated[
        Degraded | None, Field(description="What a repair would have to replace and cannot.")
    ] = None


class Version(Schema):
    id: str
    status: Literal["CURRENT"]
    links: list[dict[str, str]]


class Versions(Schema):
    name: str
    release: str
    versions: list[Version]


class Health(Schema):
    status: Literal["ready"]


class Document(RootModel[dict[str, Any]]):
    """An OpenAPI document."""


class Text(RootModel[str]):
    """Prometheus' text format."""


def media(schema: type[BaseModel]) -> str:
    """The content type of an answer."""
    return {Problem: "application/problem+json", Text: "text/plain; version=0.0.4"}.get(
        schema, "application/json"
    )
