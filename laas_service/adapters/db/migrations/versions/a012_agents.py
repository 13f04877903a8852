# SPDX-License-Identifier: Apache-2.0

"""Reports of the agents beside OpenSM; the active agent of a fabric."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a012"
down_revision = "a011"


def upgrade() -> None:
    steps.create_table(
        "agent",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("name", exact(255), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=True),
        sa.Column("condition", exact(32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("published", sa.Integer(), nullable=True),
        sa.Column("seen_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "name", name="pk_agent"),
        sa.UniqueConstraint("fabric", "active", name="uq_agent_fabric_active"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_agent_fabric"),
    )


def downgrade() -> None:
    op.drop_table("agent")
