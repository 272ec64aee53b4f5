"""Why and until when a Cluster takes nothing new, and by when it is to be empty.

Old code never reads the columns, so its planners may place into a cordoned cluster; the sweep for drains takes back
what they place. The lock on `cluster` is exclusive and short: no row is rewritten, and the table is small, so that its
two rules are checked at once. Going back forgets cordons and drains.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"


def upgrade() -> None:
    op.add_column("cluster", sa.Column("cordon_reason", sa.Text(), server_default="", nullable=False))
    op.add_column("cluster", sa.Column("cordon_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("cluster", sa.Column("cordon_by", sa.Text(), server_default="", nullable=False))
    op.add_column("cluster", sa.Column("drain_reason", sa.Text(), server_default="", nullable=False))
    op.add_column("cluster", sa.Column("drain_deadline_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("cluster", sa.Column("drain_by", sa.Text(), server_default="", nullable=False))
    op.add_column("cluster", sa.Column("then_remove", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.create_check_constraint(
        op.f("ck_cluster_drain_whole"), "cluster", "(drain_reason <> '') = (drain_deadline_at IS NOT NULL)"
    )
    op.create_check_constraint(op.f("ck_cluster_removal_drains"), "cluster", "drain_reason <> '' OR NOT then_remove")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_cluster_removal_drains"), "cluster", type_="check")
    op.drop_constraint(op.f("ck_cluster_drain_whole"), "cluster", type_="check")
    for column in ("then_remove", "drain_by", "drain_deadline_at", "drain_reason"):
        op.drop_column("cluster", column)
    for column in ("cordon_by", "cordon_until", "cordon_reason"):
        op.drop_column("cluster", column)
