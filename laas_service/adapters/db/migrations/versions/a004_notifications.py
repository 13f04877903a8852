# SPDX-License-Identifier: Apache-2.0

"""Request, user and project of an event; notifications that are still to be sent."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Serial, exact

revision = "a004"
down_revision = "a003"

ASKED = ("request_id", "user_id", "project_id")


def upgrade() -> None:
    for name in ASKED:
        steps.add_column("event", sa.Column(name, exact(255), nullable=True))
    steps.create_table(
        "notification",
        sa.Column("id", Serial, primary_key=True, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("taken_until", Moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_notification"),
    )


def downgrade() -> None:
    op.drop_table("notification")
    for name in reversed(ASKED):
        op.drop_column("event", name)
