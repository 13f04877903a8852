# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""Who asked for a change, and what others are still to be told of it."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Serial, exact

revision = "a004"
down_revision = "a003"

ASKED = ("request_id", "user_id", "project_id")


def upgrade() -> None:
    for name in ASKED:
        steps.add_column("event", sa.Column(name, exact(255), nullable=True))
    steps.create_table(
        "notification",
        sa.Column("id", Serial, primary_key=True, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("taken_until", Moment(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_notification"),
    )


def downgrade() -> None:
    op.drop_table("notification")
    for name in reversed(ASKED):
        op.drop_column("event", name)
