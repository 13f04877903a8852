# SPDX-License-Identifier: Apache-2.0

"""When a change of placement began."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment

revision = "a103"
down_revision = "a102"


def upgrade() -> None:
    steps.add_column("allocation_change", sa.Column("begun_at", Moment()))
