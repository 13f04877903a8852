# SPDX-License-Identifier: Apache-2.0

"""When a fabric went forward, so that all API processes share the limit."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a052"
down_revision = "a050"


def upgrade() -> None:
    steps.add_column("fabric", sa.Column("went_forward", sa.JSON()))


def downgrade() -> None:
    op.drop_column("fabric", "went_forward")
