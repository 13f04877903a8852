# SPDX-License-Identifier: Apache-2.0

"""Shared plane of a fabric; containers, parents of allocations, and scopes of claims."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a006"
down_revision = "a005"

CLAIMS = (("host_claim", "host"), ("link_claim", "link"))


def upgrade() -> None:
    steps.add_column("fabric", sa.Column("shared_plane", sa.JSON(), nullable=True))
    steps.add_column("allocation", sa.Column("parent", exact(64), nullable=True))
    steps.add_column(
        "allocation",
        sa.Column("container", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    steps.create_index("ix_allocation_parent", "allocation", ["parent"])
    for name, what in CLAIMS:
        if steps.has_table(name) and not steps.has_column(name, "scope"):
            _set_aside(name, f"fabric, {what}")
        _with_scope(name, what)
        _bring_back(name, f"fabric, {what}, allocation", scope="''")


def downgrade() -> None:
    for name, what in CLAIMS:
        op.execute(f"DELETE FROM {name} WHERE parent IS NOT NULL")  # noqa: S608
        _set_aside(name, f"fabric, scope, {what}")
        _without_scope(name, what)
        _bring_back(name, f"fabric, {what}, allocation")
    op.drop_index("ix_allocation_parent", "allocation")
    op.drop_column("allocation", "container")
    op.drop_column("allocation", "parent")
    op.drop_column("fabric", "shared_plane")


def _set_aside(name: str, key: str) -> None:
    """Copy a table to ``<name>_old`` and drop it, so that it can be made with another key.

    MariaDB gives the copy the primary ``key``, as it may demand one of every table. Not every
    database can change the primary key of an existing table. As long as the table exists, its rows
    are valid, and any ``<name>_old`` is left from an interrupted migration.
    """
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
    steps.drop_table(f"{name}_old")
    keyed = f" (PRIMARY KEY ({key}))" if op.get_bind().dialect.name in ("mysql", "mariadb") else ""
    op.execute(f"CREATE TABLE {name}_old{keyed} AS SELECT * FROM {name}")  # noqa: S608
    op.drop_table(name)


def _bring_back(name: str, columns: str, **values: str) -> None:
    """Copy the rows back and drop the copy, unless an earlier run has done so."""
    if not steps.has_table(f"{name}_old"):
        return
    into, of = ", ".join([columns, *values]), ", ".join([columns, *values.values()])
    op.execute(f"DELETE FROM {name}")  # noqa: S608
    op.execute(f"INSERT INTO {name} ({into}) SELECT {of} FROM {name}_old")  # noqa: S608
    op.drop_table(f"{name}_old")


def _with_scope(name: str, what: str) -> None:
    """Make a table of claims: a child claims only what its parent has claimed, siblings differ."""
    steps.create_table(
        name,
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("scope", exact(64), nullable=False, server_default=""),
        sa.Column(what, sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.Column("parent", exact(64), nullable=True),
        sa.PrimaryKeyConstraint("fabric", "scope", what, name=f"pk_{name}"),
        sa.UniqueConstraint("allocation", what, name=f"uq_{name}_allocation_{what}"),
        sa.CheckConstraint("scope = coalesce(parent, '')", name=f"ck_{name}_scope"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name=f"fk_{name}_fabric"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name=f"fk_{name}_allocation"),
        sa.ForeignKeyConstraint(
            ["parent", what],
            [f"{name}.allocation", f"{name}.{what}"],
            name=f"fk_{name}_parent_{what}",
        ),
    )
    steps.create_index(f"ix_{name}_allocation", name, ["allocation"])
    steps.create_index(f"ix_{name}_parent_{what}", name, ["parent", what])


def _without_scope(name: str, what: str) -> None:
    steps.create_table(
        name,
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column(what, sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("fabric", what, name=f"pk_{name}"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name=f"fk_{name}_fabric"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name=f"fk_{name}_allocation"),
    )
    steps.create_index(f"ix_{name}_allocation", name, ["allocation"])
