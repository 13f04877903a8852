# SPDX-License-Identifier: Apache-2.0

"""The routing engine that ran, and the master, as a worker and as agents saw them last."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a033"
down_revision = "a030"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("running", sa.JSON()))
    steps.add_column("agent", sa.Column("running", sa.JSON()))


def downgrade() -> None:
    op.drop_column("agent", "running")
    op.drop_column("lease", "running")
