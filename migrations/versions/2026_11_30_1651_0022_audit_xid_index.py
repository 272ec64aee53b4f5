"""An index to find audit rows of late transactions by.

Built beside the work (SHARE UPDATE EXCLUSIVE): one pass over `audit`, no write waits. Building a large one takes longer
than a statement may, and waits for transactions that are open, so it is given more time. Going back drops it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"

NAME = "ix_audit_xid"


def upgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "audit", if_exists=True, postgresql_concurrently=True)  # left by a crash
        op.create_index(op.f(NAME), "audit", ["xid"], postgresql_concurrently=True)


def downgrade() -> None:
    with _patience():
        op.drop_index(op.f(NAME), "audit", if_exists=True, postgresql_concurrently=True)


@contextmanager
def _patience() -> Iterator[None]:
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = '10min'")
        op.execute("SET lock_timeout = '10min'")
        yield
        op.execute("SET lock_timeout = '4s'")
        op.execute("SET statement_timeout = '5s'")
