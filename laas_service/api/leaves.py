# SPDX-License-Identifier: Apache-2.0

"""Switches: drained, failed, under maintenance; the allocations that still hold something."""

from collections import Counter
from collections.abc import Callable
from typing import Literal, Self

from laas_service.api.resource import Answer, Call
from laas_service.api.schemas.base import Body, Guid, Reason, Schema, guid
from laas_service.api.schemas.fabrics import (
    By,
    Evidence,
    ReasonGiven,
    Since,
    SourceOfState,
    SwitchCondition,
    reason_of,
    said,
)
from laas_service.api.schemas.placements import AllocatedHost
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState, SwitchState
from laas_service.app.views.leaf import LeafEntry
from laas_service.domain.topology import link_name


class LeafChange(Body):
    state: Literal["drained", "maintenance", "failed", "up"]
    """`drained`: for leaves. `up` takes `failed` or `maintenance` back, which ends once the
    switch's tables are confirmed; if neither was said, it undrains what only drains of this leaf
    keep down."""
    reason: Reason | None = None


class LeafHosts(Schema):
    total: int
    up: int
    drained: int
    failed: int


class LeafTenant(Schema):
    id: str
    name: str
    """Empty if the caller may not see the allocation."""
    project_id: str
    """Empty with `name`."""
    state: State
    container: bool
    hosts: list[AllocatedHost]
    """Those on this leaf."""
    links: list[str]
    """Those of this L2 switch or spine."""


class Leaf(Schema):
    guid: Guid
    name: str
    level: int
    """1 leaf, 2 L2 switch, 3 spine."""
    state: SwitchCondition
    """`drained`: a leaf of which no host is up; others as in the list."""
    source: SourceOfState
    by: By
    since: Since
    evidence: Evidence
    reason: ReasonGiven
    hosts: LeafHosts
    empty: bool
    """No allocation has a host or link there any more."""
    allocations: list[LeafTenant]
    """Allocations that still have to move."""

    @classmethod
    def of(cls, entry: LeafEntry, named: Callable[[str], bool]) -> Self:
        """``named`` says of which projects allocations are shown with name and project."""
        states = Counter(host.state for host in entry.hosts)
        names = {host.index: host.name for host in entry.hosts}
        drained = entry.hosts and not states[HostState.UP]
        state = SwitchCondition.DRAINED if drained else SwitchCondition.UP
        return cls(
            guid=guid(entry.switch.guid),
            name=entry.switch.name,
            level=entry.switch.level,
            state=state if entry.word is None else SwitchCondition(entry.word.state),
            **said(entry.word),
            hosts=LeafHosts(
                total=len(entry.hosts),
                up=states[HostState.UP],
                drained=states[HostState.DRAINED],
                failed=states[HostState.FAILED],
            ),
            empty=not entry.tenants,
            allocations=[
                LeafTenant(
                    id=tenant.record.id,
                    name=tenant.record.name if named(tenant.record.project_id) else "",
                    project_id=tenant.record.project_id if named(tenant.record.project_id) else "",
                    state=tenant.record.state,
                    container=tenant.record.container,
                    hosts=[AllocatedHost(index=host, name=names[host]) for host in tenant.hosts],
                    links=[link_name(link) for link in tenant.links],
                )
                for tenant in entry.tenants
            ],
        )


def show(call: Call, fabric_id: str, switch_id: str) -> Answer:
    """Show the states of a switch and its hosts, and the allocations that hold something there."""
    return Answer(200, Leaf.of(call.components.leaf(fabric_id, switch_id), call.may_name))


def change(call: Call, fabric_id: str, switch_id: str, body: LeafChange) -> Answer:
    """Drain a leaf; fail a switch or put it under maintenance; or take that back."""
    why = reason_of(body.state, body.reason)
    if body.state == "drained":
        drained = HostState.DRAINED
        entry = call.components.set_leaf_state(call.caller, fabric_id, switch_id, drained, why)
    else:
        state = SwitchState(body.state)
        entry = call.components.set_switch_state(call.caller, fabric_id, switch_id, state, why)
    return Answer(200, Leaf.of(entry, call.may_name))
