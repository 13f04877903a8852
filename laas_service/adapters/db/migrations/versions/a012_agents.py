# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""What agents beside OpenSM report, and which one of a fabric is active."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a012"
down_revision = "a011"


def upgrade() -> None:
    steps.create_table(
        "agent",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("name", exact(255), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=True),
        sa.Column("condition", exact(32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("published", sa.Integer(), nullable=True),
        sa.Column("seen_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "name", name="pk_agent"),
        sa.UniqueConstraint("fabric", "active", name="uq_agent_fabric_active"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_agent_fabric"),
    )


def downgrade() -> None:
    op.drop_table("agent")
