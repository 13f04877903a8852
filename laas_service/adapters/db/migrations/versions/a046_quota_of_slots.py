# SPDX-License-Identifier: Apache-2.0

"""Quotas of slots of shared hosts."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a046"
down_revision = "a045"


def upgrade() -> None:
    steps.add_column("quota", sa.Column("slots", sa.Integer()))


def downgrade() -> None:
    op.drop_column("quota", "slots")
