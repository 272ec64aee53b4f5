"""Why a Device is out of planning, until when, by whom; and the resource that counts it.

Old code never reads the columns: where it takes an inventory, a cordoned device counts as usable until the next one.
The lock on `device` is exclusive and short. Going back forgets cordons of devices.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"


def upgrade() -> None:
    op.add_column("device", sa.Column("resource", sa.Text(), server_default="", nullable=False))
    op.add_column("device", sa.Column("cordon_reason", sa.Text(), server_default="", nullable=False))
    op.add_column("device", sa.Column("cordon_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("device", sa.Column("cordon_by", sa.Text(), server_default="", nullable=False))
    op.add_column("device", sa.Column("cordon_version", sa.BigInteger(), server_default="1", nullable=False))


def downgrade() -> None:
    for column in ("cordon_version", "cordon_by", "cordon_until", "cordon_reason", "resource"):
        op.drop_column("device", column)
