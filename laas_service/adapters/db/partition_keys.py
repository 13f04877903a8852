# SPDX-License-Identifier: Apache-2.0

"""Partition keys of allocations: those that are free, and those of each rail.

Rails that an allocation's links do not join have keys of their own
(``tenant_tables.joined_rails``).
"""

from collections.abc import Sequence
from itertools import islice

from sqlalchemy import bindparam, delete, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows
from laas_service.app.records import AllocationRecord
from laas_service.domain.errors import LimitExceeded

_TAKEN = select(models.PkeyClaimRow.pkey).where(models.PkeyClaimRow.fabric == bindparam("fabric"))


def free(session: Session, fabric_id: str, pkeys: range, count: int) -> list[int]:
    """The lowest of the keys that no tenant of the fabric has, whose row is locked.

    Raises: LimitExceeded.
    """
    taken = _taken(session, fabric_id)
    found = list(islice((pkey for pkey in pkeys if pkey not in taken), count))
    if len(found) == count:
        return found
    if found:
        raise LimitExceeded(
            f"the allocation needs {count} partition keys, because its links do not join its "
            f"rails, and {len(found)} of fabric {fabric_id!r} in [opensm] pkeys are free"
        )
    raise LimitExceeded(
        f"all {len(pkeys)} partition keys of fabric {fabric_id!r} in [opensm] pkeys are in use"
    )


def _taken(session: Session, fabric_id: str) -> set[int]:
    """The keys that tenants have, read once in a transaction; ``take`` adds to them."""
    known: dict[str, set[int]] = session.info.setdefault(_TAKEN, {})
    if fabric_id not in known:
        known[fabric_id] = set(session.scalars(_TAKEN, {"fabric": fabric_id}))
    return known[fabric_id]


def take(session: Session, record: AllocationRecord, pkeys: Sequence[int]) -> None:
    """Insert the claims of keys."""
    owner = {"fabric": record.fabric, "allocation": record.id}
    _taken(session, record.fabric).update(pkeys)
    insert_rows(session, models.PkeyClaimRow, *({**owner, "pkey": pkey} for pkey in pkeys))


def claimed(session: Session, record: AllocationRecord) -> list[int]:
    """The keys that an allocation has claimed, ascending."""
    table = models.PkeyClaimRow
    query = select(table.pkey).where(table.allocation == record.id).order_by(table.pkey)
    return list(session.scalars(query))


def keep_only(session: Session, record: AllocationRecord, pkeys: Sequence[int]) -> None:
    """Delete the claims of an allocation of all other keys."""
    table = models.PkeyClaimRow
    others = table.pkey.not_in(pkeys)
    session.execute(delete(table).where(table.allocation == record.id, others))


def missing(joined: Sequence[int], present: Sequence[int]) -> int:
    """How many keys an allocation lacks to tell apart the rails that are not joined.

    ``joined`` as ``joined_rails`` returns it, ``present`` are the present keys by rail.
    """
    if _apart(joined, present):
        return 0
    return len(set(joined)) - len({present[rail] for rail in set(joined)})


def by_rail(joined: Sequence[int], present: Sequence[int], owned: Sequence[int]) -> tuple[int, ...]:
    """The key of each rail: the present ones if they are enough, else with others of ``owned``.

    Rails that have become joined keep keys of their own: a port that is in use keeps its key
    wherever that is possible.
    """
    if _apart(joined, present):
        return tuple(present)
    spare = [key for key in owned if key not in present]
    key_of: dict[int, int] = {}
    for first in sorted(set(joined)):
        key = present[first]
        key_of[first] = spare.pop(0) if key in key_of.values() else key
    return tuple(key_of[first] for first in joined)


def _apart(joined: Sequence[int], present: Sequence[int]) -> bool:
    """Whether rails that are not joined have different keys."""
    first_with: dict[int, int] = {}
    return all(
        first_with.setdefault(key, first) == first
        for first, key in zip(joined, present, strict=True)
    )
