# SPDX-License-Identifier: Apache-2.0

"""The GUIDs of virtual ports."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a025"
down_revision = "a023"


def upgrade() -> None:
    steps.create_table(
        "virtual_port",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("guid", exact(18), nullable=False),
        sa.Column("port", exact(18), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_virtual_port"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_virtual_port_fabric"),
    )


def downgrade() -> None:
    steps.drop_table("virtual_port")
