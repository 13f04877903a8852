# SPDX-License-Identifier: Apache-2.0

"""Leases of fabrics, and the live workers."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a007"
down_revision = "a006"


def upgrade() -> None:
    steps.create_table(
        "lease",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("owner", exact(255), nullable=True),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", name="pk_lease"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_lease_fabric"),
    )
    steps.create_table(
        "worker",
        sa.Column("id", exact(255), nullable=False),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker"),
    )


def downgrade() -> None:
    op.drop_table("worker")
    op.drop_table("lease")
