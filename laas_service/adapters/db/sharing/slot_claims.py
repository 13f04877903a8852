# SPDX-License-Identifier: Apache-2.0

"""Rows of slots and of what links promise (``SlotRows``); the database refuses too many.

The row of the fabric is locked meanwhile, so that sums and what they are of agree.
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, cast

from sqlalchemy import Select, Table, bindparam, delete, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows
from laas_service.adapters.db.transactions import batches
from laas_service.adapters.documents import STORED_GRAIN, stored_capacity, stored_steps
from laas_service.domain.allocation import Allocation, HeldSlots

ROUNDING = 1e-12
"""By how much ``SharedLink.chance`` is less, so that no rounding refuses what fits exactly."""

_HOSTS, _LINKS = models.SharedHostRow, models.SharedLinkRow

_ADD_UNITS = (
    update(cast("Table", _HOSTS.__table__))
    .where(_HOSTS.part == bindparam("of_part"), _HOSTS.host == bindparam("number"))
    .values(used=_HOSTS.used + bindparam("more"))
)

_ADD_AMOUNTS = (
    update(cast("Table", _LINKS.__table__))
    .where(_LINKS.part == bindparam("of_part"), _LINKS.link == bindparam("number"))
    .values(
        certain=_LINKS.certain + bindparam("more_certain"),
        mean=_LINKS.mean + bindparam("more_mean"),
        variance=_LINKS.variance + bindparam("more_variance"),
    )
)


def take(session: Session, fabric_id: str, part: Allocation, claimed: Allocation) -> None:
    """See ``SlotRows.take``."""
    slots = claimed.held_slots
    _add(session, fabric_id, part, slots.counts, _stored(slots))
    _insert(session, fabric_id, part, claimed)


def exchange(
    session: Session, fabric_id: str, part: Allocation, held: HeldSlots, claimed: Allocation
) -> None:
    """See ``SlotRows.exchange``."""
    slots = claimed.held_slots
    counts = dict(slots.counts)
    for host, units in held.counts.items():
        counts[host] = counts.get(host, 0) - units
    amounts = _stored(slots)
    for link, *amount in session.execute(_loads_of(claimed.id)):
        present = amounts.get(link, (0, 0, 0))
        amounts[link] = [a - b for a, b in zip(present, amount, strict=True)]
    _add(session, fabric_id, part, counts, amounts)
    _forget(session, claimed.id)
    _insert(session, fabric_id, part, claimed)


def _insert(session: Session, fabric_id: str, part: Allocation, claimed: Allocation) -> None:
    """Insert the rows of one allocation."""
    slots = claimed.held_slots
    owner = {"fabric": fabric_id, "part": part.id, "allocation": claimed.id}
    units = ({**owner, "host": host, "units": n} for host, n in slots.counts.items())
    insert_rows(session, models.SlotClaimRow, *units)
    loads = ({**owner, "link": link, **_named(each)} for link, each in _stored(slots).items())
    insert_rows(session, models.LinkLoadRow, *loads)


def give_up(session: Session, part: str, id: str) -> None:
    """See ``SlotRows.give_up``."""
    claim = models.SlotClaimRow
    units = session.execute(select(claim.host, claim.units).where(claim.allocation == id))
    changes = [{"of_part": part, "number": host, "more": -units} for host, units in units]
    loads = [
        {"of_part": part, "number": link, **_named([-amount for amount in amounts], "more_")}
        for link, *amounts in session.execute(_loads_of(id))
    ]
    _forget(session, id)
    if changes:
        session.connection().execute(_ADD_UNITS, changes)
    if loads:
        session.connection().execute(_ADD_AMOUNTS, loads)


def close(session: Session, part: str) -> None:
    """See ``SlotRows.close``."""
    for table in (_HOSTS, _LINKS):
        session.execute(delete(table).where(table.part == part))


def _forget(session: Session, id: str) -> None:
    for table in (models.SlotClaimRow, models.LinkLoadRow):
        session.execute(delete(table).where(table.allocation == id))


def _add(
    session: Session,
    fabric_id: str,
    of: Allocation,
    counts: Mapping[int, int],
    amounts: Mapping[int, Sequence[int]],
) -> None:
    """Add to the sums; rows that are not there yet are made."""
    part, sharing = of.id, of.terms
    owner = {"fabric": fabric_id, "part": part}
    known = _known(session, _HOSTS.host, part, list(counts))
    new = ({**owner, "host": h, "slots": sharing.slots, "used": 0} for h in counts.keys() - known)
    insert_rows(session, _HOSTS, *new)
    known = _known(session, _LINKS.link, part, list(amounts))
    room = {"capacity": stored_capacity(sharing.bandwidth), "chance": _chance(sharing.risk)}
    empty = {**owner, **room, **_named((0, 0, 0))}
    insert_rows(session, _LINKS, *({**empty, "link": link} for link in amounts.keys() - known))
    units = [{"of_part": part, "number": h, "more": n} for h, n in counts.items() if n]
    loads = [
        {"of_part": part, "number": link, **_named(amount, "more_")}
        for link, amount in amounts.items()
        if any(amount)
    ]
    if units:
        session.connection().execute(_ADD_UNITS, units)
    if loads:
        session.connection().execute(_ADD_AMOUNTS, loads)


def _known(session: Session, column: Any, part: str, numbers: Sequence[int]) -> set[int]:
    """Those of the numbers that have a row of the part."""
    known: set[int] = set()
    for batch in batches(numbers):
        query = select(column).where(column.class_.part == part, column.in_(batch))
        known.update(session.scalars(query))
    return known


def _named(amounts: Sequence[int], prefix: str = "") -> dict[str, int]:
    names = (f"{prefix}certain", f"{prefix}mean", f"{prefix}variance")
    return dict(zip(names, amounts, strict=True))


def _loads_of(id: str) -> Select[int, int, int, int]:
    """What links promise an allocation, as stored."""
    load = models.LinkLoadRow
    return select(load.link, load.certain, load.mean, load.variance).where(load.allocation == id)


def _stored(slots: HeldSlots) -> dict[int, Sequence[int]]:
    """By link: certain demand, mean and variance, as they are stored."""
    return {link: [stored_steps(each) for each in amounts] for link, *amounts in slots.promised}


def _chance(risk: float) -> float:
    quantile = NormalDist().inv_cdf(1 - risk)
    return quantile * quantile * STORED_GRAIN * (1 - ROUNDING)
