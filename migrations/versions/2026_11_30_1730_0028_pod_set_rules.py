"""What a PodSet asks of nodes beside CPU and memory, and how its pods shall stand to each other.

Old code never reads the columns and writes rows that ask for nothing. The lock on `pod_set` is exclusive and lasts for
a moment. Going back drops them.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0028"
down_revision: str | None = "0026"

AMOUNTS = ("rdma", "hugepages_bytes", "local_storage_bytes", "slice_size")
TEXTS = ("slice_level", "with_pod_set")


def upgrade() -> None:
    for name in AMOUNTS:
        op.add_column("pod_set", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    for name in TEXTS:
        op.add_column("pod_set", sa.Column(name, sa.Text(), server_default="", nullable=False))
    for name, empty in (("rules", "{}"), ("speeds", "[]")):
        op.add_column("pod_set", sa.Column(name, postgresql.JSONB(), server_default=empty, nullable=False))


def downgrade() -> None:
    for name in ("speeds", "rules", *TEXTS, *AMOUNTS):
        op.drop_column("pod_set", name)
