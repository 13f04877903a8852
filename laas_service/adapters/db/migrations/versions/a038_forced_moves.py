# SPDX-License-Identifier: Apache-2.0

"""Announced moves that their tenants cannot call off."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a038"
down_revision = "a036"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("move_forced", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("allocation", "move_forced")
