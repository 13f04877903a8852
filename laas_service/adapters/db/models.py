# SPDX-License-Identifier: Apache-2.0

"""The tables. Their primary keys forbid two owners of a host or link (promise 1).

``allocation_rows`` makes records of the rows of an allocation: a new column is read there.
"""

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import SchemaItem

from laas_service.adapters.db.types import Moment, Packed, Serial, Stored, exact
from laas_service.adapters.documents import EVIDENCE, INITIATOR
from laas_service.adapters.memories import (
    ACKNOWLEDGEMENT,
    COUNTER_MEMORY,
    COUNTERS,
    FAULT_MEMORY,
    FINDINGS,
    HOST_MEMORY,
    NEWS,
    READING,
    RUNNING,
)
from laas_service.app.records import Acknowledgement, Evidence, News
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.faults.counters import CounterMemory, Findings, SwitchCounters
from laas_service.domain.faults.memory import FaultMemory
from laas_service.domain.faults.reading import FabricReading
from laas_service.messages import Initiator, Running


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


class WorksWithRow(Base):
    """One row: the revision of the oldest release that works with these tables (``schema``)."""

    __tablename__ = "works_with"

    oldest: Mapped[str] = mapped_column(exact(32), primary_key=True)


class FabricRow(Base):
    """``generation`` counts committed changes; ``routes_generation`` those of routes.

    ``stamp`` and ``routes_stamp`` are theirs (``generations``), after the number: a release that
    knows no stamps leaves those of earlier generations. ``layout`` is the generation in which
    ``topology`` and ``inventory`` were imported.
    """

    __tablename__ = "fabric"

    id: Mapped[str] = mapped_column(exact(64), primary_key=True)
    generation: Mapped[int]
    routes_generation: Mapped[int]
    stamp: Mapped[str | None] = mapped_column(exact(32))
    routes_stamp: Mapped[str | None] = mapped_column(exact(32))
    topology: Mapped[Any] = mapped_column(Packed())
    inventory: Mapped[Any] = mapped_column(Packed())
    layout: Mapped[int] = mapped_column(server_default="1")
    shared_plane: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    went_forward: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    """When its numbers were lifted above those of another past (``forward``), ISO 8601."""
    created_at: Mapped[datetime] = mapped_column(Moment())


class LeaseRow(Base):
    """The worker that converges a fabric (NULL: none), and until when; a fencing token.

    ``token`` grows with each holder. ``applied`` (a generation) and ``problem`` are the state of
    the switches at ``seen_at``, ``applied_by`` is what confirms that generation, NULL without
    one; ``confirmed`` is the newest generation that any holder ever saw there. ``stuck`` counts
    holders whose steps did not end. ``uncompared`` is ``{"without": [GUID], "unconfirmed":
    [GUID]}`` (``messages.Applied``), NULL if there are none. ``lost`` is the kind of drift because
    of which a generation was no longer confirmed last. ``compared_at`` is the end of the last full
    comparison, NULL before the first. ``waits_for`` is what the holder waits for, NULL unless it
    has waited for long. ``running`` is the document of ``messages.Running``, NULL if not known.
    ``activated`` counts the allocations that became active; ``seconds`` has the sums of their time
    by ``messages.Span``, NULL before the first.
    """

    __tablename__ = "lease"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    token: Mapped[int]
    owner: Mapped[str | None] = mapped_column(exact(255))
    expires_at: Mapped[datetime] = mapped_column(Moment())
    applied: Mapped[int | None]
    problem: Mapped[str | None] = mapped_column(Text())
    seen_at: Mapped[datetime | None] = mapped_column(Moment())
    confirmed: Mapped[int | None]
    stuck: Mapped[int] = mapped_column(server_default="0")
    uncompared: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    running: Mapped[Running | None] = mapped_column(Stored(RUNNING))
    applied_by: Mapped[str | None] = mapped_column(exact(16))
    lost: Mapped[str | None] = mapped_column(exact(16))
    compared_at: Mapped[datetime | None] = mapped_column(Moment())
    waits_for: Mapped[str | None] = mapped_column(Text())
    activated: Mapped[int] = mapped_column(server_default="0")
    seconds: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class DriftRow(Base):
    """How often drift of a kind was found and repaired, what was found last, and when."""

    __tablename__ = "drift"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(exact(16), primary_key=True)
    found: Mapped[int]
    repaired: Mapped[int] = mapped_column(server_default="0")
    detail: Mapped[str] = mapped_column(Text())
    at: Mapped[datetime] = mapped_column(Moment())


