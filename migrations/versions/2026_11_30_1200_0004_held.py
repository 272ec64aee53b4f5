"""What is held for Attempts, what agents are told, and the legal changes of states.

New tables only: no lock that anybody waits for. Going back drops them with all that they hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from controlplane.db.base import Xid8

revision: str = "0004"
down_revision: str | None = "0003"

TABLES = (
    "directive",
    "directive_number",
    "earmark",
    "exclusion",
    "hold",
    "hold_device",
    "reservation",
    "state_transition",
)


def upgrade() -> None:
    _create_directive()
    _create_directive_number()
    _create_earmark()
    _create_exclusion()
    _create_hold()
    _create_hold_device()
    _create_reservation()
    _create_state_transition()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_directive() -> None:
    op.create_table(
        "directive",
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("gen", sa.BigInteger(), nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('apply', 'start', 'tombstone')", name=op.f("ck_directive_kind_known")),
        sa.PrimaryKeyConstraint("cluster_id", "object_id", "gen", name=op.f("pk_directive")),
    )


def _create_directive_number() -> None:
    op.create_table(
        "directive_number",
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("gen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "number", name=op.f("pk_directive_number")),
    )
    op.create_index(
        "uq_directive_number_directive", "directive_number", ["cluster_id", "object_id", "gen"], unique=True
    )


def _create_earmark() -> None:
    op.create_table(
        "earmark",
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("shares", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.PrimaryKeyConstraint("workload_id", name=op.f("pk_earmark")),
    )
    op.create_index(op.f("ix_earmark_changed_xid"), "earmark", ["changed_xid"], unique=False)
    op.create_index(op.f("ix_earmark_next_check_at"), "earmark", ["next_check_at"], unique=False)


def _create_exclusion() -> None:
    op.create_table(
        "exclusion",
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("times", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_xid", Xid8(), server_default=sa.FetchedValue(), nullable=False),
        sa.PrimaryKeyConstraint("shape", "node_id", name=op.f("pk_exclusion")),
    )
    op.create_index(op.f("ix_exclusion_changed_xid"), "exclusion", ["changed_xid"], unique=False)


def _create_hold() -> None:
    op.create_table(
        "hold",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pod_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("cluster_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_hold_amount_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hold")),
    )
    op.create_index(
        "ix_hold_attempt_live",
        "hold",
        ["workload_id", "attempt"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_index(
        "ix_hold_node_live",
        "hold",
        ["node_id", "flavor"],
        unique=False,
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_index("uq_hold_live", "hold", ["pod_id"], unique=True, postgresql_where=sa.text("released_at IS NULL"))


def _create_hold_device() -> None:
    op.create_table(
        "hold_device",
        sa.Column("hold_id", sa.BigInteger(), nullable=False),
        sa.Column("device_uid", sa.Text(), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("hold_id", "device_uid", name=op.f("pk_hold_device")),
    )
    op.create_index(
        "uq_hold_device_live",
        "hold_device",
        ["device_uid"],
        unique=True,
        postgresql_where=sa.text("released_at IS NULL"),
    )


def _create_reservation() -> None:
    op.create_table(
        "reservation",
        sa.Column("workload_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), server_default="held", nullable=False),
        sa.Column("proof", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'released') = (proof <> '')", name=op.f("ck_reservation_released_has_proof")),
        sa.CheckConstraint(
            "(state = 'released') = (released_at IS NOT NULL)", name=op.f("ck_reservation_released_has_time")
        ),
        sa.CheckConstraint("state IN ('held', 'released')", name=op.f("ck_reservation_state_known")),
        sa.CheckConstraint("amount > 0", name=op.f("ck_reservation_amount_positive")),
        sa.PrimaryKeyConstraint("workload_id", "attempt", "flavor", name=op.f("pk_reservation")),
    )


def _create_state_transition() -> None:
    op.create_table(
        "state_transition",
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("entity", "from_state", "to_state", name=op.f("pk_state_transition")),
    )
