"""When each agent's key signed its last hello, so that a captured one cannot open a Session again.

Old code never reads the column. The lock on `agent_key` is exclusive and lasts for a moment, since nothing is
rewritten. Going back drops the column; hellos of the last minute could be sent again then.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"


def upgrade() -> None:
    op.add_column("agent_key", sa.Column("hello_iat", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("agent_key", "hello_iat")
