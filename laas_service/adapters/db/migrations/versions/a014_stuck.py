# SPDX-License-Identifier: Apache-2.0

"""Number of times that a holder of a fabric was stuck."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a014"
down_revision = "a013"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("stuck", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("lease") as table:
        table.drop_column("stuck")
