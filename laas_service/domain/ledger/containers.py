# SPDX-License-Identifier: Apache-2.0

"""Ledgers of containers: a container's hosts and links are a fabric of their own inside it."""

from collections.abc import Iterator
from operator import and_

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE
from laas_service.domain.errors import Conflict, NotFound
from laas_service.domain.ledger.faults import count_losses
from laas_service.domain.ledger.free import ReaderCaches
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.ledger.state import LedgerState, S
from laas_service.domain.tenancy import SharedHosts


def walk(ledger: S) -> Iterator[S]:
    """The ledger and all inside it, a container's before those inside that."""
    yield ledger
    for inner in ledger.inside.values():
        yield from walk(inner)


def ledger_of(fabric: S, scope: str | None) -> S:
    """The ledger of a container, the fabric's own for None.

    Raises:
        NotFound: no container of that id holds anything.
    """
    if fabric.scope == scope:
        return fabric
    for ledger in walk(fabric):
        if ledger.scope == scope:
            return ledger
    raise NotFound("container", scope, "name one that holds hosts")


def holder(fabric: S, allocation_id: str) -> S:
    """The ledger in which an allocation is. Raises: NotFound."""
    ledger = find_holder(fabric, allocation_id)
    if ledger is None:
        raise NotFound("allocation", allocation_id)
    return ledger


def find_holder(ledger: S, allocation_id: str) -> S | None:
    """The ledger, out of this one and all inside it, in which an allocation is."""
    if allocation_id in ledger.allocations:
        return ledger
    for inner in ledger.inside.values():
        if (deeper := find_holder(inner, allocation_id)) is not None:
            return deeper
    return None


def restrict(view: LedgerState, extent: Masks) -> None:
    """Remove hosts and links outside of ``extent`` from a copy of a ledger."""
    view.extent = view.extent & extent
    # A copy shares this list with its original, but has the others to itself.
    view.present_hosts = list(map(and_, view.present_hosts, extent.hosts))
    for masks, within in (
        (view.usable_hosts, extent.hosts),
        (view.usable_uplinks, extent.uplinks),
        (view.usable_lanes, extent.lanes),
        (view.free_hosts, extent.hosts),
        (view.free_uplinks, extent.uplinks),
        (view.free_lanes, extent.lanes),
    ):
        masks[:] = map(and_, masks, within)
    view.reader_caches = ReaderCaches()
    view.count_free_hosts()
    count_losses(view)


def begin(ledger: S, container: Allocation, view: S) -> None:
    """Keep ``view``, restricted to a container, as the container's ledger, without children."""
    view.scope, view.nests, view.shared_plane = container.id, True, NO_PLANE
    view.part = container if isinstance(container.kind, SharedHosts) else None
    disown(view)
    ledger.inside[container.id] = view


def disown(view: LedgerState) -> None:
    """Drop all owners of a copy of a ledger: what is usable is free."""
    view.allocations, view.used_slots = {}, {}
    view.free_hosts = list(view.usable_hosts)
    view.free_uplinks = list(view.usable_uplinks)
    view.free_lanes = list(view.usable_lanes)
    view.reader_caches = ReaderCaches()
    view.count_free_hosts()
    count_losses(view)


def end(ledger: LedgerState, allocation_id: str) -> None:
    """Drop the ledger of a container, if the allocation is one.

    Raises:
        Conflict: allocations are inside.
    """
    inner = ledger.inside.get(allocation_id)
    if inner is None:
        return
    if inner.allocations:
        shown = ", ".join(sorted(inner.allocations)[:5]) + " and more" * (
            len(inner.allocations) > 5
        )
        raise Conflict(
            f"{allocation_id!r} holds hosts for {len(inner.allocations)} allocations "
            f"inside; release them first: {shown}"
        )
    del ledger.inside[allocation_id]
