# SPDX-License-Identifier: Apache-2.0

"""Fabrics are apart: no switch and no port belongs to two of them."""

from collections.abc import Iterable, Iterator
from itertools import combinations

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import translated
from laas_service.adapters.documents import inventory_from
from laas_service.domain.errors import ManagedElsewhere
from laas_service.domain.inventory import Inventory
from laas_service.domain.wording import listed


def refuse_shared(session: Session, id: str, inventory: Inventory) -> None:
    """Raise if another fabric has a switch or a port of this one.

    No other transaction passes here until this one ends: two imports at once would not see each
    other's rows.

    Raises:
        ManagedElsewhere: names the fabric and the first GUIDs.
    """
    session.execute(select(models.WorksWithRow.oldest).with_for_update()).all()
    query = select(models.FabricRow.id, models.FabricRow.inventory).where(models.FabricRow.id != id)
    rows = session.execute(query.order_by(models.FabricRow.id))
    refuse(inventory, ((other, inventory_from(document)) for other, document in rows))


def managed(engine: Engine) -> dict[str, Inventory]:
    """The inventories of all fabrics by id. Raises: Unavailable."""
    with translated(), engine.connect() as connection:
        rows = connection.execute(select(models.FabricRow.id, models.FabricRow.inventory)).all()
    return {id: inventory_from(document) for id, document in sorted(rows)}


def refuse(inventory: Inventory, others: Iterable[tuple[str, Inventory]]) -> None:
    """Raise if one of the other fabrics, which are given with their ids, has a part of this one.

    Raises:
        ManagedElsewhere: names the fabric and the first GUIDs.
    """
    for other, its in others:
        if said := _in_common(inventory, its):
            raise ManagedElsewhere(
                f"fabric {other} has {said} already; take the changes in with laas-manage fabric "
                f"reimport FILE --fabric {other}, or delete {other} first (laas fabric delete)"
            )


def shared(fabrics: Iterable[tuple[str, Inventory]]) -> Iterator[str]:
    """What fabrics have in common, a sentence for each two of them."""
    for (a, one), (b, other) in combinations(fabrics, 2):
        if said := _in_common(one, other):
            yield (
                f"fabrics {a} and {b} both have {said}; delete the one whose cabling is not the "
                "present one (laas fabric delete)"
            )


def _in_common(one: Inventory, other: Inventory) -> str:
    switches = {s.guid for s in one.switches} & {s.guid for s in other.switches}
    ports = {e.guid for e in one.endpoints} & {e.guid for e in other.endpoints}
    counted = ((len(switches), "switches"), (len(ports), "ports"))
    guids = [f"{guid:#018x}" for guid in (*sorted(switches), *sorted(ports))]
    what = " and ".join(f"{count} of the same {kind}" for count, kind in counted if count)
    return f"{what} ({listed(guids, 3)})" if guids else ""
