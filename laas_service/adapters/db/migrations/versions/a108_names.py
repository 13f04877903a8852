# SPDX-License-Identifier: Apache-2.0

"""Names that one allocation has alone in its project."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a108"
down_revision = "a105"


def upgrade() -> None:
    steps.create_table(
        "allocation_name",
        sa.Column("project_id", exact(255)),
        sa.Column("name", exact(255)),
        sa.Column("allocation", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "name", name="pk_allocation_name"),
    )
    steps.create_index("ix_allocation_name_allocation", "allocation_name", ["allocation"])
    steps.create_index("ix_allocation_project_id_name", "allocation", ["project_id", "name"])
