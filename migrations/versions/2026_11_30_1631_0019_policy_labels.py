"""A Policy's labels, as applied with that version.

Old code never reads the column and writes versions without labels. The lock on `policy` is exclusive and lasts for a
moment, since nothing is rewritten. Going back drops the labels.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0019"
down_revision: str | None = "0018"


def upgrade() -> None:
    op.add_column("policy", sa.Column("labels", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False))


def downgrade() -> None:
    op.drop_column("policy", "labels")
