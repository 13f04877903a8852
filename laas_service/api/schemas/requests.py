# SPDX-License-Identifier: Apache-2.0

"""Schemas of requests: queries, headers and bodies."""

import enum
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from laas_service.api.schemas.base import (
    AT_ONCE,
    LONGEST_HEADER,
    MOST_HOSTS,
    MOST_SWITCHES,
    Body,
    Guid,
    HostName,
    Hosts,
    Index,
    Name,
    Named,
    Project,
    Reason,
    Reference,
    Schema,
)
from laas_service.app.allocations import LONGEST
from laas_service.app.lifecycle import State
from laas_service.app.moves import MOST_MOVES
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.app.requests import MOST_RISKS
from laas_service.domain.allocation import LEAST_RISK, MOST_RISK, MOST_SLOTS
from laas_service.domain.allocation import Sharing as Shared
from laas_service.domain.constraints import Constraints as Wanted
from laas_service.domain.constraints import ContentionFree, Spread, Undisturbed, Within
from laas_service.domain.features import DEAREST, DOMAIN, KIND, TRAIT
from laas_service.domain.moves.consent import DEAREST_MOVE, LONGEST_NOTICE, Movable
from laas_service.domain.tenancy.slots import GRAIN, steps_down, steps_up


class Class(enum.Enum):
    """Classes of service."""

    OWNED = "owned"
    SHARED = "shared"


def _named(policy: str) -> str:
    """Raises: ValueError, if the name is empty; only a missing name stands for the default."""
    if not policy:
        raise ValueError("name a policy, or leave it out for the default")
    return policy


Policy = Annotated[Reference, AfterValidator(_named)]


class Paging(Schema):
    limit: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description=f"At most this many items; {AT_ONCE} is the most given.",
        ),
    ] = AT_ONCE
    marker: Named | None = None
    """The last item of the page before; see `next`."""


class QuotaQuery(Schema):
    project_id: Project | None = None
    """Another project than the own one: administrators may name any."""


class HostQuery(Paging):
    state: HostState | None = None
    owner: Named | None = None
    """An allocation's id."""
    free: bool | None = None
    """Up and without an owner, or the opposite."""
    trait: Named | None = None
    """A trait that the host has."""


class LinkQuery(Paging):
    state: LinkState | None = None
    owner: Named | None = None
    """An allocation's id."""
    free: bool | None = None
    """Up and without an owner, or the opposite."""
    kind: Literal["leaf", "spine"] | None = None
    pod: Index | None = None


class SwitchQuery(Paging):
    level: Annotated[int | None, Field(ge=1, le=3)] = None
    """1 leaf, 2 L2 switch, 3 spine."""


class AllocationQuery(Paging):
    state: State | None = None
    """Without it, all that are not released."""
    fabric: Named | None = None
    project_id: Named | None = None
    all_projects: bool | None = None
    """Those of every project (administrators); from version 1.1 on."""


class CertificateQuery(Schema):
    nonce: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """A text that nobody can guess; the certificate repeats it, so it is no older one."""


Trait = Annotated[str, Field(max_length=255, pattern=TRAIT, examples=["HW_GPU"])]
Cost = Annotated[int, Field(ge=0, le=DEAREST, description="What a host costs, in any unit.")]
MANY = 4096
"""The most hosts, pods or traits that a constraint names."""


NUMBER, LIST, OBJECT = "as number", "as list", "as object"
"""Which of two forms a field has; errors of the validator name it behind the field."""


def _kind(name: str) -> str:
    """Raises: ValueError, if it is no kind of domains."""
    if re.fullmatch(KIND, name) is None:
        raise ValueError(
            "name a kind of domains, of letters, digits and _.:-; leaf and pod are none"
        )
    return name


Kind = Annotated[
    str,
    Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"),
    AfterValidator(_kind),
]
"""A kind of domains."""
DomainName = Annotated[str, Field(min_length=1, max_length=255, pattern=DOMAIN)]


class SpreadOver(Body):
    """Domains of a kind, and of how many of them there are hosts."""

    kind: Kind
    least: Annotated[int, Field(ge=1, le=MOST_HOSTS)]

    def domain(self) -> Spread:
        return Spread(self.kind, self.least)


