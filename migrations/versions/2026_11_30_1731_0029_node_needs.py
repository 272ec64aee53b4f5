"""What nodes have beside devices, CPU and memory, and what of that is held: pods, RDMA, huge pages, local disk.

Old code never reads the columns, and places nothing that asks for any of these. How many pods of ours a node has is
counted from holds, so no counter of it can fall behind while two versions work. What a node's agent has not told yet is
null: older agents tell none of it. The locks on `node` and `hold` are exclusive and last for a moment. Going back drops
the columns.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"

NEEDS = ("rdma", "hugepages_bytes", "local_storage_bytes")


def upgrade() -> None:
    op.add_column("node", sa.Column("pods", sa.BigInteger(), server_default="110", nullable=False))
    for name in NEEDS:
        op.add_column("node", sa.Column(name, sa.BigInteger(), nullable=True))
        op.add_column("node", sa.Column(f"{name}_held", sa.BigInteger(), server_default="0", nullable=False))
        op.add_column("hold", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for name in NEEDS:
        op.drop_column("hold", name)
        op.drop_column("node", f"{name}_held")
        op.drop_column("node", name)
    op.drop_column("node", "pods")
