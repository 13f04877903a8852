# SPDX-License-Identifier: Apache-2.0

"""Quotas of moves, the moves that count for them, and plans that make room for queues."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Serial, exact

revision = "a039"
down_revision = "a038"


def upgrade() -> None:
    steps.add_column("quota", sa.Column("moves", sa.Integer()))
    steps.create_table(
        "begun_move",
        sa.Column("id", Serial, nullable=False),
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_begun_move"),
    )
    steps.create_index("ix_begun_move_project_id", "begun_move", ["project_id"])
    steps.create_table(
        "queue_room",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_queue_room_fabric"),
        sa.PrimaryKeyConstraint("fabric", name="pk_queue_room"),
    )


def downgrade() -> None:
    steps.drop_table("queue_room")
    steps.drop_table("begun_move")
    op.drop_column("quota", "moves")
