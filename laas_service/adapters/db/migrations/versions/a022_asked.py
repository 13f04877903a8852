# SPDX-License-Identifier: Apache-2.0

"""The request of an idempotency key as its caller made it."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a022"
down_revision = "a021"


def upgrade() -> None:
    steps.add_column("idempotency", sa.Column("asked", sa.JSON()))


def downgrade() -> None:
    op.drop_column("idempotency", "asked")
