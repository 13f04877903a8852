# SPDX-License-Identifier: Apache-2.0

"""Names that a live allocation has alone in its project.

A request that wants its name for itself checks all live allocations of the project, and takes a
row of ``allocation_name``. Of two such requests at the same time the primary key lets one through.
"""

from collections.abc import Sequence

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows
from laas_service.app.lifecycle import LIVE
from laas_service.domain.errors import ConcurrentUpdate, NameTaken

_LIVE = [state.value for state in LIVE]
TAKEN = "another request took the name first"


def take(session: Session, project_id: str, name: str, id: str) -> None:
    """Give an allocation this name alone, in place of the one that it had alone.

    Raises:
        NameTaken: another live allocation of the project has it.
        ConcurrentUpdate: another request took it at the same time.
    """
    row = models.NameRow
    here = (row.project_id == project_id, row.name == name)
    holder = session.scalar(select(row.allocation).where(*here))
    # After the row: an allocation that took the name since then is seen, or keeps the row.
    if namesakes := [one for one in _namesakes(session, project_id, name) if one != id]:
        raise NameTaken(name, namesakes[0])
    if holder is not None:
        session.execute(delete(row).where(*here, row.allocation == holder))
    give_up(session, id)
    try:
        insert_rows(session, row, {"project_id": project_id, "name": name, "allocation": id})
    except DBDuplicateEntry as error:
        raise ConcurrentUpdate(TAKEN) from error


def give_up(session: Session, id: str) -> None:
    """An allocation that is released, or gets a name that may be double, has none alone."""
    session.execute(delete(models.NameRow).where(models.NameRow.allocation == id))


def _namesakes(session: Session, project_id: str, name: str) -> Sequence[str]:
    """The live allocations of this name, oldest first."""
    table = models.AllocationRow
    query = select(table.id).where(
        table.project_id == project_id, table.name == name, table.state.in_(_LIVE)
    )
    return session.scalars(query.order_by(table.sequence)).all()
