"""Workloads, their PodSets, Attempts, Placements, pods and Checkpoints; Windows.

New tables only: no lock that anybody waits for. Going back drops them with all that they hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from controlplane.db.base import Xid8

revision: str = "0003"
down_revision: str | None = "0002"

TABLES = (
    "pod",
    "window",
    "workload",
    "attempt",
    "checkpoint",
    "placement",
    "pod_set",
)


def upgrade() -> None:
    _create_pod()
    _create_window()
    _create_workload()
    _create_attempt()
    _create_checkpoint()
    _create_placement()
    _create_pod_set()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_pod() -> None:
    op.create_table(
        "pod",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("pod_set", sa.Text(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), server_default="", nullable=False),
        sa.Column("replacement_of", sa.Text(), server_default="", nullable=False),
        sa.Column("exit_code", sa.BigInteger(), nullable=True),
        sa.Column("disrupted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("device_keys", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('placed', 'gated', 'pending', 'running', 'succeeded', 'failed', 'lost', 'gone')",
            name=op.f("ck_pod_state_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pod")),
    )
    op.create_index("ix_pod_attempt", "pod", ["workload_id", "attempt"], unique=False)
    op.create_index(
        "ix_pod_node_live",
        "pod",
        ["node_id"],
        unique=False,
        postgresql_where=sa.text("state NOT IN ('succeeded', 'failed', 'gone')"),
    )


def _create_window() -> None:
    op.create_table(
        "window",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("ends_at > starts_at", name=op.f("ck_window_ends_after_start")),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_window_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_window")),
        sa.UniqueConstraint("name", name=op.f("uq_window_name")),
    )
    op.create_index(op.f("ix_window_changed_xid"), "window", ["changed_xid"], unique=False)


def _create_workload() -> None:
    op.create_table(
        "workload",
        sa.Column("id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("parent_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("manifest", postgresql.JSONB(), nullable=True),
        sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("shape", sa.Text(), server_default="", nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("attempts_made", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("program_failures", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("infrastructure_ends", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("on_cluster_loss", sa.Text(), server_default="hold", nullable=False),
        sa.Column("reasons", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("old_place", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state_changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_workload_pool_id")),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name=op.f("fk_workload_queue_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workload")),
    )
    op.create_index(op.f("ix_workload_changed_xid"), "workload", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_workload_next_check_at"), "workload", ["next_check_at"], unique=False)
    op.create_index(op.f("ix_workload_queue_id"), "workload", ["queue_id"], unique=False)
    op.create_index("ix_workload_state_pool", "workload", ["pool_id", "state"], unique=False)
    op.create_index(
        "uq_workload_name_live",
        "workload",
        ["queue_id", "name"],
        unique=True,
        postgresql_where=sa.text("state NOT IN ('succeeded', 'failed', 'cancelled')"),
    )


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("outcome_wanted", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("reason", postgresql.JSONB(), nullable=True),
        sa.Column("cycle_id", sa.BigInteger(), nullable=True),
        sa.Column("placed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prepared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("start_ordered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("running_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_ordered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("evidence_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.CheckConstraint("(state = 'ended') = (outcome IS NOT NULL)", name=op.f("ck_attempt_ended_has_outcome")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_attempt_number_range")),
        sa.ForeignKeyConstraint(["workload_id"], ["workload.id"], name=op.f("fk_attempt_workload_id")),
        sa.PrimaryKeyConstraint("workload_id", "attempt", name=op.f("pk_attempt")),
    )
    op.create_index(op.f("ix_attempt_changed_xid"), "attempt", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_attempt_next_check_at"), "attempt", ["next_check_at"], unique=False)
    op.create_index(
        "uq_attempt_live", "attempt", ["workload_id"], unique=True, postgresql_where=sa.text("state <> 'ended'")
    )


def _create_checkpoint() -> None:
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=True),
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("saved_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["workload_id"], ["workload.id"], name=op.f("fk_checkpoint_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
    )
    op.create_index(op.f("ix_checkpoint_workload_id"), "checkpoint", ["workload_id"], unique=False)


def _create_placement() -> None:
    op.create_table(
        "placement",
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("wanted_gen", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("applied_gen", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "state IN ('ordered', 'prepared', 'rejected', 'stopping', 'gone')", name=op.f("ck_placement_state_known")
        ),
        sa.CheckConstraint("applied_gen <= wanted_gen", name=op.f("ck_placement_not_ahead")),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_placement_cluster_id")),
        sa.PrimaryKeyConstraint("workload_id", "attempt", "cluster_id", name=op.f("pk_placement")),
    )
    op.create_index(
        "ix_placement_cluster_live",
        "placement",
        ["cluster_id"],
        unique=False,
        postgresql_where=sa.text("state <> 'gone'"),
    )


def _create_pod_set() -> None:
    op.create_table(
        "pod_set",
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("min_replicas", sa.BigInteger(), nullable=True),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("flavors", postgresql.JSONB(), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("topology_mode", sa.Text(), server_default="none", nullable=False),
        sa.Column("topology_level", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint("devices BETWEEN 0 AND 1000000", name=op.f("ck_pod_set_devices_range")),
        sa.CheckConstraint("replicas BETWEEN 1 AND 100000", name=op.f("ck_pod_set_replicas_range")),
        sa.ForeignKeyConstraint(["workload_id"], ["workload.id"], name=op.f("fk_pod_set_workload_id")),
        sa.PrimaryKeyConstraint("workload_id", "name", name=op.f("pk_pod_set")),
    )
