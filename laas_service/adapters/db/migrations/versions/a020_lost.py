# SPDX-License-Identifier: Apache-2.0

"""Why a generation was no longer confirmed: the kind of drift."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a020"
down_revision = "a019"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("lost", exact(16)))


def downgrade() -> None:
    op.drop_column("lease", "lost")
