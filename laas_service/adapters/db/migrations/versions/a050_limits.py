# SPDX-License-Identifier: Apache-2.0

"""What limits the servers of an allocation of class ``shared``."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a050"
down_revision = "a046"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("limited_by", exact(16)))


def downgrade() -> None:
    op.drop_column("allocation", "limited_by")