def _place(name: str) -> str:
    return name if name in ("leaf", "pod") else _kind(name)


class Wishes(Schema):
    """Features and places that hosts must have; a request is refused unless all are met."""

    traits: Annotated[list[Trait] | None, Field(max_length=MANY)] = None
    """Every host has all of these."""
    avoid_hosts: Annotated[list[HostName] | None, Field(max_length=MANY)] = None
    """No host of these names (administrators)."""
    avoid_pods: Annotated[list[Index] | None, Field(max_length=MANY)] = None
    """No host in these pods (administrators)."""
    within: Annotated[
        str | None,
        Field(min_length=1, max_length=64, examples=["pod", "rack"]),
        AfterValidator(lambda name: name and _place(name)),
    ] = None
    """All hosts in one `leaf`, in one `pod`, or in one domain of the kind of this name."""
    domains: Annotated[int | None, Field(ge=1, le=MOST_HOSTS)] = None
    """So many whole domains of `kind`; `hosts`, if given, is what they have together."""
    per_domain: Annotated[int | None, Field(ge=1, le=MOST_HOSTS)] = None
    """Exactly so many hosts in each domain of `kind` that has any."""
    kind: Kind | None = None
    """The kind of domains of `domains`, `per_domain` and `exclusive`."""
    exclusive: bool | None = None
    """Nobody else in the domains used: those of `kind`, else of `within`, else of `spread`."""
    max_host_cost: Cost | None = None
    """No host is dearer."""
    cheapest: bool | None = None
    """Hosts that cost least together, of all legal placements."""
    contention_free: Annotated[ContentionFree | None, Field(strict=False)] = None
    """A shape in which no shift of the hosts puts two flows on a link: `require` refuses others,
    `prefer` takes it where it costs no more."""
    undisturbed: Annotated[Undisturbed | None, Field(strict=False)] = None
    """No packet of others has to cross its links: `require` refuses other placements, and later
    whatever would make one cross; `prefer` takes the placement that is crossed least."""

    def _domain(self, spread: int | Spread | None) -> Wanted:
        """As a domain value, without hosts to avoid, which the service looks up by name.

        Raises:
            InvalidInput: two constraints contradict each other.
        """
        places: dict[str, Within] = {place.value: place for place in Within}
        return Wanted(
            traits=frozenset(self.traits or ()),
            avoid_pods=frozenset(self.avoid_pods or ()),
            within=self.within and places.get(self.within, self.within),
            spread=spread or 1,
            max_host_cost=self.max_host_cost,
            cheapest=bool(self.cheapest),
            contention_free=self.contention_free,
            undisturbed=self.undisturbed,
            domains=self.domains,
            per_domain=self.per_domain,
            kind=self.kind,
            exclusive=bool(self.exclusive),
        )


class Constraints(Wishes):
    """Features and places that hosts must have; a request is refused unless all are met."""

    model_config = Body.model_config

    spread: (
        Annotated[
            Annotated[int, Field(ge=1, le=MOST_SWITCHES), Tag(NUMBER)]
            | Annotated[SpreadOver, Tag(OBJECT)],
            Discriminator(lambda value: NUMBER if isinstance(value, int | str) else OBJECT),
        ]
        | None
    ) = None
    """Hosts in at least so many pods, or in domains of a kind."""

    def domain(self) -> Wanted:
        """As ``_domain``."""
        spread = self.spread
        return self._domain(spread.domain() if isinstance(spread, SpreadOver) else spread)

    @classmethod
    def of(cls, wanted: Wanted | None, fabric: FabricRecord, admin: bool) -> Self | None:
        """Recorded constraints; only administrators see which hosts and pods are avoided."""
        if wanted is None:
            return None
        names = fabric.inventory.host_names
        avoided = admin and sorted(wanted.avoid_hosts)
        return cls(
            traits=sorted(wanted.traits) or None,
            avoid_hosts=[names[host] for host in avoided] if avoided else None,
            avoid_pods=(admin and sorted(wanted.avoid_pods)) or None,
            within=wanted.place.value if wanted.place else wanted.within_kind,
            spread=SpreadOver(kind=wanted.spread.kind, least=wanted.spread.least)
            if isinstance(wanted.spread, Spread)
            else (wanted.spread if wanted.spread > 1 else None),
            max_host_cost=wanted.max_host_cost,
            cheapest=wanted.cheapest or None,
            contention_free=wanted.contention_free,
            undisturbed=wanted.undisturbed,
            domains=wanted.domains,
            per_domain=wanted.per_domain,
            kind=wanted.kind,
            exclusive=wanted.exclusive or None,
        )


