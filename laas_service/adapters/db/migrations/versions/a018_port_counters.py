# SPDX-License-Identifier: Apache-2.0

"""Port counters of switches: the last reading, what is remembered, and what is found."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Packed, exact

revision = "a018"
down_revision = "a017"


def upgrade() -> None:
    steps.create_table(
        "port_counters",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("guid", exact(18), nullable=False),
        sa.Column("read_at", Moment(), nullable=False),
        sa.Column("reading", Packed(), nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.Column("memory", Packed(), nullable=True),
        sa.Column("findings", sa.JSON(), nullable=True),
        sa.Column("erroneous", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_port_counters"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_port_counters_fabric"),
    )


def downgrade() -> None:
    steps.drop_table("port_counters")
