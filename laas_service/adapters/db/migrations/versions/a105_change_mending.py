# SPDX-License-Identifier: Apache-2.0

"""Links that replace failed ones while a placement changes."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps

revision = "a105"
down_revision = "a104"


def upgrade() -> None:
    steps.add_column("allocation_change", sa.Column("mending", sa.JSON()))
