# SPDX-License-Identifier: Apache-2.0

"""Where an agent's time for its newest set of files went."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a041"
down_revision = "a040"


def upgrade() -> None:
    steps.add_column("agent", sa.Column("spent", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("agent", "spent")
