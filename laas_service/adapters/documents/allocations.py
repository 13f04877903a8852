# SPDX-License-Identifier: Apache-2.0

"""Documents of allocations and of the constraints of requests."""

from __future__ import annotations

from typing import Any

from pydantic import StrictBool, StrictStr

from laas_service.adapters.documents.fields import (
    VERSION,
    Cost,
    Document,
    Mask,
    Natural,
    Rails,
    Strict,
    Trait,
    validated,
)
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.constraints import Constraints, Within


class _Allocation(Document):
    id: StrictStr
    requested: Natural
    policy: StrictStr
    groups: list[tuple[Natural, Mask, Mask]]
    columns: list[tuple[Natural, Natural, Mask]]
    shape: tuple[Natural, Natural, Natural, Natural, Natural] | None
    parent: StrictStr | None = None
    container: StrictBool = False


class _Constraints(Strict):
    traits: list[Trait] = []
    avoid_hosts: list[Natural] = []
    avoid_pods: list[Natural] = []
    within: Within | None = None
    spread: Rails = 1
    max_host_cost: Cost | None = None
    cheapest: StrictBool = False


def allocation_document(allocation: Allocation) -> dict[str, Any]:
    """The allocation as a compact document; ``allocation_from`` is the inverse."""
    shape = allocation.shape
    nested: dict[str, Any] = {} if allocation.parent is None else {"parent": allocation.parent}
    if allocation.container:
        nested["container"] = True
    return {
        "version": VERSION,
        "id": allocation.id,
        "requested": allocation.requested,
        "policy": allocation.policy,
        "groups": [[group, hex(hosts), hex(ups)] for group, hosts, ups in allocation.groups],
        "columns": [[pod, column, hex(ups)] for pod, column, ups in allocation.columns],
        "shape": shape
        and [
            shape.pods,
            shape.leaves,
            shape.hosts,
            shape.remainder_leaves,
            shape.remainder_hosts,
        ],
        **nested,
    }


def allocation_from(document: object) -> Allocation:
    """The allocation of a document.

    Raises:
        InvalidInput: it is no allocation document; names the field.
    """
    read = validated(_Allocation, "allocation", document)
    return Allocation(
        id=read.id,
        requested=read.requested,
        policy=read.policy,
        groups=tuple(GroupShare(*share) for share in read.groups),
        columns=tuple(ColumnShare(*share) for share in read.columns),
        shape=Shape(*read.shape) if read.shape else None,
        parent=read.parent,
        container=read.container,
    )


def constraints_document(constraints: Constraints) -> dict[str, Any]:
    """The constraints that are set, hosts and pods by number; ``constraints_from`` inverts it."""
    values = {name: getattr(constraints, name) for name in constraints.names}
    for name in ("traits", "avoid_hosts", "avoid_pods"):
        if name in values:
            values[name] = sorted(values[name])
    if constraints.within is not None:
        values["within"] = constraints.within.value
    return values


def constraints_from(document: object) -> Constraints | None:
    """The constraints of a document, None if it has none.

    Raises:
        InvalidInput: it is no document of constraints; names the field.
    """
    read = validated(_Constraints, "constraints", document)
    constraints = Constraints(
        traits=frozenset(read.traits),
        avoid_hosts=frozenset(read.avoid_hosts),
        avoid_pods=frozenset(read.avoid_pods),
        within=read.within,
        spread=read.spread,
        max_host_cost=read.max_host_cost,
        cheapest=read.cheapest,
    )
    return constraints if constraints.names else None
