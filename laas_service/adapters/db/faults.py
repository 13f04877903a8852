# SPDX-License-Identifier: Apache-2.0


"""What has failed of what allocations hold: found by the claims, noted in their records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.app.lifecycle import State
from laas_service.app.records import FabricRecord, Faults, HostState, LinkState
from laas_service.domain.topology import link_name, parse_link

SHOWN = 5
"""Links or hosts that a line of an allocation's story names."""

Misnoted = dict[str, tuple[Faults, Faults]]
"""By allocation: the faults recorded and those there are."""


def document(faults: Faults) -> dict[str, Any]:
    return {"links": [link_name(link) for link in faults.links], "hosts": list(faults.hosts)}


def parsed(document: Any) -> Faults:
    return Faults(tuple(map(parse_link, document["links"])), tuple(document["hosts"]))


def found(session: Session, fabric: FabricRecord) -> dict[str, Faults]:
    """By allocation: what it has claimed and has failed."""
    hosts, links = models.HostClaim, models.LinkClaim
    host, link = models.HostState, models.LinkState
    failed_hosts = session.execute(
        select(hosts.allocation, hosts.host)
        .join(host, and_(host.fabric == hosts.fabric, host.host == hosts.host))
        .where(hosts.fabric == fabric.id, host.state == HostState.FAILED.value)
        .order_by(hosts.host)
    )
    failed_links = session.execute(
        select(links.allocation, links.link)
        .join(link, and_(link.fabric == links.fabric, link.link == links.link))
        .where(links.fabric == fabric.id, link.state == LinkState.FAILED.value)
        .order_by(links.link)
    )
    faults: dict[str, Faults] = {}
    for id, number in failed_hosts:
        known = faults.get(id, Faults())
        faults[id] = Faults(known.links, (*known.hosts, number))
    for id, number in failed_links:
        known = faults.get(id, Faults())
        faults[id] = Faults((*known.links, fabric.topology.tree.link_at(number)), known.hosts)
    return faults


def misnoted(session: Session, fabric: FabricRecord) -> Misnoted:
    """Allocations whose recorded faults are not those there are."""
    table, faults = models.Allocation, found(session, fabric)
    rows = session.execute(
        select(table.id, table.faults).where(
            table.fabric == fabric.id, or_(table.faults.is_not(None), table.id.in_(faults))
        )
    )
    noted = {row.id: parsed(row.faults) if row.faults else Faults() for row in rows}
    return {
        id: (before, faults.get(id, Faults()))
        for id, before in noted.items()
        if before != faults.get(id, Faults())
    }


def note(session: Session, fabric: FabricRecord, now: datetime) -> dict[str, tuple[State, str]]:
    """Bring every record up to date; the state of those that changed, and the news.

    The fabric's row must be locked, so that nobody claims meanwhile. A state may change all
    the same, until the record is locked by what is written to it.
    """
    table, noted = models.Allocation, {}
    for id, (before, after) in misnoted(session, fabric).items():
        values: dict[str, Any] = {"faults": document(after)}
        if after == Faults():
            values = {"faults": None, "error": None}
        session.execute(
            update(table)
            .where(table.id == id)
            .values(version=table.version + 1, updated_at=now, failures=0, due_at=None, **values)
        )
        state = session.scalars(select(table.state).where(table.id == id)).one()
        noted[id] = (State(state), _news(before, after))
    return noted


def _news(before: Faults, after: Faults) -> str:
    """What has changed, in a sentence."""
    was, now = _names(before), _names(after)
    failed = [name for name in now if name not in was]
    mended = [name for name in was if name not in now]
    parts = ((failed, "failed"), (mended, "up again"))
    return "; ".join(f"{what}: {_some(names)}" for names, what in parts if names)


def _names(faults: Faults) -> list[str]:
    links = [f"link {link_name(link)}" for link in faults.links]
    return links + [f"host {host}" for host in faults.hosts]


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
