# SPDX-License-Identifier: Apache-2.0

"""Domains of hosts."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps

revision = "a104"
down_revision = "a103"


def upgrade() -> None:
    steps.add_column("host_feature", sa.Column("domains", sa.JSON(none_as_null=True)))
