# SPDX-License-Identifier: Apache-2.0

"""What a generation, and an allocation's routes, are confirmed by."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a017"
down_revision = "a016"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("applied_by", exact(16)))
    steps.add_column("allocation", sa.Column("confirmed_by", exact(16)))


def downgrade() -> None:
    op.drop_column("allocation", "confirmed_by")
    op.drop_column("lease", "applied_by")
