# SPDX-License-Identifier: Apache-2.0

"""First tables: fabrics, allocations, events, claims, states, ledger deltas, keys."""

import sqlalchemy as sa
from alembic import op

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Packed, Serial, exact

revision = "a001"
down_revision = None


def upgrade() -> None:
    steps.create_table(
        "fabric",
        sa.Column("id", exact(64), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("routes_generation", sa.Integer(), nullable=False),
        sa.Column("topology", Packed(), nullable=False),
        sa.Column("inventory", Packed(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_fabric"),
    )
    steps.create_table(
        "allocation",
        sa.Column("sequence", Serial, nullable=False),
        sa.Column("id", exact(64), nullable=False),
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("name", exact(255), nullable=False),
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("policy", exact(64), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("pkey", sa.Integer(), nullable=False),
        sa.Column("placed", sa.JSON(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("handed_back", sa.Boolean(), nullable=False),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("due_at", Moment(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_allocation"),
        sa.UniqueConstraint("id", name="uq_allocation_id"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_allocation_fabric"),
    )
    steps.create_index("ix_allocation_due", "allocation", ["state", "due_at"])
    steps.create_index("ix_allocation_fabric", "allocation", ["fabric"])
    steps.create_index("ix_allocation_project_id", "allocation", ["project_id"])
    steps.create_table(
        "event",
        sa.Column("id", Serial, nullable=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_event_allocation"),
    )
    steps.create_index("ix_event_allocation", "event", ["allocation"])
    for table, what in (("host_claim", "host"), ("link_claim", "link"), ("pkey_claim", "pkey")):
        steps.create_table(
            table,
            sa.Column("fabric", exact(64), nullable=False),
            sa.Column(what, sa.Integer(), autoincrement=False, nullable=False),
            sa.Column("allocation", exact(64), nullable=False),
            sa.PrimaryKeyConstraint("fabric", what, name=f"pk_{table}"),
            sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name=f"fk_{table}_fabric"),
            sa.ForeignKeyConstraint(
                ["allocation"], ["allocation.id"], name=f"fk_{table}_allocation"
            ),
        )
        steps.create_index(f"ix_{table}_allocation", table, ["allocation"])
    for table, what in (("host_state", "host"), ("link_state", "link")):
        steps.create_table(
            table,
            sa.Column("fabric", exact(64), nullable=False),
            sa.Column(what, sa.Integer(), autoincrement=False, nullable=False),
            sa.Column("state", exact(16), nullable=False),
            sa.PrimaryKeyConstraint("fabric", what, name=f"pk_{table}"),
            sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name=f"fk_{table}_fabric"),
        )
    steps.create_table(
        "delta",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("generation", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "generation", name="pk_delta"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_delta_fabric"),
    )
    steps.create_table(
        "idempotency",
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("key", exact(255), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_idempotency"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_idempotency_allocation"
        ),
    )


def downgrade() -> None:
    for table in (
        "idempotency",
        "delta",
        "link_state",
        "host_state",
        "pkey_claim",
        "link_claim",
        "host_claim",
        "event",
        "allocation",
        "fabric",
    ):
        op.drop_table(table)
