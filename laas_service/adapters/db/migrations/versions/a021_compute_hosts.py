# SPDX-License-Identifier: Apache-2.0

"""What compute says of hosts, and what is remembered of its hosts."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, exact

revision = "a021"
down_revision = "a020"


def upgrade() -> None:
    steps.add_column("host_state", sa.Column("nova", exact(16)))
    steps.add_column("host_state", sa.Column("nova_since", Moment()))
    steps.add_column("host_state", sa.Column("nova_evidence", sa.Text()))
    steps.create_table(
        "compute_hosts",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", name="pk_compute_hosts"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_compute_hosts_fabric"),
    )


def downgrade() -> None:
    op.drop_table("compute_hosts")
    op.execute("DELETE FROM host_state WHERE operator IS NULL AND nova IS NOT NULL")
    with op.batch_alter_table("host_state") as table:
        for name in ("nova_evidence", "nova_since", "nova"):
            table.drop_column(name)
