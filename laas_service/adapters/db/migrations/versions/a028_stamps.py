# SPDX-License-Identifier: Apache-2.0

"""Stamps: a generation is known by its number and by what was drawn when it was made.

Generations that earlier releases made have no stamp, and are known by their number alone.
"""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a028"
down_revision = "a027"


def upgrade() -> None:
    steps.add_column("fabric", sa.Column("stamp", exact(32)))
    steps.add_column("fabric", sa.Column("routes_stamp", exact(32)))
    steps.add_column("delta", sa.Column("stamp", exact(16)))
    steps.add_column("agent", sa.Column("stamp", exact(16)))
    steps.add_column("agent", sa.Column("published_stamp", exact(16)))


def downgrade() -> None:
    op.drop_column("agent", "published_stamp")
    op.drop_column("agent", "stamp")
    op.drop_column("delta", "stamp")
    op.drop_column("fabric", "routes_stamp")
    op.drop_column("fabric", "stamp")
