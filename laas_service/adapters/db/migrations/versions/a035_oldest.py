# SPDX-License-Identifier: Apache-2.0

"""The oldest release that works with the tables."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a035"
down_revision = "a033"


def upgrade() -> None:
    steps.create_table(
        "works_with",
        sa.Column("oldest", exact(32), nullable=False),
        sa.PrimaryKeyConstraint("oldest", name="pk_works_with"),
    )


def downgrade() -> None:
    steps.drop_table("works_with")
