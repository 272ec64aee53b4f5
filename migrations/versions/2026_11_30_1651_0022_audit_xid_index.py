"""An index to find audit rows of late transactions by.

Built beside the work (SHARE UPDATE EXCLUSIVE): one pass over `audit`, no write waits. Going back drops it.
"""

from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"

NAME = "ix_audit_xid"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index(op.f(NAME), "audit", if_exists=True, postgresql_concurrently=True)  # left by a crash
        op.create_index(op.f(NAME), "audit", ["xid"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index(op.f(NAME), "audit", if_exists=True, postgresql_concurrently=True)
