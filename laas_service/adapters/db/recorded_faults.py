# SPDX-License-Identifier: Apache-2.0

"""Faults of allocations: failed hosts and links that they have claimed, and their records.

A module apart from ``component_states``, because changes of placement record faults, too.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.documents import faults_document, faults_from
from laas_service.app.lifecycle import State
from laas_service.app.records import FabricRecord, Faults, HostState, LinkState
from laas_service.domain.topology import link_name
from laas_service.domain.wording import listed

Outdated = dict[str, tuple[Faults, Faults]]
"""By allocation: the recorded faults and the present ones."""


def present(session: Session, fabric: FabricRecord) -> dict[str, Faults]:
    """By allocation: the hosts and links that it has claimed and that have failed."""
    host_claim, link_claim = models.HostClaim, models.LinkClaim
    host, link = models.HostState, models.LinkState
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
    faults: dict[str, Faults] = {}
    for id, number in failed_hosts:
        others = faults.get(id, Faults())
        faults[id] = Faults(others.links, (*others.hosts, number))
    for id, number in failed_links:
        others = faults.get(id, Faults())
        faults[id] = Faults((*others.links, fabric.topology.tree.link_at(number)), others.hosts)
    return faults


def outdated(session: Session, fabric: FabricRecord) -> Outdated:
    """Allocations whose recorded faults differ from the present ones."""
    table, faults = models.Allocation, present(session, fabric)
    rows = session.execute(
        select(table.id, table.faults).where(
            table.fabric == fabric.id, or_(table.faults.is_not(None), table.id.in_(faults))
        )
    )
    recorded = {row.id: faults_from(row.faults) if row.faults else Faults() for row in rows}
    return {
        id: (before, faults.get(id, Faults()))
        for id, before in recorded.items()
        if before != faults.get(id, Faults())
    }


def update_records(
    session: Session, fabric: FabricRecord, now: datetime
) -> dict[str, tuple[State, str]]:
    """Record the present faults; by allocation that changed, its state and the reason to tell.

    The fabric's row must be locked, so that no transaction claims meanwhile. The state of an
    allocation may still change, until the update here locks its row.
    """
    table, changed = models.Allocation, {}
    for id, (before, after) in outdated(session, fabric).items():
        values: dict[str, Any] = {"faults": faults_document(after)}
        if after == Faults():
            values = {"faults": None, "error": None}
        session.execute(
            update(table)
            .where(table.id == id)
            .values(version=table.version + 1, updated_at=now, failures=0, due_at=None, **values)
        )
        state = session.scalars(select(table.state).where(table.id == id)).one()
        changed[id] = (State(state), _reason(before, after))
    return changed


def _reason(before: Faults, after: Faults) -> str:
    """The difference, in a sentence."""
    old, new = _names(before), _names(after)
    failed = [name for name in new if name not in old]
    repaired = [name for name in old if name not in new]
    parts = ((failed, "failed"), (repaired, "up again"))
    return "; ".join(f"{verb}: {listed(names)}" for names, verb in parts if names)


def _names(faults: Faults) -> list[str]:
    links = [f"link {link_name(link)}" for link in faults.links]
    return links + [f"host {host}" for host in faults.hosts]
