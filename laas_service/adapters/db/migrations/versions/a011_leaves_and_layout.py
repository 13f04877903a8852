# SPDX-License-Identifier: Apache-2.0

"""Leaves that a host is drained for; generation in which a fabric's cables were imported."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a011"
down_revision = "a010"


def upgrade() -> None:
    steps.add_column("host_state", sa.Column("leaves", sa.JSON(), nullable=True))
    steps.add_column(
        "fabric", sa.Column("layout", sa.Integer(), nullable=False, server_default="1")
    )


def downgrade() -> None:
    op.drop_column("fabric", "layout")
    op.drop_column("host_state", "leaves")
