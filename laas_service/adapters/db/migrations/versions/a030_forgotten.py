# SPDX-License-Identifier: Apache-2.0

"""Events that were deleted, allocations released long ago, and the last full comparison."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment

revision = "a030"
down_revision = "a028"


def upgrade() -> None:
    forgotten = sa.Column("forgotten", sa.Integer(), nullable=False, server_default="0")
    steps.add_column("allocation", forgotten)
    steps.add_column("allocation", sa.Column("asked_by", sa.JSON()))
    steps.add_column("lease", sa.Column("compared_at", Moment()))
    steps.create_index("ix_allocation_updated", "allocation", ["state", "updated_at"])


def downgrade() -> None:
    op.drop_column("lease", "compared_at")
    op.drop_index("ix_allocation_updated", "allocation")
    op.drop_column("allocation", "asked_by")
    op.drop_column("allocation", "forgotten")
