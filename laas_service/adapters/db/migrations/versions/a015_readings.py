# SPDX-License-Identifier: Apache-2.0

"""Last reading of an agent; switches that are not compared when a generation is confirmed."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a015"
down_revision = "a014"


def upgrade() -> None:
    steps.add_column("agent", sa.Column("reading", sa.JSON()))
    steps.add_column("agent", sa.Column("uncompared", sa.JSON()))
    steps.add_column("lease", sa.Column("uncompared", sa.JSON()))


def downgrade() -> None:
    with op.batch_alter_table("lease") as table:
        table.drop_column("uncompared")
    with op.batch_alter_table("agent") as table:
        table.drop_column("uncompared")
        table.drop_column("reading")
