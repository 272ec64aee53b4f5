"""How far the log was read when a seal was made: every audit row of an earlier transaction has its place by then.

Old code never names the column; its seals say 0, which is "nothing is known", and cost the next sealer one longer look.
The exclusive lock on `audit_seal` lasts for a moment, since nothing is rewritten. Going back drops the column.
"""

from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"


def upgrade() -> None:
    op.execute("ALTER TABLE audit_seal ADD COLUMN horizon xid8 NOT NULL DEFAULT '0'")


def downgrade() -> None:
    op.execute("ALTER TABLE audit_seal DROP COLUMN horizon")
