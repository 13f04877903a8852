# SPDX-License-Identifier: Apache-2.0

"""The partition keys of an allocation whose links do not join its rails."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a023"
down_revision = "a022"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("pkeys", sa.JSON()))


def downgrade() -> None:
    op.drop_column("allocation", "pkeys")
