# SPDX-License-Identifier: Apache-2.0

"""State of the switches as seen by a lease's holder; the state that an allocation parked in."""

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
