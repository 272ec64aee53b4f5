"""What a plane that came from a backup has to know: since when it recovers, which clusters it has not heard, and which
numbers of Attempts agents know that it does not.

Old code never reads the columns: it would plan while others recover, so a recovery is begun with one version running.
The exclusive locks last for a moment, since no row is rewritten. Going back forgets an unfinished recovery.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"


def upgrade() -> None:
    op.add_column("plane", sa.Column("recovering_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("cluster", sa.Column("recovering", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("workload", sa.Column("attempts_seen", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("workload", "attempts_seen")
    op.drop_column("cluster", "recovering")
    op.drop_column("plane", "recovering_since")
