# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Which leaves a host is drained for, and when a fabric's cables were imported."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps

revision = "a011"
down_revision = "a010"


def upgrade() -> None:
    steps.add_column("host_state", sa.Column("leaves", sa.JSON(), nullable=True))
    steps.add_column(
        "fabric", sa.Column("layout", sa.Integer(), nullable=False, server_default="1")
    )


def downgrade() -> None:
    op.drop_column("fabric", "layout")
    op.drop_column("host_state", "leaves")
