# SPDX-License-Identifier: Apache-2.0

"""What operators and observation say of hosts, links and switches; the observation of a fabric."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a016"
down_revision = "a015"


def upgrade() -> None:
    for table in ("host_state", "link_state"):
        steps.add_column(table, sa.Column("operator", exact(16)))
        steps.add_column(table, sa.Column("operator_since", Moment()))
    steps.add_column("link_state", sa.Column("observed", exact(16)))
    steps.add_column("link_state", sa.Column("observed_since", Moment()))
    steps.add_column("link_state", sa.Column("evidence", sa.Text()))
    steps.copy_column("host_state", "state", "operator")
    steps.copy_column("link_state", "state", "operator")
    steps.create_table(
        "switch_state",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("guid", exact(18), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("since", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_switch_state"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_switch_state_fabric"),
    )
    steps.create_table(
        "observation",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("mode", exact(16), nullable=True),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.Column("news", sa.JSON(), nullable=False),
        sa.Column("read_at", Moment(), nullable=True),
        sa.Column("observer", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("fabric", name="pk_observation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_observation_fabric"),
    )


def downgrade() -> None:
    op.drop_table("observation")
    op.drop_table("switch_state")
    op.execute("DELETE FROM link_state WHERE state = 'drained'")
    with op.batch_alter_table("link_state") as table:
        for name in ("evidence", "observed_since", "observed", "operator_since", "operator"):
            table.drop_column(name)
    with op.batch_alter_table("host_state") as table:
        for name in ("operator_since", "operator"):
            table.drop_column(name)
