# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Changes of placement, and what has failed of what an allocation holds."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a003"
down_revision = "a002"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("leaving", sa.JSON(), nullable=True))
    steps.add_column("allocation", sa.Column("phase", exact(16), nullable=True))
    steps.add_column("allocation", sa.Column("faults", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation", "faults")
    op.drop_column("allocation", "phase")
    op.drop_column("allocation", "leaving")
