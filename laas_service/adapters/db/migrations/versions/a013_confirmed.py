# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Which generation the switches ever ran, and how often drift was repaired."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a013"
down_revision = "a012"


def upgrade() -> None:
    steps.add_column("lease", sa.Column("confirmed", sa.Integer()))
    steps.add_column(
        "drift", sa.Column("repaired", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    with op.batch_alter_table("drift") as table:
        table.drop_column("repaired")
    with op.batch_alter_table("lease") as table:
        table.drop_column("confirmed")
