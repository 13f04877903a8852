# SPDX-License-Identifier: Apache-2.0


"""What the holder of a fabric sees in the switches; where a parked allocation goes on."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a008"
down_revision = "a007"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("applied", sa.Integer(), nullable=True))
    steps.add_column("lease", sa.Column("problem", sa.Text(), nullable=True))
    steps.add_column("lease", sa.Column("seen_at", Moment(), nullable=True))
    steps.add_column("allocation", sa.Column("parked", exact(16), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation", "parked")
    for name in ("seen_at", "problem", "applied"):
        op.drop_column("lease", name)
