"""Indexes by which pages of Workloads are read, youngest first: of everything, and of one Queue.

Both are built beside the work (SHARE UPDATE EXCLUSIVE): one pass over `workload` each, no write waits.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"

INDEXES: dict[str, list[str | sa.TextClause]] = {
    "ix_workload_youngest": [sa.text("submitted_at DESC"), sa.text("id DESC")],
    "ix_workload_queue_youngest": ["queue_id", sa.text("submitted_at DESC"), sa.text("id DESC")],
}


def upgrade() -> None:
    for name, columns in INDEXES.items():
        with _patience():
            op.drop_index(op.f(name), "workload", if_exists=True, postgresql_concurrently=True)  # left by a crash
            op.create_index(op.f(name), "workload", columns, postgresql_concurrently=True)


def downgrade() -> None:
    for name in reversed(INDEXES):
        with _patience():
            op.drop_index(op.f(name), "workload", if_exists=True, postgresql_concurrently=True)


@contextmanager
def _patience() -> Iterator[None]:
    """Building waits for transactions that are open, so it is given more time than other statements."""
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = '10min'")
        op.execute("SET lock_timeout = '10min'")
        yield
        op.execute("SET lock_timeout = '4s'")
        op.execute("SET statement_timeout = '5s'")
