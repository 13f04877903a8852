# SPDX-License-Identifier: Apache-2.0

"""Schemas of answers about allocations."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field, RootModel

from laas_service.api.schemas.base import Schema, Shown
from laas_service.api.schemas.fabrics import CrossedBy, CrossedMore
from laas_service.api.schemas.placements import (
    AllocatedHost,
    Bridge,
    HoldingAnswer,
    SharingShown,
    SlotsShown,
    hosts_gained,
)
from laas_service.api.schemas.plans import HeadRoom
from laas_service.api.schemas.requests import Class, Constraints
from laas_service.app import requests
from laas_service.app.lifecycle import Phase, State
from laas_service.app.records import NEWEST, AllocationRecord, Event, Evidence, FabricRecord
from laas_service.domain.allocation import Refusal
from laas_service.domain.faults import degradation
from laas_service.domain.moves.consent import Movable
from laas_service.domain.tenancy import Container, Kind, Owned, SharedHosts, Slots
from laas_service.domain.topology import link_name
from laas_service.messages import ConfirmedBy, Span


class EventAnswer(Shown):
    number: Annotated[int, Field(ge=1)]
    """1 is the first that happened to it."""
    at: AwareDatetime
    state: State
    reason: str
    seconds: dict[Span, float]
    """Where the time since the entry before (for the first one: since the request) went; empty if
    that was not measured."""

    @classmethod
    def all_of(cls, events: Iterable[Event], first: int) -> list[Self]:
        """Events of a history, of which the first has this number."""
        return [cls.showing(event, number=number) for number, event in enumerate(events, first)]


class HistoryAnswer(Schema):
    history: list[EventAnswer]
    next: str | None
    """The next page."""


class Certificate(Shown):
    """A JWS (RFC 7515) in flattened JSON, signed by Ed25519; ``payload`` is canonical JSON."""

    payload: str
    protected: str
    signature: str


_OF_SLOTS = frozenset(SlotsShown.model_fields)
_OF_HOSTS = frozenset(HoldingAnswer.model_fields) - {"hosts"} | {"constraints", "bridge"}
_KEYS = frozenset({"pkey", "pkeys"})

FOREIGN: Mapping[type[Kind], frozenset[str]] = {
    Owned: _OF_SLOTS | {"container", "sharing"},
    Container: _OF_SLOTS | _KEYS | {"sharing"},
    SharedHosts: _OF_SLOTS | {"container"},
    Slots: _OF_HOSTS | _KEYS | {"container", "sharing"},
}
"""Fields that a kind of tenancy does not have; answers lack them from 1.2 on."""


OF_SITUATIONS = frozenset(
    (
        *("parent", "position", "priority", "waits_for", "duration", "expected_end"),
        *("constraints", "degraded", "changing", "joining", "leaving", "bridge", "announced"),
        *("crossed_by", "error"),
    )
)
"""Fields of an allocation that have a value at times; from 1.2 on answers lack those without."""


def _sometimes(schema: dict[str, Any]) -> None:
    """No field is required that another kind does not have."""
    absent = frozenset[str]().union(*FOREIGN.values())
    schema["required"] = [name for name in schema["required"] if name not in absent]


class DryRun(SlotsShown, HoldingAnswer):
    """The answer to a dry run; nothing is reserved."""

    model_config = ConfigDict(json_schema_extra=_sometimes)

    fabric: str
    name: str
    project_id: str
    policy: str
    requested: int
    cost: int
    """Sum of the costs of the hosts."""
    container: bool
    parent: str | None
    joining: list[str]
    """Hosts that a resize adds, by name."""
    leaving: list[str]
    """Hosts that a resize gives back, by name."""
    bridge: Bridge
    crossed_by: CrossedBy = None
    crossed_more: CrossedMore = None
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
            joining=hosts_gained(proposal.fabric, before, placed),
            leaving=hosts_gained(proposal.fabric, placed, before),
            bridge=cls.bridge_links(proposal.fabric, change),
            crossed_by=proposal.disturbance.crossing if proposal.disturbance else None,
            crossed_more=proposal.disturbance.others if proposal.disturbance else None,
            dry_run=True,
            **cls.held(proposal.fabric, placed),
            **cls.slots_of(proposal.fabric, placed.slots.demand if placed.slots else None, placed),
        )


class Waiting(Schema):
    """What a queued request waits for now."""

    code: Refusal | None
    """The limit hit; null: about to start."""
    detail: str
    largest_fit: int | None
    """The largest size there is room for."""
    expected_start: AwareDatetime | None
    """The first one's reservation, if it is known when others end."""
    room: HeadRoom | None
    """How moves make room for it; null: nothing is planned."""

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


