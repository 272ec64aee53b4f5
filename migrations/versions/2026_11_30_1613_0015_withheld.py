"""How many units of a Flavor on a node are out of planning because their devices are cordoned.

Old code never reads the column. The lock on `node_flavor` is exclusive and lasts for a moment. Going back drops it.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"


def upgrade() -> None:
    op.add_column("node_flavor", sa.Column("withheld", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("node_flavor", "withheld")
