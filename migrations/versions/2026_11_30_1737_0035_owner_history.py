"""What each owner had lately of what others of the same Queue waited for, per Pool.

A table of its own: old code neither reads nor writes it. No lock on any other table that anybody would notice. Going
back forgets it: owners are alike again.
"""

import sqlalchemy as sa
from alembic import op

from controlplane.db.base import Xid8

revision: str = "0035"
down_revision: str | None = "0030"


def upgrade() -> None:
    op.create_table(
        "owner_history",
        sa.Column("pool_id", sa.BigInteger(), nullable=False),
        sa.Column("queue_id", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("used", sa.Numeric(38, 0), nullable=False),
        sa.Column("reckoned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_xid", Xid8(), nullable=False),
        sa.CheckConstraint("used >= 0", name=op.f("ck_owner_history_used_range")),
        sa.PrimaryKeyConstraint("pool_id", "queue_id", "owner", name=op.f("pk_owner_history")),
    )
    op.create_index(op.f("ix_owner_history_changed_xid"), "owner_history", ["changed_xid"], unique=False)
    op.execute("CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON owner_history FOR EACH ROW EXECUTE FUNCTION touch()")


def downgrade() -> None:
    op.drop_table("owner_history")
