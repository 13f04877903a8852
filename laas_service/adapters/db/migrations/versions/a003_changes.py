# SPDX-License-Identifier: Apache-2.0

"""Phase of a change of placement, the placement being left, and the faults of an allocation."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a003"
down_revision = "a002"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("leaving", sa.JSON(), nullable=True))
    steps.add_column("allocation", sa.Column("phase", exact(16), nullable=True))
    steps.add_column("allocation", sa.Column("faults", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation", "faults")
    op.drop_column("allocation", "phase")
    op.drop_column("allocation", "leaving")
