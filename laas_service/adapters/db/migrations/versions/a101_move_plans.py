# SPDX-License-Identifier: Apache-2.0

"""Plans of moves."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a101"
down_revision = "a100"


def upgrade() -> None:
    steps.create_table(
        "move_plan",
        sa.Column("fabric", exact(64)),
        sa.Column("serial", sa.Integer(), autoincrement=False),
        sa.Column("question", exact(32), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("key", exact(255)),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "serial", name="pk_move_plan"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_move_plan_fabric"),
        sa.UniqueConstraint("project_id", "key", name="uq_move_plan_project_id_key"),
    )
