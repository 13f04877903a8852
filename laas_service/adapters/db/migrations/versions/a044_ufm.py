# SPDX-License-Identifier: Apache-2.0

"""What the service remembers of a UFM: requests under way, withdrawn memberships, marked ports."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Serial, exact

revision = "a044"
down_revision = "a042"


def upgrade() -> None:
    steps.create_table(
        "ufm_request",
        sa.Column("id", Serial, nullable=False),
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("pkey", sa.Integer(), nullable=False),
        sa.Column("adds", sa.Boolean(), nullable=False),
        sa.Column("guids", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("job", exact(255), nullable=True),
        sa.Column("asked_at", Moment(), nullable=False),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_request_fabric"),
        sa.PrimaryKeyConstraint("id", name="pk_ufm_request"),
    )
    steps.create_index("ix_ufm_request_fabric", "ufm_request", ["fabric"])
    steps.create_table(
        "ufm_withdrawn",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("pkey", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("guid", exact(18), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_withdrawn_fabric"),
        sa.PrimaryKeyConstraint("fabric", "pkey", "guid", name="pk_ufm_withdrawn"),
    )
    steps.create_table(
        "ufm_mark",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("guid", exact(18), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False, autoincrement=False),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_mark_fabric"),
        sa.PrimaryKeyConstraint("fabric", "guid", "port", name="pk_ufm_mark"),
    )


def downgrade() -> None:
    for name in ("ufm_mark", "ufm_withdrawn", "ufm_request"):
        steps.drop_table(name)
