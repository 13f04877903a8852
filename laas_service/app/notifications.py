# SPDX-License-Identifier: Apache-2.0

"""Notifications: the values that are sent when something changes; pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Drift, HostState, LinkState
from laas_service.messages import Initiator, NotedAllocation, Notification

ALLOCATION_EVENTS: Mapping[tuple[State | None, State], str] = {
    (None, State.QUEUED): "create.start",
    (None, State.ALLOCATING): "create.start",
    (State.ALLOCATING, State.ACTIVE): "create.end",
    (State.ALLOCATING, State.ERROR): "create.error",
    (State.ACTIVE, State.ERROR): "update.error",
    (State.ALLOCATING, State.RELEASING): "release.start",
    (State.ACTIVE, State.RELEASING): "release.start",
    (State.ERROR, State.RELEASING): "release.start",
    (State.QUEUED, State.RELEASED): "release.end",
    (State.RELEASING, State.RELEASED): "release.end",
    (State.RELEASING, State.ERROR): "release.error",
}
"""The event of a change of state; every change that is not listed is an ``update``."""


def allocation_event(old: State | None, new: State) -> str:
    """The event type of an allocation's change of state."""
    return f"isolated_network.allocation.{ALLOCATION_EVENTS.get((old, new), 'update')}"


def allocation_changed(id: str, record: AllocationRecord) -> Notification:
    """The notification of the last entry in an allocation's history."""
    last = record.history[-1]
    old = record.history[-2].state if len(record.history) > 1 else None
    return Notification(
        id=id,
        event_type=allocation_event(old, last.state),
        at=last.at.isoformat(),
        fabric=record.fabric,
        initiator=record.initiator,
        allocation=NotedAllocation(
            record.id, record.name, record.project_id, record.policy, record.hosts
        ),
        host=None,
        link=None,
        old_state=old and old.value,
        new_state=last.state.value,
        reason=last.reason,
        error=record.error,
    )


def part_changed(
    id: str,
    fabric: str,
    *,
    host: str | None = None,
    link: str | None = None,
    old: HostState | LinkState,
    new: HostState | LinkState,
    at: datetime,
    by: Initiator | None,
) -> Notification:
    """The notification that a host or a link was drained, has failed, or is up again."""
    return Notification(
        id=id,
        event_type=f"isolated_network.{'link' if host is None else 'host'}.update",
        at=at.isoformat(),
        fabric=fabric,
        initiator=by,
        allocation=None,
        host=host,
        link=link,
        old_state=old.value,
        new_state=new.value,
        reason=f"set to {new.value}",
        error=None,
    )


def fabric_changed(
    id: str, fabric: str, what: str, detail: str, *, drift: Drift | None, at: datetime
) -> Notification:
    """The notification of a fabric: ``what`` happened, ``detail`` in a sentence.

    Drift was found or repaired (``drift.found``, ``drift.repaired``), the switches run a
    generation for the first time (``routes.applied``), or the fabric was re-imported
    (``reimported``).
    """
    return Notification(
        id=id,
        event_type=f"isolated_network.fabric.{what}",
        at=at.isoformat(),
        fabric=fabric,
        initiator=None,
        allocation=None,
        host=None,
        link=None,
        old_state=None,
        new_state=what.rsplit(".", 1)[-1],
        reason=detail,
        error=detail if what == "drift.found" else None,
        drift=drift and drift.value,
    )


def priority(notification: Notification) -> str:
    """``error``, ``warn`` or ``info``, as oslo.messaging calls them."""
    if notification.event_type.endswith(".error"):
        return "error"
    return "warn" if notification.error else "info"
