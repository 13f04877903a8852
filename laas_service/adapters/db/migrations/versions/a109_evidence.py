# SPDX-License-Identifier: Apache-2.0

"""When the routes and the keys of an allocation were confirmed."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a109"
down_revision = "a108"


def upgrade() -> None:
    steps.create_table(
        "allocation_evidence",
        sa.Column("allocation", exact(64)),
        sa.Column("routes_confirmed", sa.JSON(none_as_null=True)),
        sa.Column("keys_confirmed", sa.JSON(none_as_null=True)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_evidence"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_evidence_allocation"
        ),
    )
