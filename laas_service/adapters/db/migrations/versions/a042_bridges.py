# SPDX-License-Identifier: Apache-2.0

"""Links that join the old and the new hosts of an allocation while they change."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a042"
down_revision = "a041"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("bridge", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("allocation", "bridge")
