# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""What hosts are like, and what allocations ask of them."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "a005"
down_revision = "a004"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("constraints", sa.JSON(), nullable=True))
    steps.create_table(
        "host_feature",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("host", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("cost", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "host", name="pk_host_feature"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_host_feature_fabric"),
    )


def downgrade() -> None:
    op.drop_table("host_feature")
    op.drop_column("allocation", "constraints")