class ViewQuery(Schema):
    fabric: Reference | None = None
    """Needed if the service has no default fabric."""


class WaitQuery(Schema):
    wait: Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)] = 0
    """Seconds to wait for the outcome; the service has a limit of its own."""


class ReleaseQuery(WaitQuery):
    force: bool = False
    """Release although servers still run there (administrators)."""


class Idempotency(Schema):
    idempotency_key: Annotated[
        str | None, Field(alias="Idempotency-Key", max_length=255, pattern=r"^[\x21-\x7e]{1,255}$")
    ] = None
    """Repeating a request with its key gives the first answer again."""


class Precondition(Schema):
    if_match: Annotated[str | None, Field(alias="If-Match", max_length=LONGEST_HEADER)] = None
    """The ETag that the allocation must have."""


Priority = Annotated[
    int,
    Field(
        ge=0,
        le=4_294_967_295,
        description="Of a queued request: a higher one goes first, equal ones in order of "
        "creation; without it 0. For services (`laas:allocation:prioritize`).",
    ),
]
Notice = Annotated[
    float,
    Field(
        ge=0,
        le=LONGEST_NOTICE,
        allow_inf_nan=False,
        description="Seconds between the announcement of a move and its beginning.",
    ),
]
MoveCost = Annotated[
    float,
    Field(
        ge=0,
        le=DEAREST_MOVE,
        allow_inf_nan=False,
        description="What each host costs that it gets by a move, in any unit.",
    ),
]


LEAST_BANDWIDTH = 1 / GRAIN
"""Gb/s; promises are kept in steps of so much."""

WIDEST = 10_000
"""Gb/s of a standard deviation; the variances of ``MOST_SLOTS`` such demands add up within 64
bits, in steps of 1 / GRAIN."""

SlotCount = Annotated[int, Field(ge=1, le=MOST_SLOTS, description="How many virtual machines.")]
Bandwidth = Annotated[
    float,
    Field(
        ge=LEAST_BANDWIDTH,
        le=1_000_000,
        allow_inf_nan=False,
        description="Gb/s that a virtual machine may send, and as many receive. Finer amounts than "
        "1e-6 are rounded up.",
    ),
    AfterValidator(lambda amount: steps_up(amount) / GRAIN),
]
Deviation = Annotated[
    float,
    Field(
        ge=0,
        le=WIDEST,
        allow_inf_nan=False,
        description="Gb/s; 0: `bandwidth` is promised for certain. Finer amounts than 1e-6 are "
        "rounded up.",
    ),
    AfterValidator(lambda amount: steps_up(amount) / GRAIN),
]


def _form(value: object) -> str:
    return LIST if isinstance(value, list | tuple) else NUMBER


Bandwidths = Annotated[
    Annotated[Bandwidth, Tag(NUMBER)]
    | Annotated[list[Bandwidth], Field(min_length=1, max_length=MANY), Tag(LIST)],
    Discriminator(_form),
    Field(
        description="Of class shared, which needs it. A list has a number for each virtual machine."
    ),
]
Deviations = Annotated[
    Annotated[Deviation, Tag(NUMBER)]
    | Annotated[list[Deviation], Field(min_length=1, max_length=MANY), Tag(LIST)],
    Discriminator(_form),
    Field(
        description="Standard deviation of demands of which `bandwidth` is the mean. A list has a "
        "number for each virtual machine."
    ),
]
Risk = Annotated[
    float,
    Field(
        ge=LEAST_RISK,
        le=MOST_RISK,
        description="Probability that demands exceed a link, at the highest.",
    ),
]


