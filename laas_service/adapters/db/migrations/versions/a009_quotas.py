# SPDX-License-Identifier: Apache-2.0

"""Quotas of single projects, in place of the default quota."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a009"
down_revision = "a008"


def upgrade() -> None:
    steps.create_table(
        "quota",
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=True),
        sa.Column("allocations", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("project_id", name="pk_quota"),
    )


def downgrade() -> None:
    op.drop_table("quota")
