# SPDX-License-Identifier: Apache-2.0

"""Traits and costs of hosts; constraints of allocations."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a005"
down_revision = "a004"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("constraints", sa.JSON(), nullable=True))
    steps.create_table(
        "host_feature",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("host", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("cost", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "host", name="pk_host_feature"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_host_feature_fabric"),
    )


def downgrade() -> None:
    op.drop_table("host_feature")
    op.drop_column("allocation", "constraints")
