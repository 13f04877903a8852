# SPDX-License-Identifier: Apache-2.0

"""Stamps of generations: they tell a generation from one of the same number in another past.

A database may go back: it fails over to a replica that lacks the last commits, or is restored to an
earlier time. It then gives the same numbers to other generations. Each generation therefore has a
stamp, drawn at random by the transaction that makes it. Whatever is made from a generation (a
ledger in memory, a set of files, a report of an agent) carries both.
"""

import secrets
from typing import Any

from sqlalchemy import String, and_, bindparam, cast, literal, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models

_STAMPS = (
    select(
        models.FabricRow.generation,
        models.FabricRow.stamp,
        models.FabricRow.routes_generation,
        models.FabricRow.routes_stamp,
        models.DeltaRow.stamp.label("recorded"),
    )
    .outerjoin(
        models.DeltaRow,
        and_(
            models.DeltaRow.fabric == models.FabricRow.id,
            models.DeltaRow.generation == bindparam("number"),
        ),
    )
    .where(models.FabricRow.id == bindparam("fabric"))
)
"""The stamps of a fabric, and that of the delta with a number."""


def new_stamp() -> str:
    """16 hexadecimal digits, drawn at random."""
    return secrets.token_hex(8)


def stored(number: Any, stamp: Any) -> Any:
    """The column ``stamp`` or ``routes_stamp`` of a fabric; both arguments may be expressions."""
    return cast(number, String(11)) + literal("-") + stamp


def stamp_of(number: int, column: str | None) -> str:
    """The stamp of this generation in such a column; empty if it is not known."""
    text, _, stamp = (column or "").partition("-")
    return stamp if text == str(number) else ""


def in_past(session: Session, fabric_id: str, number: int, stamp: str, *, routes: bool) -> bool:
    """Whether a generation is one that the database has, or had before its present one.

    With ``routes`` it is one of routes. A generation is known by its number alone if ``stamp`` is
    empty, or if the database has no stamp of that number: a release without stamps made it, its
    delta is deleted, or the numbers were lifted since. False without the fabric.
    """
    row = session.execute(_STAMPS, {"fabric": fabric_id, "number": number}).one_or_none()
    if row is None or number > (row.routes_generation if routes else row.generation):
        return False
    recorded: str | None = row.recorded
    if number == row.generation:
        recorded = stamp_of(number, row.stamp) or recorded
    elif number == row.routes_generation:
        recorded = stamp_of(number, row.routes_stamp) or recorded
    return not stamp or not recorded or recorded == stamp
