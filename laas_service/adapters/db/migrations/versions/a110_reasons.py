# SPDX-License-Identifier: Apache-2.0

"""Reasons that operators give for a drain, a failure or a maintenance."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps

revision = "a110"
down_revision = "a109"


def upgrade() -> None:
    for table in ("host_state", "link_state", "switch_state"):
        steps.add_column(table, sa.Column("reason", sa.Text()))
