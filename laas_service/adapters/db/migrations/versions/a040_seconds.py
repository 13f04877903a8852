# SPDX-License-Identifier: Apache-2.0

"""Where the time of allocations goes: by event, and in all."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a040"
down_revision = "a039"


def upgrade() -> None:
    steps.add_column("event", sa.Column("seconds", sa.JSON(none_as_null=True)))
    steps.add_column("lease", sa.Column("seconds", sa.JSON(none_as_null=True)))
    steps.add_column(
        "lease", sa.Column("activated", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("lease", "activated")
    op.drop_column("lease", "seconds")
    op.drop_column("event", "seconds")
