# SPDX-License-Identifier: Apache-2.0

"""Recorded fabrics, allocations, leases and quotas, as values."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from laas_service.app.lifecycle import Situation, State
from laas_service.domain.allocation import Allocation, NoFit, Sharing
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.constraints import Constraints
from laas_service.domain.faults.memory import NOTHING_SEEN, FaultMemory
from laas_service.domain.faults.observation import NO_WORDS, Mode, OperatorStates
from laas_service.domain.inventory import Inventory
from laas_service.domain.moves.consent import NO_CONSENT, Consent
from laas_service.domain.tenancy import Kind, kind_of
from laas_service.domain.topology import Link, Topology
from laas_service.messages import (
    NOTHING_KNOWN,
    Applied,
    Condition,
    ConfirmedBy,
    FabricState,
    Initiator,
    Running,
    Span,
)

PROJECT = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,63}$"
"""The form of a project id."""


class HostState(enum.Enum):
    UP = "up"
    DRAINED = "drained"
    FAILED = "failed"


class LinkState(enum.Enum):
    UP = "up"
    DRAINED = "drained"
    FAILED = "failed"


class SwitchState(enum.Enum):
    """What operators say of a switch."""

    UP = "up"
    MAINTENANCE = "maintenance"
    FAILED = "failed"


class Source(enum.Enum):
    """Who says that a host, link or switch is not up."""

    OPERATOR = "operator"
    OBSERVED = "observed"
    NOVA = "nova"


@dataclass(frozen=True, slots=True)
class Word:
    """What one source says of a host, link or switch.

    ``since`` is None if it was recorded by a release that kept no times. ``by`` is the operator who
    said it; None if observation says it, or it was recorded by a release that kept no names.
    ``reason`` is the operator's.
    """

    source: Source
    state: str
    since: datetime | None
    evidence: str | None = None
    by: Initiator | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of the hosts, links and switches (by GUID) that are not up.

    The first word of each decides about its state.
    """

    hosts: Mapping[int, tuple[Word, ...]]
    links: Mapping[Link, tuple[Word, ...]]
    switches: Mapping[int, Word]

    @property
    def withheld_hosts(self) -> list[int]:
        """Hosts that are not up because observation or Nova says so, whatever operators say."""
        return [
            host
            for host, said in self.hosts.items()
            if any(word.source is not Source.OPERATOR for word in said)
        ]


@dataclass(frozen=True, slots=True)
class News:
    """What a reading showed that the recorded cabling does not have."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An alarm (``text``) that an operator accepted."""

    at: datetime
    text: str
    by: Initiator | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What observation of a fabric remembers, and the last reading.

    ``mode`` is None unless an operator chose one; the configured mode is valid then. ``read_at``
    is the time of the last reading, None if there was none, ``observer`` the port it was made
    through. ``operator`` are the failures and the maintenance that operators recorded.
    ``mode_by`` chose the mode, or gave it back, at ``mode_since``. ``acknowledged`` is the last
    alarm that an operator accepted. ``repaired`` are the GUIDs of switches that operators repaired
    and whose tables are not confirmed since. ``counted``: readings of port counters wait to be
    accounted, or show errors.
    """

    mode: Mode | None = None
    memory: FaultMemory = NOTHING_SEEN
    news: tuple[News, ...] = ()
    read_at: datetime | None = None
    observer: str | None = None
    operator: OperatorStates = NO_WORDS
    mode_since: datetime | None = None
    mode_by: Initiator | None = None
    acknowledged: Acknowledgement | None = None
    repaired: frozenset[int] = frozenset()
    counted: bool = False


@dataclass(frozen=True, slots=True)
class DriftFacts:
    """The words of a kind of drift, and how the switches show it.

    The templates may name the ``{subject}``, the ``{fabric}`` and the ``{detail}`` of a difference.
    """

    code: str
    """The stable code that callers see."""
    sentence: str
    """The sentence that is recorded for the fabric, and told to others."""
    logged: str
    """The sentence that is logged."""
    conditions: tuple[Condition, ...] = ()
    """What the subnet manager reports of confirmed routes that are lost in this way."""
    certain: bool = False
    """Whether one look is enough, because no sweep of OpenSM brings it about."""


_ALLOCATION = "allocation {subject}: {detail}"
_FABRIC = "fabric {fabric}: {detail}"


class Drift(enum.Enum):
    """Kinds of drift: what differs from the record because others changed it.

    Each is one ``DriftFacts``; a pure comparison in ``app/worker`` finds it.
    """

    _value_: str
    facts: DriftFacts

    def __new__(cls, facts: Any) -> "Drift":
        made = object.__new__(cls)
        made._value_ = facts.code
        made.facts = facts
        return made

    HOSTS = DriftFacts("hosts", sentence=_ALLOCATION, logged=_ALLOCATION)
    """The hosts of an active allocation in Nova."""
    LEFTOVER = DriftFacts("leftover", sentence="{detail}", logged="{detail}")
    """An aggregate whose allocation is released, or was never recorded."""
    POOL = DriftFacts("pool", sentence="{detail}", logged=_FABRIC)
    """Free hosts that are not in the pool, or that another aggregate opens to projects."""
    STRANGERS = DriftFacts("strangers", sentence="{detail}", logged=_FABRIC)
    """Servers of other projects on hosts of an allocation, and any servers on free hosts."""
    ROUTES = DriftFacts("routes", sentence="{detail}", logged=_FABRIC)
    """Routes that were confirmed and are no longer."""
    KEYS = DriftFacts("keys", "{detail}", _FABRIC, (Condition.WRONG_KEYS,), certain=True)
    """Partition keys of ports that were confirmed and are no longer."""
    ENGINE = DriftFacts("engine", "{detail}", _FABRIC, (Condition.OTHER_ENGINE,))
    """OpenSM routed with another engine than the file's."""
    RATES = DriftFacts("rates", sentence=_ALLOCATION, logged=_ALLOCATION)
    """Limits of what the servers of class ``shared`` send."""
    MANAGER = DriftFacts(
        "manager",
        "{detail}",
        _FABRIC,
        (Condition.NOT_MASTER, Condition.WRONG_SETTINGS),
        certain=True,
    )
    """A subnet manager that is not ours is the master, or ours has other settings."""


