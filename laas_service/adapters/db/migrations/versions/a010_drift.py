# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""How often others are found to have changed what is recorded."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a010"
down_revision = "a009"


def upgrade() -> None:
    steps.create_table(
        "drift",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("kind", exact(16), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "kind", name="pk_drift"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_drift_fabric"),
    )


def downgrade() -> None:
    op.drop_table("drift")
