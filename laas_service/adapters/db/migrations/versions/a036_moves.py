# SPDX-License-Identifier: Apache-2.0

"""Consent to moves, and the move that is announced."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment

revision = "a036"
down_revision = "a035"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("consent", sa.JSON()))
    steps.add_column("allocation", sa.Column("announced", sa.JSON()))
    steps.add_column("allocation", sa.Column("moves_at", Moment()))


def downgrade() -> None:
    op.drop_column("allocation", "moves_at")
    op.drop_column("allocation", "announced")
    op.drop_column("allocation", "consent")
