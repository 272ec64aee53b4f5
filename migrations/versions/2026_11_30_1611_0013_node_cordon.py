"""Until when a Node is cordoned, by whom; and its resources as its cluster told them, to count again from.

Old code cordons without an end and writes no resources: who counts again without them takes the counters' word. The
lock on `node` is exclusive and short. Going back, cordons lose their end.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0013"
down_revision: str | None = "0012"


def upgrade() -> None:
    op.add_column("node", sa.Column("cordon_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("node", sa.Column("cordon_by", sa.Text(), server_default="", nullable=False))
    op.add_column("node", sa.Column("cordon_version", sa.BigInteger(), server_default="1", nullable=False))
    op.add_column("node", sa.Column("resources", JSONB(), server_default=sa.text("'[]'"), nullable=False))


def downgrade() -> None:
    for column in ("resources", "cordon_version", "cordon_by", "cordon_until"):
        op.drop_column("node", column)
