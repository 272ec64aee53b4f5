"""How far a token reaches (`within_queue_id`), who made it, and the day on which it was last used.

Old code never reads the columns; it would take a token that a lead made for one without that bound, so leads make none
before it is gone. The locks (`api_token` exclusive, `queue` against writes for the foreign key) last for a moment,
since nothing is rewritten. Going back drops the columns, and with them the bounds: tokens that have one are revoked
first.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"


def upgrade() -> None:
    op.add_column("api_token", sa.Column("within_queue_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key("fk_api_token_within_queue_id", "api_token", "queue", ["within_queue_id"], ["id"])
    op.add_column("api_token", sa.Column("created_by", sa.Text(), nullable=False, server_default=""))
    op.add_column("api_token", sa.Column("last_used_on", sa.Date(), nullable=True))


def downgrade() -> None:
    op.execute("UPDATE api_token SET revoked_at = now() WHERE within_queue_id IS NOT NULL AND revoked_at IS NULL")
    op.drop_column("api_token", "last_used_on")
    op.drop_column("api_token", "created_by")
    op.drop_column("api_token", "within_queue_id")
