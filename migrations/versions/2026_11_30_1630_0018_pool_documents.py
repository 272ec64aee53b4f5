"""A Pool's labels, as applied, and when it was deleted; a deleted Pool keeps its row for what once ran in it.

Old code never reads the columns: it still lists a deleted Pool, in which nothing lives. The lock on `pool` is exclusive
and lasts for a moment, since nothing is rewritten. Going back drops the columns: deleted Pools are back, empty.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0018"
down_revision: str | None = "0017"


def upgrade() -> None:
    op.add_column("pool", sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False))
    op.add_column("pool", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("pool", "deleted_at")
    op.drop_column("pool", "labels")
