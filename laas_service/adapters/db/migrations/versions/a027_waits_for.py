# SPDX-License-Identifier: Apache-2.0

"""Add to each fabric the reason for which its worker waits."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a027"
down_revision = "a025"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("waits_for", sa.Text()))


def downgrade() -> None:
    op.drop_column("lease", "waits_for")
