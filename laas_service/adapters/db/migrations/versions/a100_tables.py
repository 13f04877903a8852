# SPDX-License-Identifier: Apache-2.0

"""All tables of 1.0.0."""

import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import Moment, Packed, Serial, exact

revision = "a100"
down_revision = None


def upgrade() -> None:
    steps.create_table(
        "begun_move",
        sa.Column("id", Serial),
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_begun_move"),
    )
    steps.create_index("ix_begun_move_project_id", "begun_move", ["project_id"])
    steps.create_table(
        "fabric",
        sa.Column("id", exact(64)),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("routes_generation", sa.Integer(), nullable=False),
        sa.Column("stamp", exact(32)),
        sa.Column("routes_stamp", exact(32)),
        sa.Column("topology", Packed(), nullable=False),
        sa.Column("inventory", Packed(), nullable=False),
        sa.Column("layout", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("shared_plane", sa.JSON()),
        sa.Column("went_forward", sa.JSON()),
        sa.Column("created_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_fabric"),
    )
    steps.create_table(
        "notification",
        sa.Column("id", Serial),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("taken_until", Moment()),
        sa.PrimaryKeyConstraint("id", name="pk_notification"),
    )
    steps.create_table(
        "quota",
        sa.Column("project_id", exact(255)),
        sa.Column("hosts", sa.Integer()),
        sa.Column("allocations", sa.Integer()),
        sa.Column("moves", sa.Integer()),
        sa.Column("slots", sa.Integer()),
        sa.PrimaryKeyConstraint("project_id", name="pk_quota"),
    )
    steps.create_table(
        "worker",
        sa.Column("id", exact(255)),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker"),
    )
    steps.create_table(
        "works_with",
        sa.Column("oldest", exact(32)),
        sa.PrimaryKeyConstraint("oldest", name="pk_works_with"),
    )
    steps.create_table(
        "agent",
        sa.Column("fabric", exact(64)),
        sa.Column("name", exact(255)),
        sa.Column("active", sa.Boolean()),
        sa.Column("condition", exact(32), nullable=False),
        sa.Column("detail", sa.Text()),
        sa.Column("generation", sa.Integer()),
        sa.Column("published", sa.Integer()),
        sa.Column("stamp", exact(16)),
        sa.Column("published_stamp", exact(16)),
        sa.Column("reading", sa.JSON()),
        sa.Column("uncompared", sa.JSON()),
        sa.Column("running", sa.JSON()),
        sa.Column("spent", sa.JSON()),
        sa.Column("seen_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "name", name="pk_agent"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_agent_fabric"),
        sa.UniqueConstraint("fabric", "active", name="uq_agent_fabric_active"),
    )
    steps.create_table(
        "allocation",
        sa.Column("sequence", Serial),
        sa.Column("id", exact(64), nullable=False),
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("name", exact(255), nullable=False),
        sa.Column("project_id", exact(255), nullable=False),
        sa.Column("policy", exact(64), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=False),
        sa.Column("kind", exact(16), nullable=False, server_default="owned"),
        sa.Column("parent", exact(64)),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("handed_back", sa.Boolean(), nullable=False),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("parked", exact(16)),
        sa.Column("due_at", Moment()),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_allocation_fabric"),
        sa.UniqueConstraint("id", name="uq_allocation_id"),
    )
    steps.create_index("ix_allocation_due", "allocation", ["state", "due_at"])
    steps.create_index("ix_allocation_fabric", "allocation", ["fabric"])
    steps.create_index("ix_allocation_parent", "allocation", ["parent"])
    steps.create_index("ix_allocation_project_id", "allocation", ["project_id"])
    steps.create_index("ix_allocation_updated", "allocation", ["state", "updated_at"])
    steps.create_table(
        "compute_hosts",
        sa.Column("fabric", exact(64)),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", name="pk_compute_hosts"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_compute_hosts_fabric"),
    )
    steps.create_table(
        "delta",
        sa.Column("fabric", exact(64)),
        sa.Column("generation", sa.Integer(), autoincrement=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.Column("stamp", exact(16)),
        sa.PrimaryKeyConstraint("fabric", "generation", name="pk_delta"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_delta_fabric"),
    )
    steps.create_table(
        "drift",
        sa.Column("fabric", exact(64)),
        sa.Column("kind", exact(16)),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("repaired", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "kind", name="pk_drift"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_drift_fabric"),
    )
    steps.create_table(
        "host_feature",
        sa.Column("fabric", exact(64)),
        sa.Column("host", sa.Integer(), autoincrement=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("cost", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "host", name="pk_host_feature"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_host_feature_fabric"),
    )
    steps.create_table(
        "host_state",
        sa.Column("fabric", exact(64)),
        sa.Column("host", sa.Integer(), autoincrement=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("leaves", sa.JSON()),
        sa.Column("operator", exact(16)),
        sa.Column("operator_since", Moment()),
        sa.Column("operator_by", sa.JSON()),
        sa.Column("observed", exact(16)),
        sa.Column("observed_since", Moment()),
        sa.Column("evidence", sa.Text()),
        sa.Column("nova", exact(16)),
        sa.Column("nova_since", Moment()),
        sa.Column("nova_evidence", sa.Text()),
        sa.PrimaryKeyConstraint("fabric", "host", name="pk_host_state"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_host_state_fabric"),
    )
    steps.create_table(
        "lease",
        sa.Column("fabric", exact(64)),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("owner", exact(255)),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.Column("applied", sa.Integer()),
        sa.Column("problem", sa.Text()),
        sa.Column("seen_at", Moment()),
        sa.Column("confirmed", sa.Integer()),
        sa.Column("stuck", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("uncompared", sa.JSON()),
        sa.Column("running", sa.JSON()),
        sa.Column("applied_by", exact(16)),
        sa.Column("lost", exact(16)),
        sa.Column("compared_at", Moment()),
        sa.Column("waits_for", sa.Text()),
        sa.Column("activated", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("seconds", sa.JSON()),
        sa.PrimaryKeyConstraint("fabric", name="pk_lease"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_lease_fabric"),
    )
    steps.create_table(
        "link_state",
        sa.Column("fabric", exact(64)),
        sa.Column("link", sa.Integer(), autoincrement=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("operator", exact(16)),
        sa.Column("operator_since", Moment()),
        sa.Column("operator_by", sa.JSON()),
        sa.Column("observed", exact(16)),
        sa.Column("observed_since", Moment()),
        sa.Column("evidence", sa.Text()),
        sa.Column("moved", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("fabric", "link", name="pk_link_state"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_link_state_fabric"),
    )
    steps.create_table(
        "observation",
        sa.Column("fabric", exact(64)),
        sa.Column("mode", exact(16)),
        sa.Column("mode_since", Moment()),
        sa.Column("mode_by", sa.JSON()),
        sa.Column("acknowledged", sa.JSON()),
        sa.Column("memory", sa.JSON(), nullable=False),
        sa.Column("news", sa.JSON(), nullable=False),
        sa.Column("read_at", Moment()),
        sa.Column("observer", sa.Text()),
        sa.PrimaryKeyConstraint("fabric", name="pk_observation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_observation_fabric"),
    )
    steps.create_table(
        "port_counters",
        sa.Column("fabric", exact(64)),
        sa.Column("guid", exact(18)),
        sa.Column("read_at", Moment(), nullable=False),
        sa.Column("reading", Packed(), nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.Column("memory", Packed()),
        sa.Column("findings", sa.JSON()),
        sa.Column("erroneous", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_port_counters"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_port_counters_fabric"),
    )
    steps.create_table(
        "queue_room",
        sa.Column("fabric", exact(64)),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", name="pk_queue_room"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_queue_room_fabric"),
    )
    steps.create_table(
        "switch_state",
        sa.Column("fabric", exact(64)),
        sa.Column("guid", exact(18)),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("since", Moment(), nullable=False),
        sa.Column("said_by", sa.JSON()),
        sa.Column("repaired_at", Moment()),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_switch_state"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_switch_state_fabric"),
    )
    steps.create_table(
        "ufm_mark",
        sa.Column("fabric", exact(64)),
        sa.Column("guid", exact(18)),
        sa.Column("port", sa.Integer(), autoincrement=False),
        sa.PrimaryKeyConstraint("fabric", "guid", "port", name="pk_ufm_mark"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_mark_fabric"),
    )
    steps.create_table(
        "ufm_request",
        sa.Column("id", Serial),
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("pkey", sa.Integer(), nullable=False),
        sa.Column("adds", sa.Boolean(), nullable=False),
        sa.Column("guids", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("job", exact(255)),
        sa.Column("asked_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ufm_request"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_request_fabric"),
    )
    steps.create_index("ix_ufm_request_fabric", "ufm_request", ["fabric"])
    steps.create_table(
        "ufm_withdrawn",
        sa.Column("fabric", exact(64)),
        sa.Column("pkey", sa.Integer(), autoincrement=False),
        sa.Column("guid", exact(18)),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "pkey", "guid", name="pk_ufm_withdrawn"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_ufm_withdrawn_fabric"),
    )
    steps.create_table(
        "virtual_port",
        sa.Column("fabric", exact(64)),
        sa.Column("guid", exact(18)),
        sa.Column("port", exact(18), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "guid", name="pk_virtual_port"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_virtual_port_fabric"),
    )
    steps.create_table(
        "allocation_change",
        sa.Column("leaving", sa.JSON()),
        sa.Column("phase", exact(16)),
        sa.Column("bridge", sa.JSON()),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_change"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_change_allocation"
        ),
    )
    steps.create_table(
        "allocation_faults",
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_faults"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_faults_allocation"
        ),
    )
    steps.create_table(
        "allocation_history",
        sa.Column("forgotten", sa.Integer(), nullable=False),
        sa.Column("asked_by", sa.JSON()),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_history"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_history_allocation"
        ),
    )
    steps.create_table(
        "allocation_move",
        sa.Column("announced", sa.JSON()),
        sa.Column("moves_at", Moment()),
        sa.Column("move_forced", sa.Boolean()),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_move"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_move_allocation"
        ),
    )
    steps.create_table(
        "allocation_placement",
        sa.Column("placed", sa.JSON()),
        sa.Column("pkey", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("pkeys", sa.JSON()),
        sa.Column("ends_at", Moment()),
        sa.Column("confirmed_by", exact(16)),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_placement"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_placement_allocation"
        ),
    )
    steps.create_table(
        "allocation_shared_hosts",
        sa.Column("sharing", sa.JSON(), nullable=False),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_shared_hosts"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_shared_hosts_allocation"
        ),
    )
    steps.create_table(
        "allocation_slots",
        sa.Column("demand", sa.JSON(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("limited_by", exact(16)),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_slots"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_slots_allocation"
        ),
    )
    steps.create_table(
        "allocation_terms",
        sa.Column("constraints", sa.JSON()),
        sa.Column("duration", sa.Double()),
        sa.Column("consent", sa.JSON()),
        sa.Column("allocation", exact(64)),
        sa.PrimaryKeyConstraint("allocation", name="pk_allocation_terms"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_allocation_terms_allocation"
        ),
    )
    steps.create_table(
        "event",
        sa.Column("id", Serial),
        sa.Column("allocation", exact(64), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("request_id", exact(255)),
        sa.Column("user_id", exact(255)),
        sa.Column("project_id", exact(255)),
        sa.Column("seconds", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_event_allocation"),
    )
    steps.create_index("ix_event_allocation", "event", ["allocation"])
    steps.create_table(
        "host_claim",
        sa.Column("fabric", exact(64)),
        sa.Column("scope", exact(64), server_default=""),
        sa.Column("host", sa.Integer(), autoincrement=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.Column("parent", exact(64)),
        sa.PrimaryKeyConstraint("fabric", "scope", "host", name="pk_host_claim"),
        sa.CheckConstraint("scope = coalesce(parent, '')", name="ck_host_claim_scope"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_host_claim_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_host_claim_fabric"),
        sa.ForeignKeyConstraint(
            ["parent", "host"],
            ["host_claim.allocation", "host_claim.host"],
            name="fk_host_claim_parent_host",
        ),
        sa.UniqueConstraint("allocation", "host", name="uq_host_claim_allocation_host"),
    )
    steps.create_index("ix_host_claim_allocation", "host_claim", ["allocation"])
    steps.create_index("ix_host_claim_parent_host", "host_claim", ["parent", "host"])
    steps.create_table(
        "idempotency",
        sa.Column("project_id", exact(255)),
        sa.Column("key", exact(255)),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("asked", sa.JSON()),
        sa.Column("allocation", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_idempotency"),
        sa.ForeignKeyConstraint(
            ["allocation"], ["allocation.id"], name="fk_idempotency_allocation"
        ),
    )
    steps.create_table(
        "link_claim",
        sa.Column("fabric", exact(64)),
        sa.Column("scope", exact(64), server_default=""),
        sa.Column("link", sa.Integer(), autoincrement=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.Column("parent", exact(64)),
        sa.PrimaryKeyConstraint("fabric", "scope", "link", name="pk_link_claim"),
        sa.CheckConstraint("scope = coalesce(parent, '')", name="ck_link_claim_scope"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_link_claim_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_link_claim_fabric"),
        sa.ForeignKeyConstraint(
            ["parent", "link"],
            ["link_claim.allocation", "link_claim.link"],
            name="fk_link_claim_parent_link",
        ),
        sa.UniqueConstraint("allocation", "link", name="uq_link_claim_allocation_link"),
    )
    steps.create_index("ix_link_claim_allocation", "link_claim", ["allocation"])
    steps.create_index("ix_link_claim_parent_link", "link_claim", ["parent", "link"])
    steps.create_table(
        "pkey_claim",
        sa.Column("fabric", exact(64)),
        sa.Column("pkey", sa.Integer(), autoincrement=False),
        sa.Column("allocation", exact(64), nullable=False),
        sa.PrimaryKeyConstraint("fabric", "pkey", name="pk_pkey_claim"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_pkey_claim_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_pkey_claim_fabric"),
    )
    steps.create_index("ix_pkey_claim_allocation", "pkey_claim", ["allocation"])
    steps.create_table(
        "shared_host",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("part", exact(64)),
        sa.Column("host", sa.Integer(), autoincrement=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("part", "host", name="pk_shared_host"),
        sa.CheckConstraint("used >= 0 AND used <= slots", name="ck_shared_host_slots"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_shared_host_fabric"),
        sa.ForeignKeyConstraint(["part"], ["allocation.id"], name="fk_shared_host_part"),
    )
    steps.create_index("ix_shared_host_fabric", "shared_host", ["fabric"])
    steps.create_table(
        "shared_link",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("part", exact(64)),
        sa.Column("link", sa.Integer(), autoincrement=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("chance", sa.Double(), nullable=False),
        sa.Column("certain", sa.BigInteger(), nullable=False),
        sa.Column("mean", sa.BigInteger(), nullable=False),
        sa.Column("variance", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("part", "link", name="pk_shared_link"),
        sa.CheckConstraint(
            "certain >= 0 AND mean >= 0 AND variance >= 0 AND certain + mean <= capacity AND "
            "1.0 * (capacity - certain - mean) * (capacity - certain - mean) >= chance * variance",
            name="ck_shared_link_bandwidth",
        ),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_shared_link_fabric"),
        sa.ForeignKeyConstraint(["part"], ["allocation.id"], name="fk_shared_link_part"),
    )
    steps.create_index("ix_shared_link_fabric", "shared_link", ["fabric"])
    steps.create_table(
        "link_load",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("allocation", exact(64)),
        sa.Column("link", sa.Integer(), autoincrement=False),
        sa.Column("part", exact(64), nullable=False),
        sa.Column("certain", sa.BigInteger(), nullable=False),
        sa.Column("mean", sa.BigInteger(), nullable=False),
        sa.Column("variance", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("allocation", "link", name="pk_link_load"),
        sa.CheckConstraint(
            "certain >= 0 AND mean >= 0 AND variance >= 0", name="ck_link_load_amounts"
        ),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_link_load_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_link_load_fabric"),
        sa.ForeignKeyConstraint(
            ["part", "link"],
            ["shared_link.part", "shared_link.link"],
            name="fk_link_load_part_link",
        ),
    )
    steps.create_index("ix_link_load_fabric", "link_load", ["fabric"])
    steps.create_index("ix_link_load_part_link", "link_load", ["part", "link"])
    steps.create_table(
        "slot_claim",
        sa.Column("fabric", exact(64), nullable=False),
        sa.Column("allocation", exact(64)),
        sa.Column("host", sa.Integer(), autoincrement=False),
        sa.Column("part", exact(64), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("allocation", "host", name="pk_slot_claim"),
        sa.CheckConstraint("units >= 1", name="ck_slot_claim_units"),
        sa.ForeignKeyConstraint(["allocation"], ["allocation.id"], name="fk_slot_claim_allocation"),
        sa.ForeignKeyConstraint(["fabric"], ["fabric.id"], name="fk_slot_claim_fabric"),
        sa.ForeignKeyConstraint(
            ["part", "host"],
            ["shared_host.part", "shared_host.host"],
            name="fk_slot_claim_part_host",
        ),
    )
    steps.create_index("ix_slot_claim_fabric", "slot_claim", ["fabric"])
    steps.create_index("ix_slot_claim_part_host", "slot_claim", ["part", "host"])