class ThinSwitch(Shown):
    """A switch with fewer uplinks up than the allocation was given there."""

    kind: Literal["leaf", "l2"]
    pod: int
    switch: int
    """The leaf or L2 switch, by number in its pod."""
    up: int
    given: int
    flows: int | None
    """Flows that may share one uplink; null: none is up."""

    @classmethod
    def of(cls, thin: degradation.MissingUplinks) -> Self:
        return cls.showing(
            thin,
            kind="leaf" if thin.level == 1 else "l2",
            switch=thin.lower,
            flows=-(-thin.flows // thin.up) if thin.up else None,
        )


class Apart(Schema):
    """Two leaves, [pod, leaf] each, that no path over the allocation's links joins."""

    rail: int
    leaves: tuple[tuple[int, int], tuple[int, int]]


class Overfull(Shown):
    """A link of shared hosts that promises more than it has."""

    name: str
    """The link and its direction."""
    promised: float
    """Gb/s, to all who share the hosts."""
    bandwidth: float
    """Gb/s that it has."""

    @classmethod
    def of(cls, link: degradation.OverfullLink) -> Self:
        return cls.showing(link, promised=round(link.promised, 6))


class DegradedAnswer(Schema):
    """The failed hosts and links of an allocation, and what follows from them."""

    links: list[str]
    """Failed links, by id."""
    hosts: list[AllocatedHost]
    """Failed hosts."""
    thin: list[ThinSwitch]
    apart: list[Apart]
    over: list[Overfull]
    """On shared hosts, links that promise more than they have, since traffic takes others."""
    detail: str
    """A summary in a sentence."""

    @classmethod
    def of(cls, fabric: FabricRecord, degraded: degradation.Degraded) -> Self:
        names = fabric.inventory.host_names
        return cls(
            links=[link_name(link) for link in degraded.links],
            hosts=[AllocatedHost(index=host, name=names[host]) for host in degraded.hosts],
            thin=[ThinSwitch.of(thin) for thin in degraded.thin],
            apart=[Apart(rail=a.rail, leaves=(a.first, a.second)) for a in degraded.apart],
            over=[Overfull.of(link) for link in degraded.over],
            detail=str(degraded),
        )


class Announced(Schema):
    """A move that has not begun."""

    begins: AwareDatetime
    """It begins then, or later."""
    joining: list[str]
    """Hosts that it would newly get, by name."""
    leaving: list[str]
    """Hosts that it would leave, by name."""
    forced: bool
    """`movable: never` does not call it off."""

    @classmethod
    def of(cls, fabric: FabricRecord, record: AllocationRecord) -> Self | None:
        placed, to, begins = record.placed, record.announced, record.moves_at
        if placed is None or to is None or begins is None:
            return None
        return cls(
            begins=begins,
            joining=hosts_gained(fabric, placed, to),
            leaving=hosts_gained(fabric, to, placed),
            forced=record.move_forced,
        )


def _at_times(schema: dict[str, Any]) -> None:
    """No field is required, either, that another allocation does not have."""
    _sometimes(schema)
    schema["required"] = [name for name in schema["required"] if name not in OF_SITUATIONS]


class EvidenceShown(Shown):
    by: ConfirmedBy
    at: AwareDatetime
    generation: int
    """Of the fabric."""

    @classmethod
    def of(cls, evidence: Evidence | None) -> Self | None:
        return None if evidence is None else cls.model_validate(evidence)


class ConfirmedShown(Schema):
    """The last evidence of its routes, and of its partition keys. Null: none, or unknown."""

    routes: EvidenceShown | None
    keys: EvidenceShown | None

    @classmethod
    def of(cls, record: AllocationRecord) -> Self:
        return cls(
            routes=EvidenceShown.of(record.routes_confirmed),
            keys=EvidenceShown.of(record.keys_confirmed),
        )


class AllocationSummary(SlotsShown, HoldingAnswer):
    model_config = ConfigDict(json_schema_extra=_at_times)

    id: str
    name: str
    fabric: str
    project_id: str
    policy: str
    class_of_service: Annotated[Class, Field(alias="class")]
    """`owned`: its hosts and links are its own. `shared`: it has slots of hosts that its parent
    shares."""
    state: State
    version: int
    """Grows with every change; the ETag."""
    requested: int
    """How many hosts were asked for."""
    container: bool
    """It is for allocations inside."""
    sharing: SharingShown | None
    """How its hosts are shared by allocations inside."""
    parent: str | None
    """The container that it is inside."""
    pkey: Annotated[str | None, Field(pattern=r"^0x[0-9a-f]{4}$")]
    """The partition key, of the first rail if rails differ; null before admission."""
    pkeys: list[Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$")]]
    """The partition key of its ports on each rail; empty before admission."""
    rails_joined: bool | None
    """Whether its ports reach each other from rail to rail. If not, each rail works by itself: keep
    traffic on its rail. Null before admission."""
    position: Annotated[int | None, Field(ge=1)]
    """Its place in the fabric's queue; 1 is the first."""
    priority: int | None
    """In the queue a higher one goes first; null, where none was given: 0."""
    waits_for: Waiting | None
    """Why it is queued, as of now."""
    duration: float | None
    """Seconds it is expected to last."""
    expected_end: AwareDatetime | None
    """Its duration, counted from admission."""
    constraints: Constraints | None
    """As asked; avoided hosts are for administrators."""
    degraded: DegradedAnswer | None
    """Null: nothing it uses has failed."""
    crossed_by: CrossedBy = None
    changing: Phase | None
    """How far a change of placement is; what it leaves is held until then."""
    joining: list[str]
    """Those of its hosts that a change of placement adds, by name."""
    leaving: list[str]
    """Hosts that a change of placement takes away, by name; held until then."""
    bridge: Bridge
    movable: Movable
    """Whether it may move to make room for others."""
    notice: float
    """Seconds between announcement and move."""
    move_cost: float
    """Cost of each host that it gets by a move."""
    announced: Announced | None
    """The move that is announced; null: none."""
    confirmed_by: ConfirmedBy | None
    """Evidence that confirmed the last change of its routes. Null: unknown."""
    confirmed: ConfirmedShown
    error: str | None
    """Why the last step failed, or what has kept the worker for long."""
    created_at: AwareDatetime
    updated_at: AwareDatetime

    @classmethod
    def fields(cls, view: requests.AllocationView, admin: bool) -> dict[str, Any]:
        record, fabric, place = view.record, view.fabric, view.place
        return {
            **{
                name: getattr(record, name)
                for name in (
                    *("id", "name", "fabric", "project_id", "policy", "state", "version", "parent"),
                    *("container", "sharing", "duration", "created_at", "updated_at"),
                    *("confirmed_by", "priority"),
                )
            },
            "class": Class(record.kind.class_of_service),
            "requested": record.placed.requested if record.placed else record.hosts,
            "pkey": f"{record.pkey:#06x}" if record.pkey else None,
            "pkeys": [f"{key:#06x}" for key in record.keys_of(fabric.topology.rails)],
            "rails_joined": view.rails_joined,
            "position": place.position if place else None,
            "waits_for": Waiting.of(place) if place else None,
            "expected_end": record.ends_at,
            "constraints": Constraints.of(record.constraints, fabric, admin),
            "degraded": DegradedAnswer.of(fabric, view.degraded) if view.degraded else None,
            "crossed_by": view.crossed_by,
            "confirmed": ConfirmedShown.of(record),
            "changing": record.phase,
            "joining": hosts_gained(fabric, record.leaving, record.placed),
            "leaving": hosts_gained(fabric, record.placed, record.leaving),
            "bridge": cls.bridge_links(fabric, record.change),
            "movable": record.consent.movable,
            "notice": record.consent.notice,
            "move_cost": record.consent.move_cost,
            "announced": Announced.of(fabric, record),
            "error": record.error or view.delay,
            **cls.held(fabric, record.placed, view.degraded.links if view.degraded else ()),
            **cls.slots_of(fabric, record.slots, record.placed, record.limited_by),
        }

    @classmethod
    def of(cls, view: requests.AllocationView, admin: bool = False) -> Self:
        return cls(**cls.fields(view, admin))

    @property
    def absent(self) -> set[str]:
        """The fields of ``OF_SITUATIONS`` without a value; ``bridge`` has one if it is null."""
        found = {name for name in OF_SITUATIONS if getattr(self, name) in (None, [])}
        return found - {"bridge"} if self.bridge is None else found


class ProgressAnswer(Shown):
    """How far convergence is with an allocation."""

    next_step: str | None
    """Null: nothing is to be done."""
    failures: int
    """How often it failed, or had to wait, in a row."""
    next_try: AwareDatetime | None
    """Null: as soon as possible."""
    generation_wanted: int | None
    """Of its routes; for administrators."""
    generation_seen: int | None
    """Confirmed, as the worker saw it; for administrators."""

    @classmethod
    def of(cls, progress: requests.Progress, admin: bool) -> Self:
        if not admin:
            progress = replace(progress, generation_wanted=None, generation_seen=None)
        return cls.model_validate(progress)


class AllocationAnswer(AllocationSummary):
    configs_synced: bool
    """Whether the switches, or UFM, have what is recorded for it, by their own answer. False: not
    yet, no longer, or nobody asked them."""
    progress: ProgressAnswer
    history: Annotated[
        list[EventAnswer],
        Field(description=f"The newest {NEWEST}; the others are at the address of its history."),
    ]

    @classmethod
    def of(cls, view: requests.AllocationView, admin: bool = False) -> Self:
        record = view.record
        unknown = requests.Progress(None, record.failures, record.next_try, None, None)
        return cls(
            **cls.fields(view, admin),
            configs_synced=(view.progress or unknown).synced,
            progress=ProgressAnswer.of(view.progress or unknown, admin),
            history=EventAnswer.all_of(record.history, record.first_event),
        )


class Changed(RootModel[AllocationAnswer | DryRun]):
    """The allocation, or the answer to a dry run of its new size."""


class AllocationList(Schema):
    allocations: list[AllocationSummary]
    next: str | None
    """The next page."""
