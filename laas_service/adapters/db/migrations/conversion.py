# SPDX-License-Identifier: Apache-2.0

"""Takes over databases from before 1.0.0. The next release deletes this module, and its use.

Every step can be repeated: MariaDB commits each change of a table by itself, so an upgrade that is
killed leaves some of them. The old columns go last and together; as long as they are there, the
rows that are made of them can be made again.
"""

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import JSON, Column, Connection, inspect, text

from laas_service.adapters.db import models
from laas_service.adapters.db.types import exact
from laas_service.domain.errors import Unavailable

TO = "a100"
"""The revision of 1.0.0."""

FROM = ("a050", "a052")
"""The revisions that are taken over."""

_ROWS = {
    models.SharedHostsPart: "sharing IS NOT NULL",
    models.SlotsPart: "demand IS NOT NULL",
    models.TermsPart: "constraints IS NOT NULL OR duration IS NOT NULL OR consent IS NOT NULL",
    models.PlacementPart: (
        "placed IS NOT NULL OR pkey <> 0 OR ends_at IS NOT NULL OR confirmed_by IS NOT NULL"
    ),
    models.ChangePart: "leaving IS NOT NULL",
    models.MovePart: "announced IS NOT NULL OR moves_at IS NOT NULL",
    models.FaultsPart: "faults IS NOT NULL",
    models.HistoryPart: "forgotten <> 0",
}
"""Which allocations have a row in each new table."""

_KIND = """
    UPDATE allocation SET kind = CASE WHEN demand IS NOT NULL THEN 'slots'
    WHEN sharing IS NOT NULL THEN 'shared_hosts' ELSE 'container' END
    WHERE demand IS NOT NULL OR sharing IS NOT NULL OR container
"""


def refuse_older(revision: str) -> None:
    """Return if tables of a revision before 1.0.0 can be taken over. Raises: Unavailable."""
    if revision not in FROM:
        raise Unavailable(
            f"the database is at revision {revision}, which 1.0.0 does not take over; run "
            f"laas-manage db upgrade of the last state before 1.0.0 (revision {FROM[-1]}) first"
        )


def convert(connection: Connection) -> None:
    """Make the tables of 1.0.0 of those of a revision in ``FROM``, and keep all rows."""
    changes = Operations(MigrationContext.configure(connection))
    if "went_forward" not in _columns(connection, "fabric"):
        changes.add_column("fabric", Column("went_forward", JSON()))
    kind = Column("kind", exact(16), nullable=False, server_default="owned")
    if "kind" not in _columns(connection, "allocation"):
        changes.add_column("allocation", kind)
    for part in models.PARTS:
        part.metadata.tables[part.__tablename__].create(connection, checkfirst=True)
    present = _columns(connection, "allocation")
    if "container" in present:
        moved = {part: sorted(present & {c.name for c in part.__table__.c}) for part in _ROWS}
        connection.execute(text(_KIND))
        for part, names in moved.items():
            connection.execute(text(_copy(part.__tablename__, ", ".join(names), _ROWS[part])))
        old = ["container", *(name for names in moved.values() for name in names)]
        drops = [f"DROP COLUMN {name}" for name in old]
        together = connection.dialect.name != "sqlite"
        for drop in [", ".join(drops)] if together else drops:
            connection.execute(text(f"ALTER TABLE allocation {drop}"))
    connection.execute(text(f"UPDATE alembic_version SET version_num = '{TO}'"))  # noqa: S608


def _copy(new: str, names: str, condition: str) -> str:
    """Makes the rows of a new table that are not there."""
    absent = f"id NOT IN (SELECT allocation FROM {new})"  # noqa: S608
    chosen = f"SELECT id, {names} FROM allocation WHERE ({condition}) AND {absent}"  # noqa: S608
    return f"INSERT INTO {new} (allocation, {names}) {chosen}"


def _columns(connection: Connection, table: str) -> set[str]:
    return {str(column["name"]) for column in inspect(connection).get_columns(table)}
