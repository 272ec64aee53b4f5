"""Which transaction wrote each audit row, so that whoever reads them in order knows when none before can still come.

Old code never names the column; its rows get it by default. Rows that are there get this revision's transaction,
without being rewritten, so the exclusive lock on `audit` lasts for a moment. Going back drops the column.
"""

from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"


def upgrade() -> None:
    op.execute("ALTER TABLE audit ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id()")


def downgrade() -> None:
    op.execute("ALTER TABLE audit DROP COLUMN xid")
