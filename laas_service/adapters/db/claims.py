# SPDX-License-Identifier: Apache-2.0

"""Rows of claims: which hosts, links and partition keys an allocation has."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows
from laas_service.adapters.db.transactions import batches
from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import Topology


def take(session: Session, fabric_id: str, claimed: Allocation, topology: Topology) -> None:
    """Insert the claims of hosts and links; the database refuses a second owner."""
    owner: dict[str, Any] = {"fabric": fabric_id, "allocation": claimed.id}
    owner |= {"scope": claimed.parent or "", "parent": claimed.parent}
    for table, column, numbers in _rows(claimed, topology):
        insert_rows(session, table, *({**owner, column: number} for number in numbers))


def give_up(session: Session, freed: Allocation, topology: Topology) -> None:
    """Delete claims of hosts and links of an allocation, which has others besides."""
    for table, column, numbers in _rows(freed, topology):
        for batch in batches(numbers):
            of_batch = getattr(table, column).in_(batch)
            session.execute(delete(table).where(table.allocation == freed.id, of_batch))


def _rows(allocation: Allocation, topology: Topology) -> tuple[tuple[Any, str, Sequence[int]], ...]:
    links = [topology.tree.link_id(link) for link in allocation.links(topology)]
    hosts = allocation.hosts(topology)
    return (models.HostClaimRow, "host", hosts), (models.LinkClaimRow, "link", links)
