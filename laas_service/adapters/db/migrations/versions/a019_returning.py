# SPDX-License-Identifier: Apache-2.0

"""Who said an operator's word; observed hosts; moved cables; switches that come back."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a019"
down_revision = "a018"


def upgrade() -> None:
    for table in ("host_state", "link_state"):
        steps.add_column(table, sa.Column("operator_by", sa.JSON()))
    steps.add_column("host_state", sa.Column("observed", exact(16)))
    steps.add_column("host_state", sa.Column("observed_since", Moment()))
    steps.add_column("host_state", sa.Column("evidence", sa.Text()))
    steps.add_column(
        "link_state", sa.Column("moved", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    steps.add_column("switch_state", sa.Column("said_by", sa.JSON()))
    steps.add_column("switch_state", sa.Column("repaired_at", Moment()))
    steps.add_column("observation", sa.Column("mode_since", Moment()))
    steps.add_column("observation", sa.Column("mode_by", sa.JSON()))
    steps.add_column("observation", sa.Column("acknowledged", sa.JSON()))


def downgrade() -> None:
    op.execute("DELETE FROM host_state WHERE operator IS NULL")
    op.execute("UPDATE host_state SET state = operator")
    op.execute("DELETE FROM switch_state WHERE repaired_at IS NOT NULL")
    for table, names in (
        ("observation", ("acknowledged", "mode_by", "mode_since")),
        ("switch_state", ("repaired_at", "said_by")),
        ("link_state", ("moved", "operator_by")),
        ("host_state", ("evidence", "observed_since", "observed", "operator_by")),
    ):
        with op.batch_alter_table(table) as changed:
            for name in names:
                changed.drop_column(name)
