"""The budgets of each Queue beside its document, and which few Queues have limits beside quota, for planners to find.

Old code neither reads nor writes the column: what it applies has no budgets, and its planners obey none. Queues are as
many as teams, so the indexes are there at once. Going back drops them; documents keep what they said.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0027"
down_revision: str | None = "0035"


def upgrade() -> None:
    op.add_column("queue", sa.Column("budgets", postgresql.JSONB(), server_default="[]", nullable=False))
    op.create_index("ix_queue_budgets", "queue", ["id"], postgresql_where=sa.text("budgets <> '[]'"))
    op.create_index("ix_queue_most_running", "queue", ["id"], postgresql_where=sa.text("most_running IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_queue_most_running", table_name="queue")
    op.drop_index("ix_queue_budgets", table_name="queue")
    op.drop_column("queue", "budgets")
