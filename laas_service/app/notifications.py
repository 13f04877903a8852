# SPDX-License-Identifier: Apache-2.0

"""Notifications: the values that are sent when something changes; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from laas_service.app.lifecycle import State
from laas_service.app.records import (
    AllocationRecord,
    Drift,
    FabricRecord,
    HostState,
    LinkState,
    Source,
)
from laas_service.domain.topology import Link, link_name
from laas_service.messages import ConfirmedBy, Initiator, NotedAllocation, Notification

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

PROBLEMS = frozenset(
    {"drift.found", "went_back", "hosts.alarm", "observation.alarm", "observation.counters"}
)
"""Changes of a fabric that are errors."""


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
        confirmed_by=record.confirmed_by and record.confirmed_by.value,
    )


@dataclass(frozen=True, slots=True)
class PartChange:
    """A host, by number, or a link, with its state before and after a change."""

    part: int | Link
    old: HostState | LinkState
    new: HostState | LinkState


def part_changed(
    id: str,
    fabric: FabricRecord,
    change: PartChange,
    *,
    at: datetime,
    by: Initiator | None,
    source: Source = Source.OPERATOR,
    why: str = "",
) -> Notification:
    """The notification that a host or a link was drained, has failed, or is up again.

    ``source`` says so; ``why`` adds to the reason.
    """
    part, new = change.part, change.new.value
    return Notification(
        id=id,
        event_type=f"isolated_network.{'host' if isinstance(part, int) else 'link'}.update",
        at=at.isoformat(),
        fabric=fabric.id,
        initiator=by,
        allocation=None,
        host=(fabric.inventory.host_names[part] or str(part)) if isinstance(part, int) else None,
        link=None if isinstance(part, int) else link_name(part),
        old_state=change.old.value,
        new_state=new,
        reason=f"set to {new}: {why}" if why else f"set to {new}",
        error=None,
        source=source.value,
    )


def fabric_changed(
    id: str,
    fabric: str,
    what: str,
    detail: str,
    *,
    drift: Drift | None,
    confirmed_by: ConfirmedBy | None,
    at: datetime,
) -> Notification:
    """The notification of a fabric: ``what`` happened, ``detail`` in a sentence.

    Drift was found or repaired (``drift.found``, ``drift.repaired``), ``confirmed_by`` confirms a
    generation for the first time (``routes.applied``), the fabric was re-imported (``reimported``),
    the database went back (``went_back``), observation raised an alarm or ended it
    (``observation.alarm``, ``observation.cleared``), it saw what is not recorded
    (``observation.news``), or port counters show errors or foreign data (``observation.counters``).
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
        error=detail if what in PROBLEMS else None,
        drift=drift and drift.value,
        confirmed_by=confirmed_by and confirmed_by.value,
    )


def priority(notification: Notification) -> str:
    """``error``, ``warn`` or ``info``, as oslo.messaging calls them."""
    if notification.event_type.endswith(".error"):
        return "error"
    return "warn" if notification.error else "info"
