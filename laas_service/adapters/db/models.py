# SPDX-License-Identifier: Apache-2.0


"""The tables. Promise 1 stands here: two owners of a host or link cannot be written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
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

from laas_service.adapters.db.types import Moment, Packed, Serial, exact


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


class Fabric(Base):
    """``generation`` counts committed changes; ``routes_generation`` those of routes.

    ``layout`` is the generation in which ``topology`` and ``inventory`` were imported.
    """

    __tablename__ = "fabric"

    id: Mapped[str] = mapped_column(exact(64), primary_key=True)
    generation: Mapped[int]
    routes_generation: Mapped[int]
    topology: Mapped[Any] = mapped_column(Packed())
    inventory: Mapped[Any] = mapped_column(Packed())
    layout: Mapped[int] = mapped_column(server_default="1")
    shared_plane: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(Moment())


class Lease(Base):
    """Who converges a fabric (NULL: nobody), until when; ``token`` grows with each holder.

    ``applied`` (a generation) and ``problem`` are what it saw at ``seen_at`` in the switches,
    ``confirmed`` is the newest generation that anybody ever saw there. ``stuck`` counts
    holders whose steps did not come to an end.
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


class Drift(Base):
    """How often drift of a kind was found and repaired, what was found last, and when."""

    __tablename__ = "drift"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(exact(16), primary_key=True)
    found: Mapped[int]
    repaired: Mapped[int] = mapped_column(server_default="0")
    detail: Mapped[str] = mapped_column(Text())
    at: Mapped[datetime] = mapped_column(Moment())


class Worker(Base):
    """A worker that is there, until then if it does not say so again."""

    __tablename__ = "worker"

    id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(Moment())


class Agent(Base):
    """What an agent beside OpenSM reported at ``seen_at``, as ``messages.Seen``.

    ``active`` is true for one agent of a fabric, and NULL, which is unique with nothing,
    for the others.
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
    seen_at: Mapped[datetime] = mapped_column(Moment())


class Allocation(Base):
    """``sequence`` is the order of creation, and of the queue.

    ``placed`` is NULL while it is queued and once the claims are freed; ``pkey`` is 0
    until there are claims. ``leaving`` and ``phase`` are NULL unless its placement
    changes. ``faults`` is ``{"links": [name], "hosts": [number]}``, all that it has claimed
    and that has failed, NULL if nothing has. ``parent`` is the container it is inside.
    ``parked`` is the state from which it came into ``error``, else NULL.
    """

    __tablename__ = "allocation"
    __table_args__ = (Index("ix_allocation_due", "state", "due_at"),)

    sequence: Mapped[int] = mapped_column(Serial, primary_key=True)
    id: Mapped[str] = mapped_column(exact(64), unique=True)
    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), index=True)
    name: Mapped[str] = mapped_column(exact(255))
    project_id: Mapped[str] = mapped_column(exact(255), index=True)
    policy: Mapped[str] = mapped_column(exact(64))
    hosts: Mapped[int]
    state: Mapped[str] = mapped_column(exact(16))
    version: Mapped[int]
    pkey: Mapped[int]
    placed: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    generation: Mapped[int]
    handed_back: Mapped[bool]
    force: Mapped[bool]
    error: Mapped[str | None] = mapped_column(Text())
    failures: Mapped[int]
    constraints: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    duration: Mapped[float | None] = mapped_column(Double())
    ends_at: Mapped[datetime | None] = mapped_column(Moment())
    leaving: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    phase: Mapped[str | None] = mapped_column(exact(16))
    faults: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))
    parent: Mapped[str | None] = mapped_column(exact(64), index=True)
    container: Mapped[bool] = mapped_column(server_default=false())
    parked: Mapped[str | None] = mapped_column(exact(16))
    due_at: Mapped[datetime | None] = mapped_column(Moment())
    created_at: Mapped[datetime] = mapped_column(Moment())
    updated_at: Mapped[datetime] = mapped_column(Moment())


class Event(Base):
    """The story of an allocation, a line a row, and who asked for that."""

    __tablename__ = "event"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)
    at: Mapped[datetime] = mapped_column(Moment())
    state: Mapped[str] = mapped_column(exact(16))
    reason: Mapped[str] = mapped_column(Text())
    request_id: Mapped[str | None] = mapped_column(exact(255))
    user_id: Mapped[str | None] = mapped_column(exact(255))
    project_id: Mapped[str | None] = mapped_column(exact(255))


class Notification(Base):
    """What others are still to be told; whoever has taken it tells them until then."""

    __tablename__ = "notification"

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    document: Mapped[Any] = mapped_column(JSON())
    taken_until: Mapped[datetime | None] = mapped_column(Moment())


def _claim(table: str, what: str) -> tuple[SchemaItem, ...]:
    """A child's claim lies within one of its parent's; siblings (one scope) share none."""
    return (
        UniqueConstraint("allocation", what),
        CheckConstraint("scope = coalesce(parent, '')", name="scope"),
        ForeignKeyConstraint(["parent", what], [f"{table}.allocation", f"{table}.{what}"]),
        Index(f"ix_{table}_parent_{what}", "parent", what),
    )


class HostClaim(Base):
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


class LinkClaim(Base):
    """A cable (``Xgft.link_id``) and its one owner in a scope, as ``HostClaim``."""

    __tablename__ = "link_claim"
    __table_args__ = _claim("link_claim", "link")

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    scope: Mapped[str] = mapped_column(exact(64), primary_key=True, server_default="")
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)
    parent: Mapped[str | None] = mapped_column(exact(64))


class PkeyClaim(Base):
    """A partition key and its one owner."""

    __tablename__ = "pkey_claim"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    pkey: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"), index=True)


class HostState(Base):
    """A host that is not up. ``leaves`` are the GUIDs of the leaves whose drain drained it
    (``0x%016x``), NULL if it is down for its own sake."""

    __tablename__ = "host_state"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(exact(16))
    leaves: Mapped[Any | None] = mapped_column(JSON(none_as_null=True))


class HostFeature(Base):
    """What a host is like, of which something was said."""

    __tablename__ = "host_feature"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    host: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    traits: Mapped[Any] = mapped_column(JSON())
    cost: Mapped[int]


class LinkState(Base):
    """A cable that is not up."""

    __tablename__ = "link_state"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    link: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(exact(16))


class Delta(Base):
    """What changed in the ledger from ``generation`` - 1 to ``generation``."""

    __tablename__ = "delta"

    fabric: Mapped[str] = mapped_column(exact(64), ForeignKey("fabric.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    change: Mapped[Any] = mapped_column(JSON())


class Idempotency(Base):
    """A key that a project has used, what it asked with it, and what came of it."""

    __tablename__ = "idempotency"

    project_id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    key: Mapped[str] = mapped_column(exact(255), primary_key=True)
    request: Mapped[Any] = mapped_column(JSON())
    allocation: Mapped[str] = mapped_column(exact(64), ForeignKey("allocation.id"))


class Quota(Base):
    """What a project may have: -1 is any number, NULL what all may have."""

    __tablename__ = "quota"

    project_id: Mapped[str] = mapped_column(exact(255), primary_key=True)
    hosts: Mapped[int | None]
    allocations: Mapped[int | None]