_LOSSES = {condition: drift for drift in Drift for condition in drift.facts.conditions}


def kind_of_loss(applied: Applied) -> Drift:
    """What differs in the switches if the newest routes are no longer confirmed."""
    condition = applied.condition
    return Drift.ROUTES if condition is None else _LOSSES.get(condition, Drift.ROUTES)


@dataclass(frozen=True, slots=True)
class NewPlacement:
    """The decision to change the placement of an allocation, and the reason that is told."""

    to: Allocation
    reason: str
    bridge: Allocation | None = None
    """As in ``lifecycle.Change``."""
    settles: bool = False
    """Compute carries out this change of slots, also if no virtual machine moves."""


class RoomState(enum.Enum):
    """How far a plan is that makes room for the head of a queue."""

    ADVISED = "advised"
    """Nothing of it is done; nobody but administrators and the head is told."""
    MOVING = "moving"
    """Its moves are announced and made, one after the other; its room is held for the head."""
    DONE = "done"
    """It is over: the head has its hosts, or needs them no more."""
    FAILED = "failed"
    """It is over, and the head has no room by it."""


@dataclass(frozen=True, slots=True)
class RoomMove:
    """A move of a plan: the allocation (id), its new placement, the end of its notice at the
    earliest."""

    allocation: str
    to: Allocation
    new_hosts: int
    cost: float
    begins: datetime


HELD_FOR = timedelta(hours=1)
"""How long before its last move may begin a plan's room is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRoom:
    """The last plan of a fabric that makes room for the head of its queue (``allocation``).

    On a schedule ``allocation`` is None: the room is for a tenant of ``hosts`` hosts to come.
    ``placement`` is where it fits after all moves, of which the first ``made`` are over. ``gain``
    is by how many seconds the head starts earlier, None if that is unknown. ``reason`` is a
    sentence for the head. ``avoided`` are tenants (allocation id) that no plan moves while their
    mark is the same, because a move of them failed. ``version`` grows with every change; 0 is not
    recorded yet.
    """

    fabric: str
    state: RoomState
    hosts: int
    allocation: str | None
    placement: Allocation
    moves: tuple[RoomMove, ...]
    at: datetime
    made: int = 0
    gain: float | None = None
    reason: str = ""
    avoided: Mapping[str, str] = field(default_factory=dict)
    version: int = 0

    @property
    def new_hosts(self) -> int:
        """The hosts that tenants newly get by it."""
        return sum(move.new_hosts for move in self.moves)

    @property
    def cost(self) -> float:
        """What all its moves cost."""
        return sum(move.cost for move in self.moves)

    def holds_at(self, now: datetime) -> bool:
        """Whether nobody but the head may take its room: from ``HELD_FOR`` before its last move.

        A long notice must not keep hosts from everybody for weeks.
        """
        if self.state is not RoomState.MOVING or self.allocation is None:
            return False
        return self.moves[-1].begins <= now + HELD_FOR


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, as authenticated; never taken from a request's body.

    With ``admin`` the caller sees all projects and may act for them.
    """

    project_id: str
    user_id: str
    admin: bool
    request_id: str

    @property
    def initiator(self) -> Initiator:
        return Initiator(self.request_id, self.user_id, self.project_id)


