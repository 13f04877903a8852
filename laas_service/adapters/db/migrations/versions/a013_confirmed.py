# SPDX-License-Identifier: Apache-2.0

"""Newest generation that was ever seen in the switches; number of repairs of drift."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a013"
down_revision = "a012"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("confirmed", sa.Integer()))
    steps.add_column(
        "drift", sa.Column("repaired", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    with op.batch_alter_table("drift") as table:
        table.drop_column("repaired")
    with op.batch_alter_table("lease") as table:
        table.drop_column("confirmed")
