# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Who converges a fabric, and which workers there are."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a007"
down_revision = "a006"


def upgrade() -> None:
    steps.create_table(
        "lease",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("owner", exact(255), nullable=True),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", name="pk_lease"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_lease_fabric"),
    )
    steps.create_table(
        "worker",
        sa.Column("id", exact(255), nullable=False),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker"),
    )


def downgrade() -> None:
    op.drop_table("worker")
    op.drop_table("lease")
