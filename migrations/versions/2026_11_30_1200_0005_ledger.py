"""Accounts, Transfers with their legs, usage, audit, cycles and who ran when.

New tables only: no lock that anybody waits for. Going back drops them with all that they hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0005"
down_revision: str | None = "0004"

TABLES = (
    "audit",
    "audit_seal",
    "leg",
    "periodic_run",
    "process_heartbeat",
    "transfer",
    "usage_hour",
    "usage_interval",
    "account",
    "cycle",
    "rebalance_report",
)


def upgrade() -> None:
    # Exclusion constraints mix equality and overlap; the extension is trusted, so an owner may create it.
    op.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    _create_audit()
    _create_audit_seal()
    _create_leg()
    _create_periodic_run()
    _create_process_heartbeat()
    _create_transfer()
    _create_usage_hour()
    _create_usage_interval()
    _create_account()
    _create_cycle()
    _create_rebalance_report()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), server_default="", nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("state_from", sa.Text(), nullable=True),
        sa.Column("state_to", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("before_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("after_sha256", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at", "id"], unique=False)
    op.create_index("ix_audit_object", "audit", ["object_kind", "object_id"], unique=False)


def _create_audit_seal() -> None:
    op.create_table(
        "audit_seal",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("audit_id", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_audit_seal")),
        sa.UniqueConstraint("audit_id", name=op.f("uq_audit_seal_audit_id")),
    )


def _create_leg() -> None:
    op.create_table(
        "leg",
        sa.Column("transfer_id", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "source IN ('free', 'pending', 'posted') AND target IN ('free', 'pending', 'posted') AND source <> target",
            name=op.f("ck_leg_sides_known"),
        ),
        sa.CheckConstraint("amount > 0", name=op.f("ck_leg_amount_positive")),
        sa.PrimaryKeyConstraint("transfer_id", "queue_id", "flavor", name=op.f("pk_leg")),
    )
    op.create_index("ix_leg_account", "leg", ["queue_id", "flavor"], unique=False)


def _create_periodic_run() -> None:
    op.create_table(
        "periodic_run",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_periodic_run")),
    )


def _create_process_heartbeat() -> None:
    op.create_table(
        "process_heartbeat",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_process_heartbeat")),
    )


def _create_transfer() -> None:
    op.create_table(
        "transfer",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("pending_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(kind IN ('post', 'void', 'expire', 'reverse')) = (pending_id IS NOT NULL)",
            name=op.f("ck_transfer_resolves_something"),
        ),
        sa.CheckConstraint(
            "kind IN ('place', 'post', 'void', 'expire', 'reverse', 'adjust')", name=op.f("ck_transfer_kind_known")
        ),
        sa.ForeignKeyConstraint(["pending_id"], ["transfer.id"], name=op.f("fk_transfer_pending_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfer")),
    )
    op.create_index(
        "uq_transfer_place",
        "transfer",
        ["workload_id", "attempt"],
        unique=True,
        postgresql_where=sa.text("kind = 'place'"),
    )
    op.create_index(
        "uq_transfer_resolution",
        "transfer",
        ["pending_id"],
        unique=True,
        postgresql_where=sa.text("kind IN ('post', 'void', 'expire')"),
    )
    op.create_index(
        "uq_transfer_reverse", "transfer", ["pending_id"], unique=True, postgresql_where=sa.text("kind = 'reverse'")
    )


def _create_usage_hour() -> None:
    op.create_table(
        "usage_hour",
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("device_seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue_id", "flavor", "hour", name=op.f("pk_usage_hour")),
    )


def _create_usage_interval() -> None:
    op.create_table(
        "usage_interval",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pod_id", sa.BigInteger(), nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("device_key", sa.Text(), server_default="", nullable=False),
        sa.Column("during", postgresql.TSTZRANGE(), nullable=False),
        sa.Column("is_rolled_up", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        postgresql.ExcludeConstraint(
            (sa.column("device_key"), "="),
            (sa.column("during"), "&&"),
            where=sa.text("device_key <> ''"),
            using="gist",
            name="ex_usage_interval_device",
        ),
        postgresql.ExcludeConstraint(
            (sa.column("pod_id"), "="), (sa.column("during"), "&&"), using="gist", name="ex_usage_interval_pod"
        ),
        sa.CheckConstraint(
            "NOT isempty(during) AND NOT lower_inf(during) AND NOT upper_inf(during)",
            name=op.f("ck_usage_interval_during_bounded"),
        ),
        sa.CheckConstraint("amount > 0", name=op.f("ck_usage_interval_amount_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage_interval")),
    )
    op.create_index(
        "ix_usage_interval_waiting",
        "usage_interval",
        ["id"],
        unique=False,
        postgresql_where=sa.text("NOT is_rolled_up"),
    )


def _create_account() -> None:
    op.create_table(
        "account",
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("is_root", sa.Boolean(), nullable=False),
        sa.Column("subtree", sa.BigInteger(), nullable=False),
        sa.Column("borrow_limit", sa.BigInteger(), nullable=True),
        sa.Column("kept", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("overdraft", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pending", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("posted", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "NOT is_root OR pending + posted <= subtree + overdraft", name=op.f("ck_account_root_not_oversold")
        ),
        sa.CheckConstraint(
            "borrow_limit IS NULL OR pending + posted <= subtree + borrow_limit + overdraft",
            name=op.f("ck_account_borrowing_limited"),
        ),
        sa.CheckConstraint("pending >= 0 AND posted >= 0 AND overdraft >= 0", name=op.f("ck_account_not_negative")),
        sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name=op.f("fk_account_queue_id")),
        sa.PrimaryKeyConstraint("queue_id", "flavor", name=op.f("pk_account")),
    )


def _create_cycle() -> None:
    op.create_table(
        "cycle",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("planner_epoch", sa.BigInteger(), nullable=False),
        sa.Column("base_id", sa.BigInteger(), nullable=True),
        sa.Column("policy_version", sa.BigInteger(), nullable=False),
        sa.Column("now", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changes", sa.LargeBinary(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("plan_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("running_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("decisions", sa.BigInteger(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("work_units", sa.BigInteger(), nullable=False),
        sa.Column("left_over", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_cycle_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cycle")),
    )
    op.create_index("ix_cycle_pool_started", "cycle", ["pool_id", "started_at"], unique=False)


def _create_rebalance_report() -> None:
    op.create_table(
        "rebalance_report",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("report", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pool.id"], name=op.f("fk_rebalance_report_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rebalance_report")),
    )
    op.create_index("ix_rebalance_report_pool_at", "rebalance_report", ["pool_id", "at"], unique=False)
