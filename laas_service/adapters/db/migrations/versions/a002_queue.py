# SPDX-License-Identifier: Apache-2.0

"""Expected duration of an allocation, and its expected end."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment

revision = "a002"
down_revision = "a001"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("duration", sa.Double(), nullable=True))
    steps.add_column("allocation", sa.Column("ends_at", Moment(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation", "ends_at")
    op.drop_column("allocation", "duration")
