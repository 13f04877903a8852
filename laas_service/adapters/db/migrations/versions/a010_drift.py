# SPDX-License-Identifier: Apache-2.0

"""Drift by kind: number of detections, and the latest detail."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a010"
down_revision = "a009"


def upgrade() -> None:
    steps.create_table(
        "drift",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "kind", name="pk_drift"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_drift_fabric"),
    )


def downgrade() -> None:
    op.drop_table("drift")
