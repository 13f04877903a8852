# SPDX-License-Identifier: Apache-2.0

"""Faults of allocations: failed hosts and links that they have claimed, and their records.

A module apart from ``components``, because changes of placement record faults, too.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import allocation_rows, component_words, models
from laas_service.adapters.db.transactions import Transactions
from laas_service.adapters.documents import faults_document, faults_from
from laas_service.app.lifecycle import AllocationFaults, State
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.domain.topology import Link, link_name
from laas_service.domain.wording import listed
from laas_service.messages import Initiator

Outdated = dict[str, tuple[AllocationFaults, AllocationFaults]]
"""By allocation: the recorded faults and the present ones."""


def present(session: Session, fabric: FabricRecord) -> dict[str, AllocationFaults]:
    """By allocation: the hosts and links that it has claimed and that have failed, and its
    links under maintenance."""
    host_claim, link_claim = models.HostClaimRow, models.LinkClaimRow
    host, link = models.HostStateRow, models.LinkStateRow
    failed_hosts = session.execute(
        select(host_claim.allocation, host_claim.host)
        .join(host, and_(host.fabric == host_claim.fabric, host.host == host_claim.host))
        .where(host_claim.fabric == fabric.id, host.state == HostState.FAILED.value)
        .order_by(host_claim.host)
    )
    failed_links = session.execute(
        select(link_claim.allocation, link_claim.link)
        .join(link, and_(link.fabric == link_claim.fabric, link.link == link_claim.link))
        .where(link_claim.fabric == fabric.id, link.state == LinkState.FAILED.value)
        .order_by(link_claim.link)
    )
    drained_links = session.execute(
        select(link_claim.allocation, link_claim.link)
        .join(link, and_(link.fabric == link_claim.fabric, link.link == link_claim.link))
        .where(link_claim.fabric == fabric.id, link.state == LinkState.DRAINED.value)
        .order_by(link_claim.link)
    )
    link_at = fabric.topology.tree.link_at
    hosts: dict[str, list[int]] = defaultdict(list)
    links: dict[str, list[Link]] = defaultdict(list)
    drained: dict[str, list[Link]] = defaultdict(list)
    for id, number in failed_hosts:
        hosts[id].append(number)
    for id, number in failed_links:
        links[id].append(link_at(number))
    of_maintenance = drained_links.all()
    maintained = component_words.maintained_links(session, fabric) if of_maintenance else set()
    for id, number in of_maintenance:
        if link_at(number) in maintained:
            drained[id].append(link_at(number))
    return {
        id: AllocationFaults(tuple(links[id]), tuple(hosts[id]), tuple(drained[id]))
        for id in {*hosts, *links, *drained}
    }


def outdated(session: Session, fabric: FabricRecord) -> Outdated:
    """Allocations whose recorded faults differ from the present ones."""
    table, part, faults = models.AllocationRow, models.FaultsPart, present(session, fabric)
    query = allocation_rows.with_parts(select(table.id, part.faults).select_from(table), part)
    rows = session.execute(
        query.where(table.fabric == fabric.id, or_(part.faults.is_not(None), table.id.in_(faults)))
    )
    recorded = {
        row.id: faults_from(row.faults) if row.faults else AllocationFaults() for row in rows
    }
    return {
        id: (before, faults.get(id, AllocationFaults()))
        for id, before in recorded.items()
        if before != faults.get(id, AllocationFaults())
    }


def update_records(
    transactions: Transactions,
    session: Session,
    fabric: FabricRecord,
    by: Initiator | None = None,
) -> list[str]:
    """Record the present faults; returns the ids of the allocations whose faults changed.

    The fabric's row must be locked, so that no transaction claims meanwhile. The state of an
    allocation may still change, until the update here locks its row.
    """
    table, changed, now = models.AllocationRow, outdated(session, fabric), transactions.now()
    for id, (before, after) in changed.items():
        ended: dict[str, Any] = {"error": None} if after == AllocationFaults() else {}
        session.execute(
            update(table)
            .where(table.id == id)
            .values(version=table.version + 1, updated_at=now, failures=0, due_at=None, **ended)
        )
        faults = None if ended else faults_document(after)
        allocation_rows.write(session, id, {"faults": faults})
        state = session.scalars(select(table.state).where(table.id == id)).one()
        transactions.record_event(session, id, State(state), _reason(before, after), by)
    return list(changed)


def _reason(before: AllocationFaults, after: AllocationFaults) -> str:
    """The difference, in a sentence."""
    old, new = _names(before), _names(after)
    failed = [name for name in new if name not in old]
    repaired = [name for name in old if name not in new]
    old_drained, new_drained = _link_names(before.drained), _link_names(after.drained)
    drained = [name for name in new_drained if name not in old_drained]
    ended = [name for name in old_drained if name not in new_drained]
    parts = (
        (failed, "failed"),
        (repaired, "up again"),
        (drained, "under maintenance"),
        (ended, "no longer under maintenance"),
    )
    return "; ".join(f"{verb}: {listed(names)}" for names, verb in parts if names)


def _names(faults: AllocationFaults) -> list[str]:
    return _link_names(faults.links) + [f"host {host}" for host in faults.hosts]


def _link_names(links: Iterable[Link]) -> list[str]:
    return [f"link {link_name(link)}" for link in links]
