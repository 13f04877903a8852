# SPDX-License-Identifier: Apache-2.0

"""Priorities of queued requests."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps

revision = "a102"
down_revision = "a101"


def upgrade() -> None:
    steps.add_column("allocation_terms", sa.Column("priority", sa.BigInteger()))