class SlotsQuery(Schema):
    """A question about slots of shared hosts."""

    slots: SlotCount | None = None
    """Ask for so many virtual machines on shared hosts."""
    bandwidth: Bandwidths | None = None
    deviation: Deviations | None = None
    risks: Annotated[list[Risk] | None, Field(max_length=MOST_RISKS)] = None
    """Tell, too, how many further tenants with these slots would fit if links had these risks, and
    at the risk that they have."""

    @field_validator("bandwidth", "deviation", mode="before")
    @classmethod
    def _amounts(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) and "," in value else value

    @field_validator("risks", mode="before")
    @classmethod
    def _risks(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class FitQuery(Wishes, SlotsQuery):
    hosts: Hosts | None = None
    """How many hosts; not with slots."""
    policy: Policy | None = None
    parent: Named | None = None
    """Inside this container; with slots, on the hosts that it shares."""
    spread: Annotated[int | None, Field(ge=1, le=MOST_SWITCHES)] = None
    """Hosts in at least so many pods, or domains of `spread_kind`."""
    spread_kind: Kind | None = None

    def domain(self) -> Wanted:
        """As ``_domain``."""
        if self.spread_kind is None:
            return self._domain(self.spread)
        return self._domain(Spread(self.spread_kind, self.spread or 1))

    @field_validator("traits", "avoid_hosts", "avoid_pods", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class IfNoneMatch(Schema):
    if_none_match: Annotated[
        str | None, Field(alias="If-None-Match", max_length=LONGEST_HEADER)
    ] = None
    """The ETag of an answer that the caller has: 304 if it is still true."""


class MapQuery(SlotsQuery):
    hosts: Annotated[int | None, Field(ge=1, le=MOST_HOSTS)] = None
    """Show whether so many hosts fit, and where."""
    policy: Policy | None = None
    parent: Named | None = None
    """The allocation whose hosts are shared, for slots."""


class Sharing(Body):
    """How the hosts of an allocation are shared by allocations of class `shared` inside."""

    slots: Annotated[int, Field(ge=1, le=4096)]
    """Virtual machines on each host."""
    bandwidth: Annotated[float, Field(ge=0.001, le=100_000, allow_inf_nan=False)]
    """Gb/s of each link and direction; finer amounts than 1e-6 are rounded down."""
    risk: Risk = 0.05
    open: bool = False
    """Other projects may have slots (administrators)."""

    def domain(self) -> Shared:
        return Shared(self.slots, steps_down(self.bandwidth) / GRAIN, self.risk, self.open)


class NewAllocation(Body):
    name: Name
    allow_duplicate_name: bool | None = None
    """Whether other live allocations of the project may have the name; from version 1.3 on, where
    the default is false. Before, they may."""
    class_of_service: Annotated[Class | None, Field(alias="class", strict=False)] = None
    """`owned` (the default): hosts and links of its own. `shared`: slots of hosts that another
    allocation (`parent`) shares, with a guarantee of bandwidth."""
    hosts: Hosts | None = None
    """How many hosts; not of class shared. Constraint `domains` says it, too."""
    slots: SlotCount | None = None
    """Of class shared, in place of hosts."""
    bandwidth: Bandwidths | None = None
    deviation: Deviations | None = None
    risk: Risk | None = None
    """The highest that is accepted."""
    sharing: Sharing | None = None
    """Share its hosts with allocations inside."""
    policy: Policy | None = None
    """Default: the service's."""
    fabric: Reference | None = None
    """Needed where there are several."""
    project_id: Project | None = None
    """Whose it will be; administrators may name any."""
    constraints: Constraints | None = None
    wait: bool = False
    """Queue until there is room, instead of refusing."""
    duration: Annotated[float | None, Field(ge=0.001, le=LONGEST, allow_inf_nan=False)] = None
    """Seconds it is expected to last; nothing is taken away when they are over."""
    container: bool = False
    """Hold hosts and links for further allocations inside."""
    parent: Reference | None = None
    """The container to be inside: the id of an allocation."""
    movable: Annotated[Movable | None, Field(strict=False)] = None
    """Whether it may move to make room; default: never."""
    notice: Notice | None = None
    move_cost: MoveCost | None = None
    priority: Priority | None = None
    dry_run: bool = False
    """Answer what would be given, and reserve nothing."""


class AllocationChange(Body):
    name: Name | None = None
    """The new name."""
    allow_duplicate_name: bool | None = None
    """Whether other live allocations of the project may have the name; from version 1.3 on, where
    the default is false. Before, they may."""
    slots: SlotCount | None = None
    """The new number, of class shared."""
    bandwidth: Bandwidths | None = None
    deviation: Deviations | None = None
    hosts: Hosts | None = None
    """The new size. While it changes, the old size turns the change back."""
    give_back: Annotated[list[HostName] | None, Field(min_length=1, max_length=MANY)] = None
    """Hosts that a smaller allocation may lose, by name; without it any that run no server."""
    movable: Annotated[Movable | None, Field(strict=False)] = None
    """`never` calls off a move that is announced."""
    notice: Notice | None = None
    move_cost: MoveCost | None = None
    priority: Priority | None = None
    dry_run: bool = False
    """Answer what the new size would give, and change nothing."""


class NewHosts(Body):
    """Other hosts in place of some of an allocation."""

    hosts: Annotated[list[HostName] | None, Field(min_length=1, max_length=MANY)] = None
    """Hosts to leave, by name; without it those that have failed."""
    turn_back: bool = False
    """Turn back a change of hosts that is under way."""
    dry_run: bool = False
    """Answer which hosts it would have, and change nothing."""


MaxCost = Annotated[MoveCost | None, Field(description="Tenants with a higher `move_cost` stay.")]
Override = Annotated[
    bool, Field(description="Tenants that do not consent move, too; their notice is given.")
]
DryPlan = Annotated[bool, Field(description="Answer the plan, and tell nobody.")]


class NewEvacuation(Body):
    """Hosts to drain, or a leaf, and what their tenants have to accept."""

    hosts: Annotated[list[HostName] | None, Field(min_length=1, max_length=MANY)] = None
    """Hosts to drain, by name."""
    switch: Reference | None = None
    """A leaf whose hosts are drained: its name or GUID."""
    reason: Reason | None = None
    max_cost: MaxCost = None
    override: Override = False
    dry_run: bool = False
    """Answer the plan; drain and tell nothing."""


class NewRoom(Body):
    """A size that has to fit, and what may move for it."""

    hosts: Hosts | None = None
    """Needed without constraint `domains`."""
    policy: Policy | None = None
    """Default: the service's."""
    constraints: Constraints | None = None
    moves: Annotated[int, Field(ge=0, le=MOST_MOVES)] = 1
    """The most tenants that move."""
    max_cost: MaxCost = None
    override: Override = False
    dry_run: DryPlan = False


class NewSleep(Body):
    """What may move so that switches can sleep."""

    moves: Annotated[int, Field(ge=0, le=MOST_MOVES)] = 1
    """The most tenants that move."""
    max_cost: MaxCost = None
    override: Override = False
    dry_run: DryPlan = False


class HostChange(Body):
    """At least one field; the others stay unchanged."""

    state: Annotated[HostState | None, Field(strict=False)] = None
    """`up` repairs and undrains."""
    reason: Reason | None = None
    confirm_empty: bool = False
    """Say that a host in quarantine runs no server: it may get a new owner."""
    traits: Annotated[list[Trait] | None, Field(max_length=MANY)] = None
    """All traits it has from now on."""
    cost: Cost | None = None
    domains: Annotated[dict[Kind, DomainName] | None, Field(max_length=64)] = None
    """Its domain of each kind from now on."""
    virtual_guids: Annotated[
        list[Annotated[list[Guid], Field(max_length=MANY)]] | None, Field(max_length=64)
    ] = None
    """For each rail, the GUIDs of all virtual ports that its port has from now on."""


class LinkChange(Body):
    state: Literal["failed", "up"]
    """`up` takes `failed` back, and ends a quarantine."""
    reason: Reason | None = None


class NewPlane(Body):
    l2: Annotated[list[Index], Field(max_length=MANY)] = []
    """L2 indices; none gives them back."""
    spines: Annotated[list[Index], Field(max_length=MANY)] = []
    """Spines of each group; none: all above `l2`."""
    dry_run: bool = False
    """Answer what it would cost, change nothing."""
