# SPDX-License-Identifier: Apache-2.0

"""Leaves: drained and undrained as a whole, and the allocations that still hold hosts."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field

from laas_service.api.resource import Answer, Call
from laas_service.api.schemas.allocations import AllocatedHost
from laas_service.api.schemas.base import Body, Guid, Schema, guid
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState
from laas_service.app.views.leaf import LeafEntry


class LeafChange(Body):
    state: Annotated[
        Literal["drained", "up"],
        Field(description="`up` undrains what only such drains keep down."),
    ]


class LeafHosts(Schema):
    total: int
    up: int
    drained: int
    failed: int


class LeafTenant(Schema):
    id: str
    name: str
    project_id: str
    state: State
    container: bool
    hosts: Annotated[list[AllocatedHost], Field(description="Those on this leaf.")]


class Leaf(Schema):
    guid: Guid
    name: str
    state: Annotated[Literal["drained", "up"], Field(description="`drained`: no host of it is up.")]
    hosts: LeafHosts
    empty: Annotated[bool, Field(description="No allocation has a host there any more.")]
    allocations: Annotated[list[LeafTenant], Field(description="What is still to move.")]

    @classmethod
    def of(cls, entry: LeafEntry) -> Self:
        states = Counter(host.state for host in entry.hosts)
        names = {host.index: host.name for host in entry.hosts}
        return cls(
            guid=guid(entry.switch.guid),
            name=entry.switch.name,
            state="up" if states[HostState.UP] or not entry.hosts else "drained",
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
                    name=tenant.record.name,
                    project_id=tenant.record.project_id,
                    state=tenant.record.state,
                    container=tenant.record.container,
                    hosts=[AllocatedHost(index=host, name=names[host]) for host in tenant.hosts],
                )
                for tenant in entry.tenants
            ],
        )


def show(call: Call, fabric_id: str, switch_id: str) -> Answer:
    """Show the states of a leaf's hosts, and the allocations that hold some of them."""
    return Answer(200, Leaf.of(call.fabrics.leaf(fabric_id, switch_id)))


def change(call: Call, fabric_id: str, switch_id: str, body: LeafChange) -> Answer:
    """Drain all hosts of a leaf that are up, or undrain them; owners keep what they have."""
    state = HostState(body.state)
    return Answer(
        200, Leaf.of(call.fabrics.set_leaf_state(call.caller, fabric_id, switch_id, state))
    )
