# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts, and what links promise: the class of service ``shared``."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a045"
down_revision = "a044"

ROOM = (
    "certain >= 0 AND mean >= 0 AND variance >= 0 AND certain + mean <= capacity AND "
    "1.0 * (capacity - certain - mean) * (capacity - certain - mean) >= chance * variance"
)


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("sharing", sa.JSON()))
    steps.add_column("allocation", sa.Column("slots", sa.Integer()))
    steps.add_column("allocation", sa.Column("demand", sa.JSON()))
    steps.create_table(
        "shared_host",
        *_of_part("shared_host", "host"),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.CheckConstraint("used >= 0 AND used <= slots", name="ck_shared_host_slots"),
    )
    steps.create_table(
        "shared_link",
        *_of_part("shared_link", "link"),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("chance", sa.Double(), nullable=False),
        *_amounts(),
        sa.CheckConstraint(ROOM, name="ck_shared_link_bandwidth"),
    )
    steps.create_table(
        "slot_claim",
        *_of_allocation("slot_claim", "host", "shared_host"),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.CheckConstraint("units >= 1", name="ck_slot_claim_units"),
    )
    steps.create_table(
        "link_load",
        *_of_allocation("link_load", "link", "shared_link"),
        *_amounts(),
        sa.CheckConstraint(
            "certain >= 0 AND mean >= 0 AND variance >= 0", name="ck_link_load_amounts"
        ),
    )
    for table in ("shared_host", "shared_link", "slot_claim", "link_load"):
        steps.create_index(f"ix_{table}_fabric", table, ["fabric"])
    for table, number in (("slot_claim", "host"), ("link_load", "link")):
        steps.create_index(f"ix_{table}_part_{number}", table, ["part", number])


def downgrade() -> None:
    for table in ("link_load", "slot_claim", "shared_link", "shared_host"):
        steps.drop_table(table)
    for column in ("demand", "slots", "sharing"):
        op.drop_column("allocation", column)


def _of_part(table: str, number: str) -> tuple[SchemaItem, ...]:
    return (
        _fabric(table),
        sa.Column(
            "part",
            exact(64),
            sa.ForeignKey("allocation.id", name=f"fk_{table}_part_allocation"),
            nullable=False,
        ),
        sa.Column(number, sa.Integer(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("part", number, name=f"pk_{table}"),
    )


def _of_allocation(table: str, number: str, shared: str) -> tuple[SchemaItem, ...]:
    return (
        _fabric(table),
        sa.Column(
            "allocation",
            exact(64),
            sa.ForeignKey("allocation.id", name=f"fk_{table}_allocation_allocation"),
            nullable=False,
        ),
        sa.Column(number, sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("part", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("allocation", number, name=f"pk_{table}"),
        sa.ForeignKeyConstraint(
            ["part", number],
            [f"{shared}.part", f"{shared}.{number}"],
            name=f"fk_{table}_part_{number}_{shared}",
        ),
    )


def _fabric(table: str) -> sa.Column[str]:
    key = sa.ForeignKey("fabric.id", name=f"fk_{table}_fabric_fabric")
    return sa.Column("fabric", exact(64), key, nullable=False)


def _amounts() -> list[sa.Column[int]]:
    names = ("certain", "mean", "variance")
    return [sa.Column(name, sa.BigInteger(), nullable=False) for name in names]
