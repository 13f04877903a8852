# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What single projects may have instead of what all may."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a009"
down_revision = "a008"


def upgrade() -> None:
    steps.create_table(
        "quota",
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=True),
        sa.Column("allocations", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("project_id", name="pk_quota"),
    )


def downgrade() -> None:
    op.drop_table("quota")
