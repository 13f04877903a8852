# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""How long an allocation is expected to last, and when it is expected to end."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment

revision = "a002"
down_revision = "a001"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("duration", sa.Double(), nullable=True))
    steps.add_column("allocation", sa.Column("ends_at", Moment(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation", "ends_at")
    op.drop_column("allocation", "duration")