@dataclass(frozen=True, slots=True)
class FabricRecord:
    """A managed fabric. ``generation`` grows by one with every committed change.

    ``routes_generation`` is the generation of the last change of routes: the one that the
    subnet manager should have applied. Tenants get no link of ``shared_plane``. ``stamp`` and
    ``routes_stamp`` tell these generations from others of the same numbers, which a database made
    that has gone back since; empty if a release without stamps made them.
    """

    id: str
    topology: Topology
    inventory: Inventory
    generation: int
    created_at: datetime
    routes_generation: int = 1
    shared_plane: CommonPlane = NO_PLANE
    stamp: str = ""
    routes_stamp: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker, ``owner``, to converge a fabric.

    ``token`` is the fencing token: each holder has a larger one than the holder before.
    """

    fabric: str
    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The worker that converges a fabric (None: no worker), and what it saw in the switches.

    Its lease ends at ``until``. At ``seen_at`` it saw the generation ``applied``, confirmed by
    ``applied_by`` (None: unknown), or none and a ``problem``. ``confirmed`` is the newest
    generation ever seen. ``taken`` counts how often a worker took the fabric, ``stuck`` how often
    one gave it up because it was stuck. ``without`` and ``unconfirmed`` are described at
    ``messages.Applied``. ``compared_at`` is when a worker last ended a full comparison.
    ``waits_for`` is a sentence if the worker has not moved for long. ``running`` is what routed the
    fabric then. ``activated`` counts the allocations that workers made active, ``seconds`` is where
    the time from their requests until then went.
    """

    worker: str | None = None
    until: datetime | None = None
    applied: int | None = None
    problem: str | None = None
    seen_at: datetime | None = None
    confirmed: int | None = None
    taken: int = 0
    stuck: int = 0
    without: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    applied_by: ConfirmedBy | None = None
    compared_at: datetime | None = None
    waits_for: str | None = None
    running: Running = NOTHING_KNOWN
    activated: int = 0
    seconds: Mapping[Span, float] = field(default_factory=dict)

    @property
    def shown(self) -> Applied:
        """What the switches ran when the worker looked last."""
        return Applied(
            self.applied,
            self.problem,
            without=self.without,
            unconfirmed=self.unconfirmed,
            by=self.applied_by or ConfirmedBy.NOBODY,
            running=self.running,
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """The most hosts, allocations and slots that a project may have at one time; None: no limit.

    ``slots`` are those of shared hosts. ``moves`` is how often its allocations may get other hosts
    for others in ``MOVES_PERIOD``.
    """

    hosts: int | None = None
    allocations: int | None = None
    moves: int | None = None
    slots: int | None = None

    @property
    def admission(self) -> bool:
        """Whether they limit what is admitted."""
        return any(most is not None for most in (self.hosts, self.allocations, self.slots))


NO_LIMITS = Limits()

MOVES_PERIOD = timedelta(days=1)
"""The time for which a move counts for the quota of moves."""


@dataclass(frozen=True, slots=True)
class ProjectUsage:
    """The quota of a project, and how many hosts, allocations and slots it has now.

    ``moves`` are those to other hosts that are announced, or began within ``MOVES_PERIOD``.
    """

    project_id: str
    limits: Limits
    hosts: int
    allocations: int
    moves: int = 0
    slots: int = 0


@dataclass(frozen=True, slots=True)
class QueueWait:
    """The answer to a request that is to be queued, with the refusal."""

    refusal: NoFit


@dataclass(frozen=True, slots=True)
class Event:
    """One entry in an allocation's history: the state, and the reason.

    ``by`` is the user who asked for it; None where the service took its next step. ``seconds`` is
    where the time since the entry before went (for the first one: since the request), empty if
    that was not measured.
    """

    at: datetime
    state: State
    reason: str
    by: Initiator | None = None
    seconds: Mapping[Span, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SizeEvent:
    """An event of an allocation after which it may hold more hosts or fewer than before.

    ``hosts`` is the number that it asks for now, or asked for at its end.
    """

    allocation: str
    at: datetime
    state: State
    reason: str
    hosts: int


@dataclass(frozen=True, slots=True)
class Enclosing:
    """What requests for a place inside an allocation need to know of it.

    ``generation`` as in ``lifecycle.Situation``.
    """

    id: str
    fabric: str
    project_id: str
    state: State
    generation: int
    container: bool
    sharing: Sharing | None

    @property
    def kind(self) -> Kind:
        """What kind of tenancy it is; never ``Slots``."""
        return kind_of(self.container, self.sharing, None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Who confirmed something (``by``), when, and at which generation of the fabric."""

    by: ConfirmedBy
    at: datetime
    generation: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """New evidence of an allocation's routes and keys, and what it is summed up as (``by``).

    Without ``keys`` the routes alone are confirmed.
    """

    by: ConfirmedBy
    routes: Evidence
    keys: Evidence | None = None

    @classmethod
    def of(cls, applied: Applied, at: datetime) -> Self:
        """What a confirmed generation shows."""
        assert applied.generation is not None
        routes = Evidence(applied.routes_by, at, applied.generation)
        return cls(applied.by, routes, Evidence(applied.keys_by, at, applied.generation))


NEWEST = 100
"""Events of its history that a record has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord(Situation):
    """One allocation as recorded.

    ``version`` grows with every change that a reader can see (it is the ETag). ``error`` is why
    the last step failed or has to wait, None if neither; ``failures`` counts such steps in a row.
    ``pkey`` is the partition key, 0 while it is queued; ``pkeys`` are the keys by rail if they
    differ, and ``pkey`` is the first of them. ``duration`` as in
    ``requests.AllocationRequest``; ``ends_at`` is when it is expected to end, counted from the
    claim of its hosts. ``history`` are its newest events, ``NEWEST`` at most; ``first_event`` is
    the number of the first of them (1 is the first of all), ``kept_events`` how many are recorded,
    and ``asked_before`` the user who asked for something before those in ``history``.
    ``confirmed_by`` is what the last change of its routes was confirmed by, None if none was (or
    not by this release). Times are UTC and aware.
    """

    fabric: str
    name: str
    project_id: str
    policy: str
    hosts: int
    version: int
    pkey: int
    error: str | None
    created_at: datetime
    updated_at: datetime
    history: tuple[Event, ...] = ()
    first_event: int = 1
    kept_events: int = 0
    asked_before: Initiator | None = None
    failures: int = 0
    duration: float | None = None
    ends_at: datetime | None = None
    constraints: Constraints | None = None
    parent: str | None = None
    confirmed_by: ConfirmedBy | None = None
    routes_confirmed: Evidence | None = None
    """The last evidence of its routes; None before the first, and once they are withdrawn."""
    keys_confirmed: Evidence | None = None
    """The last evidence of its partition keys, likewise."""
    limited_by: str | None = None
    """What limits what its servers of class ``shared`` send; None: nothing does."""
    pkeys: tuple[int, ...] = ()
    consent: Consent = NO_CONSENT
    priority: int | None = None
    """As in ``requests.AllocationRequest``."""

    @property
    def named(self) -> str:
        """What it asks for."""
        return self.kind.named(self.hosts)

    @property
    def part(self) -> str:
        """The allocation whose hosts it shares; "" if it has hosts of its own."""
        return "" if self.kind.whole_hosts else self.parent or ""

    def keys_of(self, rails: int) -> tuple[int, ...]:
        """The partition key of each rail; () before admission."""
        return self.pkeys or ((self.pkey,) * rails if self.pkey else ())

    @property
    def initiator(self) -> Initiator | None:
        """The user who asked for what happens now, if the history was read."""
        asked = (event.by for event in reversed(self.history) if event.by is not None)
        return next(asked, self.asked_before)

    def with_event(self, event: Event) -> Self:
        """The record with another entry at the end of its history, which was read."""
        history = (*self.history, event)
        older, newest = history[:-NEWEST], history[-NEWEST:]
        asked = next((one.by for one in reversed(older) if one.by is not None), self.asked_before)
        return replace(
            self,
            history=newest,
            first_event=self.first_event + len(older),
            kept_events=self.kept_events + 1,
            asked_before=asked,
        )


Stamped = tuple[int, str]
"""A generation of routes, and its stamp."""


@dataclass(frozen=True, slots=True)
class ToPublish:
    """The newest routes of a fabric, and whether they may be published, of one state."""

    routes: Stamped
    mode: Mode | None
    """The mode that an operator chose; None: the configured one."""
    state: FabricState | None
    """None if these routes are published."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A fabric as recorded for a round of the worker, all of one state of the database."""

    fabric: FabricRecord
    observation: Observation
    due: tuple[AllocationRecord, ...]
    """Allocations with a step due, in order of creation; of their histories only the user who
    asked last is read (``asked_before``)."""