class WorkerRow(Base):
    """A live worker; it counts as dead from ``expires_at`` unless it enrols again."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(Moment())


class AgentRow(Base):
    """The last report of an agent beside OpenSM, at ``seen_at`` (``messages.AgentReport``).

    ``reading`` is a ``FabricReading``; ``uncompared`` and ``running`` are
    as in ``LeaseRow``, ``spent`` as ``LeaseRow.seconds``.
    ``stamp`` and ``published_stamp`` are those of ``generation`` and ``published``.
    ``active`` is true for one agent of a fabric and NULL for the others; NULLs never violate
    the unique constraint.
    """

    __tablename__ = "agent"
    __table_args__ = (UniqueConstraint("fabric", "active"),)

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    name: Mapped[str] = mapped_column(exact(255), primary_key=True)
    active: Mapped[bool | None]
    condition: Mapped[str] = mapped_column(exact(32))
    detail: Mapped[str | None] = mapped_column(Text())
    generation: Mapped[int | None]
    published: Mapped[int | None]
    stamp: Mapped[str | None] = mapped_column(exact(16))
    published_stamp: Mapped[str | None] = mapped_column(exact(16))
    reading: Mapped[FabricReading | None] = mapped_column(Stored(READING))
    uncompared: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    running: Mapped[Running | None] = mapped_column(Stored(RUNNING))
    spent: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    seen_at: Mapped[datetime] = mapped_column(Moment())


class AllocationRow(Base):
    """The columns of every allocation; a ``Part`` has those of some.

    ``sequence`` is the order of creation, and of the queue. ``kind`` is one of
    ``allocation_rows.KINDS``. ``parent`` is the allocation it is inside. ``parked`` is the state
    before ``error``, NULL in other states.
    """

    __tablename__ = "allocation"
    __table_args__ = (
        Index("ix_allocation_due", "state", "due_at"),
        Index("ix_allocation_updated", "state", "updated_at"),
        Index("ix_allocation_project_id_name", "project_id", "name"),
    )

    sequence: Mapped[int] = mapped_column(Serial, primary_key=True)
    id: Mapped[str] = mapped_column(exact(64), unique=True)
    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    name: Mapped[str] = mapped_column(exact(255))
    project_id: Mapped[str] = mapped_column(exact(255), index=True)
    policy: Mapped[str] = mapped_column(exact(64))
    hosts: Mapped[int]
    kind: Mapped[str] = mapped_column(exact(16), server_default="owned")
    parent: Mapped[str | None] = mapped_column(exact(64), index=True)
    state: Mapped[str] = mapped_column(exact(16))
    version: Mapped[int]
    generation: Mapped[int]
    handed_back: Mapped[bool]
    force: Mapped[bool]
    error: Mapped[str | None] = mapped_column(Text())
    failures: Mapped[int]
    parked: Mapped[str | None] = mapped_column(exact(16))
    due_at: Mapped[datetime | None] = mapped_column(Moment())
    created_at: Mapped[datetime] = mapped_column(Moment())
    updated_at: Mapped[datetime] = mapped_column(Moment())


class Part(Base):
    """Columns that only some allocations have: a row for each of these.

    A row is made if one of ``needed`` has a value, and deleted by a change that takes all of them.
    """

    __abstract__ = True

    needed: ClassVar[frozenset[str]]
    allocation: Mapped[str] = mapped_column(
        exact(64), ForeignKey("allocation.id"), primary_key=True
    )


class SharedHostsPart(Part):
    """Kind ``shared_hosts``: how its hosts are shared."""

    __tablename__ = "allocation_shared_hosts"
    needed = frozenset({"sharing"})

    sharing: Mapped[Any] = mapped_column(JSON())


class SlotsPart(Part):
    """Kind ``slots``: what it asks for, how many virtual machines count for its quota, and what
    limits what its servers send, NULL if nothing does."""

    __tablename__ = "allocation_slots"
    needed = frozenset({"demand"})

    demand: Mapped[Any] = mapped_column(JSON())
    slots: Mapped[int]
    limited_by: Mapped[str | None] = mapped_column(exact(16))


class TermsPart(Part):
    """The terms of a request beyond its number of hosts.

    ``consent`` is NULL unless its owner consents to moves, ``priority`` unless it has one.
    """

    __tablename__ = "allocation_terms"
    needed = frozenset({"constraints", "duration", "consent", "priority"})

    constraints: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    duration: Mapped[float | None] = mapped_column(Double())
    consent: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    priority: Mapped[int | None] = mapped_column(BigInteger())


class PlacementPart(Part):
    """Its placement and keys, from the first claims on.

    ``placed`` is NULL once the claims are freed. ``pkey`` is 0 without a key; ``pkeys`` are the
    keys by rail, NULL if ``pkey`` is that of all. ``confirmed_by`` is what the last change of its
    routes was confirmed by, NULL before the first.
    """

    __tablename__ = "allocation_placement"
    needed = frozenset({"placed", "pkey", "confirmed_by"})

    placed: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    pkey: Mapped[int] = mapped_column(server_default="0")
    pkeys: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    ends_at: Mapped[datetime | None] = mapped_column(Moment())
    confirmed_by: Mapped[str | None] = mapped_column(exact(16))


class EvidencePart(Part):
    """When its routes and its keys were confirmed last, by whom, and at which generation.

    NULL before the first time, and once the routes are withdrawn.
    """

    __tablename__ = "allocation_evidence"
    needed = frozenset({"routes_confirmed", "keys_confirmed"})

    routes_confirmed: Mapped[Evidence | None] = mapped_column(Stored(EVIDENCE))
    keys_confirmed: Mapped[Evidence | None] = mapped_column(Stored(EVIDENCE))


class ChangePart(Part):
    """A change of placement under way: the old placement, and the phase.

    ``begun_at`` is NULL if it began before the column was there. ``mending`` has the links that
    replace failed ones meanwhile.
    """

    __tablename__ = "allocation_change"
    needed = frozenset({"leaving"})

    leaving: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    phase: Mapped[str | None] = mapped_column(exact(16))
    bridge: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    begun_at: Mapped[datetime | None] = mapped_column(Moment())
    mending: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class MovePart(Part):
    """A move that is announced, or, without ``announced``, that has begun.

    ``announced`` is the placement that it moves to at ``moves_at``. ``move_forced`` is true if the
    owner cannot call it off.
    """

    __tablename__ = "allocation_move"
    needed = frozenset({"announced", "moves_at"})

    announced: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    moves_at: Mapped[datetime | None] = mapped_column(Moment())
    move_forced: Mapped[bool | None]


class FaultsPart(Part):
    """The failed ones of what it has claimed: ``{"links": [name], "hosts": [number]}``."""

    __tablename__ = "allocation_faults"
    needed = frozenset({"faults"})

    faults: Mapped[Any] = mapped_column(JSON())


class HistoryPart(Part):
    """The number of its oldest events that were deleted; ``asked_by`` is the document of the
    ``Initiator`` known at the time."""

    __tablename__ = "allocation_history"
    needed = frozenset({"forgotten"})

    forgotten: Mapped[int]
    asked_by: Mapped[Initiator | None] = mapped_column(Stored(INITIATOR))


PARTS: tuple[type[Part], ...] = (
    *(SharedHostsPart, SlotsPart, TermsPart, PlacementPart),
    *(EvidencePart, ChangePart, MovePart, FaultsPart, HistoryPart),
)


class NameRow(Base):
    """A name that one live allocation has alone in its project; none for names that may be double.

    The row is deleted when the allocation is released. Processes of 1.0.0 leave it, so a row
    counts only while its allocation lives and has the name (``unique_names``).
    """

    __tablename__ = "allocation_name"

    project_id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    name: Mapped[str] = mapped_column(exact(255), primary_key=True)
    allocation: Mapped[str] = mapped_column(exact(64), index=True)


class QueueRoomRow(Base):
    """The last plan of a fabric that makes room for the head of its queue
    (``records.QueueRoom``)."""

    __tablename__ = "queue_room"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    version: Mapped[int]
    document: Mapped[Any] = mapped_column(JSON())


class EventRow(Base):
    """One event in the history of an allocation, and its initiator.

    ``seconds`` is where the time since the one before went, by ``messages.Span``; NULL if that was
    not measured.
    """

    __tablename__ = "event"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)
    at: Mapped[datetime] = mapped_column(Moment())
    state: Mapped[str] = mapped_column(exact(16))
    reason: Mapped[str] = mapped_column(Text())
    request_id: Mapped[str | None] = mapped_column(exact(255))
    user_id: Mapped[str | None] = mapped_column(exact(255))
    project_id: Mapped[str | None] = mapped_column(exact(255))
    seconds: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class NotificationRow(Base):
    """A notification still to be sent; a process has it reserved until ``taken_until``."""

    __tablename__ = "notification"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    document: Mapped[Any] = mapped_column(JSON())
    taken_until: Mapped[datetime | None] = mapped_column(Moment())


def _claim(table: str, column: str) -> tuple[SchemaItem, ...]:
    """A child's claim lies within one of its parent's; siblings (one scope) share none."""
    return (
        UniqueConstraint("allocation", column),
        CheckConstraint("scope = coalesce(parent, '')", name="scope"),
        ForeignKeyConstraint(["parent", column], [f"{table}.allocation", f"{table}.{column}"]),
        Index(f"ix_{table}_parent_{column}", "parent", column),
    )


class HostClaimRow(Base):
    """A host and its one owner in a scope: the fabric (""), or a container (its id).

    ``parent`` is the same, but NULL for the fabric, as foreign keys want it.
    """

    __tablename__ = "host_claim"
    __table_args__ = _claim("host_claim", "host")

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    scope: Mapped[str] = mapped_column(exact(64), primary_key=True, server_default="")
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)
    parent: Mapped[str | None] = mapped_column(exact(64))


class LinkClaimRow(Base):
    """A cable (``Xgft.link_id``) and its one owner in a scope, as ``HostClaimRow``."""

    __tablename__ = "link_claim"
    __table_args__ = _claim("link_claim", "link")

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    scope: Mapped[str] = mapped_column(exact(64), primary_key=True, server_default="")
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)
    parent: Mapped[str | None] = mapped_column(exact(64))


class PkeyClaimRow(Base):
    """A partition key and its one owner."""

    __tablename__ = "pkey_claim"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    pkey: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)


class SharedHostRow(Base):
    """A host that an allocation (``part``) shares: its slots, and how many have an owner."""

    __tablename__ = "shared_host"
    __table_args__ = (CheckConstraint("used >= 0 AND used <= slots", name="slots"),)

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    part: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), primary_key=True)
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    slots: Mapped[int]
    used: Mapped[int]


class SlotClaimRow(Base):
    """The slots that an allocation has on a shared host."""

    __tablename__ = "slot_claim"
    __table_args__ = (
        CheckConstraint("units >= 1", name="units"),
        ForeignKeyConstraint(["part", "host"], ["shared_host.part", "shared_host.host"]),
        Index("ix_slot_claim_part_host", "part", "host"),
    )

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    allocation: Mapped[str] = mapped_column(
        exact(64), ForeignKey("allocation.id"), primary_key=True
    )
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    part: Mapped[str] = mapped_column(exact(64))
    units: Mapped[int]


class SharedLinkRow(Base):
    """A directed link (``Promise.link``) of an allocation (``part``) that shares its hosts.

    Amounts are those of ``Promise``, the sums of all that it promises. ``chance`` is the square of
    the quantile of the part's risk in the same steps, less a trifle for the rounding of floats.
    """

    __tablename__ = "shared_link"
    __table_args__ = (
        CheckConstraint(
            "certain >= 0 AND mean >= 0 AND variance >= 0 AND certain + mean <= capacity AND "
            "1.0 * (capacity - certain - mean) * (capacity - certain - mean) >= chance * variance",
            name="bandwidth",
        ),
    )

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    part: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), primary_key=True)
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    capacity: Mapped[int] = mapped_column(BigInteger())
    chance: Mapped[float] = mapped_column(Double())
    certain: Mapped[int] = mapped_column(BigInteger())
    mean: Mapped[int] = mapped_column(BigInteger())
    variance: Mapped[int] = mapped_column(BigInteger())


class LinkLoadRow(Base):
    """The load of an allocation on a directed link: a certain part, and a random one."""

    __tablename__ = "link_load"
    __table_args__ = (
        CheckConstraint("certain >= 0 AND mean >= 0 AND variance >= 0", name="amounts"),
        ForeignKeyConstraint(["part", "link"], ["shared_link.part", "shared_link.link"]),
        Index("ix_link_load_part_link", "part", "link"),
    )

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    allocation: Mapped[str] = mapped_column(
        exact(64), ForeignKey("allocation.id"), primary_key=True
    )
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    part: Mapped[str] = mapped_column(exact(64))
    certain: Mapped[int] = mapped_column(BigInteger())
    mean: Mapped[int] = mapped_column(BigInteger())
    variance: Mapped[int] = mapped_column(BigInteger())


class HostStateRow(Base):
    """A host that is not up. ``state`` follows from what is said of it and of its leaves.

    ``operator`` is what operators said of the host, ``observed`` what observation says and ``nova``
    what the observation of compute hosts says, each with the evidence; NULL is nothing.
    ``operator_by`` is an ``Initiator``. ``leaves`` are the GUIDs (``0x%016x``) of
    the leaves that it was drained with, NULL if that was said of the host itself.
    """

    __tablename__ = "host_state"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(exact(16))
    leaves: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    operator: Mapped[str | None] = mapped_column(exact(16))
    operator_since: Mapped[datetime | None] = mapped_column(Moment())
    operator_by: Mapped[Initiator | None] = mapped_column(Stored(INITIATOR))
    reason: Mapped[str | None] = mapped_column(Text())
    observed: Mapped[str | None] = mapped_column(exact(16))
    observed_since: Mapped[datetime | None] = mapped_column(Moment())
    evidence: Mapped[str | None] = mapped_column(Text())
    nova: Mapped[str | None] = mapped_column(exact(16))
    nova_since: Mapped[datetime | None] = mapped_column(Moment())
    nova_evidence: Mapped[str | None] = mapped_column(Text())


class ComputeHostsRow(Base):
    """What is remembered of the compute hosts of a fabric (``domain.compute_hosts``)."""

    __tablename__ = "compute_hosts"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    memory: Mapped[HostMemory] = mapped_column(Stored(HOST_MEMORY))


class VirtualPortRow(Base):
    """A virtual port by its GUID, and the port of the adapter that has it (``0x%016x``)."""

    __tablename__ = "virtual_port"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    guid: Mapped[str] = mapped_column(exact(18), primary_key=True)
    port: Mapped[str] = mapped_column(exact(18))


class HostFeatureRow(Base):
    """Traits, cost and domains of a host that has any."""

    __tablename__ = "host_feature"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    traits: Mapped[Any] = mapped_column(JSON())
    cost: Mapped[int]
    domains: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    """Kind -> name."""


class LinkStateRow(Base):
    """A cable that is not up. ``state`` follows from what is said of it and of its switches.

    ``operator`` is what operators said of the cable, ``observed`` what observation says, with the
    evidence; NULL is nothing. ``operator_by`` is an ``Initiator``. ``moved``: an
    end is linked to another port than the recorded one, so no table may lead over the cable.
    """

    __tablename__ = "link_state"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(exact(16))
    operator: Mapped[str | None] = mapped_column(exact(16))
    operator_since: Mapped[datetime | None] = mapped_column(Moment())
    operator_by: Mapped[Initiator | None] = mapped_column(Stored(INITIATOR))
    reason: Mapped[str | None] = mapped_column(Text())
    observed: Mapped[str | None] = mapped_column(exact(16))
    observed_since: Mapped[datetime | None] = mapped_column(Moment())
    evidence: Mapped[str | None] = mapped_column(Text())
    moved: Mapped[bool] = mapped_column(server_default=false())


class SwitchStateRow(Base):
    """A switch, by its GUID (``0x%016x``), that operators failed or put under maintenance.

    ``said_by`` is an ``Initiator``. ``repaired_at`` is when operators took that
    back; the row stays until the tables of the switch are confirmed.
    """

    __tablename__ = "switch_state"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    guid: Mapped[str] = mapped_column(exact(18), primary_key=True)
    state: Mapped[str] = mapped_column(exact(16))
    since: Mapped[datetime] = mapped_column(Moment())
    said_by: Mapped[Initiator | None] = mapped_column(Stored(INITIATOR))
    reason: Mapped[str | None] = mapped_column(Text())
    repaired_at: Mapped[datetime | None] = mapped_column(Moment())


class ObservationRow(Base):
    """What observation of a fabric remembers (``domain.faults.memory``), and its last reading.

    ``mode`` is NULL unless an operator chose one, ``mode_by`` at ``mode_since``. ``news`` are
    [time, text], the newest last. ``acknowledged`` is the last alarm that an operator accepted:
    ``at``, ``by`` and ``text``.
    """

    __tablename__ = "observation"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    mode: Mapped[str | None] = mapped_column(exact(16))
    mode_since: Mapped[datetime | None] = mapped_column(Moment())
    mode_by: Mapped[Initiator | None] = mapped_column(Stored(INITIATOR))
    acknowledged: Mapped[Acknowledgement | None] = mapped_column(Stored(ACKNOWLEDGEMENT))
    memory: Mapped[FaultMemory] = mapped_column(Stored(FAULT_MEMORY))
    news: Mapped[tuple[News, ...]] = mapped_column(Stored(NEWS))
    read_at: Mapped[datetime | None] = mapped_column(Moment())
    observer: Mapped[str | None] = mapped_column(Text())


class PortCountersRow(Base):
    """The port counters of a switch, by its GUID (``0x%016x``).

    ``reading`` is the newest reading, of ``read_at``; it is ``pending`` until it is accounted.
    ``memory`` is what is remembered (``domain.faults.counters``), ``findings`` what it shows, and
    ``erroneous`` whether that includes errors.
    """

    __tablename__ = "port_counters"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    guid: Mapped[str] = mapped_column(exact(18), primary_key=True)
    read_at: Mapped[datetime] = mapped_column(Moment())
    reading: Mapped[SwitchCounters] = mapped_column(Stored(COUNTERS, packed=True))
    pending: Mapped[bool]
    memory: Mapped[CounterMemory | None] = mapped_column(Stored(COUNTER_MEMORY, packed=True))
    findings: Mapped[Findings | None] = mapped_column(Stored(FINDINGS))
    erroneous: Mapped[bool]


class UfmRequestRow(Base):
    """A request to UFM that changes members of a partition, from before it is sent until it ended.

    ``adds`` says whether the port ``guids`` (``0x%016x``) become members of ``pkey`` or leave.
    ``job`` is UFM's, if it told one.
    """

    __tablename__ = "ufm_request"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    pkey: Mapped[int]
    adds: Mapped[bool]
    guids: Mapped[Any] = mapped_column(JSON())
    generation: Mapped[int]
    job: Mapped[str | None] = mapped_column(exact(255))
    asked_at: Mapped[datetime] = mapped_column(Moment())


class UfmWithdrawnRow(Base):
    """A membership that ``generation`` took from a port (``0x%016x``) in UFM."""

    __tablename__ = "ufm_withdrawn"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    pkey: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    guid: Mapped[str] = mapped_column(exact(18), primary_key=True)
    generation: Mapped[int]


class UfmMarkRow(Base):
    """A switch port that the service has marked unhealthy in UFM, or is about to."""

    __tablename__ = "ufm_mark"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    guid: Mapped[str] = mapped_column(exact(18), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class DeltaRow(Base):
    """The change of the ledger from ``generation`` - 1 to ``generation``, and its stamp."""

    __tablename__ = "delta"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    change: Mapped[Any] = mapped_column(JSON())
    stamp: Mapped[str | None] = mapped_column(exact(16))


class IdempotencyRow(Base):
    """An idempotency key of a project, the request that came with it, and its allocation."""

    __tablename__ = "idempotency"

    project_id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    key: Mapped[str] = mapped_column(exact(255), primary_key=True)
    request: Mapped[Any] = mapped_column(JSON())
    """With the defaults filled in."""
    asked: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    """As the caller made it; NULL in rows of earlier releases."""
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"))


class QuotaRow(Base):
    """The quota of a project: -1 is no limit, NULL the default limit."""

    __tablename__ = "quota"

    project_id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    hosts: Mapped[int | None]
    allocations: Mapped[int | None]
    moves: Mapped[int | None]
    slots: Mapped[int | None]


class BegunMoveRow(Base):
    """An announced move to other hosts that began, by project; deleted once it is too old to
    count."""

    __tablename__ = "begun_move"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    project_id: Mapped[str] = mapped_column(exact(255), index=True)
    at: Mapped[datetime] = mapped_column(Moment())


class MovePlan(Base):
    """A plan of moves, the digest of its question, and the idempotency key that it came with.

    ``serial`` counts the plans of a fabric.
    """

    __tablename__ = "move_plan"
    __table_args__ = (UniqueConstraint("project_id", "key"),)

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    serial: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    question: Mapped[str] = mapped_column(exact(32))
    document: Mapped[Any] = mapped_column(JSON())
    project_id: Mapped[str] = mapped_column(exact(255))
    key: Mapped[str | None] = mapped_column(exact(255))
    at: Mapped[datetime] = mapped_column(Moment())
