"""What each Queue had lately of what its siblings waited for, per Pool and Flavor, and the weight that it makes.

A table of its own: old code neither reads nor writes it, and plans by plain weights. No lock on any other table that
anybody would notice. Amounts are device-microseconds, which outgrow 64 bits on large fleets with long half-lives. Going
back forgets the past: all weights count in full again.
"""

import sqlalchemy as sa
from alembic import op

from controlplane.db.base import Xid8

revision: str = "0030"
down_revision: str | None = "0032"


def upgrade() -> None:
    op.create_table(
        "queue_history",
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("flavor", sa.Text(), nullable=False),
        sa.Column("contended", sa.Numeric(38, 0), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("credit", sa.Numeric(38, 0), nullable=False),
        sa.Column("reckoned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_xid", Xid8(), nullable=False),
        sa.CheckConstraint("contended >= 0", name=op.f("ck_queue_history_contended_range")),
        sa.CheckConstraint("weight BETWEEN 1 AND 1000000", name=op.f("ck_queue_history_weight_range")),
        sa.PrimaryKeyConstraint("pool_id", "queue_id", "flavor", name=op.f("pk_queue_history")),
    )
    op.create_index(op.f("ix_queue_history_changed_xid"), "queue_history", ["changed_xid"], unique=False)
    op.execute("CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON queue_history FOR EACH ROW EXECUTE FUNCTION touch()")


def downgrade() -> None:
    op.drop_table("queue_history")
