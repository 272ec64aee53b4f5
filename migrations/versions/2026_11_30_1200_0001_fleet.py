"""Pools, Clusters, Nodes, Devices, and the agents that speak for them.

New tables only: no lock that anybody waits for. Going back drops them with all that they hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from controlplane.db.base import Xid8

revision: str = "0001"
down_revision: str | None = None

TABLES = (
    "node_flavor",
    "plane",
    "pool",
    "cluster",
    "agent_key",
    "agent_session",
    "cluster_counter",
    "enrolment_token",
    "node",
    "device",
    "discrepancy",
)


def upgrade() -> None:
    _create_node_flavor()
    _create_plane()
    _create_pool()
    _create_cluster()
    _create_agent_key()
    _create_agent_session()
    _create_cluster_counter()
    _create_enrolment_token()
    _create_node()
    _create_device()
    _create_discrepancy()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_node_flavor() -> None:
    op.create_table(
        "node_flavor",
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("resource", sa.Text(), server_default="", nullable=False),
        sa.Column("owned", sa.BigInteger(), nullable=False),
        sa.Column("allocatable", sa.BigInteger(), nullable=False),
        sa.Column("foreign_held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("capacity", sa.BigInteger(), nullable=False),
        sa.Column("overdraft", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint(
            "capacity >= 0 AND overdraft >= 0 AND owned >= 0 AND foreign_held >= 0",
            name=op.f("ck_node_flavor_not_negative"),
        ),
        sa.CheckConstraint("held >= 0 AND held <= capacity + overdraft", name=op.f("ck_node_flavor_not_oversold")),
        sa.PrimaryKeyConstraint("node_id", "flavor", name=op.f("pk_node_flavor")),
    )
    op.create_index(op.f("ix_node_flavor_changed_xid"), "node_flavor", ["changed_xid"], unique=False)


def _create_plane() -> None:
    op.create_table(
        "plane",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("listened_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("listening_since", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_plane_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plane")),
    )


def _create_pool() -> None:
    op.create_table(
        "pool",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("policy_version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("planner_owner", sa.Text(), server_default="", nullable=False),
        sa.Column("planner_epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("planner_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dirty_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool")),
        sa.UniqueConstraint("name", name=op.f("uq_pool_name")),
    )
    op.create_index(op.f("ix_pool_next_check_at"), "pool", ["next_check_at"], unique=False)


def _create_cluster() -> None:
    op.create_table(
        "cluster",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("spec", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("levels", postgresql.JSONB(), server_default=sa.text("'[\"host\"]'"), nullable=False),
        sa.Column("namespaces", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("features", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("agent_version", sa.Text(), server_default="", nullable=False),
        sa.Column("kubernetes_version", sa.Text(), server_default="", nullable=False),
        sa.Column("inventory_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("inventory_digest", sa.Text(), server_default="", nullable=False),
        sa.Column("inventory_revision", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_heard_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("name = lower(name) AND name <> ''", name=op.f("ck_cluster_name_normal")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_cluster_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster")),
    )
    op.create_index(op.f("ix_cluster_changed_xid"), "cluster", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_cluster_next_check_at"), "cluster", ["next_check_at"], unique=False)
    op.create_index(op.f("ix_cluster_pool_id"), "cluster", ["pool_id"], unique=False)
    op.create_index(
        "uq_cluster_fingerprint_live",
        "cluster",
        ["fingerprint"],
        unique=True,
        postgresql_where=sa.text("fingerprint IS NOT NULL AND removed_at IS NULL"),
    )
    op.create_index(
        "uq_cluster_name_live", "cluster", ["name"], unique=True, postgresql_where=sa.text("removed_at IS NULL")
    )


def _create_agent_key() -> None:
    op.create_table(
        "agent_key",
        sa.Column("thumbprint", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("jwk", postgresql.JSONB(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("banned_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("slot IN ('current', 'next', 'retired')", name=op.f("ck_agent_key_slot_known")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_agent_key_cluster_id")),
        sa.PrimaryKeyConstraint("thumbprint", name=op.f("pk_agent_key")),
    )
    op.create_index(op.f("ix_agent_key_cluster_id"), "agent_key", ["cluster_id"], unique=False)
    op.create_index(
        "uq_agent_key_slot",
        "agent_key",
        ["cluster_id", "slot"],
        unique=True,
        postgresql_where=sa.text("slot <> 'retired'"),
    )


def _create_agent_session() -> None:
    op.create_table(
        "agent_session",
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("thumbprint", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("answer", postgresql.JSONB(), nullable=True),
        sa.Column("acked_number", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_heard_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("full_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_agent_session_cluster_id")),
        sa.PrimaryKeyConstraint("cluster_id", "epoch", name=op.f("pk_agent_session")),
    )
    op.create_index(
        "uq_agent_session_active",
        "agent_session",
        ["cluster_id"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def _create_cluster_counter() -> None:
    op.create_table(
        "cluster_counter",
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("direction IN ('up', 'down')", name=op.f("ck_cluster_counter_direction_known")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_cluster_counter_cluster_id")),
        sa.PrimaryKeyConstraint("cluster_id", "direction", name=op.f("pk_cluster_counter")),
    )


def _create_enrolment_token() -> None:
    op.create_table(
        "enrolment_token",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("uses", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("uses_max", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("used_by_thumbprint", sa.Text(), nullable=True),
        sa.Column("auto_accept", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_enrolment_token_expires")),
        sa.CheckConstraint(
            "last_used_at IS NULL OR last_used_at <= expires_at", name=op.f("ck_enrolment_token_not_used_late")
        ),
        sa.CheckConstraint(
            "revoked_at IS NULL OR last_used_at IS NULL OR last_used_at <= revoked_at",
            name=op.f("ck_enrolment_token_not_used_revoked"),
        ),
        sa.CheckConstraint("uses >= 0 AND uses <= uses_max", name=op.f("ck_enrolment_token_not_overused")),
        sa.CheckConstraint("uses_max BETWEEN 1 AND 100", name=op.f("ck_enrolment_token_uses_max_range")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_enrolment_token_cluster_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrolment_token")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_enrolment_token_token_sha256")),
    )
    op.create_index(op.f("ix_enrolment_token_cluster_id"), "enrolment_token", ["cluster_id"], unique=False)


def _create_node() -> None:
    op.create_table(
        "node",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="real", nullable=False),
        sa.Column("provider_id", sa.Text(), server_default="", nullable=False),
        sa.Column("instance_type", sa.Text(), server_default="", nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("ready_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cordoned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("cordoned_by_us", sa.Text(), server_default="", nullable=False),
        sa.Column("deleting", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("taints", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("domains", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("driver_versions", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_milli_held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes_held", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.Column("foreign_pods", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("discrepancies", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("kind IN ('real', 'virtual', 'fake')", name=op.f("ck_node_kind_known")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_node_cluster_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sa.UniqueConstraint("cluster_id", "uid", name=op.f("uq_node_cluster_id_uid")),
    )
    op.create_index(op.f("ix_node_changed_xid"), "node", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_node_cluster_id"), "node", ["cluster_id"], unique=False)
    op.create_index(op.f("ix_node_next_check_at"), "node", ["next_check_at"], unique=False)
    op.create_index(
        "uq_node_name_live", "node", ["cluster_id", "name"], unique=True, postgresql_where=sa.text("removed_at IS NULL")
    )


def _create_device() -> None:
    op.create_table(
        "device",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("key_quality", sa.Text(), nullable=False),
        sa.Column("vendor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("parent_key", sa.Text(), nullable=True),
        sa.Column("model_raw", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text(), server_default="", nullable=False),
        sa.Column("arch", sa.Text(), server_default="", nullable=False),
        sa.Column("compute_capability", sa.Text(), server_default="", nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=True),
        sa.Column("memory_oversubscribed_thousandths", sa.BigInteger(), nullable=True),
        sa.Column("profile", sa.Text(), server_default="", nullable=False),
        sa.Column("profile_id", sa.BigInteger(), nullable=True),
        sa.Column("compute_slices", sa.BigInteger(), nullable=True),
        sa.Column("memory_slices", sa.BigInteger(), nullable=True),
        sa.Column("placement_start", sa.BigInteger(), nullable=True),
        sa.Column("placement_size", sa.BigInteger(), nullable=True),
        sa.Column("cores", sa.BigInteger(), nullable=True),
        sa.Column("slots_total", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("slots_allocatable", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("sharing", sa.Text(), server_default="none", nullable=False),
        sa.Column("pci_bus_id", sa.Text(), nullable=True),
        sa.Column("pcie_root", sa.Text(), nullable=True),
        sa.Column("numa", sa.BigInteger(), nullable=True),
        sa.Column("nvlink_domain", sa.Text(), nullable=True),
        sa.Column("nvlink_partition", sa.Text(), nullable=True),
        sa.Column("health", sa.Text(), nullable=False),
        sa.Column("health_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("health_reasons", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sources", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("source_generation", sa.BigInteger(), nullable=True),
        sa.Column("raw", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        *_device_checks(),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_device_cluster_id")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_device_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device")),
        sa.UniqueConstraint("cluster_id", "device_key", name=op.f("uq_device_cluster_id_device_key")),
    )
    op.create_index(op.f("ix_device_node_id"), "device", ["node_id"], unique=False)


def _device_checks() -> tuple[sa.CheckConstraint, ...]:
    return (
        sa.CheckConstraint(
            "health IN ('ok', 'warn', 'unhealthy', 'lost', 'unknown')", name=op.f("ck_device_health_known")
        ),
        sa.CheckConstraint(
            "key_quality IN ('uuid', 'dra', 'pci', 'synthetic')", name=op.f("ck_device_key_quality_known")
        ),
        sa.CheckConstraint(
            "kind IN ('card', 'partition', 'slot_pool', 'tpu_chip', 'fpga', 'virtual')",
            name=op.f("ck_device_kind_known"),
        ),
        sa.CheckConstraint(
            "state IN ('present', 'starting', 'reconfiguring', 'stale', 'lost', 'removed')",
            name=op.f("ck_device_state_known"),
        ),
    )


def _create_discrepancy() -> None:
    op.create_table(
        "discrepancy",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("values", postgresql.JSONB(), nullable=False),
        sa.Column("believed", sa.Text(), server_default="", nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_discrepancy_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_discrepancy")),
        sa.UniqueConstraint("node_id", "code", name=op.f("uq_discrepancy_node_id_code")),
    )
