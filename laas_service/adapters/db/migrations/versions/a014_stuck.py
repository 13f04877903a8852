# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""How often the holder of a fabric was stuck."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a014"
down_revision = "a013"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("stuck", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("lease") as table:
        table.drop_column("stuck")
